"""Shards on the GPUs of a cluster: for each GPU an actor that keeps the rows it was once given.

An actor gets with every call what a task would get, the block of rows among it, which lies in the store of its node.
What it keeps is only for speed: if it dies, another one, or a processor, is given the same.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onesided.engines.ray.shard_tasks import Rows, noting_rows, panel_of

Array = npt.NDArray[Any]


def holder(node: str, device: str) -> Any:
    """An actor on a GPU of a node."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return _Holder.options(num_gpus=1, num_cpus=0, scheduling_strategy=there).remote(device)  # type: ignore[attr-defined]


@ray.remote
class _Holder:
    """Keeps shards on its GPU, and row weights as long as they are in use."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._places: dict[Any, Any] = {}
        self._weights: dict[Any, tuple[str | None, Array | None]] = {}

    def run(
        self,
        shard: Any,
        on_gpu: dict[str, Any],
        weights_name: str | None,
        rows: Rows,
        weights: Array | None,
        n_columns: int,
        at: tuple[int, int],
        task: Any,
        *given: Any,
    ) -> Any:
        """What a task makes of the rows of a shard, by its name; weights of the same name are the same."""
        import torch

        from onesided.engines.gpu import Place

        if self._weights.get(shard, ("", None))[0] != weights_name:
            self._weights[shard] = weights_name, weights
        panel = panel_of(rows, self._weights[shard][1], n_columns)
        with noting_rows(at):
            if shard not in self._places:
                self._places[shard] = Place(panel, torch.device(self._device), **on_gpu)
            return task(panel.at(self._places[shard]), *given)

    def forget(self, shard: Any) -> None:
        """Make room."""
        self._places.pop(shard, None)
        self._weights.pop(shard, None)
