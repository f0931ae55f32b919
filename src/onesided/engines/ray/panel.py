"""The panel whose rows lie on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import shake_256
from operator import add
from time import perf_counter
from typing import Any, Literal

import numpy as np
import ray

from onesided.arrays import Array
from onesided.engines.placement import DEFAULT_GPU_OPTIONS, GpuOptions
from onesided.engines.ray import shard_tasks
from onesided.engines.ray.cluster import Add, Cluster, Ref, Slot
from onesided.engines.ray.shard_tasks import Shard
from onesided.engines.ray.shards import RayPlace, Shards
from onesided.engines.threads import cut
from onesided.memory import check_room
from onesided.panels.panel import Panel
from onesided.panels.panel_like import Draw, PanelLike
from onesided.panels.positions import row_selection

LARGEST_SHARD = 1 << 28  # entries: an object of about three gigabytes


class RayPanel(PanelLike):
    """A panel whose rows lie on a Ray cluster.

    In this process are the number of entries of each row, the row weights and the column ids. Rows, columns or row ids
    are fetched when they are asked for; all entries only by ``to_panel()``. ``left_out`` tells how many lines of the
    tables it was read from are not among its entries.

    >>> panel = read("ratings/")  # doctest: +SKIP
    >>> panel.take_rows([0]).to_dense()  # doctest: +SKIP
    array([[ 5., nan,  3.]])
    """

    place: RayPlace

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
        gpu: GpuOptions = DEFAULT_GPU_OPTIONS,
        home: Panel | None = None,
        left_out: dict[str, int] | None = None,
    ) -> None:
        self.shards, self.place, self.home, self.left_out = shards, RayPlace(gpu), home, left_out or {}
        self._row_counts, self.n_rows, self.n_columns = row_counts, len(row_counts), n_columns
        self.n_entries, self.dtype = int(row_counts.sum(dtype=np.int64)), np.dtype(dtype)
        self.given_row_ids, self.given_column_ids = row_ids, column_ids
        self.row_weights = np.broadcast_to(1.0, len(row_counts)) if row_weights is None else row_weights

    @property
    def row_counts(self) -> Array:
        """Entries in each row."""
        return self._row_counts

    @cached_property
    def _fetched(self) -> Panel:
        if self.home is not None:
            return self.home.with_row_weights(self.row_weights)
        check_room(
            self.n_entries * (4 + self.dtype.itemsize),
            f"all {self.n_entries:,} entries, which lie on the cluster, would take {{size}} here",
            "ask for some rows of the panel, or for entries of T",
        )
        indptr = np.concatenate([[0], np.cumsum(self.row_counts, dtype=np.int64)])
        columns, values = np.empty(self.n_entries, np.int32), np.empty(self.n_entries, self.dtype)
        for first, last, shard in self.by_shards(shard_tasks.of_panel):
            here = slice(indptr[first], indptr[last])
            columns[here], values[here] = shard[1:]
        ids = {"row_ids": self.given_row_ids, "column_ids": self.given_column_ids}
        weights = np.array(self.row_weights)
        return Panel.from_checked(indptr, columns, values, self.n_columns, **ids, row_weights=weights)

    def to_panel(self) -> Panel:
        """The panel as it was before it came to the cluster; otherwise all entries are fetched, once."""
        return self._fetched

    def with_row_weights(self, weights: Any) -> RayPanel:
        """The same panel with other row weights, in the order of ``row_ids``."""
        panel = super().with_row_weights(weights)
        if "_fetched" in panel.__dict__:
            panel.__dict__["_fetched"] = self._fetched.with_row_weights(panel.row_weights)
        return panel

    def weighed(self, weights: Array) -> RayPanel:
        """The same rows for passes with other weights, which are not checked."""
        return self._copied(row_weights=weights)

    def with_gpu_options(self, gpu: GpuOptions) -> RayPanel:
        """The same panel, on the same shards, with other demands on GPUs; itself where they are the same or unused."""
        if gpu == self.place.gpu or not self.shards.on_gpus:
            return self
        return self._copied(place=RayPlace(gpu))

    def at_home(self) -> PanelLike:
        """The panel as it was before it came to the cluster; itself where it was nowhere else."""
        return self if self.home is None else self.home.with_row_weights(self.row_weights).at(None)

    def total(self, task: Callable[[Panel], Any], add: Add = add) -> Any:
        """What ``task`` makes of the rows, where that is a sum over them: the sum over shards."""
        shards, cluster = self.shards, self.shards.cluster
        job, weights = cluster.shared(task), shards.weights(self.row_weights)

        def attempt() -> Any:
            slots = shards.slots()
            results = [self._call(slot, k, weights[k], job) for k, slot in enumerate(slots)]
            return cluster.added(results, [slot.node for slot in slots], [slot.node for slot in shards.planned], add)

        began = perf_counter()
        total = cluster.retrying(attempt)
        cluster.worked += self.n_entries
        cluster.seconds += perf_counter() - began
        return total

    def by_shards(
        self, task: Callable[..., Any], given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: ()
    ) -> Iterator[tuple[int, int, Any]]:
        """What ``task`` makes of the rows of each shard, in order."""
        shards, cluster = self.shards, self.shards.cluster
        job, weights = cluster.shared(task), shards.weights(self.row_weights)

        def call(k: int) -> Ref:
            return self._call(shards.slots()[k], k, weights[k], job, *given(*shards.edges[k]))

        results = cluster.windowed([partial(call, k) for k in range(len(shards.blocks))])
        for (first, last), result in zip(shards.edges, results, strict=True):
            yield first, last, result

    def _call(self, slot: Slot, k: int, weights: Ref | None, task: Ref, *given: Any) -> Ref:
        """What a task makes of the rows of a shard, on a slot."""
        shards, weights_name = self.shards, None if weights is None else weights.hex()
        shard = Shard((shards.name, k), shards.edges[k], self.n_columns, weights_name, self.place.gpu)
        arguments = (shard, shards.blocks[k], weights, task, *given)
        if slot.gpu is None:
            return shards.cluster.call(slot.node, shard_tasks.on_rows, *arguments)
        return shards.cluster.held(slot, *arguments)

    def each(self, task: Callable[..., Panel], draw: Draw | None = None) -> RayPanel:
        """As many rows, made of these by ``task``; they stay on the cluster.

        Random bytes follow from a secret for each shard, which is drawn here: the same if the shard is made again.
        """
        shards, cluster = self.shards, self.shards.cluster
        job, weights = cluster.shared(task), shards.weights(self.row_weights)
        made = []
        for k, slot in enumerate(shards.slots()):
            shard = Shard((shards.name, k), shards.edges[k], self.n_columns)
            drawn = () if draw is None else (SeededBytes(draw(32)),)
            arguments = (shard, shards.blocks[k], weights[k], job, self.given_column_ids, *drawn)
            made.append(cluster.call(slot.node, shard_tasks.made_rows, *arguments, returns=2))
        facts = cluster.fetched([fact for _, fact in made])
        _, n_columns, dtype, column_ids = facts[0]
        counts = np.concatenate([of_shard for of_shard, *_ in facts])
        made_shards = Shards(cluster, [block for block, _ in made], shards.edges, shards.planned)
        kept = {"row_ids": self.given_row_ids, "row_weights": self.row_weights, "gpu": self.place.gpu}
        return RayPanel(made_shards, counts, n_columns, dtype, column_ids=column_ids, **kept)

    def centred(self, means: Array) -> RayPanel:
        """The same panel with a number taken off each column's values."""
        return self.each(partial(Panel.centred, means=means))

    def rows_having(self, column: int) -> Array:
        """The positions of the rows that have a column."""
        shards = self.by_shards(partial(Panel.rows_having, column=column))
        return np.concatenate([first + rows for first, _, rows in shards])

    def take_rows(self, rows: Any) -> Panel:
        """The panel of some rows, in the order given, here."""
        rows = row_selection(rows, self.n_rows, self.given_row_ids)
        wanted, back = np.unique(rows, return_inverse=True)

        def wanted_between(first: int, last: int) -> tuple[Array]:
            low, high = np.searchsorted(wanted, [first, last])
            return (wanted[low:high] - first,)

        rows_of_shards = [taken_rows for _, _, taken_rows in self.by_shards(shard_tasks.taken, wanted_between)]
        stacked = shard_tasks.stacked(rows_of_shards)
        return Panel(*stacked, self.n_columns, **self._ids_and_weights(wanted)).take_rows(back)

    def take_columns(self, chosen: Array) -> Panel:
        """All rows over some columns, here."""
        rows = [narrow_rows for _, _, narrow_rows in self.by_shards(partial(shard_tasks.narrowed, chosen=chosen))]
        return Panel(*shard_tasks.stacked(rows), len(chosen), row_weights=self.row_weights)

    def align_columns(self, column_ids: Any, *, unknown: Literal["refuse", "drop"] = "refuse") -> RayPanel:
        """The same rows over another panel's columns, matched by id."""
        if np.array_equal(np.asarray(column_ids), self.column_ids):
            return self
        return self.each(partial(Panel.align_columns, column_ids=column_ids, unknown=unknown))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.to_panel().__reduce__()


class RemoteIds:
    """Row ids that lie on the cluster, shard by shard: those asked for are fetched."""

    def __init__(self, cluster: Cluster, shards: Sequence[Ref], edges: Array) -> None:
        self._cluster, self._shards, self._edges = cluster, list(shards), edges

    def __getitem__(self, at: Any) -> Any:
        if np.ndim(at) == 0:
            return self[np.array([at])][0]
        at = np.asarray(at)
        shard = np.searchsorted(self._edges, at, side="right") - 1
        chosen: Array | None = None
        for k in np.unique(shard):
            here, ids = shard == k, self._ids(k)
            chosen = np.empty(len(at), dtype=ids.dtype) if chosen is None else chosen
            chosen[here] = ids[at[here] - self._edges[k]]
        return np.empty(0, dtype=np.int64) if chosen is None else chosen

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(np.concatenate([self._ids(k) for k in range(len(self._shards))]), dtype=dtype)

    def _ids(self, k: int) -> Array:
        return np.asarray(self._cluster.fetched(self._shards[k]).to_numpy(zero_copy_only=False))


class SeededBytes:
    """Random bytes from a secret: SHAKE-256 of it and a count, as unforeseeable as the secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._drawn = secret, 0

    def __call__(self, size: int) -> bytes:
        self._drawn += 1
        return shake_256(self._secret + self._drawn.to_bytes(8, "little")).digest(size)


def distribute(panel: Panel, cluster: Cluster, device: str = "cpu", gpu: GpuOptions = DEFAULT_GPU_OPTIONS) -> RayPanel:
    """A panel of this machine, in memory or packed, on a cluster: cut by entries into a shard for each slot there is.

    Of a packed panel, nodes read their rows from its files, which must be there under the same path.
    """
    slots = cluster.slots(device)
    number = max(len(slots), -(-panel.n_entries // LARGEST_SHARD))
    ranges = cut(panel.indptr + np.arange(panel.n_rows + 1), -(-(panel.n_entries + panel.n_rows) // number))
    planned = [slots[k * len(slots) // len(ranges)] for k in range(len(ranges))]
    if panel.packed is None:
        blocks = [ray.put(shard_tasks.rows_between(panel, first, last)) for first, last in ranges]
    else:
        blocks = [
            cluster.call(slot.node, shard_tasks.read_rows, panel.packed, first, last)
            for slot, (first, last) in zip(planned, ranges, strict=True)
        ]
    shards, row_counts = Shards(cluster, blocks, ranges, planned), panel.row_counts.astype(np.int32)
    weights = None if np.all(panel.row_weights == 1) else panel.row_weights
    names = {"row_ids": panel.given_row_ids, "column_ids": panel.given_column_ids, "row_weights": weights}
    return RayPanel(shards, row_counts, panel.n_columns, panel.dtype, **names, gpu=gpu, home=panel.at(None))
