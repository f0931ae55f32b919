"""The grid of the kernels for those on torch tensors: plain, and fused by Triton, interpreted where there is no GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from onesided.kernels import reference
from onesided.kernels.bundles import Prior, Rows, Sums
from tests.conftest import NEEDS
from tests.test_kernels import (
    PANELS,
    SCALES,
    build,
    column_arguments,
    column_prior,
    factor,
    posterior_arguments,
    rows_of,
    with_scales,
)

torch = pytest.importorskip("torch", reason=NEEDS["torch"])

from onesided.kernels import gpu  # noqa: E402  torch may not be there

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = {np.float32: torch.float32, np.float64: torch.float64}


@pytest.fixture(params=["torch", "triton"])
def path(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(gpu, "fused_for", lambda tensor: None)
    else:
        pytest.importorskip("triton", reason=NEEDS["triton"])
        assert gpu.fused_for(torch.zeros(1, device=DEVICE)) is not None
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=PANELS)
def panel(request):
    return build(request.param)


@pytest.fixture(params=SCALES)
def scales(request):
    return request.param


class There(NamedTuple):
    rows: gpu.Rows
    order: np.ndarray
    weights: torch.Tensor


def brought(array):
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def there(panel, dtype):
    indptr, columns, values, weights, d = panel
    rows = gpu.Rows.of(brought(indptr), brought(columns), brought(values.astype(dtype)), d)
    return There(rows, rows.order.cpu().numpy(), brought(weights)[rows.order])


def wide(X):
    table = torch.zeros((len(X), gpu.width_for(X.shape[1])), dtype=TYPES[X.dtype.type], device=DEVICE)
    table[:, : X.shape[1]] = brought(X)
    return table


def close(actual, expected, dtype):
    """Within 1e-5 of the largest number in single precision, 1e-10 in double."""
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(actual.cpu().numpy(), expected, rtol=0, atol=tolerance * scale)


def test_rows_are_those_of_the_panel_longest_first(panel, dtype):
    indptr, columns, values, _, _ = panel
    rows, order, _ = there(panel, dtype)
    lengths = rows.lengths.cpu().numpy()
    assert np.all(np.diff(lengths) <= 0)
    np.testing.assert_array_equal(lengths, np.diff(indptr)[order])
    kept = [slice(indptr[u], indptr[u + 1]) for u in order]
    np.testing.assert_array_equal(rows.columns.cpu().numpy(), np.concatenate([columns[row] for row in kept]))
    np.testing.assert_array_equal(
        rows.values.cpu().numpy(), np.concatenate([values[row] for row in kept]).astype(dtype)
    )


def compare_row_pass(panel, dtype, r, in_order, scales="near one"):
    panel, center, scale = with_scales(panel, scales)
    X = factor(panel[-1], r, dtype)
    expected = reference.row_pass(rows_of(panel, dtype), X, center, scale)
    rows, _, w = there(panel, dtype)
    e = gpu.centred(rows, brought(center), brought(scale), TYPES[dtype])
    loss, gradient = gpu.row_pass(rows, e, w.to(TYPES[dtype]), wide(X), in_order)
    close(loss, np.asarray(expected[0]), dtype)
    close(gradient[:, :r], expected[1], dtype)
    assert not gradient[:, r:].any()


@pytest.mark.parametrize("r", [1, 10, 16, 19])
def test_row_pass(path, panel, dtype, r):
    compare_row_pass(panel, dtype, r, in_order=False)


def test_row_pass_of_columns_in_units_far_apart(path, panel, dtype):
    compare_row_pass(panel, dtype, 10, in_order=False, scales="powers of ten")


def test_row_pass_in_order(path, panel, dtype):
    compare_row_pass(panel, dtype, 10, in_order=True)


@pytest.mark.parametrize("r", [40, 70] if DEVICE == "cuda" else [40])
def test_row_pass_of_high_rank(path, dtype, r):
    compare_row_pass(build("huge row"), dtype, r, in_order=False)


@pytest.mark.parametrize("in_order", [False, True])
def test_row_pass_of_rows_that_are_cut(path, dtype, in_order, monkeypatch):
    monkeypatch.setattr(gpu, "SPLIT", 100)
    monkeypatch.setattr(gpu, "PIECE", 48)
    monkeypatch.setattr(gpu, "LONGEST", 8)
    assert there(build("huge row"), dtype).rows.plan.n_cut == 2
    compare_row_pass(build("huge row"), dtype, 10, in_order)


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_row_pass_of_factors_of_any_size(path, dtype, size):
    """Halves have a narrow range: what is scaled must come out scaled back."""
    panel = build("random")
    indptr, columns, values, weights, d = panel
    X = (factor(d, 4, np.float64) * np.geomspace(1e-3, 1.0, d)[:, None]).astype(dtype)
    rows, _, w = there(panel, dtype)
    zero = torch.zeros(len(values), dtype=TYPES[dtype], device=DEVICE)
    loss, gradient = gpu.row_pass(rows, zero, w.to(TYPES[dtype]), wide((size * X).astype(dtype)))
    nothing = Rows.of(indptr, columns, np.zeros_like(values), weights)
    expected = reference.row_pass(nothing, X, np.zeros(d), np.ones(d))
    close(loss / size**4, np.asarray(expected[0]), dtype)
    close(gradient[:, :4].double() / size**3, expected[1], dtype)


@pytest.mark.parametrize("width", [1, 3, 40, 200])
@pytest.mark.parametrize("longest", [4, 1024])
def test_sums_of_lines(path, width, longest, monkeypatch):
    monkeypatch.setattr(gpu, "LONGEST", longest)
    monkeypatch.setattr(gpu, "CHUNK", 500)
    rng = np.random.default_rng(3)
    pointers = np.concatenate([[0], np.cumsum([5, 0, 17, 1, 0, 30])])
    table, index = rng.normal(size=(9, width)), rng.integers(9, size=pointers[-1])
    f = rng.normal(size=len(index))
    over = gpu.segments(brought(pointers))
    for lines, weighed in ((index, f), (index, None), (None, f), (None, None)):
        source = table if lines is not None else rng.normal(size=(len(index), width))
        each = source[lines] if lines is not None else source
        each = each * weighed[:, None] if weighed is not None else each
        expected = np.array([each[a:b].sum(axis=0) for a, b in pairwise(pointers)])
        given = [None if array is None else brought(array) for array in (lines, weighed)]
        close(gpu.sum_of_lines(over, brought(source), *given), expected, np.float64)


def test_column_sums(path, panel, dtype, scales):
    panel, center, scale = with_scales(panel, scales)
    rows, _, w = there(panel, dtype)
    e = gpu.centred(rows, brought(center), brought(scale), torch.float64)
    sums, products = gpu.column_sums(rows, e, w)
    expected = reference.column_sums(rows_of(panel, dtype), center, scale)
    close(sums.T, expected[0], np.float64)
    close(products, expected[1], np.float64)


@pytest.mark.parametrize("r", [1, 10])
def test_curvature(path, panel, dtype, r):
    rows, _, w = there(panel, dtype)
    X = factor(panel[-1], r, dtype)
    close(gpu.curvature(rows, w, brought(X)), reference.curvature(Rows.of(*panel[:4]), X), dtype)


def test_gram_product(path, panel, dtype, scales):
    panel, center, scale = with_scales(panel, scales)
    V = factor(panel[-1], 3, np.float64)
    rows, _, w = there(panel, dtype)
    e = gpu.centred(rows, brought(center), brought(scale), TYPES[dtype])
    expected = reference.gram_product(rows_of(panel, dtype), center, scale, 0.3, V)
    close(gpu.gram_product(rows, e, w, 0.3, brought(V)), expected, dtype)


def test_linked_columns(panel):
    indptr, columns, _, weights, d = panel
    for weight in (weights, np.where(np.arange(len(weights)) % 7 == 0, 1.0, 0.0)):
        rows, _, w = there((*panel[:3], weight, d), np.float64)
        above, before = torch.arange(d, dtype=torch.int32, device=DEVICE), None
        while before is None or not torch.equal(above, before):
            before, above = above, gpu.linked(rows, w, above)
        np.testing.assert_array_equal(above.cpu().numpy(), reference.linked_columns(indptr, columns, weight, d))


def columns_there(columns):
    """The same on the device, without what fills up lines."""
    k = columns.n_loadings
    half = (k + 1) * (k + 2) // 2
    return columns._replace(
        unit=brought(columns.unit),
        center=brought(columns.center),
        loadings=brought(columns.loadings[:, :k]),
        precision=brought(columns.precision),
        information=brought(columns.information[:, :half]),
        row_prior=brought(columns.row_prior[:half]),
    )


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("r", [0, 4, 19] if DEVICE == "cuda" else [0, 2])
def test_row_posteriors_and_sufficient_statistics(path, dtype, r, uncertain, scales):
    """On one panel: that of rows of different lengths, some of weight zero."""
    panel = build("random")
    how = {"uncertain": uncertain, "standard": dtype == np.float32, "scales": scales}
    arguments = posterior_arguments(panel, dtype, r, **how)
    panel, *_ = with_scales(panel, scales)
    columns = columns_there(arguments[1])
    rows, order, w = there(panel, dtype)
    e = gpu.centred(rows, columns.center, columns.unit, TYPES[dtype])
    close(gpu.row_posterior(rows, e, columns), reference.row_posterior(*arguments)[order], dtype)
    expected = reference.posterior_sums(*arguments)._asdict()
    for name, sums in gpu.posterior_sums(rows, e, w, columns)._asdict().items():
        close(sums, expected[name], dtype)


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("r", [0, 4, 19] if DEVICE == "cuda" else [0, 2])
def test_leave_one_out(path, r, uncertain, scales):
    panel = build("empty rows") if r else build("random")
    arguments = posterior_arguments(panel, np.float64, r, uncertain=uncertain, scales=scales)
    panel, *_ = with_scales(panel, scales)
    columns = columns_there(arguments[1])
    rows, order, _ = there(panel, np.float64)
    e = gpu.centred(rows, columns.center, columns.unit, torch.float64)
    expected = reference.leave_one_out(*arguments)[order]
    close(gpu.leave_one_out(rows, e, columns), expected, np.float64)


@pytest.mark.parametrize("r", [1, 7])
def test_column_posterior(path, r):
    rng, d = np.random.default_rng(4), 9
    roots = rng.normal(size=(d, r + 1, 2 * r + 2))
    second = reference.to_half(roots @ roots.transpose(0, 2, 1))
    first, squares, precision = rng.normal(size=(d, r + 1)), rng.uniform(1, 2, d), rng.uniform(1, 2, d)
    free = np.arange(r + 1) != 1
    fixed = np.where(free, 0.0, rng.normal(size=(d, r + 1)))
    root = rng.normal(size=(r + 1, 2 * r + 2))
    prior = column_prior(np.where(np.outer(free, free), root @ root.T, 0.0), d, rng)
    sums, given = (second, first, squares), (fixed, free, precision)
    there = Sums(*map(brought, sums), None), *map(brought, given), Prior(*map(brought, prior))
    solved = gpu.column_posterior(*there)
    for actual, expected in zip(solved, reference.column_posterior(Sums(*sums, None), *given, prior), strict=True):
        close(actual, expected, np.float64)


def test_column_information():
    _, loadings, precision, _ = column_arguments(6, 3, 0.5, uncertain=False)
    spread = np.random.default_rng(0).normal(size=(6, 10))
    expected = np.empty((6, 10))
    reference.column_information(loadings, 1 / precision, spread, expected)
    close(gpu.column_information(brought(loadings), brought(1 / precision), brought(spread)), expected, np.float64)


def test_diagonal_terms():
    rng = np.random.default_rng(8)
    X, counts, squares = rng.normal(size=(13, 4)), rng.uniform(0, 9, size=13), rng.uniform(0, 9, size=13)
    actual, expected = torch.ones((13, 4), dtype=torch.float64, device=DEVICE), np.ones((13, 4))
    loss = gpu.diagonal_terms(*map(brought, (X, counts, squares)), 0.7, 0.2, actual)
    close(loss, np.asarray(reference.diagonal_terms(X, counts, squares, 0.7, 0.2, expected)), np.float64)
    close(actual, expected, np.float64)
