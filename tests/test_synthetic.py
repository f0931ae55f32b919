"""Generators against dense algebra, samplers against the probabilities they promise."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy import stats

from onesided import synthetic
from onesided.errors import InputError
from onesided.panels.panel import Panel
from onesided.synthetic import (
    Truth,
    common_means,
    linear_mixture,
    low_rank_gaussian,
    noisy_mixture,
    sample_bernoulli,
    sample_fixed,
    sample_snowball,
)

GENERATORS = {
    "low_rank_gaussian": low_rank_gaussian,
    "common_means": common_means,
    "noisy_mixture": partial(noisy_mixture, sigma=0.5),
    "linear_mixture": linear_mixture,
}


@pytest.fixture(params=GENERATORS, ids=str)
def generate(request):
    return GENERATORS[request.param]


def observed(panel):
    return ~np.isnan(panel.to_dense())


def assert_close_to_probability(frequency, probability, trials):
    """Within five standard errors of a proportion."""
    assert np.all(np.abs(frequency - probability) <= 5 * np.sqrt(probability * (1 - probability) / trials))


def assert_inclusion(mask, single, pair):
    n, d = mask.shape
    together = mask.T.astype(float) @ mask / n
    assert_close_to_probability(np.diag(together), single, n)
    assert_close_to_probability(together[np.triu_indices(d, 1)], pair, n)


# ---- truth and generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "rank"), [(40, 12, 3), (12, 40, 3), (9, 9, 9), (5, 1, 1), (1, 4, 1)])
def test_shape_and_rank(generate, n, d, rank):
    truth = generate(n, d, rank, rng=2)
    assert truth.shape == truth.to_dense().shape == (n, d)
    assert truth.rank == rank
    # With as many means as rows, a mean may stay unused.
    chosen_rank = np.linalg.matrix_rank(truth.row_factors)
    assert np.linalg.matrix_rank(truth.to_dense()) == chosen_rank
    assert chosen_rank == rank or generate not in (low_rank_gaussian, linear_mixture)


def test_second_moment_is_that_of_the_dense_matrix(generate):
    truth = generate(60, 15, 4, rng=3)
    M, L = truth.to_dense(), truth.second_moment_factor()
    T = M.T @ M / 60
    np.testing.assert_allclose(truth.second_moment(), T + truth.noise**2 * np.eye(15), atol=1e-14)
    np.testing.assert_allclose(L @ L.T, T, atol=1e-14)
    assert L.shape == (15, 4)


def test_second_moment_with_dependent_factors():
    rows = np.ones((10, 3))
    truth = Truth(rows, np.arange(12.0).reshape(4, 3))
    M = truth.to_dense()
    np.testing.assert_allclose(truth.second_moment(), M.T @ M / 10, rtol=1e-12)


def test_noise_adds_its_variance_to_the_diagonal_in_expectation():
    truth = noisy_mixture(20_000, 8, 2, sigma=2.0, rng=0)
    M = sample_fixed(truth, 8, rng=1).to_dense()
    np.testing.assert_allclose(M.T @ M / len(M), truth.second_moment(), atol=0.02)


@pytest.mark.parametrize("rank", [0, 1, 3, 40])
def test_entries_are_those_of_the_dense_matrix(rank, monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ENTRIES", 16)
    rng = np.random.default_rng(0)
    truth = Truth(rng.normal(size=(7, rank)), rng.normal(size=(5, rank)))
    rows, columns = rng.integers(7, size=50), rng.integers(5, size=50)
    np.testing.assert_allclose(truth.entries(rows, columns), truth.to_dense()[rows, columns], atol=1e-13)


@pytest.mark.parametrize(("n", "d"), [(300, 20), (20, 20), (20, 60), (37, 1)])
@pytest.mark.parametrize("block_entries", [1, 1000, 2**18])
def test_low_rank_gaussian_is_the_truncated_svd_however_it_is_cut(n, d, block_entries, monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ENTRIES", block_entries)
    rank = min(4, d)
    truth = low_rank_gaussian(n, d, rank, rng=5)
    full = np.random.default_rng(5).normal(1 / np.sqrt(d), 1 / np.sqrt(d), size=(n, d))
    U, s, Vt = np.linalg.svd(full, full_matrices=False)
    np.testing.assert_allclose(truth.to_dense(), (U[:, :rank] * s[:rank]) @ Vt[:rank], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(truth.row_factors, axis=0), s[:rank], rtol=1e-12)
    np.testing.assert_allclose(truth.column_factors.T @ truth.column_factors, np.eye(rank), atol=1e-12)


def test_low_rank_gaussian_with_another_mean_and_deviation():
    truth = low_rank_gaussian(30, 5, 5, rng=5, mean=2.0, deviation=0.1)
    np.testing.assert_allclose(truth.to_dense(), np.random.default_rng(5).normal(2.0, 0.1, size=(30, 5)), atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mean": np.nan}, "mean=nan; expected a finite number"),
        ({"deviation": -1.0}, "deviation=-1.0; expected a finite number that is not negative"),
    ],
)
def test_low_rank_gaussian_refuses(wrong, message):
    with pytest.raises(InputError, match=message):
        low_rank_gaussian(30, 5, 2, rng=0, **wrong)


def test_low_rank_gaussian_advances_the_generator_once():
    used, drawn = np.random.default_rng(5), np.random.default_rng(5)
    low_rank_gaussian(30, 4, 2, rng=used)
    drawn.normal(size=(30, 4))
    assert used.random() == drawn.random()


def test_common_means_are_chosen_uniformly():
    truth = common_means(20_000, 400, 5, rng=4)
    assert set(np.unique(truth.row_factors)) == {0.0, 1.0}
    assert np.all(truth.row_factors.sum(axis=1) == 1)
    assert_close_to_probability(truth.row_factors.mean(axis=0), 1 / 5, 20_000)
    np.testing.assert_allclose(np.linalg.norm(truth.column_factors, axis=0), 1.0, atol=0.2)


def test_linear_mixture_rows_have_norms_near_one():
    squared_norms = np.sum(linear_mixture(5_000, 400, 8, rng=4).to_dense() ** 2, axis=1)
    np.testing.assert_allclose(squared_norms.mean(), 1.0, atol=0.05)


# ---- samplers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [0, 1, 3, 5, 8, 9])
def test_fixed_takes_each_column_and_pair_alike(per_row):
    d = 9
    panel = sample_fixed(linear_mixture(40_000, d, 1, rng=0), per_row, rng=1)
    assert np.all(panel.row_counts == per_row)
    assert_inclusion(observed(panel), per_row / d, per_row * (per_row - 1) / (d * (d - 1)))


@pytest.mark.parametrize("per_row", [2, 3, 4])
def test_every_subset_is_equally_likely(per_row):
    panel = sample_fixed(linear_mixture(30_000, 6, 1, rng=0), per_row, rng=2)
    subsets, counts = np.unique(observed(panel), axis=0, return_counts=True)
    assert len(subsets) == {2: 15, 3: 20, 4: 15}[per_row]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 0.8, 1.0])
def test_bernoulli_takes_entries_independently(p):
    panel = sample_bernoulli(linear_mixture(40_000, 8, 1, rng=0), p, rng=1)
    assert_inclusion(observed(panel), p, p * p)


def test_bernoulli_with_a_probability_for_each_row():
    p = np.tile([0.0, 0.1, 0.5, 0.9, 1.0], 8_000)  # sparse and full rows side by side
    mask = observed(sample_bernoulli(linear_mixture(len(p), 8, 1, rng=0), p, rng=1))
    for k, one in enumerate(p[:5]):
        assert_inclusion(mask[k::5], one, one * one)


@pytest.mark.parametrize("block_entries", [1, 100, 2**18])
def test_values_are_those_of_the_truth_however_it_is_cut(block_entries, monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ENTRIES", block_entries)
    truth = low_rank_gaussian(200, 30, 3, rng=0)
    p = np.random.default_rng(0).random(200) ** 3
    for panel in (sample_fixed(truth, 4, rng=1), sample_bernoulli(truth, p, rng=1)):
        dense = panel.to_dense()
        np.testing.assert_allclose(dense[observed(panel)], truth.to_dense()[observed(panel)], atol=1e-14)
        # Panel itself refuses repeated or descending columns.
        assert panel.shape == (200, 30)
        assert panel.n_entries == panel.row_counts.sum()
    assert np.all(sample_fixed(truth, 4, rng=1).row_counts == 4)


def test_noise_has_its_standard_deviation():
    truth = noisy_mixture(20_000, 50, 3, sigma=0.7, rng=0)
    panel = sample_fixed(truth, 5, rng=1)
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    residual = panel.values - truth.entries(rows, panel.columns)
    standard_error = truth.noise / np.sqrt(2 * len(residual))
    assert truth.noise == pytest.approx(0.7 / np.sqrt(50))
    assert abs(residual.std() - truth.noise) < 5 * standard_error
    assert abs(residual.mean()) < 5 * truth.noise / np.sqrt(len(residual))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_have_the_asked_precision(dtype):
    truth = noisy_mixture(100, 20, 2, sigma=1.0, rng=0)
    wide = sample_fixed(truth, 3, rng=1)
    panel = sample_fixed(truth, 3, rng=1, dtype=dtype)
    assert panel.values.dtype == dtype
    assert sample_bernoulli(truth, 0.2, rng=1, dtype=dtype).values.dtype == dtype
    np.testing.assert_array_equal(panel.values, wide.values.astype(dtype))


def test_snowball_keeps_entries_with_the_promised_frequency():
    n, d, rate = 40_000, 10, 1.25
    counts = np.tile([0, 1, 4, 8], n // 4)
    mask = np.arange(d) < counts[:, np.newaxis]
    panel = Panel.from_dense(np.where(mask, np.arange(n)[:, np.newaxis] + 1.0, np.nan))
    sample = sample_snowball(panel, rate, rng=3)
    kept = observed(sample)
    assert not np.any(kept & ~mask)
    np.testing.assert_array_equal(sample.to_dense()[kept], panel.to_dense()[kept])
    for k, count in enumerate(counts[:4]):
        p = rate * count / d
        assert_inclusion(kept[k::4, :count], p, p * p)


def test_snowball_does_not_see_the_blocks_it_works_in(monkeypatch):
    panel = sample_bernoulli(linear_mixture(300, 20, 2, rng=0), 0.3, rng=1)
    whole = sample_snowball(panel, 1.0, rng=2)
    monkeypatch.setattr(synthetic, "BLOCK_ENTRIES", 7)
    np.testing.assert_array_equal(sample_snowball(panel, 1.0, rng=2).to_dense(), whole.to_dense())


def test_snowball_keeps_ids_and_weights():
    panel = Panel.from_arrays(["a", "a", "b"], ["x", "y", "y"], np.float32([1, 2, 3]))
    sample = sample_snowball(panel.with_row_weights([2.0, 3.0]), 0.9, rng=0)
    assert list(sample.row_ids) == ["a", "b"]
    assert list(sample.column_ids) == ["x", "y"]
    assert list(sample.row_weights) == [2.0, 3.0]
    assert sample.values.dtype == np.float32
    assert not sample_snowball(Panel.from_dense([[1.0]]), 0.5, rng=0).has_row_ids


def test_same_seed_same_panel(generate):
    def draw(seed):
        truth = generate(80, 12, 3, rng=seed)
        panel = sample_bernoulli(truth, 0.3, rng=seed)
        thinned = sample_snowball(panel, 1.0, rng=seed)
        return [one.to_dense() for one in (panel, thinned, sample_fixed(truth, 2, rng=seed))]

    for one, again, other in zip(draw(1), draw(1), draw(2), strict=True):
        np.testing.assert_array_equal(one, again)
        assert not np.array_equal(one, other)


def test_a_generator_gives_a_new_panel_each_time():
    rng = np.random.default_rng(0)
    truth = linear_mixture(80, 12, 3, rng=rng)
    first, second = sample_fixed(truth, 2, rng=rng), sample_fixed(truth, 2, rng=rng)
    assert not np.array_equal(first.columns, second.columns)


def test_one_seed_for_everything_leaves_choices_independent():
    """The stream that made the truth is not the one that samples it, nor the one that thins the sample."""
    n, d = 4_000, 500
    panel = sample_fixed(linear_mixture(n, d, 1, rng=0), 1, rng=0)
    assert np.mean(panel.columns == np.random.default_rng(0).integers(d, size=n)) < 0.1
    kept = sample_snowball(panel, d / 2, rng=0).row_counts
    # In one stream, a random number takes the bits of two columns: the k-th those of 2k and 2k + 1.
    for half in (panel.columns[::2], panel.columns[1::2]):
        assert abs(np.corrcoef(half, kept[: n // 2])[0, 1]) < 5 / np.sqrt(n // 2)


@pytest.mark.parametrize(
    "sample",
    [partial(sample_fixed, per_row=5), partial(sample_bernoulli, p=0.001)],
    ids=["fixed", "bernoulli"],
)
def test_sampling_needs_far_less_memory_than_the_matrix(sample):
    truth = linear_mixture(20_000, 5_000, 3, rng=0)
    tracemalloc.start()
    try:
        panel = sample(truth, rng=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert panel.n_entries == pytest.approx(100_000, rel=0.02)
    assert peak < 20_000 * 5_000 * 8 / 50


# ---- what is refused ---------------------------------------------------------------------------------------

TRUTH = linear_mixture(6, 4, 2, rng=0)


@pytest.mark.parametrize(
    ("n", "d", "rank", "message"),
    [
        (0, 4, 1, "n=0; expected an integer from 1 upwards"),
        (4, -1, 1, "d=-1"),
        (1e4, 4, 1, "n=10000.0"),
        (4, 3, 0, "rank=0; expected an integer from 1 to 3"),
        (2, 9, 3, "rank=3; expected an integer from 1 to 2"),
    ],
)
def test_impossible_sizes_are_refused(generate, n, d, rank, message):
    with pytest.raises(InputError, match=message):
        generate(n, d, rank, rng=0)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf])
def test_impossible_noise_is_refused(sigma):
    with pytest.raises(InputError, match=r"sigma=.*not negative"):
        noisy_mixture(5, 4, 2, sigma=sigma, rng=0)
    with pytest.raises(InputError, match="noise="):
        Truth(np.ones((3, 1)), np.ones((2, 1)), noise=sigma)


@pytest.mark.parametrize("shapes", [((3, 1), (2, 2)), ((3,), (2,)), ((3, 1), (1,))])
def test_factors_that_do_not_multiply_are_refused(shapes):
    with pytest.raises(InputError, match="expected n × k and d × k"):
        Truth(np.ones(shapes[0]), np.ones(shapes[1]))


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (-0.1, "between 0 and 1; found -0.1"),
        (1.5, "found 1.5"),
        (np.nan, "found nan"),
        ([0.5] * 5 + [2.0], "found 0.5 to 2"),
        ([0.5] * 5, "one for each of 6 rows"),
    ],
)
def test_impossible_probabilities_are_refused(p, message):
    with pytest.raises(InputError, match=message):
        sample_bernoulli(TRUTH, p, rng=0)


@pytest.mark.parametrize("per_row", [-1, 5, 2.5])
def test_impossible_row_sizes_are_refused(per_row):
    with pytest.raises(InputError, match="expected an integer from 0 to 4"):
        sample_fixed(TRUTH, per_row, rng=0)


def test_values_that_would_be_rounded_are_refused():
    with pytest.raises(InputError, match="float32 or float64; found int64"):
        sample_fixed(TRUTH, 2, rng=0, dtype=np.int64)


def test_snowball_refuses_to_clip_and_names_the_largest_rate():
    panel = Panel.from_dense(np.where(np.arange(7) < [[1], [3], [6], [6]], 1.0, np.nan))
    with pytest.raises(InputError, match="2 of 4 rows a probability above 1") as refused:
        sample_snowball(panel, 1.5, rng=0)
    largest = float(str(refused.value).split("at most ")[1])
    assert list(sample_snowball(panel, largest, rng=0).row_counts[2:]) == [6, 6]
    with pytest.raises(InputError, match=r"rate=-1\.0"):
        sample_snowball(panel, -1.0, rng=0)


def test_snowball_of_an_empty_panel_is_empty():
    empty = sample_fixed(TRUTH, 0, rng=0)
    assert sample_snowball(empty, 3.0, rng=0).n_entries == 0
