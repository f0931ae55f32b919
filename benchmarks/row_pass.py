"""The row pass beside what the processor can do: entries per second, and floating-point operations against sgemm.

    python benchmarks/row_pass.py

Useful operations are 4r² + 4r for an entry, those of A = BᵀB, BA, b = Bᵀv and v bᵀ; what the kernel saves by symmetry,
or by going through BBᵀ where a row is shorter than the rank, it is credited for all the same. sgemm is numpy's, two
matrices of 1,024 × 1,024 in single precision on one thread. Two threads over one is for a whole evaluation of loss and
gradient. Everything is measured in turn, seven times, and medians are printed. Two minutes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from time import perf_counter

import numba
import numpy as np

from onesided import Panel
from onesided.engines.threads import THREADS_VARIABLE, single_blas_thread
from onesided.fitting.objective.rows import RowObjective
from onesided.kernels import cpu
from onesided.kernels.bundles import Rows

RANKS = (10, 16, 20, 32, 40)
TURNS = 7
SIDE = 1024
D = 3_700


def movielens_like(rng: np.random.Generator, rows: int = 24_000) -> Panel:
    """About 120 entries in a row, of very different rows, and columns of very different popularity."""
    popularity = 1 / np.arange(1, D + 1) ** 0.7
    lengths = np.minimum(rng.lognormal(4.4, 1.0, rows).astype(int) + 5, 1500)
    columns = [np.unique(rng.choice(D, size=m, p=popularity / popularity.sum())) for m in lengths]
    return panel_of(columns, rng)


def short_rows(per_row: int, rng: np.random.Generator, entries: int = 3_000_000) -> Panel:
    """So many entries in every row, columns at random."""
    columns = np.sort(rng.integers(D - per_row, size=(entries // per_row, per_row)), axis=1) + np.arange(per_row)
    return panel_of(list(columns), rng)


def panel_of(columns: list[np.ndarray], rng: np.random.Generator) -> Panel:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
    values = rng.normal(size=indptr[-1]).astype(np.float32)
    return Panel(indptr, np.concatenate(columns).astype(np.int32), values, D)


def medians(*tasks: Callable[[], object]) -> list[float]:
    """The median seconds of each task, one after the other in every turn."""
    for task in tasks:
        task()
    seconds = np.empty((TURNS, len(tasks)))
    for turn in range(TURNS):
        for k, task in enumerate(tasks):
            began = perf_counter()
            task()
            seconds[turn, k] = perf_counter() - began
    return np.median(seconds, axis=0).tolist()


def on_threads(number: int, task: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        os.environ[THREADS_VARIABLE] = str(number)
        return task()

    return run


def main() -> None:
    rng = np.random.default_rng(0)
    square = rng.normal(size=(SIDE, SIDE)).astype(np.float32)
    print(f"{platform.processor() or platform.machine()}; numpy {np.__version__}; numba {numba.__version__}\n")
    print("| rows | rank | million entries/s, one core | of sgemm | sgemm, GFlop/s | two threads over one |")
    print("| --- | --- | --- | --- | --- | --- |")
    panels = {"MovieLens-like": movielens_like(rng)} | {f"{m} entries": short_rows(m, rng) for m in (2, 5, 10)}
    with single_blas_thread():
        for name, panel in panels.items():
            objective = RowObjective(panel)
            for rank in RANKS:
                X = rng.normal(size=(D, rank)).astype(np.float32)
                rows = Rows.of(panel.indptr, panel.columns, panel.values, panel.row_weights)
                arguments = (rows, cpu.lines(X, np.zeros(D), np.ones(D), np.float32))
                alone, multiply, single, double = medians(
                    lambda arguments=arguments: cpu.row_pass(*arguments),
                    lambda: square @ square,
                    on_threads(1, lambda objective=objective, X=X: objective.value_and_gradient(X)),
                    on_threads(2, lambda objective=objective, X=X: objective.value_and_gradient(X)),
                )
                peak = 2 * SIDE**3 / multiply
                share = (4 * rank**2 + 4 * rank) * panel.n_entries / alone / peak
                speed = panel.n_entries / alone / 1e6
                print(
                    f"| {name} | {rank} | {speed:.0f} | {share:.0%} | {peak / 1e9:.0f} | {single / double:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
