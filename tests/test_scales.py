"""Scales of columns, and what a fit makes of panels in mixed units."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from onesided import OneSidedCompletion, Panel
from onesided.fitting import selection
from onesided.fitting.scales import Scaling, column_scales, common_scales
from onesided.fitting.selection import Candidates, select
from onesided.fitting.setting import Setting


def factors(seed, n=1500, d=30, share=0.25, rank=2):
    """Values of one unit with two factors, and which are seen."""
    rng = np.random.default_rng(seed)
    values = (
        rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) * 0.8 + rng.normal(size=(n, d)) + rng.normal(size=d)
    )
    return values, rng.random((n, d)) < share


def panel_of(values, seen):
    return Panel.from_dense(np.where(seen, values, np.nan))


def test_scales_follow_units_and_are_relative():
    values, seen = factors(0)
    units = 10.0 ** np.random.default_rng(1).integers(-6, 7, 30)
    plain, multiplied = (column_scales(panel_of(values * one, seen)) for one in (np.ones(30), units))
    ratio = multiplied / units / plain
    np.testing.assert_allclose(ratio / ratio.mean(), 1.0, atol=0.01)
    np.testing.assert_allclose(plain / plain.mean(), values.std(axis=0) / values.std(axis=0).mean(), rtol=0.15)
    for scales in (plain, multiplied):
        assert seen.sum(axis=0) @ np.log(scales) == pytest.approx(0.0, abs=1e-6 * seen.sum())


def test_constants_that_are_added_do_not_matter():
    values, seen = factors(2)
    moved = values + np.where(np.arange(30) % 2, 1e6, 0.0)
    np.testing.assert_allclose(column_scales(panel_of(moved, seen)), column_scales(panel_of(values, seen)), rtol=1e-5)


def test_a_scale_does_not_follow_an_outlier():
    values, seen = factors(3, d=300, n=400, share=0.05)  # twenty entries a column
    row = np.flatnonzero(seen[:, 7])[0]
    wild = values.copy()
    wild[row, 7] += 40.0
    before, after = (column_scales(panel_of(one, seen))[7] for one in (values, wild))
    assert np.nanstd(np.where(seen, wild, np.nan)[:, 7]) > 5 * np.nanstd(np.where(seen, values, np.nan)[:, 7])
    assert after < 2 * before


def test_rare_columns_take_the_scale_of_the_others_as_far_as_units_are_alike():
    values, seen = factors(4, d=60)
    seen[:, 50:] = False
    seen[np.arange(10), 50 + np.arange(10)] = True  # once
    alike = column_scales(panel_of(values, seen))
    assert np.ptp(alike[50:]) < 1e-9
    assert 0.8 < alike[50] / np.median(alike[:50]) < 2.0
    units = 10.0 ** np.random.default_rng(5).integers(-3, 4, 60)
    apart = column_scales(panel_of(values * units, seen))
    assert apart[50] > np.quantile(apart[:50], 0.7)  # wide: its own unit is not known


@pytest.mark.parametrize("value", [0.0, 1e-9, 3.0, -2e8])
def test_constant_columns_have_a_scale(value):
    values, seen = factors(6)
    values[:, 4] = value
    values[:, 5] = np.where(np.arange(len(values)) == np.flatnonzero(seen[:, 5])[0], value + 1.0, value)
    panel = panel_of(values, seen)
    scales = column_scales(panel)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    model = OneSidedCompletion(rank=1, center="columns", diagonal="free", random_state=0).fit(panel)
    filled, deviation = model.impute(panel, return_std=True)
    assert np.isfinite(filled).all()
    assert (model.noise_variance_ > 0).all()
    np.testing.assert_allclose(filled[:, 4], value, atol=0.1 * max(scales[4], abs(value)))
    assert (deviation[~seen] > 0).all()


def test_a_column_that_never_varied_is_measured_by_how_often_it_did_not():
    values = np.where(np.arange(40) < 38, 1.0, 0.0) * np.random.default_rng(7).normal(size=(400, 40)) * np.arange(1, 41)
    values[40:, 38] = np.nan
    scales = column_scales(Panel.from_dense(values))
    assert scales[39] < scales[38] < np.median(scales[:38])  # zero in 400 entries, and in 40


def test_a_table_of_columns_seen_fewer_than_five_times_has_the_scale_of_what_varies():
    values = 1000 + np.random.default_rng(8).normal(size=(4, 6))
    values[1:, 0] = np.nan
    scales = column_scales(Panel.from_dense(values))
    assert scales.max() < 10 * scales.min()


@pytest.mark.parametrize("share", [0.5, 0.1])  # about 150 entries in each column, and about 30
def test_units_are_common_where_deviations_are_alike(share):
    values, seen = factors(9, n=300, share=share)
    units = np.where(np.arange(30) < 10, 1e3, 1.0)
    alike, apart = (common_scales(panel_of(values * one, seen)) for one in (np.ones(30), units))
    np.testing.assert_array_equal(alike, np.ones(30))
    if share == 0.5:  # prefixes can be told
        np.testing.assert_allclose(apart / apart[-1], units)
    else:
        assert apart is None
    assert common_scales(panel_of(values * np.linspace(1, 20, 30), seen)) is None


def test_a_rare_column_that_varies_more_than_others_has_a_unit_of_its_own():
    values, seen = factors(10, n=300, share=0.5)
    seen[20:, 3] = False
    for factor, none in ((1.0, False), (100.0, True), (0.01, False)):
        found = common_scales(panel_of(values * np.where(np.arange(30) == 3, factor, 1.0), seen))
        assert (found is None) is none


def test_weights_below_one_make_scales():
    panel = Panel.from_dense(np.random.default_rng(0).normal(size=(3, 4))).with_row_weights(np.array([1.0, 0.3, 0.4]))
    assert Scaling.of(panel, "common").one_unit
    model = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(panel)
    assert np.isfinite(model.scales_).all()


def test_scores_of_ranks_can_be_compared_whatever_columns_were_measured_in():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(400, 8))
    panel = Panel.from_dense(np.where(rng.random(values.shape) < 0.6, values, np.nan))
    models = [OneSidedCompletion(rank, center="none", random_state=0).fit(panel) for rank in (1, 2)]
    assert [model.selection_.setting.scale for model in models] == ["own", "common"]
    own, common = (model.row_space_.units_of_errors for model in models)
    np.testing.assert_array_equal(own, common)
    np.testing.assert_array_equal(own, column_scales(panel))
    assert models[1].score(panel) > models[0].score(panel)


def test_few_entries_make_scales():
    for dense in ([[1.0, 2.0], [3.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]):
        scales = column_scales(Panel.from_dense(np.array(dense)))
        assert np.isfinite(scales).all()
        assert (scales > 0).all()


@pytest.mark.parametrize("refine", ["auto", "none"])
@pytest.mark.parametrize("seed", [10, 11])
def test_a_fit_does_not_depend_on_units(seed, refine):
    """Every column has at least fifty entries."""
    values, seen = factors(seed)
    rng = np.random.default_rng(seed)
    units, constants = 10.0 ** rng.integers(-6, 7, 30), np.where(rng.random(30) < 0.5, 1e6, 0.0)
    assert seen.sum(axis=0).min() >= 50
    settings = {"refine": refine, "random_state": 0}
    plain = OneSidedCompletion(**settings).fit(panel_of(values, seen))
    C, filled = plain.covariance_.to_dense(), plain.impute(panel_of(values, seen))
    for scale, added in ((units, 0.0), (1.0, constants)):
        panel = panel_of(values * scale + added, seen)
        model = OneSidedCompletion(**settings).fit(panel)
        scale = np.broadcast_to(scale, 30)
        assert model.rank_ == plain.rank_
        back = model.covariance_.to_dense() / np.outer(scale, scale)
        assert np.linalg.norm(back - C) < 0.01 * np.linalg.norm(C)
        off = ((model.impute(panel) - added) / scale - filled) / values.std(axis=0)
        assert np.sqrt(np.mean(off[~seen] ** 2)) < 0.05


def test_noise_of_unequal_columns_has_no_rank():
    for seed in range(4):
        rng = np.random.default_rng(20 + seed)
        values = np.exp(rng.normal(size=40)) * rng.normal(size=(1000, 40)) + rng.normal(size=40)
        assert OneSidedCompletion(random_state=0).fit(panel_of(values, rng.random(values.shape) < 0.15)).rank_ == 0


def test_one_unit_can_be_asked_for():
    panel = panel_of(*factors(12))
    model = OneSidedCompletion(rank=1, center="both", scale="none", random_state=0).fit(panel)
    np.testing.assert_array_equal(model.scales_, np.ones(30))
    assert not model.row_space_.in_own_units


def test_a_fit_says_that_it_has_not_settled():
    panel, given = panel_of(*factors(13)), {"rank": 2, "center": "columns", "diagonal": "free", "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"limit of 2 passes before it had settled.*raise refine_passes"):
        model = OneSidedCompletion(**given, refine_passes=2).fit(panel)
    assert not model.refinement_.settled
    settled = OneSidedCompletion(**given, refine_passes=500).fit(panel).refinement_
    assert settled.settled
    assert settled.passes > 2


def scored_by(monkeypatch, score):
    """Held-out scores that are made up: of the rank and the passes, for rows that are all alike but for a little."""

    def scored(self, setting, fold, passes=selection.SEARCH_PASSES):
        rows = self.folds[fold]
        counts = self.panel.row_counts[rows]
        log, square = score(setting.rank, passes)
        little = 1e-3 * np.cos(rows)  # the same in all settings, so that differences are certain
        without_factor = log - (setting.rank > 0)
        return counts[:, None] * (np.array([log, square, without_factor]) + little[:, None])

    monkeypatch.setattr(selection.Search, "_scored", scored)


@pytest.mark.parametrize(("given", "taken"), [(None, 0), (2, 2)])
def test_a_factor_that_predicts_worse_than_means_and_row_effects_is_not_taken_in_silence(monkeypatch, given, taken):
    scored_by(monkeypatch, lambda rank, passes: (-1.0 + 0.1 * min(rank, 2), 1.0 + 0.1 * min(rank, 2)))
    panel = panel_of(*factors(14, n=200))
    ranks = (0, 1, 2) if given is None else None
    candidates = Candidates(ranks=ranks, centers=("columns", "both"))
    with pytest.warns(UserWarning, match="rank 2 predicts held-out entries worse than means and row effects alone"):
        found = select(panel, Setting(given or 0), candidates)
    assert found.setting.rank == taken
    assert [one.rank for one in found.trials if one.chosen] == [taken]


@pytest.mark.parametrize(("longer", "passes"), [(0.9, 35), (1.1, 12)])
def test_refining_ends_where_more_passes_predict_worse(monkeypatch, longer, passes):
    scored_by(monkeypatch, lambda rank, made: (-1.0 + 0.1 * rank, (longer if made > 12 else 1.0) - 0.1 * rank))
    found = select(panel_of(*factors(15, n=200)), Setting(0), Candidates(ranks=(0, 1)))
    assert (found.setting.rank, found.setting.refine_passes) == (1, passes)


def test_no_choice_hangs_on_one_row():
    rng = np.random.default_rng(16)
    values = rng.normal(size=(600, 20))
    values[3] *= 1e5
    model = OneSidedCompletion(random_state=0).fit(panel_of(values, rng.random(values.shape) < 0.3))
    assert model.rank_ == 0
