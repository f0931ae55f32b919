"""One grid for both implementations: every kernel, many shapes of panel, two precisions."""

from __future__ import annotations

import numpy as np
import pytest

from onesided.kernels import clipped, cpu, factorization, integers, pairs, posterior, reference
from onesided.kernels.bundles import ByColumn, Columns, CompressedPairs, Prior, Rows, Sums

RNG = np.random.default_rng(7)


def random_rows(counts, d, rng):
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = np.concatenate([np.sort(rng.choice(d, size=c, replace=False)) for c in counts] or [np.empty(0)]).astype(
        np.int32
    )
    return indptr, columns, rng.normal(1.0, 1.0, size=len(columns))


def build(name):
    rng = np.random.default_rng(11)
    if name == "random":
        d, (indptr, columns, values) = 30, random_rows(rng.integers(1, 9, size=60), 30, rng)
    elif name == "empty rows":
        d, (indptr, columns, values) = 12, random_rows(rng.integers(0, 3, size=40), 12, rng)
    elif name == "single column":
        d, (indptr, columns, values) = 1, random_rows(np.ones(20, int), 1, rng)
    elif name == "huge row":
        d, (indptr, columns, values) = 200, random_rows([180, 2, 200, 1, 0], 200, rng)
    elif name == "all equal":
        d, (indptr, columns, values) = 15, random_rows(rng.integers(2, 15, size=30), 15, rng)
        values = np.full_like(values, 3.0)
    elif name == "no entries":
        d, (indptr, columns, values) = 5, random_rows([0, 0, 0], 5, rng)
    elif name == "zero sums":
        d = 2
        indptr, columns = np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32)
        values = np.array([1.0, 1.0, 1.0, -1.0])
    weights = rng.uniform(0.2, 2.0, size=len(indptr) - 1)
    if name == "random":
        weights[::5] = 0.0
    return indptr, columns, values, weights, d


PANELS = ["random", "empty rows", "single column", "huge row", "all equal", "no entries", "zero sums"]
RANKS = [1, 4, 10]
SCALES = ["near one", "powers of ten"]


def scales_of(d, kind):
    rng = np.random.default_rng(13)
    return rng.uniform(0.5, 2.0, size=d) if kind == "near one" else 10.0 ** rng.integers(-9, 10, size=d)


def with_scales(panel, kind):
    """A panel, and a center and a scale for each column; where scales are far apart, values and centers are too."""
    indptr, columns, values, weights, d = panel
    center, scale = np.linspace(-1, 1, d), scales_of(d, kind)
    if kind == "powers of ten":
        values, center = values * scale[columns], center * scale
    return (indptr, columns, values, weights, d), center, scale


def rows_of(panel, dtype):
    """The rows of a panel, its values in a precision."""
    indptr, columns, values, weights, _ = panel
    return Rows.of(indptr, columns, values.astype(dtype), weights)


@pytest.fixture(params=PANELS)
def panel(request):
    return build(request.param)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=SCALES)
def scales(request):
    return request.param


def factor(d, r, dtype):
    return np.random.default_rng(3).normal(size=(d, r)).astype(dtype)


def close(actual, expected, dtype):
    tolerance = 1e-4 if dtype == np.float32 else 1e-11
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)


def test_counting_sort(panel):
    _, columns, _, _, d = panel
    for actual, expected in zip(cpu.counting_sort(columns, d), reference.counting_sort(columns, d), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_group(panel, dtype):
    _, columns, values, _, d = panel
    carried = np.arange(len(columns)), values.astype(dtype)
    counts = cpu.key_counts(columns, d)
    np.testing.assert_array_equal(counts, reference.key_counts(columns, d))
    results = []
    for kernels in (cpu, reference):
        free = np.concatenate([[0], np.cumsum(counts)[:-1]])
        results.append((free, np.empty_like(carried[0]), np.empty_like(carried[1])))
        kernels.group(columns, *carried, *results[-1])
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "strings",
    [
        [],
        ["", "7", "", "-31"],
        ["0", "10", "-1", "9223372036854775807", "-9223372036854775808", "999999999999999999"],
        *(
            [odd]
            for odd in ("-", "--1", "1-", "+1", "00", "-0", "01", "-01", "1 ", "1.", "0x1", "x", ":", "/", "\u0661")
        ),
        *([odd] for odd in ("9223372036854775808", "-9223372036854775809", "9999999999999999999", "1" * 20, "2" * 40)),
    ],
)
def test_read_integers(strings):
    written = [string.encode() for string in ["12", *strings, "34"]]
    starts = np.concatenate([[0], np.cumsum([len(string) for string in written])]).astype(np.int32)
    characters = np.frombuffer(b"".join(written), np.uint8)
    actual, expected = np.empty(len(written), np.int64), np.empty(len(written), np.int64)
    plain = reference.read_integers(starts, characters, expected)
    assert integers.read_integers(starts, characters, actual) == plain
    if plain:
        np.testing.assert_array_equal(actual, expected)


def by_column(kernels, panel):
    rows, d = rows_of(panel, np.float64), panel[-1]
    by = ByColumn(np.empty(d + 1, np.int64), np.full((len(rows.columns), 2), -1, np.int32))
    return by, kernels.by_column(rows, by)


def test_by_column(panel):
    (actual, products), (expected, expected_products) = by_column(pairs, panel), by_column(reference, panel)
    np.testing.assert_array_equal(actual.starts, expected.starts)
    np.testing.assert_array_equal(actual.entries, expected.entries)
    np.testing.assert_array_equal(products, expected_products)


def test_row_bits(panel):
    actual, expected = (kernels.row_bits(rows_of(panel, np.float64), panel[-1]) for kernels in (pairs, reference))
    np.testing.assert_array_equal(actual, expected)


def pair_counts(kernels, panel, chosen, bits):
    rows, (by, _) = rows_of(panel, np.float64), by_column(kernels, panel)
    bits = kernels.row_bits(rows, panel[-1]) if bits else np.empty((0, 0), np.uint64)
    return kernels.pair_counts(chosen, by, rows, bits)


@pytest.mark.parametrize("bits", [False, True])
def test_pair_counts(panel, bits):
    d = panel[-1]
    for chosen in (np.arange(d), np.arange(0, d, 3)):
        expected = pair_counts(reference, panel, chosen, bits)
        np.testing.assert_array_equal(pair_counts(pairs, panel, chosen, bits), expected)


def pair_moments(kernels, panel, dtype, weighted, blocks):
    rows, (by, _) = rows_of(panel, dtype), by_column(reference, panel)
    rows = rows if weighted else rows._replace(weights=np.empty(0))
    pointers = np.concatenate([[0], np.cumsum(pair_counts(reference, panel, np.arange(panel[-1]), False))])
    size = pointers[-1]
    counts, of_weights = np.zeros((2, size), np.int32), np.zeros((2, size if weighted else 0))
    out = CompressedPairs(pointers, *counts, *np.zeros((2, size)), *of_weights)
    for first, last in blocks:
        kernels.pair_moments(first, last, by, rows, out)
    return out


@pytest.mark.parametrize("weighted", [False, True])
def test_pair_moments(panel, dtype, weighted):
    d = panel[-1]
    expected = pair_moments(reference, panel, dtype, weighted, [(0, d)])
    for blocks in ([(0, d)], [(d // 2, d), (0, d // 2)]):
        actual = pair_moments(pairs, panel, dtype, weighted, blocks)
        for fast, plain in zip(actual[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(fast, plain)
        for fast, plain in zip(actual[3:], expected[3:], strict=True):
            np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("entries", [3, 40, 900], ids=["listed and sorted", "read from bits", "read from end to end"])
def test_lines_of_every_fullness(entries):
    """Lines of 2,000 columns: few pairs beside the words of bits, some, and nearly all columns."""
    d, rng = 2_000, np.random.default_rng(entries)
    indptr, columns, values = random_rows(np.full(5, entries), d, rng)
    panel = indptr, columns, values, np.ones(5), d
    actual, expected = (pair_moments(kernels, panel, np.float64, False, [(0, d)]) for kernels in (pairs, reference))
    lengths = np.diff(actual[0])[np.flatnonzero(np.diff(actual[0]))[0]], d - np.flatnonzero(np.diff(actual[0]))[0]
    full, few = lengths[0] * pairs.FULL > lengths[1], lengths[0] * pairs.FEW < lengths[1] >> 6
    assert (full, few) == (entries == 900, entries == 3)
    for fast, plain in zip(actual, expected, strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)


def test_a_pair_whose_products_cancel_is_still_a_pair():
    moments = pair_moments(pairs, build("zero sums"), np.float64, False, [(0, 2)])
    assert moments[0][-1] == 3
    assert moments[2].tolist() == [2, 2, 2]


def test_find_pairs(panel):
    d = panel[-1]
    pointers, columns, *_ = pair_moments(reference, panel, np.float64, False, [(0, d)])
    first, second = np.triu_indices(d)
    positions = pairs.find_pairs(pointers, columns, first, second)
    np.testing.assert_array_equal(positions, reference.find_pairs(pointers, columns, first, second))
    assert np.count_nonzero(positions >= 0) == len(columns)


@pytest.mark.parametrize("r", [*RANKS, 7, 8, 16, 19, 32])  # one to four pieces, and several times four
def test_pair_pass(panel, r):
    d = panel[-1]
    pointers, columns, rows, sums, *_ = pair_moments(reference, panel, np.float64, False, [(0, d)])
    X = pairs.padded(factor(d, r, np.float64))
    assert X.shape[1] % pairs.PIECE == 0
    assert not X[:, r:].any()
    first = d // 3
    arguments = (first, pointers[first:], columns, sums / rows, 0.7, X)
    loss, gradient = pairs.pair_pass(*arguments)
    expected_loss, expected_gradient = reference.pair_pass(*arguments)
    close(loss, expected_loss, np.float64)
    close(gradient, expected_gradient, np.float64)


@pytest.mark.parametrize("r", [*RANKS, 5, 6, 7, 8, 13, 14, 15, 16, 17, 19, 31, 32, 45])  # with room for a center or not
def test_row_pass(panel, dtype, r, scales):
    panel, center, scale = with_scales(panel, scales)
    rows, X = rows_of(panel, dtype), factor(panel[-1], r, dtype)
    loss, gradient = cpu.row_pass(rows, cpu.lines(X, center, scale, dtype))
    expected_loss, expected_gradient = reference.row_pass(rows, X, center, scale)
    close(loss, expected_loss, dtype)
    close(gradient, expected_gradient, dtype)
    assert gradient.dtype == dtype


def test_row_pass_over_a_factor_beyond_cache(dtype):
    rng, d, r = np.random.default_rng(5), 70_000, 10
    indptr, columns, values = random_rows(rng.integers(0, 12, size=400), d, rng)
    X, center, scale = factor(d, r, dtype), rng.normal(size=d), scales_of(d, "near one")
    lines = cpu.lines(X, center, scale, dtype)
    assert lines.factor.nbytes > cpu.NEAR
    rows = Rows.of(indptr, columns, values.astype(dtype), np.ones(400))
    loss, gradient = cpu.row_pass(rows, lines)
    expected_loss, expected_gradient = reference.row_pass(rows, X, center, scale)
    close(loss, expected_loss, dtype)
    close(gradient, expected_gradient, dtype)


@pytest.mark.parametrize("r", [10, 16])  # with room in the line of a factor, and without
def test_a_center_is_known_more_closely_than_values_are(r):
    rng, d = np.random.default_rng(5), 30
    indptr, columns, _ = random_rows(rng.integers(2, 9, size=60), d, rng)
    values = (16_000_000 + rng.integers(-3, 4, size=len(columns))).astype(np.float32)
    rows, X = Rows.of(indptr, columns, values, np.ones(60)), factor(d, r, np.float32)
    center, scale = np.full(d, 16_000_000.4), scales_of(d, "near one")  # in single precision the center is 16,000,000
    loss, gradient = cpu.row_pass(rows, cpu.lines(X, center, scale, np.float32))
    expected_loss, expected_gradient = reference.row_pass(rows, X, center, scale)
    close(loss, expected_loss, np.float32)
    close(gradient, expected_gradient, np.float32)


def test_lines_hold_an_effect_first(dtype):
    X, center, scale = factor(5, 3, dtype), np.arange(5) + 0.1, scales_of(5, "powers of ten")
    made = cpu.lines(X, center, scale, dtype, effect=0.5)
    np.testing.assert_array_equal(made.factor[:, :4], np.column_stack([np.full(5, 0.5), X]).astype(dtype))
    numbers = 1 if dtype == np.float64 else 2  # of a center
    held = made.center[:, made.at : made.at + numbers + 1]
    np.testing.assert_allclose(held[:, :-1].astype(float).sum(axis=1), center, rtol=1e-13)
    np.testing.assert_array_equal(held[:, -1], (1 / scale).astype(dtype))


def test_first_values(panel, dtype):
    arguments = (rows_of(panel, dtype), panel[-1])
    for fast, plain in zip(cpu.first_values(*arguments), reference.first_values(*arguments), strict=True):
        np.testing.assert_array_equal(fast, plain)


def test_column_sums(panel, dtype, scales):
    panel, *around = with_scales(panel, scales)
    arguments = (rows_of(panel, dtype), *around)
    for fast, plain in zip(cpu.column_sums(*arguments), reference.column_sums(*arguments), strict=True):
        close(fast, plain, np.float64)


@pytest.mark.parametrize("r", RANKS)
def test_diagonal_terms(r):
    rng = np.random.default_rng(8)
    X, counts, squares = rng.normal(size=(13, r)), rng.uniform(0, 9, size=13), rng.uniform(0, 9, size=13)
    actual, expected = np.ones((13, r)), np.ones((13, r))
    loss = cpu.diagonal_terms(X, counts, squares, 0.7, 0.2, actual)
    close(loss, reference.diagonal_terms(X, counts, squares, 0.7, 0.2, expected), np.float64)
    close(actual, expected, np.float64)


@pytest.mark.parametrize("r", RANKS)
def test_curvature(panel, dtype, r):
    arguments = (rows_of(panel, np.float64), factor(panel[-1], r, dtype))
    close(cpu.curvature(*arguments), reference.curvature(*arguments), dtype)


@pytest.mark.parametrize("r", RANKS)
def test_gram_product(panel, dtype, r, scales):
    panel, *around = with_scales(panel, scales)
    arguments = (rows_of(panel, dtype), *around, 0.3, factor(panel[-1], r, np.float64))
    close(cpu.gram_product(*arguments), reference.gram_product(*arguments), dtype)


def column_arguments(d, r, noise, uncertain):
    """Centers, loadings, precisions and information of d columns."""
    rng = np.random.default_rng(5)
    center, loadings, precision = rng.normal(size=d), factor(d, r, np.float64), 1 / (noise * np.linspace(0.5, 2.0, d))
    if not uncertain:
        return center, loadings, precision, np.empty((0, 0))
    y = np.column_stack([np.zeros(d), loadings])
    roots = 0.3 * rng.normal(size=(d, r + 1, r + 1))
    covariance = roots @ roots.transpose(0, 2, 1)
    information = reference.to_half(precision[:, None, None] * (y[:, :, None] * y[:, None, :] + covariance))
    return center, loadings, precision, information


def posterior_arguments(panel, dtype, r, noise=0.5, uncertain=True, standard=True, scales="near one"):
    """Rows, and columns with the rows' prior, as kernels of the posterior take them."""
    panel, _, unit = with_scales(panel, scales)
    center, loadings, precision, information = column_arguments(panel[-1], r, noise, uncertain)
    root = np.eye(r) if standard else np.random.default_rng(2).normal(size=(r, r)) + 2 * np.eye(r)
    prior = np.zeros((r + 1, r + 1))
    prior[1:, 1:] = root @ root.T
    prior[1:, 0] = 0.0 if standard else np.linspace(-1, 1, r)
    floor = float(np.linalg.eigvalsh(root @ root.T)[0]) if r else 1.0
    wide = cpu.padded(loadings.astype(dtype)), cpu.padded(information.astype(dtype)) if uncertain else information
    prior = reference.to_half(prior).astype(dtype)
    columns = Columns(unit, unit * center, wide[0], precision, wide[1].astype(dtype), prior, floor, r)
    return rows_of(panel, dtype), columns


def halves(n, r, dtype):
    return cpu.padded(np.empty((n, 0), dtype), (r + 1) * (r + 2) // 2)


@pytest.mark.parametrize("r", [0, *RANKS, 19])
@pytest.mark.parametrize(("noise", "uncertain"), [(1e-8, False), (0.5, False), (0.5, True)])
@pytest.mark.parametrize("standard", [True, False])
def test_row_posterior(panel, dtype, r, noise, uncertain, standard, scales):
    rows, columns = posterior_arguments(panel, np.float64, r, noise, uncertain, standard, scales)
    rows = rows._replace(values=rows.values.astype(dtype))
    actual, expected = halves(len(rows.starts), r, np.float64), reference.row_posterior(rows, columns)
    posterior.row_posterior(rows, columns, actual)
    tolerance = 1e-4 if noise == 1e-8 else 1e-9  # the condition number is up to 1/noise
    np.testing.assert_allclose(actual[:, : expected.shape[1]], expected, rtol=tolerance, atol=10 * tolerance)
    assert not actual[:, expected.shape[1] :].any()


@pytest.mark.parametrize("r", [0, *RANKS, 19])
@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("standard", [True, False])
def test_row_posterior_in_single_precision(panel, r, uncertain, standard, scales):
    rows, columns = posterior_arguments(panel, np.float32, r, 0.5, uncertain, standard, scales)
    actual, expected = halves(len(rows.starts), r, np.float32), reference.row_posterior(rows, columns)
    posterior.row_posterior(rows, columns, actual)
    np.testing.assert_allclose(actual[:, : expected.shape[1]], expected, rtol=3e-4, atol=3e-3)


@pytest.mark.parametrize("r", [*RANKS, 19])
def test_row_posterior_in_steps(panel, dtype, r):
    rows, columns = posterior_arguments(panel, dtype, r)
    at_once, in_steps = halves(len(rows.starts), r, dtype), halves(len(rows.starts), r, dtype)
    posterior.row_posterior(rows, columns, at_once)
    for c in range(0, columns.information.shape[1], posterior.GROUP // columns.information.itemsize):
        for piece in (slice(0, 1), slice(1, None)):
            posterior.add_information(rows.taken(piece), columns, c, in_steps[piece])
    posterior.solve_rows(rows, columns, in_steps)
    np.testing.assert_array_equal(in_steps, at_once)


@pytest.mark.parametrize("r", [0, *RANKS])
def test_posterior_sums(panel, dtype, r, scales):
    rows, columns = posterior_arguments(panel, dtype, r, scales=scales)
    n, d = len(rows.starts), panel[-1]
    expected = reference.posterior_sums(rows, columns)._asdict()
    moments, means = halves(n, r, dtype), cpu.padded(np.empty((n, 0), dtype), r + 1)
    posterior.row_posterior(rows, columns, moments)
    total = posterior.row_moments(moments, rows.weights, r, means)
    groups = posterior.entries_by_column(rows, columns)
    sums = Sums(np.zeros((d, moments.shape[1]), dtype), np.zeros((d, means.shape[1])), np.zeros(d), total)
    middle = len(groups.columns) // 2
    for low, high in ((0, middle), (middle, len(groups.columns))):
        posterior.column_sums(groups.taken(low, high), moments, means, sums)
    for name, actual in sums._asdict().items():
        close(actual[..., : expected[name].shape[-1]], expected[name], dtype)


@pytest.mark.parametrize("r", [0, *RANKS])
@pytest.mark.parametrize("uncertain", [False, True])
def test_leave_one_out(panel, dtype, r, uncertain, scales):
    rows, columns = posterior_arguments(panel, np.float64, r, uncertain=uncertain, scales=scales)
    arguments = rows._replace(values=rows.values.astype(dtype)), columns
    close(posterior.leave_one_out(*arguments), reference.leave_one_out(*arguments), np.float32)


def column_prior(precision, d, rng):
    """A prior of columns of which centers and loadings are known more or less closely, each column its own way."""
    return Prior(precision, rng.uniform(0.3, 3.0, size=(d, 2)), rng.normal(size=(d, len(precision))))


@pytest.mark.parametrize("r", [0, *RANKS])
@pytest.mark.parametrize("free", ["all", "not the center", "not the effect"])
def test_column_posterior(r, free):
    rng, d, K = np.random.default_rng(4), 37, r + 1
    roots = rng.normal(size=(d, K, K + 3))
    moments, first, squares = roots @ roots.transpose(0, 2, 1), rng.normal(size=(d, K)), rng.uniform(5, 9, size=d)
    mask, fixed = np.ones(K, dtype=bool), np.zeros((d, K))
    if free != "all":
        mask[0 if free == "not the center" else min(1, r)] = False
        fixed[:, ~mask] = rng.normal(size=(d, 1))
    shared = np.where(np.outer(mask, mask), np.cov(rng.normal(size=(K, 50))).reshape(K, K), 0.0)
    sums = Sums(reference.to_half(moments), first, squares, np.zeros(0))
    arguments = (sums, fixed, mask, rng.uniform(0.5, 2, size=d), column_prior(shared, d, rng))
    for fast, plain in zip(posterior.column_posterior(*arguments), reference.column_posterior(*arguments), strict=True):
        close(fast, plain, np.float64)


@pytest.mark.parametrize("free", ["all", "not the center"])
def test_the_prior_of_a_column_is_that_of_its_coordinates_times_its_tightness(free):
    rng, d, K = np.random.default_rng(4), 5, 4
    mask = np.arange(K) >= (free == "not the center")
    A = np.where(np.outer(mask, mask), np.cov(rng.normal(size=(K, 50))), 0.0)
    prior = column_prior(A, d, rng)
    nothing = Sums(np.zeros((d, K * (K + 1) // 2)), np.zeros((d, K)), np.zeros(d), np.zeros(0))
    at, spread, _ = reference.column_posterior(nothing, np.zeros((d, K)), mask, np.ones(d), prior)
    inside = np.ix_(mask, mask)
    for j in range(d):
        t, u = prior.tightness[j]
        D = np.diag([t, u, u, u])
        P = (D @ A @ D)[inside]
        np.testing.assert_allclose(reference.from_half(spread[j])[inside], np.linalg.inv(P), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(at[j, mask], np.linalg.solve(P, prior.linear[j, mask]), rtol=1e-10)


@pytest.mark.parametrize("r", [0, *RANKS])
def test_column_information(dtype, r):
    rng = np.random.default_rng(6)
    loadings, noise = rng.normal(size=(9, r)), rng.uniform(0.5, 2, size=9)
    spread = rng.normal(size=(9, (r + 1) * (r + 2) // 2))
    actual, expected = halves(9, r, dtype), halves(9, r, np.float64)
    posterior.column_information(loadings, noise, spread, actual)
    reference.column_information(loadings, noise, spread, expected)
    close(actual[:, : spread.shape[1]], expected[:, : spread.shape[1]], dtype)


def standard_rows(r):
    """The prior of rows with mean zero and covariance I, its smallest eigenvalue, and the number of coordinates."""
    return reference.to_half(np.diag([0.0] + [1.0] * r)), 1.0, r


def single_row(columns, values):
    return Rows.of(np.array([0, len(columns)]), columns, values, np.ones(1))


def posterior_of(row, columns):
    """The mean and covariance of a row's coordinates."""
    (solved,) = reference.from_half(reference.row_posterior(row, columns))
    return solved[0, 1:], solved[1:, 1:]


def test_leaving_one_out_of_uncertain_columns_is_nearly_predicting_it_from_the_others():
    _, columns, values, _, d = build("huge row")
    center, loadings, precision, _ = column_arguments(d, 4, 0.5, uncertain=False)
    unit = scales_of(d, "near one")
    y = np.column_stack([np.zeros(d), loadings])
    covariance = 0.02 * np.eye(5)
    information = reference.to_half(precision[:, None, None] * (y[:, :, None] * y[:, None, :] + covariance))
    given = Columns(unit, unit * center, loadings, precision, information, *standard_rows(4))
    expected = 0.0
    for k in range(180):  # entries of the first row
        others = np.delete(np.arange(180), k)
        z, S = posterior_of(single_row(columns[others], values[others]), given)
        j, mean = columns[k], np.concatenate([[1.0], z])
        moment = np.outer(mean, mean)
        moment[1:, 1:] += S
        e = values[k] / unit[j] - center[j] - loadings[j] @ z
        variance = 1 / precision[j] + loadings[j] @ S @ loadings[j] + np.sum(covariance * moment)
        expected += -(np.log(2 * np.pi * variance) + e**2 / variance) / 2
    whole = reference.leave_one_out(single_row(columns[:180], values[:180]), given)[0, 0]
    assert whole == pytest.approx(expected, rel=1e-4)


def test_leaving_one_out_is_predicting_it_from_the_others():
    indptr, columns, values, _, d = build("random")
    center, loadings, precision, none = column_arguments(d, 4, 0.5, uncertain=False)
    unit = scales_of(d, "powers of ten")
    values = values * unit[columns]
    given = Columns(unit, unit * center, loadings, precision, none, *standard_rows(4))
    for u in range(5):
        row = slice(indptr[u], indptr[u + 1])
        expected = np.zeros(4)
        for k in range(indptr[u], indptr[u + 1]):
            others = np.array([h for h in range(indptr[u], indptr[u + 1]) if h != k], dtype=int)
            z, S = posterior_of(single_row(columns[others], values[others]), given)
            y = loadings[columns[k]]
            e = values[k] / unit[columns[k]] - center[columns[k]] - y @ z
            variance = 1 / precision[columns[k]] + y @ S @ y
            square = e**2 / variance
            expected += -(np.log(2 * np.pi * variance) + square) / 2, e**2, square, square**2
        score = reference.leave_one_out(single_row(columns[row], values[row]), given)
        np.testing.assert_allclose(score[0, :4], expected, rtol=1e-9)
        B, gamma = loadings[columns[row]], precision[columns[row]]
        residuals = np.linalg.inv(np.diag(1 / gamma) + B @ B.T)  # leave-one-out residuals correlate as this does
        sizes = np.sqrt(np.diag(residuals))
        assert score[0, 4] == pytest.approx(np.sum((residuals / np.outer(sizes, sizes)) ** 2))


@pytest.mark.parametrize("r", RANKS)
def test_least_squares(panel, dtype, r):
    indptr, columns, values, _, d = panel
    arguments = (indptr, columns, values.astype(dtype), factor(d, r, np.float64))
    actual, expected = cpu.least_squares(*arguments), reference.least_squares(*arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-7)


def test_linked_columns(panel):
    indptr, columns, _, weights, d = panel
    for weight in (weights, np.where(np.arange(len(weights)) % 7 == 0, 1.0, 0.0)):
        arguments = (indptr, columns, weight, d)
        np.testing.assert_array_equal(cpu.linked_columns(*arguments), reference.linked_columns(*arguments))


def test_blocks_of_rows_add_up(dtype):
    panel = build("random")
    rows, d, cut = rows_of(panel, dtype), panel[-1], 23
    lines = cpu.lines(factor(d, 4, dtype), np.linspace(-1, 1, d), scales_of(d, "near one"), dtype)
    whole = cpu.row_pass(rows, lines)
    head, tail = (cpu.row_pass(rows.taken(block), lines) for block in (slice(cut), slice(cut, None)))
    close(head[0] + tail[0], whole[0], dtype)
    close(head[1] + tail[1], whole[1], dtype)


@pytest.mark.parametrize("rank", RANKS)
def test_entry_pass(panel, dtype, rank):
    rows = rows_of(panel, dtype)
    factors = [cpu.padded(factor(size, rank, np.float64)) for size in (len(rows.starts), panel[-1])]
    results = []
    for kernels in (factorization, reference):
        GX = np.full_like(factors[0], np.nan)
        loss, GY = kernels.entry_pass(rows, *factors, GX)
        results.append((loss, GX, GY))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected, np.float64)


@pytest.mark.parametrize("rank", RANKS)
def test_pair_values_and_products(panel, rank):
    d = panel[-1]
    pointers, columns, *_ = pair_moments(reference, panel, np.float64, False, [(0, d)])
    left, right = (cpu.padded(X) for X in (factor(d, rank, np.float64), factor(d, rank, np.float64)[::-1]))
    first = d // 3
    block, results = (first, pointers[first:], columns), []
    for kernels in (factorization, reference):
        values = np.ones(len(columns))  # those of other blocks stay
        kernels.pair_values(*block, left, right, values)
        results.append((values, kernels.pair_product(*block, values, right)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected, np.float64)


@pytest.mark.parametrize("clip", [0.3, 1e6])
@pytest.mark.parametrize("effect", [0.0, 0.7])
@pytest.mark.parametrize("r", RANKS)
def test_clipped_pass(panel, r, effect, clip):
    indptr, columns, *_, d = panel
    Z, X, means = factor(d, r, np.float64), 0.5 * factor(d, 2, np.float64), np.linspace(-1, 1, d)
    arguments = rows_of(panel, np.float64), means, Z, X, effect, clip, 2.0**-20
    actual, expected = clipped.clipped_pass(*arguments), reference.clipped_pass(*arguments)
    # Rounding errors may leave a contribution on either side of a whole number.
    assert np.all(np.abs(actual - expected) <= np.bincount(columns, minlength=d)[:, None])
    np.testing.assert_array_equal(actual, np.trunc(actual))
    if len(indptr) > 1 and indptr[-1] > 0:
        assert np.linalg.norm(actual) <= (len(indptr) - 1) * clip * 2.0**20
