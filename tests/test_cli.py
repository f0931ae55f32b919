"""The command line: results on stdout, everything else on stderr, bad input refused with exit code 2."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from onesided import OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.cli import main
from onesided.pairs.files import save_moments
from onesided.panels.files import save_panel

HEADER = "user,item,rating\n"
COLUMNS = ["ale", "gin", "kir", "ouzo", "rum", "rye", "sake", "tea"]
NEW = f"{HEADER}zoe,tea,0.5\nzoe,gin,-1\nyan,rye,0.25\n"
NAMES = ["row", "column", "value", "standard_deviation"]


def entries() -> tuple[list[str], list[str], list[float]]:
    panel = synthetic.sample_fixed(synthetic.linear_mixture(80, 8, 2, rng=0), 4, rng=1)
    rows = np.repeat(np.arange(80), panel.row_counts)
    return [f"u{u}" for u in rows], [COLUMNS[j] for j in panel.columns], panel.values.tolist()


def text(separator: str = ",") -> str:
    lines = [("user", "item", "rating"), *zip(*entries(), strict=True)]
    return "".join(separator.join(map(str, line)) + "\n" for line in lines)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a model of it, and rows that are new to the model."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "table.csv").write_text(text())
    (folder / "new.csv").write_text(NEW)
    assert run("fit", folder / "table.csv", "-o", folder / "model.onesided", "--rank", 2).exit_code == 0
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(content: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def succeed(*arguments: object) -> dict[str, Any]:
    """The result of a command, from its JSON."""
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refuse(*arguments: object, folder: Path, message: str) -> None:
    """Exit code 2, the message, nothing on stdout, and no file more than before."""
    before = sorted(folder.iterdir())
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)  # and no other
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert message in " ".join(result.stderr.split())
    assert sorted(folder.iterdir()) == before


def lines(path: Path) -> list[tuple[Any, ...]]:
    """What impute wrote, line by line."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    else:
        options = pa.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        table = pa.csv.read_csv(path, parse_options=options)
    assert table.column_names == NAMES
    return list(zip(*table.to_pydict().values(), strict=True))


# Starting up

HEAVY = "numba sklearn scipy.optimize matplotlib pyarrow"


@pytest.mark.parametrize(
    "code",
    [
        "import onesided",
        "from onesided.cli import main; main(['--help'], standalone_mode=False)",
        "from onesided.cli import main; main(['fit', '--help'], standalone_mode=False)",
        "from onesided.cli import main; main(['impute', '--help'], standalone_mode=False)",
        "from onesided.cli import main; main(['--version'], standalone_mode=False)",
    ],
)
def test_what_is_not_needed_is_not_imported(code: str) -> None:
    code += f"; import sys; sys.exit(' '.join(set('{HEAVY}'.split()) & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [[], ["demo"], ["doctor"], ["fit"], ["impute"], ["inspect"]])
def test_help(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    assert max(map(len, result.stdout.splitlines())) <= 88
    assert run(*command, "-h").stdout == result.stdout


def test_version() -> None:
    assert run("--version").stdout == "onesided, version 0.1.0\n"


# fit


def test_fit_prints_one_line_per_item(home: Path, tmp_path: Path) -> None:
    result = run("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2)
    assert (result.exit_code, result.stderr) == (0, "")
    printed = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert {name: value.strip() for name, value in printed.items()}["entries"] == "320"
    assert "converged after" in printed["solver"]
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]


def test_fit_does_what_the_library_does(home: Path, tmp_path: Path) -> None:
    options = ("--rank", 3, "--center", "none", "--diagonal", "fit", "--seed", 5)
    result = succeed("fit", home / "table.csv", "-o", tmp_path / "m", *options)
    panel = Panel.from_arrays(*entries())
    model = OneSidedCompletion(3, center="none", diagonal="fit", random_state=5).fit(panel)
    loaded = OneSidedCompletion.load(tmp_path / "m")
    assert np.array_equal(loaded.factor_, model.factor_)
    assert loaded.get_params() == model.get_params()
    scaled = model.factor_ / model.scales_[:, None]  # these columns count as having units of their own
    np.testing.assert_allclose(result["eigenvalues"], np.linalg.svd(scaled, compute_uv=False) ** 2, rtol=1e-6)
    alike = succeed("fit", home / "table.csv", "-o", tmp_path / "m", *options, "--scale", "none")
    np.testing.assert_allclose(alike["eigenvalues"], OneSidedCompletion.load(tmp_path / "m").eigenvalues_)
    assert (result["rows"], result["columns"], result["entries"], result["rank"]) == (80, 8, 320, 3)
    assert (result["solver"], result["model"]) == ("converged", str(tmp_path / "m"))


@pytest.mark.parametrize("scale", ["auto", "none"])
def test_fit_says_that_columns_have_units_of_their_own(write: Any, tmp_path: Path, scale: str) -> None:
    factors = {"gin": 1e-6, "tea": 1e6}
    mixed = [(u, j, factors.get(j, 1.0) * v) for u, j, v in zip(*entries(), strict=True)]
    table = write(HEADER + "".join(f"{u},{j},{v!r}\n" for u, j, v in mixed))
    given = ("fit", table, "-o", tmp_path / "m", "--scale", scale, "--refine", "none")
    found = succeed(*given)
    model, units = OneSidedCompletion.load(tmp_path / "m"), found["units"]
    assert model.scale == scale
    if scale == "none":
        assert units.pop("smallest_column") == units.pop("largest_column") == "ale"
        assert units == {"own": False, "smallest": 1.0, "largest": 1.0, "held_out": "values", "variances": "values"}
        assert "units" not in run(*given).stdout
        return
    assert (units["own"], units["smallest_column"], units["largest_column"]) == (True, "gin", "tea")
    assert (units["smallest"], units["largest"]) == (model.scales_.min(), model.scales_.max())
    assert (units["held_out"], units["variances"]) == ("scales", "scales")
    scaled = model.factor_ / model.scales_[:, None]
    expected = np.linalg.svd(scaled, compute_uv=False) ** 2
    np.testing.assert_allclose(found["eigenvalues"], expected)
    assert found["noise_variance"] == pytest.approx(np.mean(model.noise_variance_ / model.scales_**2))
    printed = run(*given).stdout
    said = f"run from {units['smallest']:.3g} ('gin') to {units['largest']:.3g} ('tea'); variances below are in squares"
    assert said in printed
    assert f"{found['held_out_rmse']:.4g}, in units of the columns' scales\n" in printed


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.dat.xz", "t.parquet"])
def test_formats_give_the_same_model(home: Path, tmp_path: Path, name: str) -> None:
    table = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table(list(entries()), names=["user", "item", "rating"]), table)
    else:
        pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(table.suffix, bytes)
        table.write_bytes(pack(text({"t.tsv": "\t", "t.dat.xz": "::"}.get(name, ",")).encode()))
    succeed("fit", table, "-o", tmp_path / "m", "--rank", 2)
    expected, found = (OneSidedCompletion.load(path) for path in (home / "model.onesided", tmp_path / "m"))
    assert np.array_equal(found.factor_, expected.factor_)
    assert list(found.column_ids_) == COLUMNS


def test_fit_without_the_panel(home: Path, tmp_path: Path) -> None:
    succeed("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2, "--without-panel")
    assert OneSidedCompletion.load(tmp_path / "m").second_moment_.panel is None
    assert OneSidedCompletion.load(home / "model.onesided").second_moment_.panel is not None


def test_duplicates_and_missing_values_can_be_settled(write: Any, tmp_path: Path) -> None:
    table = write(text() + "u0,ale,4\nu0,ale,6\nu1,gin,\nu1,tea,inf\nu2,rye,NA\n")
    result = succeed("fit", table, "-o", tmp_path / "m", "--rank", 1, "--duplicates", "last", "--non-finite", "drop")
    panel = OneSidedCompletion.load(tmp_path / "m").second_moment_.panel
    assert panel is not None
    assert panel.to_dense()[0, 0] == 6
    assert result["entries"] == panel.n_entries
    assert result["lines_dropped"] == 3
    assert result["lines_merged"] == 322 - panel.n_entries > 0


def test_warnings_go_to_stderr(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OneSidedCompletion.fit

    def fit(self: OneSidedCompletion, *arguments: Any, **options: Any) -> OneSidedCompletion:
        warnings.warn("a second thought", UserWarning, stacklevel=2)
        return honest(self, *arguments, **options)

    monkeypatch.setattr(OneSidedCompletion, "fit", fit)
    result = run("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2, "--json")
    assert result.stderr == "Warning: a second thought\n"
    assert json.loads(result.stdout)["rank"] == 2


BAD_TABLES: dict[str, tuple[str, tuple[object, ...], str]] = {
    "infinite": (f"{HEADER}a,x,inf\na,y,2\n", (), "1 infinite value"),
    "NaN": (f"{HEADER}a,x,nan\na,y,\n", (), "2 NaN or missing values"),
    "missing": (f"{HEADER}a,x,NA\na,y,NULL\na,z,null\n", (), "3 NaN or missing values"),
    "NaN's remedy": (f"{HEADER}a,x,nan\na,y,1\n", (), "--non-finite drop"),
    "duplicates": (f"{HEADER}a,x,1\na,x,2\n", (), "row 'a', column 'x' with values 1 and 2"),
    "duplicates' remedy": (f"{HEADER}a,x,1\na,x,2\n", (), "--duplicates mean, sum or last"),
    "no such column": (text(), ("--value", "stars"), "named 'stars', expected one; the file has 'user', 'item', 'ra"),
    "no known column": ("user,item,x\na,b,1\n", (), "Say which one is the value with --value NAME"),
    "one column for two roles": (text(), ("--row", "item"), "must be different columns"),
    "text": (f"{HEADER}a,x,1\na,y,good\n", (), "line 3 of"),
    "text, quoted back": (f"{HEADER}a,x,1\na,y,good\n", (), "has 'good' in column 'rating'; expected a number"),
    "missing id": (f"{HEADER}a,x,1\n,y,2\n", (), "'user' has 1 missing id"),
    "rank above d": (text(), ("--rank", 9), "rank=9 is larger than the panel's 8 columns; choose at most 8"),
    "negative rank": (text(), ("--rank", -1), "Invalid value for '--rank': -1"),
    "rank of text": (text(), ("--rank", "two"), "Invalid value for '--rank': 'two'"),
    "one column": (f"{HEADER}a,x,1\nb,x,2\n", (), "one column"),
    "no row with two entries": (f"{HEADER}a,x,1\nb,y,2\n", (), "no row has two observed entries"),
    "all missing": (f"{HEADER}a,x,\na,y,\n", ("--non-finite", "drop"), "nothing was observed"),
    "empty": ("", (), "holds no entries: it is empty"),
    "header only": (HEADER, (), "holds no entries, only a header"),
    "values too large": (f"{HEADER}a,x,1e80\na,y,2\n", (), "rescale"),
    "dense": ("1,2,3,4,5\n", (), "has no header and 5 fields in its first line"),
    "no table": ("hello\n", (), "expected fields between"),
    "unknown choice": (text(), ("--duplicates", "first"), "Invalid value for '--duplicates': 'first'"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_fit_refuses(write: Any, tmp_path: Path, case: str) -> None:
    content, options, message = BAD_TABLES[case]
    rank = () if "--rank" in options else ("--rank", 1)
    refuse("fit", write(content), "-o", tmp_path / "m", *rank, *options, folder=tmp_path, message=message)


def test_errors_of_a_table_keep_their_words(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"user": pa.array([2**63], pa.uint64()), "item": [1], "rating": [1.0]}), table)
    refuse("fit", table, "-o", tmp_path / "m", folder=tmp_path, message="with ids as text if they exceed int64")


def test_fit_refuses_what_is_not_there(tmp_path: Path) -> None:
    for table, message in ((tmp_path / "absent.csv", "does not exist"), (tmp_path, "is not a packed panel")):
        refuse("fit", table, "-o", tmp_path / "m", folder=tmp_path, message=message)
    refuse("fit", folder=tmp_path, message="Missing argument 'TABLE'")
    refuse("fit", __file__, folder=tmp_path, message="Missing option '-o'")


def test_latin1_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    table = tmp_path / "t.csv.xz"
    table.write_bytes(lzma.compress(f"{HEADER}José,x,1\n".encode("latin-1")))
    message = "line 2 of {} is not UTF-8; convert it, for example with: xz -dc {} | iconv -f latin1 -t utf8"
    refuse("fit", table, "-o", tmp_path / "m", folder=tmp_path, message=message.format(table, table))


def test_one_row_and_constant_values_are_no_error(write: Any, tmp_path: Path) -> None:
    for content in (f"{HEADER}a,x,1\na,y,2\n", f"{HEADER}a,x,0\na,y,0\nb,x,0\n"):
        result = run("fit", write(content), "-o", tmp_path / "m", "--rank", 1, "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["eigenvalues"] == pytest.approx([0.0], abs=1e-12)


# Outputs that cannot be written are refused before any work


@pytest.fixture
def no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr("onesided.panels.table_files.open_table", work)
    monkeypatch.setattr("onesided.report.digits.recover_digits", work)
    monkeypatch.chdir(tmp_path)


def inputs(command: str, home: Path) -> list[Path]:
    return {"fit": [home / "table.csv"], "impute": [home / "model.onesided", home / "new.csv"], "demo": []}[command]


@pytest.mark.parametrize("command", ["fit", "impute", "demo"])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("absent/out", "the folder absent does not exist"),
        ("folder", "is not a regular file"),
        ("unwritable", "Permission denied"),
    ],
)
@pytest.mark.usefixtures("no_work")
def test_outputs_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, output: str, message: str
) -> None:
    def mkstemp(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = Path(output + {"fit": ".onesided", "impute": ".csv", "demo": ".png"}[command])
    if output == "folder":
        path.mkdir()
    if output == "unwritable":
        monkeypatch.setattr("tempfile.mkstemp", mkstemp)
    refuse(command, *inputs(command, home), "-o", path, folder=tmp_path, message=message)


@pytest.mark.parametrize("command", ["impute", "demo"])
@pytest.mark.parametrize("output", ["out.foo", "csv", "png", os.devnull])
@pytest.mark.usefixtures("no_work")
def test_endings_refused(home: Path, tmp_path: Path, command: str, output: str) -> None:
    message = f"cannot tell the format of {output} from its name; name it"
    refuse(command, *inputs(command, home), "-o", output, folder=tmp_path, message=message)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("fit table.csv", "table.csv"),
        ("fit ./table.csv", "link.csv"),
        ("impute model.csv table.csv", "./table.csv"),
        ("impute model.csv table.csv", "model.csv"),
        ("impute model.csv table.csv --at at.csv", "at.csv"),
    ],
)
@pytest.mark.usefixtures("no_work")
def test_inputs_are_not_replaced(home: Path, tmp_path: Path, command: str, output: str) -> None:
    contents = {"table.csv": NEW.encode(), "at.csv": NEW.encode(), "model.csv": (home / "model.onesided").read_bytes()}
    for name, content in contents.items():
        Path(name).write_bytes(content)
    Path("link.csv").symlink_to("table.csv")
    message = f"the output {Path(output)} is the input"
    refuse(*command.split(), "-o", output, folder=tmp_path, message=message)
    assert {name: Path(name).read_bytes() for name in contents} == contents


@pytest.mark.usefixtures("no_work")
def test_a_device_is_not_replaced(home: Path, tmp_path: Path) -> None:
    refuse("fit", home / "table.csv", "-o", os.devnull, folder=tmp_path, message="is not a regular file")
    assert not Path(os.devnull).is_file()


# impute


def test_impute_does_what_the_library_does(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = succeed("impute", home / "model.onesided", home / "new.csv", "-o", out)
    none = {"lines_dropped": 0, "lines_merged": 0, "entries_dropped": 0}
    assert result == {"output": str(out), "rows": 2, **none, "values": 16}
    panel = Panel.from_arrays(["zoe", "zoe", "yan"], ["tea", "gin", "rye"], [0.5, -1.0, 0.25])
    values, deviations = OneSidedCompletion.load(home / "model.onesided").impute(panel, return_std=True)
    expected = [
        (row, column, values[u, j], deviations[u, j])
        for u, row in enumerate(["yan", "zoe"])
        for j, column in enumerate(COLUMNS)
    ]
    assert lines(out) == expected
    assert ("zoe", "gin", -1.0, 0.0) in expected
    assert all(np.isfinite(one[2:]).all() for one in expected)


@pytest.mark.parametrize("chunk", [1, 7, 16, 1000])
@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "OUT.Parquet"])
@pytest.mark.parametrize("at", [True, False])
def test_formats_and_chunks_do_not_change_the_answer(
    home: Path, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int, at: bool
) -> None:
    options = ["--at", write("row,column\n" + "u7,tea\nu3,gin\nu7,ale\n" * 5, "at.csv")] if at else []
    arguments = ("impute", home / "model.onesided", home / "table.csv", *options, "-o")
    succeed(*arguments, tmp_path / "expected.parquet")
    monkeypatch.setattr(import_module("onesided.cli.impute"), "CHUNK", chunk)
    succeed(*arguments, tmp_path / name)
    path = (tmp_path / name).rename(tmp_path / name.lower())
    expected, found = lines(tmp_path / "expected.parquet"), lines(path)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    np.testing.assert_allclose([one[2:] for one in found], [one[2:] for one in expected], rtol=1e-12)
    assert len(found) == (15 if at else 640)


def test_what_impute_wrote_can_be_fitted(home: Path, tmp_path: Path) -> None:
    succeed("impute", home / "model.onesided", home / "table.csv", "-o", tmp_path / "out.csv")
    assert succeed("fit", tmp_path / "out.csv", "-o", tmp_path / "m", "--rank", 2)["entries"] == 640


@pytest.mark.parametrize(
    "positions",
    [
        "user,item\nzoe,rum\nyan,tea\nzoe,tea\n",
        "item,when,user\nrum,1,zoe\ntea,2,yan\ntea,3,zoe\n",
        "user,item,rating\nzoe,rum,1\nyan,tea,bad\nzoe,tea,\n",
        "zoe;rum;1\nyan;tea;2\nzoe;tea;3\n",
    ],
)
def test_at(home: Path, write: Any, tmp_path: Path, positions: str) -> None:
    out = tmp_path / "out.csv"
    arguments = ("impute", home / "model.onesided", home / "new.csv", "--at", write(positions), "-o", out)
    assert succeed(*arguments)["values"] == 3
    found = lines(out)
    assert [one[:2] for one in found] == [("zoe", "rum"), ("yan", "tea"), ("zoe", "tea")]
    assert found[2][2] != 0.5  # an observed entry is predicted like any other
    assert all(one[3] > 0 for one in found)


def test_names_hold_for_the_table_and_the_positions(home: Path, write: Any, tmp_path: Path) -> None:
    table = write("who,what,much\nzoe,tea,0.5\n")
    names = ("--row", "who", "--column", "what", "--value", "much")
    arguments = ("impute", home / "model.onesided", table, *names, "-o", tmp_path / "out.csv", "--at")
    assert succeed(*arguments, write("what,who\nrum,zoe\n", "at.csv"))["values"] == 1
    (tmp_path / "out.csv").unlink()
    other = write("user,item\nzoe,rum\n", "other.csv")
    refuse(*arguments, other, folder=tmp_path, message="other.csv are named 'who'")


def test_unknown_columns(home: Path, write: Any, tmp_path: Path) -> None:
    table, out = write(f"{NEW}zoe,milk,3\nyan,milk,1\nxen,cola,1\n"), tmp_path / "out.csv"
    arguments = ("impute", home / "model.onesided", table, "-o", out)
    message = "2 column ids unknown to the model: 'cola', 'milk'; pass --unknown drop to leave their entries out"
    refuse(*arguments, folder=tmp_path, message=message)
    result = succeed(*arguments, "--unknown", "drop")
    assert (result["rows"], result["entries_dropped"], result["values"]) == (3, 3, 24)
    succeed("impute", home / "model.onesided", home / "new.csv", "-o", tmp_path / "known.csv")
    assert lines(out)[8:] == lines(tmp_path / "known.csv")
    means = OneSidedCompletion.load(home / "model.onesided").mean_  # all that is known of a row without entries
    assert [one[2] for one in lines(out)[:8]] == pytest.approx(means.tolist())


def test_lines_left_out_are_counted(home: Path, write: Any, tmp_path: Path) -> None:
    table = write(f"{NEW}zoe,tea,1\nyan,ale,NA\nyan,milk,2\n")
    arguments = ("impute", home / "model.onesided", table, "-o", tmp_path / "out.csv", "--unknown", "drop")
    arguments += ("--duplicates", "mean", "--non-finite", "drop")
    result = succeed(*arguments)
    assert [result[name] for name in ("lines_dropped", "lines_merged", "entries_dropped")] == [1, 1, 1]
    printed = run(*arguments).stdout
    assert "lines dropped    1\nlines merged     1\n" in printed


def test_unknown_positions(home: Path, write: Any, tmp_path: Path) -> None:
    at = write("user,item\nzoe,rum\nwim,tea\nzoe,milk\n", "at.csv")
    arguments = ("impute", home / "model.onesided", home / "new.csv", "-o", tmp_path / "out.csv", "--at")
    message = "lists 2 pairs whose row is not in the table or whose column is not in the model, first row 'wim', "
    refuse(*arguments, at, folder=tmp_path, message=f"{message}column 'tea'; pass --unknown drop")
    result = succeed(*arguments, at, "--unknown", "drop")
    assert (result["values"], result["pairs_dropped"]) == (1, 2)
    (tmp_path / "out.csv").unlink()
    at = write("user,item\nwim,tea\n", "at.csv")
    message = "nothing to impute: no pair of"
    refuse(*arguments, at, "--unknown", "drop", folder=tmp_path, message=message)
    refuse(*arguments, write("user,item\n,tea\n", "at.csv"), folder=tmp_path, message="'user' has 1 missing id")


@pytest.mark.parametrize(
    ("columns", "new", "dropped", "known"),
    [
        ([1, 2, 10, "tea"], "5,2,9\n6,10,9\n", 0, "2"),  # the model's ids are texts, the table's are integers
        ([1, 2, 10, 20], "5,2,9\n6,milk,9\n", 1, 2),  # the other way round: 2 is known, milk is not
        ([1, 2, 10, 20], "5,2,9\n6,010,9\n", 1, 2),  # nor is 010, which is not 10
    ],
)
def test_ids_are_compared_as_text_when_either_side_is(
    write: Any, tmp_path: Path, columns: list[Any], new: str, dropped: int, known: Any
) -> None:
    table = write(HEADER + "".join(f"{u},{j},{u * k % 7}\n" for u in range(19) for k, j in enumerate(columns)))
    model, out = tmp_path / "m", tmp_path / "out.parquet"
    succeed("fit", table, "-o", model, "--rank", 1)
    arguments = ("impute", model, write(HEADER + new, "new.csv"), "-o", out)
    if dropped:
        refuse(*arguments, folder=tmp_path, message="1 column id unknown to the model")
    assert succeed(*arguments, "--unknown", "drop")["entries_dropped"] == dropped
    assert (5, known, 9.0, 0.0) in lines(out)
    at = write("user,item\n5,10\n6,2\n", "at.csv")
    assert succeed(*arguments, "--unknown", "drop", "--at", at)["values"] == 2
    assert [one[:2] for one in lines(out)] == [(5, type(known)(10)), (6, known)]


def test_a_model_without_ids_takes_positions(write: Any, tmp_path: Path) -> None:
    dense = Panel.from_arrays(*entries()).to_dense()
    OneSidedCompletion(rank=2, random_state=0).fit(dense).save(tmp_path / "m")
    out = tmp_path / "out.csv"
    assert succeed("impute", tmp_path / "m", write(f"{HEADER}a,7,1\n"), "-o", out)["values"] == 8
    assert lines(out)[7] == ("a", 7, 1, 0)
    out.unlink()
    refuse("impute", tmp_path / "m", write(f"{HEADER}a,8,1\n"), "-o", out, folder=tmp_path, message="unknown")


BAD_MODELS: dict[str, tuple[Callable[[bytes, Path], bytes], str]] = {
    "cut short": (lambda whole, _: whole[: len(whole) // 2], "cut short"),
    "empty": (lambda whole, _: b"", "is not a onesided file"),
    "text": (lambda whole, _: text().encode(), "is not a onesided file"),
    "damaged": (lambda whole, _: whole.replace(b'"mean"', b'"moan"'), "damaged"),
    "a panel": (lambda _, path: _panel(path), "holds a panel; expected a model"),
    "moments": (lambda _, path: _moments(path), "holds pair moments; expected a model"),
    "a plain ZIP": (lambda _, path: _zip(path), "is a ZIP archive, but not a onesided file"),
}


def _panel(path: Path) -> bytes:
    save_panel(Panel.from_arrays(*entries()), path)
    return path.read_bytes()


def _moments(path: Path) -> bytes:
    save_moments(PairMoments.from_panel(Panel.from_arrays(*entries())), path)
    return path.read_bytes()


def _zip(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.txt", "a")
    return path.read_bytes()


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models(home: Path, tmp_path: Path, case: str) -> None:
    make, message = BAD_MODELS[case]
    model = tmp_path / "bad.onesided"
    model.write_bytes(make((home / "model.onesided").read_bytes(), model))
    arguments = ("impute", model, home / "new.csv", "-o", tmp_path / "out.csv")
    refuse(*arguments, folder=tmp_path, message=f"{model} ")
    refuse(*arguments, folder=tmp_path, message=message)


def test_impute_refuses_what_is_not_there(home: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    for model, table, at in (
        (absent, home / "new.csv", home / "new.csv"),
        (home / "model.onesided", absent, home / "new.csv"),
        (home / "model.onesided", home / "new.csv", absent),
    ):
        arguments = ("impute", model, table, "--at", at, "-o", tmp_path / "out.csv")
        refuse(*arguments, folder=tmp_path, message="does not exist")


def test_impute_refuses_bad_tables(home: Path, write: Any, tmp_path: Path) -> None:
    for content, message in ((f"{HEADER}a,tea,x\n", "expected a number"), (f"{HEADER}a,tea,inf\n", "--non-finite")):
        arguments = ("impute", home / "model.onesided", write(content), "-o", tmp_path / "out.csv")
        refuse(*arguments, folder=tmp_path, message=message)


# Interrupted, or failing on the way


@pytest.mark.parametrize(("error", "words"), [(KeyboardInterrupt, "Aborted!"), (OSError(28, "No space left"), "No sp")])
@pytest.mark.parametrize("older", [None, b"older"])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_interrupted_while_writing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, older: bytes | None, error: Any, words: str
) -> None:
    honest, calls = OneSidedCompletion.impute, []

    def impute(self: OneSidedCompletion, *arguments: Any, **options: Any) -> Any:
        calls.append(len(list(tmp_path.iterdir())))
        if len(calls) == 3:
            raise error
        return honest(self, *arguments, **options)

    monkeypatch.setattr(OneSidedCompletion, "impute", impute)
    monkeypatch.setattr(import_module("onesided.cli.impute"), "CHUNK", 8)
    out = tmp_path / name
    if older is not None:
        out.write_bytes(older)
    result = run("impute", home / "model.onesided", home / "table.csv", "-o", out)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert calls[-1] == (1 if older is None else 2)  # a part had been written
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([] if older is None else [older])


def test_interrupted_while_fitting(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for target in (
        "onesided.fitting.row_space.moment_solution",
        "safetensors.numpy.save",
        "onesided.panels.table_files.open_table",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, interrupt)
            result = run("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2)
        assert (result.exit_code, result.stdout, result.stderr.strip()) == (1, "", "Aborted!")
        assert not list(tmp_path.iterdir())


def test_a_fit_that_was_stopped_goes_on(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    arguments = ("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2, "--checkpoint", tmp_path / "kept")
    with monkeypatch.context() as patched:
        patched.setattr("safetensors.numpy.save", interrupt)
        assert run(*arguments).exit_code == 1
    with monkeypatch.context() as patched:
        patched.setattr("onesided.kernels.cpu.row_pass", interrupt)  # only what sets up is done once more
        patched.setattr("onesided.kernels.posterior.column_sums", interrupt)
        patched.setattr("onesided.fitting.objective.rows.RowObjective.value_and_gradient", lambda *_: (0.0, None))
        assert run(*arguments).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


# Progress


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal that a program can hold")
def test_progress_on_a_terminal_goes_to_stderr(home: Path, tmp_path: Path) -> None:
    commands = [
        ["fit", str(home / "table.csv"), "-o", str(tmp_path / "m"), "--rank", "2", "--json"],
        ["impute", str(tmp_path / "m"), str(home / "table.csv"), "-o", str(tmp_path / "out.csv"), "--json"],
    ]
    code = f"from onesided.cli import main\nfor command in {commands}: main(command, standalone_mode=False)"
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # which is how the end of what was written to a terminal is told
        while part := os.read(ours, 1 << 16):
            shown += part
    os.close(ours)
    assert all(title in shown for title in (b"Reading", b"Fitting", b"Imputing"))
    assert [len(json.loads(line)) > 3 for line in done.stdout.splitlines()] == [True, True]


# doctor


def test_doctor() -> None:
    result = succeed("doctor")
    assert result["kernels"] == "compiled and correct"
    assert {"onesided", "python", "threads", "numpy", "numba", "pyarrow", "matplotlib"} <= set(result)
    assert "kernels       compiled and correct\n" in run("doctor").stdout


def test_doctor_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("matplotlib", "numba"):
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("onesided.kernels.reference.row_pass", lambda *_: (0.0, np.zeros((6, 3))))
    result = run("doctor", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["kernels"].startswith("WRONG")
    assert found["matplotlib"] == "not installed; pip install 'onesided[report]'"
    assert found["numba"] == "not installed; pip install numba"

    def broken(*_: Any) -> None:
        raise ImportError("no compiler")

    monkeypatch.setattr("onesided.kernels.cpu.row_pass", broken)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["kernels"] == "BROKEN: ImportError: no compiler"


def test_doctor_refuses_a_bad_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONESIDED_NUM_THREADS", "many")
    refuse("doctor", folder=tmp_path, message="ONESIDED_NUM_THREADS='many'")


def commands(group: Any = main, path: str = "") -> list[tuple[str, Any]]:
    """Every command that does something, by what one types."""
    found = []
    for name, one in group.commands.items():
        typed = f"{path} {name}".strip()
        found += commands(one, typed) if hasattr(one, "commands") else [(typed, one)]
    return found


@pytest.mark.parametrize(("typed", "command"), commands(), ids=lambda one: one if isinstance(one, str) else "")
def test_every_command_has_an_example_and_json(typed: str, command: Any) -> None:
    assert f"onesided {typed}" in command.help.partition("Example:")[2]
    assert "--json" in [option for parameter in command.params for option in parameter.opts]
    assert all(parameter.help for parameter in command.params if parameter.param_type_name == "option")


def test_predictions_that_have_seen_their_entry_are_counted(home: Path, tmp_path: Path) -> None:
    arguments = ("impute", home / "model.onesided", home / "new.csv", "-o", tmp_path / "out.csv", "--at")
    assert succeed(*arguments, home / "new.csv")["pairs_observed"] == 3


def test_an_output_that_the_disk_cannot_hold_is_refused(home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    arguments = ("impute", home / "model.onesided", home / "new.csv", "-o", tmp_path / "out.csv")
    monkeypatch.setattr(import_module("onesided.cli.impute"), "MANY_LINES", 15)
    assert run(*arguments).stderr == (
        "Writing 16 lines, about 640 bytes; to write fewer, list the pairs that are wanted with --at.\n"
    )
    (tmp_path / "out.csv").unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=600))
    message = "every row filled in would be 16 lines, about 640 bytes, and the disk has 600 bytes left; list the pairs"
    refuse(*arguments, folder=tmp_path, message=message)


def test_eigenvalues_are_those_of_the_report(home: Path, write: Any, tmp_path: Path) -> None:
    """The row effect is no component: it has a line of its own."""
    result = succeed("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2, "--center", "both")
    assert len(result["eigenvalues"]) == 2
    none = run("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 0, "--center", "both").stdout
    assert re.search(r"^eigenvalues +–$", none, re.MULTILINE)


def test_a_model_without_rows_says_what_is_missing(home: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.onesided"
    run("fit", home / "table.csv", "-o", model, "--rank", 2, "--without-panel")
    assert run("similar", model, "tea").stderr == f"{model} holds no rows, of which standard errors are made.\n"
    told = run("report", model, "-o", tmp_path / "m.html").stderr
    assert told == f"{model} holds no rows: name them with --panel, and the page says how good the model is.\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_command_that_is_told_to_end_leaves_nothing(home: Path, tmp_path: Path, number: int, handler: int) -> None:
    """As after Ctrl-C; here while a file is being written. Under nohup, which ignores the signal, it goes on."""
    code = (
        "import os, signal, sys\n"
        "from importlib import import_module\n"
        f"signal.signal({int(number)}, {int(handler)})\n"  # an ignored one would be inherited
        "impute = import_module('onesided.cli.impute')\n"
        "honest = impute.all_values\n"
        "def parts(model, panel):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    yield from honest(model, panel)\n"
        "impute.all_values = parts\n"
        "from onesided.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["impute", home / "model.onesided", home / "new.csv", "-o", tmp_path / "out.csv"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, check=False)
    ends = handler == signal.SIG_DFL
    assert done.returncode == (128 + number if ends else 0)
    assert [path.name for path in tmp_path.iterdir()] == ([] if ends else ["out.csv"])
    assert not ends or done.stderr == b""


def test_a_checkpoint_says_that_it_is_kept_and_used(home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    kept = tmp_path / "kept"
    arguments = ("fit", home / "table.csv", "-o", tmp_path / "m", "--rank", 2, "--checkpoint", kept)
    with monkeypatch.context() as patched:

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr("onesided.fitting.fit.fit_row_space", interrupted)
        stopped = run(*arguments)
    assert (stopped.exit_code, kept.exists()) == (1, True)
    assert f"What was done is kept in {kept}: the same command goes on from there." in stopped.stderr
    again = run(*arguments)
    assert (again.exit_code, again.stderr) == (0, f"Going on from {kept}.\n")
    refuse(*arguments[:-1], tmp_path / "no" / "such", folder=tmp_path, message="cannot write the checkpoint")
