"""Solvers: they reach the minimum, and say so when they do not."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import PairMoments, Panel, synthetic
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.objective.rows import RowObjective
from onesided.fitting.solvers.gradient_descent import gradient_descent, random_start
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.fitting.solvers.result import REMEDIES
from onesided.fitting.solvers.spectral import spectral_start, top_eigenpairs
from tests.conftest import random_panel


def solve(objective, rank, **options):
    start = spectral_start(objective, rank, np.random.default_rng(0))
    return lbfgs(objective.value_and_gradient, start, objective.metric(start), **options)


@pytest.mark.parametrize("diagonal", ["fit", "free"])
@pytest.mark.parametrize("per_row", [3, 10])
def test_lbfgs_converges_in_tens_of_passes(diagonal, per_row):
    truth = synthetic.linear_mixture(3000, 60, 3, rng=0)
    objective = RowObjective(synthetic.sample_fixed(truth, per_row, rng=1), diagonal=diagonal, ridge=1.0)
    result = solve(objective, 3)
    assert result.status == "converged"
    assert result.passes < 100
    assert np.all(np.diff(result.history) <= 1e-14 * abs(result.history[-1]))
    # The tolerance is what it says: another solver, run much longer, finds next to nothing more.
    longer = solve(objective, 3, tol=1e-12, max_passes=2000)
    assert result.history[-1] - longer.history[-1] <= 1e-5 * abs(longer.history[-1])


def test_a_skewed_panel_converges_too():
    rng = np.random.default_rng(0)
    n, d = 2000, 300
    popularity = 1 / np.arange(1, d + 1)
    share = popularity / popularity.sum()
    rows = np.repeat(np.arange(n), 12)
    columns = np.concatenate([rng.choice(d, 12, replace=False, p=share) for _ in range(n)])
    values = synthetic.linear_mixture(n, d, 4, rng=1).entries(rows, columns)
    panel = Panel.from_arrays(rows, columns, values + 0.02 * rng.normal(size=len(values)))
    result = solve(RowObjective(panel, ridge=1.0), 4)
    assert result.status == "converged"
    assert result.passes < 150


def test_the_spectral_start_of_an_exact_low_rank_panel_is_near_the_end():
    truth = synthetic.linear_mixture(20_000, 40, 2, rng=0)
    objective = RowObjective(synthetic.sample_fixed(truth, 10, rng=0), diagonal="fit")
    start = spectral_start(objective, 2, np.random.default_rng(0))
    first = objective.value_and_gradient(start)[0]
    last = solve(objective, 2).history[-1]
    assert first < 0.95 * last < 0


def test_the_limit_is_named_with_its_remedy():
    objective = RowObjective(random_panel(0, n=300), ridge=0.1)
    result = solve(objective, 4, max_passes=3, tol=1e-12)
    assert result.status == "limit"
    assert not result.succeeded
    assert result.message.startswith("limit after 3 passes: ")
    assert "raise max_passes or tol" in result.message


def test_a_loss_that_cannot_be_lowered_is_called_stalled():
    wrong_gradient = lambda x: (float(x @ x) + 1, -2 * x)  # noqa: E731
    result = lbfgs(wrong_gradient, np.ones(3), lambda g: g)
    assert result.status == "stalled"
    assert REMEDIES["stalled"] in result.message


def test_trial_steps_into_infinity_are_survived():
    def walled(x):  # −3x − log(1 − x), infinite from 1 on; lowest at 2/3
        if x[0] >= 1:
            return np.inf, np.array([np.nan])
        return float(-3 * x[0] - np.log(1 - x[0])), -3 + 1 / (1 - x)

    result = lbfgs(walled, np.array([0.0]), lambda g: 10 * g)
    assert result.status == "converged"
    assert result.factor[0] == pytest.approx(2 / 3, abs=1e-2)


def test_a_panel_of_zeros_gives_a_factor_of_zeros():
    objective = RowObjective(Panel.from_dense(np.zeros((4, 3))), diagonal="fit", ridge=1.0)
    result = solve(objective, 2)
    assert result.status == "converged"
    assert np.all(result.factor == 0)


def test_columns_without_company_have_no_factor():
    dense = np.full((50, 5), np.nan)
    dense[:, :3] = np.random.default_rng(0).normal(size=(50, 3))
    dense[:25, :3] = np.nan
    dense[0, 3] = 9.0
    result = solve(RowObjective(Panel.from_dense(dense)), 2)
    assert np.all(result.factor[3:] == 0)
    assert np.all(np.any(result.factor[:3] != 0, axis=1))


def test_a_larger_rank_never_ends_higher():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d = 300, 20
        popularity = 1 / np.arange(1, d + 1) ** rng.choice([0.0, 0.7, 1.2])
        M = rng.choice([0.4, 1.0]) * rng.normal(size=(n, 1)) * rng.normal(size=d) + rng.normal(size=(n, d))
        kept = rng.random((n, d)) < np.minimum(popularity / popularity.mean() / 4, 1)
        panel = Panel.from_dense(np.where(kept, M, np.nan))
        objective = RowObjective(panel, weights=np.maximum(panel.row_counts, 1) ** -0.5, ridge=1.0)
        losses = [solve(objective, rank).history[-1] for rank in (1, 3, 10)]
        assert losses[1] <= losses[0] * (1 - 1e-3)  # losses are negative
        assert losses[2] <= losses[1] * (1 - 1e-3)


@pytest.mark.parametrize("d", [20, 250])
def test_a_panel_without_variation_starts_and_stays_at_zero(d):
    for value in (0.0, 2.0):
        objective = RowObjective(Panel.from_dense(np.full((30, d), value)), center=np.full(d, value), ridge=1.0)
        result = solve(objective, 2)
        assert result.status == "converged"
        assert not result.factor.any()


def test_gradient_descent_is_algorithm_1():
    objective = PairObjective(PairMoments.from_panel(random_panel(1)), penalty=0.1, alpha=0.2)
    start = random_start(12, 2, np.random.default_rng(0))
    X = start.copy()
    for _ in range(20):
        X = X - 0.5 * objective.value_and_gradient(X)[1]
    result = gradient_descent(objective.value_and_gradient, start, step_size=0.5, iterations=20)
    assert result.status == "completed"
    np.testing.assert_array_equal(result.factor, X)
    assert result.passes == len(result.history) == 21  # that of the start, and one after each iteration
    assert result.history[-1] == objective.value_and_gradient(X)[0]


def test_the_random_start_is_n_0_1_over_d():
    start = random_start(400, 50, np.random.default_rng(0))
    assert start.shape == (400, 50)
    assert start.std() == pytest.approx(1 / np.sqrt(400), rel=0.02)


def test_divergence_is_named_with_its_remedy():
    objective = PairObjective(PairMoments.from_panel(random_panel(1)))
    start = random_start(12, 2, np.random.default_rng(0))
    result = gradient_descent(objective.value_and_gradient, start, step_size=1e3, iterations=100)
    assert result.status == "diverged"
    assert np.all(np.isfinite(result.factor))
    assert "lower step_size (with step_size=1000 the loss rose from" in result.message


def test_a_last_step_that_rises_is_divergence():
    result = gradient_descent(lambda x: (float(x @ x), 2 * x), np.ones(2), step_size=1e200, iterations=1)
    assert result.status == "diverged"
    np.testing.assert_array_equal(result.factor, np.ones(2))


@pytest.mark.parametrize("d", [50, 400])  # dense and iterative
def test_top_eigenpairs_are_the_largest_by_value_not_by_size(d):
    from scipy.sparse.linalg import aslinearoperator

    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spectrum = np.linspace(-50, 1, d)
    spectrum[-3:] = [10, 20, 30]
    matrix = (basis * spectrum) @ basis.T
    values, vectors = top_eigenpairs(aslinearoperator(matrix), 3, rng)
    np.testing.assert_allclose(values, [30, 20, 10], rtol=1e-8)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-6)


def test_progress_is_reported():
    seen = []
    solve(RowObjective(random_panel(0), ridge=1.0), 2, progress=lambda passes, loss: seen.append((passes, loss)))
    assert seen
    assert [passes for passes, _ in seen] == sorted({passes for passes, _ in seen})
