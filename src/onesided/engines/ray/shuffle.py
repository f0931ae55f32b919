"""Long tables onto a cluster: Parquet files, or a dataset of Ray's, as blocks of whole rows in Ray's store.

Lines are looked at twice, some at a time. First they are surveyed: what is to be refused is counted, column ids are
collected, and row ids are sampled, by which rows are cut into blocks of about as many entries each. Then they are split
at these cuts, and what belongs to a block is joined. The row ids of a line meet those of others only in its block;
here are, for a moment, the ids of columns and of the first row of each block.

Ray Data makes the blocks of a dataset that is given, yet its sort does not make ours: blocks that it had sorted, once
lost with a node, were not made again in six of seven trials with Ray 2.60, and whoever asked for them waited in vain.
The results of plain tasks, tried again as often as need be, are remade each time, so all that is done here is done by
such; they keep the order of lines besides.

What is refused, beside what ``Panel.from_table`` refuses:

=====================================================  ===========================================================
found                                                  message
=====================================================  ===========================================================
a path with nothing there, or no Parquet file          there is nothing at … / no Parquet files in …
a file gone, cut short or changed in between           … is gone / cut short or corrupt / has changed …, with its path
ids of one kind in some files, another in others       the row ids of … are integers, those of … are strings
no lines                                               … hold no entries
``duplicates="last"`` of a dataset                     … the lines of a dataset have no order …
=====================================================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray
import ray.data

from onesided.engines.ray.cluster import Ref, current, fetched
from onesided.engines.ray.sources import Source, blocks_of, files, tables_of, units_of
from onesided.errors import EXPECTED, FOUND, InputError, counted, shown
from onesided.panels.csr import LARGEST_VALUE, Duplicates, NonFinite, check_options, compress
from onesided.panels.ids import encode_ids

Array = npt.NDArray[Any]
Place = Callable[[int, int], dict[str, Any]]  # of block k of n: how Ray is to be told where to make it

LINES = 1 << 20  # that a task reads at a time, or more where there are many blocks
LINES_APIECE = 1 << 13  # for each block: what a task returns in smaller pieces, Ray keeps on the driver
SAMPLED = 1 << 10  # lines for each block, by which rows are cut: blocks then differ by a few per cent
AT_A_TIME = 1 << 22  # entries of a block that are put in order at a time, which takes several times their memory
FAN_IN = 16  # surveys put together at a time


@dataclass(frozen=True, eq=False)
class Gathered:
    """Blocks of whole rows in Ray's store, ascending by row id, and what is known of them here."""

    blocks: list[Ref]  # each a tuple: pointers from 0, columns ascending within a row, values
    row_ids: list[Ref]  # each an Arrow array, ascending
    row_counts: Array
    block_rows: list[int]
    column_ids: Array
    dtype: np.dtype[Any]
    lines: int
    lines_dropped: int
    lines_merged: int


def gather(
    data: Any,
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    duplicates: Duplicates = "refuse",
    non_finite: NonFinite = "refuse",
    pieces: int,
    most: int = 1 << 28,
    place: Place = lambda k, n: {},
) -> Gathered:
    """The rows of long tables in at most ``pieces`` blocks of about as many entries each, in Ray's store.

    Where these would have more than ``most`` entries, there are more.

    ``data`` is a path, or several, of Parquet files or of directories, of which the files called ``*.parquet`` or
    ``*.pq`` are read, below them too, in the order of their paths; names that begin with "." or "_" are left out, as
    others do. It may also be a ``ray.data.Dataset``. Columns not named are recognised as by ``open_table``. The rows
    are those of ``Panel.from_table``, were the tables one. ``place`` gives the options of the task that makes a block.

    A block that is lost with its node is made again by reading all files again; they must stay as they are. Blocks of
    a dataset must be made again by those who made them: what Ray Data sorted or shuffled, write to Parquet files first.
    """
    check_options(duplicates, non_finite)
    if duplicates == "last" and isinstance(data, ray.data.Dataset):
        raise InputError(
            f"{FOUND} asks which line came last, and the lines of a dataset have no order; choose "
            '"mean" or "sum", or give Parquet files, which have one',
            option="duplicates",
            found="last",
            expected=["mean", "sum"],
        )
    task = current().spread_out
    asked = {"row": row, "column": column, "value": value}
    found: list[tuple[Source, list[Ref]]] = [
        *(blocks_of(data, asked) if isinstance(data, ray.data.Dataset) else files(data, asked))
    ]
    lines = sum(source.lines for source, _ in found)
    if not lines:
        raise InputError("a panel needs at least one row and one column; the tables hold no entries")
    pieces = max(pieces, -(-lines // most))
    ranges = -(-lines // (pieces * AT_A_TIME))  # of rows, in each block
    units = list(units_of(found, max(LINES, LINES_APIECE * pieces * ranges)))
    step = max(1, lines // max(LINES_APIECE, SAMPLED * pieces * ranges))
    surveys = [task(_survey)(k, step, unit.sources, *unit.refs) for k, unit in enumerate(units)]
    while len(surveys) > FAN_IN:
        surveys = [task(_together)(*surveys[k : k + FAN_IN]) for k in range(0, len(surveys), FAN_IN)]
    survey: _Survey = fetched(task(_concluded)(pieces, ranges, *surveys))
    survey.check(non_finite)

    kept = ray.put(survey)
    n_ranges = len(survey.sample) + 1
    split = [task(_split, num_returns=n_ranges)(kept, unit.sources, *unit.refs) for unit in units]
    parts = list(zip(*split, strict=True)) if n_ranges > 1 else [tuple(split)]
    made = [
        task(_joined, num_returns=3, **place(k, len(survey.starts)))(
            kept, duplicates, non_finite, last - first, *chain.from_iterable(parts[first:last])
        )
        for k, (first, last) in enumerate(pairwise([*survey.starts, n_ranges]))
    ]
    del split, parts  # what is joined need not stay
    facts: list[list[_Facts]] = fetched([one for _, _, one in made])
    each = [one for block in facts for one in block]
    _check_repeated(each)
    return Gathered(
        blocks=[block for block, _, _ in made],
        row_ids=[ids for _, ids, _ in made],
        row_counts=np.concatenate([one.row_counts for one in each]),
        block_rows=[sum(len(one.row_counts) for one in block) for block in facts],
        column_ids=survey.columns,
        dtype=np.dtype(survey.dtype),
        lines=lines,
        lines_dropped=sum(one.dropped for one in each),
        lines_merged=sum(one.merged for one in each),
    )


@dataclass(frozen=True)
class _Survey:
    """What was found in some of the lines, in their order."""

    names: list[str]  # the value columns
    kinds: list[tuple[str, str] | None]  # of row and column ids: integers or strings, and where the first are
    columns: Any  # distinct ids
    sample: Any  # ids of rows, of some lines; at last the first of each range of rows but the first
    dtype: str
    no_ids: list[tuple[int, str]]  # for rows and columns: how many lines have none, and where the first is
    infinite: int
    missing: int
    non_finite: tuple[Any, Any] | None  # the row and column of the first such value
    largest: float
    starts: tuple[int, ...] = ()  # at last: with which range each block begins

    def __add__(self, other: _Survey) -> _Survey:
        for axis, kind, others in zip(("row", "column"), self.kinds, other.kinds, strict=True):
            if kind and others and kind[0] != others[0]:
                raise InputError(
                    f"the {axis} ids of {kind[1]} are {kind[0]}, those of {others[1]} are {others[0]}; "
                    "ids must be all integers or all strings: write them alike"
                )
        return _Survey(
            names=list(dict.fromkeys(self.names + other.names)),
            kinds=[one or another for one, another in zip(self.kinds, other.kinds, strict=True)],
            columns=_chained(self.columns, other.columns).unique(),
            sample=_chained(self.sample, other.sample),
            dtype=max(self.dtype, other.dtype),  # float64, if one of them is
            no_ids=[(a + b, at or first) for (a, at), (b, first) in zip(self.no_ids, other.no_ids, strict=True)],
            infinite=self.infinite + other.infinite,
            missing=self.missing + other.missing,
            non_finite=self.non_finite or other.non_finite,
            largest=max(self.largest, other.largest),
        )

    @property
    def where(self) -> str:
        return f"column {self.names[0]!r}" if len(self.names) == 1 else "the column of values"

    def check(self, non_finite: NonFinite) -> None:
        """Refuse what ``Panel.from_table`` would refuse, had it all lines at once."""
        for count, first in self.no_ids:
            if count:
                raise InputError(f"{counted(count, 'missing id')} (first in {first}); drop them")
        if non_finite == "refuse" and self.non_finite:
            parts = [counted(self.infinite, "infinite value")] if self.infinite else []
            parts += [counted(self.missing, "NaN or missing value")] if self.missing else []
            row, column = map(shown, self.non_finite)
            raise InputError(
                f"{self.where} has {' and '.join(parts)} (first at row {row}, column {column}); "
                f"drop them or pass {EXPECTED}",
                option="non_finite",
                expected=["drop"],
            )
        if self.largest > LARGEST_VALUE:
            raise InputError(
                f"{self.where} reaches {self.largest:.3g} in magnitude, beyond {LARGEST_VALUE:.0e}, where moments "
                "overflow; rescale the values first"
            )


def _chained(first: Any, second: Any) -> Any:
    import pyarrow as pa

    # Of no ids at all the kind is not known.
    return pa.concat_arrays([first, second]) if len(first) and len(second) else first if len(first) else second


def _survey(k: int, step: int, sources: list[Source], *blocks: Any) -> _Survey:
    """What is found in the lines of a unit; of about every so manieth, its row id."""
    rng = np.random.default_rng(k)
    found = []
    for source, rows, columns, values in tables_of(sources, blocks):
        at = np.arange(0, len(rows), step)
        at += rng.integers(step, size=len(at))
        finite = np.isfinite(values)
        first = int(np.argmin(finite))
        present = [ids.drop_null() for ids in (rows, columns)]
        found.append(
            _Survey(
                names=[source.names[2]],
                kinds=[(_kind(ids), source.path) if len(ids) else None for ids in present],
                columns=present[1].unique(),
                sample=present[0].take(at[at < len(present[0])]),
                dtype=str(values.dtype),
                no_ids=[_without_id(source, axis, ids) for axis, ids in enumerate((rows, columns))],
                infinite=int(np.isinf(values).sum()),
                missing=int(np.isnan(values).sum()),
                non_finite=None if finite[first] else (rows[first].as_py(), columns[first].as_py()),
                largest=float(np.abs(values[finite]).max(initial=0)),
            )
        )
    return reduce(_Survey.__add__, found)


def _kind(ids: Any) -> str:
    return "integers" if str(ids.type) == "int64" else "strings"


def _without_id(source: Source, axis: int, ids: Any) -> tuple[int, str]:
    import pyarrow.compute as pc

    if not ids.null_count:
        return 0, ""
    position = source.first_line + pc.index(pc.is_null(ids), True).as_py()
    return ids.null_count, f"{source.names[axis]!r} of {source.path}, at position {position}"


def _together(*surveys: _Survey) -> _Survey:
    return reduce(_Survey.__add__, surveys)


def _concluded(pieces: int, ranges: int, *surveys: _Survey) -> _Survey:
    """All surveys as one, with column ids sorted, and with the rows at which ranges begin in place of the sample."""
    survey = _together(*surveys)
    if any(count for count, _ in survey.no_ids):
        return survey  # to be refused
    ids, codes, n = encode_ids(survey.sample, "rows")
    assert ids is not None
    weights = np.bincount(codes, minlength=n)
    # A row goes where its middle lies: one that outweighs a block so has a block to itself.
    of_row = (pieces * ranges * (2 * np.cumsum(weights) - weights)) // (2 * len(codes))
    first = np.flatnonzero(np.diff(of_row, prepend=-1))
    starts = np.flatnonzero(np.diff(of_row[first] // ranges, prepend=-1))
    return replace(
        survey,
        columns=encode_ids(survey.columns, "columns")[0],
        sample=_arrow_ids(ids[first[1:]], survey.sample.type),
        starts=tuple(starts.tolist()),
    )


def _arrow_ids(ids: Array, kind: Any) -> Any:
    import pyarrow as pa

    return pa.array(ids, type=kind)


_Part = tuple[Any, Array, Array, Array]  # row ids, the code of each line's, its column, its value


def _split(survey: _Survey, sources: list[Source], *blocks: Any) -> Any:
    """The lines of a unit, in their order, for each range of rows; None where there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(survey.columns)
    found = list(tables_of(sources, blocks))
    rows = pa.chunked_array([one for _, one, _, _ in found])
    column = np.concatenate([pc.index_in(one, known.cast(one.type)).to_numpy() for _, _, one, _ in found])
    values = np.concatenate([one for _, _, _, one in found]).astype(survey.dtype, copy=False)
    del found
    ids, code, n = encode_ids(rows, "rows")
    assert ids is not None
    cuts = survey.sample.to_numpy(zero_copy_only=False)
    edges = np.concatenate([[0], np.searchsorted(ids, cuts), [n]])
    kind = np.uint16 if len(edges) < 1 << 16 else np.int64
    of_line = np.repeat(np.arange(len(edges) - 1, dtype=kind), np.diff(edges))[code]
    order = np.argsort(of_line, kind="stable")  # of 16 bits: by counting
    ends = np.cumsum(np.bincount(of_line, minlength=len(edges) - 1))
    parts: list[_Part | None] = []
    for (first, last), (begin, end) in zip(pairwise(edges), pairwise([0, *ends]), strict=True):
        here = order[begin:end]
        own = _arrow_ids(ids[first:last], rows.type)
        parts.append((own, code[here] - np.int32(first), column[here], values[here]) if len(here) else None)
    return parts if len(parts) > 1 else parts[0]


class _Facts(NamedTuple):
    """What is known of a range of rows on the driver."""

    row_counts: Array
    dropped: int
    merged: int
    repeated: InputError | None  # why duplicates are refused


def _joined(
    survey: _Survey, duplicates: Duplicates, non_finite: NonFinite, ranges: int, *parts: _Part | None
) -> tuple[tuple[Array, Array, Array], Any, list[_Facts]]:
    """A block of rows, their ids, and what the driver is to know: range after range."""
    import pyarrow as pa

    units, at = len(parts) // ranges, 0
    lines = sum(len(part[3]) for part in parts if part is not None)
    columns, values = np.empty(lines, np.int32), np.empty(lines, survey.dtype)
    ids, facts = [], []
    for k in range(0, len(parts), units):
        here = [part for part in parts[k : k + units] if part is not None]
        some, kept, own, fact = _ordered(survey, duplicates, non_finite, here)
        columns[at : at + len(kept)], values[at : at + len(kept)] = some, kept
        at += len(kept)
        ids.append(own)
        facts.append(fact)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([one.row_counts for one in facts]), dtype=np.int64)])
    return (indptr, columns[:at], values[:at]), pa.concat_arrays(ids), facts


def _ordered(
    survey: _Survey, duplicates: Duplicates, non_finite: NonFinite, parts: list[_Part]
) -> tuple[Array, Array, Any, _Facts]:
    """The columns and values of a range of rows, in order, and their ids."""
    import pyarrow as pa

    ids, code, n = encode_ids(pa.chunked_array([part[0] for part in parts]), "rows")
    assert ids is not None
    starts = np.cumsum([0, *(len(part[0]) for part in parts)])
    row = np.concatenate([code[start:][part[1]] for start, part in zip(starts, parts, strict=False)])
    column, values = (np.concatenate([part[k] for part in parts]) for k in (2, 3))
    entries = (ids, row, n), (survey.columns, column, len(survey.columns)), values, survey.where
    # What repeats is to be counted, to be refused by one who knows how often it does elsewhere.
    indptr, columns, kept = compress(*entries, "last" if duplicates == "refuse" else duplicates, non_finite)
    dropped = int(len(values) - np.isfinite(values).sum())
    merged = len(values) - dropped - len(kept)
    repeated: InputError | None = None
    if merged and duplicates == "refuse":
        try:
            compress(*entries, duplicates, non_finite)
        except InputError as error:
            repeated = error.with_traceback(None)  # which holds the rows
    facts = _Facts(np.diff(indptr).astype(np.int32), dropped, merged, repeated)
    return columns, kept, _arrow_ids(ids, parts[0][0].type), facts


def _check_repeated(facts: list[_Facts]) -> None:
    """Refuse duplicates in the words of ``compress``, which counted those of a range, with the count of all."""
    first = next((one for one in facts if one.repeated), None)
    if first and first.repeated:
        said, meant = (
            counted(number, "entry repeats", "entries repeat")
            for number in (first.merged, sum(one.merged for one in facts))
        )
        text = meant + first.repeated.template.removeprefix(said)
        raise InputError(text, option="duplicates", expected=first.repeated.expected)
