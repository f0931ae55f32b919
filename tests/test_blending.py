"""κ from held-out rows: finite where the model misses something that pairs show, infinite where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.fitting.blending import Blend, _best, _products, blended_means, choose_blend
from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.setting import Setting
from onesided.pairs.moments import hajek, hajek_at
from tests.conftest import random_panel


def test_products_are_those_of_the_rows():
    panel = random_panel(0, n=60, d=12, low=0, high=6, weighted=True)
    rows = np.arange(10, 40)
    found = _products(panel, rows, np.random.default_rng(0))
    expected = []
    for k, (v, w) in enumerate(zip(panel.to_dense()[rows], panel.row_weights[rows], strict=True)):
        seen = np.flatnonzero(~np.isnan(v))
        expected += [(k, i, j, v[i] * v[j], w) for b, j in enumerate(seen) for i in seen[:b]]
    np.testing.assert_allclose(np.column_stack(found), expected)


def test_of_rows_with_many_products_some_stand_for_all(monkeypatch):
    panel = random_panel(0, n=400, d=12, low=5, high=11)
    everything = _products(panel, np.arange(400), np.random.default_rng(0))
    monkeypatch.setattr("onesided.fitting.blending.PRODUCTS_OF_A_ROW", 4)
    some = _products(panel, np.arange(400), np.random.default_rng(0))
    assert len(some.values) == 400 * 4
    assert np.all(some.i < some.j)
    np.testing.assert_allclose(some.weights.sum(), everything.weights.sum())
    spread = np.std(everything.values) * np.sqrt(np.sum(some.weights**2))
    assert abs(some.weights @ some.values - everything.weights @ everything.values) < 4 * spread


@pytest.mark.parametrize("kappa", [2.0, 50.0, np.inf])
@pytest.mark.parametrize("mean_kappa", [3.0, np.inf])
@pytest.mark.parametrize("fits", [False, True])
def test_the_gain_is_a_difference_of_squared_errors(monkeypatch, kappa, mean_kappa, fits):
    """A blend is taken where the sum over held-out products is above twice its standard error over rows."""
    rng = np.random.default_rng(0)
    offset = np.where(np.arange(12) < 6, 2.0, -1.0)  # measured means that help, if they are taken
    plain = random_panel(0, n=600, weighted=True)
    panel = Panel(plain.indptr, plain.columns, plain.values + offset[plain.columns], 12, row_weights=plain.row_weights)
    products = _products(panel, np.arange(200, 600), rng)
    fitted = PairMoments.from_panel(panel.take_rows(np.arange(200)))
    T, N = (fitted.to_matrix(one).toarray() for one in (hajek(fitted), fitted.counts))
    Y, model = 0.1 * rng.normal(size=(12, 2)), np.zeros(12)
    measured = offset if fits else rng.normal(size=12) * 10
    i, j = products.i, products.j
    at = hajek_at(fitted, i, j)
    np.testing.assert_allclose(at, (T[i, j], N[i, j]), rtol=1e-12)
    candidates = {one: blended_means(model, measured, np.diag(N), one) for one in (np.inf, mean_kappa)}
    best, expected = 0.0, Blend()
    for one, m in candidates.items():
        L = np.outer(m, m) + Y @ Y.T
        B = L + (T - L) * N / (N + kappa)
        gain = (products.values - (Y @ Y.T)[i, j]) ** 2 - (products.values - B[i, j]) ** 2
        by_row = np.bincount(products.rows, products.weights * gain, 400)
        if by_row.sum() > max(best, 2 * np.sqrt(400 * by_row.var())):
            best, expected = by_row.sum(), Blend(kappa, one)
    monkeypatch.setattr("onesided.fitting.blending.KAPPAS", np.array([kappa]))
    assert _best(products, at, np.vecdot(Y[i], Y[j]), candidates) == expected
    if fits:
        assert expected.means == mean_kappa


def test_means_of_the_rows_that_have_a_column_are_found():
    """Rows choose their columns by how they like them: pairs show other means than those of all rows."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=(6000, 1))
    values = 3.0 + level + 0.5 * rng.normal(size=(6000, 15))
    liked = np.arange(15) < 7
    chosen = rng.random(values.shape) < np.where(liked, 0.5 / (1 + np.exp(-2 * level)), 0.3)
    panel = Panel.from_dense(np.where(chosen, values, np.nan))
    fitted, fresh = panel.take_rows(np.arange(5000)), PairMoments.from_panel(panel.take_rows(np.arange(5000, 6000)))
    auto, alone = (
        OneSidedCompletion(rank=0, center="both", diagonal="free", blend=blend, random_state=0).fit(fitted)
        for blend in ("auto", None)
    )
    assert auto.mean_blend_ < np.inf
    assert alone.mean_blend_ == np.inf
    np.testing.assert_array_equal(auto.mean_, alone.mean_)
    i, j = fresh.pairs()
    errors = [np.linalg.norm(model.second_moment_.low_rank.at(i, j) - hajek(fresh)) for model in (auto, alone)]
    assert errors[0] < 0.8 * errors[1]
    around = auto.covariance_.low_rank.to_dense()
    np.testing.assert_allclose(around, alone.covariance_.low_rank.to_dense(), rtol=1e-12)


def test_on_rows_that_choose_at_random_the_means_are_the_models():
    truth = synthetic.noisy_mixture(4000, 30, 3, sigma=0.3, rng=0)
    panel = synthetic.sample_fixed(truth, 6, rng=1)
    assert (
        OneSidedCompletion(rank=3, center="columns", diagonal="free", random_state=0).fit(panel).mean_blend_ == np.inf
    )


def test_a_model_that_misses_much_is_helped_and_a_good_one_is_not():
    truth = synthetic.linear_mixture(4000, 20, 5, rng=0)
    panel = synthetic.sample_fixed(truth, 8, rng=1)
    T = truth.second_moment()
    poor = OneSidedCompletion(rank=1, center="none", diagonal="free", random_state=0).fit(panel)
    alone = OneSidedCompletion(rank=1, center="none", diagonal="free", blend=None, random_state=0).fit(panel)
    assert poor.blend_ < np.inf
    assert alone.blend_ == np.inf
    errors = [np.linalg.norm(model.second_moment_.to_dense() - T) for model in (poor, alone)]
    assert errors[0] < 0.5 * errors[1]
    good = OneSidedCompletion(rank=5, center="none", diagonal="free", random_state=0).fit(panel)
    assert good.blend_ == np.inf
    assert np.linalg.norm(good.second_moment_.to_dense() - T) < 0.5 * errors[0]


def test_it_is_deterministic_and_can_be_given():
    panel = random_panel(0, n=400)
    first, second = (choose_blend(panel, lambda rows: moment_solution(rows, Setting(1)).row_space, 3) for _ in range(2))
    assert first == second
    assert OneSidedCompletion(rank=1, center="columns", diagonal="free", blend=7.0).fit(panel).blend_ == 7.0


def test_a_panel_with_too_many_products_is_not_blended(monkeypatch):
    monkeypatch.setattr("onesided.fitting.blending.MOST_PRODUCTS", 10)
    assert choose_blend(random_panel(0), lambda rows: pytest.fail("not fitted"), 0) == Blend()


def test_without_a_pair_left_to_fit_there_is_no_blend():
    panel = Panel.from_dense([[1.0, np.nan], [np.nan, 3.0]] * 20)
    assert choose_blend(panel, lambda rows: pytest.fail("not fitted"), 0) == Blend()
