"""What algorithms ask of a panel, wherever its rows lie.

There are two kinds: a :class:`onesided.panels.panel.Panel` has its entries in this process; the rows of a
:class:`onesided.engines.ray.RayPanel` lie on a cluster, and here are only its ids, its row weights and the number of
entries in each row. What an algorithm does with entries it writes as a task, which gets a ``Panel``: all rows at once,
or those of one shard at a time. Where it needs all entries here, it says so: :meth:`PanelLike.to_panel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted
from onesided.panels.csr import check_weights
from onesided.panels.ids import IdIndex

if TYPE_CHECKING:
    import scipy.sparse as sp

    from onesided.panels.panel import Panel

Draw = Callable[[int], bytes]  # so many random bytes
AnyPanel = TypeVar("AnyPanel", bound="PanelLike")


class PanelLike(ABC):
    """The observed entries of an n × d matrix, in this process or on a cluster.

    ``place`` says where passes over the rows run if not on this machine's processor. To a panel it means nothing:
    :func:`onesided.engines.placement.place_of` knows what it is.

    >>> from onesided import Panel
    >>> isinstance(Panel.from_dense([[1.0, 2.0]]), PanelLike)
    True
    """

    n_rows: int
    n_columns: int
    n_entries: int  # how many were observed
    dtype: np.dtype[Any]  # of the values
    row_weights: Array
    given_row_ids: Any  # None where none were given; an array, or what fetches those at some positions
    given_column_ids: Array | None
    place: object | None = None

    @property
    @abstractmethod
    def row_counts(self) -> Array:
        """Entries in each row."""

    @abstractmethod
    def total(self, task: Callable[[Panel], Any], add: Callable[[Any, Any], Any] = add) -> Any:
        """The sum over all rows of what ``task`` makes of some of them."""

    @abstractmethod
    def by_shards(
        self, task: Callable[..., Any], given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: ()
    ) -> Iterator[tuple[int, int, Any]]:
        """What ``task`` makes of the rows of each shard, in order: the first row, the one after the last, and that.

        It gets the rows and what ``given`` has for those from the first to the one before the last.
        """

    @abstractmethod
    def each(self, task: Callable[..., Panel], draw: Draw | None = None) -> PanelLike:
        """As many rows, made of these by ``task``, which looks at one row at a time; with random bytes if given."""

    @abstractmethod
    def to_panel(self) -> Panel:
        """The same panel with all entries in this process."""

    @abstractmethod
    def at_home(self) -> PanelLike:
        """The same panel where it was before it was placed; on the cluster if it was nowhere else."""

    @abstractmethod
    def centred(self, means: Array) -> PanelLike:
        """The same panel with a number taken off each column's values."""

    @abstractmethod
    def rows_having(self, column: int) -> Array:
        """The positions of the rows that have a column."""

    @abstractmethod
    def take_rows(self, rows: Any) -> Panel:
        """The panel of some rows, in the order given: their positions, or a mask over all rows."""

    @abstractmethod
    def take_columns(self, chosen: Array) -> Panel:
        """All rows over some columns: their positions, ascending."""

    @abstractmethod
    def align_columns(self, column_ids: Any, *, unknown: Literal["refuse", "drop"] = "refuse") -> PanelLike:
        """The same rows over another panel's columns, matched by id."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_columns

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> Panel:
        """Some rows: a slice, positions or a mask, so that scikit-learn can split a panel.

        >>> from onesided import Panel
        >>> Panel.from_dense([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])[1:]
        Panel(2 rows × 2 columns, 3 entries)
        """
        if isinstance(rows, tuple):  # scikit-learn asks for [rows, ...]
            rows, *others = rows
            if any(other is not Ellipsis for other in others):
                raise InputError("a panel is cut by rows alone: panel[rows]")
        return self.take_rows(np.arange(self.n_rows)[rows] if isinstance(rows, slice) else rows)

    @property
    def entry_rows(self) -> Array:
        """The position of each entry's row."""
        return np.repeat(np.arange(self.n_rows), self.row_counts)

    @property
    def row_ids(self) -> Array:
        """The id of each row; its position where none was given."""
        return np.arange(self.n_rows) if self.given_row_ids is None else np.asarray(self.given_row_ids)

    @property
    def column_ids(self) -> Array:
        """The id of each column; its position where none was given."""
        return np.arange(self.n_columns) if self.given_column_ids is None else self.given_column_ids

    @property
    def has_row_ids(self) -> bool:
        """Whether rows were given ids."""
        return self.given_row_ids is not None

    @property
    def has_column_ids(self) -> bool:
        """Whether columns were given ids."""
        return self.given_column_ids is not None

    @cached_property
    def _row_index(self) -> IdIndex:
        return IdIndex(self.row_ids, "row")

    @cached_property
    def _column_index(self) -> IdIndex:
        return IdIndex(self.column_ids, "column")

    def row_positions(self, ids: Iterable[Any]) -> Array:
        """Positions of rows by id; an unknown id is named in the error."""
        return self._row_index.positions(ids)

    def column_positions(self, ids: Iterable[Any]) -> Array:
        """Positions of columns by id; an unknown id is named in the error.

        >>> from onesided import Panel
        >>> Panel.from_arrays([1, 1], ["tea", "rye"], [5.0, 3.0]).column_positions(["tea"])
        array([1])
        """
        return self._column_index.positions(ids)

    @cached_property
    def column_counts(self) -> Array:
        """Entries in each column."""
        return frozen(self.total(_column_counts))

    def _ids_and_weights(self, rows: Array) -> dict[str, Any]:
        """What a panel of some rows is made with beside their entries."""
        row_ids = None if self.given_row_ids is None else self.given_row_ids[rows]
        return {"row_ids": row_ids, "column_ids": self.given_column_ids, "row_weights": self.row_weights[rows]}

    def with_row_weights(self, weights: Any) -> Self:
        """The same panel with other row weights, in the order of ``row_ids``."""
        return self._copied(row_weights=frozen(check_weights(weights, self.n_rows)))

    def _copied(self, **changed: Any) -> Self:
        """A panel that shares all arrays with this one but what is changed, and what was computed of them."""
        panel = object.__new__(type(self))
        panel.__dict__.update(self.__dict__ | changed)
        return panel

    def to_sparse(self) -> sp.csr_array:
        """As a scipy CSR array; observed zeros are stored."""
        import scipy.sparse as sp

        here = self.to_panel()
        return sp.csr_array((here.values, here.columns, here.indptr), shape=self.shape, copy=True)

    def to_dense(self) -> Array:
        """As a dense array; NaN where nothing was observed."""
        here, dense = self.to_panel(), np.full(self.shape, np.nan, dtype=self.dtype)
        dense[self.entry_rows, here.columns] = here.values
        return dense

    def __repr__(self) -> str:
        rows, columns = counted(self.n_rows, "row"), counted(self.n_columns, "column")
        return f"{type(self).__name__}({rows} × {columns}, {counted(self.n_entries, 'entry', 'entries')})"


def frozen(array: Array) -> Array:
    """The same array, read-only."""
    view = array.view()
    view.flags.writeable = False
    return view


def _column_counts(rows: Panel) -> Array:
    return np.bincount(rows.columns, minlength=rows.n_columns)
