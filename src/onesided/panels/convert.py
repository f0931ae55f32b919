"""Tables, arrays and sparse matrices of other libraries as codes of ids and floats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, examples, shown
from onesided.panels.csr import as_float
from onesided.panels.ids import Coded, check_ids, encode_ids, without_dictionary

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse as sp


_KINDS = "all integers, all strings or all numbers"


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
        elif isinstance(table, pa.Table):
            arrow = table  # pa.table() would copy it by way of C, where older versions crash on string views
        else:
            lazy = table.lazy().select(names).collect() if hasattr(table, "collect_schema") else table
            arrow = pa.table(lazy)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        reason = ", ".join(map(str, error.args))
        raise InputError(f"the table cannot be read ({reason}); make each column one kind: {_KINDS}") from error
    return [arrow.column(name) for name in names]


def arrow_array(given: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """A list or an array of any library as an Arrow array."""
    import pyarrow as pa

    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given
    try:
        if hasattr(given, "__arrow_c_stream__"):  # polars, pandas
            return pa.chunked_array(given)  # pa.array() would read polars item by item, and widen float32
        if isinstance(given, np.ndarray) and given.dtype.kind == "T":  # numpy's strings, which pyarrow reads from 26 on
            given = given.astype(object)
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
    is_number = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    if not any(accepts(values.type) for accepts in is_number):
        example = next((value.as_py() for value in values if value.is_valid), None)
        raise InputError(f"{name!r} holds {values.type}, for example {shown(example)}; values must be numbers")
    single = pa.types.is_float32(values.type) or pa.types.is_float16(values.type)
    values = values.cast(pa.float32() if single else pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def encode_entries(given: Sequence[Any], names: tuple[str, str, str]) -> tuple[Coded, Coded, Array]:
    """Row ids, column ids and values, three arrays of one length, as codes and floats."""
    rows, columns = (arrow_array(ids, name) for ids, name in zip(given[:2], names[:2], strict=True))
    values = entry_values(given[2], names[2])
    check_lengths(names, (rows, columns, values))
    if len(values) == 0:
        raise InputError("a panel needs at least one row and one column; the table holds no entries")
    with ThreadPoolExecutor(2) as pool:
        coded_rows, coded_columns = pool.map(encode_ids, (rows, columns), names[:2])
    return coded_rows, coded_columns, values


def check_lengths(names: Iterable[Any], arrays: Sequence[Any]) -> None:
    """Refuse arrays that are not of one length."""
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        listed = ", ".join(f"{name!r} {length:,}" for name, length in zip(names, lengths, strict=True))
        raise InputError(f"the arrays differ in length: {listed}; each entry needs one item of each")


def wide_table(table: Any, names: list[Any]) -> tuple[Array, Array | None, Array | None]:
    """A table with a column per column: its numbers, the ids of its rows (of its index, if any) and columns."""
    column_ids = check_ids(names, len(names), "column")
    numbers = np.asarray(table)  # right for plain numbers, and cheap
    if numbers.ndim != 2 or numbers.dtype.kind not in "biuf":
        columns = [entry_values(column, name) for column, name in zip(_read_columns(table, names), names, strict=True)]
        check_lengths(names, columns)
        numbers = np.column_stack(columns)
    index = np.asarray(table.index) if hasattr(table, "iloc") else None
    if index is None or np.array_equal(index, np.arange(len(numbers))):
        return numbers, None, column_ids
    try:
        return numbers, check_ids(index, len(numbers), "row"), column_ids
    except InputError as error:
        raise error.followed_by("; they are the table's index, which reset_index(drop=True) leaves out") from error
