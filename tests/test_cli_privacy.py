"""The private options of ``fit``, and the commands ``privacy`` and ``project``."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from onesided import OneSidedCompletion
from onesided.cli import main

PLAN = ["--epsilon", "2", "--delta", "1e-5", "--bounds", "1", "5", "--max-entries", "6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of ratings, a list of columns, one's own row, and a published model."""
    folder = tmp_path_factory.mktemp("private")
    rng = np.random.default_rng(0)
    n, d = 4000, 20
    loadings, coordinates = rng.normal(size=(d, 2)), rng.normal(size=(n, 2))
    lines = ["user,film,rating"]
    for u in range(n):
        for j in rng.choice(d, 6, replace=False):
            value = np.clip(3 + 0.6 * coordinates[u] @ loadings[j] + rng.normal(0, 0.2), 1, 5)
            lines.append(f"p{u},film {j},{value:.3f}")
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "films.txt").write_text("\n".join(f"film {j}" for j in range(d)) + "\n", encoding="utf-8")
    (folder / "me.csv").write_text("user,film,rating\nme,film 1,5\nme,film 2,1\nme,film 99,3\n", encoding="utf-8")
    result = invoke(
        "fit",
        folder / "ratings.csv",
        "-o",
        folder / "published.onesided",
        "--rank",
        "2",
        "--columns",
        folder / "films.txt",
        *PLAN,
    )
    assert result.exit_code == 0, result.output
    return folder


def invoke(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_a_private_fit_tells_what_it_spent(folder):
    model = OneSidedCompletion.load(folder / "published.onesided")
    assert model.privacy_.mechanism == "gradient"
    assert list(model.column_ids_) == [f"film {j}" for j in range(20)]
    result = invoke(
        *("fit", folder / "ratings.csv", "-o", folder / "again.onesided", "--rank", "1", "--columns", "public"),
        *(*PLAN, "--mechanism", "central", "--json"),
    )
    told = json.loads(result.stdout)
    assert told["mechanism"] == "central"
    assert told["epsilon"] == 2
    assert told["mu_spent"] == pytest.approx(model.privacy_.mu)
    assert not {"rows", "entries", "seconds"} & set(told)  # exact numbers are not released


def test_listed_columns_are_read_as_the_table_has_them(tmp_path):
    """Numbers in a file are ids of a table that has numbers, and of one that has strings."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.choice(6, 3, replace=False) for _ in range(200)])
    listed, model = tmp_path / "columns.txt", tmp_path / "model.onesided"
    listed.write_text("".join(f"{j}\n" for j in range(8)), encoding="utf-8")
    for kind in (pa.int64(), pa.string()):
        ids = pa.array(columns).cast(kind)
        pq.write_table(
            pa.table({"user": np.repeat(np.arange(200), 3), "item": ids, "rating": rng.uniform(1, 5, 600)}),
            tmp_path / "ratings.parquet",
        )
        fitted = invoke("fit", tmp_path / "ratings.parquet", "-o", model, "--rank", "1", "--columns", listed, *PLAN)
        assert fitted.exit_code == 0, fitted.output
        assert list(map(str, OneSidedCompletion.load(model).column_ids_)) == [str(j) for j in range(8)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1"], "--delta missing: a private fit needs both --epsilon and --delta"),
        (["--mechanism", "local"], "--epsilon and --delta missing: a private fit needs both"),
        (["--neighbours", "replace"], "--epsilon and --delta missing: a private fit needs both"),
        (["--epsilon", "1", "--delta", "1e-6", "--max-entries", "6"], "a private fit needs --bounds LOW HIGH"),
        (["--epsilon", "1", "--delta", "1e-6", "--bounds", "1", "5"], "a private fit needs --max-entries"),
        (["--clip-values"], "are for private fits, with --epsilon"),
        ([*PLAN], "list all columns in advance as --columns FILE, or pass --columns public if that is no secret"),
        ([*PLAN, "--columns", "public", "--rank", "auto"], "--rank auto tries many ranks"),
        ([*PLAN, "--columns", "nowhere.txt"], "cannot read the columns from nowhere.txt"),
        ([*PLAN[:2], "--delta", "0.01", *PLAN[4:], "--columns", "public"], "choose a smaller δ, or pass --any-delta"),
        ([*PLAN[:4], "--bounds", "1", "3", *PLAN[7:], "--columns", "public"], "or pass --clip-values to move such"),
        ([*PLAN, "--epsilon", "0", "--columns", "public"], "epsilon=0.0: expected a number from 0.001 to 10000"),
    ],
)
def test_bad_plans_are_refused(folder, options, message):
    rank = [] if "--rank" in options else ["--rank", "1"]
    result = invoke("fit", folder / "ratings.csv", "-o", folder / "refused.onesided", *rank, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "refused.onesided").exists()


SIZE = ["--rows", "900000", "--columns", "500"]


def test_the_price_is_told_before_any_data_is_read():
    result = invoke("privacy", "--epsilon", "1", "--delta", "1e-6", "--bounds", "1", "5", "--max-entries", "20", *SIZE)
    assert result.exit_code == 0, result.output
    assert "noise on each value: 75.6" in result.stdout
    assert "at ε = 1 and 20 entries per row nothing but means is to be expected" in result.stdout
    assert result.stdout.index("gradient") < result.stdout.index("central") < result.stdout.index("local")
    one = invoke("privacy", *PLAN, *SIZE, "--delta", "1e-7", "--mechanism", "gradient", "--json")
    told = json.loads(one.stdout)
    assert set(told) == {"gradient"}
    assert told["gradient"]["spent_on"] == {"columns": 0.25, "all together": 0.05, "passes": 0.7}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*SIZE], "a plan needs --epsilon and --delta"),
        ([*PLAN, "--rows", "100", "--columns", "9000", "--mechanism", "central"], "at most 5,000 columns"),
        ([*PLAN], "Missing option '--rows'"),
        ([*PLAN, *SIZE], "delta=1e-05 with 900,000 rows: at 1/900,000 or more"),
    ],
)
def test_a_plan_that_cannot_be_priced_is_refused(options, message):
    result = invoke("privacy", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_ones_own_row_is_placed_at_home(folder):
    output = folder / "me-filled.csv"
    result = invoke("project", folder / "published.onesided", folder / "me.csv", "-o", output, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["entries_used"] == 2
    assert told["entries_unknown"] == 1
    assert told["rows"] == ["me"]
    model = OneSidedCompletion.load(folder / "published.onesided")
    assert len(told["coordinates"][0]) == len(model.components_)
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 20
    assert '"me","film 1",5,0' in lines


def test_without_an_output_only_coordinates_are_told(folder):
    result = invoke("project", folder / "published.onesided", folder / "me.csv")
    assert result.exit_code == 0
    assert "coordinates" in result.stdout
    assert "output" not in result.stdout
