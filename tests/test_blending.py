"""κ from held-out rows: finite where the model misses something that pairs show, infinite where it does not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from onesided import OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.fitting.blending import KAPPAS, MEAN_KAPPAS, Blend, choose_blend
from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.refinement import refine
from onesided.fitting.setting import Setting
from onesided.pairs.moments import hajek
from tests.conftest import random_panel


class Gain(NamedTuple):
    total: float
    standard_error: float


def gains(panel, held_out, model):
    """Of every κ and κ' over the model alone, on all products of two entries of a held-out row, by the definition."""
    dense, weights = panel.to_dense(), panel.row_weights
    V, w = np.nan_to_num(dense[~held_out]), weights[~held_out]
    seen = ~np.isnan(dense[~held_out])
    N = (seen.T * w) @ seen
    T, means = ((V.T * w) @ V / np.maximum(N, 1e-9), w @ V / np.maximum(np.diag(N), 1e-9))
    products = [
        (u, i, j, dense[u, i] * dense[u, j], weights[u])
        for u in np.flatnonzero(held_out & (weights > 0))
        for b, j in enumerate(np.flatnonzero(~np.isnan(dense[u])))
        for i in np.flatnonzero(~np.isnan(dense[u]))[:b]
    ]
    rows, i, j, values, row_weights = map(np.array, zip(*products, strict=True))

    def squares(matrix):
        return np.bincount(rows, row_weights * (values - matrix[i, j]) ** 2, panel.n_rows)[held_out]

    common = model.loadings @ model.loadings.T
    alone = squares(np.outer(model.mean, model.mean) + common)
    found = {}
    for mean_kappa in MEAN_KAPPAS if model.mean.any() else [np.inf]:
        m = model.mean + (means - model.mean) * np.diag(N) / (np.diag(N) + mean_kappa)
        L = np.outer(m, m) + common
        for kappa in KAPPAS:
            by_row = alone - squares(L + (T - L) * N / (N + kappa))
            found[Blend(kappa, mean_kappa)] = Gain(by_row.sum(), np.sqrt(len(by_row)) * by_row.std())
    return found


def chosen(panel, rank, center):
    """What is chosen, and the gains of all there is to choose from. Rows held out have weight zero in the fit."""
    seen = []

    def fit(rows):
        model = refine(rows, moment_solution(rows, Setting(rank, center=center)), center=center).row_space
        seen.append((rows.row_weights == 0, model))
        return model

    blend = choose_blend(panel, fit, 0)
    ((held_out, model),) = seen
    assert np.count_nonzero(held_out) == pytest.approx(panel.n_rows / 5, abs=1)
    return blend, gains(panel, held_out, model)


def misses_factors():
    return synthetic.sample_fixed(synthetic.linear_mixture(800, 12, 5, rng=0), 8, rng=1), 1, "none"


def rows_choose_columns():
    """Rows have columns that they like."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=(800, 1))
    kept = rng.random((800, 12)) < np.where(np.arange(12) < 6, 0.6 / (1 + np.exp(-2 * level)), 0.3)
    return Panel.from_dense(np.where(kept, 3.0 + level + 0.5 * rng.normal(size=(800, 12)), np.nan)), 0, "both"


def weighted():
    """Few rows have most of the weight."""
    panel, rank, center = rows_choose_columns()
    return panel.with_row_weights(np.random.default_rng(1).lognormal(0.0, 2.0, size=800)), rank, center


def misses_nothing():
    return synthetic.sample_fixed(synthetic.noisy_mixture(800, 12, 2, sigma=0.3, rng=0), 6, rng=1), 2, "columns"


@pytest.mark.parametrize(
    ("case", "finite"),
    [
        (misses_factors, [True, False]),
        (rows_choose_columns, [True, True]),
        (weighted, [True, False]),
        (misses_nothing, [False, False]),
    ],
)
def test_the_largest_gain_above_two_standard_errors_is_taken(case, finite):
    blend, found = chosen(*case())
    clear = {one: gain.total for one, gain in found.items() if gain.total > 2 * gain.standard_error}
    assert blend == (max(clear, key=clear.get) if clear else Blend())
    assert list(np.isfinite([blend.pairs, blend.means])) == finite


@pytest.mark.parametrize("most", [4, 256])
def test_of_rows_with_many_products_some_stand_for_all(monkeypatch, most):
    """Long rows have most products, all positive, which short rows outnumber: drawn ones must weigh as all of a row."""
    monkeypatch.setattr("onesided.fitting.blending.PRODUCTS_OF_A_ROW", most)
    rng = np.random.default_rng(0)
    dense = np.full((3200, 12), np.nan)
    dense[:200] = 1.0
    for row in dense[200:]:
        row[rng.choice(12, 2, replace=False)] = (1.0, -1.0)
    blend = choose_blend(
        Panel.from_dense(dense), lambda rows: moment_solution(rows, Setting(0, center="none")).row_space, 0
    )
    assert blend.pairs < np.inf


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
