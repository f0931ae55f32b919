"""Ways to minimise the row objective, beside the solver of the library: passes and time until it is nearly minimal.

    python benchmarks/solvers.py movielens goodbooks runway large paper --data DIR [--ranks 10,20] [--repeats 5]

A loss is called within ε when L − L* ≤ ε (L₀ − L*); L₀ is that of the library's start, L* what the library reaches from
there at tol = 10⁻⁹. The stop is where a solver's own rule ends it at tol = 10⁻⁶, and the excess is (L − L*) / (L₀ − L*)
there, below zero where another, lower minimum was found. A level never reached is a dash. Candidates, all but the last
three from the library's start:

``present``     L-BFGS, 8 differences, in the metric of a number per column times one r × r matrix
``memory m``    the same with m differences
``one product`` the same iterates with products against all differences at once
``exact line``  the same with steps to the minimum of the quartic along them; a pass that gave all its coefficients
                would cost as two, and so it is counted, though here it takes three
``blocks``      the exact r × r curvature of each column as metric: a pass, and r² numbers per column
``conjugate``   nonlinear conjugate gradients (Polak–Ribière+) in the present metric, minimising along lines
``Newton``      truncated conjugate gradients on the Hessian, a pass for each product, in the present metric
``Anderson``    mixing of the last 8 preconditioned steps
``anew``        L-BFGS begun again in the metric of where it is, every 30 passes
``ridge``       first with 8 and 2 times the ridge, loosely
``stochastic``  one pass of preconditioned steps over tenths of the rows, then L-BFGS
``tenth``       a tenth of the rows first, from its own start to tol = 10⁻³, then all
``krylov``      a start from two block multiplications in place of the eigensolver's single ones
``single``      in single precision to tol = 10⁻⁵, then in the panel's

Passes count evaluations, those over some of the rows as a share. Seconds are those of the processor, all threads
together, which neighbours disturb least, for everything from the objective on, the start included. Candidates are run
in turn, and medians of the repeats are shown as ratios to ``present``: above one is faster. The first three panels need
DIR; see ``accuracy.py``.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import accuracy
import numba
import numpy as np

from onesided import Panel, synthetic
from onesided.engines.threads import single_blas_thread
from onesided.fitting.moment_solution import moment_objective
from onesided.fitting.setting import Setting
from onesided.fitting.solvers import lbfgs as library
from onesided.fitting.solvers.spectral import balanced_products, damped_counts, spectral_start

Array = np.ndarray
Metric = Callable[[Array], Array]

LEVELS = (1e-2, 1e-3, 1e-4)
MOST_PASSES = 300  # as in the library
TOLERANCE = 1e-6


class Problem:
    """An objective that keeps the time, the passes and the loss of every evaluation."""

    def __init__(self, panel: Panel, rank: int, **options: Any) -> None:
        self.panel, self.rank, self.options = panel, rank, options
        self.mean, self.objective = moment_objective(panel, Setting(0, **options))
        self.begin()

    def begin(self) -> None:
        self.path: list[tuple[float, float, float]] = []
        self.passes, self.began = 0.0, process_time()

    def __call__(self, X: Array) -> tuple[float, Array]:
        loss, gradient = self.objective.value_and_gradient(X)
        self.passes += 1
        self.path.append((process_time() - self.began, self.passes, loss))
        return loss, gradient

    def product(self, X: Array, gradient: Array, D: Array) -> Array:
        """The Hessian's product with D as a difference of gradients: a pass that brings no loss."""
        self.passes += 1
        h = 1e-4 * np.linalg.norm(X) / np.linalg.norm(D)
        return (self.objective.value_and_gradient(X + h * D)[1] - gradient) / h

    def start(self) -> Array:
        return spectral_start(self.objective, self.rank, np.random.default_rng(0))

    def on(self, panel: Panel, X: Array | None = None, *, tol: float) -> Array:
        """The factor that the library finds on another panel of these columns, in the units of this problem."""
        other = Problem(panel, self.rank, **self.options)
        X = other.start() if X is None else X
        X = lbfgs(other, X, tol=tol) * (other.objective.unit / self.objective.unit)
        self.passes += other.passes * panel.n_entries / self.panel.n_entries
        return X


def lbfgs(problem: Problem, X: Array, metric: Metric | None = None, **options: Any) -> Array:
    metric = problem.objective.metric(X) if metric is None else metric
    options = {"resolution": problem.objective.resolution, "max_passes": MOST_PASSES, "tol": TOLERANCE} | options
    return library.lbfgs(problem, X, metric, **options).factor


def memory(size: int) -> Callable[[Problem], object]:
    def run(problem: Problem) -> None:
        usual, library.MEMORY = library.MEMORY, size
        lbfgs(problem, problem.start())
        library.MEMORY = usual

    return run


def one_product(problem: Problem, size: int = 8, exact: bool = False) -> None:
    """L-BFGS on inner products: the s and My in one matrix, read twice in an iteration."""
    X = problem.start()
    metric = problem.objective.metric(X)
    loss, g = problem(X)
    Mg, kept = metric(g), []
    W, SY, YMY = np.zeros((2 * size, X.size), np.float32), np.zeros((size, size)), np.zeros((size, size))
    dots = np.zeros(2 * size)
    while problem.passes < MOST_PASSES:
        a, c, scale = np.zeros(size), np.zeros(size), 1.0
        for at, k in reversed(list(enumerate(kept))):
            a[k] = (dots[k] - SY[k, kept[at + 1 :]] @ a[kept[at + 1 :]]) / SY[k, k]
        if kept:
            scale = SY[kept[-1], kept[-1]] / YMY[kept[-1], kept[-1]]
        for at, k in enumerate(kept):
            c[k] = a[k] - (scale * (dots[size + k] - YMY[k] @ a) + c[kept[:at]] @ SY[kept[:at], k]) / SY[k, k]
        step = -scale * Mg - (np.concatenate([c, -scale * a]).astype(np.float32) @ W).reshape(X.shape)
        slope, length = float(np.vdot(g, step)), 1.0
        if -slope / 2 <= TOLERANCE * abs(loss):
            return
        lower, G = problem(X + step)
        if exact:
            length = best_length(problem, step, loss, slope, lower, float(np.vdot(G, step)))
            lower, G = problem(X + length * step)
        while lower > loss + 1e-4 * length * slope and problem.passes < MOST_PASSES and length > 1e-9:
            length *= min(0.5, max(0.1, -slope * length / (2 * (lower - loss - length * slope))))
            lower, G = problem(X + length * step)
        MG, s, y = metric(G), length * step, G - g
        oldest = kept[0] if len(kept) == size else len(kept)
        if (curvature := float(np.vdot(s, y))) > 0:
            kept = [k for k in kept if k != oldest] + [oldest]
            W[oldest], W[size + oldest] = s.ravel(), (MG - Mg).ravel()
            new = (W @ y.ravel().astype(np.float32)).astype(np.float64)
            SY[:, oldest], YMY[:, oldest], YMY[oldest] = new[:size], new[size:], new[size:]
            SY[oldest, oldest] = curvature
        dots = (W @ G.ravel().astype(np.float32)).astype(np.float64)
        X, loss, g, Mg = X + s, lower, G, MG


def best_length(problem: Problem, step: Array, loss: float, slope: float, lower: float, end: float) -> float:
    """Where the quartic L(X + tD) is least: its last coefficient is that of L(tD), the others follow from both ends."""
    alone, gradient = problem.objective.value_and_gradient(step)
    quartic = (float(np.vdot(gradient, step)) - 2 * alone) / 2
    rise, bend = lower - loss - slope - quartic, end - slope - 4 * quartic
    cubic, square = bend - 2 * rise, 3 * rise - bend
    turns = np.roots([4 * quartic, 3 * cubic, 2 * square, slope])
    lengths = turns.real[(abs(turns.imag) < 1e-9) & (turns.real > 0)]
    losses = [np.polyval([quartic, cubic, square, slope, 0.0], t) for t in lengths]
    return float(lengths[int(np.argmin(losses))]) if len(lengths) else 1.0


def blocks(problem: Problem) -> None:
    X = problem.start()
    problem.passes += 1
    values, vectors = np.linalg.eigh(problem.objective.curvature(X))
    size = np.abs(values)
    size = np.maximum(size, np.maximum(1e-3 * size.max(axis=1, keepdims=True), 1e-6 * size.max()))
    inverse = (vectors / size[:, None, :]) @ vectors.transpose(0, 2, 1)
    lbfgs(problem, X, lambda g: (inverse @ g[:, :, None])[:, :, 0])


def conjugate(problem: Problem) -> None:
    X = problem.start()
    metric = problem.objective.metric(X)
    loss, g = problem(X)
    z, length = metric(g), 1.0
    D = -z
    while problem.passes < MOST_PASSES and np.vdot(g, z) / 2 > 0.1 * TOLERANCE * abs(loss):
        slope = np.vdot(g, D)
        if slope >= 0:
            D, slope = -z, -np.vdot(g, z)
        for turn in range(8):  # minimisers of cubics through both ends
            lower, G = problem(X + length * D)
            end = np.vdot(G, D)
            if lower <= loss + 1e-4 * length * slope and (abs(end) <= 0.3 * abs(slope) or turn > 1):
                break
            bend = slope + end - 3 * (lower - loss) / length
            root = np.sqrt(max(bend**2 - slope * end, 0.0))
            length *= np.clip(1 - (end + root - bend) / (end - slope + 2 * root), 0.1, 5.0) if root > 0 else 2.0
        if not lower < loss:
            return
        Z = metric(G)
        X, D = X + length * D, max(np.vdot(G - g, Z) / np.vdot(g, z), 0.0) * D - Z
        loss, g, z = lower, G, Z


def newton(problem: Problem) -> None:
    X = problem.start()
    loss, g = problem(X)
    first = None
    while problem.passes < MOST_PASSES:
        metric = problem.objective.metric(X)
        R, D = -g, np.zeros_like(X)
        P = Z = metric(R)
        square = np.vdot(R, Z)
        first = square if first is None else first
        if square / 2 <= 0.03 * TOLERANCE * abs(loss):
            return
        enough = square * min(0.1, np.sqrt(square / first))
        for turn in range(40):
            HP = problem.product(X, g, P)
            if (curvature := np.vdot(P, HP)) <= 0:
                D = P if turn == 0 else D
                break
            D, R = D + square / curvature * P, R - square / curvature * HP
            Z = metric(R)
            before, square = square, np.vdot(R, Z)
            if square <= enough:
                break
            P = Z + square / before * P
        slope, length = np.vdot(g, D), 1.0
        lower, G = problem(X + D)
        while lower > loss + 1e-4 * length * slope and length > 1e-6:
            length *= 0.3
            lower, G = problem(X + length * D)
        X, loss, g = X + length * D, lower, G


def anderson(problem: Problem, size: int = 8) -> None:
    X = problem.start()
    metric = problem.objective.metric(X)
    loss, g = problem(X)
    steps: deque[Array] = deque(maxlen=size)
    changes: deque[Array] = deque(maxlen=size)
    move = -metric(g) / 2
    while problem.passes < MOST_PASSES and -np.vdot(g, move) > 0.1 * TOLERANCE * abs(loss):
        step = move
        if changes:
            F = np.stack([change.ravel() for change in changes], axis=1)
            gram = F.T @ F
            share = np.linalg.lstsq(gram + 1e-10 * np.trace(gram) * np.eye(len(gram)), F.T @ move.ravel(), rcond=None)[
                0
            ]
            step = move - sum(a * (s + f) for a, s, f in zip(share, steps, changes, strict=True))
        lower, G = problem(X + step)
        if lower > loss:
            move = move if changes else move / 4
            steps.clear(), changes.clear()
            continue
        new = -metric(G) / 2
        steps.append(step), changes.append(new - move)
        X, loss, g, move = X + step, lower, G, new


def anew(problem: Problem, every: int = 30) -> None:
    X, before = problem.start(), -every
    while problem.passes - before >= every and problem.passes < MOST_PASSES:
        before = problem.passes
        X = lbfgs(problem, X, max_passes=every)


def ridge(problem: Problem) -> None:
    X, usual = problem.start(), problem.objective.ridge
    for times in (8, 2):
        problem.objective.ridge = times * usual
        found = library.lbfgs(problem.objective.value_and_gradient, X, problem.objective.metric(X), tol=1e-3)
        X, problem.passes = found.factor, problem.passes + found.passes
    problem.objective.ridge = usual
    lbfgs(problem, X)


def stochastic(problem: Problem, parts: int = 10, longest: float = 0.3) -> None:
    whole, panel = problem.objective, problem.panel
    X = problem.start()
    metric = whole.metric(X)
    order = np.random.default_rng(0).permutation(panel.n_rows)
    for k, rows in enumerate(np.array_split(order, parts)):
        part = panel.take_rows(np.sort(rows)).centred(problem.mean)
        options = problem.options | {"center": "none"}
        objective = moment_objective(part, Setting(0, **options))[1]
        # The same loss for a part of the rows: units, weights, row effect and ridge are those of the whole.
        unit = whole.unit / objective.unit
        weight = largest_weight(part) / largest_weight(panel)
        objective.row_variance, objective.ridge = whole.row_variance * unit**2, whole.ridge / parts * unit**2 / weight
        gradient = parts * weight * objective.value_and_gradient(X * unit)[1] / unit**3
        X = X - longest * (1 - k / parts) * metric(gradient)
        problem.passes += part.n_entries / panel.n_entries
    lbfgs(problem, X)


def largest_weight(panel: Panel) -> float:
    return float(panel.row_counts[panel.row_counts > 0].min() ** -0.5)


def tenth(problem: Problem) -> None:
    rows = np.random.default_rng(0).random(problem.panel.n_rows) < 0.1
    lbfgs(problem, problem.on(problem.panel.take_rows(rows), tol=1e-3))


def krylov(problem: Problem, more: int = 10, multiplications: int = 2) -> None:
    objective, rng = problem.objective, np.random.default_rng(0)
    K = balanced_products(objective, objective.rough_products)
    parts = [np.linalg.qr(rng.standard_normal((objective.n_columns, problem.rank + more)))[0]]
    images = [K.matmat(parts[0])]
    for _ in range(multiplications):
        basis, new = np.concatenate(parts, axis=1), images[-1]
        for _ in range(2):
            new = new - basis @ (basis.T @ new)
        parts.append(np.linalg.qr(new)[0])
        images.append(K.matmat(parts[-1]))
    basis = np.concatenate(parts, axis=1)
    small = basis.T @ np.concatenate(images, axis=1)
    values, axes = np.linalg.eigh((small + small.T) / 2)
    strength = np.sqrt(np.maximum(values[::-1][: problem.rank], 0.0))
    X = basis @ axes[:, ::-1][:, : problem.rank] * strength / np.sqrt(damped_counts(objective))[:, None]
    loss, gradient = problem(X)
    quartic = (np.vdot(gradient, X) - 2 * loss) / 2
    best = (quartic - loss) / (2 * quartic)
    lbfgs(problem, X * np.sqrt(best) if best > 1e-3 else problem.start())


def single(problem: Problem) -> None:
    panel = problem.panel
    values = panel.values.astype(np.float32)
    lbfgs(problem, problem.on(Panel(panel.indptr, panel.columns, values, panel.n_columns), tol=1e-5))


CANDIDATES: dict[str, Callable[[Problem], object]] = {
    "present": memory(8),
    "memory 4": memory(4),
    "memory 16": memory(16),
    "one product": one_product,
    "exact line": partial(one_product, exact=True),
    "blocks": blocks,
    "conjugate": conjugate,
    "Newton": newton,
    "Anderson": anderson,
    "anew": anew,
    "ridge": ridge,
    "stochastic": stochastic,
    "tenth": tenth,
    "krylov": krylov,
    "single": single,
}


def large(n: int = 138_000, d: int = 27_000, entries: int = 10_000_000) -> Panel:
    """As MovieLens-20M in shape and skew: half stars, rank 30 of falling strength, effects of rows and columns."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(20 + rng.lognormal(3.4, 1.1, n), 2_000)
    rows = np.repeat(np.arange(n), (lengths * entries / lengths.sum()).astype(int))
    popularity = np.cumsum((np.arange(1, d + 1) + 20.0) ** -1.1)
    columns = np.minimum(np.searchsorted(popularity / popularity[-1], rng.random(len(rows))), d - 1)
    rows, columns = np.divmod(np.unique(rows * d + columns), d)
    truth = synthetic.linear_mixture(n, d, 30, rng=1)
    strength = np.arange(1, 31) ** -0.5
    values = synthetic.Truth(truth.row_factors * strength, truth.column_factors).entries(rows, columns)
    values = 3.5 + 0.5 * values / values.std() + 0.8 * rng.normal(size=len(rows))
    values += 0.45 * rng.normal(size=n)[rows] + 0.5 * rng.normal(size=d)[columns]
    values = np.clip(np.round(2 * values) / 2, 0.5, 5.0).astype(np.float32)
    return Panel(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]), columns.astype(np.int32), values, d)


def paper(_: Path) -> Panel:
    truth = synthetic.low_rank_gaussian(10_000, 1_000, 10, rng=0)
    return synthetic.sample_bernoulli(truth, 0.005, rng=0)


PANELS: dict[str, Callable[[Path], Panel]] = {
    "movielens": lambda data: accuracy.movielens(data).to_panel(),
    "goodbooks": lambda data: accuracy.goodbooks(data).to_panel(),
    "runway": lambda data: accuracy.rent_the_runway(data).to_panel(),
    "large": lambda _: large(),
    "paper": paper,
}


def compare(name: str, problem: Problem, repeats: int, chosen: list[str]) -> None:
    """Prints a line for each candidate."""
    start = problem.start()
    first = problem(start)[0]
    found = library.lbfgs(problem, start, problem.objective.metric(start), tol=1e-9, max_passes=3 * MOST_PASSES)
    runs: dict[str, list[tuple[list[tuple[float, float, float]], float, float]]] = {key: [] for key in chosen}
    for _ in range(repeats):
        for key in chosen:
            problem.begin()
            with np.errstate(all="ignore"):
                try:
                    CANDIDATES[key](problem)
                except np.linalg.LinAlgError:  # diverged
                    problem.path = []
            runs[key].append((problem.path, problem.passes, process_time() - problem.began))
    best = found.history[-1]
    usual: list[float] = []
    for key in chosen:
        marks = []
        for level in LEVELS:
            hits = [
                next(((t, n) for t, n, loss in path if loss - best <= level * (first - best)), (np.inf, np.inf))
                for path, _, _ in runs[key]
            ]
            marks.append(np.median(hits, axis=0))
        paths, passes, seconds = zip(*runs[key], strict=True)
        marks.append((np.median(seconds), passes[0]))
        usual = usual or [seconds for seconds, _ in marks]
        cells = []
        for (time, count), base in zip(marks, usual, strict=True):
            ratio = f" ({base / time:.2f})" if np.isfinite(base) else ""
            cells.append(f"{count:.0f}{ratio}" if np.isfinite(time) else "–")
        excess = (paths[0][-1][2] - best) / (first - best) if paths[0] else np.nan
        if not np.isfinite(excess) or excess > 1:
            cells, last = ["–"] * 4, "diverged"
        else:
            last = f"{excess:.0e}"
        if key == "present":
            cells = [f"{count:.0f}, {time:.2f} s" if np.isfinite(time) else "–" for time, count in marks]
        print(f"| {name} | {key} | " + " | ".join(cells) + f" | {last} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("panels", nargs="+", choices=list(PANELS))
    arguments.add_argument("--data", type=Path, default=Path())
    arguments.add_argument("--ranks", default="10,20")
    arguments.add_argument("--centers", default="columns,both")
    arguments.add_argument("--diagonal", default="free", choices=("free", "fit"))
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--candidates", default=",".join(CANDIDATES))
    asked = arguments.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; ", end="")
    print(f"numpy {np.__version__}; numba {numba.__version__}; processor seconds, medians of {asked.repeats}\n")
    print(
        "| panel, rank, center, diagonal | solver | within 1e-2 | 1e-3 | 1e-4 | stop | excess |\n| --- |" + " --- |" * 6
    )
    for name in asked.panels:
        panel = PANELS[name](asked.data)
        for rank in map(int, asked.ranks.split(",")):
            for center in asked.centers.split(","):
                with single_blas_thread():
                    problem = Problem(panel, rank, center=center, diagonal=asked.diagonal)
                    compare(
                        f"{name}, {rank}, {center}, {asked.diagonal}",
                        problem,
                        asked.repeats,
                        asked.candidates.split(","),
                    )


if __name__ == "__main__":
    main()
