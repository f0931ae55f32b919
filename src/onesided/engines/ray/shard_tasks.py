"""The rows of a shard, and what is done with them on a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray

from onesided.errors import InputError
from onesided.panels.csr import check_compressed
from onesided.panels.packed.format import load_packed
from onesided.panels.panel import Panel

Array = npt.NDArray[Any]
Rows = tuple[Array, Array, Array]  # pointers from 0, columns, values


class Facts(NamedTuple):
    """What is known elsewhere of the rows of a shard that was made of another."""

    row_counts: Array
    n_columns: int
    dtype: Any
    column_ids: Array | None


def panel_of(rows: Rows, weights: Array | None, n_columns: int, column_ids: Array | None = None) -> Panel:
    """The panel of a shard; all weights are one where none are given."""
    panel = Panel.from_mapped(*rows, n_columns, row_ids=None, column_ids=column_ids)
    if weights is not None:
        panel.row_weights = weights
    return panel


@contextmanager
def noting_rows(at: tuple[int, int]) -> Iterator[None]:
    """A refusal tells which rows it was about."""
    try:
        yield
    except InputError as error:
        raise error.followed_by(f" (found in rows {at[0]:,} to {at[1] - 1:,})") from error


def on_rows(rows: Rows, weights: Array | None, n_columns: int, at: tuple[int, int], task: Any, *given: Any) -> Any:
    """What a task makes of the rows of a shard."""
    with noting_rows(at):
        return task(panel_of(rows, weights, n_columns), *given)


def made_rows(
    rows: Rows,
    weights: Array | None,
    n_columns: int,
    at: tuple[int, int],
    task: Callable[..., Panel],
    column_ids: Array | None,
    *beside: Any,
) -> tuple[Rows, Facts]:
    """Other rows, as many, that a task makes of those of a shard; and what is to be known of them elsewhere."""
    with noting_rows(at):
        made = task(panel_of(rows, weights, n_columns, column_ids), *beside)
    ids = made.column_ids if made.has_column_ids else None
    return of_panel(made), Facts(made.row_counts.astype(np.int32), made.n_columns, made.dtype, ids)


def of_panel(panel: Panel) -> Rows:
    """A panel's rows."""
    return panel.indptr, panel.columns, panel.values


def rows_between(panel: Panel, first: int, last: int) -> Rows:
    """Rows from the first to the one before the last."""
    indptr = panel.indptr[first : last + 1]
    here = slice(int(indptr[0]), int(indptr[-1]))
    return indptr - indptr[0], panel.columns[here], panel.values[here]


def read_rows(folder: Path, first: int, last: int) -> Rows:
    """Some rows of a packed panel, by the folder of its files, on the node that is to have them."""
    path = folder.parent
    try:
        panel = load_packed(path)
        if panel.packed != folder:
            raise InputError("another panel has taken its place")
        indptr, columns, values = map(np.array, rows_between(panel, first, last))
        return check_compressed(indptr, columns, values, panel.n_columns)
    except InputError as error:
        node = ray.util.get_node_ip_address()
        raise InputError(
            f"rows {first:,} to {last - 1:,} of {path} cannot be read on node {node}: {error}; a packed panel must be "
            "there whole, under the same path, on all nodes"
        ) from error


def taken(rows: Panel, positions: Array) -> Rows:
    """Some rows of a shard, if any."""
    if len(positions) == 0:
        return np.zeros(1, np.int64), rows.columns[:0], rows.values[:0]
    return of_panel(rows.take_rows(positions))


def narrowed(rows: Panel, chosen: Array) -> Rows:
    """The rows of a shard over some columns."""
    return of_panel(rows.take_columns(chosen))


def stacked(parts: list[Rows]) -> Rows:
    """Rows one below the other."""
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(indptr) for indptr, _, _ in parts)])
    columns, values = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    return np.cumsum(counts), columns, values
