"""What was observed: the entries of an n × d matrix, row by row.

A panel keeps its entries in compressed rows, columns ascending within a row. Absent means missing; a stored
zero is an observation. Ids are sorted, so the order of a table's lines does not change the panel made of it.

What is refused, and what to do or ask for instead:

====================================================  =====================================================
found                                                 instead
====================================================  =====================================================
infinite or NaN values (a NaN in a dense array is a   ``non_finite="drop"``
missing entry, never refused)
a (row, column) pair that appears twice               ``duplicates="mean"``, ``"sum"`` or ``"last"``
values above 1e75 in magnitude                        rescale: their moments would overflow
text, complex numbers or dates as values              numbers: booleans, integers, floats or decimals
missing, fractional or mixed ids, beyond 64 bits      integers or strings, of one kind for rows or columns
ids given twice, or not one for each row or column    one id for each; none for their positions
arrays of different lengths, ragged or not flat       one item for each entry, or two dimensions
a column that the table lacks, or has twice           the names of three columns
padded sparse formats (dia, bsr)                      csr or coo, where a stored zero is meant
no rows, no columns, more than 2³¹ − 1 columns        at least one of each
negative, NaN or infinite row weights                 zero for a row that is not to count
compressed rows out of order, columns out of range    ``Panel.from_arrays`` or ``Panel.from_sparse``
a row with an id taken twice, or outside the panel    a larger row weight
ids that are unknown, or of another kind              ``unknown="drop"`` when columns are aligned
an option that does not exist                         those that the message lists
====================================================  =====================================================

Rows with one entry are kept: they inform the diagonal and the means. Rows and columns without entries are kept
where the input has them: dense and sparse input, and tables all of whose values for them were dropped. A panel
may have no entries at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onesided.arrays import Array
from onesided.errors import EXPECTED, InputError, check_choice, counted, examples, warn
from onesided.kernels import cpu
from onesided.panels.convert import column_names, encode_entries, sparse_entries, table_columns, wide_table
from onesided.panels.csr import as_float, check_compressed, check_shape, check_weights, merge_entries
from onesided.panels.ids import Coded, IdIndex, as_ids, check_ids, id_kind
from onesided.panels.panel_like import Draw, PanelLike, frozen
from onesided.panels.positions import row_selection
from onesided.panels.refusals import Duplicates, NonFinite, ValueRules
from onesided.panels.table_files import is_long

if TYPE_CHECKING:
    import scipy.sparse as sp


class Panel(PanelLike):
    """The observed entries of an n × d matrix in this process, with row ids, column ids and a weight per row.

    It has ``n_entries`` of them, whose values are of the type ``dtype``, in ``n_rows`` and ``n_columns``.

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
    >>> panel = Panel.from_arrays(["ann", "ann", "bob"], ["tea", "rye", "tea"], [5.0, 0.0, 3.0])
    >>> panel
    Panel(2 rows × 2 columns, 3 entries)
    >>> panel.to_dense()
    array([[ 0.,  5.],
           [nan,  3.]])
    """

    packed: Path | None = None  # the folder whose files its arrays are mapped from

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
        entries = check_compressed(indptr, columns, values, n_columns)
        n_rows, n_columns = len(entries[0]) - 1, int(n_columns)
        ids = check_ids(row_ids, n_rows, "row"), check_ids(column_ids, n_columns, "column")
        self._hold(entries, n_columns, ids, frozen(check_weights(row_weights, n_rows)))

    def _hold(
        self, entries: tuple[Array, Array, Array], n_columns: int, ids: tuple[Any, Array | None], row_weights: Array
    ) -> None:
        """Set all attributes, from what was checked."""
        self.indptr, self.columns, self.values = map(frozen, entries)
        self.n_rows, self.n_columns, self.row_weights = len(self.indptr) - 1, n_columns, row_weights
        self.n_entries, self.dtype = len(self.values), np.dtype(self.values.dtype)
        self.given_row_ids, self.given_column_ids = ids

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the attributes: copies of read-only arrays can be written to, and what is cached need not travel.
        row_ids = self.row_ids if self.has_row_ids else None
        names = {"row_ids": row_ids, "column_ids": self.given_column_ids, "row_weights": self.row_weights}
        return _restored, ((self.indptr, self.columns, self.values, self.n_columns), names)

    @classmethod
    def from_checked(
        cls,
        indptr: Array,
        columns: Array,
        values: Array,
        n_columns: int,
        *,
        row_ids: Any = None,
        column_ids: Array | None = None,
        row_weights: Array | None = None,
        packed: Path | None = None,
    ) -> Panel:
        """From entries that were checked when they were made, such as those of a packed panel; they are not read here.

        ``row_ids`` need not be an array: what gives those at some positions, and all of them when made an array, is
        kept as it is.
        """
        panel = cls.__new__(cls)
        weights = frozen(np.ones(len(indptr) - 1)) if row_weights is None else row_weights
        ids = row_ids, check_ids(column_ids, n_columns, "column")
        panel._hold((indptr, columns, values), n_columns, ids, weights)
        panel.packed = packed
        return panel

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
        names = (row, column, value)
        entries = encode_entries(table_columns(table, names), names)
        return cls._from_entries(*entries, f"column {value!r}", ValueRules(duplicates, non_finite))

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
        entries = encode_entries((rows, columns, values), ("rows", "columns", "values"))
        return cls._from_entries(*entries, "the array of values", ValueRules(duplicates, non_finite))

    @classmethod
    def from_sparse(
        cls, matrix: sp.sparray | sp.spmatrix, *, duplicates: Duplicates = "refuse", non_finite: NonFinite = "refuse"
    ) -> Panel:
        """From a scipy sparse matrix: every stored entry is an observation, stored zeros too.

        A CSR matrix in order shares its arrays with the panel; others are copied.

        >>> import scipy.sparse as sp
        >>> Panel.from_sparse(sp.csr_array(([4.0, 0.0], ([0, 1], [2, 0])), shape=(2, 3)))
        Panel(2 rows × 3 columns, 2 entries)
        """
        rules = ValueRules(duplicates, non_finite)
        _, d = check_shape(*matrix.shape)
        if matrix.format == "csr" and matrix.has_canonical_format:  # sorted and without duplicates
            values = as_float(matrix.data, "the matrix")
            if np.isfinite(values).all():
                return cls(matrix.indptr, matrix.indices, values, d)
        return cls._from_entries(*sparse_entries(matrix), "the matrix", rules)

    @classmethod
    def from_dense(cls, matrix: Any, *, non_finite: NonFinite = "refuse") -> Panel:
        """From a dense array or table: NaN (or None, or masked) is missing, everything else was observed.

        Column names (pandas, polars, pyarrow) become the column ids, a pandas index the row ids.

        >>> import numpy as np
        >>> Panel.from_dense([[1.0, np.nan], [0.0, 2.0]])
        Panel(2 rows × 2 columns, 3 entries)
        """
        names = column_names(matrix)
        if names is not None and is_long(names):
            warn(
                f"the table has the columns {', '.join(map(repr, names))}, each of which is taken as a column of the "
                "panel; if its lines are single entries, use Panel.from_table(table, row=…, column=…, value=…)"
            )
        matrix, row_ids, column_ids = (matrix, None, None) if names is None else wide_table(matrix, names)
        matrix = as_float(matrix, "the array")
        n, d = check_shape(*matrix.shape)
        observed = ~np.isnan(matrix)
        rows, columns = np.nonzero(observed)
        codes = (row_ids, rows, n), (column_ids, columns, d)
        return cls._from_entries(*codes, matrix[observed], "the array", ValueRules(non_finite=non_finite))

    @classmethod
    def _from_entries(cls, rows: Coded, columns: Coded, values: Array, where: str, rules: ValueRules) -> Panel:
        """From entries in any order; ``where`` names their values in messages."""
        compressed, repeats = merge_entries(rows, columns, values, where, rules)
        if repeats and rules.duplicates == "refuse":
            raise repeats.refusal()
        return cls(*compressed, columns[2], row_ids=rows[0], column_ids=columns[0])

    @property
    def row_counts(self) -> Array:
        """Entries in each row."""
        return np.diff(self.indptr)

    @cached_property
    def by_column(self) -> tuple[Array, Array, Array]:
        """The same entries by column: pointers, the row of each entry (ascending), its value."""
        indptr, order = cpu.counting_sort(self.columns, self.n_columns)
        return frozen(indptr), frozen(self.entry_rows[order]), frozen(self.values[order])

    def rows_having(self, column: int) -> Array:
        """The positions of the rows that have a column.

        >>> Panel.from_dense([[1.0, np.nan], [2.0, 3.0]]).rows_having(1)
        array([1])
        """
        indptr, rows, _ = self.by_column
        return rows[indptr[column] : indptr[column + 1]]

    def to_panel(self) -> Panel:
        """Itself."""
        return self

    def at_home(self) -> Panel:
        """The same panel with its passes on this machine's processor."""
        return self.at(None)

    def at(self, place: object | None) -> Panel:
        """The same panel with its passes at a place; with None, on this machine's processor."""
        return self if place is self.place else self._copied(place=place)

    def total(self, task: Callable[[Panel], Any], add: Callable[[Any, Any], Any] = add) -> Any:
        """What ``task`` makes of all rows.

        >>> Panel.from_dense([[1.0, 2.0], [3.0, np.nan]]).total(lambda rows: rows.values.sum()).item()
        6.0
        """
        return task(self)

    def by_shards(
        self, task: Callable[..., Any], given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: ()
    ) -> Iterator[tuple[int, int, Any]]:
        """What ``task`` makes of all rows, which are one shard."""
        yield 0, self.n_rows, task(self, *given(0, self.n_rows))

    def each(self, task: Callable[..., Panel], draw: Draw | None = None) -> Panel:
        """As many rows, made of these by ``task``; with a source of random bytes if one is given."""
        return task(self) if draw is None else task(self, draw)

    def centred(self, means: Array) -> Panel:
        """The same panel with a number taken off each column's values.

        >>> Panel.from_dense([[1.0, np.nan], [3.0, 5.0]]).centred(np.array([2.0, 5.0])).to_dense()
        array([[-1., nan],
               [ 1.,  0.]])
        """
        values = frozen(self.values - means[self.columns])
        panel = self._copied(values=values, dtype=np.dtype(values.dtype))
        for name in ("by_column", "place", "packed"):  # what holds the values as they were
            panel.__dict__.pop(name, None)
        return panel

    def take_rows(self, rows: Any) -> Panel:
        """The panel of some rows, in the order given: their positions, or a mask over all rows.

        Rows with ids are taken once; a larger weight makes one count more. Without ids they may repeat. They are not
        at the panel's place: :func:`onesided.engines.placement.placed_like` brings them there.

        >>> panel = Panel.from_arrays(["ann", "bob", "cleo"], [1, 1, 1], [5.0, 3.0, 4.0])
        >>> panel.take_rows([2, 0]).row_ids
        array(['cleo', 'ann'], dtype=object)
        """
        rows = row_selection(rows, self.n_rows, self.given_row_ids)
        counts = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        compressed = indptr, self.columns[entries], self.values[entries]
        return Panel(*compressed, self.n_columns, **self._ids_and_weights(rows))

    def take_columns(self, chosen: Array) -> Panel:
        """All rows over some columns: their positions, ascending.

        >>> Panel.from_dense([[1.0, 2.0, 3.0], [np.nan, 5.0, 6.0]]).take_columns(np.array([0, 2])).to_dense()
        array([[ 1.,  3.],
               [nan,  6.]])
        """
        position = np.full(self.n_columns, -1, dtype=np.int32)
        position[chosen] = np.arange(len(chosen))
        columns = position[self.columns]
        kept = np.flatnonzero(columns >= 0)
        indptr = np.searchsorted(kept, self.indptr)
        return Panel(indptr, columns[kept], self.values[kept], len(chosen), row_weights=self.row_weights)

    def align_columns(self, column_ids: Any, *, unknown: Literal["refuse", "drop"] = "refuse") -> Panel:
        """The same rows over another panel's columns, matched by id.

        Entries in columns that ``column_ids`` does not have are refused, or dropped with ``unknown="drop"``;
        their rows stay.

        >>> new = Panel.from_arrays([1, 1], ["tea", "gin"], [5.0, 3.0])
        >>> new.align_columns(["rye", "tea"], unknown="drop")
        Panel(1 row × 2 columns, 1 entry)
        """
        check_choice("unknown", unknown, ("refuse", "drop"))
        column_ids = as_ids(column_ids, "column_ids")
        if len(column_ids) and id_kind(column_ids) != id_kind(self.column_ids):
            raise InputError(
                f"the column ids of the panel are {id_kind(self.column_ids)}, "
                f"those of the model are {id_kind(column_ids)}: they cannot be matched"
            )
        position, known = IdIndex(column_ids).find(self.column_ids)
        known |= self.column_counts == 0
        if unknown == "refuse" and not known.all():
            strangers = self.column_ids[~known]
            raise InputError(
                f"{counted(len(strangers), 'column id')} unknown to the model: {examples(strangers)}; "
                f"pass {EXPECTED} to leave their entries out",
                option="unknown",
                expected=["drop"],
            )
        codes = position[self.columns]
        kept = codes >= 0
        rows = self.given_row_ids, self.entry_rows[kept], self.n_rows
        columns = column_ids, codes[kept], len(column_ids)
        panel = Panel._from_entries(rows, columns, self.values[kept], "the panel", ValueRules())
        return panel.with_row_weights(self.row_weights)


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
    missing. A panel is returned as it is; if its rows lie on a cluster, they are fetched. See the methods of
    ``Panel`` for what each of them keeps.

    >>> as_panel([[1.0, float("nan")], [2.0, 3.0]])
    Panel(2 rows × 2 columns, 3 entries)
    >>> as_panel((["ann", "bob"], ["tea", "tea"], [5.0, 3.0]))
    Panel(2 rows × 1 column, 2 entries)
    """
    ValueRules(duplicates, non_finite)  # refuses what is not an option
    if (row, column, value) != (None, None, None):
        if row is None or column is None or value is None:
            raise InputError("name all three of row, column and value, or none of them for a dense table")
        return Panel.from_table(data, row=row, column=column, value=value, duplicates=duplicates, non_finite=non_finite)
    if isinstance(data, PanelLike):
        return data.to_panel()
    if hasattr(data, "tocoo"):
        return Panel.from_sparse(data, duplicates=duplicates, non_finite=non_finite)
    if isinstance(data, tuple) and len(data) == 3 and all(np.ndim(part) == 1 for part in data):
        return Panel.from_arrays(*data, duplicates=duplicates, non_finite=non_finite)
    return Panel.from_dense(data, non_finite=non_finite)


def _restored(arrays: tuple[Any, ...], names: dict[str, Any]) -> Panel:
    return Panel(*arrays, **names)
