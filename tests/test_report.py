"""The report: its numbers against others' arithmetic, odd models, escaping, the page itself, the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from copy import copy
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import HajekGD, InputError, OneSidedCompletion, Panel, Privacy, synthetic
from onesided.cli import main
from onesided.cli.report import report as report_command
from onesided.column_names import ColumnNames
from onesided.experiments.metrics import held_out_squared_error
from onesided.fitting.bootstrap import bootstrap
from onesided.fitting.scales import Scaling, common_scales
from onesided.fitting.selection import Selection, Setting, Trial, fit_row_space
from onesided.model.similarity import deviations
from onesided.pairs.moments import PairMoments
from onesided.panels.packed.format import write_packed
from onesided.report import held_out, pair_errors
from onesided.report.components import ColumnMap, Components
from onesided.report.data import DataSection, bins
from onesided.report.formatting import fixed, number, percent_with_error, share, with_error
from onesided.report.held_out import Coverage
from onesided.report.pair_chart import pair_chart
from onesided.report.provenance import ProvenanceSection
from onesided.report.quality import QualitySection, _verdict
from onesided.report.report import Report
from onesided.report.row_space import RowSpaceSection
from onesided.report.spectrum import REPLICATES, SpectrumBands, beat_rank_zero, spectrum
from onesided.report.style import DARK, LIGHT
from onesided.report.svg import VARIABLES, drawn, label_points
from onesided.report.units import panel_in_scales

NAMES = ["tea & <b>rye</b>", "$\\frac{1}{0}$", "寿司" * 20, "Ω\x00", '"quoted"', "https://example.org/?a=1&b=2"]


def fitted(panel, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts, and of choices that cannot be made
        return OneSidedCompletion(*arguments, random_state=0, **options).fit(panel)


def mixture(n=400, d=14, rank=2, per_row=6, seed=0):
    panel = synthetic.sample_fixed(synthetic.linear_mixture(n, d, rank, rng=seed), per_row, rng=seed + 1)
    rng = np.random.default_rng(seed)
    values = 3 + 2 * panel.values + rng.normal(0, 0.4, panel.n_entries)
    return Panel(panel.indptr, panel.columns, values, d)


def plain(**options):
    return fitted(mixture(), 2, center="columns", diagonal="free", **options)


@pytest.fixture(scope="module")
def panel():
    return mixture()


@pytest.fixture(scope="module")
def model():
    """Without refinement: what it predicts is a conditional mean of a normal distribution, no more."""
    return plain(refine="none", blend=None)


@pytest.fixture(scope="module")
def report(model):
    return Report.of(model)


def by_hand(model, panel, seed=0):
    """Entries of held-out rows by the textbook's formula: weight, e, s, and what the column's mean is off."""
    rng = np.random.default_rng(seed)
    used = np.flatnonzero((panel.row_weights > 0) & (panel.row_counts > 0))
    rows = np.sort(rng.permutation(used)[: len(used) // 5])
    weights = panel.row_weights.copy()
    weights[rows] = 0
    train = panel.with_row_weights(weights)
    scales = model.row_space_.scales
    scaling = Scaling() if scales is None else Scaling(scales, common_scales(panel))
    found = fit_row_space(train, model.fitted_setting(), int(rng.integers(2**31)), scaling=scaling).row_space
    covariance = found.loadings @ found.loadings.T + np.diag(found.noise_variance)
    dense, kept = panel.to_dense(), weights > 0
    seen = ~np.isnan(dense[kept])
    means = np.nansum(dense[kept] * weights[kept, None], axis=0) / (seen * weights[kept, None]).sum(axis=0)
    out = []
    for u in rows:
        columns = np.flatnonzero(~np.isnan(dense[u]))
        for j in columns:
            others = columns[columns != j]
            gain = covariance[j, others] @ np.linalg.inv(covariance[np.ix_(others, others)])
            e = dense[u, j] - found.mean[j] - gain @ (dense[u, others] - found.mean[others])
            s = np.sqrt(covariance[j, j] - gain @ covariance[others, j])
            out.append((panel.row_weights[u], e, s, dense[u, j] - means[j]))
    return np.array(out).T, rows, found


def test_scores_are_those_of_the_textbook(model, panel, report):
    (_, e, s, around), _, _ = by_hand(model, panel)
    score = report.quality.scores["model"]
    assert report.quality.entries_scored == len(e)
    assert score.rmse == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-6)
    assert score.explained == pytest.approx(1 - np.sum(e**2) / np.sum(around**2), rel=1e-6)
    assert score.log_score == pytest.approx(np.mean(-0.5 * (np.log(2 * np.pi * s**2) + (e / s) ** 2)), rel=1e-6)
    assert report.quality.scores["column means"].rmse == pytest.approx(np.sqrt(np.mean(around**2)), rel=1e-9)
    assert f"{score.rmse:.3f}"[:5] in report.html()


def test_scores_by_weight():
    weighted = mixture().with_row_weights(np.random.default_rng(3).uniform(0.5, 3.0, 400) * (np.arange(400) % 7 > 0))
    model = fitted(weighted, 2, center="columns", diagonal="free", refine="none", blend=None)
    (w, e, _, around), _, _ = by_hand(model, weighted)
    found = Report.of(model).quality
    assert found.weighted
    assert found.scores["model"].rmse == pytest.approx(np.sqrt(np.sum(w * e**2) / w.sum()), rel=1e-6)
    assert found.scores["model"].explained == pytest.approx(1 - np.sum(w * e**2) / np.sum(w * around**2), rel=1e-6)


def test_coverage_is_that_of_entries_taken_out_one_by_one(model, panel, report):
    refit = held_out.Refit.of(model, panel, np.random.default_rng(0))
    dense, off = panel.to_dense(), []
    for u in refit.held_out:
        for j in np.flatnonzero(~np.isnan(dense[u])):
            row = dense[u].copy()
            row[j] = np.nan
            value, deviation = refit.row_space.predictor.impute_at(
                Panel.from_dense(row[None]), np.array([0]), np.array([j])
            )
            off.append(abs(dense[u, j] - value[0]) / deviation[0])
    assert report.quality.entries_taken_out == len(off)
    for one, z in zip(report.quality.coverage, (0.67449, 1.28155, 1.64485, 1.95996), strict=True):
        assert one.share == pytest.approx(np.mean(np.array(off) <= z), abs=1e-9)
        assert 0 < one.error < 0.1
    assert abs(report.quality.coverage[2].share - 0.9) < 0.06  # the model is right here, and so are its intervals


def test_the_error_of_t_is_that_of_the_experiments(model, panel):
    refit = held_out.Refit.of(model, panel, np.random.default_rng(0))
    held = np.zeros(panel.n_rows)
    held[refit.held_out] = 1.0
    target = PairMoments.from_panel(panel.with_row_weights(held))
    L = refit.row_space.loadings @ refit.row_space.loadings.T + np.outer(refit.row_space.mean, refit.row_space.mean)
    expected = held_out_squared_error(target, lambda i, j: L[i, j])
    for weight in (1.0, 2.0):  # weights that are all alike change nothing
        sums = pair_errors._Sums.of(PairMoments.from_panel(panel.with_row_weights(weight * held)))
        i, j = target.pairs()
        chosen = np.flatnonzero((i != j) & sums.usable)
        value = L[i[chosen], j[chosen]]
        off, *_, norm = pair_errors._totals(sums.at(chosen), (value, value, value), np.zeros(len(chosen), dtype=int))
        assert off.sum() / norm.sum() == pytest.approx(expected, rel=1e-9)


def test_the_jackknife_takes_rows_away(model, panel):
    whole = PairMoments.from_panel(panel)
    part = PairMoments.from_panel(panel.take_rows(np.arange(40)))
    rest = PairMoments.from_panel(panel.take_rows(np.arange(40, 400)))
    less = pair_errors._Sums.of(whole).less(whole, part)
    i, j = rest.pairs()
    at = whole.find(i, j.astype(np.int64))
    for one, expected in zip(less.at(at), pair_errors._Sums.of(rest), strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-9)


def test_errors_of_t_hold_the_truth():
    n, d = 3000, 20
    rng = np.random.default_rng(5)
    whole = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(0, 0.5, (n, d)) + 1.0
    shown = Panel.from_dense(np.where(rng.random((n, d)) < 0.3, whole, np.nan))
    model = fitted(shown, 2, center="columns", diagonal="free", blend=None)
    refit = held_out.Refit.of(model, shown, np.random.default_rng(1))
    T = whole.T @ whole / n
    off = ~np.eye(d, dtype=bool)
    L = refit.row_space.loadings @ refit.row_space.loadings.T + np.outer(refit.row_space.mean, refit.row_space.mean)
    true = np.linalg.norm((L - T)[off]) / np.linalg.norm(T[off])
    (line,) = pair_errors.PairErrors.of(refit, np.random.default_rng(2)).model
    assert line.pairs == d * (d - 1) // 2
    assert (line.low or 0.0) <= 2 * true
    assert true <= line.high


def test_what_was_observed_is_counted(panel, report):
    found = report.to_dict()["observed"]
    dense = ~np.isnan(panel.to_dense())
    assert (found["rows"], found["columns"], found["entries"]) == (400, 14, int(dense.sum()))
    assert found["entries_per_row"] == {"least": 6, "median": 6.0, "most": 6}
    together = (dense.T.astype(int) @ dense.astype(int))[np.triu_indices(14, 1)]
    assert found["share_of_pairs"] == pytest.approx(np.mean(together > 0))
    assert "Every row has 6 entries." in report.html()


def test_rows_of_weight_zero_do_not_count():
    weights = np.r_[np.zeros(100), np.ones(300)]
    found = Report.of(fitted(mixture().with_row_weights(weights), 1, center="columns", diagonal="free"))
    assert (found.data.rows, found.data.entries, found.data.weightless) == (300, 1800, 100)
    assert "100 rows of weight zero left out." in found.html()


def test_a_histogram_has_every_row():
    for counts in ([1, 2, 2, 9], [1, 5000, 17, 17], list(range(2100, 2185))):
        edges, _ = bins(np.array(counts))
        assert np.histogram(counts, edges)[0].sum() == len(counts)


def test_bands_are_of_a_free_diagonal(panel):
    model = fitted(panel, 2, center="columns", diagonal="fit")
    found = SpectrumBands.of(model, panel, 2, seed=4, earned=True)
    expected = bootstrap(
        panel, rank=2, center="columns", diagonal="free", scales=model.scales_, replicates=REPLICATES, columns=[], rng=4
    )
    np.testing.assert_array_equal(found.bands.lower, expected.eigenvalues().lower)
    told = Report.of(model, seed=4).to_dict()["found"]["components"]
    assert told[0]["band"] == [expected.eigenvalues().lower[0], expected.eigenvalues().upper[0]]


def test_bands_are_left_out_with_a_reason(model, panel, monkeypatch):
    assert "not at hand" in SpectrumBands.of(model, None, 2).why_not
    assert "fewer than ten rows" in SpectrumBands.of(model, panel.take_rows(np.arange(5)), 2).why_not
    assert "and they may be noise" in SpectrumBands.of(model, panel, 2).why_not
    assert "do not predict better" in SpectrumBands.of(model, panel, 2, earned=False).why_not
    few = panel.take_rows(np.arange(30))  # 30 rows of 6 × 5 pairs, among 14 × 13
    assert "4.9 rows have a pair of columns on average" in SpectrumBands.of(model, few, 2, earned=True).why_not
    monkeypatch.setattr("onesided.report.spectrum.MOST_WORK", 100)
    assert "would take minutes" in SpectrumBands.of(model, panel, 2, earned=True).why_not
    assert SpectrumBands.of(model, panel, 0).why_not == ""
    monkeypatch.undo()
    monkeypatch.setattr("onesided.report.spectrum.bootstrap", lambda *a, **k: replace(bootstrap(*a, **k), unsettled=20))
    assert "did not settle" in SpectrumBands.of(model, panel, 2, earned=True).why_not
    monkeypatch.setattr("onesided.report.spectrum.FIRM", 0.0)
    monkeypatch.setattr("onesided.report.spectrum.bootstrap", bootstrap)
    assert "firmest direction" in SpectrumBands.of(model, panel, 2, earned=True).why_not


@pytest.mark.parametrize("center", ["columns", "both"])
@pytest.mark.parametrize("size", [(60, 30, 0.2), (300, 30, 0.2), (400, 12, 0.5)])
def test_noise_has_no_bands(size, center):
    n, d, p = size
    for seed in range(4):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(n, d)) + (rng.normal(size=(n, 1)) if center == "both" else 0)
        noise = Panel.from_dense(np.where(rng.random((n, d)) < p, values, np.nan))
        model = fitted(noise, 5, center=center, diagonal="free", refine="none", blend=None)
        found = Report.of(model).row_space.bands
        assert found.bands is None
        assert found.why_not.startswith("Bands are left out: ")


def test_what_the_choice_of_the_rank_says_of_bands():
    best, zero = Trial(2, "columns", "free", 1.0, 0.0, 1.0, True), Trial(0, "columns", "free", 0.9, 0.04, 1.0)
    setting = Setting(2)
    assert beat_rank_zero(None) is None
    assert beat_rank_zero(Selection(setting, (best,))) is None  # rank 0 was not tried
    assert beat_rank_zero(Selection(setting, (best, zero))) is True
    assert beat_rank_zero(Selection(setting, (best, replace(zero, standard_error=0.06)))) is False
    close = Selection(setting, (replace(best, chosen=False), replace(best, score=0.95, rank=1), zero))
    assert beat_rank_zero(close) is False


def test_bands_say_what_resampling_says(panel):
    model = fitted(panel, 5, center="columns", diagonal="free", refine="none", blend=None)
    components = Components.of(model.row_space_)
    found = SpectrumBands.of(model, panel, components.number, earned=True)
    assert 0 < found.number < components.number
    reading = spectrum(components, found)
    assert "turn the others" not in reading
    assert "directions of the row space stay within 0.4 radians when rows are resampled." in reading


def test_components_name_each_column_once(model):
    found = Components.of(model.row_space_)
    for k, one in enumerate(found.leading):
        assert not set(one.high) & set(one.low)
        assert (model.factor_[one.high, k] > 0).all()
        assert (model.factor_[one.low, k] < 0).all()
        assert np.all(np.diff(model.factor_[one.high, k]) <= 0)
    assert found.factor_share + found.row_share + found.noise_share == pytest.approx(1.0)


@pytest.mark.parametrize("center", ["columns", "both"])
def test_shares_are_of_the_variance_that_similarity_has(center):
    model = fitted(mixture(n=60, d=12, per_row=4), 2, center=center, diagonal="free")
    found, variance = Components.of(model.row_space_), deviations(model.row_space_) ** 2
    variance = (variance + model.row_variance_ * model.scales_**2) / (model.scales_**2 if found.scaled else 1.0)
    assert found.variance == pytest.approx(variance.sum())
    assert found.spread_share > 0
    told = found.factor_share, found.row_share, found.noise_share, found.spread_share
    assert sum(told) == pytest.approx(1.0)
    report = Report.of(model)
    assert "to what is not known of the loadings." in report.row_space.in_short
    assert report.to_dict()["found"]["share_of_unknown_loadings"] == found.spread_share


def test_one_of_a_kind_is_not_many():
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(600, 7)) @ rng.normal(size=(7, 20)) + 0.3 * rng.normal(size=(600, 20))
    model = fitted(Panel.from_dense(whole), 7, center="columns", diagonal="free", refine="none", blend=None)
    found = RowSpaceSection(model, ColumnNames(model.column_ids_, {}), Components.of(model.row_space_), SpectrumBands())
    assert "1 component of smaller eigenvalue is not shown." in found.html()
    factor = model.factor_ * np.r_[np.ones(6), 1e-3]
    model.row_space_ = replace(model.row_space_, factor=factor)
    faint = RowSpaceSection(
        model, ColumnNames(model.column_ids_, {}), Components.of(model.row_space_), SpectrumBands()
    ).html()
    assert "1 has less than 0.1% of the components' variance, and is left out here" in faint
    points = ColumnMap.of(found.components, found.names)
    assert "1 column seen less often is not drawn." in replace(points, left_out=1).html()
    assert "2 columns seen less often are not drawn." in replace(points, left_out=2).html()


def test_rare_columns_are_not_named():
    panel = mixture(n=400, d=14, per_row=6)
    dense = panel.to_dense()
    dense[3:, 5] = np.nan
    model = fitted(Panel.from_dense(dense), 1, center="columns", diagonal="free")
    found = Components.of(model.row_space_)
    assert 5 not in found.named
    assert "Left out: 1 column of 14, seen in fewer than 20 rows" in Report.of(model).html()


PLAN = {"epsilon": 5.0, "delta": 1e-3, "bounds": (1.0, 5.0), "max_entries": 4}


def private_model(mechanism="gradient", **options):
    panel = mixture(n=120, d=8, per_row=4)
    ints = Panel.from_dense(np.round(np.clip(panel.to_dense(), 1, 5)))
    return fitted(ints, 1, privacy=Privacy(**PLAN, mechanism=mechanism), **options)


def odd_models():
    panel = mixture(n=120, d=8, per_row=4)
    effects = np.random.default_rng(1).normal(size=(120, 1))
    two = np.full((80, 8), np.nan)
    two[:40, :4], two[40:, 4:] = np.random.default_rng(0).normal(size=(2, 40, 4))
    unseen = panel.to_dense()
    unseen[:, 3] = np.nan
    given = {"center": "columns", "diagonal": "free"}
    return {
        "rank 0": fitted(panel, 0, **given),
        "rank 0 with row effects": fitted(
            Panel.from_dense(panel.to_dense() + effects), 0, center="both", diagonal="free"
        ),
        "rank chosen": fitted(panel.take_rows(np.arange(60)), "auto", **given),
        "center chosen": fitted(panel, 1, diagonal="free"),
        "nothing chosen": fitted(panel, 1, **given),
        "moments alone": fitted(panel, 2, refine="none", **given),
        "no means": fitted(panel, 1, center="none", diagonal="fit"),
        "few rows": fitted(panel.take_rows(np.arange(5))),
        "few rows, given": fitted(panel.take_rows(np.arange(5)), 1, **given),
        "parts": fitted(Panel.from_dense(two), 1, **given),
        "a column never seen": fitted(Panel.from_dense(unseen), 1, **given),
        "zeros": fitted(Panel.from_dense(np.zeros((30, 4))), 1, **given),
        "constant columns": fitted(Panel.from_dense(np.tile([1.0, 2.0, 3.0], (30, 1))), 1, **given),
        "two columns": fitted(Panel.from_dense(np.random.default_rng(0).normal(size=(30, 2))), 1, **given),
        "huge values": fitted(Panel.from_dense(1e9 * panel.to_dense()), 1, **given),
        "tiny values": fitted(Panel.from_dense(1e-9 * panel.to_dense()), 1, **given),
        "weights": fitted(panel.with_row_weights(np.linspace(0, 3, 120)), 1, **given),
        "private": private_model(),
        "private, local": private_model(mechanism="local", **given),
    }


@pytest.fixture(scope="module")
def odd():
    """The report of an odd model by its name, made once."""
    models = odd_models()
    return lru_cache(lambda name: Report.of(models[name]))


ODD = [
    "rank 0", "rank 0 with row effects", "rank chosen", "center chosen", "nothing chosen", "moments alone", "no means",
    "few rows", "few rows, given", "parts", "a column never seen", "zeros", "constant columns", "two columns",
    "huge values", "tiny values", "weights", "private", "private, local",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_models_have_a_page(odd, name):
    report = odd(name)
    page = report.html()
    check_page(page)
    json.dumps(report.to_dict(), allow_nan=False)
    if "private" in name:
        assert "The account of privacy" in page
        assert ("No exact number about the rows" in page) == ("local" not in name)
        assert ("is not protected and not private" in page) == ("local" in name)
        assert "score()" not in page
        assert "impute_at()" in page
        assert report.to_dict()["quality"]["scored"] is False
        assert "rows" not in report.to_dict()["observed"]


def check_page(page):
    """No NaN, nothing from elsewhere, names that exist and are unique, pictures with words."""
    shown = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(r".{0,60}\b(None|True|False)\b", shown)
    assert not re.search(r".{0,60}\b(nan|inf)\b", shown, flags=re.IGNORECASE)
    assert "0.0% of" not in shown
    assert not re.search(r"<script|\ssrc=|@import|<link|<iframe", page)
    assert not re.search(r"https?://", page.replace("https://example.org", ""))
    assert not re.search(r"url\((?!#)", page)
    ids = Counter(re.findall(r'\sid="([^"]+)"', page))
    assert max(ids.values()) == 1, ids.most_common(3)
    for used in re.findall(r'(?:url\(#|href="#|href=\'#|aria-labelledby=")([^)"\']+)', page):
        assert used in ids, used
    for svg in re.findall(r"<svg [^>]*>", page):
        assert 'role="img"' in svg
        assert re.search(r'aria-label="[^"]{20,}"', svg)
    assert not set(re.findall(r"(?:fill|stroke): (#\w+)", page))  # all colours are the page's
    for figure in re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL):
        label = re.search(r'aria-label="([^"]+)"', figure)[1]
        caption = re.search(r"<figcaption>(.*?)</figcaption>", figure)[1]
        assert caption.endswith(".")
        assert label not in caption


def test_a_rank_that_was_given_is_not_called_chosen(odd):
    assert "was given, not chosen; nothing was left" in odd("nothing chosen").html()
    assert "was given, not chosen; the rest was chosen" in odd("center chosen").html()
    assert "fewer than ten rows have two entries" in odd("few rows").html()
    assert "chosen on held-out rows" in odd("rank chosen").html()


def test_what_has_no_components_says_so(odd):
    assert "The rank is 0: there is no spectrum" in odd("rank 0").html()
    assert "The factor is zero in every column" in odd("zeros").html()
    assert "effects of rows with" in odd("rank 0 with row effects").html()


def test_a_rank_of_zero_that_nobody_chose_has_not_been_found(odd):
    assert odd("rank 0").row_space.in_short.startswith("Rank 0 was given: columns have means of their own")
    assert odd("few rows").row_space.in_short.startswith("Rank 0 was taken, as too few rows can be held out to choose")
    for name in ("rank 0", "rank 0 with row effects", "few rows"):
        assert "No component was found" not in odd(name).html()
    assert "No component was found" in odd("zeros").html()
    noise = Panel.from_dense(np.random.default_rng(0).normal(size=(60, 5)))
    assert Report.of(fitted(noise, "auto", center="columns", diagonal="free")).row_space.in_short.startswith(
        "No component"
    )


def test_the_number_of_entries_is_not_on_a_private_page(odd):
    panel = mixture(n=120, d=8, per_row=4)
    report = odd("private, local")
    assert panel.n_entries == 480
    assert not re.search(r"\b480\b", re.sub(r"<svg .*?</svg>", "", report.html(), flags=re.DOTALL))
    assert "one for each entry" in report.html()
    assert report.to_dict()["made"]["privacy"]["releases"][0]["numbers"] is None
    assert report.provenance.model.privacy_.releases[0].numbers == 480  # the model's own account is as it was
    assert odd("private").to_dict()["made"]["privacy"]["releases"][0]["numbers"] > 0


def test_a_local_model_counts_no_column():
    rng = np.random.default_rng(0)
    dense = np.full((40, 30), np.nan)
    for row in dense:
        row[rng.choice(28, 4, replace=False)] = rng.uniform(1, 5, 4)
    plan = Privacy(epsilon=5.0, delta=1e-3, bounds=(1, 5), max_entries=4, columns=range(30), mechanism="local")
    model = fitted(Panel.from_dense(dense), 1, center="columns", diagonal="free", privacy=plan, refine="none")
    model.row_space_ = replace(model.row_space_, factor=np.ones((30, 1)))
    naming = RowSpaceSection(
        model, ColumnNames(model.column_ids_, {}), Components.of(model.row_space_), SpectrumBands()
    )._naming()
    assert "Left out: 2 columns of 30, never seen, or never beside another." in naming


def test_a_private_fit_that_may_choose(odd):
    ints = Panel.from_dense(np.round(np.clip(mixture(n=8, d=8, per_row=4).to_dense(), 1, 5)))
    local = Report.of(fitted(ints, "auto", privacy=Privacy(**PLAN, mechanism="local"))).html()
    assert "was given" not in local
    assert "Rank 0 was taken: fewer than ten rows have two entries" in local
    assert "Rank 1 was given, not chosen; nothing was left" in odd("private, local").html()
    assert "Rank 1 was given: with this mechanism a private fit cannot choose." in odd("private").html()


def test_chains_of_rows_are_not_said_to_suffice(odd):
    page = odd("nothing chosen").html()
    assert "every one could be placed" not in page
    assert "at least as many columns in common as the rank" in page


def test_parts_and_columns_without_a_place_are_told(odd):
    assert "Columns fall into 2 parts" in odd("parts").html()
    assert "1 column could not be placed" in odd("a column never seen").html()
    assert odd("a column never seen").to_dict()["observed"]["not_placed"] == [{"id": 3, "name": "3"}]


def test_without_its_panel(model, panel, tmp_path):
    model.save(tmp_path / "m.onesided", panel=False)
    loaded = OneSidedCompletion.load(tmp_path / "m.onesided")
    page = Report.of(loaded).html()
    check_page(page)
    assert page.count("name the panel") == 2
    assert Report.of(loaded, panel).quality.scores == Report.of(model).quality.scores
    other = Report.of(loaded, panel.take_rows(np.arange(300))).html()
    assert "This is not the panel that the model was fitted to, or its rows have other weights." in other
    assert Report.of(loaded, panel).to_dict()["observed"]["differs_from_the_models"] is None
    rounded = Panel(panel.indptr, panel.columns, panel.values.round(4), panel.n_columns)
    assert DataSection.of(loaded, rounded, ColumnNames(loaded.column_ids_, {})).differs == ""
    for change in (10 * panel.values, panel.values + 0.1, 3 + 1.5 * (panel.values - 3)):
        stranger = Panel(panel.indptr, panel.columns, change, panel.n_columns)
        seen = DataSection.of(loaded, stranger, ColumnNames(loaded.column_ids_, {}))
        assert seen.to_dict()["differs_from_the_models"] == "values"
        assert "though it has as many entries in each column: values differ." in seen.html()


def test_weights_are_not_called_rows(odd):
    four = mixture().with_row_weights(np.full(400, 4.0))
    dense = four.to_dense()
    dense[3:, 5] = np.nan
    model = fitted(
        Panel.from_dense(dense).with_row_weights(four.row_weights), 1, center="columns", diagonal="free", blend=7.0
    )
    report = Report.of(model)
    page = report.html()
    assert "All rows weigh 4, and count as 4 rows each." in page
    assert "seen in rows that weigh less than 20 together or never beside another" in page
    assert "the model counts for a weight of 7" in page
    assert "N the weight of the held-out rows that have the pair" in page
    assert "which weight of rows" in page
    assert "Rows weigh between" in odd("weights").html()
    unweighted = odd("nothing chosen").html()
    assert "weigh" not in re.sub(r"<style>.*?</style>|<code>\w+</code>", "", unweighted, flags=re.DOTALL)
    assert "N how many held-out rows have the pair" in unweighted


def test_why_measurements_are_not_averaged_in(panel):
    def told(rows, **options):
        center = options.pop("center", "columns")
        found = fitted(rows, 1, center=center, diagonal="free", refine="none", **options)
        return {
            name: one for name, one in ProvenanceSection(found, panel=rows)._fit() if name.startswith("measured")
        }.values()

    assert set(told(panel, blend=None)) == {"not averaged in: it was not asked for, blend being none"}
    few = mixture(n=100)
    assert all("too few rows have two entries to hold 30 of them out" in one for one in told(few))
    linear = synthetic.sample_fixed(synthetic.linear_mixture(2000, 12, 1, rng=0), 6, rng=1)
    assert "not averaged in: on held-out rows the model alone does as well" in told(linear)
    pairs, means = told(panel, blend=1.0)
    assert pairs == "averaged in; the model counts for 1 row"
    assert "about pairs alone" in means
    assert next(iter(told(panel, blend=0.0))).endswith("the model counts for nothing beside them")
    assert list(told(panel, center="none", blend=2.5)) == [
        "averaged in; the model counts for 2.5 rows",
        "not averaged in: the model has no means",
    ]
    bare = fitted(few, 1, center="columns", diagonal="free")
    assert "without the panel it cannot be told" in ProvenanceSection(bare).html()


def test_a_mean_that_no_row_has_is_defined(report):
    assert "of a column that none of them has, the mean of all their entries" in report.html()


def test_errors_of_shares_are_in_percent(report):
    assert re.search(r"hold [\d.]+% ± [\d.]+% of [\d,]+ entries", report.quality.html())
    assert re.search(r"<td class=\"n\">[−\d.]+% ± [\d.]+%</td>", report.quality.html())


def test_intervals_of_a_few_entries_prove_little():
    few = fitted(mixture(n=30, d=8, per_row=2), 0, center="columns", diagonal="free")
    found = QualitySection.of(few, few.second_moment_.panel)
    for one in found.coverage:
        assert one.error >= np.sqrt(one.level * (1 - one.level) / found.entries_taken_out) - 1e-12
    assert _verdict(Coverage(0.9, 1.0, np.sqrt(0.09 / 4))) == "no contradiction to 90%, but too few to tell"
    assert _verdict(Coverage(0.9, 0.905, 0.004)) == "as promised"
    assert _verdict(Coverage(0.9, 0.95, 0.004)) == "wider than need be"
    assert _verdict(Coverage(0.9, 0.8, 0.004)) == "too narrow"


def test_a_few_heavy_entries_are_few():
    weights = np.where(np.arange(400) % 40 == 0, 1000.0, 1.0)
    heavy = mixture().with_row_weights(weights)
    model = fitted(heavy, 1, center="columns", diagonal="free", refine="none", blend=None)
    refit = held_out.Refit.of(model, heavy, np.random.default_rng(0))
    found, number = held_out.coverage(refit, np.random.default_rng(1))
    w = np.repeat(refit.scored().row_weights, 6)
    assert number == len(w)
    for one in found:
        assert one.error >= np.sqrt(one.level * (1 - one.level) * np.sum(w**2)) / w.sum() - 1e-12


def test_column_means_stand_beside_the_error_of_t():
    rng = np.random.default_rng(0)
    values = 50 + rng.normal(size=(1500, 12))  # T is known from means alone
    shown = Panel.from_dense(np.where(rng.random(values.shape) < 0.4, values, np.nan))
    model = fitted(shown, 0, center="columns", diagonal="free", blend=None)
    report = Report.of(model)
    (means,) = report.quality.pair_errors.means
    (line,) = report.quality.pair_errors.model
    assert means.high == pytest.approx(line.high, rel=0.2)
    assert means.high < 0.01
    assert report.to_dict()["quality"]["pair_errors"]["means"][0]["high"] == means.high
    page = report.quality.html()
    assert re.search(r"the model's T is off by [^,;]+, column means by [^;]+\.", page)
    assert ">column means</th>" in page
    centred = mixture(n=1500)
    found = Report.of(
        fitted(Panel.from_dense(centred.to_dense() - 3), 2, center="columns", diagonal="free", blend=None)
    )
    (line,), (means,) = found.quality.pair_errors.model, found.quality.pair_errors.means
    assert line.high < means.low
    assert found.quality.pair_errors.gains == (1,)
    assert "the model is better." in found.quality.html()
    assert "better than means" in found.quality.html()


def test_the_model_is_held_against_column_means():
    rng = np.random.default_rng(0)

    def totals(model):
        one = np.array([1.0])
        return pair_errors._Totals(model * one, one, one + rng.normal(0, 0.01), norm=10 * one)

    for model, expected in ((1.0, 0), (0.5, 1), (2.0, -1)):
        parts = [totals(model) for _ in range(10)]
        assert pair_errors._gain(0, totals(model)._replace(means=np.array([1.0])), parts) == expected
    told = replace(
        pair_errors.PairErrors((), (), (), (), 40, 0, 20, 30),
        model=(pair_errors.PairError(3, 9, 40, 0.04, 0.03, 0.05),),
        means=(pair_errors.PairError(3, 9, 40, None, None, 0.03),),
    )
    unknown, worse, better = "which is better cannot be told", "the model is worse", "the model is better"
    for gain, said in ((0, unknown), (-1, f"pair by pair {worse}"), (1, f"pair by pair {better}")):
        reading = (
            f"Where 3 to 9 fitted rows have a pair, the model's T is off by 4%, column means by at most 3%: {said}."
        )
        assert reading in pair_chart(replace(told, gains=(gain,)))


def test_the_error_of_t_among_few_columns():
    for d in (3, 8):
        rng = np.random.default_rng(0)
        whole = rng.normal(size=(1000, 1)) + 0.5 * rng.normal(size=(1000, d))
        shown = Panel.from_dense(np.where(rng.random((1000, d)) < 0.7, whole, np.nan))
        report = Report.of(fitted(shown, 1, center="columns", diagonal="free"))
        assert report.quality.pair_errors.pairs == d * (d - 1) // 2
        assert "Relative error of T, by how many" in report.html()


def test_why_the_error_of_t_cannot_be_told(model, panel):
    assert "too few pairs of columns are in two held-out rows" in pair_chart(None)
    refit = held_out.Refit.of(model, panel, np.random.default_rng(0))
    found = pair_errors.PairErrors.of(refit, np.random.default_rng(0))
    assert "no line of the table would have 22" in pair_chart(replace(found, model=(), measured=(), means=(), gains=()))
    nothing = tuple(replace(one, error=None, low=None, high=None) for one in found.model)
    assert "does not stand out from its noise" in pair_chart(replace(found, model=nothing))


@pytest.mark.parametrize("scale", [1e-8, 1e70])
def test_values_of_any_size_can_be_read(panel, scale):
    scaled = Panel(panel.indptr, panel.columns, scale * panel.values, panel.n_columns)
    model = fitted(scaled, "auto", center="columns", diagonal="free", blend=None)
    report = Report.of(model)  # warnings are errors here
    page = re.sub(r"<style>.*?</style>|<svg .*?</svg>", "", report.html(), flags=re.DOTALL)
    assert not re.search(r"\d{13}|(,\d{3}){4}|0\.0{5}", page)
    assert report.quality.pair_errors.model[0].high is not None
    assert number(report.quality.scores["model"].rmse) in page
    assert number(report.quality.scores["model"].rmse, 4) in page
    assert fixed(model.selection_.trials[0].rmse, 9) in page


def test_numbers_have_one_form():
    assert number(0.0000999999) == number(0.0001) == "0.0001"
    assert number(999.96) == number(1000.0) == "1,000"
    assert share(0.000042) == "0.0042%"
    assert percent_with_error(-0.0004, 0.0002) == "−0.040% ± 0.020%"
    assert percent_with_error(-1e-18, 0.0) == "0% ± 0%"
    assert with_error(0.9123, 0.0021) == "0.912 ± 0.002"


def test_shares_that_were_estimated_have_their_unit():
    rng = np.random.default_rng(0)
    large = Panel.from_arrays(
        np.repeat(np.arange(3000), 8),
        np.concatenate([rng.choice(20_000, 8, replace=False) for _ in range(3000)]),
        rng.normal(size=24_000),
    )
    model = fitted(large, 0, center="columns", diagonal="free", blend=None)
    seen = DataSection.of(model, large, ColumnNames(model.column_ids_, {}))
    told = dict(replace(seen, pairs=replace(seen.pairs, standard_error=seen.pairs.observed / 10))._facts())
    assert re.match(r"0\.0\d+% ± 0\.0\d+% of", told["pairs seen together"])
    assert "fewer than" not in "".join(told.values())
    assert told["observed"] == share(8 / model.n_features_in_)


def test_a_large_panel_is_sampled(model, panel, monkeypatch):
    monkeypatch.setattr(held_out, "MOST_ENTRIES", 900)
    monkeypatch.setattr(held_out, "SCORED_ROWS", 20)
    monkeypatch.setattr(held_out, "COPIED", 300)
    found = Report.of(model, panel).quality
    assert found.sampled
    assert (found.rows_fitted, found.rows_scored) == (120, 20)
    assert found.entries_taken_out == 50
    assert "drawn from it at random" in found.html()


def test_names_are_escaped():
    dense = mixture(n=200, d=6, per_row=4).to_dense()
    model = fitted(Panel.from_dense(dense), 2, center="columns", diagonal="free")
    report = Report.of(model, names=dict(enumerate(NAMES)), title="<title> & co")
    page = report.html()
    check_page(page)
    assert "<b>rye" not in page
    assert "tea &amp; &lt;b&gt;rye&lt;/b&gt;" in page
    assert "$\\frac{1}{0}$" in page
    assert "\x00" not in page
    assert "<title>&lt;title&gt; &amp; co</title>" in page
    named = {one["name"] for one in report.to_dict()["found"]["components"][0]["high"]}
    assert named <= set(NAMES)


def test_short_names_stand_in_the_map():
    model = fitted(mixture(n=200, d=6, per_row=4), 2, center="columns", diagonal="free")
    report = Report.of(model, names={0: "寿司", 1: "$x_1$", 2: "<&>"})  # letters a font may lack are no warning
    check_page(report.html())
    in_pictures = "".join(re.findall(r"<svg .*?</svg>", report.row_space.html(), flags=re.DOTALL))
    labelled = {one["name"] for one in report.to_dict()["found"]["map"]["labelled"]}
    assert labelled <= {"寿司", "$x_1$", "<&>", "3", "4", "5"}
    for name, shown in (("寿司", "寿司"), ("$x_1$", "$x_1$"), ("<&>", "&lt;&amp;&gt;")):
        assert (f">{shown}</text>" in in_pictures) == (name in labelled)
    assert len(labelled) > 3


def test_long_names_are_listed_beside_the_map():
    model = fitted(mixture(n=200, d=6, per_row=4), 2, center="columns", diagonal="free")
    report = Report.of(model, names={j: f"A rather long name, {j}" for j in range(6)})
    listed = re.search(r'<ol class="key">(.*?)</ol>', report.html())[1]
    told = [one["name"] for one in report.to_dict()["found"]["map"]["labelled"]]
    assert re.findall(r"<li>(.*?)</li>", listed) == told


def test_labels_do_not_overlap():
    boxes = []

    def draw(axis):
        points = np.random.default_rng(0).normal(size=(60, 2))
        axis.plot(*points.T, "o")
        done = label_points(axis, points, [f"a rather long name {k}" for k in range(60)], 12)
        boxes.extend(one.get_window_extent() for one in axis.texts)
        assert len(done) == len(set(done)) == len(boxes) > 3

    drawn("test", draw)
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])


def test_every_stand_in_colour_has_a_contrast_that_can_be_read():
    def luminance(colour):
        parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        parts = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return parts @ [0.2126, 0.7152, 0.0722]

    def contrast(one, other):
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    for scheme in (LIGHT, DARK):
        for name in ("ink", "muted", "first", "second"):
            assert contrast(scheme[name], scheme["ground"]) >= 4.5
            assert contrast(scheme[name], scheme["panel"]) >= 4.5
        assert contrast(scheme["rule"], scheme["ground"]) >= 3
    assert {one[6:-1] for one in VARIABLES.values() if one.startswith("var")} <= set(LIGHT)


def test_the_same_model_and_seed_give_the_same_bytes(report, model):
    assert Report.of(model).html() == report.html()
    assert Report.of(model, seed=1).quality.scores != report.quality.scores


def test_another_process_gives_the_same_bytes(tmp_path):
    # With a choice of several kinds: their order in the picture must not be that of a set.
    fitted(mixture(n=60, d=6, per_row=4), "auto", diagonal="free").save(tmp_path / "m.onesided", panel=False)
    script = (
        "import sys; from onesided import OneSidedCompletion; from onesided.report.report import Report; "
        "Report.of(OneSidedCompletion.load(sys.argv[1])).write(sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.onesided"), str(tmp_path / "r.html")],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7", "ONESIDED_NUM_THREADS": "1"},
    )
    here = Report.of(OneSidedCompletion.load(tmp_path / "m.onesided"))
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == here.html()


def test_a_notebook_shows_the_whole_and_its_parts(report):
    assert report._repr_html_().startswith('<div class="onesided"><style>')
    for section in report.sections:
        assert section.title in section._repr_html_()


def test_how_it_was_made(model, report):
    page = report.provenance.html()
    assert model.making_.versions["numpy"] in page
    assert "moment solution stands as it is" in page
    assert report.to_dict()["made"]["settings"]["random_state"] == 0


def test_progress_is_told(model):
    steps = []
    Report.of(model, progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {100}


# Columns in units of their own


FACTORS = 10.0 ** np.resize(np.arange(-4, 5), 14)


@pytest.fixture(scope="module")
def mixed(panel):
    """The panel with columns in units of their own."""
    return Panel(panel.indptr, panel.columns, FACTORS[panel.columns] * panel.values, 14)


@pytest.fixture(scope="module")
def mixed_model(mixed):
    return fitted(mixed, 2, center="columns", diagonal="free", refine="none", blend=None)


@pytest.fixture(scope="module")
def mixed_report(mixed_model):
    return Report.of(mixed_model, names={4: "x < y"})


def test_the_page_says_that_columns_have_units_of_their_own(mixed_model, mixed_report):
    page, numbers, scales = mixed_report.html(), mixed_report.to_dict(), mixed_model.scales_
    low, high = int(np.argmin(scales)), int(np.argmax(scales))
    said = (
        "Columns are measured in units of their own: scales, 1 for a typical entry, run from "
        f"{number(scales[low])} ({low}) to {number(scales[high])} ({high})."
    )
    assert page.count(said) == 2  # of what was observed, and of what was found
    assert said in mixed_report.data.html()
    assert "Scales of the columns, but for 2 between" in page
    assert f'<th scope="row">x &lt; y</th><td class="n">{number(scales[4])}</td>' in page
    for section in ("observed", "found"):
        units = numbers[section]["units"]
        assert units["own"] is True
        assert units["smallest"] == {"id": low, "name": str(low), "scale": scales[low]}
        assert units["largest"] == {"id": high, "name": str(high), "scale": scales[high]}
        assert [one["scale"] for one in units["listed"]] == [*np.sort(scales)[:6], *np.sort(scales)[-6:]]
    assert (numbers["found"]["components_in"], numbers["quality"]["units"]) == ("scales", "scales")
    assert "RMSE, in scales" in page
    assert "squares of the columns' scales" in page.replace("&#x27;", "'")
    assert said not in Report.of(copy_without_panel(mixed_model)).quality.html()
    assert said in Report.of(copy_without_panel(mixed_model)).data.html()


def copy_without_panel(model):
    other = copy(model)
    other._hold(model.row_space_, None)
    return other


def test_the_page_is_silent_where_columns_share_a_unit(panel):
    alike = Report.of(fitted(panel, 2, center="columns", diagonal="free", refine="none", blend=None, scale="none"))
    numbers = alike.to_dict()
    assert "units of their own" not in alike.html()
    assert numbers["observed"]["units"] == numbers["found"]["units"]
    assert (numbers["found"]["units"]["own"], numbers["found"]["units"]["listed"]) == (False, [])
    assert (numbers["found"]["components_in"], numbers["quality"]["units"]) == ("values", "values")
    scores = numbers["quality"]["scores"]
    assert numbers["quality"]["rmse_in_units_of_values"] == {name: score["rmse"] for name, score in scores.items()}
    assert "in the units of the values (column means: " in alike.quality.in_short


def test_scores_of_columns_in_units_of_their_own(mixed_model, mixed, mixed_report):
    """Entry by entry by the textbook's formula, e over the column's scale."""
    (_, e, s, around), rows, _ = by_hand(mixed_model, mixed)
    scales = mixed_model.scales_[np.concatenate([mixed.columns[mixed.indptr[u] : mixed.indptr[u + 1]] for u in rows])]
    quality = mixed_report.quality
    score = quality.scores["model"]
    assert score.rmse == pytest.approx(np.sqrt(np.mean((e / scales) ** 2)), rel=1e-6)
    assert score.explained == pytest.approx(1 - np.sum((e / scales) ** 2) / np.sum((around / scales) ** 2), rel=1e-6)
    log_score = np.mean(-0.5 * (np.log(2 * np.pi * (s / scales) ** 2) + (e / s) ** 2))
    assert score.log_score == pytest.approx(log_score, rel=1e-6)
    assert quality.scores["column means"].rmse == pytest.approx(np.sqrt(np.mean((around / scales) ** 2)))
    assert quality.rmse_of_values["model"] == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-6)
    assert quality.rmse_of_values["column means"] == pytest.approx(np.sqrt(np.mean(around**2)))
    told = mixed_report.to_dict()["quality"]["rmse_in_units_of_values"]
    assert told["column_means"] == quality.rmse_of_values["column means"]
    assert f"units of the values the RMSE is {number(told['model'])} " in quality.html()


def test_scores_are_in_units_of_the_values_where_columns_have_nearly_one(panel):
    model = fitted(panel, 2, center="both", diagonal="free", blend=None)
    assert not model.row_space_.in_own_units
    assert np.ptp(model.scales_) > 0.1
    found = Report.of(model).quality
    alike = QualitySection.of(fitted(panel, 2, center="both", diagonal="free", blend=None, scale="none"), panel)
    assert found.scores["column means"].rmse == pytest.approx(alike.scores["column means"].rmse)
    assert found.scores["model"].rmse == pytest.approx(alike.scores["model"].rmse, rel=0.05)


def test_units_do_not_change_what_is_told(panel, mixed, mixed_report):
    """Multiplying columns changes nothing but their scales, as far as these can be told."""
    model = fitted(panel, 2, center="columns", diagonal="free", refine="none", blend=None)
    scaled = panel_in_scales(panel, model.scales_)
    alike = Report.of(fitted(scaled, 2, center="columns", diagonal="free", refine="none", blend=None, scale="none"))
    found, expected = mixed_report.to_dict(), alike.to_dict()
    explained = [told["quality"]["scores"]["model"]["explained"] for told in (found, expected)]
    assert explained[0] == pytest.approx(explained[1], abs=0.02)
    bounds = [told["quality"]["pair_errors"]["model"][-1]["high"] for told in (found, expected)]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.1)
    for name in ("share_of_components", "share_of_single_entries"):
        assert found["found"][name] == pytest.approx(expected["found"][name], abs=0.03)


def test_bands_are_in_units_of_the_scales(mixed, mixed_model):
    found = SpectrumBands.of(mixed_model, mixed, 2, seed=4, earned=True)
    scaled = panel_in_scales(mixed, mixed_model.scales_)
    expected = bootstrap(scaled, rank=2, center="columns", diagonal="free", replicates=REPLICATES, columns=[], rng=4)
    np.testing.assert_array_equal(found.bands.lower, expected.eigenvalues().lower)
    largest = Components.of(mixed_model.row_space_).eigenvalues[0]
    assert found.bands.lower[0] / 1.5 < largest < 1.5 * found.bands.upper[0]


@pytest.mark.parametrize("center", ["columns", "both"])
def test_components_are_of_values_over_scales(mixed, center):
    model = fitted(mixed, 2, center=center, diagonal="free")
    found, scales = Components.of(model.row_space_), model.scales_
    products = (model.factor_ / scales[:, None]) @ (model.factor_ / scales[:, None]).T
    np.testing.assert_allclose(found.factor @ found.factor.T, products)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(products)[:-3:-1])
    variance = (deviations(model.row_space_) ** 2 + model.row_variance_ * scales**2) / scales**2
    assert found.variance == pytest.approx(variance.sum())
    told = found.factor_share, found.row_share, found.noise_share, found.spread_share
    assert sum(told) == pytest.approx(1.0)


def test_a_private_page_says_nothing_of_scales(odd):
    for name in ("private", "private, local"):
        numbers = odd(name).to_dict()
        assert "units" not in numbers["observed"]
        assert numbers["found"]["units"]["own"] is False
        assert "units of their own" not in odd(name).html()


def test_refusals_in_python(model, panel):
    with pytest.raises(InputError, match="a report is of a OneSidedCompletion; found HajekGD"):
        Report.of(HajekGD())
    other = Panel.from_dense(panel.to_dense()[:, :13])
    with pytest.raises(InputError, match="the panel lacks 1 column of the model: '13'; expected the panel"):
        Report.of(model, other)
    wider = Panel.from_dense(np.c_[panel.to_dense(), panel.to_dense()[:, 0]])
    with pytest.raises(InputError, match="the panel has 1 column that the model does not: '14'"):
        Report.of(model, wider)
    with pytest.raises(InputError, match="the model is private"):
        Report.of(private_model(), panel)


# The command


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    panel = mixture(n=150, d=8, per_row=4)
    rows = np.repeat(np.arange(150), panel.row_counts)
    lines = [f"u{u},{10 * j},{v:.4f}" for u, j, v in zip(rows, panel.columns, panel.values, strict=True)]
    (folder / "table.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    (folder / "films.csv").write_text("id,title\n" + "".join(f"{10 * j},Film <{j}>\n" for j in range(8)))
    read = Panel.from_arrays([f"u{u}" for u in rows], 10 * panel.columns.astype(int), panel.values)
    model = fitted(read, 1, center="columns", diagonal="free")
    model.save(folder / "model.onesided")
    model.save(folder / "bare.onesided", panel=False)
    write_packed(folder / "rows.panel", read.column_ids, [(read.row_ids, read.indptr, read.columns, read.values)])
    (folder / "other.csv").write_text("user,item,rating\na,1,2\na,2,3\n")
    return folder


def invoke(*arguments):
    group = type(main)(name="onesided", commands=[report_command])
    return CliRunner().invoke(group, ["report", *map(str, arguments)])


def test_the_command_writes_a_page(home):
    result = invoke(home / "model.onesided", "-o", home / "out.html", "--names", home / "films.csv")
    assert result.exit_code == 0, result.output
    page = (home / "out.html").read_text(encoding="utf-8")
    check_page(page)
    assert "<title>model</title>" in page
    assert "Film &lt;" in page
    assert "150 rows × 8 columns, 600 entries" in result.output


@pytest.mark.parametrize("panel", ["table.csv", "rows.panel"])
def test_the_command_takes_a_panel(home, panel):
    result = invoke(home / "bare.onesided", "-o", home / "out.html", "--panel", home / panel, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["observed"]["rows"] == 150
    assert told["quality"]["scores"]["model"]["rmse"] > 0
    assert set(told["found"]["components"][0]["high"][0]) == {"id", "name", "loading"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table.csv"], "table.csv is not a onesided file"),
        (["missing.onesided"], "does not exist"),
        (["model.onesided", "-o", "report.pdf"], "name it .html or .htm"),
        (["model.onesided", "-o", "nowhere/report.html"], "the folder"),
        (["model.onesided", "--panel", "other.csv"], "the panel has 2 columns that the model does not: '1', '2'"),
        (["model.onesided", "--names", "other.csv"], "none of the ids in"),
        (["model.onesided", "--row", "user"], "--row is about the table of --panel, which was not given"),
    ],
)
def test_refusals(home, arguments, message, monkeypatch):
    monkeypatch.chdir(home)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_an_output_is_never_an_input(home, tmp_path):
    (tmp_path / "names.html").write_text((home / "films.csv").read_text())
    result = invoke(home / "model.onesided", "-o", tmp_path / "names.html", "--names", tmp_path / "names.html")
    assert result.exit_code == 2
    assert "which it would replace" in result.output


def test_names_as_python_has_them(model):
    names = ColumnNames(model.column_ids_, {0: "first"})
    assert Report.of(model, names=names).row_space.names is names
