"""The commands ``similar`` and ``recommend``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import OneSidedCompletion, Panel
from onesided.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of named films, in which even ones go together, and odd ones do."""
    folder = tmp_path_factory.mktemp("columns")
    rng = np.random.default_rng(0)
    rows, columns, values = [], [], []
    for u in range(1500):
        tastes = rng.normal(size=2)
        for j in rng.choice(12, 5, replace=False):
            rows.append(f"u{u}")
            columns.append(int(j) + 100)
            values.append(3 + tastes[j % 2] + rng.normal(0, 0.3))
    panel = Panel.from_arrays(rows, columns, values)
    model = OneSidedCompletion(2, center="columns", diagonal="free", blend=None, random_state=0).fit(panel)
    model.save(folder / "films.onesided")
    model.save(folder / "without.onesided", panel=False)
    OneSidedCompletion(0, center="columns", random_state=0).fit(panel).save(folder / "flat.onesided")
    lines = [f"{j}::Film {'even' if j % 2 == 0 else 'odd'} {j}::x" for j in range(100, 112)]
    (folder / "films.dat").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "me.csv").write_text("user,item,rating\nme,100,5\nme,101,1\n", encoding="utf-8")
    (folder / "us.csv").write_text("user,item,rating\nme,100,5\nyou,101,1\nyou,777,3\n", encoding="utf-8")
    return folder


def invoke(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_similar_columns_are_listed(folder):
    result = invoke("similar", folder / "films.onesided", "even 104", "--names", folder / "films.dat", "-n", 5)
    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.split("  ")[0] == "Film even 104"
    assert [line.startswith("Film even") for line in lines] == [True] * 5
    assert result.stderr == ""
    told = json.loads(invoke("similar", folder / "films.onesided", "104", "--json").stdout)
    assert told["id"] == 104
    assert len(told["similar"]) == 10
    assert set(told["similar"][0]) == {"id", "correlation", "standard_error", "rows"}
    named = json.loads(
        invoke("similar", folder / "films.onesided", "104", "--names", folder / "films.dat", "--json").stdout
    )
    assert named["name"] == "Film even 104"
    assert named["similar"][0]["name"].startswith("Film even")


def test_what_is_not_known_is_a_dash(folder):
    result = invoke("similar", folder / "without.onesided", "104", "-n", 1)
    assert result.stdout.splitlines()[1].split()[2:] == ["–", "–"]


def test_recommended_columns_are_listed(folder):
    result = invoke("recommend", folder / "films.onesided", folder / "me.csv", "-n", 5, "--names", folder / "films.dat")
    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.startswith("for me")
    assert [line.startswith("Film even") for line in lines] == [True] * 5
    own = json.loads(invoke("recommend", folder / "films.onesided", "--row-id", "u7", "--json").stdout)
    assert own["row"] == "u7"
    assert own["entries"] == 5
    assert len(own["recommended"]) == 7
    two = invoke("recommend", folder / "films.onesided", folder / "us.csv", "--row-id", "you", "--unknown", "drop")
    assert two.stdout.startswith("for you")


def test_without_a_factor_it_says_so(folder):
    assert "the columns of the highest means" in invoke("recommend", folder / "flat.onesided", "--row-id", "u1").stderr
    assert "no two columns go together" in invoke("similar", folder / "flat.onesided", "101").stderr


def test_a_row_that_has_everything(folder):
    lines = ["user,item,rating", *(f"me,{j},3" for j in range(100, 112))]
    (folder / "all.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = invoke("recommend", folder / "films.onesided", folder / "all.csv")
    assert result.exit_code == 0
    assert "There is nothing to recommend to me: no unseen column is linked to this row's entries" in result.stdout


def test_large_values_are_told_with_the_digits_that_matter(folder):
    rng = np.random.default_rng(0)
    dense = np.full((300, 8), np.nan)
    for row in dense:
        columns = rng.choice(8, 4, replace=False)
        row[columns] = 1000 + 10 * rng.normal() + rng.normal(0, 2, 4)
    model = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(Panel.from_dense(dense))
    model.save(folder / "large.onesided")
    lines = invoke("recommend", folder / "large.onesided", "--row-id", "3").stdout.splitlines()[1:]
    assert all(len(line.split()[1].partition(".")[2]) == 1 for line in lines)  # 1003.4, not 1e+03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["similar", "films.onesided", "999"], "no column is called '999'"),
        (["similar", "nowhere.onesided", "100"], "does not exist"),
        (["similar", "films.onesided", "100", "--names", "me.csv"], "names column 100"),
        (["recommend", "films.onesided"], "has 1,500 rows; say which with --row-id, for example u0"),
        (["recommend", "films.onesided", "--row-id", "nobody"], "has no row 'nobody'; its rows are such as 'u0'"),
        (
            ["recommend", "without.onesided", "--row-id", "u1"],
            "holds no rows: name a table with those to recommend for",
        ),
        (["recommend", "films.onesided", "us.csv", "--row-id", "you"], "1 column id unknown to the model: 777"),
    ],
)
def test_refusals(folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    if message == "names column 100":
        (folder / "twice.csv").write_text("100,a\n100,b\n101,c\n", encoding="utf-8")
        arguments = [*arguments[:-1], "twice.csv"]
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
