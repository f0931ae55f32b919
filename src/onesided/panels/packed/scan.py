"""The first pass: the entries of each table in a Parquet file, and what is to be refused counted on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.errors import EXPECTED, InputError, counted, shown
from onesided.panels.csr import LARGEST_VALUE, NonFinite
from onesided.panels.packed.resume import LINES, Finished, Workshop
from onesided.panels.table_files import Progress, plain_integers, stream_table
from onesided.storage.atomic import written_beside

if TYPE_CHECKING:
    import pyarrow as pa

AXES = ("row", "column")


@dataclass
class Read:
    """The entries of one table in a file of their own, and what was found among them."""

    source: Path
    entries: Path
    done: Finished

    @property
    def found(self) -> dict[str, Any]:
        return self.done.found


def read_tables(work: Workshop, sources: list[Path], names: dict[str, str | None]) -> list[Read]:
    read: list[Read] = []
    first_line = 0
    for k, source in enumerate(sources):

        def do(target: Path, report: Progress, source: Path = source, first_line: int = first_line) -> dict[str, Any]:
            return _copy_entries(source, target, names, first_line, report)

        entries = f"entries-{k}.parquet"
        done = work.once(entries, [_state(source), names, first_line], f"Reading {source.name}", do)
        read.append(Read(source, work.folder / entries, done))
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
        self._no_ids = {axis: [0, 0] for axis in AXES}  # how many, and where the first is
        with source.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        # Of text it is open until the end whether ids are integers.
        self._kinds = {
            axis: "strings" if not str(kind).startswith("int") and parquet else "integers"
            for axis, kind in zip(AXES, types, strict=False)
        }
        self._written = {axis: str(kind).startswith("int") for axis, kind in zip(AXES, types, strict=False)}

    def add(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        for k, axis in enumerate(AXES):
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
        for k, axis in enumerate(AXES):
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


def settled_kind(axis: str, read: list[Read]) -> str:
    """Whether the ids of all tables are integers or strings."""
    strings = next((one for one in read if one.found["kinds"][axis] == "strings"), None)
    integers = next((one for one in read if one.found["written_as_integers"][axis]), None)
    if strings and integers:
        raise InputError(
            f"the {axis} ids of {integers.source} are integers, those of {strings.source} are strings; "
            "ids must be all integers or all strings: write them alike"
        )
    return "strings" if strings else "integers"


def value_name(read: list[Read]) -> str:
    names = list(dict.fromkeys(one.found["value"] for one in read))
    return f"column {names[0]!r}" if len(names) == 1 else "the column of values"


def place(ids: Sequence[Any], kinds: dict[str, str]) -> str:
    """A row and a column, by ids that may still be text."""
    said = [shown(int(one) if kinds[axis] == "integers" else one) for one, axis in zip(ids, AXES, strict=True)]
    return f"row {said[0]}, column {said[1]}"


def check_values(read: list[Read], kinds: dict[str, str], non_finite: NonFinite) -> None:
    """Refuse the values that ``compress`` would refuse, had it all of them at once."""
    infinite, missing = (sum(one.found[name] for one in read) for name in ("infinite", "missing"))
    if non_finite == "refuse" and infinite + missing:
        parts = [counted(infinite, "infinite value")] if infinite else []
        parts += [counted(missing, "NaN or missing value")] if missing else []
        first = next(one.found["first_non_finite"] for one in read if one.found["first_non_finite"])
        raise InputError(
            f"{value_name(read)} has {' and '.join(parts)} (first at {place(first, kinds)}); "
            f"drop them or pass {EXPECTED}",
            option="non_finite",
            expected=["drop"],
        )
    largest = max(one.found["largest"] for one in read)
    if largest > LARGEST_VALUE:
        raise InputError(
            f"{value_name(read)} reaches {largest:.3g} in magnitude, beyond {LARGEST_VALUE:.0e}, where moments "
            "overflow; rescale the values first"
        )
