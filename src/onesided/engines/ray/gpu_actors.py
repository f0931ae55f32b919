"""Shards on the GPUs of a cluster: for each GPU an actor that keeps the rows it was once given.

An actor gets with every call what a task would get, the block of rows among it, which lies in the store of its node.
What it keeps is only for speed: if it dies, another one, or a processor, is given the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from onesided.arrays import Array
from onesided.engines.ray.shard_tasks import Shard
from onesided.panels.csr import Rows


@ray.remote(num_gpus=1, num_cpus=0)
class Holder:
    """Keeps shards on its GPU by their names, and row weights as long as they are in use."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._places: dict[Any, Any] = {}
        self._weights: dict[Any, tuple[str | None, Array]] = {}

    def run(self, shard: Shard, rows: Rows, weights: Array | None, task: Any, *given: Any) -> Any:
        """What a task makes of the rows of a shard."""
        import torch

        from onesided.engines.gpu import GpuPlace

        name = shard.name
        if self._weights.get(name, ("", None))[0] != shard.weights_name:
            self._weights[name] = shard.weights_name, np.ones(len(rows[0]) - 1) if weights is None else weights
        panel = shard.panel(rows, self._weights[name][1])
        with shard.naming_its_rows():
            if self._places.get(name, (None, None))[0] != shard.gpu:
                self._places.pop(name, None)  # made for another rank, or to add in another order
                self._places[name] = shard.gpu, GpuPlace(panel, torch.device(self._device), **shard.gpu._asdict())
            return task(panel.at(self._places[name][1]), *given)

    def forget(self, name: Any) -> None:
        """Make room."""
        self._places.pop(name, None)
        self._weights.pop(name, None)
