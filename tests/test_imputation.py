"""Predictors against their formulas, and their intervals against the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onesided import InputError, Panel
from onesided.fitting.row_noise import learn_row_noise
from onesided.kernels import posterior
from onesided.model.imputation import LeastSquares, check_positions
from onesided.model.row_space import RowSpace
from tests.conftest import random_panel


@pytest.fixture
def space():
    rng = np.random.default_rng(0)
    return RowSpace(rng.normal(size=12), rng.normal(size=(12, 3)), rng.uniform(0.1, 1.0, size=12))


@pytest.fixture
def predictor(space):
    return space.predictor


def test_the_best_linear_predictor_is_gaussian_conditioning(space):
    panel = random_panel(2, low=0)
    filled, deviation = space.predictor.impute_with_deviations(panel)
    np.testing.assert_array_equal(filled, space.predictor.impute(panel))
    covariance = space.loadings @ space.loadings.T + np.diag(space.noise_variance)
    dense = panel.to_dense()
    for u in range(panel.n_rows):
        seen = ~np.isnan(dense[u])
        gain = covariance[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        value = space.mean + gain @ (dense[u] - space.mean)[seen]
        variance = np.diag(covariance - gain @ covariance[seen])
        np.testing.assert_allclose(filled[u][~seen], value[~seen], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(deviation[u][~seen], np.sqrt(variance[~seen]), rtol=1e-8)
        np.testing.assert_array_equal(filled[u][seen], dense[u][seen])
        assert np.all(deviation[u][seen] == 0)


def test_positions_agree_with_whole_rows(predictor, monkeypatch):
    panel = random_panel(3, low=0)
    filled, deviation = predictor.impute_with_deviations(panel)
    np.testing.assert_array_equal(filled, predictor.impute(panel))
    rows, columns = np.nonzero(np.isnan(panel.to_dense()))
    shuffled = np.random.default_rng(0).permutation(len(rows))
    rows, columns = rows[shuffled], columns[shuffled]
    for chunk in (1 << 21, 30):  # rows in one piece, and a few at a time
        monkeypatch.setattr("onesided.model.imputation.CHUNK", chunk)
        values, spread = predictor.impute_at(panel, rows, columns)
        np.testing.assert_allclose(values, filled[rows, columns], rtol=1e-12)
        np.testing.assert_allclose(spread, deviation[rows, columns], rtol=1e-12)


def test_a_row_without_entries_is_the_mean(space):
    empty = Panel.from_dense(np.full((1, 12), np.nan))
    filled, deviation = space.predictor.impute_with_deviations(empty)
    np.testing.assert_allclose(filled[0], space.mean)
    prior = np.sum(space.loadings**2, axis=1) + space.noise_variance
    np.testing.assert_allclose(deviation[0], np.sqrt(prior))


def test_intervals_cover_under_the_model():
    rng = np.random.default_rng(1)
    n, d, r = 400, 30, 3
    X, noise = rng.normal(size=(d, r)), np.full(d, 0.5)
    truth = rng.normal(size=(n, r)) @ X.T + rng.normal(scale=np.sqrt(0.5), size=(n, d))
    hidden = rng.random((n, d)) < 0.8
    predictor = RowSpace(np.zeros(d), X, noise).predictor
    panel = Panel.from_dense(np.where(hidden, np.nan, truth))
    filled, deviation = predictor.impute_with_deviations(panel)
    np.testing.assert_array_equal(filled, predictor.impute(panel))
    covered = np.mean(np.abs(filled - truth)[hidden] < 1.6449 * deviation[hidden])
    assert covered == pytest.approx(0.9, abs=0.01)


def test_leave_one_out_sums_are_by_row_and_of_rows_asked_for(predictor):
    panel = random_panel(1, n=50)
    sums = predictor.leave_one_out(panel, np.where(np.arange(50) < 20, 1.0, 0.0))
    assert sums.shape == (20, 5)
    np.testing.assert_allclose(predictor.leave_one_out(panel.take_rows([3]), np.ones(1))[0], sums[3])


def test_intervals_are_as_wide_as_the_row_is_erratic():
    rng = np.random.default_rng(1)
    n, d, r = 1500, 30, 3
    X, erratic = rng.normal(size=(d, r)), np.arange(n) % 3 == 0
    noise = np.where(erratic, 1.4, 0.6)[:, None] * rng.normal(size=(n, d))
    truth = rng.normal(size=(n, r)) @ X.T + noise
    hidden = rng.random((n, d)) < 0.4
    panel = Panel.from_dense(np.where(hidden, np.nan, truth))
    alike = RowSpace(np.zeros(d), X, np.full(d, np.mean(noise**2)))
    apart = replace(alike, row_noise=learn_row_noise(alike, panel))
    assert apart.row_noise.shrinkage < 20
    covered = {}
    for space in (alike, apart):
        filled, deviation = space.predictor.impute_with_deviations(panel)
        inside = np.abs(filled - truth) < 1.6449 * deviation
        covered[space] = [np.mean(inside[rows][hidden[rows]]) for rows in (erratic, ~erratic)]
    assert covered[alike][0] < 0.8
    assert covered[alike][1] > 0.97
    np.testing.assert_allclose(covered[apart], 0.9, atol=0.05)
    np.testing.assert_array_equal(apart.predictor.impute(panel), alike.predictor.impute(panel))


@pytest.mark.parametrize(("rank", "per_row"), [(1, 2), (1, 3), (5, 5), (5, 10), (2, 20)])
def test_rows_that_are_alike_are_found_alike(rank, per_row):
    """Residuals of a row correlate, most in short rows: that must not pass for rows of different noise."""
    rng = np.random.default_rng(2)
    n, d = 10_000, 30
    X = 2 * np.ones((d, 1)) if rank == 1 else rng.normal(size=(d, rank))
    M = rng.normal(size=(n, rank)) @ X.T + rng.normal(size=(n, d))
    kept = np.argsort(rng.random((n, d)), axis=1) < per_row
    space = RowSpace(np.zeros(d), X, np.ones(d))
    found = learn_row_noise(space, Panel.from_dense(np.where(kept, M, np.nan)))
    assert found.shrinkage > 100
    assert found.level == pytest.approx(1.0, abs=0.02)


def test_too_narrow_intervals_are_widened_and_wide_ones_stay():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    M = rng.normal(size=(3000, 2)) @ X.T + rng.normal(size=(3000, 30))
    hidden = rng.random(M.shape) < 0.6
    panel = Panel.from_dense(np.where(hidden, np.nan, M))
    for stated, low, high in ((0.5, 0.87, 0.93), (1.0, 0.89, 0.91), (1e3, 1.0, 1.0)):
        space = RowSpace(np.zeros(30), X, np.full(30, stated))
        space = replace(space, row_noise=learn_row_noise(space, panel))
        filled, deviation = space.predictor.impute_with_deviations(panel)
        assert low <= np.mean((np.abs(filled - M) < 1.6449 * deviation)[hidden]) <= high
    assert np.all(deviation[hidden] < 40)  # the last: as stated, √1000, and no more


def test_algorithm_2_is_least_squares_of_least_norm():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(12, 4)))[0]
    panel = random_panel(4, low=0)
    predictor = LeastSquares(basis)
    dense, filled = panel.to_dense(), predictor.impute(panel)
    for u in range(panel.n_rows):
        seen = ~np.isnan(dense[u])
        q = np.linalg.lstsq(basis[seen], dense[u][seen], rcond=None)[0] if seen.any() else np.zeros(4)
        np.testing.assert_allclose(filled[u][~seen], (basis @ q)[~seen], rtol=1e-8, atol=1e-9)
        np.testing.assert_array_equal(filled[u][seen], dense[u][seen])
    rows, columns = np.nonzero(np.isnan(dense))
    np.testing.assert_allclose(predictor.impute_at(panel, rows, columns), filled[rows, columns], rtol=1e-12)


def test_an_exact_row_is_recovered_from_as_many_entries_as_the_rank():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(20, 3)))[0]
    truth = rng.normal(size=(50, 3)) @ basis.T
    shown = np.argsort(rng.random(truth.shape), axis=1) < 4
    filled = LeastSquares(basis).impute(Panel.from_dense(np.where(shown, truth, np.nan)))
    np.testing.assert_allclose(filled, truth, atol=1e-8)


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([0, 1], [0], r"two lists of one length; found \(2,\), \(1,\)"),
        ([60], [0], "row position 60 is outside 0 to 59"),
        ([0], [-1], "column position -1 is outside 0 to 11"),
        ([0.5], [0], "rows must be positions, whole numbers; found float64"),
        ([[0]], [[0]], "two lists of one length"),
    ],
)
def test_bad_positions(rows, columns, message):
    with pytest.raises(InputError, match=message):
        check_positions(random_panel(0), rows, columns)


def test_rows_are_solved_once_for_values_and_deviations(monkeypatch, space):
    """And the scores by which deviations are scaled are those of the pass that has only scores to make."""
    panel = random_panel(4, n=300, low=0)
    uneven = replace(space, row_noise=learn_row_noise(space, random_panel(5, n=300)), measured=None)
    uneven = replace(uneven, row_noise=replace(uneven.row_noise, shrinkage=7.0))
    sums, overlap = uneven.predictor.leave_one_out(panel, np.ones(300))[:, [2, 4]].T
    scales = np.sqrt(uneven.row_noise.scales(sums, panel.row_counts, overlap))
    even, expected = space.predictor.impute_with_deviations(panel)
    solved, row_posterior = [], posterior.row_posterior

    def counting(rows, columns, halves):
        solved.extend(rows.starts.tolist())
        row_posterior(rows, columns, halves)

    monkeypatch.setattr(posterior, "row_posterior", counting)
    monkeypatch.setattr(posterior, "leave_one_out", None)  # it would solve them again
    filled, deviation = uneven.predictor.impute_with_deviations(panel)
    assert sorted(solved) == panel.indptr[:-1].tolist()
    np.testing.assert_array_equal(filled, even)
    np.testing.assert_allclose(deviation, expected * scales[:, None], rtol=1e-12)
