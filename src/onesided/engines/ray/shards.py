"""Rows on a cluster: shards in the store of the nodes that work on them, and passes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray

from onesided.arrays import Array
from onesided.engines.placement import GpuOptions, Place
from onesided.engines.ray.cluster import Add, Cluster, Ref, Slot
from onesided.engines.ray.shard_tasks import Shard, on_rows
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

if TYPE_CHECKING:
    from onesided.engines.ray.engine import RayEngine


WEIGHTS_KEPT = 2  # sets of row weights that stay on the nodes


class Shards:
    """The rows of a panel on a cluster: a block of whole rows for each shard, and the slot it is planned for.

    Actors on GPUs keep shards by ``name``, as long as this object lives.
    """

    def __init__(self, cluster: Cluster, blocks: Sequence[Ref], edges: Iterable[int], planned: Sequence[Slot]) -> None:
        self.cluster, self.blocks, self.planned = cluster, list(blocks), list(planned)
        self.edges = [(int(first), int(last)) for first, last in pairwise(edges)]
        self._slots, self.name = list(planned), uuid4().hex
        self._kept: dict[int, tuple[Array, list[Ref | None]]] = {}

    def like(self, blocks: Sequence[Ref]) -> Shards:
        """As many rows in other blocks."""
        return Shards(self.cluster, blocks, [0, *(last for _, last in self.edges)], self.planned)

    @property
    def on_gpus(self) -> bool:
        """Whether any of them was planned for a GPU."""
        return any(slot.gpu is not None for slot in self.planned)

    def __del__(self) -> None:
        if self.on_gpus:
            self.cluster.forget([(self.name, k) for k in range(len(self.blocks))])

    def slots(self) -> list[Slot]:
        """The slot of each shard: as planned, or another one on a node that is alive, with few shards."""
        alive, gone = self.cluster.alive(), self.cluster.gone
        for k, slot in enumerate(self._slots):
            if slot.node not in alive or slot in gone:
                device = "auto" if slot.gpu is not None else "cpu"
                left = [other for other in self.cluster.slots(device) if other not in gone]
                able = [other for other in left if other.node in alive] or [
                    other for other in self.cluster.slots() if other.node in alive
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


@dataclass(frozen=True, eq=False)
class RayPlace(Place):
    """A cluster that holds the rows of a panel, and what its GPUs are asked for."""

    shards: Shards
    gpu: GpuOptions

    def _call(self, slot: Slot, k: int, panel: PanelLike, weights: Ref | None, task: Ref, *given: Any) -> Ref:
        """What a task makes of the rows of a shard, on a slot."""
        shards = self.shards
        weights_name = None if weights is None else weights.hex()
        shard = Shard((shards.name, k), shards.edges[k], panel.n_columns, weights_name, self.gpu)
        arguments = (shard, shards.blocks[k], weights, task, *given)
        if slot.gpu is None:
            return shards.cluster.call(slot.node, on_rows, *arguments)
        return shards.cluster.held(slot, *arguments)

    def total(self, panel: PanelLike, weights: Array, task: Callable[[Panel], Any], plus: Add) -> Any:
        """The sum over shards of what a task makes of their rows."""
        shards, cluster = self.shards, self.shards.cluster
        job, weights_there = cluster.shared(task), shards.weights(weights)

        def attempt() -> Any:
            slots = shards.slots()
            results = [self._call(slot, k, panel, weights_there[k], job) for k, slot in enumerate(slots)]
            homes, planned = ([slot.node for slot in these] for these in (slots, shards.planned))
            return cluster.added(results, homes, planned, plus)

        began = perf_counter()
        total = cluster.retrying(attempt)
        cluster.worked += panel.n_entries
        cluster.seconds += perf_counter() - began
        return total

    def by_shards(
        self,
        panel: PanelLike,
        weights: Array,
        task: Callable[..., Any],
        given: Callable[[int, int], tuple[Any, ...]] = lambda first, last: (),
    ) -> Iterator[tuple[int, int, Any]]:
        """What a task makes of the rows of each shard, in order."""
        shards, cluster = self.shards, self.shards.cluster
        job, weights_there = cluster.shared(task), shards.weights(weights)

        def call(k: int) -> Ref:
            return self._call(shards.slots()[k], k, panel, weights_there[k], job, *given(*shards.edges[k]))

        results = cluster.windowed([partial(call, k) for k in range(len(shards.blocks))])
        for (first, last), result in zip(shards.edges, results, strict=True):
            yield first, last, result

    def engine(self, panel: PanelLike, weights: Array | None) -> RayEngine:
        """Passes over the rows with their own weights or others."""
        from onesided.engines.ray.engine import RayEngine

        return RayEngine(self, panel, panel.row_weights if weights is None else weights)

    def for_rows(self, panel: Panel) -> None:
        """Rows that were fetched stay in this process."""

    def pair_pass(self, indptr: Array, columns: Array, target: Array) -> None:
        """Pairs of columns are not on the cluster."""

    def pair_moments(self, panel: Panel) -> None:
        """Each node makes those of its shards (:meth:`total`)."""
