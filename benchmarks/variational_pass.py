"""What a variational pass costs beside a moment pass at the same rank.

    python benchmarks/variational_pass.py [ratings.dat] [--large]

On MovieLens-1M, if its ratings are given, or a synthetic panel of its size; ``--large`` adds one of 20 million entries.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from time import perf_counter

import numba
import numpy as np

from onesided import Panel
from onesided.engines.threads import single_blas_thread, thread_count
from onesided.experiments.standins import skewed_panel
from onesided.fitting.moment_solution import moment_objective, moment_solution
from onesided.fitting.noise import Rows
from onesided.fitting.refinement import _Columns
from onesided.fitting.setting import Setting
from onesided.panels.table_files import open_table

RANKS = (10, 20, 40)
TURNS = 5


def movielens(path: Path) -> Panel:
    table = open_table(path)
    panel = Panel.from_table(table.reader, row=table.row, column=table.column, value=table.value)
    return Panel(panel.indptr, panel.columns, panel.values.astype(np.float32), panel.n_columns)


def measure(name: str, panel: Panel) -> None:
    for rank in RANKS:
        start = moment_solution(panel, Setting(rank, center="both", tol=1e-2, max_passes=5)).row_space
        _, objective = moment_objective(panel, Setting(rank, center="both"))
        rows = Rows(panel, start.mean)
        columns = _Columns.start(start, rows, "both")
        X, seconds = start.factor / objective.scale[:, None], np.empty((TURNS + 1, 3))
        for turn in range(TURNS + 1):  # the first compiles
            began = perf_counter()
            objective.value_and_gradient(X)
            moment = perf_counter()
            sums = rows.engine.posterior_sums(columns.prepared(rows))
            middle = perf_counter()
            columns.updated(sums, rows)
            seconds[turn] = moment - began, middle - moment, perf_counter() - middle
        moment, by_row, by_column = np.median(seconds[1:], axis=0)
        ratio = float(np.median(seconds[1:, 1:].sum(axis=1) / seconds[1:, 0]))
        print(
            f"| {name} | {rank} | {1e3 * moment:.0f} | {1e3 * by_row:.0f} + {1e3 * by_column:.0f} | {ratio:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ratings", nargs="?", type=Path)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {thread_count()} threads; numpy {np.__version__}; numba {numba.__version__}\n")
    print("| panel | rank | moment pass, ms | variational pass, ms: rows + columns | ratio |")
    print("| --- | --- | --- | --- | --- |")
    with single_blas_thread():
        if arguments.ratings is None:
            measure("6,040 × 3,706, 1 million entries", skewed_panel(6040, 3706, 165))
        else:
            measure("MovieLens-1M", movielens(arguments.ratings))
        if arguments.large:
            measure("138,000 × 27,000, 20 million entries", skewed_panel(138_000, 27_000, 157))


if __name__ == "__main__":
    main()
