"""Compressed rows: what they must be, and how entries in any order become them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.errors import EXPECTED, InputError, check_choice, counted, shown
from onesided.kernels import cpu
from onesided.panels.ids import Coded

Array = npt.NDArray[Any]
Duplicates = Literal["refuse", "mean", "sum", "last"]
NonFinite = Literal["refuse", "drop"]

LARGEST_VALUE = 1e75  # the fourth power still fits a double, with room for a sum
MOST_COLUMNS = np.iinfo(np.int32).max


def check_options(duplicates: str, non_finite: str) -> None:
    """Refuse what is not an option."""
    check_choice("duplicates", duplicates, ("refuse", "mean", "sum", "last"))
    check_choice("non_finite", non_finite, ("refuse", "drop"))


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


def check_compressed(indptr: Any, columns: Any, values: Any, n_columns: int) -> tuple[Array, Array, Array]:
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
        _check_magnitude(values, "the array of values")
    return (
        np.ascontiguousarray(indptr, dtype=np.int64),
        np.ascontiguousarray(columns, dtype=np.int32),
        np.ascontiguousarray(values),
    )


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


def _check_magnitude(values: Array, where: str) -> None:
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if not largest <= LARGEST_VALUE:  # also true of NaN
        finite = np.isfinite(values)
        if not finite.all():
            raise InputError(f"{_non_finite(values, where)} (first at entry {int(np.argmin(finite))}); drop them")
        raise InputError(
            f"{where} reaches {largest:.3g} in magnitude, beyond {LARGEST_VALUE:.0e}, where moments overflow; "
            "rescale the values first"
        )


def _non_finite(values: Array, where: str) -> str:
    infinite, missing = int(np.isinf(values).sum()), int(np.isnan(values).sum())
    parts = [counted(infinite, "infinite value")] if infinite else []
    parts += [counted(missing, "NaN or missing value")] if missing else []
    return f"{where} has {' and '.join(parts)}"


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


def compress(
    rows: Coded, columns: Coded, values: Array, where: str, duplicates: Duplicates, non_finite: NonFinite
) -> tuple[Array, Array, Array]:
    """Entries in any order as compressed rows: pointers, columns ascending within a row, values."""
    check_options(duplicates, non_finite)
    (row_ids, row, n), (column_ids, column, d) = rows, columns
    check_shape(n, d)

    def place(u: int, j: int) -> str:
        return (
            f"row {shown(u if row_ids is None else row_ids[u])}, "
            f"column {shown(j if column_ids is None else column_ids[j])}"
        )

    finite = np.isfinite(values)
    if not finite.all():
        if non_finite == "refuse":
            k = int(np.argmin(finite))
            raise InputError(
                f"{_non_finite(values, where)} (first at {place(row[k], column[k])}); drop them or pass {EXPECTED}",
                option="non_finite",
                expected=["drop"],
            )
        row, column, values = row[finite], column[finite], values[finite]
    _check_magnitude(values, where)

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
    repeats = np.flatnonzero(repeated) + 1
    if len(repeats):
        if duplicates == "refuse":
            k = int(repeats[0])
            raise InputError(
                f"{counted(len(repeats), 'entry repeats', 'entries repeat')} an earlier (row, column) pair, "
                f"for example {place(_row_of(indptr, k), column[k])} with values {values[k - 1]:g} and {values[k]:g}; "
                f"say how to merge them: {EXPECTED}",
                option="duplicates",
                expected=["mean", "sum", "last"],
            )
        indptr = indptr - np.searchsorted(repeats, indptr)
        first = np.ones(len(column), dtype=bool)
        first[repeats] = False
        column, values = column[first], _merge(values, np.flatnonzero(first), duplicates)
    return indptr, column, values


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
    if how == "last":
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
        text = next((one for one in array.flat if isinstance(one, (str, bytes))), None)
        if text is not None:  # numpy would read "1.5" as a number
            raise InputError(f"{name} must hold numbers; found {shown(text)}")
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    try:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as that
            array = np.asarray(array, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    return np.where(np.ma.getmaskarray(values), np.nan, array) if np.ma.isMaskedArray(values) else array
