"""The report: its numbers against others' arithmetic, odd models, escaping, the page itself, the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import HajekGD, InputError, OneSidedCompletion, Panel, Privacy, synthetic
from onesided.cli import main
from onesided.cli.report import report as report_command
from onesided.experiments.metrics import held_out_squared_error
from onesided.moments import PairMoments
from onesided.names import Names
from onesided.packed import write_packed
from onesided.report import held_out, pair_errors
from onesided.report.bands import REPLICATES, SpectrumBands
from onesided.report.components import Components
from onesided.report.observed import bins
from onesided.report.pictures import VARIABLES, drawn, label_points
from onesided.report.report import Report
from onesided.report.style import DARK, LIGHT
from onesided.selection import fit_row_space
from onesided.uncertainty import bootstrap

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
    found = fit_row_space(train, model.fitted_setting(), int(rng.integers(2**31)))
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
            value, deviation = refit.predictor.impute_at(Panel.from_dense(row[None]), np.array([0]), np.array([j]))
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
    L = refit.found.loadings @ refit.found.loadings.T + np.outer(refit.found.mean, refit.found.mean)
    expected = held_out_squared_error(target, lambda i, j: L[i, j])
    for weight in (1.0, 2.0):  # weights that are all alike change nothing
        sums = pair_errors._Sums.of(PairMoments.from_panel(panel.with_row_weights(weight * held)))
        i, j = target.pairs()
        chosen = np.flatnonzero((i != j) & sums.usable)
        value = L[i[chosen], j[chosen]]
        off, _, norm = pair_errors._totals(sums.at(chosen), (value, value), np.zeros(len(chosen), dtype=int))
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
    L = refit.found.loadings @ refit.found.loadings.T + np.outer(refit.found.mean, refit.found.mean)
    true = np.linalg.norm((L - T)[off]) / np.linalg.norm(T[off])
    (line,) = pair_errors.PairErrors.of(model, refit, np.random.default_rng(2)).model
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
    assert (found.observed.rows, found.observed.entries, found.observed.weightless) == (300, 1800, 100)
    assert "100 rows of weight zero left out." in found.html()


def test_a_histogram_has_every_row():
    for counts in ([1, 2, 2, 9], [1, 5000, 17, 17], list(range(2100, 2185))):
        edges, _ = bins(np.array(counts))
        assert np.histogram(counts, edges)[0].sum() == len(counts)


def test_bands_are_of_a_free_diagonal(panel):
    model = fitted(panel, 2, center="columns", diagonal="fit")
    found = SpectrumBands.of(model, panel, 2, seed=4)
    expected = bootstrap(panel, rank=2, center="columns", diagonal="free", replicates=REPLICATES, columns=[], rng=4)
    np.testing.assert_array_equal(found.bands.lower, expected.eigenvalues().lower)
    told = Report.of(model, seed=4).to_dict()["found"]["components"]
    assert told[0]["band"] == [expected.eigenvalues().lower[0], expected.eigenvalues().upper[0]]


def test_bands_are_left_out_with_a_reason(model, panel, monkeypatch):
    assert "not at hand" in SpectrumBands.of(model, None, 2).why_not
    assert "fewer than ten rows" in SpectrumBands.of(model, panel.take_rows(np.arange(5)), 2).why_not
    monkeypatch.setattr("onesided.report.bands.MOST_WORK", 100)
    assert "would take minutes" in SpectrumBands.of(model, panel, 2).why_not
    assert SpectrumBands.of(model, panel, 0).why_not == ""
    monkeypatch.undo()
    monkeypatch.setattr("onesided.report.bands.bootstrap", lambda *a, **k: replace(bootstrap(*a, **k), unsettled=20))
    assert "did not settle" in SpectrumBands.of(model, panel, 2).why_not
    monkeypatch.setattr("onesided.report.bands.FIRM", 0.0)
    monkeypatch.setattr("onesided.report.bands.bootstrap", bootstrap)
    assert "firmest direction" in SpectrumBands.of(model, panel, 2).why_not


def test_components_name_each_column_once(model):
    found = Components.of(model)
    for k, one in enumerate(found.leading):
        assert not set(one.high) & set(one.low)
        assert (model.factor_[one.high, k] > 0).all()
        assert (model.factor_[one.low, k] < 0).all()
        assert np.all(np.diff(model.factor_[one.high, k]) <= 0)
    assert found.factor_share + found.row_share + found.noise_share == pytest.approx(1.0)


def test_rare_columns_are_not_named():
    panel = mixture(n=400, d=14, per_row=6)
    dense = panel.to_dense()
    dense[3:, 5] = np.nan
    model = fitted(Panel.from_dense(dense), 1, center="columns", diagonal="free")
    found = Components.of(model)
    assert 5 not in found.named
    assert "Left out: 1 column of 14, seen in fewer than 20 rows" in Report.of(model).html()


PLAN = {"epsilon": 5.0, "delta": 1e-3, "bounds": (1.0, 5.0), "max_entries": 4}


def private_model(mechanism="gradient", **options):
    panel = mixture(n=120, d=8, per_row=4)
    ints = Panel.from_dense(np.round(np.clip(panel.to_dense(), 1, 5)))
    return fitted(ints, 1, privacy=Privacy(**PLAN, mechanism=mechanism), **options)


def odd_models():
    panel = mixture(n=120, d=8, per_row=4)
    two = np.full((80, 8), np.nan)
    two[:40, :4], two[40:, 4:] = np.random.default_rng(0).normal(size=(2, 40, 4))
    unseen = panel.to_dense()
    unseen[:, 3] = np.nan
    given = {"center": "columns", "diagonal": "free"}
    return {
        "rank 0": fitted(panel, 0, **given),
        "rank 0 with row effects": fitted(panel, 0, center="both", diagonal="free"),
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
        assert "No exact number about the rows" in page
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
    assert "This is not the panel that the model was fitted to" in other


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
    in_pictures = "".join(re.findall(r"<svg .*?</svg>", report.found.html(), flags=re.DOTALL))
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
    page = report.made.html()
    assert model.making_.versions["numpy"] in page
    assert "moment solution stands as it is" in page
    assert report.to_dict()["made"]["settings"]["random_state"] == 0


def test_progress_is_told(model):
    steps = []
    Report.of(model, progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {100}


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
    names = Names(model.column_ids_, {0: "first"})
    assert Report.of(model, names=names).found.names is names
