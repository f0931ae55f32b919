"""Passes until the row objective is within 1e-2, 1e-3 and 1e-4 of its minimum, for three metrics of L-BFGS.

    python benchmarks/solver_metrics.py [TABLE ...]

``plain`` scales the gradient by one number, ``blocks`` by the exact curvature of each column (r × r numbers each,
one pass), ``metric`` is what the library uses: a number per column times one r × r matrix. On a panel with skewed
columns, on handwritten digits, on the paper's panel, and on any long tables given. A minute or two without them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits

from onesided import Panel, synthetic
from onesided.objective.rows import RowObjective
from onesided.row_space import column_means
from onesided.solvers.lbfgs import lbfgs
from onesided.solvers.spectral import spectral_start
from onesided.tables import open_table

LEVELS = (1e-2, 1e-3, 1e-4)
MOST_PASSES = 400


def plain(objective: RowObjective, X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    gradient = objective.value_and_gradient(X)[1]
    scale = 0.1 * np.linalg.norm(X) / np.linalg.norm(gradient)
    return lambda g: scale * g


def blocks(objective: RowObjective, X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    values, vectors = np.linalg.eigh(objective.curvature(X))
    size = np.abs(values)
    size = np.maximum(size, np.maximum(1e-3 * size.max(axis=1, keepdims=True), 1e-6 * size.max()))
    return lambda g: np.einsum("jab,jb->ja", vectors, np.einsum("jba,jb->ja", vectors, g) / size)


METRICS = {"plain": plain, "blocks": blocks, "metric": RowObjective.metric}


def skewed(n: int = 20_000, d: int = 2_000, per_row: int = 30) -> Panel:
    rng = np.random.default_rng(0)
    keys = rng.exponential(size=(n, d)) * np.arange(1, d + 1)  # smallest keys first: popularity 1/k
    columns = np.argpartition(keys, per_row, axis=1)[:, :per_row].ravel()
    rows = np.repeat(np.arange(n), per_row)
    values = synthetic.linear_mixture(n, d, 8, rng=1).entries(rows, columns)
    return Panel.from_arrays(rows, columns, values / values.std() + rng.normal(size=len(values)))


def digits() -> Panel:
    images = load_digits().data
    keep = np.argsort(np.random.default_rng(0).random(images.shape), axis=1) < 8
    return Panel.from_dense(np.where(keep, images, np.nan))


def read(path: str) -> Panel:
    table = open_table(path)
    return Panel.from_table(
        table.reader, row=table.row, column=table.column, value=str(table.value), duplicates="mean", non_finite="drop"
    )


def main() -> None:
    truth = synthetic.low_rank_gaussian(10_000, 1_000, 10, rng=0)
    panels = {
        "skewed columns": (skewed(), 10),
        "digits": (digits(), 8),
        "paper, C = 2": (synthetic.sample_bernoulli(truth, 0.002, rng=0), 10),
        "paper, C = 10": (synthetic.sample_bernoulli(truth, 0.01, rng=0), 10),
    }
    panels |= {path: (read(path), 10) for path in sys.argv[1:]}
    print("| panel | diagonal | " + " | ".join(METRICS) + " |\n| --- | --- |" + " --- |" * len(METRICS))
    for name, (panel, rank) in panels.items():
        weights = np.maximum(panel.row_counts, 1) ** -0.5
        for diagonal in ("free", "fit"):
            objective = RowObjective(panel, center=column_means(panel), weights=weights, diagonal=diagonal, ridge=1.0)
            start = spectral_start(objective, rank, np.random.default_rng(0))
            losses = {}
            for kind, metric in METRICS.items():
                seen = [objective.value_and_gradient(start)[0]]

                def counted(
                    X: np.ndarray, objective: RowObjective = objective, seen: list[float] = seen
                ) -> tuple[float, np.ndarray]:
                    loss, gradient = objective.value_and_gradient(X)
                    seen.append(loss)
                    return loss, gradient

                lbfgs(counted, start, metric(objective, start), tol=1e-8, max_passes=MOST_PASSES)
                losses[kind] = np.minimum.accumulate(seen[1:])
            best = min(path[-1] for path in losses.values())
            cells = []
            for path in losses.values():
                reached = [np.flatnonzero(path - best <= level * abs(best)) for level in LEVELS]
                cells.append(" / ".join(str(at[0] + 1) if len(at) else f">{MOST_PASSES}" for at in reached))
            print(f"| {name} | {diagonal} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
