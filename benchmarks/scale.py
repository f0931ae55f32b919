"""How a fit grows: with entries, with columns, and past memory.

    python benchmarks/scale.py entries     time per pass from 10⁶ to 10⁸ entries
    python benchmarks/scale.py columns     time per pass from 10⁴ to 10⁶ columns
    python benchmarks/scale.py fits        20, 32 and 100 million entries to convergence, rank 10

Panels lie in files that are mapped into memory, so anonymous memory (RssAnon) is what a fit needs beyond its panel.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

import numba
import numpy as np

from onesided import OneSidedCompletion, Panel
from onesided.engines.threads import single_blas_thread, thread_count
from onesided.experiments.standins import skewed_panel
from onesided.fitting.moment_solution import moment_objective, moment_solution
from onesided.fitting.noise import Rows
from onesided.fitting.refinement import _Columns
from onesided.fitting.setting import Setting

RANK = 10
TURNS = 7


def anonymous_memory() -> float:
    """In MB, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e3


class Peak:
    """The most anonymous memory while something runs."""

    def __enter__(self) -> Peak:
        self.most, self._going = 0.0, True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going = False
        self._thread.join()

    def _watch(self) -> None:
        while self._going:
            self.most = max(self.most, anonymous_memory())
            sleep(0.02)


def seconds(one_pass: Callable[[], object]) -> float:
    """The median of passes in a row, as a fit makes them; the first is not counted."""
    taken = []
    for _ in range(TURNS + 1):
        began = perf_counter()
        one_pass()
        taken.append(perf_counter() - began)
    return float(np.median(taken[1:]))


def moment_pass(panel: Panel) -> float:
    _, objective = moment_objective(panel, Setting(RANK, center="both"))
    X = 0.1 * np.random.default_rng(0).normal(size=(panel.n_columns, RANK))
    return seconds(lambda: objective.value_and_gradient(X))


def variational_pass(panel: Panel) -> float:
    start = moment_solution(panel, Setting(RANK, center="both", tol=1.0, max_passes=1)).row_space
    rows = Rows(panel, start.mean)
    columns = _Columns.start(start, rows, "both")
    return seconds(lambda: columns.updated(rows.engine.posterior_sums(columns.prepared(rows)), rows))


def by_entries(folder: Path) -> None:
    print("| entries | moment pass, s | variational pass, s | ns per entry |\n| --- | --- | --- | --- |")
    found = []
    for n in (10_000, 100_000, 1_000_000):
        panel = skewed_panel(n, 5_000, 100, folder, equal_rows=True)
        moment, variational = moment_pass(panel), variational_pass(panel)
        found.append((panel.n_entries, moment, variational))
        times = f"{moment:.3f} | {variational:.3f}"
        each = f"{1e9 * moment / panel.n_entries:.1f}, {1e9 * variational / panel.n_entries:.1f}"
        print(f"| {panel.n_entries:,} | {times} | {each} |", flush=True)
    logs = np.log(np.array(found))
    for k, name in ((1, "moment"), (2, "variational")):
        power = np.polyfit(logs[:, 0], logs[:, k], 1)[0]
        print(f"\nA {name} pass takes as long as entries to the power {power:.2f}.")


def by_columns(folder: Path) -> None:
    print("| columns | entries | moment pass, s | ns per entry | over the first |\n| --- | --- | --- | --- | --- |")
    first = 0.0
    for d in (10_000, 100_000, 1_000_000):
        panel = skewed_panel(200_000, d, 100, folder)
        each = moment_pass(panel) / panel.n_entries
        first = first or each
        print(
            f"| {d:,} | {panel.n_entries:,} | {each * panel.n_entries:.2f} | {1e9 * each:.1f} | {each / first:.2f} |",
            flush=True,
        )


def fits(folder: Path) -> None:
    print("| panel | entries | fit | passes | seconds | anonymous memory, MB: before, at most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n, d, per_row in ((138_000, 27_000, 157), (200_948, 87_585, 166), (1_000_000, 100_000, 100)):
        panel = skewed_panel(n, d, per_row, folder)
        for refine in ("none", "variational"):
            model = OneSidedCompletion(RANK, center="both", diagonal="free", refine=refine, random_state=0)
            before, began = anonymous_memory(), perf_counter()
            with Peak() as peak:
                model.fit(panel)
            seconds = perf_counter() - began
            made = f"{model.solve_.passes}" + (f" + {model.refinement_.passes}" if model.refinement_ else "")
            name = "moments" if refine == "none" else "refined"
            print(
                f"| {n:,} × {d:,} | {panel.n_entries:,} | {name}, {model.solve_.status} | {made} | {seconds:.0f} "
                f"| {before:.0f}, {peak.most:.0f} |",
                flush=True,
            )


def main() -> None:
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {thread_count()} threads; numpy {np.__version__}; numba {numba.__version__}; rank {RANK}\n")
    small = skewed_panel(300, 200, 10)
    OneSidedCompletion(2, center="both", diagonal="free", random_state=0).fit(small)  # compiles
    study = {"entries": by_entries, "columns": by_columns, "fits": fits}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as folder, single_blas_thread():
        study(Path(folder))


if __name__ == "__main__":
    main()
