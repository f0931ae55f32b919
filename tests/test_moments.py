"""Pair moments against a database, under splits and merges; estimators against their expectations."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onesided import HajekGD, InputError, PairMoments, Panel, memory, synthetic
from onesided.engines.threads import THREADS_VARIABLE
from onesided.kernels import pairs
from onesided.pairs import size as omega
from onesided.pairs.moments import (
    hajek,
    hajek_variance,
    horvitz_thompson,
    horvitz_thompson_variance,
    mean_inverse_count,
    standard_errors,
)
from tests.conftest import random_panel


def by_database(panel):
    """Pair moments as a self-join."""
    entries = pa.table(
        {
            "row": np.repeat(np.arange(panel.n_rows), panel.row_counts),
            "item": panel.columns,
            "v": panel.values.astype(np.float64),
            "w": np.repeat(panel.row_weights, panel.row_counts),
        }
    )
    with duckdb.connect() as connection:
        connection.register("entries", entries)
        return connection.execute(
            """select a.item, b.item, count(*), sum(a.w), sum(a.w * a.w), sum(a.w * a.v * b.v),
                      sum(a.w * (a.v * b.v) * (a.v * b.v))
               from entries a join entries b on a.row = b.row and a.item <= b.item
               where a.w > 0 group by 1, 2 order by 1, 2"""
        ).fetchnumpy()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_a_self_join(weighted, dtype):
    panel = random_panel(3, n=200, d=30, low=0, weighted=weighted, dtype=dtype)
    moments = PairMoments.from_panel(panel)
    expected = list(by_database(panel).values())
    i, j = moments.pairs()
    np.testing.assert_array_equal(i, expected[0])
    np.testing.assert_array_equal(j, expected[1])
    np.testing.assert_array_equal(moments.rows, expected[2])
    np.testing.assert_allclose(moments.counts, expected[3], rtol=1e-12)
    np.testing.assert_allclose(moments.effective_counts, expected[3] ** 2 / expected[4], rtol=1e-12)
    np.testing.assert_allclose(moments.sums, expected[5], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moments.squares, expected[6], rtol=1e-10, atol=1e-12)


ARRAYS = ("indptr", "columns", "rows", "sums", "squares", "weight_sums", "squared_weight_sums")


def same(one, other):
    for name in ARRAYS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def skewed_panel(seed=0, n=400, d=900, most=30, weighted=False):
    """Rows of different lengths, columns of very different popularity: lines that are full, sparse and empty."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, d + 1)
    lengths = rng.integers(0, most, size=n)
    rows = [np.sort(rng.choice(d, size=m, replace=False, p=popularity / popularity.sum())) for m in lengths]
    columns = rng.permutation(d)[np.concatenate(rows)]
    panel = Panel.from_arrays(np.repeat(np.arange(n), lengths), columns, rng.normal(size=lengths.sum()))
    weights = rng.integers(0, 4, size=panel.n_rows) / 2
    return panel.with_row_weights(weights) if weighted else panel


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [skewed_panel, random_panel])  # without and with rows as bits
def test_threads_do_not_change_a_bit(monkeypatch, weighted, make):
    panel = make(1, weighted=weighted)
    whole = PairMoments.from_panel(panel)
    monkeypatch.setattr(omega, "BLOCK_PRODUCTS", 100)
    for threads in (1, 2, 3):
        monkeypatch.setenv(THREADS_VARIABLE, str(threads))
        same(PairMoments.from_panel(panel), whole)
    assert len(omega.EntriesByColumn(panel).blocks()) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_a_skewed_panel_are_those_of_a_self_join(dtype):
    panel = skewed_panel(2, weighted=True)
    panel = Panel(
        panel.indptr, panel.columns, panel.values.astype(dtype), panel.n_columns, row_weights=panel.row_weights
    )
    formed, expected = PairMoments.from_panel(panel), list(by_database(panel).values())
    for actual, known in zip((*formed.pairs(), formed.rows), expected[:3], strict=True):
        np.testing.assert_array_equal(actual, known)
    sums = formed.weight_sums, formed.squared_weight_sums, formed.sums, formed.squares
    for actual, known in zip(sums, expected[3:], strict=True):
        np.testing.assert_allclose(actual, known, rtol=1e-10, atol=1e-12)


def test_rows_of_weight_zero_are_not_there():
    panel = skewed_panel(3, weighted=True)
    taken = panel.take_rows(panel.row_weights > 0)
    assert 0 < taken.n_rows < panel.n_rows
    same(PairMoments.from_panel(panel), PairMoments.from_panel(taken))
    assert omega.pair_size(panel).pairs == omega.pair_size(taken).pairs


def test_columns_in_another_order_have_the_same_moments():
    panel = skewed_panel(4)
    order = np.random.default_rng(0).permutation(panel.n_columns)
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    other = Panel.from_arrays(rows, order[panel.columns], panel.values)
    one, two = (PairMoments.from_panel(each) for each in (panel, other))
    for name in ("rows", "sums", "squares"):
        expected = one.to_matrix(getattr(one, name)).toarray()
        actual = two.to_matrix(getattr(two, name)).toarray()[np.ix_(order, order)]
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


# Memory


@pytest.mark.parametrize("weighted", [False, True])
def test_the_size_is_known_before_and_is_that_of_the_arrays(weighted):
    panel = skewed_panel(5, weighted=weighted)
    size, formed = omega.pair_size(panel), PairMoments.from_panel(panel)
    arrays = [getattr(formed, name) for name in ARRAYS]
    assert (size.pairs, size.exact, size.standard_error) == (formed.n_pairs, True, 0.0)
    assert size.bytes == sum(array.nbytes for array in arrays if array is not None)


def test_the_size_of_many_pairs_is_estimated(monkeypatch):
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    deviations, shares = [], []
    for seed in range(20):
        panel = skewed_panel(seed, n=300, most=20)
        size, truth = omega.pair_size(panel, rng=seed), PairMoments.from_panel(panel).n_pairs
        assert not size.exact
        assert 20 < size.columns_counted <= 64
        assert str(size).startswith("about ")
        deviations.append((size.pairs - truth) / size.standard_error)
        shares.append(size.pairs / truth)
    assert np.max(np.abs(deviations)) < 4
    assert 0.4 < np.sqrt(np.mean(np.square(deviations))) < 2
    assert np.max(np.abs(np.log(shares))) < 0.2


def test_the_estimate_of_a_small_panel_counts_everything(monkeypatch):
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    panel = random_panel(0)  # twelve columns, fewer than a sample has
    assert omega.pair_size(panel).exact
    assert omega.pair_size(panel).pairs == PairMoments.from_panel(panel).n_pairs


def test_a_panel_without_entries_has_no_pairs():
    panel = Panel(np.zeros(4, np.int64), np.empty(0, np.int32), np.empty(0), 5)
    assert (omega.pair_size(panel).pairs, PairMoments.from_panel(panel).n_pairs) == (0, 0)


def test_pairs_that_do_not_fit_are_refused_before_they_are_formed(monkeypatch):
    panel = skewed_panel(6)
    size = omega.pair_size(panel)
    monkeypatch.setattr(memory, "free_memory", lambda: size.bytes)
    expected = PairMoments.from_panel(panel).n_pairs
    monkeypatch.setattr(memory, "free_memory", lambda: size.bytes - 1)
    monkeypatch.setattr(pairs, "pair_moments", None)
    needed = memory.memory_in_words(size.bytes)
    found = rf"Ω would hold {expected:,} pairs, {needed} as pair moments, and .* of memory are free"
    for form in (PairMoments.from_panel, HajekGD(rank=2).fit):
        with pytest.raises(InputError, match=f"{found}; use OneSidedCompletion, which .* never forms Ω"):
            form(panel)


def test_estimated_pairs_that_do_not_fit_are_refused_without_counting_all(monkeypatch):
    panel, counted = skewed_panel(7), []
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    count = pairs.pair_counts
    monkeypatch.setattr(pairs, "pair_counts", lambda chosen, *rest: counted.append(len(chosen)) or count(chosen, *rest))
    with pytest.raises(InputError, match=r"Ω would hold about .* and 0\.98 KiB of memory are free"):
        PairMoments.from_panel(panel)
    assert 20 < sum(counted) <= 64


def test_an_estimate_that_was_too_low_does_not_let_pairs_through(monkeypatch):
    panel = skewed_panel(8)
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000)
    monkeypatch.setattr(omega.EntriesByColumn, "size", lambda self: omega.PairSize(1, 1, 0.0, 64))
    monkeypatch.setattr(pairs, "pair_moments", None)
    with pytest.raises(InputError, match="Ω would hold"):
        PairMoments.from_panel(panel)


def test_free_memory(monkeypatch):
    assert memory.free_memory() > 2**20

    def absent(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(memory, "open", absent, raising=False)
    free = memory.free_memory()
    assert free is None or free > 2**20
    monkeypatch.setattr(memory.os, "sysconf_names", {})
    assert memory.free_memory() is None
    assert PairMoments.from_panel(random_panel(0)).n_pairs  # nothing is known, nothing is refused


def test_amounts_in_words():
    words = [memory.memory_in_words(size) for size in (12, 999, 2**20, 10**8, 7 * 2**30, 150 * 2**30)]
    assert words == ["12 bytes", "999 bytes", "1 MiB", "95 MiB", "7 GiB", "150 GiB"]
    sizes = [str(omega.PairSize(n, 2**30)) for n in (1, 12_345, 6_123_456, 7_200_000_000, 3 * 10**12)]
    assert sizes == [
        "1 pair, 1 GiB",
        "12,345 pairs, 1 GiB",
        "6.12 million pairs, 1 GiB",
        "7.2 billion pairs, 1 GiB",
        "3 trillion pairs, 1 GiB",
    ]


def test_rows_beyond_what_a_count_holds():
    most = 2**31 - 1
    one = PairMoments(
        most, np.array([0, 1]), np.array([0], np.int32), np.array([most], np.int32), np.ones(1), np.ones(1)
    )
    assert (one + one).rows.tolist() == [2 * most]
    assert ((one + one) - one).rows.tolist() == [most]
    assert PairMoments.from_panel(random_panel(0)).rows.dtype == np.int32


# Merging


def magnitudes(panel):
    return PairMoments.from_panel(
        Panel(panel.indptr, panel.columns, np.abs(panel.values), panel.n_columns, row_weights=panel.row_weights)
    ).sums


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 40), weighted=st.booleans())
def test_any_split_merges_to_the_whole(seed, cut, weighted):
    panel = random_panel(seed, n=40, low=0, weighted=weighted)
    whole = PairMoments.from_panel(panel)
    chosen = np.random.default_rng(seed).permutation(panel.n_rows)
    parts = [PairMoments.from_panel(panel.take_rows(part)) for part in (chosen[:cut], chosen[cut:]) if len(part)]
    merged = sum(parts[1:], start=parts[0])
    assert merged.n_rows == whole.n_rows
    for name in ("indptr", "columns", "rows"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))
    assert np.all(np.abs(merged.sums - whole.sums) <= 1e-12 * magnitudes(panel))
    for name in ("squares", "counts", "effective_counts"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-12)
    if len(parts) == 2:
        back = whole - parts[0]
        for name in ("indptr", "columns", "rows"):
            np.testing.assert_array_equal(getattr(back, name), getattr(parts[1], name))
        assert back.n_rows == parts[1].n_rows
        for name in ("squares", "counts", "effective_counts"):
            np.testing.assert_allclose(getattr(back, name), getattr(parts[1], name), rtol=1e-9, atol=1e-9)


def test_folds_are_row_weights():
    panel = random_panel(5)
    fold = np.arange(panel.n_rows) % 3 == 0
    weighted = PairMoments.from_panel(panel.with_row_weights(fold.astype(float)))
    taken = PairMoments.from_panel(panel.take_rows(fold))
    assert weighted.weight_sums is None
    assert weighted.n_rows == taken.n_rows
    np.testing.assert_array_equal(weighted.rows, taken.rows)
    np.testing.assert_array_equal(weighted.sums, taken.sums)


def test_a_zero_sum_is_not_a_missing_pair():
    moments = PairMoments.from_panel(Panel.from_dense([[1.0, 1.0], [1.0, -1.0]]))
    matrix = moments.to_matrix(hajek(moments))
    assert matrix.nnz == 4
    assert matrix[0, 1] == 0.0


def test_moments_that_do_not_belong_together_are_refused():
    small, large = (PairMoments.from_panel(random_panel(0, d=d)) for d in (12, 13))
    with pytest.raises(InputError, match="moments over 12 and 13 columns; align"):
        small + large
    with pytest.raises(InputError, match="subtract a part from its whole"):
        small - (small + small)
    panel = Panel.from_dense([[1.0, 2.0], [3.0, 4.0]]).with_row_weights([1e12, 1e-12])
    with pytest.raises(InputError, match="the rows left weigh nothing beside those taken away"):
        PairMoments.from_panel(panel) - PairMoments.from_panel(panel.take_rows([0]))


def test_horvitz_thompson_refuses_weights_and_probabilities_outside_their_range():
    moments = PairMoments.from_panel(random_panel(0, weighted=True))
    with pytest.raises(InputError, match="rows of equal weight"):
        horvitz_thompson(moments, 0.1)
    with pytest.raises(InputError, match="p=0: expected a probability above 0"):
        horvitz_thompson(PairMoments.from_panel(random_panel(0)), 0)


N, D, C, REPEATS = 300, 12, 4, 2500
UPPER = np.triu_indices(D)
SAMPLERS = {
    "bernoulli": (lambda truth, rng: synthetic.sample_bernoulli(truth, C / D, rng=rng), C / D, (C / D) ** 2),
    "fixed": (lambda truth, rng: synthetic.sample_fixed(truth, C, rng=rng), C / D, C * (C - 1) / (D * (D - 1))),
}


@pytest.fixture(scope="module", params=SAMPLERS)
def resampled(request):
    """T̂ and T̄ over many samples of one fixed matrix; NaN outside Ω."""
    sampler, p, pair_p = SAMPLERS[request.param]
    M = np.random.default_rng(0).normal(0.5, 1.0, size=(N, D))
    truth, rng = synthetic.Truth(M, np.eye(D)), np.random.default_rng(1)
    estimates, weighted_by_p = np.full((REPEATS, D, D), np.nan), np.zeros((REPEATS, D, D))
    errors = np.full((REPEATS, D, D), np.nan)
    for k in range(REPEATS):
        moments = PairMoments.from_panel(sampler(truth, rng))
        pairs = moments.pairs()
        estimates[k][pairs] = hajek(moments)
        weighted_by_p[k][pairs] = horvitz_thompson(moments, p, pair_p)
        errors[k][pairs] = standard_errors(moments)
    return M, p, pair_p, estimates[:, *UPPER], weighted_by_p[:, *UPPER], errors[:, *UPPER]


def test_hajek_is_unbiased_on_the_observed_pairs(resampled):
    M, _, _, estimates, _, _ = resampled
    T = M.T @ M / N
    seen = np.sum(~np.isnan(estimates), axis=0)
    assert np.all(seen >= 500)
    mean, deviation = np.nanmean(estimates, axis=0), np.nanstd(estimates, axis=0, ddof=1)
    assert np.all(np.abs(mean - T[UPPER]) <= 4.5 * deviation / np.sqrt(seen))


def test_horvitz_thompson_is_unbiased(resampled):
    M, _, _, _, weighted_by_p, _ = resampled
    T = M.T @ M / N
    mean, deviation = weighted_by_p.mean(axis=0), weighted_by_p.std(axis=0, ddof=1)
    assert np.all(np.abs(mean - T[UPPER]) <= 4.5 * deviation / np.sqrt(REPEATS))


def test_variance_formulas_match_resampling(resampled):
    M, p, pair_p, estimates, weighted_by_p, _ = resampled
    T, F = M.T @ M / N, (M**2).T @ (M**2) / N
    measured = np.nanvar(estimates, axis=0, ddof=1)
    exact = hajek_variance(T, F, N, p, pair_p)[UPPER]
    assert np.all(np.abs(measured / exact - 1) < 6 * np.sqrt(2 / REPEATS))
    expected = horvitz_thompson_variance(F, N, p, pair_p)[UPPER]
    assert np.all(np.abs(weighted_by_p.var(axis=0, ddof=1) / expected - 1) < 6 * np.sqrt(2 / REPEATS))
    # Hájek gains what T² is worth: on the diagonal always, off it where products are not centred at zero.
    assert np.all((exact < expected)[UPPER[0] == UPPER[1]])

    paper = hajek_variance(T, F, N, p, formula="paper")
    diagonal = np.arange(D)
    np.testing.assert_allclose(paper[diagonal, diagonal], hajek_variance(T, F, N, p).diagonal(), rtol=0.03)
    assert np.all(paper[np.triu_indices(D, 1)] > hajek_variance(T, F, N, p, pair_p)[np.triu_indices(D, 1)])


def test_the_papers_off_diagonal_variance_is_the_limit_of_one_row():
    T, F = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[6.0, 3.0], [3.0, 4.0]])
    n = 10_000
    exact = hajek_variance(T, F, n, 1e-5)
    assert exact[0, 1] == pytest.approx(hajek_variance(T, F, n, 1e-5, formula="paper")[0, 1], rel=1e-3)


def test_standard_errors_match_resampling(resampled):
    _, _, _, estimates, _, errors = resampled
    measured = np.nanvar(estimates, axis=0, ddof=1)
    estimated = np.nanmean(errors**2, axis=0)
    assert np.all(estimated > 0)
    np.testing.assert_allclose(estimated, measured, rtol=0.25)


def test_a_pair_seen_once_has_the_pooled_standard_error():
    rng = np.random.default_rng(0)
    dense = np.full((200, 4), np.nan)
    dense[:, :2] = rng.normal(size=(200, 2))
    dense[0, 2:] = [1.0, 2.0]
    moments = PairMoments.from_panel(Panel.from_dense(dense))
    i, j = moments.pairs()
    once = standard_errors(moments)[(i == 2) & (j == 3)][0]
    size = moments.diagonal(hajek(moments))
    often = (i == 0) & (j == 1)
    variance = moments.squares[often] / 200 - hajek(moments)[often] ** 2
    # All repeated off-diagonal pairs are (0, 1): their variance, in proportion to the columns' sizes.
    expected = variance[0] * 200 / 199 / (size[0] * size[1]) * size[2] * size[3] * (1 - 1 / 200)
    assert once**2 == pytest.approx(expected, rel=0.02)


def test_standard_errors_are_their_formula():
    moments = PairMoments.from_panel(random_panel(0, weighted=True))
    i, j = moments.pairs()
    T, N = hajek(moments), moments.effective_counts
    deviance = N * (moments.squares / moments.counts - T**2)  # s² (N − 1)
    size = moments.diagonal(T)
    expected = np.empty(len(T))
    for group in (i == j, i != j):
        often = group & (moments.rows > 1)
        ratio = deviance[often].sum() / ((N - 1) * size[i] * size[j])[often].sum()
        pooled = ratio * size[i] * size[j]
        own = np.where(moments.rows > 1, deviance, 0)
        freedom = np.where(moments.rows > 1, N - 1, 0)
        variance = (own + 4 * pooled) / (freedom + 4)
        expected[group] = np.sqrt(variance * (1 / N - 1 / moments.n_rows))[group]
    np.testing.assert_allclose(standard_errors(moments), expected, rtol=1e-9)


def test_without_a_pair_seen_twice_the_mean_square_stands_for_the_variance():
    moments = PairMoments.from_panel(Panel.from_dense([[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 3.0, 4.0]]))
    i, j = moments.pairs()
    size = moments.diagonal(hajek(moments))
    off = i != j
    ratio = (moments.squares / moments.counts)[off].sum() / (size[i] * size[j])[off].sum()
    expected = np.sqrt(ratio * (size[i] * size[j])[off] * (1 - 1 / 2))
    np.testing.assert_allclose(standard_errors(moments)[off], expected)


def test_a_single_row_has_no_variance():
    assert not hajek_variance(np.ones((2, 2)), 2 * np.ones((2, 2)), 1, 0.5).any()


def test_standard_errors_are_zero_for_a_complete_panel_and_finite_for_zeros():
    complete = PairMoments.from_panel(Panel.from_dense(np.random.default_rng(0).normal(size=(30, 4))))
    assert np.all(standard_errors(complete) == 0)
    zeros = PairMoments.from_panel(Panel.from_dense([[0.0, 0.0, np.nan], [np.nan, 0.0, 0.0]]))
    assert np.all(standard_errors(zeros) == 0)


def test_mean_inverse_count():
    n, p = 40, 0.1
    from scipy.stats import binom

    k = np.arange(1, n + 1)
    expected = np.sum(binom.pmf(k, n, p) / k) / binom.sf(0, n, p)
    assert mean_inverse_count(n, p) == pytest.approx(expected, rel=1e-12)
    assert mean_inverse_count(10, 1.0) == pytest.approx(0.1)
    assert mean_inverse_count(1000, 1e-9) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        ([12], [0], "whole numbers from 0 to 11"),
        ([0], [-1], "whole numbers from 0 to 11"),
        ([0.5], [1], "whole numbers from 0 to 11"),
        (0, 1, "two lists"),
        ([0, 1], [1], "2 and 1 columns; expected pairs"),
    ],
)
def test_pairs_that_are_none_are_refused(i, j, message):
    moments = PairMoments.from_panel(random_panel(0))
    with pytest.raises(InputError, match=message):
        moments.find(np.array(i), np.array(j))
