"""Long tables onto a cluster: Parquet files, or a dataset of Ray's, as blocks of whole rows in Ray's store.

Tasks read the lines twice. The first pass surveys them: it counts what is to be refused, collects the column ids, and
samples row ids, which cut the rows into blocks of about equally many entries. The second pass splits the lines at these
cuts and joins what belongs to a block. The driver holds only the column ids and the first row id of each block.

Ray Data makes the blocks of a given dataset, but its sort does not make ours: blocks that it had sorted, once lost with
a node, were not made again in six of seven trials with Ray 2.60, and whoever asked for them waited in vain. The results
of plain tasks, retried as often as need be, are remade each time, and they keep the order of lines; so all work here is
done by plain tasks.

What is refused, beside the values and ids that all readers refuse (:mod:`onesided.panels.refusals`):

=====================================================  ===========================================================
found                                                  message
=====================================================  ===========================================================
a path with nothing there, or no Parquet file          there is nothing at … / no Parquet files in …
a file gone, cut short or changed in between           … is gone / cut short or corrupt / has changed …, with its path
no lines                                               … hold no entries
``duplicates="last"`` of a dataset                     … the lines of a dataset have no order …
=====================================================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data

from onesided.arrays import Array
from onesided.engines.ray.cluster import Ref, current, fetched
from onesided.engines.ray.sources import Source, dataset_blocks, parquet_groups, tables_of, units_of
from onesided.errors import FOUND, InputError
from onesided.panels.csr import merge_entries
from onesided.panels.ids import encode_ids
from onesided.panels.refusals import (
    NonFinite,
    Repeats,
    ValueCounts,
    ValueRules,
    check_ids_present,
    check_one_kind,
    value_column,
)
from onesided.panels.table_files import TableColumns

Scheduling = Callable[[int, int], dict[str, Any]]  # given block k of n: Ray's options of the task that makes it

LINES = 1 << 20  # that a task reads at a time, or more where there are many blocks
LINES_APIECE = 1 << 13  # for each block: what a task returns in smaller pieces, Ray keeps on the driver
SAMPLED = 1 << 10  # lines for each block, by which rows are cut: blocks then differ by a few per cent
AT_A_TIME = 1 << 22  # entries of a block that are put in order at a time, which takes several times their memory
KINDS = {"int64": "integers", "large_string": "strings"}  # of ids, by their Arrow types
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
    names: TableColumns | None = None,
    rules: ValueRules | None = None,
    pieces: int,
    most: int = 1 << 28,
    scheduling: Scheduling = lambda k, n: {},
) -> Gathered:
    """Gather the rows of long tables in at most ``pieces`` blocks of about equally many entries, in Ray's store.

    There are more blocks where these would have more than ``most`` entries.

    ``data`` is a path, or several, of Parquet files or of directories, of which the files called ``*.parquet`` or
    ``*.pq`` are read, below them too, in the order of their paths; names that begin with "." or "_" are left out, as
    others do. It may also be a ``ray.data.Dataset``. Columns without a name are recognised as by ``open_table``. The
    rows are those of ``Panel.from_table``, were the tables one. ``scheduling`` gives the options of the task that makes
    a block.

    A block that is lost with its node is made again by reading all files again; they must stay as they are. Blocks of
    a dataset must be made again by those who made them: what Ray Data sorted or shuffled, write to Parquet files first.
    """
    names, rules = names or TableColumns(), rules or ValueRules()
    if rules.duplicates == "last" and isinstance(data, ray.data.Dataset):
        raise InputError(
            f"{FOUND} asks which line came last, and the lines of a dataset have no order; choose "
            '"mean" or "sum", or give Parquet files, which have one',
            option="duplicates",
            found="last",
            expected=["mean", "sum"],
        )
    task = current().spread_out
    read = dataset_blocks if isinstance(data, ray.data.Dataset) else parquet_groups
    sources: list[tuple[Source, list[Ref]]] = [*read(data, asdict(names))]
    lines = sum(source.lines for source, _ in sources)
    if not lines:
        raise InputError("a panel needs at least one row and one column; the tables hold no entries")
    pieces = max(pieces, -(-lines // most))
    ranges = -(-lines // (pieces * AT_A_TIME))  # of rows, in each block
    units = list(units_of(sources, max(LINES, LINES_APIECE * pieces * ranges)))
    step = max(1, lines // max(LINES_APIECE, SAMPLED * pieces * ranges))
    surveys = [task(_survey)(k, step, unit, *refs) for k, (unit, refs) in enumerate(units)]
    while len(surveys) > FAN_IN:
        surveys = [task(_together)(*surveys[k : k + FAN_IN]) for k in range(0, len(surveys), FAN_IN)]
    survey: _Survey = fetched(task(_concluded)(pieces, ranges, *surveys))
    survey.check(rules.non_finite)

    kept = ray.put(survey)
    n_ranges = len(survey.sample) + 1
    split = [task(_split, num_returns=n_ranges)(kept, unit, *refs) for unit, refs in units]
    by_range = list(zip(*split, strict=True)) if n_ranges > 1 else [tuple(split)]
    joined = [
        task(_joined, num_returns=3, **scheduling(k, len(survey.starts)))(
            kept, rules, last - first, *chain.from_iterable(by_range[first:last])
        )
        for k, (first, last) in enumerate(pairwise([*survey.starts, n_ranges]))
    ]
    del split, by_range  # what is joined need not stay
    of_blocks: list[list[_RangeFacts]] = fetched([facts for _, _, facts in joined])
    facts = [of_range for block in of_blocks for of_range in block]
    repeats = [of_range for _, of_range in facts if of_range]
    if repeats and rules.duplicates == "refuse":
        raise repeats[0]._replace(number=sum(some.number for some in repeats)).refusal()
    return Gathered(
        blocks=[block for block, _, _ in joined],
        row_ids=[ids for _, ids, _ in joined],
        row_counts=np.concatenate([row_counts for row_counts, _ in facts]),
        block_rows=[sum(len(row_counts) for row_counts, _ in block) for block in of_blocks],
        column_ids=survey.columns,
        dtype=np.dtype(survey.dtype),
        lines=lines,
        lines_dropped=survey.values.non_finite,
        lines_merged=sum(some.number for some in repeats),
    )


@dataclass(frozen=True)
class _Survey:
    """What was counted and collected in some of the lines, in their order."""

    names: list[str]  # the value columns
    kinds: list[tuple[str, str] | None]  # of row and column ids: integers or strings, and where the first are
    columns: Any  # distinct ids
    sample: Any  # ids of rows, of some lines; at last the first of each range of rows but the first
    dtype: str
    no_ids: list[tuple[int, str]]  # for rows and columns: how many lines have none, and where the first is
    values: ValueCounts
    starts: tuple[int, ...] = ()  # at last: with which range each block begins

    def __add__(self, other: _Survey) -> _Survey:
        for axis, kind, others in zip(("row", "column"), self.kinds, other.kinds, strict=True):
            if kind and others:
                check_one_kind(axis, kind, others)
        return _Survey(
            names=list(dict.fromkeys(self.names + other.names)),
            kinds=[kind or others for kind, others in zip(self.kinds, other.kinds, strict=True)],
            columns=_chained(self.columns, other.columns).unique(),
            sample=_chained(self.sample, other.sample),
            dtype=max(self.dtype, other.dtype),  # float64, if one of them is
            no_ids=[(a + b, at or first) for (a, at), (b, first) in zip(self.no_ids, other.no_ids, strict=True)],
            values=self.values + other.values,
        )

    @property
    def where(self) -> str:
        return value_column(self.names)

    def check(self, non_finite: NonFinite) -> None:
        """Refuse what ``Panel.from_table`` would refuse, had it all lines at once."""
        for missing, first in self.no_ids:
            check_ids_present(missing, f"in {first}")
        self.values.check(self.where, non_finite)


def _chained(first: Any, second: Any) -> Any:

    # Of no ids at all the kind is not known.
    return pa.concat_arrays([first, second]) if len(first) and len(second) else first if len(first) else second


def _survey(k: int, step: int, sources: list[Source], *blocks: Any) -> _Survey:
    """Survey the lines of a unit, and sample every step-th row id."""
    rng = np.random.default_rng(k)
    surveys = []
    for source, rows, columns, values in tables_of(sources, blocks):
        at = np.arange(0, len(rows), step)
        at += rng.integers(step, size=len(at))
        present = [ids.drop_null() for ids in (rows, columns)]
        surveys.append(
            _Survey(
                names=[source.names[2]],
                kinds=[(KINDS[str(ids.type)], source.path) if len(ids) else None for ids in present],
                columns=present[1].unique(),
                sample=present[0].take(at[at < len(present[0])]),
                dtype=str(values.dtype),
                no_ids=[_without_id(source, axis, ids) for axis, ids in enumerate((rows, columns))],
                values=ValueCounts.of(values, partial(_pair_at, rows, columns)),
            )
        )
    return _together(*surveys)


def _pair_at(rows: Any, columns: Any, at: int) -> tuple[Any, Any]:
    return rows[at].as_py(), columns[at].as_py()


def _without_id(source: Source, axis: int, ids: Any) -> tuple[int, str]:
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
        sample=pa.array(ids[first[1:]], survey.sample.type),
        starts=tuple(starts.tolist()),
    )


_Lines = tuple[Any, Array, Array, Array]  # row ids, the code of each line's, its column, its value


def _split(survey: _Survey, sources: list[Source], *blocks: Any) -> Any:
    """The lines of a unit, in their order, for each range of rows; None where there are none."""
    column_ids = pa.array(survey.columns)
    _, row_ids, ids_of_columns, some_values = zip(*tables_of(sources, blocks), strict=True)
    rows = pa.chunked_array(row_ids)
    column = np.concatenate([pc.index_in(ids, column_ids.cast(ids.type)).to_numpy() for ids in ids_of_columns])
    values = np.concatenate(some_values).astype(survey.dtype, copy=False)
    del row_ids, ids_of_columns, some_values
    ids, code, n = encode_ids(rows, "rows")
    assert ids is not None
    cuts = survey.sample.to_numpy(zero_copy_only=False)
    edges = np.concatenate([[0], np.searchsorted(ids, cuts), [n]])
    kind = np.uint16 if len(edges) < 1 << 16 else np.int64
    of_line = np.repeat(np.arange(len(edges) - 1, dtype=kind), np.diff(edges))[code]
    order = np.argsort(of_line, kind="stable")  # of 16 bits: by counting
    ends = np.cumsum(np.bincount(of_line, minlength=len(edges) - 1))
    by_range: list[_Lines | None] = []
    for (first, last), (begin, end) in zip(pairwise(edges), pairwise([0, *ends]), strict=True):
        here = order[begin:end]
        range_ids = pa.array(ids[first:last], rows.type)
        by_range.append((range_ids, code[here] - np.int32(first), column[here], values[here]) if len(here) else None)
    return by_range if len(by_range) > 1 else by_range[0]


_RangeFacts = tuple[Array, Repeats | None]  # entries in each row of a range, and pairs that appear twice


def _joined(
    survey: _Survey, rules: ValueRules, ranges: int, *pieces: _Lines | None
) -> tuple[tuple[Array, Array, Array], Any, list[_RangeFacts]]:
    """A block of rows, their ids, and what the driver needs to know: range after range."""
    units, at = len(pieces) // ranges, 0
    lines = sum(len(piece[3]) for piece in pieces if piece is not None)
    columns, values = np.empty(lines, np.int32), np.empty(lines, survey.dtype)
    ids, facts = [], []
    for k in range(0, len(pieces), units):
        here = [piece for piece in pieces[k : k + units] if piece is not None]
        range_columns, range_values, range_ids, range_facts = _ordered(survey, rules, here)
        end = at + len(range_values)
        columns[at:end], values[at:end] = range_columns, range_values
        at = end
        ids.append(range_ids)
        facts.append(range_facts)
    counts = np.concatenate([row_counts for row_counts, _ in facts])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return (indptr, columns[:at], values[:at]), pa.concat_arrays(ids), facts


def _ordered(survey: _Survey, rules: ValueRules, pieces: list[_Lines]) -> tuple[Array, Array, Any, _RangeFacts]:
    """The columns and values of a range of rows, in order, and their ids."""
    ids, code, n = encode_ids(pa.chunked_array([piece[0] for piece in pieces]), "rows")
    assert ids is not None
    starts = np.cumsum([0, *(len(piece[0]) for piece in pieces)])
    row = np.concatenate([code[start:][piece[1]] for start, piece in zip(starts, pieces, strict=False)])
    column, values = (np.concatenate([piece[k] for piece in pieces]) for k in (2, 3))
    coded = (ids, row, n), (survey.columns, column, len(survey.columns))
    (indptr, columns, kept), repeats = merge_entries(*coded, values, survey.where, rules)
    facts = np.diff(indptr).astype(np.int32), repeats
    return columns, kept, pa.array(ids, pieces[0][0].type), facts
