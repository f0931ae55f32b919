"""Choosing on held-out rows: right where the truth is known, honest where there is none, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import InputError, OneSidedCompletion, Panel, synthetic
from onesided.fitting.row_space import fit_row_space
from onesided.fitting.selection import Candidates, affordable_ranks, select
from onesided.fitting.setting import Setting
from tests.conftest import random_panel


@pytest.fixture(scope="module")
def mixture():
    truth = synthetic.linear_mixture(2500, 40, 3, rng=0)
    return truth, synthetic.sample_fixed(truth, 8, rng=1)


@pytest.fixture(scope="module")
def model(mixture):
    return OneSidedCompletion(random_state=0).fit(mixture[1])


def test_the_rank_of_a_mixture_is_found(mixture, model):
    truth, _ = mixture
    assert model.rank_ == 3
    assert model.refinement_.passes > 1
    T = truth.second_moment()
    assert np.linalg.norm(model.second_moment_.to_dense() - T) < 0.02 * np.linalg.norm(T)


def test_the_path_is_kept(model):
    trials = model.selection_.trials
    assert [one.score for one in trials] == sorted((one.score for one in trials), reverse=True)
    assert [one.chosen for one in trials].count(True) == 1
    assert trials[0].standard_error == 0
    assert {one.rank for one in trials} == {0, 1, 2, 3}  # of which the last leaves nothing to explain
    assert {one.center for one in trials} == {"columns", "both"}
    assert {one.diagonal for one in trials} == {"free", "fit"}
    text = str(model.selection_)
    assert text.splitlines()[0].split() == ["rank", "center", "diagonal", "scale", "score", "±", "se", "rmse"]
    assert text.count("chosen") == 1


def test_the_same_seed_chooses_the_same(mixture, model):
    again = OneSidedCompletion(random_state=0).fit(mixture[1])
    assert again.selection_.trials == model.selection_.trials
    np.testing.assert_array_equal(again.factor_, model.factor_)


def test_what_is_given_is_not_chosen(mixture):
    model = OneSidedCompletion(center="both", diagonal="free", refine="none", random_state=0).fit(mixture[1])
    assert {(one.center, one.diagonal) for one in model.selection_.trials} == {("both", "free")}
    assert model.refinement_ is None
    fixed = OneSidedCompletion(rank=2, center="none", diagonal="free").fit(mixture[1])
    assert fixed.selection_ is None
    assert (fixed.rank_, fixed.center_, fixed.diagonal_) == (2, "none", "free")


def test_the_score_is_that_of_rows_never_fitted(mixture):
    """The split is not the test's to know, but the score must be near that of fresh rows of the same population."""
    truth, panel = mixture
    setting = Setting(rank=3, center="none", diagonal="fit")
    selection = select(panel, setting, Candidates(ranks=(3,)), rng=0)
    fresh_truth = synthetic.Truth(np.random.default_rng(9).normal(size=(2500, 3)) / np.sqrt(3), truth.column_factors)
    fresh = synthetic.sample_fixed(fresh_truth, 8, rng=5)
    found = fit_row_space(panel, setting, 0, most_passes=12)
    score = found.row_space.predictor.leave_one_out(fresh, np.ones(2500))[:, 0].sum() / fresh.n_entries
    assert selection.trials[0].score == pytest.approx(score, abs=0.15)


def test_no_signal_chooses_rank_zero():
    rng = np.random.default_rng(0)
    kept = rng.random((3000, 30)) < 0.2
    panel = Panel.from_dense(np.where(kept, rng.normal(3.0, 1.0, size=kept.shape), np.nan))
    model = OneSidedCompletion(random_state=0).fit(panel)
    assert model.rank_ == 0
    np.testing.assert_allclose(model.mean_, 3.0, atol=0.1)
    filled, deviation = model.impute(panel, return_std=True)
    assert np.isfinite(filled).all()
    assert deviation[~kept].mean() == pytest.approx(1.0, abs=0.05)


def test_row_effects_are_found():
    rng = np.random.default_rng(3)
    M = rng.normal(size=(3000, 1)) + rng.normal(size=30) + rng.normal(size=(3000, 30))
    panel = Panel.from_dense(np.where(rng.random(M.shape) < 0.2, M, np.nan))
    model = OneSidedCompletion(random_state=0).fit(panel)
    assert (model.rank_, model.center_) == (0, "both")
    assert model.row_variance_ == pytest.approx(1.0, rel=0.1)
    off = model.covariance_.block([0, 1], [2, 3])
    np.testing.assert_allclose(off, 1.0, rtol=0.1)
    assert model.transform(panel).shape == (3000, 1)
    scales = model.scales_
    np.testing.assert_allclose(scales, 1.0, atol=0.1)
    np.testing.assert_allclose(np.abs(model.components_[0]), scales / np.linalg.norm(scales), rtol=1e-6)
    one_unit = OneSidedCompletion(scale="none", random_state=0).fit(panel)
    np.testing.assert_allclose(np.abs(one_unit.components_), 1 / np.sqrt(30), rtol=1e-6)


def test_rules_take_the_lowest_rank_within_their_standard_errors(mixture):
    how = {"center": "columns", "diagonal": "free", "scale": "none", "random_state": 0}
    ranks = []
    for rule, errors in (("best", 0.0), ("one-standard-error", 1.0), ("two-standard-errors", 2.0)):
        found = OneSidedCompletion(rule=rule, **how).fit(mixture[1]).selection_
        chosen = next(trial for trial in found.trials if trial.chosen)
        assert found.trials[0].score - chosen.score <= errors * chosen.standard_error
        ranks.append(found.setting.rank)
        for trial in found.trials:
            assert trial.rank >= chosen.rank or found.trials[0].score - trial.score > errors * trial.standard_error
    assert ranks == sorted(ranks, reverse=True)


def test_a_factor_must_earn_its_place():
    """Among many panels of row effects alone, a factor scores best by chance in some, and is not taken."""
    taken = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        M = rng.normal(size=(1000, 1)) + rng.normal(size=(1000, 20))
        panel = Panel.from_dense(np.where(rng.random(M.shape) < 0.2, M, np.nan))
        found = select(panel, Setting(rank=0, center="both"), Candidates(ranks=(0, 1, 2)), rng=seed)
        chosen = next(trial for trial in found.trials if trial.chosen)
        behind = found.trials[0].score - chosen.score
        assert behind <= (2.0 if chosen.rank == 0 else 0.0) * chosen.standard_error
        taken.append(chosen.rank)
    assert taken == [0] * 8


def test_weights_count_and_rows_of_weight_zero_do_not():
    panel = random_panel(0, n=300, weighted=True)
    weights = np.where(np.arange(300) % 3 == 0, 0.0, panel.row_weights)
    values = np.where(np.repeat(weights, panel.row_counts) == 0, 1e3, panel.values)
    spoilt = Panel(panel.indptr, panel.columns, values, 12, row_weights=weights)
    weighted, without, alike = (
        [(trial.rank, trial.score) for trial in select(rows, Setting(rank=0), Candidates(ranks=(0, 1)), rng=3).trials]
        for rows in (panel.with_row_weights(weights), spoilt, panel.with_row_weights(np.sign(weights)))
    )
    np.testing.assert_allclose(without, weighted, rtol=1e-12)  # values are in units of the largest
    assert np.all(np.abs(np.subtract(sorted(alike), sorted(weighted))[:, 1]) > 1e-3)


def test_too_few_rows_are_said_to_be_too_few():
    panel = random_panel(0, n=9)
    with pytest.raises(InputError, match="fewer than 10 rows have two entries"):
        select(panel, Setting(rank=0), Candidates(ranks=(0, 1)))
    with pytest.warns(
        UserWarning, match=r"fewer than ten rows have two entries: too few to choose .* rank=0, center='columns'"
    ):
        model = OneSidedCompletion().fit(panel)
    assert model.selection_ is None
    assert model.rank_ == 0


def test_ranks_end_with_the_columns_and_with_memory():
    assert list(affordable_ranks(4, refined=False)) == [0, 1, 2, 3]
    assert max(affordable_ranks(10_000_000, refined=False)) == 32
    assert max(affordable_ranks(100_000, refined=True)) < 32
    with pytest.raises(InputError, match="no rank to choose from"):
        select(random_panel(0), Setting(rank=0), Candidates(ranks=(13,)))


def test_a_panel_too_wide_to_refine_says_so(monkeypatch):
    monkeypatch.setattr("onesided.fitting.fit.MEMORY", 1000)
    monkeypatch.setattr("onesided.fitting.selection.MEMORY", 1000)
    panel = random_panel(0, n=200)
    with pytest.warns(UserWarning, match=r'is not refined: for 12 columns .* pass refine="variational"'):
        model = OneSidedCompletion(random_state=0).fit(panel)
    assert model.refinement_ is None
    assert OneSidedCompletion(rank=1, center="none", diagonal="free", refine="variational").fit(panel).refinement_


def test_a_rank_that_is_given_is_checked():
    with pytest.raises(InputError, match="rank=50 is larger than the panel's 12 columns"):
        select(random_panel(0), Setting(rank=50), Candidates(centers=("columns", "both")))
