"""Compressed rows: what they must be, and how entries in any order become them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted, shown
from onesided.kernels import cpu
from onesided.panels.ids import Coded
from onesided.panels.refusals import Duplicates, Repeats, ValueCounts, ValueRules

Rows = tuple[Array, Array, Array]  # pointers, columns ascending within a row, values

MOST_COLUMNS = np.iinfo(np.int32).max


def check_shape(*shape: int) -> tuple[int, int]:
    """The shape of a matrix that a panel can hold."""
    if len(shape) != 2:
        raise InputError(f"expected a table of rows and columns; found an array of shape {shape}")
    n, d = shape
    if n < 1 or d < 1:
        raise InputError(f"a panel needs at least one row and one column; found {n} × {d}")
    if d > MOST_COLUMNS:
        raise InputError(
            f"{d:,} columns, but at most {MOST_COLUMNS:,} are supported; "
            "Panel.from_arrays() makes a panel of those with entries"
        )
    return n, d


def check_compressed(indptr: Any, columns: Any, values: Any, n_columns: int) -> Rows:
    """Compressed rows as int64 pointers, int32 columns and floats, if they are in order."""
    indptr, columns = _as_integers(indptr, "indptr"), _as_integers(columns, "columns")
    values = as_float(values, "values")
    if not isinstance(n_columns, (int, np.integer)):
        raise InputError(f"n_columns must be an integer; found {n_columns!r}")
    check_shape(max(len(indptr) - 1, 0), n_columns)
    if values.shape != columns.shape:
        raise InputError(
            f"{counted(len(columns), 'column code')} but values of shape {values.shape}; give one for each"
        )
    if indptr[0] != 0 or indptr[-1] != len(columns) or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"indptr must rise from 0 to the number of entries, {len(columns):,}, and never fall")
    if len(columns):
        least, most = columns.min(), columns.max()
        if least < 0 or most >= n_columns:
            raise InputError(f"column codes must lie between 0 and {n_columns - 1}; found {least} to {most}")
        ascends = columns[1:] > columns[:-1]
        ascends[_row_ends(indptr)] = True  # from one row to the next they may fall
        if not ascends.all():
            k = int(np.argmin(ascends))
            raise InputError(
                "column codes must ascend within each row, without repetition; "
                f"row {_row_of(indptr, k)} has {columns[k]} before {columns[k + 1]}"
            )
        counts = ValueCounts.of(values, lambda at: at)
        counts.check("the array of values", location=lambda at: f"entry {at}", remedy="drop them")
    indptr, columns = np.ascontiguousarray(indptr, dtype=np.int64), np.ascontiguousarray(columns, dtype=np.int32)
    return indptr, columns, np.ascontiguousarray(values)


def _as_integers(numbers: Any, name: str) -> Array:
    array = np.asarray(numbers)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a list of integers; found {array.dtype} of shape {array.shape}")
    return array


def _row_ends(indptr: Array) -> Array:
    """Where a row's last entry stands, of all rows with entries but the last of them."""
    ends = indptr[1:-1]
    return np.asarray(ends[(ends > 0) & (ends < indptr[-1])] - 1)


def _row_of(indptr: Array, entry: int) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def check_weights(given: Any, n_rows: int) -> Array:
    """Row weights as float64, a copy: one for each row, not negative; ones where not given."""
    if given is None:
        return np.ones(n_rows)
    weights = np.array(as_float(given, "row weights"), dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InputError(f"{counted(n_rows, 'row')} but row weights of shape {weights.shape}; give one for each")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InputError(
            f"{counted(len(bad), 'row weight')} negative or not finite (first at row {bad[0]}: {weights[bad[0]]:g}); "
            "a row that is not to count weighs 0"
        )
    used = weights[weights > 0]
    if len(used) and not 1e-100 <= used.min() <= used.max() <= 1e100:
        raise InputError(
            f"row weights run from {used.min():.3g} to {used.max():.3g}; outside 1e-100 to 1e100 their squares are "
            "lost: rescale them"
        )
    return weights


def merge_entries(
    rows: Coded, columns: Coded, values: Array, where: str, rules: ValueRules
) -> tuple[Rows, Repeats | None]:
    """Entries in any order as compressed rows, and the pairs that appear more than once, if any.

    Such pairs are merged as the rules say. Where these refuse them the last entry stands, and it is left to the caller,
    who may have read only a piece of the table, to raise :meth:`Repeats.refusal`.
    """
    (row_ids, row, n), (column_ids, column, d) = rows, columns
    check_shape(n, d)

    def pair(u: int, j: int) -> tuple[Any, Any]:
        return u if row_ids is None else row_ids[u], j if column_ids is None else column_ids[j]

    counts = ValueCounts.of(values, lambda at: pair(row[at], column[at]))
    counts.check(where, rules.non_finite)
    if counts.non_finite:
        finite = np.isfinite(values)
        row, column, values = row[finite], column[finite], values[finite]

    column = column.astype(np.int32, copy=False)
    if _in_order(row, column):
        indptr = np.searchsorted(row, np.arange(n + 1, dtype=row.dtype))
        column, values = column.copy(), values.copy()  # they may be the caller's
    else:
        starts, row, values = _grouped(column, row, values, d)
        column = np.repeat(np.arange(d, dtype=np.int32), np.diff(starts))
        indptr, column, values = _grouped(row, column, values, n)

    repeated = column[1:] == column[:-1]
    repeated[_row_ends(indptr)] = False
    repeating = np.flatnonzero(repeated) + 1
    if not len(repeating):
        return (indptr, column, values), None
    k = int(repeating[0])
    repeats = Repeats(len(repeating), pair(_row_of(indptr, k), column[k]), (values[k - 1].item(), values[k].item()))
    indptr = indptr - np.searchsorted(repeating, indptr)
    first = np.ones(len(column), dtype=bool)
    first[repeating] = False
    return (indptr, column[first], _merge(values, np.flatnonzero(first), rules.duplicates)), repeats


def _in_order(row: Array, column: Array) -> bool:
    """Whether rows never fall, nor columns within a row."""
    if np.any(row[1:] < row[:-1]):
        return False
    return not np.any((column[1:] < column[:-1]) & (row[1:] == row[:-1]))


def _grouped(keys: Array, others: Array, values: Array, n_keys: int) -> tuple[Array, Array, Array]:
    """Where each key's entries begin, and what the entries carry, by key and otherwise in the order given.

    Each of two threads takes half of the entries: the second puts those of a key after the first's.
    """
    halves = slice(len(keys) // 2), slice(len(keys) // 2, None)
    sorted_others, sorted_values = np.empty_like(others), np.empty_like(values)
    with ThreadPoolExecutor(len(halves)) as pool:
        first, second = pool.map(lambda half: cpu.key_counts(keys[half], n_keys), halves)
        starts = np.concatenate([[0], np.cumsum(first + second)])
        jobs = [
            pool.submit(cpu.group, keys[half], others[half], values[half], free, sorted_others, sorted_values)
            for half, free in zip(halves, (starts[:-1].copy(), starts[:-1] + first), strict=True)
        ]
        for job in jobs:
            job.result()
    return starts, sorted_others, sorted_values


def _merge(values: Array, starts: Array, how: Duplicates) -> Array:
    ends = np.append(starts[1:], len(values))
    if how in ("last", "refuse"):
        return np.asarray(values[ends - 1])
    merged = np.add.reduceat(values, starts, dtype=np.float64)
    if how == "mean":
        merged /= ends - starts
    if np.abs(merged).max() > np.finfo(values.dtype).max:
        raise InputError(f"a sum of duplicates does not fit {values.dtype}; give the values as float64")
    return merged.astype(values.dtype)


def as_float(values: Any, name: str) -> Array:
    """Numbers as float32 if they are that or float16, otherwise as float64; None and masked become NaN."""
    try:
        array: Array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must have rows of one length: {error}") from error
    if array.dtype.kind not in "biufO":
        raise InputError(f"{name} must hold numbers; found {array.dtype}")
    if array.dtype.kind == "O":
        text = next((item for item in array.flat if isinstance(item, (str, bytes))), None)
        if text is not None:  # numpy would read "1.5" as a number
            raise InputError(f"{name} must hold numbers; found {shown(text)}")
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    try:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as that
            array = np.asarray(array, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    return np.where(np.ma.getmaskarray(values), np.nan, array) if np.ma.isMaskedArray(values) else array
