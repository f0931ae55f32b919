"""A cluster of three nodes on this machine fits a panel; one of them is killed on the way.

The fit goes on with the nodes that are left, and its result agrees with that of this machine alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from time import perf_counter
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.cluster_utils import Cluster

from onesided import OneSidedCompletion, Panel, synthetic
from onesided.engines.ray import RayPanel, current, read

NODE = {"num_cpus": 1, "object_store_memory": 300 << 20}
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
SETTINGS: dict[str, Any] = {"rank": 3, "center": "columns", "diagonal": "free", "random_state": 0}


def main() -> None:
    """Write Parquet files, fit them with and without the cluster, and compare."""
    panel = synthetic.sample_fixed(synthetic.linear_mixture(200_000, 500, 3, rng=0), 10, rng=1)
    noisy = panel.values + 0.1 * np.random.default_rng(2).standard_normal(panel.n_entries)
    panel = Panel(panel.indptr, panel.columns, noisy, panel.n_columns)
    with TemporaryDirectory() as folder:
        write(panel, Path(folder))
        print(f"{panel!r}, in 8 Parquet files", flush=True)
        with said_to(Path(folder, "ray.log")) as terminal:  # Ray tells at length of a node that dies
            found = fitted_with_a_loss(folder, terminal)
    alone = OneSidedCompletion(**SETTINGS).fit(panel)
    low_rank, expected = (one.factor_ @ one.factor_.T for one in (found, alone))
    apart = np.linalg.norm(low_rank - expected) / np.linalg.norm(expected)
    print(f"XXᵀ differs from that of this machine alone by {apart:.1e} of its norm.")
    if not apart < 1e-6:
        raise SystemExit("the result was to agree within 1e-6")


def fitted_with_a_loss(folder: str, terminal: TextIO) -> OneSidedCompletion:
    """The model of a folder of Parquet files, from a cluster that loses a node in the sixth pass."""
    nodes = Cluster(initialize_head=True, head_node_args=NODE | {"_system_config": SOON})
    doomed = [nodes.add_node(**NODE) for _ in range(2)][-1]
    ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.CRITICAL)
    print("A Ray cluster of 3 nodes, each with a processor and a store of its own, runs here.", file=terminal)
    there = read(folder)
    tell(there, terminal)
    began = perf_counter()

    def progress(passes: int, loss: float) -> None:
        if passes == 5 and doomed in nodes.list_all_nodes():
            print(f"{perf_counter() - began:6.1f} s  node {doomed.node_id[:8]} is killed, in pass 6", file=terminal)
            killing = Timer(0.02, nodes.remove_node, (doomed,), {"allow_graceful": False})
            killing.start()

    found = OneSidedCompletion(engine="ray", **SETTINGS).fit(there, progress=progress)
    print(f"{perf_counter() - began:6.1f} s  fitted: {current().throughput()}", file=terminal)
    tell(there, terminal)
    ray.shutdown()
    nodes.shutdown()
    return found


def tell(panel: RayPanel, terminal: TextIO) -> None:
    """Which rows lie where."""
    for (first, last), slot in zip(panel.shards.edges, panel.shards.slots(), strict=True):
        entries = int(panel.row_counts[first:last].sum())
        print(f"  rows {first:>7,} to {last - 1:>7,}, {entries:,} entries: node {slot.node[:8]}", file=terminal)


def write(panel: Panel, folder: Path) -> None:
    """A line for each entry, in no order."""
    order = np.random.default_rng(3).permutation(panel.n_entries)
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    for k, part in enumerate(np.array_split(order, 8)):
        columns = {"user": rows[part], "item": panel.columns[part], "rating": panel.values[part]}
        pq.write_table(pa.table(columns), folder / f"part-{k}.parquet")


@contextmanager
def said_to(path: Path) -> Iterator[TextIO]:
    """What this process, and those that it starts, write to the terminal goes to a file, but for what is told it."""
    kept = os.dup(1), os.dup(2)
    with open(path, "w") as file, open(os.dup(1), "w", buffering=1) as terminal:
        try:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            yield terminal
        finally:
            for stream, before in zip((1, 2), kept, strict=True):
                os.dup2(before, stream)
                os.close(before)


if __name__ == "__main__":
    main()
