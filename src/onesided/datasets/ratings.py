"""Files of ratings, one line for each: into a panel, with every line accounted for.

Lines are split and converted by pyarrow as the specification says they are written. A first line that is not as
expected is another file, or another separator; a later one that is not was cut or edited.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.arrays import Array
from onesided.datasets.catalogue import Lines, Specification
from onesided.datasets.readings import Account, Reading
from onesided.datasets.sources import Source
from onesided.errors import InputError, check_choice, counted
from onesided.panels.panel import Panel
from onesided.panels.table_files import Progress

if TYPE_CHECKING:
    import pyarrow as pa


BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16
_SEPARATORS = ("::", "\t", ";", ",")
_AGAIN = "the file was cut or edited: download it again"


def read_ratings(
    spec: Specification,
    source: Source,
    *,
    verify: bool,
    progress: Progress | None,
    implicit: str = "keep",
    cut: tuple[int, int] | None = None,
) -> Reading:
    """The ratings of a file: duplicates are averaged, lines without a rating left out where there may be any.

    ``implicit="drop"`` leaves out ratings of zero before anything else, and with them the rows and columns that have
    no other. ``cut=(rows, columns)`` keeps the columns with most ratings and then, of the rows, those with most
    ratings in these columns; of equals the first in the order of ids.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from onesided.datasets import CATALOGUE
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.dat")
    ...     _ = path.write_text("1::1193::5::978300760\\n1::661::3::978302109\\n")
    ...     reading = read_ratings(CATALOGUE["movielens-1m"], Source(path), verify=True, progress=None)
    >>> reading.account.lines, reading.column_ids
    (2, array([ 661, 1193]))
    """
    check_choice("implicit", implicit, ("drop", "keep"))
    assert spec.lines is not None
    table = read_lines(spec.lines, source, verify=verify, progress=progress)
    return _assemble(spec.lines, source, table, implicit=implicit, cut=cut)


def read_reviews(spec: Specification, source: Source, *, verify: bool, progress: Progress | None) -> Reading:
    """The ratings of RentTheRunway: the JSON lines as published, or a CSV of the same fields."""
    assert spec.lines is not None
    with source.opened() as stream:
        is_json = stream.read(1) == b"{"
    if not is_json:
        return read_ratings(spec, source, verify=verify, progress=progress)
    return _assemble(spec.lines, source, _read_json(spec.lines, source, verify, progress))


def read_lines(form: Lines, source: Source, *, verify: bool, progress: Progress | None) -> pa.Table:
    """The row, column and value of each line, in that order; a value is null where the line has none."""
    import pyarrow as pa
    from pyarrow import csv

    names, wanted = _check_first_line(form, source), form.fields[:3]
    wide = len(form.separator) > 1  # pyarrow takes one character: the fields between two colons are then empty
    if wide:
        names = [part for name in names for part in (name, f"after {name}")][:-1]
    quoted = form.separator in (",", ";")
    types = {name: pa.int64() if name in form.integers else pa.string() for name in wanted[:2]}
    types[wanted[2]] = pa.float64()
    try:
        with (
            source.opened(progress) as stream,
            csv.open_csv(
                stream,
                csv.ReadOptions(
                    column_names=names,
                    skip_rows=int(form.header),
                    block_size=BLOCK_BYTES,
                    use_threads=False,  # or pyarrow would not name the line of an error
                    encoding=form.encoding,
                ),
                csv.ParseOptions(
                    delimiter=form.separator[0], quote_char='"' if quoted else False, newlines_in_values=quoted
                ),
                csv.ConvertOptions(include_columns=wanted, column_types=types, strings_can_be_null=False),
            ) as blocks,
        ):
            table = blocks.read_all()
            if verify:
                stream.check_end(source)
    except pa.ArrowInvalid as error:
        raise InputError(_explain(source, str(error))) from error
    _check_ids(form, source, table)
    return table


def _check_first_line(form: Lines, source: Source) -> list[str]:
    """The names of the fields of each line, if the first one is as it should be."""
    with source.opened() as stream:
        line = stream.readline(_LONGEST_LINE)
    text = line.removeprefix(b"\xef\xbb\xbf").decode(form.encoding, "replace").rstrip("\r\n")
    fields = [field.strip('"') for field in text.split(form.separator)]
    expected = repr(form.separator).join(form.fields).replace("'", "")
    shown = f"line 1 of {source} is {text[:80]!r}"
    if form.header:
        if set(form.fields[:3]) <= set(fields):
            return fields
        raise InputError(f"{shown}; expected the header {expected}: this is another file, or it lost its header")
    if len(fields) == len(form.fields):
        return list(form.fields)
    other = next((mark for mark in _SEPARATORS if mark != form.separator and mark in text), None)
    actual = f"fields between {other!r}" if other else counted(len(fields), "field")
    raise InputError(
        f"{shown}, with {actual}; expected {expected}: this is another file, or was converted; load it as 'table'"
    )


def _check_ids(form: Lines, source: Source, table: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, items in zip(table.column_names[: 2 if form.may_lack_value else 3], table.columns, strict=False):
        missing = pc.equal(items, "") if pa.types.is_string(items.type) else items.is_null()
        if pc.any(missing).as_py():
            line = pc.index(missing, True).as_py() + 1 + form.header
            raise InputError(f"line {line} of {source} has no {name}; {_AGAIN}")


def _explain(source: Source, failure: str) -> str:
    """What pyarrow's words mean to whoever has the file."""
    row = re.search(r"Row #(\d+)", failure)
    where = f"line {row[1]} of {source}" if row else str(source)
    if match := re.search(r"Expected (\d+) columns, got (\d+): (.*)", failure, re.DOTALL):
        return f"{where} is {match[3][:80]!r}, with fewer or more fields than the others; {_AGAIN}"
    if match := re.search(r"error to (\w+): invalid value '(.*)'", failure, re.DOTALL):
        return f"{where} has {match[2]!r} where a number is expected ({match[1]}); {_AGAIN}"
    if "Empty CSV" in failure:
        return f"{source} holds no ratings; {_AGAIN}"
    return f"{source} cannot be read ({failure}); {_AGAIN}"


def _read_json(form: Lines, source: Source, verify: bool, progress: Progress | None) -> pa.Table:
    import pyarrow as pa

    row, column, value = form.fields[:3]
    schema = pa.schema([(row, pa.int64()), (column, pa.int64()), (value, pa.float64())])
    entries = []
    with source.opened(progress) as stream:
        for number, whole in enumerate(iter(stream.readline, b""), 1):
            line = whole.removesuffix(b"\n")
            try:
                review = json.loads(line)
                rating, ids = review[value], {name: int(review[name]) for name in (row, column)}
                entries.append(ids | {value: None if rating in (None, "") else float(rating)})
            except (ValueError, KeyError, TypeError) as error:
                shown = line[:60].decode("utf8", "replace")
                raise InputError(
                    f"line {number} of {source} is {shown!r}…, expected an object with {row}, {column} and {value} "
                    f"({type(error).__name__}: {error}); {_AGAIN}"
                ) from error
        if verify:
            stream.check_end(source)
    return pa.Table.from_pylist(entries, schema)


def _assemble(
    form: Lines, source: Source, table: pa.Table, *, implicit: str = "keep", cut: tuple[int, int] | None = None
) -> Reading:
    import pyarrow.compute as pc

    account, (row, column, value) = Account(lines=table.num_rows), form.fields[:3]
    if implicit == "drop":
        explicit = table.filter(pc.not_equal(table.column(value), 0))
        account.notes.append(f"{counted(table.num_rows - explicit.num_rows, 'rating')} of zero left out as implicit")
        table = explicit
    rated = table.filter(table.column(value).is_valid())
    if rated.num_rows < table.num_rows:
        account.notes.append(f"{counted(table.num_rows - rated.num_rows, 'line')} without a rating left out")
    if rated.num_rows == 0:
        raise InputError(f"{source} holds no ratings, in {counted(account.lines, 'line')}; download it again")
    panel = Panel.from_table(rated, row=row, column=column, value=value, duplicates="mean")
    merged = rated.num_rows - panel.n_entries
    if merged:
        account.notes.append(f"{counted(merged, 'line')} averaged with an earlier one of the same row and column")
    if cut is not None:
        panel = most_rated(panel, *_checked_cut(cut))
        account.notes.append(f"cut to the most rated {counted(panel.n_rows, 'row')} × {panel.n_columns:,} columns")
    return Reading.of_panel(panel, account)


def _checked_cut(cut: Any) -> tuple[int, int]:
    if not (
        isinstance(cut, (tuple, list)) and len(cut) == 2 and all(type(number) is int and number > 0 for number in cut)
    ):
        raise InputError(f"cut={cut!r} is not an option; give the rows and columns to keep, or None to keep all")
    return cut[0], cut[1]


def most_rated(panel: Panel, rows: int, columns: int) -> Panel:
    """The columns with most entries and then, of rows with any in them, those with most; of equals the first.

    >>> panel = Panel.from_arrays([1, 1, 2, 2, 3], [7, 8, 7, 9, 7], [5.0, 4.0, 3.0, 2.0, 1.0])
    >>> most_rated(panel, 2, 1).row_ids, most_rated(panel, 2, 1).column_ids
    (array([1, 2]), array([7]))
    """
    kept = panel.column_ids[_largest(panel.column_counts, columns)]
    panel = panel.align_columns(kept, unknown="drop")
    counts = panel.row_counts
    return panel.take_rows(_largest(counts, min(rows, int(np.count_nonzero(counts)))))


def _largest(counts: Array, most: int) -> Array:
    """Positions of the largest counts, ascending; of equals the first."""
    return np.sort(np.argsort(-counts, kind="stable")[:most])
