"""What users bring, as compressed rows: tables to arrays, numbers checked, duplicates merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.errors import InputError, check_choice, counted, examples, shown
from onesided.ids import Coded, check_ids, encode_ids, without_dictionary
from onesided.kernels import cpu

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse as sp

Array = npt.NDArray[Any]
Duplicates = Literal["refuse", "mean", "sum", "last"]
NonFinite = Literal["refuse", "drop"]

LARGEST_VALUE = 1e75  # the fourth power still fits a double, with room for a sum
MOST_COLUMNS = np.iinfo(np.int32).max
_KINDS = "all integers, all strings or all numbers"


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
                f"{_non_finite(values, where)} (first at {place(row[k], column[k])}); "
                'drop them or pass non_finite="drop"'
            )
        row, column, values = row[finite], column[finite], values[finite]
    _check_magnitude(values, where)

    _, order = cpu.counting_sort(column, d)
    indptr, by_row = cpu.counting_sort(row[order], n)
    order = order[by_row]
    column, values = column[order].astype(np.int32, copy=False), values[order]

    repeated = column[1:] == column[:-1]
    repeated[_row_ends(indptr)] = False
    repeats = np.flatnonzero(repeated) + 1
    if len(repeats):
        if duplicates == "refuse":
            k = int(repeats[0])
            raise InputError(
                f"{counted(len(repeats), 'entry repeats', 'entries repeat')} an earlier (row, column) pair, "
                f"for example {place(_row_of(indptr, k), column[k])} with values {values[k - 1]:g} and {values[k]:g}; "
                'say how to merge them: duplicates="mean", "sum" or "last"'
            )
        indptr = indptr - np.searchsorted(repeats, indptr)
        first = np.ones(len(column), dtype=bool)
        first[repeats] = False
        column, values = column[first], _merge(values, np.flatnonzero(first), duplicates)
    return indptr, column, values


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


def sparse_entries(matrix: sp.sparray | sp.spmatrix) -> tuple[Coded, Coded, Array]:
    """The stored entries of a scipy sparse matrix; those stored twice stay apart."""
    n, d = matrix.shape
    if matrix.format in ("dia", "bsr"):
        raise InputError(
            f"a sparse matrix in {matrix.format} format is padded with zeros that nobody observed; "
            "convert it with tocsr() and see which of its zeros are to stay"
        )
    try:
        entries = matrix.tocoo()
    except ValueError as error:
        raise InputError(f"the sparse matrix is damaged ({error}); build it again") from error
    return (None, entries.row, n), (None, entries.col, d), as_float(entries.data, "the matrix")


def column_names(table: Any) -> list[Any] | None:
    """The names of a table's columns; None of what is not a table."""
    if isinstance(table, dict):
        return list(table)
    if hasattr(table, "iloc"):  # pandas, whose attributes may be columns
        return list(table.columns) if hasattr(table, "columns") else None
    if hasattr(table, "collect_schema"):  # polars, also lazy
        return list(table.collect_schema().names())
    if hasattr(getattr(table, "schema", None), "names"):  # pyarrow
        return list(table.schema.names)
    return list(table.columns) if hasattr(table, "__arrow_c_stream__") and hasattr(table, "columns") else None


def table_columns(table: Any, names: tuple[str, str, str]) -> list[Any]:
    """The named columns of anything that is, or can hand over, an Arrow table; of a dict, what it holds."""
    present = column_names(table)
    if present is None:
        raise InputError(f"expected a table (pandas, polars, pyarrow, a dict of arrays); found {type(table).__name__}")
    for name in names:
        if name not in present:
            raise InputError(f"the table has no column {name!r}; its columns are {examples(present, 12)}")
        if present.count(name) > 1:
            raise InputError(f"the table has {present.count(name)} columns {name!r}; rename them")
    if len(set(names)) < 3:
        raise InputError(f"row, column and value must be three different columns; found {names}")
    return _read_columns(table, list(names))


def _read_columns(table: Any, names: list[Any]) -> list[Any]:
    import pyarrow as pa

    if isinstance(table, dict):
        return [table[name] for name in names]
    try:
        if hasattr(table, "iloc"):
            arrow = pa.Table.from_pandas(table[names], preserve_index=False)
            return list(arrow.columns)  # whose names are strings, even where those of the table are not
        if isinstance(table, pa.RecordBatchReader):
            arrow = table.read_all()  # keeps an error of the source as it is
        else:
            lazy = table.lazy().select(names).collect() if hasattr(table, "collect_schema") else table
            arrow = pa.table(lazy)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        found = ", ".join(map(str, error.args))
        raise InputError(f"the table cannot be read ({found}); make each column one kind: {_KINDS}") from error
    return [arrow.column(name) for name in names]


def arrow_array(given: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """A list or an array of any library as an Arrow array."""
    import pyarrow as pa

    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given
    try:
        if hasattr(given, "__arrow_c_stream__"):  # polars, pandas
            return pa.chunked_array(given)  # pa.array() would read polars item by item, and widen float32
        return pa.array(given, from_pandas=True)
    except OverflowError as error:
        raise InputError(f"{name!r} has integers beyond 64 bits; give ids as strings, values as floats") from error
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"{name!r} cannot be read as a list of one kind ({error}); make it {_KINDS}") from error


def entry_values(given: Any, name: str) -> Array:
    """A list or an array of numbers as float32 or float64; what is missing becomes NaN."""
    import pyarrow as pa

    if type(given) is np.ndarray and given.dtype.kind != "O" and given.ndim == 1:
        return as_float(given, name)
    values = without_dictionary(arrow_array(given, name))
    is_number = (
        pa.types.is_floating,
        pa.types.is_integer,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,
    )
    if not any(accepts(values.type) for accepts in is_number):
        found = next((one.as_py() for one in values if one.is_valid), None)
        raise InputError(f"{name!r} holds {values.type}, for example {shown(found)}; values must be numbers")
    single = pa.types.is_float32(values.type) or pa.types.is_float16(values.type)
    values = values.cast(pa.float32() if single else pa.float64(), safe=False)
    if isinstance(values, pa.ChunkedArray):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def encode_entries(given: Sequence[Any], names: tuple[str, str, str]) -> tuple[Coded, Coded, Array]:
    """Row ids, column ids and values, three arrays of one length, as codes and floats."""
    rows, columns = (arrow_array(one, name) for one, name in zip(given[:2], names[:2], strict=True))
    values = entry_values(given[2], names[2])
    check_lengths(names, (rows, columns, values))
    if len(values) == 0:
        raise InputError("a panel needs at least one row and one column; the table holds no entries")
    return encode_ids(rows, names[0]), encode_ids(columns, names[1]), values


def check_lengths(names: Iterable[Any], arrays: Sequence[Any]) -> None:
    """Refuse arrays that are not of one length."""
    lengths = [len(one) for one in arrays]
    if len(set(lengths)) > 1:
        found = ", ".join(f"{name!r} {length:,}" for name, length in zip(names, lengths, strict=True))
        raise InputError(f"the arrays differ in length: {found}; each entry needs one item of each")


def wide_table(table: Any, names: list[Any]) -> tuple[Array, Array | None, Array | None]:
    """A table with a column per column: its numbers, the ids of its rows (of its index, if any) and columns."""
    column_ids = check_ids(names, len(names), "column")
    numbers = np.asarray(table)  # right for plain numbers, and cheap
    if numbers.ndim != 2 or numbers.dtype.kind not in "biuf":
        columns = [entry_values(one, name) for one, name in zip(_read_columns(table, names), names, strict=True)]
        check_lengths(names, columns)
        numbers = np.column_stack(columns)
    index = np.asarray(table.index) if hasattr(table, "iloc") else None
    if index is None or np.array_equal(index, np.arange(len(numbers))):
        return numbers, None, column_ids
    try:
        return numbers, check_ids(index, len(numbers), "row"), column_ids
    except InputError as error:
        raise InputError(f"{error}; they are the table's index, which reset_index(drop=True) leaves out") from error


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
