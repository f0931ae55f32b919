"""How experiments are run, kept and written; the numbers they report; the page made of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import InputError, Panel, synthetic
from onesided.cli import main
from onesided.experiments import NAMES, NOT_EXPERIMENTS, experiment, metrics, page
from onesided.experiments.experiment import Expectation, Experiment, run
from onesided.experiments.panels import Panels
from onesided.experiments.split import cut, moments_of
from onesided.experiments.summaries import markdown, over_seeds
from onesided.pairs.moments import PairMoments, hajek
from tests.conftest import random_panel

TOY = Experiment(
    name="toy",
    title="A toy",
    claim="Squares are squares.",
    method="k².",
    full={"most": 4},
    quick={"most": 2},
    cells=lambda settings, panels: [{"k": k} for k in range(settings["most"])],
    measure=lambda cell, panels: {"square": cell["k"] ** 2},
    expect=lambda rows: [Expectation("squares grow", rows[-1]["square"] > rows[0]["square"], str(rows[-1]["square"]))],
    verdict=lambda rows: "Agrees.",
    table=lambda rows: "| k |\n",
    draw=lambda rows, figure: figure.subplots().plot([row["square"] for row in rows]) and None,
)


def test_a_run_writes_a_record_a_table_and_a_picture(tmp_path):
    seen = []
    record = run(TOY, tmp_path / "results", Panels(None), progress=lambda done, total: seen.append((done, total)))
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["toy.json", "toy.md", "toy.svg"]
    assert json.loads((tmp_path / "results" / "toy.json").read_text(encoding="utf-8")) == record
    assert record["rows"] == [{"k": k, "square": k**2} for k in range(4)]
    assert record["expectations"] == [{"claim": "squares grow", "holds": True, "found": "9"}]
    assert record["settings"] == {"most": 4}
    assert {"python", "onesided", "numpy"} <= set(record["versions"])
    assert seen == [(k, 4) for k in range(4)]


def test_a_quick_run_differs_in_its_settings_only(tmp_path):
    record = run(TOY, tmp_path, Panels(None), quick=True)
    assert record["quick"]
    assert len(record["rows"]) == 2


def test_the_same_numbers_give_the_same_files(tmp_path):
    for name in ("one", "two"):
        run(TOY, tmp_path / name, Panels(None))
    assert (tmp_path / "one" / "toy.svg").read_bytes() == (tmp_path / "two" / "toy.svg").read_bytes()


class StoppedError(Exception):
    pass


def stopped_at(k, measured):
    def measure(cell, panels):
        if cell["k"] == k:
            raise StoppedError
        measured.append(cell["k"])
        return {"square": cell["k"] ** 2}

    return replace(TOY, measure=measure)


@pytest.mark.parametrize("cut_line", [False, True])
def test_a_run_that_was_stopped_goes_on(tmp_path, cut_line):
    measured = []
    with pytest.raises(StoppedError):
        run(stopped_at(2, measured), tmp_path, Panels(None))
    (part,) = tmp_path.iterdir()
    assert part.match("toy.*.part")
    if cut_line:  # as a power cut leaves it
        part.write_text(part.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    record = run(stopped_at(None, measured), tmp_path, Panels(None))
    assert measured == ([0, 1, 1, 2, 3] if cut_line else [0, 1, 2, 3])
    assert record["rows"] == run(TOY, tmp_path / "whole", Panels(None))["rows"]
    assert not part.exists()


def test_a_quick_run_does_not_replace_a_full_one(tmp_path):
    run(TOY, tmp_path, Panels(None))
    with pytest.raises(InputError, match=r"toy.json is of a full run, which a quick one would replace"):
        run(TOY, tmp_path, Panels(None), quick=True)
    run(TOY, tmp_path / "quick", Panels(None), quick=True)
    run(TOY, tmp_path / "quick", Panels(None))


def test_a_picture_that_cannot_be_drawn_is_not_left_over(tmp_path):
    run(TOY, tmp_path, Panels(None))
    run(replace(TOY, draw=None), tmp_path, Panels(None))
    assert not (tmp_path / "toy.svg").exists()


def test_tables_have_as_many_cells_in_every_line():
    lines = markdown(["|Ω|", "error"], [[3, "0|1 refused"]]).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}


def test_rows_that_cannot_tell_have_no_held_out_error():
    alone = PairMoments.from_panel(Panel.from_dense([[1.0, 2.0, np.nan], [np.nan, 1.0, 3.0]]))
    assert metrics.held_out_squared_error(alone, lambda i, j: 1e6 * np.ones(len(i))) is None


def test_a_page_is_not_made_of_quick_runs(tmp_path, monkeypatch):
    run(experiment("claim-2-1"), tmp_path / "results", Panels(None), quick=True)
    monkeypatch.setattr("sys.argv", ["page", str(tmp_path / "docs"), str(tmp_path / "results")])
    with pytest.raises(InputError, match=r"claim-2-1\.json is of a quick run; expected that of a full one"):
        page.main()


def test_other_settings_start_anew(tmp_path):
    measured = []
    with pytest.raises(StoppedError):
        run(stopped_at(1, measured), tmp_path, Panels(None))
    run(stopped_at(None, measured), tmp_path, Panels(None), quick=True)
    assert measured == [0, 0, 1]


def test_a_number_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        run(replace(TOY, measure=lambda cell, panels: {"square": np.nan}), tmp_path, Panels(None))


def test_without_cells_the_panels_are_missing(tmp_path):
    with pytest.raises(InputError, match="toy needs real panels, and none was found; see `onesided data list`"):
        run(replace(TOY, cells=lambda settings, panels: []), tmp_path, Panels(None))


def test_every_name_is_an_experiment():
    for name in NAMES:
        one = experiment(name)
        assert one.name == name
        assert set(one.quick) <= set(one.full)
    with pytest.raises(InputError, match="no experiment 'figure-9'; choose one of claim-2-1, figure-1"):
        experiment("figure-9")


def test_the_command_lists_every_table_and_figure():
    listed = CliRunner().invoke(main, ["reproduce", "--list"])
    assert listed.exit_code == 0
    titles = listed.stdout
    for what in [*(f"Figure {k}" for k in range(1, 9)), *(f"Table {k}" for k in range(1, 6)), "Claim 2.1"]:
        assert f"{what}:" in titles or what in NOT_EXPERIMENTS, what


def test_the_command_runs_one(tmp_path):
    result = CliRunner().invoke(main, ["reproduce", "claim-2-1", "--quick", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "holds: the shares of Ω" in result.stdout
    assert "Agrees: no share is further" in result.stdout
    assert (tmp_path / "claim-2-1.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a table or figure, or all; --list names them"),
        (["figure-9"], "there is no experiment 'figure-9'"),
        (["figure-1", "--data", "nowhere"], "'nowhere' does not exist"),
    ],
)
def test_the_command_refuses(arguments, message):
    result = CliRunner().invoke(main, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_empty_folder_has_no_panels(tmp_path):
    assert Panels(tmp_path).names == []
    with pytest.raises(InputError, match="movielens-1m was not found in"):
        Panels(tmp_path).load("movielens-1m")


def test_dense_moments_are_the_same_moments():
    panel = random_panel(3, n=40, d=9, low=6, high=9)
    ours, theirs = moments_of(panel), PairMoments.from_panel(panel)
    for name in ("indptr", "columns", "rows", "sums", "squares"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)


def test_a_split_uses_every_entry_once():
    panel = random_panel(5, n=200, d=20, low=2, high=8)
    parts = cut(panel, 0)
    train = parts.train
    assert train.n_rows == 180
    assert parts.unused.n_rows == 20
    at = np.repeat(np.arange(train.n_rows), train.row_counts)
    trained = set(zip(at.tolist(), train.columns.tolist(), strict=True))
    held = set(zip(parts.rows.tolist(), parts.columns.tolist(), strict=True))
    assert not trained & held
    assert np.all(train.row_counts[parts.rows] > 0)
    assert len(parts.values) == len(held)
    again = cut(panel, 0)
    np.testing.assert_array_equal(again.train.values, train.values)


def test_the_held_out_error_takes_the_noise_off():
    """Of fresh rows: with the measurement's own noise taken off, the truth scores near zero and others as they are."""
    truth = synthetic.linear_mixture(40_000, 12, 2, rng=0)
    T = truth.second_moment()
    moments = PairMoments.from_panel(synthetic.sample_fixed(truth, 4, rng=1))
    i, j = moments.pairs()

    def distance(L):
        weight = np.where(i == j, 0.0, moments.counts)
        return np.sqrt(weight @ (L - T)[i, j] ** 2 / (weight @ T[i, j] ** 2))

    assert abs(metrics.held_out_squared_error(moments, lambda i, j: T[i, j])) < 0.02**2
    for off in (0.8 * T, T + 0.02):
        found = metrics.held_out_squared_error(moments, lambda i, j, off=off: off[i, j])
        assert np.sqrt(found) == pytest.approx(distance(off), rel=0.1)


def test_errors_by_their_definitions():
    panel = random_panel(7, n=30, d=6, low=1, high=4)
    moments = PairMoments.from_panel(panel)
    L = np.random.default_rng(0).normal(size=(6, 6))
    L = L + L.T
    measured = moments.to_matrix(hajek(moments)).toarray()
    on = moments.to_matrix(np.ones(moments.n_pairs)).toarray() > 0
    distance = np.linalg.norm(np.where(on, L - measured, 0.0))
    found = metrics.errors_against_all_data(moments, lambda i, j: L[i, j])
    assert found["published_error"] == pytest.approx(distance / on.sum())
    assert found["error_against_all_data"] == pytest.approx(distance / np.linalg.norm(measured))
    assert metrics.size(moments) == on.sum()
    errors = metrics.errors_on_omega(moments, hajek(moments), L[moments.pairs()], np.linalg.norm(L))
    assert errors["squared_error"] == pytest.approx(distance**2 / on.sum())
    assert errors["relative_error"] == pytest.approx(distance / np.linalg.norm(L))


def test_one_seed_has_no_deviation():
    assert over_seeds([{"e": 0.5}], "e") == "0.5"


DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_that_of_its_records():
    records = page.records_of(DOCS / "reproduction")
    assert records
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == page.page(records)
    for name, record in records.items():
        assert not record["quick"], name
        assert record["verdict"] == experiment(name).verdict(record["rows"])
        assert "\n" not in record["verdict"]


def test_the_page_on_privacy_has_what_was_measured():
    text = (DOCS / "privacy.md").read_text(encoding="utf-8")
    assert page.with_measurements(text, page.records_of(DOCS / "reproduction")["privacy"]) == text


def test_the_stand_ins_are_panels():
    assert all(isinstance(Panels(None).load(name), Panel) for name in Panels(None).names)
