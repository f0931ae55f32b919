"""Pair moments beside scipy's products and a database's self-join, and the paper's gradient over Ω.

    python benchmarks/pair_moments.py ratings.dat

The file is MovieLens-1M's ``ratings.dat``, also compressed by xz; without it, only made panels are measured. scipy's
two products are M̂ᵀM̂ and IᵀI of CSR matrices in double precision, both triangles, without the squares; pairs whose
products sum to zero are missing from the first. The self-join is duckdb's, with counts, sums and squares for i ≤ j.
Ours has all of these, and includes the order by column, which it makes anew. Everything is measured in turn, seven
times (the self-join once), and medians are printed. Peak memory is what each takes beyond the panel, in a process of
its own; it is read from Linux's /proc.

For the gradient, pairs per second are those of one core, and of a whole evaluation on two threads. Beside it, one
product of the symmetric sparse matrix T̂ with the factor by scipy, which is two thirds of the arithmetic: 2r
multiply-adds for a pair, where the gradient takes 3r. Three minutes.
"""

from __future__ import annotations

import ctypes
import lzma
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import numba
import numpy as np
import pyarrow as pa
import scipy
import scipy.sparse as sp

from onesided import PairMoments, Panel
from onesided.engines.threads import THREADS_VARIABLE, thread_count
from onesided.fitting.objective.pairs import PairObjective
from onesided.kernels import pairs
from onesided.pairs.moments import hajek

TURNS = 7
RANKS = (5, 10, 20, 40)
ROWS, COLUMNS, PER_ROW = 200_000, 20_000, 10


def movielens(path: str) -> Panel:
    stored = Path(path).read_bytes()
    lines = (lzma.decompress(stored) if path.endswith(".xz") else stored).decode("latin-1").splitlines()
    entries = np.array([line.split("::")[:3] for line in lines], dtype=np.int64)
    return Panel.from_arrays(entries[:, 0], entries[:, 1], entries[:, 2].astype(np.float32))


def even() -> Panel:
    """Ten entries in each row, all columns alike."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(COLUMNS - PER_ROW + 1, size=(ROWS, PER_ROW)), axis=1) + np.arange(PER_ROW)
    return made(list(columns), rng)


def skewed() -> Panel:
    """About ten entries in each row, columns of very different popularity, in any order."""
    rng = np.random.default_rng(0)
    popularity, order = 1 / np.arange(1, COLUMNS + 1) ** 0.8, rng.permutation(COLUMNS)
    drawn = rng.choice(COLUMNS, size=(ROWS, PER_ROW), p=popularity / popularity.sum())
    return made([np.unique(row) for row in order[drawn]], rng)


def made(columns: list[np.ndarray], rng: np.random.Generator) -> Panel:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
    values = rng.normal(size=indptr[-1]).astype(np.float32)
    return Panel(indptr, np.concatenate(columns).astype(np.int32), values, COLUMNS)


def ours(panel: Panel) -> PairMoments:
    return PairMoments.from_panel(panel)


def two_products(panel: Panel) -> Any:
    values, ones = panel.values.astype(np.float64), np.ones(panel.n_entries)
    M, seen = (sp.csr_array((data, panel.columns, panel.indptr), shape=panel.shape) for data in (values, ones))
    return M.T @ M, seen.T @ seen


def self_join(panel: Panel) -> Any:
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    entries = pa.table({"u": rows, "j": panel.columns, "v": panel.values.astype(np.float64)})
    with duckdb.connect() as connection:
        connection.execute(f"set threads to {thread_count()}")
        connection.register("entries", entries)
        return connection.sql(
            """select a.j as i, b.j as j, count(*) as rows, sum(a.v * b.v) as sums, sum((a.v * b.v) ** 2) as squares
               from entries a join entries b on a.u = b.u and a.j <= b.j group by all order by all"""
        ).to_arrow_table()


TASKS: dict[str, Callable[[Panel], Any]] = {"ours": ours, "scipy": two_products, "duckdb": self_join}


def panels(path: str) -> dict[str, Callable[[], Panel]]:
    real = {"MovieLens-1M": lambda: movielens(path)} if Path(path).is_file() else {}
    return {**real, "even": even, "skewed": skewed}


def peak(path: str, panel: str, task: str) -> float:
    """GiB that a task takes beyond the panel, in a process of its own."""
    command = [sys.executable, __file__, path, panel, task]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak(panel: Panel, task: Callable[[Panel], Any]) -> None:
    task(panel.take_rows(np.arange(100)))  # compiled, loaded
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    status = Path("/proc/self/status")
    before = memory(status, "VmRSS")
    kept = task(panel)
    print((memory(status, "VmHWM") - before) / 2**20)
    del kept


def memory(status: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))


def medians(*tasks: Callable[[], Any], turns: int = TURNS) -> list[float]:
    """The median seconds of each task, one after the other in every turn."""
    seconds = np.empty((turns, len(tasks)))
    for turn in range(turns):
        for k, task in enumerate(tasks):
            began = perf_counter()
            task()
            seconds[turn, k] = perf_counter() - began
    return np.median(seconds, axis=0).tolist()


def on_threads(number: int, task: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        os.environ[THREADS_VARIABLE] = str(number)
        return task()

    return run


def print_moments(path: str) -> None:
    print(
        "| panel | pairs, million | pair moments, s | scipy over ours | duckdb over ours | GiB: ours | scipy | duckdb |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, make in panels(path).items():
        panel = make()
        pairs_found = ours(panel).n_pairs
        mine, products = medians(lambda panel=panel: ours(panel), lambda panel=panel: two_products(panel))
        (join,) = medians(lambda panel=panel: self_join(panel), turns=1)
        gib = " | ".join(f"{peak(path, name, task):.2f}" for task in TASKS)
        ratios = f"{products / mine:.1f} | {join / mine:.0f}"
        print(f"| {name} | {pairs_found / 1e6:.2f} | {mine:.2f} | {ratios} | {gib} |", flush=True)


def print_gradient(path: str) -> None:
    print("\n| panel | rank | million pairs/s, one core | two threads | scipy's T̂X, one core |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in panels(path).items():
        moments = ours(make())
        objective, target = PairObjective(moments), hajek(moments)
        T = moments.to_matrix(target)
        for rank in RANKS:
            X = np.random.default_rng(0).normal(size=(moments.n_columns, rank))
            given = moments.indptr, moments.columns, target, objective.diagonal_weight, pairs.padded(X)
            tasks = (
                lambda given=given: pairs.pair_pass(0, *given),
                on_threads(2, lambda objective=objective, X=X: objective.value_and_gradient(X)),
                lambda T=T, X=X: T @ X,
            )
            tasks[0]()
            speeds = " | ".join(f"{moments.n_pairs / seconds / 1e6:.0f}" for seconds in medians(*tasks))
            print(f"| {name} | {rank} | {speeds} |", flush=True)


def main(path: str = "", panel: str = "", task: str = "") -> None:
    if task:
        print_peak(panels(path)[panel](), TASKS[task])
        return
    versions = f"numpy {np.__version__}; scipy {scipy.__version__}; numba {numba.__version__}"
    machine = f"{platform.processor() or platform.machine()}, {thread_count()} threads"
    print(f"{machine}; {versions}; duckdb {duckdb.__version__}\n")
    if not Path(path).is_file():
        print("MovieLens-1M is left out: give the path of its ratings.dat\n")
    print_moments(path)
    print_gradient(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
