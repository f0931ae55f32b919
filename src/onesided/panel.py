"""What was observed: the entries of an n × d matrix, row by row.

A panel keeps its entries in compressed rows, columns ascending within a row. Absent means missing; a stored
zero is an observation. Ids are sorted, so the order of a table's lines does not change the panel made of it.

What is refused, and what can be asked for instead:

====================================================  =====================================================
found                                                 instead
====================================================  =====================================================
infinite or NaN values (a NaN in a dense array is a   ``non_finite="drop"``
missing entry, never refused)
a (row, column) pair that appears twice               ``duplicates="mean"``, ``"sum"`` or ``"last"``
missing, floating-point or mixed ids                  integers or strings
values above 1e75 in magnitude                        rescale: their moments would overflow
no rows, or no columns
====================================================  =====================================================

Rows with one entry are kept: they inform the diagonal and the means. Rows and columns without entries are
kept where the input has them (dense and sparse input).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.errors import InputError, check_choice
from onesided.kernels import cpu

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse as sp

Array = npt.NDArray[Any]
Duplicates = Literal["refuse", "mean", "sum", "last"]
NonFinite = Literal["refuse", "drop"]

LARGEST_VALUE = 1e75  # the fourth power still fits a double, with room for a sum


class Panel:
    """The observed entries of an n × d matrix, with row ids, column ids and a weight per row.

    Parameters
    ----------
    indptr : int64 array of n + 1
        Row ``u`` holds the entries ``indptr[u]`` to ``indptr[u + 1]``.
    columns : int32 array
        The column of each entry, strictly ascending within a row.
    values : float32 or float64 array
        The value of each entry. Arrays are shared with the caller, not copied, and are never written to.
    n_columns : int
    row_ids, column_ids : arrays, optional
        Integers or strings, without repetition; positions where not given.
    row_weights : array of n, optional
        Not negative; one for each row where not given.

    Examples
    --------
    >>> import numpy as np
    >>> panel = Panel.from_arrays(["ann", "ann", "bob"], ["tea", "rye", "tea"], [5.0, 0.0, 3.0])
    >>> panel
    Panel(2 rows × 2 columns, 3 entries)
    >>> panel.to_dense()
    array([[ 0.,  5.],
           [nan,  3.]])
    """

    def __init__(
        self,
        indptr: Array,
        columns: Array,
        values: Array,
        n_columns: int,
        *,
        row_ids: Array | None = None,
        column_ids: Array | None = None,
        row_weights: Array | None = None,
    ) -> None:
        self.indptr = _frozen(np.asarray(indptr, dtype=np.int64))
        self.columns = _frozen(np.asarray(columns, dtype=np.int32))
        self.values = _frozen(_as_float(values, "values"))
        self.n_rows, self.n_columns = len(self.indptr) - 1, int(n_columns)
        self._check_shape()
        self._row_ids = _check_ids(row_ids, self.n_rows, "row")
        self._column_ids = _check_ids(column_ids, self.n_columns, "column")
        self.row_weights = _check_weights(row_weights, self.n_rows)

    def _check_shape(self) -> None:
        if self.n_rows < 1 or self.n_columns < 1:
            raise InputError(f"a panel needs a row and a column; found {self.n_rows} × {self.n_columns}")
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.columns) or np.any(np.diff(self.indptr) < 0):
            raise InputError("indptr must rise from 0 to the number of entries")
        if len(self.columns) != len(self.values):
            raise InputError(f"{len(self.columns)} column codes but {len(self.values)} values")
        if len(self.columns) == 0:
            return
        if self.columns.min() < 0 or self.columns.max() >= self.n_columns:
            raise InputError(f"column codes must lie between 0 and {self.n_columns - 1}")
        ascends = np.diff(self.columns) > 0
        row_starts = self.indptr[1:-1]
        ascends[row_starts[(row_starts > 0) & (row_starts < len(self.columns))] - 1] = True
        if not ascends.all():
            raise InputError("column codes must ascend within each row, without repetition")
        largest = float(np.max(np.abs(self.values)))
        if not largest <= LARGEST_VALUE:  # also true of NaN
            raise InputError(
                f"values reach {largest:.3g} in magnitude, beyond which moments overflow "
                f"(at most {LARGEST_VALUE:.0e}); rescale them first"
            )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        row: str,
        column: str,
        value: str,
        duplicates: Duplicates = "refuse",
        non_finite: NonFinite = "refuse",
    ) -> Panel:
        """From a long table, one line per entry: pandas, polars, pyarrow, or anything that speaks Arrow.

        >>> import pyarrow as pa
        >>> ratings = pa.table({"user": [7, 7, 9], "item": ["a", "b", "a"], "stars": [5, 3, 4]})
        >>> Panel.from_table(ratings, row="user", column="item", value="stars")
        Panel(2 rows × 2 columns, 3 entries)
        """
        rows, columns, values = _table_columns(table, (row, column, value))
        return _from_entries(
            _encode_ids(rows, row),
            _encode_ids(columns, column),
            _arrow_values(values, value),
            f"column {value!r}",
            duplicates,
            non_finite,
        )

    @classmethod
    def from_arrays(
        cls,
        rows: Any,
        columns: Any,
        values: Any,
        *,
        duplicates: Duplicates = "refuse",
        non_finite: NonFinite = "refuse",
    ) -> Panel:
        """From three arrays of one length: row ids, column ids and values.

        >>> Panel.from_arrays([1, 1, 2], [10, 20, 10], [0.5, 1.5, 2.5]).column_ids
        array([10, 20])
        """
        import pyarrow as pa

        lengths = {len(rows), len(columns), len(values)}
        if len(lengths) > 1:
            raise InputError(
                f"rows, columns and values differ in length: {len(rows)}, {len(columns)}, {len(values)}"
            )
        arrays = []
        for name, given in (("rows", rows), ("columns", columns), ("values", values)):
            try:
                arrays.append(pa.array(given))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise InputError(f"{name} cannot be read as one type: {error}") from error
        return _from_entries(
            _encode_ids(arrays[0], "rows"),
            _encode_ids(arrays[1], "columns"),
            _arrow_values(arrays[2], "values"),
            "values",
            duplicates,
            non_finite,
        )

    @classmethod
    def from_sparse(
        cls,
        matrix: sp.sparray | sp.spmatrix,
        *,
        duplicates: Duplicates = "refuse",
        non_finite: NonFinite = "refuse",
    ) -> Panel:
        """From a scipy sparse matrix: every stored entry is an observation, stored zeros too.

        >>> import scipy.sparse as sp
        >>> Panel.from_sparse(sp.csr_array(([4.0, 0.0], ([0, 1], [2, 0])), shape=(2, 3)))
        Panel(2 rows × 3 columns, 2 entries)
        """
        n, d = _check_positive_shape(matrix.shape)
        if matrix.format == "csr" and matrix.has_canonical_format:  # sorted and without duplicates
            values = _as_float(matrix.data, "the matrix")
            if np.isfinite(values).all():
                return cls(matrix.indptr, matrix.indices, values, d)
        entries = matrix.tocoo()  # duplicates stay apart
        return _from_entries(
            (None, entries.row.astype(np.int64), n),
            (None, entries.col.astype(np.int64), d),
            _as_float(entries.data, "the matrix"),
            "the matrix",
            duplicates,
            non_finite,
        )

    @classmethod
    def from_dense(cls, matrix: Any, *, non_finite: NonFinite = "refuse") -> Panel:
        """From a dense array: NaN is missing, everything else was observed.

        >>> import numpy as np
        >>> Panel.from_dense([[1.0, np.nan], [0.0, 2.0]])
        Panel(2 rows × 2 columns, 3 entries)
        """
        matrix = _as_float(matrix, "the array")
        if matrix.ndim != 2:
            raise InputError(f"expected a table of rows and columns; found an array of shape {matrix.shape}")
        n, d = _check_positive_shape(matrix.shape)
        observed = ~np.isnan(matrix)
        rows, columns = np.nonzero(observed)
        return _from_entries(
            (None, rows, n), (None, columns, d), matrix[observed], "the array", "refuse", non_finite
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_columns

    @property
    def n_entries(self) -> int:
        """How many entries were observed."""
        return len(self.values)

    @property
    def row_ids(self) -> Array:
        """The id of each row; its position where none was given."""
        return np.arange(self.n_rows) if self._row_ids is None else self._row_ids

    @property
    def column_ids(self) -> Array:
        """The id of each column; its position where none was given."""
        return np.arange(self.n_columns) if self._column_ids is None else self._column_ids

    @property
    def has_row_ids(self) -> bool:
        """Whether rows were given ids."""
        return self._row_ids is not None

    @property
    def has_column_ids(self) -> bool:
        """Whether columns were given ids."""
        return self._column_ids is not None

    @property
    def row_counts(self) -> Array:
        """Entries in each row."""
        return np.diff(self.indptr)

    @cached_property
    def column_counts(self) -> Array:
        """Entries in each column."""
        return np.bincount(self.columns, minlength=self.n_columns)

    @cached_property
    def by_column(self) -> tuple[Array, Array, Array]:
        """The same entries by column: pointers, the row of each entry (ascending), its value."""
        indptr, order = cpu.counting_sort(self.columns, self.n_columns)
        rows = np.repeat(np.arange(self.n_rows), self.row_counts)
        return indptr, rows[order], self.values[order]

    def row_positions(self, ids: Iterable[Any]) -> Array:
        """Positions of rows by id; an unknown id is named in the error."""
        return known_positions(self.row_ids, ids, "row")

    def column_positions(self, ids: Iterable[Any]) -> Array:
        """Positions of columns by id; an unknown id is named in the error.

        >>> Panel.from_arrays([1, 1], ["tea", "rye"], [5.0, 3.0]).column_positions(["tea"])
        array([1])
        """
        return known_positions(self.column_ids, ids, "column")

    def with_row_weights(self, weights: Any) -> Panel:
        """The same panel with other row weights, in the order of ``row_ids``."""
        return self._with(row_weights=np.asarray(weights))

    def take_rows(self, rows: Any) -> Panel:
        """The panel of the named positions (or of a mask over rows), in that order."""
        rows = np.arange(self.n_rows)[np.asarray(rows)]
        counts = self.row_counts[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Panel(
            indptr,
            self.columns[entries],
            self.values[entries],
            self.n_columns,
            row_ids=None if self._row_ids is None else self._row_ids[rows],
            column_ids=self._column_ids,
            row_weights=self.row_weights[rows],
        )

    def align_columns(self, column_ids: Array, *, unknown: Literal["refuse", "drop"] = "refuse") -> Panel:
        """The same rows over another panel's columns, matched by id.

        Entries in columns that ``column_ids`` does not have are refused, or dropped with ``unknown="drop"``;
        their rows stay.

        >>> new = Panel.from_arrays([1, 1], ["tea", "gin"], [5.0, 3.0])
        >>> new.align_columns(np.array(["rye", "tea"], dtype=object), unknown="drop")
        Panel(1 rows × 2 columns, 1 entries)
        """
        check_choice("unknown", unknown, ("refuse", "drop"))
        position, known = _find(column_ids, self.column_ids)
        known = known | (self.column_counts == 0)
        if unknown == "refuse" and not known.all():
            strangers = self.column_ids[~known]
            raise InputError(
                f"{_count(len(strangers), 'column id')} unknown to the model: {_examples(strangers)}; "
                'pass unknown="drop" to leave their entries out'
            )
        kept = known[self.columns] & (position[self.columns] >= 0)
        rows = np.repeat(np.arange(self.n_rows), self.row_counts)[kept]
        panel = _from_entries(
            (self._row_ids, rows, self.n_rows),
            (column_ids, position[self.columns][kept], len(column_ids)),
            self.values[kept],
            "the panel",
            "refuse",
            "refuse",
        )
        return panel.with_row_weights(self.row_weights)

    def to_sparse(self) -> sp.csr_array:
        """As a scipy CSR array; observed zeros are stored."""
        import scipy.sparse as sp

        return sp.csr_array((self.values, self.columns, self.indptr), shape=self.shape, copy=True)

    def to_dense(self) -> Array:
        """As a dense array; NaN where nothing was observed."""
        dense = np.full(self.shape, np.nan, dtype=self.values.dtype)
        dense[np.repeat(np.arange(self.n_rows), self.row_counts), self.columns] = self.values
        return dense

    def _with(self, row_weights: Array) -> Panel:
        panel = object.__new__(Panel)
        panel.__dict__.update(self.__dict__)
        panel.row_weights = _check_weights(row_weights, self.n_rows)
        return panel

    def __repr__(self) -> str:
        return f"Panel({self.n_rows:,} rows × {self.n_columns:,} columns, {self.n_entries:,} entries)"


def as_panel(
    data: Any,
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    duplicates: Duplicates = "refuse",
    non_finite: NonFinite = "refuse",
) -> Panel:
    """Make a panel of whatever holds one.

    A long table when ``row``, ``column`` and ``value`` name its columns; a scipy sparse matrix; three arrays
    in a tuple (row ids, column ids, values); otherwise a dense table of rows and columns, where NaN is
    missing, whose column names (pandas, polars) become the column ids. A panel is returned as it is.

    >>> as_panel([[1.0, float("nan")], [2.0, 3.0]])
    Panel(2 rows × 2 columns, 3 entries)
    >>> as_panel((["ann", "bob"], ["tea", "tea"], [5.0, 3.0]))
    Panel(2 rows × 1 columns, 2 entries)
    """
    named = [name for name in (row, column, value) if name is not None]
    if named:
        if row is None or column is None or value is None:
            raise InputError("name all three of row, column and value, or none of them for a dense table")
        return Panel.from_table(
            data, row=row, column=column, value=value, duplicates=duplicates, non_finite=non_finite
        )
    if isinstance(data, Panel):
        return data
    if hasattr(data, "tocoo"):
        return Panel.from_sparse(data, duplicates=duplicates, non_finite=non_finite)
    if isinstance(data, tuple) and len(data) == 3 and all(np.ndim(part) == 1 for part in data):
        return Panel.from_arrays(*data, duplicates=duplicates, non_finite=non_finite)
    panel = Panel.from_dense(data, non_finite=non_finite)
    names = getattr(data, "columns", None)
    if names is None:
        return panel
    return Panel(
        panel.indptr, panel.columns, panel.values, panel.n_columns, column_ids=np.asarray(names, dtype=object)
    )


# ---- from entries to compressed rows -----------------------------------------------------------------------

Coded = tuple[Array | None, Array, int]  # ids (or None), the code of each entry, how many codes there are


def _from_entries(
    rows: Coded, columns: Coded, values: Array, where: str, duplicates: Duplicates, non_finite: NonFinite
) -> Panel:
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
                f"{_count(len(repeats), 'entry', 'entries')} repeat an earlier (row, column) pair, for example row "
                f"{_show(shown_row)}, column {_show(shown_column)} with values {values[k - 1]:g} and {values[k]:g}; "
                'say how to merge them: duplicates="mean", "sum" or "last"'
            )
        keep = np.ones(len(row), dtype=bool)
        keep[repeats] = False
        values = _merge(values, np.flatnonzero(keep), duplicates)
        row, column = row[keep], column[keep]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return Panel(indptr, column, values, d, row_ids=row_ids, column_ids=column_ids)


def _merge(values: Array, starts: Array, how: Duplicates) -> Array:
    ends = np.append(starts[1:], len(values))
    if how == "last":
        return values[ends - 1]
    total = np.add.reduceat(values, starts)
    return total if how == "sum" else (total / (ends - starts)).astype(values.dtype)


# ---- ids -----------------------------------------------------------------------------------------------------


def _encode_ids(ids: pa.Array | pa.ChunkedArray, name: str) -> Coded:
    """Sorted distinct ids and the code of each line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if ids.null_count:
        first = pc.index(pc.is_null(ids), True).as_py()
        raise InputError(f"{name!r} has {_count(ids.null_count, 'missing id')} (first at line {first}); drop them")
    if pa.types.is_integer(ids.type):
        try:
            ids = ids.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{name!r} has ids beyond 64-bit integers; use strings") from error
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type):
        ids = ids.cast(pa.large_string())
    elif len(ids) or not pa.types.is_null(ids.type):
        raise InputError(f"{name!r} holds {ids.type}; ids must be integers or strings")
    coded = pc.dictionary_encode(ids)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks() if coded.num_chunks != 1 else coded.chunk(0)
    if isinstance(coded, pa.ChunkedArray):  # no chunk at all: an empty table
        return None, np.empty(0, dtype=np.int64), 0
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    distinct = coded.dictionary.to_numpy(zero_copy_only=False)[order]
    return distinct, rank[coded.indices.to_numpy()], len(distinct)


def _check_ids(ids: Array | None, expected: int, axis: str) -> Array | None:
    if ids is None:
        return None
    ids = np.asarray(ids)
    if ids.dtype.kind in "UT":
        ids = ids.astype(object)
    if ids.shape != (expected,):
        raise InputError(f"{expected} {axis}s but {axis}_ids of shape {ids.shape}")
    if ids.dtype.kind == "O" and not all(isinstance(one, str) for one in ids):
        if not all(isinstance(one, (int, np.integer)) for one in ids):
            raise InputError(f"{axis}_ids must be all integers or all strings")
        ids = ids.astype(np.int64)
    elif ids.dtype.kind not in "Oiu":
        raise InputError(f"{axis}_ids must be integers or strings; found {ids.dtype}")
    distinct = len(np.unique(ids)) if ids.dtype.kind != "O" else len(set(ids.tolist()))
    if distinct != expected:
        raise InputError(f"{axis}_ids repeat: {expected} ids, {distinct} distinct")
    return _frozen(ids)


def _find(known: Array, wanted: Array) -> tuple[Array, Array]:
    """Where each wanted id stands among the known ones (-1 where it does not), and whether it does."""
    same_kind = (known.dtype.kind == "O") == (wanted.dtype.kind == "O")
    if not same_kind:
        return np.full(len(wanted), -1), np.zeros(len(wanted), dtype=bool)
    if known.dtype.kind == "O":
        lookup = {one: at for at, one in enumerate(known.tolist())}
        position = np.array([lookup.get(one, -1) for one in wanted.tolist()], dtype=np.int64)
        return position, position >= 0
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    found = known[order[at]] == wanted
    return np.where(found, order[at], -1), found


def known_positions(known: Array, ids: Iterable[Any], axis: str) -> Array:
    wanted = np.asarray(list(ids))
    if wanted.dtype.kind not in "iu":
        wanted = wanted.astype(object)
    position, found = _find(known, wanted)
    if not found.all():
        strangers = wanted[~found]
        raise InputError(f"{_count(len(strangers), f'{axis} id')} not in the panel: {_examples(strangers)}")
    return position


# ---- values and shapes ---------------------------------------------------------------------------------------


def _table_columns(table: Any, names: tuple[str, str, str]) -> list[Any]:
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
            raise InputError(f"the table has no column {name!r}; its columns are {_examples(present, 12)}")
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


def _arrow_values(values: pa.Array | pa.ChunkedArray, name: str) -> Array:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        if not pa.types.is_null(kind):
            shown = next((v for v in values.to_pylist() if v is not None), None)
            raise InputError(f"{name!r} holds {kind}, for example {_show(shown)}; values must be numbers")
        values = values.cast(pa.float64())
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    dtype = np.float32 if pa.types.is_float32(kind) or pa.types.is_float16(kind) else np.float64
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        values = values.cast(pa.float32() if dtype == np.float32 else pa.float64(), safe=False)
    if isinstance(values, pa.ChunkedArray):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _as_float(values: Any, name: str) -> Array:
    values = np.asarray(values)
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind in "biu":
        return values.astype(np.float64)
    if values.dtype.kind == "f":
        return values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    if values.dtype.kind == "O":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} must hold numbers: {error}") from error
    raise InputError(f"{name} must hold numbers; found {values.dtype}")


def _check_weights(weights: Array | None, n_rows: int) -> Array:
    if weights is None:
        return _frozen(np.ones(n_rows))
    weights = np.array(weights, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but row weights of shape {weights.shape}")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InputError(
            f"{_count(len(bad), 'row weight')} negative or not finite (first at row {bad[0]}: {weights[bad[0]]:g})"
        )
    return _frozen(weights)


def _check_positive_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    n, d = shape
    if n < 1 or d < 1:
        raise InputError(f"a panel needs a row and a column; found {n} × {d}")
    return n, d


def _describe_non_finite(values: Array, finite: Array, where: str) -> str:
    infinite, missing = int(np.isinf(values).sum()), int(np.isnan(values).sum())
    parts = [_count(infinite, "infinite value")] if infinite else []
    parts += [_count(missing, "NaN or missing value")] if missing else []
    first = int(np.flatnonzero(~finite)[0])
    return f'{where} has {" and ".join(parts)} (first at entry {first}); drop them or pass non_finite="drop"'


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def _show(one: Any) -> str:
    return repr(one.item() if isinstance(one, np.generic) else one)


def _examples(ids: Any, most: int = 3) -> str:
    shown = ", ".join(_show(one) for one in list(ids)[:most])
    return shown + (", …" if len(ids) > most else "")


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
