"""Tables larger than memory into a packed panel: an external sort, in passes that a later run can go on from.

1. Each table is copied into a Parquet file of its entries, ids as they are written, and what ``Panel.from_table``
   would refuse is counted.
2. The distinct column ids are sorted, and numbered.
3. All entries are sorted by row id; entries of one pair by their line, where that matters.
4. They are read in that order, a block of whole rows at a time, and made compressed rows as any panel's are.
5. The finished panel is renamed.

DuckDB does the sorting, in as much memory as it is given and on the disk for the rest. Nothing else grows with the
table: a pass holds one block of it, all column ids and, at the least, all lines of one row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesided.errors import EXPECTED, InputError, counted
from onesided.panels.csr import Duplicates, NonFinite, check_options, check_shape, compress
from onesided.panels.packed.format import HEADER, PackedWriter, is_packed, publish, read_header
from onesided.panels.packed.resume import Bar, Workshop, scanned
from onesided.panels.packed.scan import AXES, Read, check_values, place, read_tables, settled_kind, value_name
from onesided.panels.table_files import Progress

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
_Block = tuple[Any, Array, Array, Array]

BLOCK_LINES = 1 << 20  # made compressed rows at a time, and the rest of the last row


@dataclass(frozen=True)
class Packed:
    """What was packed: the shape of the panel, the lines that are not entries of it, and its size on the disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Path(folder, "ratings.csv")
    ...     _ = table.write_text("user,film,stars\\n7,Alien,5\\n7,Brazil,3\\n9,Alien,2\\n9,Alien,4")
    ...     packed = pack([table], Path(folder, "ratings.panel"), duplicates="last")
    >>> packed.rows, packed.columns, packed.entries, packed.lines_merged
    (2, 2, 3, 1)
    """

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

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from onesided.panels.packed.format import load_packed
    >>> with TemporaryDirectory() as folder:
    ...     may, june, panel = (Path(folder, name) for name in ("may.csv", "june.csv", "ratings.panel"))
    ...     _ = may.write_text("user,film,stars\\nann,Alien,5"), june.write_text("user,film,stars\\nann,Brazil,3")
    ...     packed = pack([may, june], panel)
    ...     load_packed(panel).to_dense()  # one row, of two tables
    array([[5., 3.]], dtype=float32)
    """
    check_options(duplicates, non_finite)
    sources, path, note = list(map(Path, tables)), Path(path), note or (lambda sentence: None)
    _check_paths(sources, path)
    with Workshop.opened(path, memory, progress or (lambda title: nullcontext(lambda done, total: None)), note) as work:
        read = read_tables(work, sources, {"row": row, "column": column, "value": value})
        kinds = {axis: settled_kind(axis, read) for axis in AXES}
        check_values(read, kinds, non_finite)
        n_columns = _sort_columns(work, read, kinds)
        _sort_entries(work, read, kinds, by_line=duplicates != "refuse")
        packed = _write_panel(work, path, read, kinds, n_columns, duplicates)
        if (work.folder / "panel" / HEADER).exists():  # not yet in its place
            publish(work.folder / "panel", path)
        work.finish()
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
        read_header(path)  # refuses what is of something else, or newer; not what lost files


def _as_kind(name: str, kind: str) -> str:
    return f"CAST({name} AS BIGINT)" if kind == "integers" else name


def _sort_columns(work: Workshop, read: list[Read], kinds: dict[str, str]) -> int:
    def do(target: Path, report: Progress) -> dict[str, Any]:
        column_id = _as_kind("column_id", kinds["column"])
        distinct = f"SELECT DISTINCT {column_id} AS id FROM {scanned(*(one.entries for one in read))}"
        work.copy(f"SELECT id, row_number() OVER (ORDER BY id) - 1 AS code FROM ({distinct}) ORDER BY id", target)
        ((count,),) = work.sql(f"SELECT count(*) FROM {scanned(target)}")
        return {"columns": count}

    depends = [[one.done.key for one in read], kinds]
    found = work.once("columns.parquet", depends, "Sorting columns", do).found
    return check_shape(1, found["columns"])[1]


def _sort_entries(work: Workshop, read: list[Read], kinds: dict[str, str], by_line: bool) -> None:
    def do(target: Path, report: Progress) -> dict[str, Any]:
        row_id, column_id = (_as_kind(f"{axis}_id", kinds[axis]) for axis in AXES)
        work.copy(
            f"SELECT {row_id} AS id, CAST(code AS INTEGER) AS code, value "
            f"FROM {scanned(*(one.entries for one in read))} "
            f"JOIN {scanned(work.folder / 'columns.parquet')} AS columns ON {column_id} = columns.id "
            f"ORDER BY {row_id}{', line' if by_line else ''}",
            target,
        )
        return {}

    work.once("sorted.parquet", [[one.done.key for one in read], kinds, by_line], "Sorting entries", do)


def _write_panel(
    work: Workshop, path: Path, read: list[Read], kinds: dict[str, str], n_columns: int, duplicates: Duplicates
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
    work: Workshop,
    folder: Path,
    read: list[Read],
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
                compressed = compress(*coded, values, value_name(read), merge, "drop")
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
        raise _repeats(work, read, kinds, repeated, example)
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


def _repeats(
    work: Workshop, read: list[Read], kinds: dict[str, str], count: int, example: tuple[Any, Any]
) -> InputError:
    (first,), (second,) = work.sql(
        f"SELECT value FROM {scanned(*(one.entries for one in read))} "
        "WHERE row_id = ? AND column_id = ? AND isfinite(value) ORDER BY line LIMIT 2",
        *map(str, example),
    )
    return InputError(
        f"{counted(count, 'entry repeats', 'entries repeat')} an earlier (row, column) pair, "
        f"for example {place(example, kinds)} with values {first:g} and {second:g}; "
        f"say how to merge them: {EXPECTED}",
        option="duplicates",
        expected=["mean", "sum", "last"],
    )
