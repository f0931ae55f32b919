"""Experiments on the estimators on Ω, at tiny sizes, and the formulas they bring."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from onesided.errors import InputError
from onesided.experiments import experiment, figure_2, sampling, table_2
from onesided.experiments.experiment import run
from onesided.experiments.metrics import Repetitions
from onesided.experiments.panels import Panels
from onesided.experiments.thinning import thinned
from onesided.pairs.moments import PairMoments, hajek, hajek_variance
from onesided.panels.panel import Panel

TINY = {"n": 200, "d": 20, "rank": 2, "p": [0.01, 0.1, 0.3], "seeds": 1}
SETTINGS = {
    "figure-1": TINY | {"p": [0.1, 0.3], "repetitions": 5},
    "figure-2": TINY | {"p": [0.1, 0.3], "repetitions": 5},
    "figure-4": TINY | {"p": [0.1], "columns": 30, "bernoulli": [0.5], "fixed": [5], "snowball": [1.0]},
    "table-2": {},
}


@pytest.fixture
def ratings():
    """Only the smaller stand-in of ratings, whose rows differ in length."""

    class Ratings(Panels):
        names = ["ratings"]  # noqa: RUF012

    return Ratings(None)


def smaller(name, monkeypatch):
    """An experiment at tiny sizes, where nothing is as sparse as in the paper."""
    monkeypatch.setattr("onesided.experiments.figure_1.SPARSE", 0.1)
    monkeypatch.setattr("onesided.experiments.figure_4.SPARSE", 0.1)
    return replace(experiment(name), quick=SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_runs_from_cells_to_files(name, tmp_path, monkeypatch, ratings):
    one = smaller(name, monkeypatch)
    record = run(one, tmp_path, ratings, quick=True)
    assert json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")) == record
    assert (tmp_path / f"{name}.svg").exists() == (one.draw is not None)
    table = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert "nan" not in table
    assert "None" not in table
    assert record["verdict"].startswith(("Agrees", "Does not agree"))
    assert "\n" not in record["verdict"]
    assert record["expectations"]
    assert all(type(one["holds"]) is bool for one in record["expectations"])


def test_a_folder_without_panels(tmp_path, monkeypatch):
    empty = Panels(tmp_path)
    record = run(smaller("figure-4", monkeypatch), tmp_path, empty, quick=True)
    assert record["verdict"].endswith("no other panel is at hand.")
    with pytest.raises(InputError, match="table-2 needs real panels, and none was found; see `onesided data list`"):
        run(smaller("table-2", monkeypatch), tmp_path, empty, quick=True)


@pytest.mark.parametrize("sampler", sampling.SAMPLERS)
def test_variances_of_figure_1_fit_their_formulas(sampler):
    cell = TINY | {"generator": "text", "sampler": sampler, "p": 0.3, "repetitions": 300, "seed": 0}
    row = experiment("figure-1").measure(cell, Panels(None))
    assert row["hajek_variance"] == pytest.approx(row["hajek_exact"], rel=0.1)
    assert row["hajek_squared_error"] == pytest.approx(row["hajek_exact"], rel=0.1)
    assert row["ht_variance"] == pytest.approx(row["ht_exact"], rel=0.1)
    assert row["ht_squared_error"] == pytest.approx(row["ht_squared_error_exact"], rel=0.1)


def test_squared_error_of_horvitz_thompson_given_omega():
    """At p = 0.1 most pairs are outside Ω, and what is inside is far too large."""
    cell = TINY | {"n": 30, "generator": "text", "sampler": "bernoulli", "p": 0.1, "repetitions": 300, "seed": 0}
    row = experiment("figure-1").measure(cell, Panels(None))
    assert row["omega_share"] < 0.35
    assert row["ht_squared_error"] == pytest.approx(row["ht_squared_error_exact"], rel=0.15)
    assert row["ht_squared_error"] > 1.5 * row["ht_variance"]


def test_repetitions_are_what_numpy_says():
    rng, T = np.random.default_rng(0), np.array([[3.0, 1.0], [1.0, 2.0]])
    repetitions, found = Repetitions(T), []
    for _ in range(30):
        panel = Panel.from_dense(np.where(rng.random((2, 2)) < 0.6, rng.normal(size=(2, 2)), np.nan))
        moments = PairMoments.from_panel(panel)
        repetitions.add(moments, hajek(moments))
        matrix = np.full((2, 2), np.nan)
        matrix[moments.pairs()] = hajek(moments)
        found.append(matrix[np.triu_indices(2)])
    found = np.array(found)
    assert np.isnan(found).any()
    np.testing.assert_allclose(repetitions.variance(), np.nanvar(found, axis=0, ddof=1))
    np.testing.assert_allclose(repetitions.variance_with_zeros(), np.var(np.nan_to_num(found), axis=0, ddof=1))
    twice, squares = np.array([1.0, 2.0, 1.0]), (found - T[np.triu_indices(2)]) ** 2
    share = ~np.isnan(found) @ twice / 4
    assert repetitions.omega_share() == pytest.approx(share.mean())
    assert repetitions.squared_error() == pytest.approx((np.nan_to_num(squares) @ twice).sum() / (4 * share.sum()))


def test_expansion_is_exact_where_counts_are_as_expected():
    panel = Panel.from_dense([[1.0, np.nan], [np.nan, 2.0], [3.0, np.nan], [np.nan, np.nan]])
    moments = PairMoments.from_panel(panel)  # the first column has n·p = 2 entries, the second only one
    i, approximate = figure_2.expansion(moments, np.array([[4.0, 0.0], [0.0, 3.0]]), 0.5)
    assert i.tolist() == [0, 1]
    np.testing.assert_allclose(approximate, [5.0, 3.0 + (4.0 - 3.0) * 1 / 2])


@pytest.mark.parametrize(("sampler", "amount"), [("bernoulli", 0.6), ("fixed", 2), ("snowball", 0.9)])
def test_chances_of_thinning_and_unbiasedness(sampler, amount):
    rng = np.random.default_rng(1)
    whole = Panel.from_dense(np.where(rng.random((12, 5)) < 0.7, rng.normal(1.0, 1.0, (12, 5)), np.nan))
    all_moments, repetitions = PairMoments.from_panel(whole), 300
    kept, estimates = np.zeros(12), np.zeros((repetitions, 5, 5))
    for seed in range(repetitions):
        left = thinned(whole, sampler, amount, seed)
        assert np.isin(left.panel.values, whole.values).all()
        kept += left.panel.row_counts
        moments = PairMoments.from_panel(left.panel)
        at = moments.pairs()
        counts = all_moments.to_matrix(all_moments.counts).toarray()[at]
        estimates[seed][at] = left.horvitz_thompson(moments, counts)
    np.testing.assert_allclose(kept / repetitions, left.entry * whole.row_counts, atol=0.3)
    i, j = all_moments.pairs()
    error = estimates[:, i, j].std(axis=0) / np.sqrt(repetitions)
    assert np.all(np.abs(estimates[:, i, j].mean(axis=0) - hajek(all_moments)) <= 5 * error + 1e-12)


def test_thinning_keeps_what_short_rows_have():
    whole = Panel.from_dense([[1.0, 2.0, 3.0], [4.0, np.nan, np.nan], [np.nan, np.nan, np.nan]])
    left = thinned(whole, "fixed", 2, 0)
    assert left.panel.row_counts.tolist() == [2, 1, 0]
    assert left.entry.tolist() == pytest.approx([2 / 3, 1.0, 1.0])
    assert left.pair.tolist() == pytest.approx([1 / 3, 1.0, 1.0])


def test_figure_4_makes_no_error_of_a_panel_that_is_kept_whole(ratings):
    cell = {"panel": "ratings", "columns": 30, "seed": 0, "sampler": "bernoulli", "amount": 1.0}
    rows = experiment("figure-4").measure(cell, ratings)
    errors = {row["estimator"]: row["relative_error"] for row in rows}
    assert errors["hajek"] == 0.0
    assert errors["known"] == pytest.approx(0.0, abs=1e-12)
    assert errors["density"] > 0.1
    assert errors["means"] > 0.01


def test_figure_4_keeps_the_columns_seen_most():
    from onesided.experiments.figure_4 import _most_seen

    panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, np.nan, 5.0], [7.0, np.nan, 6.0]])
    assert _most_seen(panel, 2).column_ids.tolist() == [0, 2]
    assert _most_seen(panel, 3) is panel


def test_table_2_compares_what_the_paper_prints():
    printed = [row | table_2.measure(row, Panels(None)) for row in table_2.cells({}, Panels(None))[:5]]
    at_hand = printed[2] | {"source": "measured", "columns": 26_744, "rows": 138_493}
    other = printed[3] | {"source": "measured", "columns": 59_047}
    same, off = table_2.expect([*printed, at_hand, other])[1:]
    assert same.holds
    assert "movielens-20m" in same.claim
    assert not off.holds
    assert "59,047, printed 62,000" in off.found
    assert table_2.verdict([*printed, at_hand, other]).startswith("Agrees in part: of the five printed panels 2 are")


def test_exact_variance_is_that_of_the_generators():
    truth = sampling.generated("code", 60, 8, 2, 0)
    T, F = sampling.second_and_fourth(truth)
    M = truth.to_dense()
    products = M[:, 0] * M[:, 1]
    assert (F - T**2)[0, 1] == pytest.approx(products.var())
    assert hajek_variance(T, F, 60, 1.0)[0, 1] == pytest.approx(0.0)
