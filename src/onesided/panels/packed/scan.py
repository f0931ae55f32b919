"""The first pass: the entries of each table in a Parquet file, and what is to be refused counted on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onesided.errors import InputError
from onesided.panels.packed.database import GROUP_LINES, parquet_scan
from onesided.panels.packed.resume import Finished, Passes
from onesided.panels.refusals import ValueCounts, at_pair, check_ids_present, check_one_kind, value_column
from onesided.panels.table_files import Progress, TableColumns, is_parquet, open_table
from onesided.panels.text_format import plain_integers
from onesided.storage.atomic import written_beside

AXES = ("row", "column")


@dataclass(frozen=True)
class Entries:
    """The entries of all tables: of each, the pass that copied them into a file and counted them."""

    sources: list[Path]
    copied: list[Finished]
    scan: str  # the entries as a table of SQL: row_id and column_id (text), value, line

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Whether row and column ids are integers or strings: integers if all tables write them as that."""
        tables = [(source, copied.result) for source, copied in zip(self.sources, self.copied, strict=True)]
        kinds = {}
        for axis in AXES:
            strings = [source for source, result in tables if result["kinds"][axis] == "strings"]
            integers = [source for source, result in tables if result["written_as_integers"][axis]]
            if strings and integers:
                check_one_kind(axis, ("integers", integers[0]), ("strings", strings[0]))
            kinds[axis] = "strings" if strings else "integers"
        return kinds

    @property
    def keys(self) -> list[str]:
        """What tells them from the entries of other tables."""
        return [key for key, _ in self.copied]

    @property
    def lines(self) -> int:
        return sum(result["lines"] for _, result in self.copied)

    @property
    def values(self) -> ValueCounts:
        names = [field.name for field in fields(ValueCounts)]
        return reduce(add, (ValueCounts(**{name: result[name] for name in names}) for _, result in self.copied))

    @property
    def where(self) -> str:
        """The column of values, in words."""
        return value_column(result["value"] for _, result in self.copied)

    def location(self, ids: Sequence[Any]) -> str:
        """A row and a column, by ids that may still be text."""
        return at_pair(int(id_) if self.kinds[axis] == "integers" else id_ for id_, axis in zip(ids, AXES, strict=True))


def copy_tables(passes: Passes, sources: list[Path], columns: TableColumns) -> Entries:
    """Copy the entries of tables into the folder, table by table."""
    copied: list[Finished] = []
    names = [f"entries-{k}.parquet" for k in range(len(sources))]
    first_line = 0
    for name, source in zip(names, sources, strict=True):
        work = partial(_copy_entries, source, columns, first_line)
        depends = [_state(source), asdict(columns), first_line]
        copied.append(passes.once(name, depends, f"Reading {source.name}", work))
        first_line += copied[-1].result["lines"]
    return Entries(sources, copied, parquet_scan(*(passes.folder / name for name in names)))


def _state(source: Path) -> list[Any]:
    """What changes when a file does."""
    about = source.stat()
    return [str(source.absolute()), about.st_size, about.st_mtime_ns]


def _copy_entries(source: Path, names: TableColumns, first_line: int, target: Path, report: Progress) -> dict[str, Any]:
    """Copy a table to a Parquet file, ids as text and lines numbered, and return the counts."""
    before = _state(source)
    stream = open_table(source, **asdict(names), whole=False, progress=report)
    assert stream.value is not None
    counts = _Counts(source, (stream.row, stream.column, stream.value), stream.reader.schema.types)
    kinds = (pa.string(), pa.string(), pa.float64(), pa.int64())
    schema = pa.schema(list(zip(("row_id", "column_id", "value", "line"), kinds, strict=True)))
    # Without dictionaries and statistics, which nobody reads: they take four times as long to write.
    options = {"use_dictionary": False, "write_statistics": False, "column_encoding": {"line": "DELTA_BINARY_PACKED"}}
    with written_beside(target) as temporary, pq.ParquetWriter(temporary, schema, **options) as writer:
        for table in _gathered(stream.reader):
            line = first_line + counts.lines
            counts.add(table)
            columns = [column.cast(kind) for column, kind in zip(table.columns, kinds[:3], strict=True)]
            numbers = pa.array(np.arange(line, line + table.num_rows))
            writer.write_table(pa.table([*columns, numbers], schema=schema))
    if _state(source) != before:
        raise InputError(f"{source} was changed while it was read; pack it again when it is finished")
    return counts.to_dict()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together, so that a row group of the file is not too small."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.num_rows for part in held) >= GROUP_LINES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


class _Counts:
    """Counts over the lines of a table, as they pass."""

    def __init__(self, source: Path, names: tuple[str, str, str], types: Sequence[pa.DataType]) -> None:
        self._source, self._names = source, names
        self.lines, self._values = 0, ValueCounts()
        self._no_ids = {axis: [0, 0] for axis in AXES}  # how many, and where the first is
        self._written = {axis: str(kind).startswith("int") for axis, kind in zip(AXES, types, strict=False)}
        # In text, only the last line settles whether ids are integers.
        self._kinds = {
            axis: "strings" if is_parquet(source) and not self._written[axis] else "integers" for axis in AXES
        }

    def add(self, table: pa.Table) -> None:
        for k, axis in enumerate(AXES):
            ids = table.column(k)
            if ids.null_count:
                if not self._no_ids[axis][0]:
                    self._no_ids[axis][1] = self.lines + pc.index(pc.is_null(ids), True).as_py()
                self._no_ids[axis][0] += ids.null_count
            if self._kinds[axis] == "integers" and not self._written[axis] and not plain_integers(ids):
                self._kinds[axis] = "strings"
        values = table.column(2).to_numpy()  # null becomes NaN
        self._values += ValueCounts.of(values, lambda at: [str(table.column(k)[at].as_py()) for k in range(2)])
        self.lines += table.num_rows

    def to_dict(self) -> dict[str, Any]:
        """The counts, if every line has its ids."""
        for k, axis in enumerate(AXES):
            missing, first = self._no_ids[axis]
            check_ids_present(missing, f"at position {first}", f"{self._names[k]!r} of {self._source}")
        kinds = {"kinds": self._kinds, "written_as_integers": self._written}
        return {"lines": self.lines, "value": self._names[2]} | kinds | asdict(self._values)
