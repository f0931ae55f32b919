"""What users bring, as compressed rows: tables to arrays, numbers checked, duplicates merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.errors import InputError, check_choice, counted, examples, shown
from onesided.ids import Coded
from onesided.kernels import cpu

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
Duplicates = Literal["refuse", "mean", "sum", "last"]
NonFinite = Literal["refuse", "drop"]


def compress(
    rows: Coded, columns: Coded, values: Array, where: str, duplicates: Duplicates, non_finite: NonFinite
) -> tuple[Array, Array, Array]:
    """Entries in any order as compressed rows: pointers, columns ascending within a row, values."""
    check_choice("duplicates", duplicates, ("refuse", "mean", "sum", "last"))
    check_choice("non_finite", non_finite, ("refuse", "drop"))
    (row_ids, row, n), (column_ids, column, d) = rows, columns
    if d > np.iinfo(np.int32).max:
        raise InputError(f"{d:,} columns; at most {np.iinfo(np.int32).max:,} are supported")
    if n < 1 or d < 1:
        raise InputError(f"a panel needs a row and a column; found {n} × {d}: the table holds no entries")
    finite = np.isfinite(values)
    if not finite.all():
        if non_finite == "refuse":
            raise InputError(_describe_non_finite(values, finite, where))
        row, column, values = row[finite], column[finite], values[finite]

    _, order = cpu.counting_sort(column, d)
    indptr, by_row = cpu.counting_sort(row[order], n)
    order = order[by_row]
    row, column, values = row[order], column[order].astype(np.int32), values[order]

    repeats = np.flatnonzero((row[1:] == row[:-1]) & (column[1:] == column[:-1])) + 1
    if len(repeats):
        if duplicates == "refuse":
            k = repeats[0]
            shown_row = row[k] if row_ids is None else row_ids[row[k]]
            shown_column = column[k] if column_ids is None else column_ids[column[k]]
            raise InputError(
                f"{counted(len(repeats), 'entry', 'entries')} repeat an earlier (row, column) pair, for example row "
                f"{shown(shown_row)}, column {shown(shown_column)} with values {values[k - 1]:g} and {values[k]:g}; "
                'say how to merge them: duplicates="mean", "sum" or "last"'
            )
        keep = np.ones(len(row), dtype=bool)
        keep[repeats] = False
        values = _merge(values, np.flatnonzero(keep), duplicates)
        row, column = row[keep], column[keep]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return indptr, column, values


def _merge(values: Array, starts: Array, how: Duplicates) -> Array:
    ends = np.append(starts[1:], len(values))
    if how == "last":
        return np.asarray(values[ends - 1])
    total = np.add.reduceat(values, starts)
    return total if how == "sum" else (total / (ends - starts)).astype(values.dtype)


def _describe_non_finite(values: Array, finite: Array, where: str) -> str:
    infinite, missing = int(np.isinf(values).sum()), int(np.isnan(values).sum())
    parts = [counted(infinite, "infinite value")] if infinite else []
    parts += [counted(missing, "NaN or missing value")] if missing else []
    first = int(np.flatnonzero(~finite)[0])
    return f'{where} has {" and ".join(parts)} (first at entry {first}); drop them or pass non_finite="drop"'


def table_columns(table: Any, names: tuple[str, str, str]) -> list[pa.ChunkedArray]:
    """The named columns of anything that is, or can hand over, an Arrow table."""
    import pyarrow as pa

    if isinstance(table, dict):
        present = list(table)
    elif hasattr(table, "column_names"):
        present = list(table.column_names)
    elif hasattr(table, "columns"):
        present = [str(name) for name in table.columns]
    elif hasattr(table, "schema"):
        present = list(table.schema.names)
    else:
        raise InputError(f"expected a table (pandas, polars, pyarrow); found {type(table).__name__}")
    for name in names:
        if name not in present:
            raise InputError(f"the table has no column {name!r}; its columns are {examples(present, 12)}")
    if len(set(names)) < 3:
        raise InputError(f"row, column and value must be three different columns; found {names}")
    try:
        if isinstance(table, (pa.Table, pa.RecordBatch)):
            arrow = pa.table({name: table.column(name) for name in names})
        elif isinstance(table, pa.RecordBatchReader):
            arrow = table.read_all().select(list(names))
        elif isinstance(table, dict):
            arrow = pa.table({name: pa.array(table[name]) for name in names})
        else:
            arrow = pa.table(table[list(names)])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"the table cannot be read: {error}") from error
    return [arrow.column(name) for name in names]


def arrow_values(values: pa.Array | pa.ChunkedArray, name: str) -> Array:
    """Numbers of any Arrow type as float32 or float64; null becomes NaN."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    is_number = (
        pa.types.is_floating,
        pa.types.is_integer,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,
    )
    if not any(accepts(values.type) for accepts in is_number):
        found = next((one for one in values.to_pylist() if one is not None), None)
        raise InputError(f"{name!r} holds {values.type}, for example {shown(found)}; values must be numbers")
    single = pa.types.is_float32(values.type) or pa.types.is_float16(values.type)
    values = values.cast(pa.float32() if single else pa.float64(), safe=False)
    if isinstance(values, pa.ChunkedArray):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_float(values: Any, name: str) -> Array:
    """Numbers as they are if float32 or float64, otherwise as the narrower of the two that holds them."""
    array: Array = np.asarray(values)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biufO":
        raise InputError(f"{name} must hold numbers; found {array.dtype}")
    try:
        return np.asarray(array, dtype=np.float32 if array.dtype == np.float16 else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
