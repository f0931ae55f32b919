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
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.panels.csr import check_shape, merge_entries
from onesided.panels.packed.database import parquet_scan
from onesided.panels.packed.format import HEADER, PackedWriter, is_packed, publish, read_header
from onesided.panels.packed.resume import Bar, Passes, passes_to
from onesided.panels.packed.scan import AXES, Entries, copy_tables
from onesided.panels.refusals import Duplicates, Repeats, ValueRules
from onesided.panels.table_files import Progress, TableColumns

_Block = tuple[Any, Array, Array, Array]

BLOCK_LINES = 1 << 20  # made compressed rows at a time, and the rest of the last row


@dataclass(frozen=True)
class Packed:
    """What was packed: the shape of the panel, the lines that are not entries of it, and its size on the disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Path(folder, "ratings.csv")
    ...     _ = table.write_text("user,film,stars\\n7,Alien,5\\n7,Brazil,3\\n9,Alien,2\\n9,Alien,4")
    ...     packed = pack([table], Path(folder, "ratings.panel"), rules=ValueRules(duplicates="last"))
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
    columns: TableColumns | None = None,
    rules: ValueRules | None = None,
    memory: int = 256,
    progress: Bar | None = None,
    note: Callable[[str], object] | None = None,
) -> Packed:
    """Pack the entries of tables into one packed panel, the one that ``Panel.from_table`` makes of them all.

    Parameters
    ----------
    tables : paths
        Long tables as ``table_files.open_table`` reads them. A row id in several tables is one row. Ids are integers
        if all tables write them as that.
    path : path
        The panel. A packed panel that is there is replaced once the new one is finished; nothing else is.
    columns : TableColumns, optional
        The names of the tables' columns; without it they are recognised.
    rules : ValueRules, optional
        What becomes of duplicates and of values that are not finite; without it both are refused.
    memory : int
        Megabytes for the sort; the process takes some 200 more.
    progress : function, optional
        Called with the title of each pass; yields, as a context, what is then called with how much of how much.
    note : function, optional
        Called with a sentence where an earlier run is continued, or passes of it are done again.

    Returns
    -------
    Packed

    Raises
    ------
    InputError
        If the tables cannot be read or are refused (:mod:`onesided.panels.refusals`), if there is something else at
        ``path``, or if another run is packing to it.

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
    columns, rules = columns or TableColumns(), rules or ValueRules()
    sources, path, note = list(map(Path, tables)), Path(path), note or (lambda sentence: None)
    _check_paths(sources, path)
    bar = progress or (lambda title: nullcontext(lambda done, total: None))
    with passes_to(path, memory, bar, note) as passes:
        entries = copy_tables(passes, sources, columns)
        entries.values.check(entries.where, rules.non_finite, location=entries.location)
        n_columns = _sort_columns(passes, entries)
        _sort_entries(passes, entries, by_line=rules.duplicates != "refuse")
        packed = _write_panel(passes, path, entries, n_columns, rules.duplicates)
        if (passes.folder / "panel" / HEADER).exists():  # not yet renamed
            publish(passes.folder / "panel", path)
        passes.notes.remove()
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


def _sort_columns(passes: Passes, entries: Entries) -> int:
    """Sort and number the distinct column ids; how many there are."""

    def work(target: Path, report: Progress) -> dict[str, Any]:
        column_id = _as_kind("column_id", entries.kinds["column"])
        numbered = "SELECT id, row_number() OVER (ORDER BY id) - 1 AS code FROM"
        passes.database.copy(f"{numbered} (SELECT DISTINCT {column_id} AS id FROM {entries.scan}) ORDER BY id", target)
        ((count,),) = passes.database.run(f"SELECT count(*) FROM {parquet_scan(target)}")
        return {"columns": count}

    sorted_columns = passes.once("columns.parquet", [entries.keys, entries.kinds], "Sorting columns", work)
    return check_shape(1, sorted_columns.result["columns"])[1]


def _sort_entries(passes: Passes, entries: Entries, by_line: bool) -> None:
    def work(target: Path, report: Progress) -> dict[str, Any]:
        row_id, column_id = (_as_kind(f"{axis}_id", entries.kinds[axis]) for axis in AXES)
        passes.database.copy(
            f"SELECT {row_id} AS id, CAST(code AS INTEGER) AS code, value FROM {entries.scan} "
            f"JOIN {parquet_scan(passes.folder / 'columns.parquet')} AS columns ON {column_id} = columns.id "
            f"ORDER BY {row_id}{', line' if by_line else ''}",
            target,
        )
        return {}

    passes.once("sorted.parquet", [entries.keys, entries.kinds, by_line], "Sorting entries", work)


def _write_panel(passes: Passes, path: Path, entries: Entries, n_columns: int, duplicates: Duplicates) -> Packed:
    def work(target: Path, report: Progress) -> dict[str, Any]:
        unfinished = target.with_suffix(".unfinished")
        writer = _compress_blocks(passes, unfinished, entries, n_columns, duplicates, report)
        size = writer.finish()
        os.rename(unfinished, target)
        shape = {"rows": writer.n_rows, "columns": n_columns, "entries": writer.n_entries}
        return {"packed": shape | {"bytes": size}, "folder": writer.name}

    if "panel" in passes.notes and not (passes.folder / "panel" / HEADER).exists():
        _, result = passes.notes["panel"]
        if not is_packed(path) or read_header(path)["folder"] != result["folder"]:
            passes.forget("panel")  # it was renamed, and has been removed since
    written = passes.once("panel", [entries.keys, entries.kinds, duplicates], "Packing", work).result["packed"]
    dropped = entries.values.non_finite
    return Packed(**written, lines_dropped=dropped, lines_merged=entries.lines - dropped - written["entries"])


def _compress_blocks(
    passes: Passes, folder: Path, entries: Entries, n_columns: int, duplicates: Duplicates, report: Progress
) -> PackedWriter:
    column_ids = _as_large(pq.read_table(passes.folder / "columns.parquet")["id"]).combine_chunks()
    rules = ValueRules(duplicates, "drop")  # had they to be refused, they would have been
    repeated, example, done = 0, None, 0
    with (
        pq.ParquetFile(passes.folder / "sorted.parquet") as file,
        closing(PackedWriter(folder, column_ids)) as writer,
    ):
        for ids, columns, values, starts in _whole_rows(map(file.read_row_group, range(file.num_row_groups))):
            rows = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
            coded = (None, rows, len(starts)), (None, columns, n_columns)
            compressed, repeats = merge_entries(*coded, values, entries.where, rules)
            if repeats:
                u, j = repeats.pair
                example = example or (ids[u].as_py(), column_ids[j].as_py())
                repeated += repeats.number
            writer.append(ids, *compressed)
            done += len(values)
            report(done, file.metadata.num_rows)
    if example and duplicates == "refuse":  # at the end, when all are counted
        raise Repeats(repeated, example, _first_values(passes, entries, example)).refusal(entries.location)
    return writer


def _first_values(passes: Passes, entries: Entries, pair: tuple[Any, Any]) -> tuple[float, float]:
    """The first two values of a pair, in the order of lines."""
    (first,), (second,) = passes.database.run(
        f"SELECT value FROM {entries.scan} "
        "WHERE row_id = ? AND column_id = ? AND isfinite(value) ORDER BY line LIMIT 2",
        *map(str, pair),
    )
    return first, second


def _as_large(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return ids.cast(pa.large_string()) if pa.types.is_string(ids.type) else ids


def _whole_rows(groups: Iterable[pa.Table]) -> Iterator[_Block]:
    """Sorted entries in blocks of whole rows: the id of each row, columns, values, and where each row starts."""

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
        if sum(part.num_rows for part in held) >= enough:
            held = [(yield from cut(pa.concat_tables(held), False))]
            enough = BLOCK_LINES + 2 * held[0].num_rows  # else a very long row would be cut again too often
    yield from cut(pa.concat_tables(held), True)
