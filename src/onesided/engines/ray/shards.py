"""Rows on a cluster: shards in the store of the nodes that work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray

from onesided.arrays import Array
from onesided.engines.placement import GpuOptions, Place
from onesided.engines.ray.cluster import Cluster, Ref, Slot

if TYPE_CHECKING:
    from onesided.engines.ray.engine import RayEngine

WEIGHTS_KEPT = 2  # sets of row weights that stay on the nodes


class Shards:
    """The rows of a panel on a cluster: a block of whole rows for each shard, and the slot it is planned for.

    The edges of a shard are its first row and the one after its last. Actors on GPUs keep shards by ``name``, as long
    as this object lives.
    """

    def __init__(
        self, cluster: Cluster, blocks: Sequence[Ref], edges: Sequence[tuple[int, int]], planned: Sequence[Slot]
    ) -> None:
        self.cluster, self.blocks, self.edges, self.planned = cluster, list(blocks), edges, planned
        self._slots, self.name = list(planned), uuid4().hex
        self._kept: dict[int, tuple[Array, list[Ref | None]]] = {}

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
    """A cluster that holds the rows of a panel: what its GPUs are asked for.

    It has no passes over pairs of columns: each node makes those of its shards. Rows that were fetched stay here.
    """

    gpu: GpuOptions

    def engine(self, panel: Any, weights: Array | None) -> RayEngine:
        """Passes over the rows with their own weights or others."""
        from onesided.engines.ray.engine import RayEngine

        return RayEngine(panel if weights is None else panel.weighed(weights))
