"""Tables larger than memory into a packed panel: an external sort, in passes that a later run can go on from.

1. Each table is copied into a Parquet file of its entries, ids as they are written, and what ``Panel.from_table``
   would refuse is counted.
2. The distinct column ids are sorted, and numbered.
3. All entries are sorted by row id; entries of one pair by their line, where that matters.
4. They are read in that order, a block of whole rows at a time, and made compressed rows as any panel's are.
5. The finished panel is renamed.

DuckDB does the sorting, in as much memory as it is given and on the disk for the rest. Nothing else grows with the
table: a pass holds one block of it, all column ids and, at the least, all lines of one row.

Passes work in the folder ``.NAME.part`` beside the panel. What one has finished is renamed there and then noted in
``passes.json``, with a key made of all that it depends on: the tables (path, size and time of change), the options,
the passes before it. A run does the passes that are not noted with the key they would have now.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesided.compressed import LARGEST_VALUE, Duplicates, NonFinite, check_options, check_shape, compress
from onesided.errors import InputError, counted, shown
from onesided.packed import HEADER, PackedWriter, is_packed, publish, read_header
from onesided.storage import written_beside
from onesided.tables import Progress, plain_integers, stream_table

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
Bar = Callable[[str], AbstractContextManager[Progress]]  # of a title: what is called with how much of how much

LINES = 1 << 17  # in a group of a Parquet file
BLOCK_LINES = 1 << 20  # made compressed rows at a time, and the rest of the last row
THREADS = 2  # of DuckDB: each of them takes memory of its own
_AXES = ("row", "column")
_Block = tuple[Any, Array, Array, Array]


@dataclass(frozen=True)
class Packed:
    """What was packed: the shape of the panel, the lines that are not entries of it, and its size on the disk."""

    rows: int
    columns: int
    entries: int
    lines_dropped: int
    lines_merged: int
    bytes: int


def pack(
    tables: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    duplicates: Duplicates = "refuse",
    non_finite: NonFinite = "refuse",
    memory: int = 256,
    progress: Bar | None = None,
    note: Callable[[str], object] | None = None,
) -> Packed:
    """Pack the entries of tables into one packed panel, the one that ``Panel.from_table`` makes of them all.

    Parameters
    ----------
    tables : paths
        Long tables as ``tables.stream_table`` reads them. A row id in several tables is one row. Ids are integers
        if all tables write them as that.
    path : path
        The panel. A packed panel that is there is replaced once the new one is finished; nothing else is.
    row, column, value, duplicates, non_finite
        As for ``tables.stream_table`` and ``Panel.from_table``.
    memory : int
        Megabytes for the sort; the process takes some 200 more.
    progress : function, optional
        Called with the title of each pass; yields, as a context, what is then called with how much of how much.
    note : function, optional
        Called with a sentence where an earlier run is continued, or passes of it are done again.
    """
    check_options(duplicates, non_finite)
    sources, path, note = list(map(Path, tables)), Path(path), note or (lambda sentence: None)
    _check_paths(sources, path)
    with _Work.opened(path, memory, progress or (lambda title: nullcontext(lambda done, total: None)), note) as work:
        read = _read_tables(work, sources, {"row": row, "column": column, "value": value})
        kinds = {axis: _settled(axis, read) for axis in _AXES}
        _check_values(read, kinds, non_finite)
        n_columns = _sort_columns(work, read, kinds)
        _sort_entries(work, read, kinds, by_line=duplicates != "refuse")
        packed = _write_panel(work, path, read, kinds, n_columns, duplicates)
        if (work.folder / "panel" / HEADER).exists():  # not yet in its place
            publish(work.folder / "panel", path)
    shutil.rmtree(work.folder)
    return packed


def _check_paths(sources: list[Path], path: Path) -> None:
    if not sources:
        raise InputError("there is nothing to pack: give at least one table")
    for source in sources:
        if not source.is_file():
            raise InputError(f"{source} is not a file; give the path of a text or Parquet file of entries")
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.exists() and not is_packed(path):
        raise InputError(f"cannot write {path}: it exists, and is not a packed panel; name another folder")
    if path.exists():
        read_header(path)  # refuses what is of something else, or newer


@dataclass
class _Work:
    """The folder beside the panel, what was finished in it, and the connection that sorts (and locks it)."""

    folder: Path
    memory: int
    bar: Bar
    note: Callable[[str], object]
    connection: Any
    finished: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def opened(cls, path: Path, memory: int, bar: Bar, note: Callable[[str], object]) -> Iterator[_Work]:
        folder = path.absolute().with_name(f".{path.absolute().name}.part")
        connection = _connect(folder, path, memory)
        work = cls(folder, memory, bar, note, connection)
        try:
            work._take_stock()
            yield work
        except BaseException:
            if work.finished:
                note(f"What is finished stays in {folder}; packing to {path} again goes on from there")
            raise
        finally:
            connection.close()
            if not work.finished:
                shutil.rmtree(folder)

    def _take_stock(self) -> None:
        """Read what is noted as finished, and remove what is not."""
        noted = self.folder / "passes.json"
        if noted.exists():
            self.finished = json.loads(noted.read_text(encoding="utf-8"))
            self.note(f"Continuing after {counted(len(self.finished), 'pass', 'passes')} of an earlier run")
        for other in self.folder.iterdir():
            if other.name not in {noted.name, *self.finished} and not other.name.startswith("sort.duckdb"):
                shutil.rmtree(other) if other.is_dir() else other.unlink()

    def once(self, name: str, depends: Any, title: str, do: Callable[[Path, Progress], dict[str, Any]]) -> _Finished:
        """What was noted of the pass that makes the file ``name``; it is done unless it was, with the same key."""
        import pyarrow as pa

        key = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()
        before = self.finished.get(name)
        if before is not None and before["key"] == key:
            return _Finished(key, before["found"])
        if before is not None:
            self.note(f"{title}: once more, as tables or options are not those of the earlier run")
            self.forget(name)
        with self.bar(title) as report:
            found = do(self.folder / name, report)
        pa.default_memory_pool().release_unused()  # Arrow would keep it, and DuckDB has its own
        self.finished[name] = {"key": key, "found": found}
        self._write()
        return _Finished(key, found)

    def forget(self, name: str) -> None:
        """Have a pass done once more."""
        del self.finished[name]
        self._write()
        old = self.folder / name
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)

    def _write(self) -> None:
        with written_beside(self.folder / "passes.json") as temporary:
            temporary.write_text(json.dumps(self.finished, indent=1), encoding="utf-8")

    def sql(self, query: str, *parameters: Any) -> list[Any]:
        import duckdb

        try:
            rows: list[Any] = self.connection.execute(query, parameters).fetchall()
        except duckdb.OutOfMemoryException as error:
            raise InputError(
                f"{self.memory} megabytes are too little to sort these entries; allow more with memory="
            ) from error
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except duckdb.IOException as error:
            raise OSError(str(error)) from error
        return rows

    def copy(self, query: str, target: Path) -> None:
        """Write what a query yields, in its order, to a Parquet file."""
        with written_beside(target) as temporary:
            self.sql(f"COPY ({query}) TO {_text(temporary)} (FORMAT parquet, ROW_GROUP_SIZE {LINES})")


@dataclass(frozen=True)
class _Finished:
    key: str
    found: dict[str, Any]


def _connect(folder: Path, path: Path, memory: int) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError("packing sorts with DuckDB, which is not installed; pip install 'onesided[pack]'") from error
    folder.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "memory_limit": f"{memory}MB",
        "threads": THREADS,
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    try:
        return duckdb.connect(str(folder / "sort.duckdb"), config=settings)
    except duckdb.IOException as error:
        if "lock" in str(error):
            raise InputError(f"another run is packing {path}, in {folder}; wait for it or stop it") from error
        raise OSError(str(error)) from error


# Pass 1


@dataclass
class _Read:
    """The entries of one table in a file of their own, and what was found among them."""

    source: Path
    entries: Path
    done: _Finished

    @property
    def found(self) -> dict[str, Any]:
        return self.done.found


def _read_tables(work: _Work, sources: list[Path], names: dict[str, str | None]) -> list[_Read]:
    read: list[_Read] = []
    first_line = 0
    for k, source in enumerate(sources):

        def do(target: Path, report: Progress, source: Path = source, first_line: int = first_line) -> dict[str, Any]:
            return _copy_entries(source, target, names, first_line, report)

        entries = f"entries-{k}.parquet"
        done = work.once(entries, [_state(source), names, first_line], f"Reading {source.name}", do)
        read.append(_Read(source, work.folder / entries, done))
        first_line += done.found["lines"]
    return read


def _state(source: Path) -> list[Any]:
    """What tells whether a file has changed."""
    found = source.stat()
    return [str(source.absolute()), found.st_size, found.st_mtime_ns]


def _copy_entries(
    source: Path, target: Path, names: dict[str, str | None], first_line: int, report: Progress
) -> dict[str, Any]:
    """Copy a table to a Parquet file, ids as text and lines numbered; what was found on the way."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    before = _state(source)
    stream = stream_table(source, **names, progress=report)
    assert stream.value is not None
    found = _Findings(source, (stream.row, stream.column, stream.value), stream.reader.schema.types)
    kinds = (pa.string(), pa.string(), pa.float64(), pa.int64())
    schema = pa.schema(list(zip(("row_id", "column_id", "value", "line"), kinds, strict=True)))
    # Without dictionaries and statistics, which nobody reads: they take four times as long to write.
    options = {"use_dictionary": False, "write_statistics": False, "column_encoding": {"line": "DELTA_BINARY_PACKED"}}
    with written_beside(target) as temporary, pq.ParquetWriter(temporary, schema, **options) as writer:
        for table in _gathered(stream.reader):
            line = first_line + found.lines
            found.add(table)
            columns = [one.cast(kind) for one, kind in zip(table.columns, kinds[:3], strict=True)]
            numbers = pa.array(np.arange(line, line + table.num_rows))
            writer.write_table(pa.table([*columns, numbers], schema=schema))
    if _state(source) != before:
        raise InputError(f"{source} was changed while it was read; pack it again when it is finished")
    return found.to_dict()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together, so that a group of lines in the file is not too small."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= LINES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


class _Findings:
    """Counts over the lines of a table, as they pass."""

    def __init__(self, source: Path, names: tuple[str, str, str], types: Sequence[pa.DataType]) -> None:
        self._source, self._names = source, names
        self.lines = self._infinite = self._missing = 0
        self._largest = 0.0
        self._first_non_finite: list[str] | None = None
        self._no_ids = {axis: [0, 0] for axis in _AXES}  # how many, and where the first is
        with source.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        # Of text it is open until the end whether ids are integers.
        self._kinds = {
            axis: "strings" if not str(kind).startswith("int") and parquet else "integers"
            for axis, kind in zip(_AXES, types, strict=False)
        }
        self._written = {axis: str(kind).startswith("int") for axis, kind in zip(_AXES, types, strict=False)}

    def add(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        for k, axis in enumerate(_AXES):
            ids = table.column(k)
            if ids.null_count:
                if not self._no_ids[axis][0]:
                    self._no_ids[axis][1] = self.lines + pc.index(pc.is_null(ids), True).as_py()
                self._no_ids[axis][0] += ids.null_count
            if self._kinds[axis] == "integers" and not self._written[axis] and not plain_integers(ids):
                self._kinds[axis] = "strings"
        values = table.column(2).to_numpy()  # null becomes NaN
        finite = np.isfinite(values)
        if not finite.all():
            if self._first_non_finite is None:
                at = int(np.argmin(finite))
                self._first_non_finite = [str(table.column(k)[at].as_py()) for k in range(2)]
            self._infinite += int(np.isinf(values).sum())
            self._missing += int(np.isnan(values).sum())
        self._largest = max(self._largest, float(np.abs(values[finite]).max(initial=0)))
        self.lines += table.num_rows

    def to_dict(self) -> dict[str, Any]:
        """What was found, if every line has its ids."""
        for k, axis in enumerate(_AXES):
            missing, first = self._no_ids[axis]
            if missing:
                raise InputError(
                    f"{self._names[k]!r} of {self._source} has {counted(missing, 'missing id')} "
                    f"(first at position {first}); drop them"
                )
        return {
            "lines": self.lines,
            "value": self._names[2],
            "kinds": self._kinds,
            "written_as_integers": self._written,
            "infinite": self._infinite,
            "missing": self._missing,
            "first_non_finite": self._first_non_finite,
            "largest": self._largest,
        }


# What all tables together are


def _settled(axis: str, read: list[_Read]) -> str:
    """Whether the ids of all tables are integers or strings."""
    strings = next((one for one in read if one.found["kinds"][axis] == "strings"), None)
    integers = next((one for one in read if one.found["written_as_integers"][axis]), None)
    if strings and integers:
        raise InputError(
            f"the {axis} ids of {integers.source} are integers, those of {strings.source} are strings; "
            "ids must be all integers or all strings: write them alike"
        )
    return "strings" if strings else "integers"


def _where(read: list[_Read]) -> str:
    names = list(dict.fromkeys(one.found["value"] for one in read))
    return f"column {names[0]!r}" if len(names) == 1 else "the column of values"


def _place(ids: Sequence[Any], kinds: dict[str, str]) -> str:
    """A row and a column, by ids that may still be text."""
    said = [shown(int(one) if kinds[axis] == "integers" else one) for one, axis in zip(ids, _AXES, strict=True)]
    return f"row {said[0]}, column {said[1]}"


def _check_values(read: list[_Read], kinds: dict[str, str], non_finite: NonFinite) -> None:
    """Refuse the values that ``compress`` would refuse, had it all of them at once."""
    infinite, missing = (sum(one.found[name] for one in read) for name in ("infinite", "missing"))
    if non_finite == "refuse" and infinite + missing:
        parts = [counted(infinite, "infinite value")] if infinite else []
        parts += [counted(missing, "NaN or missing value")] if missing else []
        first = next(one.found["first_non_finite"] for one in read if one.found["first_non_finite"])
        raise InputError(
            f"{_where(read)} has {' and '.join(parts)} (first at {_place(first, kinds)}); "
            'drop them or pass non_finite="drop"'
        )
    largest = max(one.found["largest"] for one in read)
    if largest > LARGEST_VALUE:
        raise InputError(
            f"{_where(read)} reaches {largest:.3g} in magnitude, beyond {LARGEST_VALUE:.0e}, where moments overflow; "
            "rescale the values first"
        )


# Passes 2 and 3


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _scanned(*paths: Path) -> str:
    """Parquet files as a table of SQL; in their paths *, ? and [ are letters as others."""
    plain = [Path("".join(f"[{one}]" if one in "*?[" else one for one in str(path))) for path in paths]
    return f"read_parquet([{', '.join(map(_text, plain))}])"


def _as_kind(name: str, kind: str) -> str:
    return f"CAST({name} AS BIGINT)" if kind == "integers" else name


def _sort_columns(work: _Work, read: list[_Read], kinds: dict[str, str]) -> int:
    def do(target: Path, report: Progress) -> dict[str, Any]:
        column_id = _as_kind("column_id", kinds["column"])
        distinct = f"SELECT DISTINCT {column_id} AS id FROM {_scanned(*(one.entries for one in read))}"
        work.copy(f"SELECT id, row_number() OVER (ORDER BY id) - 1 AS code FROM ({distinct}) ORDER BY id", target)
        ((count,),) = work.sql(f"SELECT count(*) FROM {_scanned(target)}")
        return {"columns": count}

    depends = [[one.done.key for one in read], kinds]
    found = work.once("columns.parquet", depends, "Sorting columns", do).found
    return check_shape(1, found["columns"])[1]


def _sort_entries(work: _Work, read: list[_Read], kinds: dict[str, str], by_line: bool) -> None:
    def do(target: Path, report: Progress) -> dict[str, Any]:
        row_id, column_id = (_as_kind(f"{axis}_id", kinds[axis]) for axis in _AXES)
        work.copy(
            f"SELECT {row_id} AS id, CAST(code AS INTEGER) AS code, value "
            f"FROM {_scanned(*(one.entries for one in read))} "
            f"JOIN {_scanned(work.folder / 'columns.parquet')} AS columns ON {column_id} = columns.id "
            f"ORDER BY {row_id}{', line' if by_line else ''}",
            target,
        )
        return {}

    work.once("sorted.parquet", [[one.done.key for one in read], kinds, by_line], "Sorting entries", do)


# Pass 4


def _write_panel(
    work: _Work, path: Path, read: list[_Read], kinds: dict[str, str], n_columns: int, duplicates: Duplicates
) -> Packed:
    lines = sum(one.found["lines"] for one in read)
    dropped = sum(one.found["infinite"] + one.found["missing"] for one in read)

    def do(target: Path, report: Progress) -> dict[str, Any]:
        unfinished = target.with_suffix(".unfinished")
        writer = _compress_blocks(work, unfinished, read, kinds, n_columns, duplicates, report)
        size = writer.finish()
        os.rename(unfinished, target)
        shape = {"rows": writer.n_rows, "columns": n_columns, "entries": writer.n_entries}
        return {"packed": shape | {"bytes": size}, "folder": writer.name}

    noted = work.finished.get("panel")
    if noted and not (work.folder / "panel" / HEADER).exists() and not _in_place(path, noted["found"]["folder"]):
        work.forget("panel")  # it was given its place, and taken from there
    depends = [[one.done.key for one in read], kinds, duplicates]
    found = work.once("panel", depends, "Packing", do).found["packed"]
    return Packed(**found, lines_dropped=dropped, lines_merged=lines - dropped - found["entries"])


def _in_place(path: Path, folder: str) -> bool:
    return is_packed(path) and read_header(path)["folder"] == folder


def _compress_blocks(
    work: _Work,
    folder: Path,
    read: list[_Read],
    kinds: dict[str, str],
    n_columns: int,
    duplicates: Duplicates,
    report: Progress,
) -> PackedWriter:
    import pyarrow.parquet as pq

    column_ids = _as_large(pq.read_table(work.folder / "columns.parquet")["id"]).combine_chunks()
    with pq.ParquetFile(work.folder / "sorted.parquet") as file:
        lines = file.metadata.num_rows
        writer: PackedWriter | None = None
        repeated, example, done = 0, None, 0
        try:
            for block in _whole_rows(map(file.read_row_group, range(file.num_row_groups))):
                ids, columns, values, starts = block
                writer = writer or PackedWriter(folder, ids.type, column_ids)
                rows = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
                merge: Duplicates = "last" if duplicates == "refuse" else duplicates  # refused at the end, all counted
                coded = (None, rows, len(starts)), (None, columns, n_columns)
                compressed = compress(*coded, values, _where(read), merge, "drop")
                more = int(np.isfinite(values).sum()) - len(compressed[2])
                if more and example is None and duplicates == "refuse":
                    u, j = _first_repeated(rows, columns, np.isfinite(values))
                    example = ids[u].as_py(), column_ids[j].as_py()
                repeated += more
                writer.append(ids, *compressed)
                done += len(values)
                report(done, lines)
        finally:
            if writer:
                writer.close()
    assert writer is not None
    if example is not None:
        raise InputError(_repeats(work, read, kinds, repeated, example))
    return writer


def _as_large(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    return ids.cast(pa.large_string()) if pa.types.is_string(ids.type) else ids


def _whole_rows(groups: Iterable[pa.Table]) -> Iterator[_Block]:
    """Sorted entries in blocks of whole rows: the id of each row, columns, values, and where each row starts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def cut(table: pa.Table, ended: bool) -> Generator[_Block, None, pa.Table]:
        ids = _as_large(table["id"]).combine_chunks()
        rises = pc.less(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False)
        if np.any(~rises & pc.not_equal(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False)):
            raise RuntimeError("the sorted entries are not in order of their rows: report this, with DuckDB's version")
        starts = np.append(0, np.flatnonzero(rises) + 1)
        stop = table.num_rows if ended else int(starts[-1])  # more of the last row may follow
        starts = starts[starts < stop]
        if stop:
            columns, values = (table[name][:stop].to_numpy() for name in ("code", "value"))
            yield ids.take(pa.array(starts)), columns, values, starts
        return table[stop:]

    held: list[pa.Table] = []
    enough = BLOCK_LINES
    for group in groups:
        held.append(group)
        if sum(one.num_rows for one in held) >= enough:
            held = [(yield from cut(pa.concat_tables(held), False))]
            enough = BLOCK_LINES + 2 * held[0].num_rows  # else a very long row would be looked at too often
    yield from cut(pa.concat_tables(held), True)


def _first_repeated(rows: Array, columns: Array, finite: Array) -> tuple[int, int]:
    rows, columns = rows[finite], columns[finite]
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    k = int(np.argmax((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])))
    return int(rows[k]), int(columns[k])


def _repeats(work: _Work, read: list[_Read], kinds: dict[str, str], count: int, example: tuple[Any, Any]) -> str:
    (first,), (second,) = work.sql(
        f"SELECT value FROM {_scanned(*(one.entries for one in read))} "
        "WHERE row_id = ? AND column_id = ? AND isfinite(value) ORDER BY line LIMIT 2",
        *map(str, example),
    )
    return (
        f"{counted(count, 'entry repeats', 'entries repeat')} an earlier (row, column) pair, "
        f"for example {_place(example, kinds)} with values {first:g} and {second:g}; "
        'say how to merge them: duplicates="mean", "sum" or "last"'
    )
