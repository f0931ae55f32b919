"""What was packed is the panel that would have been made in memory; a run that was killed is gone on with."""

from __future__ import annotations

import copy
import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from onesided import InputError, OneSidedCompletion, Panel, synthetic
from onesided.cli import main
from onesided.panels.packed import database, scan, sort
from onesided.panels.packed.format import is_packed, load_packed
from onesided.panels.packed.sort import pack
from onesided.panels.refusals import ValueRules
from onesided.panels.table_files import open_table

HEADER = "user,item,rating\n"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few lines, so that a small table has several and rows lie across their ends."""
    for module in (scan, database):
        monkeypatch.setattr(module, "GROUP_LINES", 16)
    monkeypatch.setattr(sort, "BLOCK_LINES", 40)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | pa.Table, name: str = "table.csv") -> Path:
        path = tmp_path / name
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        elif name.endswith(".gz"):
            path.write_bytes(gzip.compress(content.encode()))
        else:
            path.write_text(content, encoding="utf-8")
        return path

    return write


def lines(user: Callable[[int], object], item: Callable[[int], object], seed: int = 0, repeat: int = 0) -> list[str]:
    """Lines of a panel of 60 rows out of order; some of them once more, with another value."""
    panel = synthetic.sample_fixed(synthetic.linear_mixture(60, 25, 2, rng=seed), 5, rng=1)
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(60), panel.row_counts)
    every = np.append(rng.permutation(len(rows)), rng.integers(0, len(rows), size=repeat))
    return [f"{user(rows[k])},{item(panel.columns[k])},{rng.normal():.3f}" for k in every]


def text(some: list[str]) -> str:
    return HEADER + "".join(f"{line}\n" for line in some)


def in_memory(paths: list[Path], **options: Any) -> Panel:
    """The panel of all tables, as text where one of them has text for ids."""
    streams = [open_table(path) for path in paths]
    tables = [stream.reader.read_all().rename_columns(["row", "column", "value"]) for stream in streams]
    schema = pa.schema(
        [
            (name, pa.int64() if all(table[name].type == pa.int64() for table in tables) else pa.string())
            for name in ("row", "column")
        ]
        + [("value", pa.float64())]
    )
    whole = pa.concat_tables([table.cast(schema) for table in tables]).rename_columns(["user", "item", "rating"])
    return Panel.from_table(whole, row="user", column="item", value="rating", **options)


def assert_same(packed: Panel, expected: Panel) -> None:
    for name in ("indptr", "columns", "row_ids", "column_ids", "row_weights"):
        one, other = getattr(packed, name), getattr(expected, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    single = np.array_equal(expected.values.astype(np.float32), expected.values)
    assert packed.values.dtype == (np.float32 if single else np.float64)
    np.testing.assert_array_equal(packed.values, expected.values)
    assert (packed.shape, packed.has_row_ids, packed.has_column_ids) == (expected.shape, True, True)


# The same panel


def ids(kind: str) -> tuple[Callable[[int], object], Callable[[int], object]]:
    return {
        "integers": (lambda u: 1000 - 37 * u, lambda j: 7 * j - 20),
        "strings": (lambda u: f"u{u} – ü"[: 3 + u % 7] + str(u), lambda j: f"Ω{j}" if j % 3 else f"z{j}"),
        "mixed": (lambda u: u, lambda j: f"{j:03}"),
    }[kind]


@pytest.mark.parametrize("kind", ["integers", "strings", "mixed"])
def test_one_table(tmp_path: Path, write: Callable[..., Path], kind: str) -> None:
    table = write(text(lines(*ids(kind))))
    found = pack([table], tmp_path / "panel")
    panel = load_packed(tmp_path / "panel")
    assert_same(panel, in_memory([table]))
    assert (found.rows, found.columns, found.entries) == (*panel.shape, panel.n_entries)
    assert (found.lines_dropped, found.lines_merged) == (0, 0)
    assert found.bytes == sum(file.stat().st_size for file in (tmp_path / "panel").glob("data-*/*"))
    assert not list(tmp_path.glob(".*"))


def test_rows_in_several_tables_are_one_and_formats_mix(tmp_path: Path, write: Callable[..., Path]) -> None:
    every = lines(*ids("integers"))
    numbers = [line.split(",") for line in every[200:]]
    parquet = pa.table(
        {
            "user": [int(one[0]) for one in numbers],
            "item": pa.array([int(one[1]) for one in numbers], pa.int32()),
            "rating": [float(one[2]) for one in numbers],
        }
    )
    tables = [write(text(every[:90])), write(text(every[90:200]), "b.csv.gz"), write(parquet, "c.parquet")]
    pack(tables, tmp_path / "panel")
    assert_same(load_packed(tmp_path / "panel"), in_memory(tables))


def test_one_padded_id_makes_all_ids_of_its_side_strings(tmp_path: Path, write: Callable[..., Path]) -> None:
    tables = [write(f"{HEADER}7,1,1\n10,2,2\n9,1,3\n"), write(f"{HEADER}007,2,4\n", "b.csv")]
    pack(tables, tmp_path / "panel")
    panel = load_packed(tmp_path / "panel")
    assert panel.row_ids.tolist() == ["007", "10", "7", "9"]
    assert panel.column_ids.tolist() == [1, 2]
    assert_same(panel, in_memory(tables))


def test_values_are_single_where_that_loses_nothing(tmp_path: Path, write: Callable[..., Path]) -> None:
    exact = [f"{u},{j},{(u + j) / 8}" for u in range(30) for j in range(4)]
    pack([write(text(exact))], tmp_path / "panel")
    assert load_packed(tmp_path / "panel").values.dtype == np.float32
    table = write(text([*exact, "29,9,0.1"]))  # in the last block
    pack([table], tmp_path / "panel")
    assert_same(load_packed(tmp_path / "panel"), in_memory([table]))
    assert load_packed(tmp_path / "panel").values.dtype == np.float64


@pytest.mark.parametrize("duplicates", ["mean", "sum", "last"])
def test_duplicates_are_merged_in_the_order_of_lines(tmp_path: Path, write: Any, duplicates: Any) -> None:
    every = lines(*ids("strings"), repeat=400)
    tables = [write(text(every[300:])), write(text(every[:300]), "b.csv")]
    found = pack(tables, tmp_path / "panel", rules=ValueRules(duplicates))
    assert_same(load_packed(tmp_path / "panel"), in_memory(tables, duplicates=duplicates))
    assert found.lines_merged == 400


def test_rows_and_columns_all_of_whose_values_were_dropped_stay(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(f"{HEADER}b,x,NaN\na,x,1\nc,y,inf\na,z,NA\nd,x,\n")
    found = pack([table], tmp_path / "panel", rules=ValueRules(non_finite="drop"))
    panel = load_packed(tmp_path / "panel")
    assert_same(panel, in_memory([table], non_finite="drop"))
    assert (panel.shape, panel.n_entries, found.lines_dropped) == ((4, 3), 1, 4)


def test_a_panel_without_entries(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(f"{HEADER}b,x,NaN\n")
    pack([table], tmp_path / "panel", rules=ValueRules(non_finite="drop"))
    assert_same(load_packed(tmp_path / "panel"), in_memory([table], non_finite="drop"))


def test_a_row_longer_than_a_block(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(text([f"{u},{j},{j}" for j in range(300) for u in ((1, 2) if j % 50 == 0 else (1,))]))
    pack([table], tmp_path / "panel")
    assert_same(load_packed(tmp_path / "panel"), in_memory([table]))


# Panels that are mapped


@pytest.fixture
def packed(tmp_path: Path, write: Callable[..., Path]) -> Path:
    pack([write(text(lines(*ids("strings"))))], tmp_path / "panel")
    return tmp_path / "panel"


def test_mapped_arrays_are_not_in_memory_and_cannot_be_written_to(packed: Path) -> None:
    panel = load_packed(packed)
    for array in (panel.indptr, panel.columns, panel.values, panel.row_ids, panel.column_ids, panel.row_weights):
        assert not array.flags.writeable
    for array in (panel.indptr, panel.columns, panel.values):
        assert type(array) is np.ndarray
        owner: Any = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert isinstance(owner, np.memmap)


def test_row_ids_are_read_when_asked_for(packed: Path) -> None:
    panel = load_packed(packed)
    some = panel.with_row_weights(np.arange(60)).take_rows([50, 3])
    assert "all" not in vars(panel.given_row_ids)
    assert some.row_ids.tolist() == panel.row_ids[[50, 3]].tolist()
    with pytest.raises(InputError, match=re.escape(f"row {panel.row_ids[3]!r} is taken more than once")):
        load_packed(packed).take_rows([3, 3])


def test_what_a_panel_does_it_does_when_mapped(packed: Path, write: Callable[..., Path]) -> None:
    panel, expected = load_packed(packed), in_memory([packed.parent / "table.csv"])
    assert_same(copy.deepcopy(panel), expected)
    assert panel.row_positions(panel.row_ids[:3]).tolist() == [0, 1, 2]
    some = panel.column_ids[::-2]
    assert_same(panel.align_columns(some, unknown="drop"), expected.align_columns(some, unknown="drop"))
    np.testing.assert_array_equal(panel.to_dense(), expected.to_dense())


def test_a_fit_is_the_same(packed: Path) -> None:
    expected = in_memory([packed.parent / "table.csv"])
    factors = [OneSidedCompletion(2, random_state=0).fit(one).factor_ for one in (load_packed(packed), expected)]
    np.testing.assert_array_equal(*factors)


# Refusals

BAD_TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "missing and infinite values": (["1,a,2", "3,b,", "2,b,inf", "1,b,nan"], {}),
    "values too large": (["1,a,2", "1,b,-3e80"], {}),
    "one pair twice": (["1,a,2", "1,b,3", "2,a,4", "1,a,5", "1,a,nan", "2,a,4"], {"non_finite": "drop"}),
    "one pair twice, text": (["x,2,2", "x,1,3", "x,1,4"], {}),
    "merged values too large": (["x,2,9e74", "x,2,9e74"], {"duplicates": "sum"}),
    "an option that there is not": (["x,2,1"], {"duplicates": "first"}),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_tables_are_refused_as_they_are_in_memory(tmp_path: Path, write: Callable[..., Path], case: str) -> None:
    bad, options = BAD_TABLES[case]
    table = write(text(bad))
    with pytest.raises(InputError) as expected:
        in_memory([table], **options)
    with pytest.raises(InputError) as found:
        pack([table], tmp_path / "panel", rules=ValueRules(**options))
    assert str(found.value) == str(expected.value)
    assert not (tmp_path / "panel").exists()


def test_counts_are_of_all_tables_and_blocks(tmp_path: Path, write: Callable[..., Path]) -> None:
    every = lines(*ids("integers"), repeat=50)
    tables = [write(text(every[:100])), write(text([*every[100:], "5,3,nan", "6,3,inf"]), "b.csv")]
    for options in ({}, {"non_finite": "drop"}):
        with pytest.raises(InputError) as expected:
            in_memory(tables, **options)
        with pytest.raises(InputError) as found:
            pack(tables, tmp_path / "panel", rules=ValueRules(**options))
        assert str(found.value) == str(expected.value)


def test_missing_ids(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(text([*lines(*ids("integers")), ",3,1", "4,4,2", ",5,1"]))
    with pytest.raises(InputError, match=r"'user' of .*table.csv has 2 missing ids \(first at position 300\)"):
        pack([table], tmp_path / "panel")
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("other", ["text", "parquet"])
def test_integers_and_strings_are_not_one_kind(tmp_path: Path, write: Callable[..., Path], other: str) -> None:
    integers = write(pa.table({"user": [1], "item": [2], "rating": [3.0]}), "a.parquet")
    strings = {
        "text": lambda: write(f"{HEADER}01,2,3\n"),
        "parquet": lambda: write(pa.table({"user": ["1"], "item": [3], "rating": [3.0]}), "b.parquet"),
    }[other]()
    with pytest.raises(InputError, match=r"the row ids of .*a.parquet are integers, those of .* are strings"):
        pack([strings, integers], tmp_path / "panel")


def test_what_is_in_the_way_is_left_alone(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(f"{HEADER}1,2,3\n")
    (tmp_path / "folder").mkdir()
    for path in (table, tmp_path / "folder"):
        with pytest.raises(InputError, match="it exists, and is not a packed panel"):
            pack([table], path)
    with pytest.raises(InputError, match="does not exist"):
        pack([table], tmp_path / "nowhere" / "panel")
    with pytest.raises(InputError, match="is not a file"):
        pack([tmp_path / "no.csv"], tmp_path / "panel")
    assert table.read_text() == f"{HEADER}1,2,3\n"


def test_without_duckdb(tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=re.escape("pip install 'onesided[pack]'")):
        pack([write(f"{HEADER}1,2,3\n")], tmp_path / "panel")
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]


# Damage


def header(path: Path, **changes: Any) -> None:
    file = path / "panel.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def data(path: Path, name: str) -> Path:
    (file,) = path.glob(f"data-*/{name}")
    return file


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def replace(file: Path, array: Any) -> None:
    size = file.stat().st_size
    np.save(file, array)
    file.write_bytes(file.read_bytes().ljust(size, b"\0")[:size])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no header": (lambda path: (path / "panel.json").unlink(), "is not a packed panel: it has no panel.json"),
    "no folder": (shutil.rmtree, "there is no folder"),
    "header cut": (lambda path: cut(path / "panel.json"), "is damaged: its panel.json cannot be read"),
    "another format": (lambda path: header(path, format="x"), "its panel.json is of something else"),
    "a list": (lambda path: (path / "panel.json").write_text("[]"), "its panel.json is of something else"),
    "newer": (lambda path: header(path, version=9), "has format version 9; this release reads up to 1: upgrade"),
    "files outside": (lambda path: header(path, folder="../x"), "its files are said to lie outside"),
    "a file gone": (lambda path: data(path, "values.npy").unlink(), "is damaged: values.npy is not there"),
    "a file cut": (lambda path: cut(data(path, "columns.npy")), "is damaged: columns.npy has 1,"),
    "lengths": (lambda path: header(path, entries=299), "do not have the lengths"),
    "ids": (lambda path: header(path, columns=7), "7 columns but 25 ids"),
    "no columns": (lambda path: header(path, columns=0), "at least one row and one column"),
    "another type": (lambda path: replace(data(path, "values.npy"), np.zeros(300, np.int64)), "holds int64"),
    "falling": (
        lambda path: replace(data(path, "indptr.npy"), np.r_[0, 9, 5, np.full(58, 300)]),
        "its row pointers do not rise from 0 to 300",
    ),
    "no array": (lambda path: data(path, "columns.npy").write_bytes(bytes(1328)), "is damaged and cannot be read"),
    "no ids": (lambda path: data(path, "row_ids.arrow").write_bytes(bytes(2658)), "is damaged"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_refused_by_name(packed: Path, case: str) -> None:
    damage, message = DAMAGES[case]
    damage(packed)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        load_packed(packed)
    assert str(packed) in str(refused.value) or case == "no columns"


def test_a_damaged_panel_can_be_packed_again(packed: Path) -> None:
    table = packed.parent / "table.csv"
    data(packed, "values.npy").unlink()
    pack([table], packed)
    assert_same(load_packed(packed), in_memory([table]))
    header(packed, kind="model")
    with pytest.raises(InputError, match="is not a packed panel"):
        pack([table], packed)


def test_what_is_packed(packed: Path) -> None:
    assert is_packed(packed)
    assert not is_packed(packed.parent)
    assert not is_packed(packed.parent / "table.csv")


# Stopped, and gone on with

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from onesided.panels.packed import format, resume, sort

    def dies(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    place, path, tables = sys.argv[1], sys.argv[2], sys.argv[3:]
    note = resume.Notes.note
    def noted(notes, name, result):
        if place == f"before {name}":
            dies()  # it is there, but not noted
        note(notes, name, result)
        if place == f"after {name}":
            dies()
    resume.Notes.note = noted
    if place == "inside":
        sort.PackedWriter.finish = dies
    if place == "before the header":
        format.os.replace = lambda *names: dies() if Path(names[1]) == Path(path, "panel.json") else os.rename(*names)
    if place == "in its place":
        resume.Notes.remove = dies
    if place == "before the end":
        resume.shutil.rmtree = dies
    sort.pack(tables, path)
"""
PLACES = [
    "after entries-0.parquet",
    "before entries-1.parquet",
    "after columns.parquet",
    "before sorted.parquet",
    "after sorted.parquet",
    "inside",
    "before panel",
    "after panel",
    "before the header",
    "in its place",
    "before the end",
]


def killed(place: str, path: Path, tables: list[Path]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), place, path, *tables]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_and_gone_on_with(tmp_path: Path, write: Callable[..., Path], place: str) -> None:
    every = lines(*ids("strings"))
    tables = [write(text(every[:100])), write(text(every[100:]), "b.csv")]
    path = tmp_path / "panel"
    before = None
    if place == "before the header":  # only then is there anything to be replaced
        pack([write(f"{HEADER}1,2,3\n", "old.csv")], path)
        before = load_packed(path)
    killed(place, path, tables)
    if place in ("in its place", "before the end"):
        assert_same(load_packed(path), in_memory(tables))
    elif before is not None:
        assert load_packed(path).row_ids.tolist() == [1]
        assert before.values.tolist() == [3.0]
    else:
        assert not path.exists()
    notes: list[str] = []
    pack(tables, path, note=notes.append)
    assert [note.split(" after")[0] for note in notes] == ([] if place == "before the end" else ["Continuing"])
    assert_same(load_packed(path), in_memory(tables))
    assert not list(tmp_path.glob(".*"))
    assert len(list(path.iterdir())) == 2


def test_only_what_changed_is_done_again_and_it_is_said(tmp_path: Path, write: Callable[..., Path]) -> None:
    every = lines(*ids("integers"), repeat=20)
    tables = [write(text(every[:100])), write(text(every[100:]), "b.csv")]
    path, notes = tmp_path / "panel", list[str]()
    with pytest.raises(InputError, match="20 entries repeat"):
        pack(tables, path)
    titles = list[str]()

    def bar(title: str) -> Any:
        titles.append(title)
        return nullcontext(lambda done, total: None)

    pack(tables, path, rules=ValueRules("last"), note=notes.append, progress=bar)
    assert titles == ["Sorting entries", "Packing"]
    assert_same(load_packed(path), in_memory(tables, duplicates="last"))

    killed("after panel", tmp_path / "other", tables[:1])
    tables[0] = write(text(every[:90]))
    notes, titles = [], []
    pack(tables[:1], tmp_path / "other", note=notes.append, progress=bar)
    assert titles == ["Reading table.csv", "Sorting columns", "Sorting entries", "Packing"]
    assert notes[0] == "Continuing after 4 passes of an earlier run"
    assert notes[1] == "Reading table.csv: once more, as tables or options are not those of the earlier run"
    assert_same(load_packed(tmp_path / "other"), in_memory(tables[:1]))


def test_a_run_whose_notes_are_of_the_first_format_goes_on(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(text(lines(*ids("strings"))))
    killed("after sorted.parquet", tmp_path / "panel", [table])
    noted = tmp_path / ".panel.part" / "passes.jsonl"
    passes = [json.loads(line) for line in noted.read_text().splitlines()[1:]]
    old = {name: {"key": key, "found": result} for name, key, result in passes}
    noted.with_name("passes.json").write_text(json.dumps(old, indent=1))
    noted.unlink()
    notes, titles = list[str](), list[str]()

    def bar(title: str) -> Any:
        titles.append(title)
        return nullcontext(lambda done, total: None)

    pack([table], tmp_path / "panel", note=notes.append, progress=bar)
    assert (notes, titles) == (["Continuing after 3 passes of an earlier run"], ["Packing"])
    assert_same(load_packed(tmp_path / "panel"), in_memory([table]))
    assert not list(tmp_path.glob(".*"))


def test_stopped_by_hand(tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sort, "merge_entries", stopped)
        table = write(f"{HEADER}1,2,3\n")
        result = CliRunner().invoke(main, ["pack", str(table), "-o", str(tmp_path / "panel")])
    assert result.exit_code == 1
    assert f"What is finished stays in {tmp_path / '.panel.part'}" in result.stderr
    pack([table], tmp_path / "panel")
    assert load_packed(tmp_path / "panel").shape == (1, 1)


@pytest.mark.parametrize(
    ("found", "told", "message"),
    [
        (duckdb.OutOfMemoryException("full"), InputError, "64 megabytes are too little .* allow more with memory=$"),
        (duckdb.InterruptException("Interrupted"), KeyboardInterrupt, "^$"),
        (RuntimeError("Query interrupted"), KeyboardInterrupt, "^$"),
        (duckdb.IOException("No space left"), OSError, "No space left"),
        (RuntimeError("something else"), RuntimeError, "something else"),
    ],
)
def test_what_goes_wrong_in_a_sort(found: Exception, told: Any, message: str) -> None:
    class Failing:
        def execute(self, *_: Any) -> None:
            raise found

    with pytest.raises(told, match=message):
        database.Database(Failing(), 64).run("SELECT 1")


def test_two_at_once(tmp_path: Path, write: Callable[..., Path]) -> None:
    table = write(f"{HEADER}1,2,3\n")
    folder = tmp_path / ".panel.part"
    folder.mkdir()
    holds = f"import duckdb; held = duckdb.connect({str(folder / 'sort.duckdb')!r}); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match="another run is packing"):
            pack([table], tmp_path / "panel")
        other.communicate(b"\n")


# The command


def test_command(tmp_path: Path, write: Callable[..., Path]) -> None:
    every = [line.replace(",0.", ",") for line in lines(*ids("integers"), repeat=3)]
    tables = [write(text(every[:100])), write(text([*every[100:], "1,2,NA"]), "b.csv")]
    path = tmp_path / "it's [a] pan?el"
    command = ["pack", *map(str, tables), "-o", str(path), "--duplicates", "sum", "--non-finite", "drop", "--json"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    panel = in_memory(tables, duplicates="sum", non_finite="drop")
    assert_same(load_packed(path), panel)
    assert found.pop("bytes") > 0
    assert found == {
        "panel": str(path),
        "rows": panel.n_rows,
        "columns": panel.n_columns,
        "entries": panel.n_entries,
        "lines_dropped": 1,
        "lines_merged": 3,
    }


def run(*arguments: Any) -> dict[str, Any]:
    result = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_commands_take_a_packed_panel_in_the_place_of_a_table(tmp_path: Path, packed: Path) -> None:
    fitted = run("fit", packed, "-o", tmp_path / "model", "--rank", 1)
    assert fitted["entries"] == load_packed(packed).n_entries
    assert OneSidedCompletion.load(tmp_path / "model").second_moment_.panel is None  # it stays where it is
    assert run("inspect", packed)["rows"] == fitted["rows"]
    assert run("impute", tmp_path / "model", packed, "-o", tmp_path / "out.csv")["rows"] == fitted["rows"]
    result = CliRunner().invoke(main, ["fit", str(packed), "-o", str(tmp_path / "m"), "--row", "user"])
    assert result.exit_code == 2
    assert "--row cannot be said of" in result.stderr
    result = CliRunner().invoke(main, ["fit", str(tmp_path), "-o", str(tmp_path / "m")])
    assert "is not a packed panel: it has no panel.json" in result.stderr
