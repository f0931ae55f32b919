"""A Ray cluster of several nodes on this machine, each with its own store, beside the same work without it.

    python benchmarks/cluster.py passes           time and bytes of a pass over 20 million entries, 1 to 3 nodes
    python benchmarks/cluster.py traffic          what a pass takes beside its work, by the bytes that it moves
    python benchmarks/cluster.py agree DATA       fits and imputation: MovieLens-1M of the folder DATA, 20 million
    python benchmarks/cluster.py memory FOLDER    100 million entries in 64 Parquet files, written to FOLDER if need be

Bytes are those of the loopback device, by which all nodes on one machine talk: what Ray says to itself is among them.
Memory of a process is what it holds by itself and does not share (RssAnon), and apart from it what it has mapped of the
store (RssShmem).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import ray
from ray.cluster_utils import Cluster as Nodes

from onesided import OneSidedCompletion, Panel
from onesided.datasets import load
from onesided.engines.engine import engine_for
from onesided.engines.ray import current, distribute, read
from onesided.experiments.standins import skewed_panel

TURNS = 20
RANK = 10


@contextmanager
def nodes(number: int, cpus: int, store: int) -> Iterator[None]:
    """A cluster on this machine, with stores of so many megabytes."""
    options = {"num_cpus": cpus, "object_store_memory": store << 20}
    cluster = Nodes(initialize_head=True, head_node_args=options)
    for _ in range(number - 1):
        cluster.add_node(**options)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def loopback() -> int:
    """Bytes that the loopback device has received."""
    line = next(one for one in Path("/proc/net/dev").read_text().splitlines() if one.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def model_bytes(others: int, d: int, rank: int, itemsize: int) -> int:
    """Of a pass: the factor, as precise as the values, center and scale go to all other nodes, gradients come back."""
    return others * d * (itemsize * rank + 16 + 8 * rank)


def passes() -> None:
    print(f"{'nodes':>5} {'columns':>9} {'here ms':>9} {'ray ms':>9} {'ratio':>6} {'bytes':>13} {'model':>13}")
    for d in (20_000, 200_000):
        panel = skewed_panel(2_000_000, d, 10.0)
        rng = np.random.default_rng(0)
        X, center, scale = 0.1 * rng.standard_normal((d, RANK)), np.full(d, 3.5), np.full(d, 5.0)
        for number, cpus in ((1, 2), (2, 1), (3, 1)):
            with nodes(number, cpus, 1000):
                there, here = engine_for(distribute(panel, current())), engine_for(panel)
                taken: list[list[float]] = [[], []]
                moved = []
                for _ in range(TURNS + 2):
                    before = loopback()
                    for kept, engine in zip(taken, (there, here), strict=True):
                        began = perf_counter()
                        engine.row_pass(X, center, scale, 0.01)
                        kept.append(perf_counter() - began)
                        if engine is there:
                            moved.append(loopback() - before)
                ray_ms, here_ms = (1e3 * float(np.median(one[2:])) for one in taken)
                expected = model_bytes(number - 1, d, RANK, 4)
                print(
                    f"{number:>5} {d:>9,} {here_ms:>9.1f} {ray_ms:>9.1f} {ray_ms / here_ms:>6.2f} "
                    f"{int(np.median(moved[2:])):>13,} {expected:>13,}",
                    flush=True,
                )


def traffic() -> None:
    """Passes over few entries: time and bytes that follow from the factor alone, fitted to a line."""
    print(f"{'columns':>9} {'rank':>4} {'ray ms':>9} {'bytes':>13} {'model':>13}")
    found = []
    with nodes(2, 1, 2000):
        for d in (20_000, 200_000, 1_000_000):
            panel = skewed_panel(10_000, d, 10.0)
            for rank in (10, 30):
                engine = engine_for(distribute(panel, current()))
                X, center, scale = np.full((d, rank), 0.1), np.full(d, 3.5), np.full(d, 5.0)
                taken, moved = [], []
                for _ in range(TURNS + 2):
                    before, began = loopback(), perf_counter()
                    engine.row_pass(X, center, scale, 0.01)
                    taken.append(perf_counter() - began)
                    moved.append(loopback() - before)
                ms, size = 1e3 * float(np.median(taken[2:])), int(np.median(moved[2:]))
                found.append((size, ms))
                print(f"{d:>9,} {rank:>4} {ms:>9.1f} {size:>13,} {model_bytes(1, d, rank, 4):>13,}", flush=True)
    slope, latency = np.polyfit(*np.array(found).T, 1)
    print(f"{latency:.0f} ms and {1e-6 / slope:.2f} GB/s")
    for size, ms in found:
        print(f"{ms:9.1f} ms, of the line {latency + slope * size:9.1f}")


def relative(one: OneSidedCompletion, other: OneSidedCompletion) -> float:
    """‖XXᵀ − X'X'ᵀ‖ / ‖X'X'ᵀ‖, without forming them."""
    X, Y = one.factor_, other.factor_
    squares = [float(np.sum((A.T @ B) ** 2)) for A, B in ((X, X), (X, Y), (Y, Y))]
    return float(np.sqrt(max(squares[0] - 2 * squares[1] + squares[2], 0.0) / squares[2]))


def compared(name: str, panel: Panel, **settings: object) -> None:
    """A fit there and here, and values imputed by either."""
    found = []
    for engine in ("ray", "local"):
        began = perf_counter()
        model = OneSidedCompletion(random_state=0, engine=engine, **settings).fit(panel)  # type: ignore[arg-type]
        found.append(model)
        trials = 0 if model.selection_ is None else len(model.selection_.trials)
        print(
            f"{name}, {engine}: {perf_counter() - began:.1f} s, rank {model.rank_}, {trials} settings tried", flush=True
        )
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(panel.n_rows, size=100_000), rng.integers(panel.n_columns, size=100_000)
    there = distribute(panel, current())
    (values, deviations), (expected, others) = (
        model.impute_at(on, rows, columns, return_std=True) for model, on in zip(found, (there, panel), strict=True)
    )
    print(
        f"{name}: XXᵀ differs by {relative(*found):.1e}, the noise variances by "
        f"{np.max(np.abs(found[0].noise_variance_ / found[1].noise_variance_ - 1)):.1e}, 100,000 imputed values by "
        f"{np.max(np.abs(values - expected)):.1e}, their deviations by {np.max(np.abs(deviations - others)):.1e}"
    )
    if found[0].selection_ is not None and found[1].selection_ is not None:
        scores = [{(t.rank, t.center, t.diagonal): t.score for t in one.selection_.trials} for one in found]  # type: ignore[union-attr]
        worst = max(abs(scores[0][key] - scores[1][key]) for key in scores[1])
        print(f"{name}: the same choice: {found[0].rank_ == found[1].rank_}; held-out scores differ by {worst:.1e}")
    print(f"{name}: {current().throughput()}", flush=True)


def agree(data: str) -> None:
    with nodes(3, 1, 1500):
        compared("MovieLens-1M", load("movielens-1m", data))
        ratings = load("movielens-1m", data)
        double = Panel(ratings.indptr, ratings.columns, ratings.values.astype(np.float64), ratings.n_columns)
        for name, panel in (("float32", ratings), ("float64", double)):
            compared(f"MovieLens-1M, moments, {name}", panel, rank=10, center="both", diagonal="free", refine="none")
        large = skewed_panel(2_000_000, 20_000, 10.0)
        compared("20 million", large, rank=RANK, center="both", diagonal="free", blend=None)
        compared("20 million, rank chosen", large, center="columns", diagonal="free", refine="none", blend=None)


def memory(at: str) -> None:
    """Of the driver and of workers, in a fit of 100 million entries."""
    folder = Path(at)
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.parquet"))) < 64:
        _write(folder)
    with nodes(2, 1, 4000), Watch() as watch:
        began = perf_counter()
        panel = read(folder)
        print(f"{panel!r} in {len(panel.shards.blocks)} shards after {perf_counter() - began:.0f} s", flush=True)
        watch.tell("reading")
        began = perf_counter()
        model = OneSidedCompletion(
            RANK, center="both", diagonal="free", refine="none", blend=None, engine="ray", random_state=0
        ).fit(panel)
        print(f"{model.solve_.message}; {perf_counter() - began:.0f} s", flush=True)
        watch.tell("fitting")
        rows = np.arange(0, panel.n_rows, 100)
        model.impute_at(panel, rows, rows % panel.n_columns)
        watch.tell("imputing 100,000 values")


def _write(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k in range(64):
        part = skewed_panel(156_250, 20_000, 10.0, seed=k)
        rows = np.repeat(np.arange(part.n_rows) * 64 + k, part.row_counts)
        order = np.random.default_rng(k).permutation(len(rows))
        columns = {"user": rows[order], "item": part.columns[order].astype(np.int64), "rating": part.values[order]}
        pq.write_table(pa.table(columns), folder / f"part-{k:02}.parquet")


class Watch:
    """The most memory of this process, and of any worker of Ray that does tasks."""

    def __enter__(self) -> Watch:
        self._most: dict[str, list[float]] = {}
        self._going, self._thread = True, threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going = False
        self._thread.join()

    def tell(self, what: str) -> None:
        for name, (own, mapped) in sorted(self._most.items()):
            print(f"{what}: {name} at most {own:,.0f} MB of its own, {mapped:,.0f} MB mapped of the store", flush=True)
        self._most = {}

    def _watch(self) -> None:
        while self._going:
            self._add("the driver", Path("/proc/self"))
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    named = (process / "cmdline").read_bytes().startswith(b"ray::_")
                except OSError:
                    continue
                if named:
                    self._add("a worker", process)
            sleep(0.1)

    def _add(self, name: str, process: Path) -> None:
        try:
            lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            found = [int(lines[key].split()[0]) / 1e3 for key in ("RssAnon", "RssShmem")]
        except (OSError, KeyError):
            return
        self._most[name] = [max(pair) for pair in zip(found, self._most.get(name, [0.0, 0.0]), strict=True)]


if __name__ == "__main__":
    {"passes": passes, "traffic": traffic, "agree": agree, "memory": lambda folder: memory(Path(folder))}[sys.argv[1]](
        *sys.argv[2:]
    )
