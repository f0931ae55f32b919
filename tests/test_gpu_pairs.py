"""Kernels over pairs on torch tensors, held to the reference: with Triton, and with what torch has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import NEEDS

torch = pytest.importorskip("torch", reason=NEEDS["torch"])

from onesided.kernels import gpu, gpu_pairs, reference  # noqa: E402
from tests.test_kernels import PANELS, build, factor, pair_moments, random_rows  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(params=["torch", "triton"], autouse=True)
def path(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(gpu, "fused_for", lambda tensor: None)
    else:
        pytest.importorskip("triton", reason=NEEDS["triton"])
        assert gpu.fused_for(torch.empty(0, device=DEVICE)) is not None
    return request.param


@pytest.fixture(params=PANELS)
def panel(request, path):
    if request.param == "huge row" and path == "triton" and DEVICE == "cpu":
        pytest.skip("long in the interpreter; rows and columns of many entries have tests of their own")
    return build(request.param)


def tensors(*arrays):
    return [None if array is None else torch.as_tensor(array, device=DEVICE) for array in arrays]


def numbers(sums):
    return [None if field is None else field.cpu().numpy() for field in sums]


def moments(panel, dtype, weighted):
    indptr, columns, values, weights, d = panel
    given = tensors(indptr, columns, values.astype(dtype), weights if weighted else None)
    return gpu_pairs.pair_moments(*given, d)


def expected_moments(panel, dtype, weighted):
    """Of rows of positive weight where they are weighed, and of all rows where they are not."""
    indptr, columns, values, weights, d = panel
    every = (indptr, columns, values, weights if weighted else np.ones_like(weights), d)
    return pair_moments(reference, every, dtype, weighted, [(0, d)])


def assert_same_moments(actual, expected):
    pointers, columns, rows, *sums = numbers(actual)
    assert (columns.dtype, rows.dtype, pointers.dtype) == (np.int32, np.int64, np.int64)
    for fast, plain in zip((pointers, columns, rows), expected[:3], strict=True):
        np.testing.assert_array_equal(fast, plain)
    for fast, plain in zip(sums, expected[3:], strict=True):
        if fast is None:
            assert len(plain) == 0
        else:
            assert fast.dtype == np.float64
            np.testing.assert_allclose(fast, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pair_moments(panel, dtype, weighted):
    actual = moments(panel, dtype, weighted)
    assert (actual.totals is None, actual.squared is None) == (not weighted, not weighted)
    assert_same_moments(actual, expected_moments(panel, dtype, weighted))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("held", [1, 200, 3_000])  # one column, then few, then many at a time
def test_blocks_of_columns_do_not_change_pair_moments(monkeypatch, held, weighted):
    panel = build("random")
    monkeypatch.setattr(gpu_pairs, "HELD", held)
    blocks = list(gpu_pairs._blocks(30, gpu_pairs.PLAIN))
    assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
    assert blocks[-1][1] == 30
    assert len(blocks) > 1
    assert_same_moments(moments(panel, np.float64, weighted), expected_moments(panel, np.float64, weighted))


@pytest.mark.parametrize("name", ["random", "huge row", "no entries"])
def test_chunks_do_not_change_pairs(monkeypatch, name):
    panel = build(name)
    expected = expected_moments(panel, np.float64, True)
    monkeypatch.setattr(gpu, "CHUNK", 1_000)
    assert_same_moments(moments(panel, np.float64, True), expected)
    check_pass(expected, 4, np.float64)


def test_rows_longer_than_a_program_has_lanes():
    rng = np.random.default_rng(4)
    long = 2 * gpu_pairs.LANES
    indptr, columns, values = random_rows([long - 1, long, long + 1, 1], 3 * gpu_pairs.LANES, rng)
    panel = indptr, columns, values, np.array([0.5, 1.0, 2.0, 3.0]), 3 * gpu_pairs.LANES
    assert_same_moments(moments(panel, np.float32, True), expected_moments(panel, np.float32, True))


def test_a_pair_whose_products_cancel_is_still_a_pair():
    pointers, columns, rows, sums, squares, *_ = numbers(moments(build("zero sums"), np.float64, False))
    assert pointers.tolist() == [0, 2, 3]
    assert columns.tolist() == [0, 1, 1]
    assert rows.tolist() == [2, 2, 2]
    assert sums.tolist() == [2.0, 0.0, 2.0]
    assert squares.tolist() == [2.0, 2.0, 2.0]


def test_a_row_of_weight_zero_makes_no_pairs():
    indptr, columns, values = np.array([0, 2, 4, 4, 6]), np.array([0, 1, 1, 2, 0, 2], np.int32), np.arange(1.0, 7.0)
    panel = indptr, columns, values, np.array([1.0, 0.0, 0.0, 2.0]), 3
    pointers, columns, rows, sums, _, totals, squared = numbers(moments(panel, np.float64, True))
    assert pointers.tolist() == [0, 3, 4, 5]
    assert columns.tolist() == [0, 1, 2, 1, 2]
    assert rows.tolist() == [2, 1, 1, 1, 1]
    assert sums.tolist() == [51.0, 2.0, 60.0, 4.0, 72.0]
    assert totals.tolist() == [3.0, 1.0, 2.0, 1.0, 2.0]
    assert squared.tolist() == [5.0, 1.0, 4.0, 1.0, 4.0]


def check_pass(moments, r, dtype, diagonal_weight=0.7):
    pointers, columns, rows, sums, *_ = moments
    target, X = sums / rows, factor(len(pointers) - 1, r, dtype)
    pairs = gpu_pairs.Pairs.of(*tensors(pointers, columns, target))
    loss, gradient = gpu_pairs.pair_pass(pairs, diagonal_weight, *tensors(X))
    expected_loss, expected = reference.pair_pass(0, pointers, columns, target, diagonal_weight, X.astype(np.float64))
    assert (loss.dtype, loss.shape, gradient.dtype) == (torch.float64, (), tensors(X)[0].dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    assert float(loss) == pytest.approx(expected_loss, rel=tolerance, abs=tolerance)
    largest = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(gradient.cpu().numpy(), expected, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("r", [1, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pair_pass(panel, dtype, r):
    check_pass(expected_moments(panel, np.float64, False), r, dtype)


@pytest.mark.parametrize("r", [0, 2, 7, 32, 45, 130, 600, 1_100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pair_pass_of_factors_of_any_width(dtype, r):
    check_pass(expected_moments(build("empty rows"), np.float64, False), r, dtype)


def test_columns_of_many_pairs_are_cut(monkeypatch):
    monkeypatch.setattr(gpu, "LONGEST", 4)  # the pieces are cut, too
    check_pass(expected_moments(build("random"), np.float64, False), 10, np.float64)


def test_a_diagonal_weight_is_known_in_double_precision():
    pairs = gpu_pairs.Pairs.of(*tensors(np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1)))
    loss, gradient = gpu_pairs.pair_pass(pairs, 1 / 3, torch.ones((1, 1), dtype=torch.float64, device=DEVICE))
    assert (float(loss), float(gradient)) == (1 / 6, 2 / 3)


def test_pairs_hold_both_triangles():
    pointers, columns = np.array([0, 3, 3, 4]), np.array([0, 1, 2, 2], np.int32)  # column 1 has no pair with itself
    pairs = gpu_pairs.Pairs.of(*tensors(pointers, columns, np.array([1.0, 2.0, 3.0, 4.0])))
    assert pairs.pointers.tolist() == [0, 3, 4, 6]
    assert pairs.columns.tolist() == [0, 1, 2, 0, 0, 2]
    assert pairs.target.tolist() == [1.0, 2.0, 3.0, 2.0, 3.0, 4.0]
    assert pairs.columns.dtype == torch.int32


def test_a_pass_gives_the_same_bits_each_time():
    pointers, columns, rows, sums, *_ = expected_moments(build("random"), np.float64, False)
    pairs = gpu_pairs.Pairs.of(*tensors(pointers, columns, sums / rows))
    X = tensors(factor(30, 10, np.float64))[0]
    (loss, gradient), (again, same) = (gpu_pairs.pair_pass(pairs, 0.7, X) for _ in range(2))
    assert torch.equal(loss, again)
    assert torch.equal(gradient, same)
