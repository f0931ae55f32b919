"""The rows of a shard, and what is done with them on a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray

from onesided.arrays import Array
from onesided.engines.placement import DEFAULT_GPU_OPTIONS, GpuOptions
from onesided.errors import InputError
from onesided.panels.csr import Rows, check_compressed
from onesided.panels.packed.format import load_packed
from onesided.panels.panel import Panel


class Shard(NamedTuple):
    """What a node is told of a shard beside its rows and their weights, which come from the store."""

    name: tuple[str, int]
    edges: tuple[int, int]  # in the whole panel: the first row, and the one after the last
    n_columns: int
    weights_name: str | None = None  # weights of the same name are the same
    gpu: GpuOptions = DEFAULT_GPU_OPTIONS

    def panel(self, rows: Rows, weights: Array | None, column_ids: Array | None = None) -> Panel:
        """Its rows as a panel; all weights are one where none are given."""
        return Panel.from_checked(*rows, self.n_columns, column_ids=column_ids, row_weights=weights)

    @contextmanager
    def naming_its_rows(self) -> Iterator[None]:
        """Where a task refuses the rows, say which they are."""
        try:
            yield
        except InputError as error:
            first, last = self.edges
            raise error.followed_by(f" (found in rows {first:,} to {last - 1:,})") from error


def on_rows(shard: Shard, rows: Rows, weights: Array | None, task: Any, *given: Any) -> Any:
    """What a task makes of the rows of a shard."""
    with shard.naming_its_rows():
        return task(shard.panel(rows, weights), *given)


def made_rows(
    shard: Shard, rows: Rows, weights: Array | None, task: Callable[..., Panel], column_ids: Array | None, *drawn: Any
) -> tuple[Rows, tuple[Array, int, Any, Array | None]]:
    """Other rows, as many, that a task makes; for the driver, their counts, number of columns, type and column ids."""
    with shard.naming_its_rows():
        made = task(shard.panel(rows, weights, column_ids), *drawn)
    return of_panel(made), (made.row_counts.astype(np.int32), made.n_columns, made.dtype, made.given_column_ids)


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


def stacked(shards: list[Rows]) -> Rows:
    """The rows of shards one below the other."""
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(indptr) for indptr, _, _ in shards)])
    columns, values = (np.concatenate([rows[k] for rows in shards]) for k in (1, 2))
    return np.cumsum(counts), columns, values
