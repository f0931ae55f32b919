"""Rows on a cluster: shards in the store of the nodes that work on them, and the panel that they make up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import shake_256
from itertools import pairwise
from operator import add
from time import perf_counter
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import ray

from onesided.engines.ray.cluster import Add, Cluster, Ref, Slot
from onesided.engines.ray.shard_tasks import (
    made_rows,
    narrowed,
    of_panel,
    on_rows,
    read_rows,
    rows_between,
    stacked,
    taken,
)
from onesided.engines.threads import cut
from onesided.memory import check_room
from onesided.panels.panel import Draw, Panel
from onesided.panels.positions import row_selection

Array = npt.NDArray[Any]

LARGEST_SHARD = 1 << 28  # entries: an object of about three gigabytes
WEIGHTS_KEPT = 2  # sets of row weights that stay on the nodes


class Shards:
    """Where the rows of a panel lie on a cluster: a block of whole rows for each shard, and the slot it is for.

    ``on_gpu`` is what a place on a GPU is to be told (:class:`onesided.engines.gpu.Place`).
    """

    def __init__(
        self,
        cluster: Cluster,
        blocks: Sequence[Ref],
        edges: Iterable[int],
        planned: Sequence[Slot],
        on_gpu: dict[str, Any] | None = None,
    ) -> None:
        self.cluster, self.blocks, self.planned, self.on_gpu = cluster, list(blocks), list(planned), on_gpu or {}
        self.edges = [(int(first), int(last)) for first, last in pairwise(edges)]
        self._slots, self.name = list(planned), uuid4().hex
        self._kept: dict[int, tuple[Array, list[Ref | None]]] = {}

    def like(self, blocks: Sequence[Ref]) -> Shards:
        """As many rows in other blocks."""
        edges = [0, *(last for _, last in self.edges)]
        return Shards(self.cluster, blocks, edges, self.planned, self.on_gpu)

    def __del__(self) -> None:
        if any(slot.gpu is not None for slot in self._slots):
            self.cluster.forget([(self.name, k) for k in range(len(self.blocks))])

    def slots(self) -> list[Slot]:
        """The slot of each shard: as planned, or another one on a node that is alive, with few shards."""
        alive, gone = self.cluster.alive(), self.cluster.gone
        for k, slot in enumerate(self._slots):
            if slot.node not in alive or slot in gone:
                left = [one for one in self.cluster.slots("auto" if slot.gpu is not None else "cpu") if one not in gone]
                able = [one for one in left if one.node in alive] or [
                    one for one in self.cluster.slots() if one.node in alive
                ]
                if able:
                    self._slots[k] = min(able, key=self._slots.count)
        return self._slots

    def weights(self, weights: Array) -> list[Ref | None]:
        """Row weights in the store, shard by shard; the last few are kept. None where all are one."""
        if weights.strides == (0,) and weights[0] == 1:
            return [None] * len(self.blocks)
        if id(weights) not in self._kept:
            while len(self._kept) >= WEIGHTS_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[id(weights)] = weights, [ray.put(weights[first:last]) for first, last in self.edges]
        return self._kept[id(weights)][1]

    def _call(self, slot: Slot, panel: Panel, k: int, weights: Ref | None, job: Ref, *given: Any) -> Ref:
        """What a job makes of the rows of a shard, on a slot."""
        given = (self.blocks[k], weights, panel.n_columns, self.edges[k], job, *given)
        if slot.gpu is None:
            return self.cluster.call(slot.node, on_rows, *given)
        name = None if weights is None else weights.hex()
        return self.cluster.held(slot, (self.name, k), self.on_gpu, name, *given)

    def total(self, panel: Panel, weights: Array, task: Callable[[Panel], Any], plus: Add) -> Any:
        """The sum over shards of what a task makes of their rows."""
        job, own = self.cluster.shared(task), self.weights(weights)

        def once() -> Any:
            slots = self.slots()
            results = [self._call(slot, panel, k, own[k], job) for k, slot in enumerate(slots)]
            homes, planned = ([slot.node for slot in these] for these in (slots, self.planned))
            return self.cluster.added(results, homes, planned, plus)

        began = perf_counter()
        found = self.cluster.insisting(once)
        self.cluster.worked += panel.n_entries
        self.cluster.seconds += perf_counter() - began
        return found

    def by_shards(
        self,
        panel: Panel,
        weights: Array,
        task: Callable[..., Any],
        given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: (),
    ) -> Iterator[tuple[int, int, Any]]:
        """What a task makes of the rows of each shard, in order."""
        job, own = self.cluster.shared(task), self.weights(weights)

        def call(k: int) -> Ref:
            return self._call(self.slots()[k], panel, k, own[k], job, *given(*self.edges[k]))

        results = self.cluster.windowed([partial(call, k) for k in range(len(self.blocks))])
        for (first, last), result in zip(self.edges, results, strict=True):
            yield first, last, result

    def engine(self, panel: Panel, weights: Array | None) -> Any:
        """Passes over the rows with their own weights or others."""
        from onesided.engines.ray.engine import ClusterEngine

        return ClusterEngine(self, panel, panel.row_weights if weights is None else weights)

    def pair_pass(self, indptr: Array, columns: Array, target: Array) -> None:
        """Pairs of columns are not on the cluster: passes over them are made here."""


class ClusterPanel(Panel):
    """A panel whose rows lie on a Ray cluster.

    Here are the number of entries of each row, the row weights and the column ids. Rows, columns or row ids that are
    asked for are fetched; all entries only where there is no other way, or where the panel was here before.
    ``left_out`` tells how many lines of the tables it was read from are not among its entries.

    >>> panel = read("ratings/")  # doctest: +SKIP
    >>> panel.take_rows([0]).to_dense()  # doctest: +SKIP
    array([[ 5., nan,  3.]])
    """

    place: Shards

    def __init__(
        self,
        shards: Shards,
        row_counts: Array,
        n_columns: int,
        dtype: Any,
        *,
        row_ids: Any = None,
        column_ids: Array | None = None,
        row_weights: Array | None = None,
        home: Panel | None = None,
        left_out: dict[str, int] | None = None,
    ) -> None:
        self.place, self.home, self.left_out = shards, home, left_out or {}
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._row_counts, self.n_rows, self.n_columns = row_counts, len(row_counts), n_columns
        self._row_ids, self._column_ids = row_ids, column_ids
        self.row_weights = np.broadcast_to(1.0, len(row_counts)) if row_weights is None else row_weights
        self._entries = int(row_counts.sum(dtype=np.int64))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self._dtype

    @property
    def row_counts(self) -> Array:
        """Entries in each row."""
        return self._row_counts

    @property
    def n_entries(self) -> int:
        """How many entries were observed."""
        return self._entries

    @property
    def indptr(self) -> Array:  # type: ignore[override]
        """Where each row would begin, were all entries here."""
        return np.concatenate([[0], np.cumsum(self.row_counts, dtype=np.int64)])

    @cached_property
    def _gathered(self) -> tuple[Array, Array]:
        if self.home is not None:
            return self.home.columns, self.home.values
        check_room(
            self.n_entries * (4 + self.dtype.itemsize),
            f"all {self.n_entries:,} entries, which lie on the cluster, would take {{size}} here",
            "ask for some rows of the panel, or for entries of T",
        )
        columns, values = np.empty(self.n_entries, np.int32), np.empty(self.n_entries, self.dtype)
        at = 0
        for _, _, found in self.by_shards(of_panel):
            here = slice(at, at + len(found[1]))
            columns[here], values[here] = found[1:]
            at = here.stop
        return columns, values

    @property
    def columns(self) -> Array:  # type: ignore[override]
        """The column of each entry: all of them are fetched."""
        return self._gathered[0]

    @property
    def values(self) -> Array:  # type: ignore[override]
        """The value of each entry: all of them are fetched."""
        return self._gathered[1]

    def total(self, task: Callable[[Panel], Any], add: Add = add) -> Any:
        """What ``task`` makes of the rows, where that is a sum over them: the sum over shards."""
        return self.place.total(self, self.row_weights, task, add)

    def by_shards(
        self, task: Callable[..., Any], given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: ()
    ) -> Iterator[tuple[int, int, Any]]:
        """What ``task`` makes of the rows of each shard, in order."""
        return self.place.by_shards(self, self.row_weights, task, given)

    def each(self, task: Callable[[Panel], Panel]) -> Panel:
        """As many rows, made of these by ``task``; they stay on the cluster."""
        return self._made(task, lambda: ())

    def each_drawing(self, task: Callable[[Panel, Draw], Panel], draw: Draw) -> Panel:
        """Like :meth:`each`, with random bytes that follow from a secret for each shard: the same if made again."""
        return self._made(task, lambda: (Stretched(draw(32)),))

    def _made(self, task: Callable[..., Panel], beside: Callable[[], tuple[Any, ...]]) -> Panel:
        shards, cluster = self.place, self.place.cluster
        job = cluster.shared(task)
        weights = shards.weights(self.row_weights)
        made = [
            cluster.call(
                slot.node, made_rows, block, own, self.n_columns, edge, job, self._column_ids, *beside(), returns=2
            )
            for slot, block, own, edge in zip(shards.slots(), shards.blocks, weights, shards.edges, strict=True)
        ]
        facts = cluster.fetched([one for _, one in made])
        counts = np.concatenate([one.row_counts for one in facts])
        return ClusterPanel(
            shards.like([block for block, _ in made]),
            counts,
            facts[0].n_columns,
            facts[0].dtype,
            row_ids=self._row_ids,
            column_ids=facts[0].column_ids,
            row_weights=self.row_weights,
        )

    def at(self, place: Any) -> Panel:
        """The panel as it was before it came to the cluster; itself where it was nowhere else."""
        if place is self.place:
            return self
        if self.home is not None:
            return self.home.with_row_weights(self.row_weights).at(place)
        return self if place is None else _plain(self).at(place)

    def centred(self, means: Array) -> Panel:
        """The same panel with a number taken off each column's values."""
        return self.each(partial(Panel.centred, means=means))

    def rows_having(self, column: int) -> Array:
        """The positions of the rows that have a column."""
        found = self.by_shards(partial(Panel.rows_having, column=column))
        return np.concatenate([first + rows for first, _, rows in found])

    def take_rows(self, rows: Any) -> Panel:
        """The panel of some rows, in the order given, here."""
        rows = row_selection(rows, self.n_rows, self._row_ids)
        wanted, back = np.unique(rows, return_inverse=True)

        def asked(first: int, last: int) -> tuple[Array]:
            low, high = np.searchsorted(wanted, [first, last])
            return (wanted[low:high] - first,)

        found = stacked([part for _, _, part in self.by_shards(taken, asked)])
        some = Panel(*found, self.n_columns).take_rows(back)
        return Panel(
            some.indptr,
            some.columns,
            some.values,
            self.n_columns,
            row_ids=None if self._row_ids is None else self._row_ids[rows],
            column_ids=self._column_ids,
            row_weights=self.row_weights[rows],
        )

    def take_columns(self, chosen: Array) -> Panel:
        """All rows over some columns, here."""
        parts = [part for _, _, part in self.by_shards(partial(narrowed, chosen=chosen))]
        return Panel(*stacked(parts), len(chosen), row_weights=self.row_weights)

    def align_columns(self, column_ids: Any, *, unknown: Literal["refuse", "drop"] = "refuse") -> Panel:
        """The same rows over another panel's columns, matched by id."""
        if np.array_equal(np.asarray(column_ids), self.column_ids):
            return self
        return self.each(partial(Panel.align_columns, column_ids=column_ids, unknown=unknown))

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain(self).__reduce__()


class RemoteIds:
    """Row ids that lie on the cluster: those asked for are fetched."""

    def __init__(self, cluster: Cluster, parts: Sequence[Ref], edges: Array) -> None:
        self._cluster, self._parts, self._edges = cluster, list(parts), edges

    def __len__(self) -> int:
        return int(self._edges[-1])

    def __getitem__(self, at: Any) -> Any:
        if np.ndim(at) == 0:
            return self[np.array([at])][0]
        at = np.asarray(at)
        shard = np.searchsorted(self._edges, at, side="right") - 1
        found: Array | None = None
        for k in np.unique(shard):
            here = shard == k
            ids = np.asarray(self._cluster.fetched(self._parts[k]).to_numpy(zero_copy_only=False))
            found = np.empty(len(at), dtype=ids.dtype) if found is None else found
            found[here] = ids[at[here] - self._edges[k]]
        return np.empty(0, dtype=np.int64) if found is None else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        parts = [self._cluster.fetched(part).to_numpy(zero_copy_only=False) for part in self._parts]
        return np.asarray(np.concatenate(parts), dtype=dtype)


class Stretched:
    """Random bytes from a secret: SHAKE-256 of it and a count, as unforeseeable as the secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._drawn = secret, 0

    def __call__(self, size: int) -> bytes:
        self._drawn += 1
        return shake_256(self._secret + self._drawn.to_bytes(8, "little")).digest(size)


def distribute(panel: Panel, cluster: Cluster, device: str = "cpu", **on_gpu: Any) -> ClusterPanel:
    """A panel of this machine, in memory or packed, on a cluster: cut by entries into a shard for each slot there is.

    Of a packed panel, nodes read their rows from its files, which must be there under the same path.
    """
    slots = cluster.slots(device)
    number = max(len(slots), -(-panel.n_entries // LARGEST_SHARD))
    ranges = cut(panel.indptr + np.arange(panel.n_rows + 1), -(-(panel.n_entries + panel.n_rows) // number))
    planned = [slots[k * len(slots) // len(ranges)] for k in range(len(ranges))]
    edges = [0, *(last for _, last in ranges)]
    if panel.packed is None:
        blocks = [ray.put(rows_between(panel, first, last)) for first, last in ranges]
    else:
        blocks = [
            cluster.call(slot.node, read_rows, panel.packed, first, last)
            for slot, (first, last) in zip(planned, ranges, strict=True)
        ]
    return ClusterPanel(
        Shards(cluster, blocks, edges, planned, on_gpu),
        panel.row_counts.astype(np.int32),
        panel.n_columns,
        panel.dtype,
        row_ids=panel._row_ids,
        column_ids=panel._column_ids,
        row_weights=None if np.all(panel.row_weights == 1) else panel.row_weights,
        home=panel.at(None),
    )


def _plain(panel: ClusterPanel) -> Panel:
    """All of it, here."""
    row_ids = None if panel._row_ids is None else np.asarray(panel._row_ids)
    return Panel(
        panel.indptr,
        panel.columns,
        panel.values,
        panel.n_columns,
        row_ids=row_ids,
        column_ids=panel._column_ids,
        row_weights=np.array(panel.row_weights),
    )
