"""``onesided inspect``: plain words first, then numbers; the same as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import Panel, synthetic
from onesided.cli import main
from onesided.recoverability import recoverability


def run(*arguments):
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


@pytest.fixture(scope="module")
def panel():
    return synthetic.sample_fixed(synthetic.linear_mixture(600, 12, 2, rng=0), 5, rng=1)


@pytest.fixture(scope="module")
def table(panel, tmp_path_factory):
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    lines = [f"{u},{j},{v!r}\n" for u, j, v in zip(rows, panel.columns, panel.values.tolist(), strict=True)]
    path = tmp_path_factory.mktemp("inspect") / "table.csv"
    path.write_text("user,item,rating\n" + "".join(lines) + "7000,99,1.5\n7000,98,\n")
    return path


def test_plain_words_then_numbers(table):
    result = run(table, "--non-finite", "drop")
    assert (result.exit_code, result.stderr) == (0, "")
    sentences, numbers = result.stdout.split("\n\n")
    assert sentences.startswith("Rank 2 is supported; nothing points to rank 3.\n")
    assert "\n2 columns cannot be placed: 1 never seen, 1 never beside another (first: 98, 99).\n" in sentences
    printed = dict(line.split("  ", 1) for line in numbers.splitlines())
    found = {name: text.strip() for name, text in printed.items()}
    assert (found["rows"], found["columns"], found["entries"]) == ("601", "14", "3,001")
    assert (found["lines dropped"], found["lines merged"]) == ("1", "0")
    assert found["entries per row"] == "1 to 5, median 5, mean 4.993, nine in ten at most 5"
    assert found["pairs seen"] == "66"
    assert found["pair moments"] == "Ω would hold 79 pairs, 2 KiB"  # 66, and 13 columns that were seen
    assert found["parts"] == "1, the largest with 85.7% of the columns"
    assert found["supported rank"] == "2"
    assert found["rank 2"].split("; ")[0].endswith(", supported")
    assert "; about " in found["rank 2"]
    assert found["rank 3"].split("; ")[0].endswith(", not supported")
    assert "paper's bound" in found["rank 5"]


def test_columns_in_units_of_their_own(panel, table, tmp_path):
    lines = table.read_text().splitlines()[1:-2]
    rows, columns, values = zip(*(line.split(",") for line in lines), strict=True)
    factors = {"3": 1e-6, "7": 1e6}
    mixed = [factors.get(j, 1.0) * float(v) for j, v in zip(columns, values, strict=True)]
    path = tmp_path / "mixed.csv"
    entries = zip(rows, columns, mixed, strict=True)
    path.write_text("user,item,rating\n" + "".join(f"{u},c{j},{v!r}\n" for u, j, v in entries))
    found = json.loads(run(path, "--json").stdout)
    units = found["units"]
    assert (units["own"], units["smallest_column"], units["largest_column"]) == (True, "c3", "c7")
    said = (
        "columns are measured in units of their own: scales, 1 for a typical entry, run from "
        f"{units['smallest']:.3g} ('c3') to {units['largest']:.3g} ('c7')"
    )
    assert said in found["sentences"]
    assert found["supported_rank"] == 2
    sentences, numbers = run(path).stdout.split("\n\n")
    assert f"\nC{said[1:]}.\n" in sentences
    assert re.search(
        rf"^scales +{units['smallest']:.3g} to {units['largest']:.3g}$".replace("+0", r"\+0"), numbers, re.M
    )
    alike = json.loads(run(table, "--json", "--non-finite", "drop").stdout)
    assert alike["strengths"][:2] == pytest.approx(found["strengths"][:2], rel=0.05)


def test_estimates_are_marked(table, monkeypatch):
    monkeypatch.setattr("onesided.pairs.size.COUNTED_PRODUCTS", 1)
    monkeypatch.setattr("onesided.pairs.size.LEAST_SAMPLE", 7)
    printed = run(table, "--non-finite", "drop").stdout
    assert "pairs seen            about " in printed
    assert " ± " in printed
    assert re.search(r", from [2-7] columns\n", printed)
    assert "pair moments          Ω would hold about " in printed


def test_json(table):
    result = run(table, "--json", "--non-finite", "drop")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["rows"], found["lines_dropped"], found["supported_rank"]) == (601, 1, 2)
    assert found["parts"]["examples"] == [98, 99]
    size = {"pairs": 79, "bytes": 79 * 24 + 15 * 8, "standard_error": 0.0, "columns_counted": None}
    assert found["coverage"]["pair_moments"] == size
    assert [one["rank"] for one in found["ranks"]] == [1, 2, 3, 5, 10]


def test_json_is_what_python_says(tmp_path):
    rows, columns, values = ["ann", "ann", "bob", "bob", "cid"], ["t", "r", "t", "r", "g"], [1.0, 2.0, 3.0, 4.0, 5.0]
    path = tmp_path / "table.csv"
    path.write_text(
        "who,what,much\n" + "".join(f"{u},{j},{v}\n" for u, j, v in zip(rows, columns, values, strict=True))
    )
    found = json.loads(run(path, "--json", "--row", "who", "--column", "what", "--value", "much").stdout)
    expected = recoverability(Panel.from_arrays(rows, columns, values)).to_dict()
    assert found == expected | {"lines_dropped": 0, "lines_merged": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rating\na,b,x\n", "expected a number"),
        ("user,item,rating\na,b,\n", "--non-finite drop"),
        ("user,item,rating\na,b,1\na,b,2\n", "--duplicates"),
        ("one,two,three\na,b,1\n", "--row"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    result = run(path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_table_without_values_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item,rating\na,b,\n")
    result = run(path, "--non-finite", "drop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothing was observed" in result.stderr


def test_an_absent_table_is_refused(tmp_path):
    result = run(tmp_path / "absent.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "does not exist" in result.stderr


def test_help_is_quick_and_narrow():
    result = run("--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 88
    code = "from onesided.cli import main; main(['inspect', '--help'], standalone_mode=False); import sys; "
    code += "sys.exit(' '.join({'numba', 'scipy', 'pyarrow'} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
