"""The published algorithm beside the moment solution: time until rows never seen are described best, on MovieLens-1M.

    python benchmarks/published.py DIR [--tune]

The paper's path for real data in plain torch (``pip install torch``): the sparse products M̂ᵀM̂ and IᵀI, their quotient
T̂ on Ω, and 1,000 steps of gradient descent on the mean squared error over Ω, rank 10, λ = 10⁻⁴, α = 10⁻³ as published.
The published η = 10⁴ diverges on raw values: the step is the best of a grid, chosen in its favour on the very rows that
are scored (``--tune`` repeats that). Ω is gone through as a list of pairs, as published; the same steps with dense
d × d matrices, which the published code does not take but which fit here, are timed too.

A fifth of the rows is held out. The measure is the mean of (T_ij − v_i v_j)² over all pairs i ≠ j of their entries, in
raw values. The moment solution is ``moment_solution``, set-up included. Two threads for both; evaluating costs
neither any time, and the times ours are those of the slower of the two below. Some minutes; with ``--tune`` ten more.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import numba
import numpy as np
import scipy.sparse as sp
import torch
from accuracy import movielens

from onesided.engines.threads import THREADS_VARIABLE
from onesided.fitting import moment_solution
from onesided.fitting.objective.rows import mean_squared_pair_error
from onesided.fitting.setting import Setting

Array = np.ndarray
Descent = Callable[[torch.Tensor], torch.Tensor]

RANK, STEPS, EVERY = 10, 1_000, 10
PENALTY, ALPHA = 1e-4, 1e-3
GRID = {"raw": (30.0, 100.0, 300.0, 1e4), "centred": (1e3, 3e3, 1e4)}
BEST_STEP = {"raw": 100.0, "centred": 3e3}  # centred, 1e3 is lower by 1e-4, in three times as many steps
TURNS, THREADS = 5, 2


class Published:
    """T̂ on Ω from two sparse products, then gradient descent."""

    def __init__(self, rows: sp.csr_array) -> None:
        seen = sp.csr_array((np.ones_like(rows.data), rows.indices, rows.indptr), shape=rows.shape)
        counts = (seen.T @ seen).tocoo()
        first, second = counts.coords
        sums = (rows.T @ rows).toarray()  # a sum of exactly zero is not stored: look all of Ω up
        target = sums[first, second] / counts.data
        self.d, self.size = rows.shape[1], counts.nnz
        self.share = (self.size - self.d) / (self.d * (self.d - 1))  # q, the weight of the diagonal
        self.first, self.second = (torch.from_numpy(index.astype(np.int64)) for index in (first, second))
        self.target = torch.from_numpy(target.astype(np.float32))
        self.weight = torch.where(self.first == self.second, self.share, 1.0)

    def start(self) -> torch.Tensor:
        return torch.randn(self.d, RANK, generator=torch.Generator().manual_seed(0)) / self.d**0.5

    def pairwise(self, X: torch.Tensor) -> torch.Tensor:
        """The gradient over the list of pairs."""
        residual = self.weight * ((X[self.first] * X[self.second]).sum(1) - self.target)
        gradient = torch.zeros_like(X).index_add_(0, self.first, residual[:, None] * X[self.second])
        return 2 / self.size * gradient + self.incoherence(X)

    def dense(self) -> Descent:
        """The same gradient through d × d matrices, one of them used again in every step."""
        target, weight, residual = (torch.zeros(self.d, self.d) for _ in range(3))
        target[self.first, self.second], weight[self.first, self.second] = self.target, self.weight

        def gradient(X: torch.Tensor) -> torch.Tensor:
            torch.mm(X, X.T, out=residual).sub_(target).mul_(weight)
            return 2 / self.size * (residual @ X) + self.incoherence(X)

        return gradient

    def incoherence(self, X: torch.Tensor) -> torch.Tensor:
        norms = X.norm(dim=1, keepdim=True)
        return PENALTY / self.d * 4 * (norms - ALPHA).clamp(min=0) ** 3 * X / norms.clamp(min=1e-30)


def descend(gradient: Descent, X: torch.Tensor, step: float) -> Iterator[tuple[int, Array]]:
    """The factor at every tenth step, until it is no longer finite."""
    for k in range(1, STEPS + 1):
        X = X - step * gradient(X)
        if k % EVERY == 0:
            if not X.abs().max() < 1e6:
                return
            yield k, X.double().numpy()


def medians(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each task, one after the other in every turn; the first turn is not counted."""
    seconds = {name: [] for name in tasks}
    for _ in range(TURNS + 1):
        for name, task in tasks.items():
            began = perf_counter()
            task()
            seconds[name].append(perf_counter() - began)
    return {name: float(np.median(turns[1:])) for name, turns in seconds.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--tune", action="store_true")
    chosen = arguments.parse_args()
    os.environ[THREADS_VARIABLE] = str(THREADS)
    torch.set_num_threads(THREADS)

    panel = movielens(chosen.data).to_panel()
    held = np.random.default_rng(0).random(panel.n_rows) < 0.2
    training, testing = panel.take_rows(~held), panel.take_rows(held)
    mean = moment_solution.column_means(training)

    def score(center: Array, factor: Array) -> float:
        return mean_squared_pair_error(testing, np.column_stack([center, factor]))

    rows = {"raw": training.to_sparse(), "centred": training.centred(mean).to_sparse()}
    centers = {"raw": np.zeros(panel.n_columns), "centred": mean}
    steps = {kind: GRID[kind] if chosen.tune else (BEST_STEP[kind],) for kind in rows}
    lines, tasks = [], {}
    for kind, matrix in rows.items():
        algorithm = Published(matrix)
        dense, paths = algorithm.dense(), {}
        tasks[kind] = partial(Published, matrix)
        for step in steps[kind]:
            path = [(score(centers[kind], X), k) for k, X in descend(dense, algorithm.start(), step)]
            if path:
                paths[step] = path
            if chosen.tune:
                found = f"{min(path)[0]:.3f} after {min(path)[1]} steps" if path else "diverged"
                print(f"{kind}, step {step:g}: {found}", flush=True)
        step, path = min(paths.items(), key=lambda one: min(one[1]))
        for name, gradient in (("pairs of Ω", algorithm.pairwise), ("dense", dense)):
            tasks[f"{kind}, {name}"] = partial(gradient, algorithm.start())
            for count, loss in ((STEPS, path[-1][0]), (min(path)[1], min(path)[0])):
                lines.append((kind, name, step, count, loss))
    for center in ("columns", "both"):
        tasks[center] = partial(moment_solution.moment_solution, training, Setting(RANK, center=center))
    seconds = medians(tasks)

    nothing = np.zeros((panel.n_columns, 1))
    constant = np.full(panel.n_columns, training.values.mean())
    print(f"{platform.processor() or platform.machine()}, {THREADS} threads; torch {torch.__version__}; ", end="")
    print(f"numpy {np.__version__}; numba {numba.__version__}. Held out: {testing}; ", end="")
    print(f"means alone {score(mean, nothing):.3f}, a constant {score(constant, nothing):.3f}\n")
    print("| | set-up | per step | steps | seconds in all | held-out row loss | times ours |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    slowest = max(seconds["columns"], seconds["both"])
    for kind, name, step, count, loss in lines:
        before, each = seconds[kind], seconds[f"{kind}, {name}"]
        total = before + each * count
        cells = f"{before:.1f} s | {each * 1e3:.0f} ms | {count} | {total:.1f} | {loss:.3f} | {total / slowest:.0f}"
        print(f"| published, {kind}, {name}, η = {step:g} | {cells} |")
    for center in ("columns", "both"):
        found = moment_solution.moment_solution(training, Setting(RANK, center=center))
        space, passes = found.row_space, found.solve.passes
        cells = f" | | {passes} passes | {seconds[center]:.2f} | {score(space.mean, space.loadings):.3f} | 1"
        print(f'| moment solution, center="{center}" | {cells} |')


if __name__ == "__main__":
    main()
