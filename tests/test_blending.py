"""κ from held-out rows: finite where the model misses something that pairs show, infinite where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.blending import KAPPAS, _gains, choose_kappa
from onesided.moments import hajek
from onesided.row_space import complete
from tests.conftest import random_panel


def test_gains_are_differences_of_squared_errors():
    panel = random_panel(0, n=200, weighted=True)
    fitted, held_out = panel.take_rows(np.arange(150)), panel.take_rows(np.arange(150, 200))
    measured = PairMoments.from_panel(fitted)
    factor = np.random.default_rng(0).normal(size=(12, 2))
    T, N = (measured.to_matrix(one).toarray() for one in (hajek(measured), measured.counts))
    L = factor @ factor.T
    expected = np.zeros(len(KAPPAS))
    for v, w in zip(held_out.to_dense(), held_out.row_weights, strict=True):
        seen = np.flatnonzero(~np.isnan(v))
        for a, i in enumerate(seen):
            for j in seen[a + 1 :]:
                if N[i, j] > 0:
                    B = (N[i, j] * T[i, j] + KAPPAS * L[i, j]) / (N[i, j] + KAPPAS)
                    expected += w * ((v[i] * v[j] - L[i, j]) ** 2 - (v[i] * v[j] - B) ** 2)
    np.testing.assert_allclose(_gains(measured, PairMoments.from_panel(held_out), factor), expected, rtol=1e-9)


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
    assert np.linalg.norm(good.second_moment_.to_dense() - T) < 0.5 * errors[0]


def test_it_is_deterministic_and_can_be_given():
    panel = random_panel(0, n=400)
    first, second = (choose_kappa(panel, lambda rows: complete(rows, rank=1), 3) for _ in range(2))
    assert first == second
    assert OneSidedCompletion(rank=1, center="columns", diagonal="free", blend=7.0).fit(panel).blend_ == 7.0


def test_a_panel_with_too_many_products_is_not_blended(monkeypatch):
    monkeypatch.setattr("onesided.blending.MOST_PRODUCTS", 10)
    assert choose_kappa(random_panel(0), lambda rows: pytest.fail("not fitted"), 0) == np.inf


def test_without_a_pair_left_to_fit_there_is_no_blend():
    panel = Panel.from_dense([[1.0, np.nan], [np.nan, 3.0]] * 20)
    assert choose_kappa(panel, lambda rows: pytest.fail("not fitted"), 0) == np.inf
