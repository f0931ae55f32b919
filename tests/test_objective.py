"""The mathematics: two ways to one loss, gradients and curvature against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onesided import InputError, PairMoments, Panel, synthetic
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.objective.penalties import incoherence
from onesided.fitting.objective.rows import RowObjective, mean_squared_pair_error
from onesided.pairs.moments import hajek
from tests.conftest import random_panel
from tests.test_kernels import SCALES, scales_of


def in_units(panel, scales):
    """The same panel, each column measured in a unit of its own."""
    values = panel.values * scales[panel.columns]
    return Panel(panel.indptr, panel.columns, values, panel.n_columns, row_weights=panel.row_weights)


def differences(function, X, step=1e-5):
    """The gradient of a scalar function, by central differences."""
    gradient = np.empty_like(X)
    for index in np.ndindex(*X.shape):
        move = np.zeros_like(X)
        move[index] = step
        gradient[index] = (function(X + move) - function(X - move)) / (2 * step)
    return gradient


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rank=st.integers(1, 8),
    diagonal=st.sampled_from(["fit", "free"]),
    units=st.sampled_from([None, *SCALES]),
    row_effect=st.booleans(),
)
def test_the_row_pass_is_the_count_weighted_loss_over_pairs(seed, rank, diagonal, units, row_effect):
    panel = random_panel(seed, weighted=seed % 2 == 0, low=0)
    scales = None if units is None else scales_of(panel.n_columns, units)
    panel = panel if scales is None else in_units(panel, scales)
    objective = RowObjective(panel, diagonal=diagonal, scales=scales, row_effect=row_effect)
    moments = PairMoments.from_panel(panel)
    i, j = moments.pairs()
    scales = objective.unit * (np.ones(panel.n_columns) if scales is None else scales)
    estimate = hajek(moments) / (scales[i] * scales[j]) - objective.row_variance
    used = np.ones(len(i), bool) if diagonal == "fit" else i != j
    weight = np.where(i == j, 0.5, 1.0)[used] * moments.counts[used]  # both triangles

    def explicit(X):
        return np.sum(weight * (np.sum(X[i] * X[j], axis=1) - estimate)[used] ** 2)

    constant = np.sum(weight * estimate[used] ** 2)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        X = rng.normal(size=(panel.n_columns, rank))
        value = explicit(X)
        assert objective.value_and_gradient(X)[0] + constant == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("diagonal", ["fit", "free"])
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_gradient_and_curvature_of_the_row_objective(diagonal, rank):
    panel = random_panel(2, weighted=True)
    scales = scales_of(panel.n_columns, "near one")
    objective = RowObjective(panel, diagonal=diagonal, ridge=0.7, scales=scales, row_effect=rank == 3)
    X = np.random.default_rng(0).normal(size=(panel.n_columns, rank))
    gradient = objective.value_and_gradient(X)[1]
    expected = differences(lambda X: objective.value_and_gradient(X)[0], X)
    assert np.max(np.abs(gradient - expected)) <= 1e-6 * np.max(np.abs(gradient))

    blocks = objective.curvature(X)
    for j in range(panel.n_columns):
        for a in range(rank):
            move = np.zeros_like(X)
            move[j, a] = 1e-5
            change = objective.value_and_gradient(X + move)[1] - objective.value_and_gradient(X - move)[1]
            np.testing.assert_allclose(blocks[j, a], change[j] / 2e-5, atol=1e-6 * np.max(np.abs(blocks)))


def test_gradient_of_the_papers_loss():
    objective = PairObjective(PairMoments.from_panel(random_panel(4)), penalty=0.3, alpha=0.5)
    X = np.random.default_rng(1).normal(size=(12, 3))
    gradient = objective.value_and_gradient(X)[1]
    expected = differences(lambda X: objective.value_and_gradient(X)[0], X)
    assert np.max(np.abs(gradient - expected)) <= 1e-6 * np.max(np.abs(gradient))


def test_the_papers_loss_is_its_formula():
    panel = random_panel(6, n=25)
    moments = PairMoments.from_panel(panel)
    objective = PairObjective(moments, penalty=0.2, alpha=0.4)
    T = moments.to_matrix(hajek(moments)).toarray()
    omega = moments.to_matrix(np.ones(moments.n_pairs)).toarray() > 0
    d = panel.n_columns
    q = (omega.sum() - np.trace(omega)) / (d * (d - 1))
    weight = np.where(np.eye(d, dtype=bool), q, 1.0) * omega
    X = np.random.default_rng(1).normal(size=(d, 2))
    E = X @ X.T - T
    norms = np.linalg.norm(X, axis=1)
    expected = 0.5 * np.sum(weight * E**2) / omega.sum() + 0.2 / d * np.sum(np.maximum(norms - 0.4, 0) ** 4)
    value, gradient = objective.value_and_gradient(X)
    assert objective.diagonal_weight == pytest.approx(q)
    assert value == pytest.approx(expected, rel=1e-12)
    slope = 0.2 / d * (4 * np.maximum(norms - 0.4, 0) ** 3 / norms)[:, None] * X
    np.testing.assert_allclose(gradient, 2 / omega.sum() * (weight * E) @ X + slope, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_the_penalty():
    X = np.random.default_rng(0).normal(size=(7, 3))
    expected = differences(lambda X: incoherence(X, 0.8)[0], X)
    np.testing.assert_allclose(incoherence(X, 0.8)[1], expected, atol=1e-6)


def test_incoherence_at_zero():
    value, gradient = incoherence(np.zeros((2, 3)), 0.0)
    assert value == 0
    assert np.all(gradient == 0)


@pytest.mark.parametrize("units", [None, *SCALES])
def test_mean_squared_pair_error_is_what_it_says(units):
    panel = random_panel(8, weighted=True)
    X = np.random.default_rng(0).normal(size=(panel.n_columns, 2))
    total = weight = 0.0
    for u in range(panel.n_rows):
        row = slice(panel.indptr[u], panel.indptr[u + 1])
        v, B = panel.values[row], X[panel.columns[row]]
        E = (B @ B.T - np.outer(v, v)) ** 2
        total += panel.row_weights[u] * (E.sum() - np.trace(E))
        weight += panel.row_weights[u] * len(v) * (len(v) - 1)
    scales = None if units is None else scales_of(panel.n_columns, units)
    given = (panel, X) if scales is None else (in_units(panel, scales), X * scales[:, None])
    assert mean_squared_pair_error(*given, scales) == pytest.approx(total / weight, rel=1e-10)
    with pytest.raises(InputError, match="no pair to compare with"):
        mean_squared_pair_error(Panel.from_dense([[1.0, np.nan]]), X[:2])


@pytest.mark.parametrize("unit", [1e-100, 1e-40, 1e-12, 1e6])
def test_mean_squared_pair_error_in_any_unit(unit):
    X = np.random.default_rng(0).normal(size=(3, 2))
    values = unit * np.array([1.0, 2.0, 3.0])
    expected = np.mean([(X[i] @ X[j] - values[i] * values[j]) ** 2 for i in range(3) for j in range(3) if i != j])
    for dtype in (np.float32, np.float64):
        if unit > 1e-40 or dtype == np.float64:
            error = mean_squared_pair_error(Panel.from_dense(values[None].astype(dtype)), X)
            assert error == pytest.approx(expected, rel=1e-6)


def test_mean_squared_pair_error_beside_an_outlier():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(200, 8)).astype(np.float32)
    M[0, 0] = 1e6
    E = [np.outer(v, v)[~np.eye(8, dtype=bool)] ** 2 for v in M.astype(np.float64)]
    error = mean_squared_pair_error(Panel.from_dense(M), np.zeros((8, 1)))
    assert error == pytest.approx(np.mean(E), rel=1e-3)


def test_the_ridge_is_in_units_of_the_sampling_noise_of_products():
    panel = random_panel(5, weighted=True)
    objective = RowObjective(panel, ridge=1.0, scales=scales_of(panel.n_columns, "near one"))
    products, weights = [], []
    shared = np.zeros(panel.n_columns)  # Σ w² over the pairs of each column
    for u in range(panel.n_rows):
        row = slice(panel.indptr[u], panel.indptr[u + 1])
        v, w = panel.values[row] / objective.scale[panel.columns[row]], panel.row_weights[u]
        for a in range(len(v)):
            for b in range(len(v)):
                if a != b:
                    products.append(v[a] * v[b])
                    weights.append(w)
                    shared[panel.columns[row][a]] += w**2
    mean = np.average(products, weights=weights)
    variance = np.average((np.array(products) - mean) ** 2, weights=weights)
    assert objective.ridge == pytest.approx(np.sqrt(variance * np.sum(shared**2) / np.sum(shared)), rel=1e-9)


@pytest.mark.parametrize("factor", [1e-60, 1e-9, 1.0, 1e9, 1e60])
def test_the_loss_does_not_depend_on_the_unit(factor):
    panel = random_panel(9)
    scaled = Panel(panel.indptr, panel.columns, panel.values * factor, panel.n_columns)
    one, other = RowObjective(panel, ridge=1.0), RowObjective(scaled, ridge=1.0)
    X = np.random.default_rng(0).normal(size=(panel.n_columns, 3))
    assert other.scale == pytest.approx(one.scale * factor)
    assert other.value_and_gradient(X)[0] == pytest.approx(one.value_and_gradient(X)[0], rel=1e-9)


def test_the_loss_does_not_depend_on_the_units_of_columns():
    panel, near = random_panel(9), scales_of(12, "near one")
    far = scales_of(12, "powers of ten")
    how = {"ridge": 1.0, "row_effect": True}
    one, other = RowObjective(panel, scales=near, **how), RowObjective(in_units(panel, far), scales=near * far, **how)
    X = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(other.scale, one.scale * far, rtol=1e-12)
    assert other.row_variance == pytest.approx(one.row_variance, rel=1e-12)
    (loss, gradient), (other_loss, other_gradient) = (each.value_and_gradient(X) for each in (one, other))
    assert other_loss == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(other_gradient, gradient, atol=1e-10 * np.max(np.abs(gradient)))
    V = np.random.default_rng(1).normal(size=(12, 2))
    np.testing.assert_allclose(other.products(V), one.products(V), atol=1e-10 * np.max(np.abs(one.products(V))))


def test_single_precision_agrees_with_double():
    panel = random_panel(3, n=300, d=40, high=20)
    single = Panel(panel.indptr, panel.columns, panel.values.astype(np.float32), panel.n_columns)
    X = np.random.default_rng(0).normal(size=(40, 5))
    loss, gradient = RowObjective(panel).value_and_gradient(X)
    other, other_gradient = RowObjective(single).value_and_gradient(X)
    assert other == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(other_gradient, gradient, atol=1e-5 * np.max(np.abs(gradient)))


def test_rough_products_are_those_of_some_rows(monkeypatch):
    panel = synthetic.sample_fixed(synthetic.linear_mixture(4000, 20, 2, rng=0), 6, rng=1)
    V = np.random.default_rng(2).normal(size=(20, 3))
    scales = scales_of(20, "near one")
    objective = RowObjective(panel, row_effect=True, scales=scales)
    exact = objective.products(V)
    np.testing.assert_array_equal(objective.rough_products(V), exact)
    monkeypatch.setattr("onesided.engines.cpu.SAMPLED_ENTRIES", 6000)  # a quarter of them
    rough = RowObjective(panel, row_effect=True, scales=scales).rough_products(V)
    assert 0 < np.linalg.norm(rough - exact) < 0.15 * np.linalg.norm(exact)


def test_products_leave_the_diagonal_out():
    panel = random_panel(0, n=60)
    objective = RowObjective(panel, scales=scales_of(panel.n_columns, "near one"))
    K = objective.products(np.eye(panel.n_columns))
    np.testing.assert_allclose(np.diag(K), 0.0, atol=1e-12 * np.abs(K).max())
    values = np.nan_to_num(panel.to_dense()) / objective.scale
    expected = values.T @ values
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(K, expected, atol=1e-10)
