"""Variational passes: what they estimate, what they leave alone, and that they end."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import random_array

from onesided import Panel, synthetic
from onesided.engines.engine import engine_for
from onesided.engines.threads import THREADS_VARIABLE
from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.refinement import START_NOISE, START_VARIANCE, TOLERANCE, refine, working_memory
from onesided.fitting.setting import Setting
from onesided.kernels.bundles import Rows
from onesided.kernels.reference import from_half, posterior_sums
from tests.conftest import random_panel


def simulate(seed=0, n=4000, d=25, per_row=8, mean=2.0, effect=0.5, noise=0.4):
    """Rows with column means, a row effect, two factors and noise, and the covariance that they come from."""
    rng = np.random.default_rng(seed)
    center, X = rng.normal(mean, 0.7, size=d), 0.6 * rng.normal(size=(d, 2))
    M = center + effect * rng.normal(size=(n, 1)) + rng.normal(size=(n, 2)) @ X.T + noise * rng.normal(size=(n, d))
    kept = np.argsort(rng.random((n, d)), axis=1) < per_row
    return Panel.from_dense(np.where(kept, M, np.nan)), center, effect**2 + X @ X.T, M


def off_diagonal_error(found, covariance):
    L = found.loadings @ found.loadings.T
    off = ~np.eye(len(L), dtype=bool)
    return np.linalg.norm((L - covariance)[off]) / np.linalg.norm(covariance[off])


def test_every_part_of_the_model_is_recovered():
    panel, center, covariance, _ = simulate()
    start = moment_solution(panel, Setting(2, center="both"))
    found = refine(panel, start, center="both").row_space
    np.testing.assert_allclose(found.mean, center, atol=0.08)
    assert off_diagonal_error(found, covariance) < min(0.08, off_diagonal_error(start.row_space, covariance))
    assert found.noise_variance.mean() == pytest.approx(0.16, rel=0.05)
    assert found.row_variance > 0
    # The effect is the same in all columns, and what is left of the rows does not correlate with it.
    np.testing.assert_array_equal(found.loadings[:, 0], np.full(25, np.sqrt(found.row_variance)))


@pytest.mark.parametrize("center", ["none", "columns", "both"])
def test_one_pass_is_the_regression_of_columns_on_rows(center):
    panel = random_panel(3, n=200)
    solution = moment_solution(panel, Setting(2, center=center))
    start, found = solution.row_space, refine(panel, solution, center=center, passes=1).row_space
    size = np.mean((panel.values - start.mean[panel.columns]) ** 2)
    noise = np.maximum(start.noise_variance, START_NOISE * size)
    loadings, begun, unknown = start.loadings, start.mean.copy(), np.zeros(12)
    if center != "none":  # means are shrunk, by an analysis of variance
        N, within = panel.column_counts, size * panel.n_entries / (panel.n_entries - 12)
        level = N @ begun / N.sum()
        between = (N @ (begun - level) ** 2 - 11 * within) / (N.sum() - N @ N / N.sum())
        assert between > 0
        begun = level + N * between / (N * between + within) * (begun - level)
        unknown = between * within / (N * between + within)
    rows = Rows.of(panel.indptr, panel.columns, panel.values, panel.row_weights)
    spread = np.zeros((12, (loadings.shape[1] + 1) * (loadings.shape[1] + 2) // 2))
    spread[:, 0] = unknown
    second, first, _, total = posterior_sums(
        rows, engine_for(panel).prepare_columns(begun, loadings, noise, spread, exact=True)
    )
    second, total = from_half(second), from_half(total)
    effect = loadings.shape[1] - 2
    free = [0] * (center != "none") + list(range(1 + effect, 3 + effect))
    at = np.column_stack([begun, loadings])[:, free]
    prior_mean = at.mean(axis=0)
    covariance = np.cov(at.T, bias=True)
    covariance[0, 0] += unknown.mean()
    if center != "none":  # centers and loadings are taken as unrelated unless twelve columns tell otherwise
        explained = covariance[0, 1:] @ np.linalg.solve(covariance[1:, 1:], covariance[1:, 0]) / covariance[0, 0]
        if -12 * np.log(1 - explained) <= 2 * np.log(12):
            covariance[0, 1:] = covariance[1:, 0] = 0.0
    prior = np.linalg.inv(covariance + START_VARIANCE * size * np.eye(len(free)))
    mean, x = begun.copy(), loadings.copy()
    for j in range(12):
        fixed = np.zeros(3 + effect)
        fixed[1 : 1 + effect] = loadings[j, :effect]
        expected = prior_mean.copy()
        if center != "none":
            expected[0] -= begun[j]
        P = prior + second[j][np.ix_(free, free)] / noise[j]
        solution = np.linalg.solve(P, prior @ expected + (first[j] - second[j] @ fixed)[free] / noise[j])
        fixed[free] = solution
        mean[j] += fixed[0]
        x[j] = fixed[1:]
    moments = total[1:, 1:] / total[0, 0]
    shift = total[1:, 0] / total[0, 0] * (center != "none")
    L = x @ (moments - np.outer(shift, shift)) @ x.T
    np.testing.assert_allclose(found.loadings @ found.loadings.T, L, atol=1e-6 * np.abs(L).max())
    np.testing.assert_allclose(found.mean, mean + x @ shift, rtol=1e-7)


def test_rows_of_weight_zero_are_left_out():
    panel, *_ = simulate(n=600)
    kept = np.arange(600) % 3 > 0
    weighted = panel.with_row_weights(kept.astype(float))
    start = moment_solution(weighted, Setting(2))
    held_out = refine(weighted, start, center="columns").row_space
    alone = refine(panel.take_rows(kept), start, center="columns").row_space
    np.testing.assert_allclose(held_out.factor, alone.factor, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(held_out.noise_variance, alone.noise_variance, rtol=1e-8)


def test_an_exact_panel_is_recovered_almost_exactly():
    truth = synthetic.common_means(3000, 60, 3, rng=0)
    panel = synthetic.sample_fixed(truth, 12, rng=1)
    T = truth.second_moment()
    for center, rank in (("none", 3), ("columns", 2)):
        found = refine(panel, moment_solution(panel, Setting(rank, center=center)), center=center).row_space
        L = np.outer(found.mean, found.mean) + found.factor @ found.factor.T
        assert np.linalg.norm(L - T) < 0.03 * np.linalg.norm(T)


def test_noise_that_starts_too_low_rises():
    panel, _, covariance, _ = simulate()
    start = moment_solution(panel, Setting(2, center="both"))
    low = replace(start, row_space=replace(start.row_space, noise_variance=np.full(25, 1e-6)))
    assert off_diagonal_error(refine(panel, low, center="both").row_space, covariance) < 0.08


def test_columns_that_were_never_beside_another_are_not_placed():
    M = random_panel(0, n=200).to_dense()
    M[:, 3] = np.nan
    M[:100, 5] = np.nan
    M[100:] = np.where(np.arange(12) == 5, M[100:], np.nan)
    panel = Panel.from_dense(M)
    found = refine(panel, moment_solution(panel, Setting(2)), center="columns").row_space
    assert not found.factor[[3, 5]].any()
    assert np.isfinite(found.noise_variance).all()
    assert found.spread.shape == (12, 6)
    assert not found.spread[[3, 5], 1:].any()


@pytest.mark.parametrize("value", [0.0, 3.0, -1e60, 1e-60])
def test_a_panel_without_variation_stays_as_it_is(value):
    panel = Panel.from_dense(np.where(np.isnan(random_panel(0).to_dense()), np.nan, value))
    start = moment_solution(panel, Setting(1))
    assert refine(panel, start, center="columns") is start


@pytest.mark.parametrize("unit", [1e-60, 1.0, 1e60])
def test_the_unit_does_not_matter(unit):
    panel, *_ = simulate(n=400)
    scaled = Panel(panel.indptr, panel.columns, panel.values * unit, panel.n_columns)
    plain, other = (
        refine(p, moment_solution(p, Setting(2, center="both")), center="both").row_space for p in (panel, scaled)
    )
    np.testing.assert_allclose(other.factor / unit, plain.factor, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(other.noise_variance / unit**2, plain.noise_variance, rtol=1e-3)


@pytest.mark.parametrize("threads", ["1", "64"])
@pytest.mark.parametrize(("d", "rank"), [(20_000, 10), (5000, 20)])
def test_refining_takes_the_memory_that_was_foretold(monkeypatch, d, rank, threads):
    monkeypatch.setenv(THREADS_VARIABLE, threads)
    entries = random_array((3000, d), density=10 / d, rng=np.random.default_rng(0), format="csr")
    panel = Panel.from_sparse(entries)
    factor = 0.1 * np.random.default_rng(1).normal(size=(d, rank))
    start = moment_solution(panel, Setting(0))
    start = replace(start, row_space=replace(start.row_space, factor=factor))
    tracemalloc.start()
    try:
        refine(panel, start, center="columns", passes=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.75 < peak / working_memory(d, rank) < 1.25


def test_progress_is_reported():
    panel, *_ = simulate(n=300)
    seen = []
    refine(
        panel,
        moment_solution(panel, Setting(1)),
        center="columns",
        passes=4,
        progress=lambda done, loss: seen.append(done),
    )
    assert seen == sorted(seen)
    assert seen[0] == 1


def test_means_without_a_factor_are_shrunk_until_they_settle():
    rng = np.random.default_rng(0)
    columns = np.argsort(rng.random((2000, 400)), axis=1)[:, :2]
    panel = Panel.from_arrays(np.repeat(np.arange(2000), 2), columns.ravel(), rng.normal(3.0, 1.0, size=4000))
    found = refine(panel, moment_solution(panel, Setting(0)), center="columns").row_space
    assert np.sqrt(np.mean((found.mean - 3.0) ** 2)) < 0.05  # all means are equal; plain ones are off by 0.3


def test_columns_weigh_alike_where_no_factor_tells_them_apart():
    """Skewed values: columns of low mean are the noisy ones. Row effects must come from all columns alike."""
    rng = np.random.default_rng(4)
    n, d = 20_000, 40
    quiet = np.arange(d) < 20
    effect = rng.normal(size=(n, 1)) * np.where(quiet, 0.2, 1.0)  # rows vary most in noisy columns
    M = np.where(quiet, 9.0, 7.0) + effect + np.where(quiet, 0.3, 1.5) * rng.normal(size=(n, d))
    panel = Panel.from_dense(np.where(rng.random((n, d)) < 0.1, M, np.nan))
    found = refine(panel, moment_solution(panel, Setting(0, center="both")), center="both").row_space
    mean_product = np.mean(np.outer(np.where(quiet, 0.2, 1.0), np.where(quiet, 0.2, 1.0)))
    assert found.row_variance == pytest.approx(mean_product, rel=0.15)
    assert np.median(found.noise_variance[quiet]) < 0.5 * np.median(found.noise_variance[~quiet])


@pytest.mark.parametrize(("share", "tolerance"), [(0.03, 0.25), (0.3, 0.06)])
def test_noise_of_columns_is_told_apart_as_far_as_they_differ(share, tolerance):
    """Entries in a column: 90, of which the mean noise replaces 20 where columns differ, and 900."""
    rng = np.random.default_rng(5)
    n, d = 3000, 200
    for deviation in (np.ones(d), np.where(np.arange(d) % 2 == 0, 0.5, 1.5)):
        M = rng.normal(size=(n, 1)) + deviation * rng.normal(size=(n, d))
        panel = Panel.from_dense(np.where(rng.random((n, d)) < share, M, np.nan))
        noise = refine(panel, moment_solution(panel, Setting(0, center="both")), center="both").row_space.noise_variance
        if deviation[0] == 1:
            np.testing.assert_allclose(noise, 1.0, atol=tolerance)
        else:
            np.testing.assert_allclose([noise[::2].mean(), noise[1::2].mean()], [0.25, 2.25], atol=1.2 * tolerance)
            assert noise[::2].max() < 0.8 * noise[1::2].min()


def test_how_the_passes_ended_is_kept():
    panel, *_ = simulate(n=600)
    start = moment_solution(panel, Setting(2, center="both"))
    assert start.refinement is None
    short = refine(panel, start, center="both", passes=2).refinement
    assert short.passes == 2
    assert short.change > TOLERANCE
    settled = refine(panel, start, center="both", passes=500).refinement
    assert 2 < settled.passes < 500
    assert settled.change < TOLERANCE
