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

from onesided.errors import InputError, check_choice, counted, examples
from onesided.ids import Coded, check_ids, encode_ids, find_ids, known_positions
from onesided.intake import Duplicates, NonFinite, arrow_values, as_float, compress, table_columns
from onesided.kernels import cpu

if TYPE_CHECKING:
    import scipy.sparse as sp

Array = npt.NDArray[Any]

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
        self.values = _frozen(as_float(values, "values"))
        self.n_rows, self.n_columns = len(self.indptr) - 1, int(n_columns)
        self._check_shape()
        self._row_ids = check_ids(row_ids, self.n_rows, "row")
        self._column_ids = check_ids(column_ids, self.n_columns, "column")
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
        rows, columns, values = table_columns(table, (row, column, value))
        return cls._from_entries(
            encode_ids(rows, row),
            encode_ids(columns, column),
            arrow_values(values, value),
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
            raise InputError(f"rows, columns and values differ in length: {len(rows)}, {len(columns)}, {len(values)}")
        arrays = []
        for name, given in (("rows", rows), ("columns", columns), ("values", values)):
            try:
                arrays.append(pa.array(given))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise InputError(f"{name} cannot be read as one type: {error}") from error
        return cls._from_entries(
            encode_ids(arrays[0], "rows"),
            encode_ids(arrays[1], "columns"),
            arrow_values(arrays[2], "values"),
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
            values = as_float(matrix.data, "the matrix")
            if np.isfinite(values).all():
                return cls(matrix.indptr, matrix.indices, values, d)
        entries = matrix.tocoo()  # duplicates stay apart
        return cls._from_entries(
            (None, entries.row.astype(np.int64), n),
            (None, entries.col.astype(np.int64), d),
            as_float(entries.data, "the matrix"),
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
        matrix = as_float(matrix, "the array")
        if matrix.ndim != 2:
            raise InputError(f"expected a table of rows and columns; found an array of shape {matrix.shape}")
        n, d = _check_positive_shape(matrix.shape)
        observed = ~np.isnan(matrix)
        rows, columns = np.nonzero(observed)
        return cls._from_entries(
            (None, rows, n), (None, columns, d), matrix[observed], "the array", non_finite=non_finite
        )

    @classmethod
    def _from_entries(
        cls,
        rows: Coded,
        columns: Coded,
        values: Array,
        where: str,
        duplicates: Duplicates = "refuse",
        non_finite: NonFinite = "refuse",
    ) -> Panel:
        compressed = compress(rows, columns, values, where, duplicates, non_finite)
        return cls(*compressed, columns[2], row_ids=rows[0], column_ids=columns[0])

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
        panel = object.__new__(Panel)
        panel.__dict__.update(self.__dict__)
        panel.row_weights = _check_weights(weights, self.n_rows)
        return panel

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
        position, known = find_ids(column_ids, self.column_ids)
        known |= self.column_counts == 0
        if unknown == "refuse" and not known.all():
            strangers = self.column_ids[~known]
            raise InputError(
                f"{counted(len(strangers), 'column id')} unknown to the model: {examples(strangers)}; "
                'pass unknown="drop" to leave their entries out'
            )
        kept = position[self.columns] >= 0
        rows = np.repeat(np.arange(self.n_rows), self.row_counts)[kept]
        row_ids, columns = self._row_ids, position[self.columns][kept]
        panel = Panel._from_entries(
            (row_ids, rows, self.n_rows),
            (column_ids, columns, len(column_ids)),
            self.values[kept],
            "the panel",
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
        return Panel.from_table(data, row=row, column=column, value=value, duplicates=duplicates, non_finite=non_finite)
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
    return Panel(panel.indptr, panel.columns, panel.values, panel.n_columns, column_ids=np.asarray(names, dtype=object))


def _check_weights(weights: Array | None, n_rows: int) -> Array:
    if weights is None:
        return _frozen(np.ones(n_rows))
    weights = np.array(weights, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but row weights of shape {weights.shape}")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InputError(
            f"{counted(len(bad), 'row weight')} negative or not finite (first at row {bad[0]}: {weights[bad[0]]:g})"
        )
    return _frozen(weights)


def _check_positive_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    n, d = shape
    if n < 1 or d < 1:
        raise InputError(f"a panel needs a row and a column; found {n} × {d}")
    return n, d


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
