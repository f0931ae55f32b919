"""Noise on the pair sums and the counts, once; everything after that is free.

**Who is trusted.** The one who fits, with the rows. What leaves is protected: the model, and the noisy pair moments.

**Neighbours.** Panels with one row more or less; or one row replaced.

**What is asked**, with v ∈ [−1, 1] the values of a row of m ≤ k entries:

1. Pairs, 95% of μ²: for every pair i ≤ j of columns, whether or not it was ever seen, Σ_u (vᵢvⱼ, 1). A row contributes
   to m(m + 1)/2 pairs, each with a vector of squared length at most 2: length at most √(k(k + 1)).
2. First moments, 5%: Σ_u v in each column; length at most √k.

**Proof.** Adding or removing a row moves the two answers by that row's vectors, bounded above. Replacing moves them by
at most √2 and 2 times as much: the inner product of two rows' vectors of pairs, Σ (vᵢvⱼv'ᵢv'ⱼ + 1) over pairs that both
have, is not negative. Both are released with Gaussian noise of deviation bound/μ_t; μ² = μ₁² + μ₂². What is fitted
depends on the answers alone. Pairs that nobody has get noise as all others do, so that the pattern is protected. ∎

All d(d + 1)/2 pairs are noised and kept, which takes d² × 64 bytes: at most 5,000 columns.

**How they are used.** With S̃ and Ñ the noisy sums (around means) and counts, σ their noise and ψ the mean square of an
entry, C̃ = S̃/N has variance ψ²/W, W = N²/(N + σ²/ψ²). The factor minimises

    ½ Σ_{i≠j} W_ij (x_iᵀx_j + τ² − C̃_ij)² + ρ Σ_j ‖x_j‖²,

the count-weighted loss where counts outweigh the noise. Counts are shrunk to what they would be if rows chose columns
independently. In units of the largest ψ√(Σ_j W_ij) over i, half the largest eigenvalue that noise alone would have, ρ
is 2 at first, to find the directions that stand out from noise, and 0.75 when these are fitted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread
from onesided.errors import EXPECTED, InputError
from onesided.fitting.setting import Center, Fit
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.fitting.solvers.spectral import top_eigenpairs
from onesided.model.axes import principal_axes
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel
from onesided.privacy.curator import GRID, UNIT, Curator
from onesided.privacy.released import Columns, assembled, likely, row_effect

SHARES = {"pairs": 0.95, "first moments": 0.05}
MOST_COLUMNS = 5_000
MAX_PASSES = 200
FINDING, FITTING = 2.0, 0.75  # ρ, in units of what noise makes of the largest row
FOUND = 1e-3  # of the strongest direction: what is weaker was not found
LEAST = 1e-3  # of the mean: no column is taken to have less weight than this in the metric


def check_columns(n_columns: int) -> None:
    """Refuse more columns than pairs can be kept for."""
    if n_columns > MOST_COLUMNS:
        raise InputError(
            f"the central mechanism noises every pair of columns, and {n_columns:,} columns have "
            f"{n_columns * (n_columns + 1) // 2:,}; it takes at most {MOST_COLUMNS:,} columns: use {EXPECTED}",
            option="mechanism",
            found="central",
            expected=["gradient"],
        )


def release_by_pairs(
    curator: Curator, rank: int, center: Center, rng: np.random.Generator, progress: Progress | None = None
) -> Fit:
    """Fit to noisy pair moments; ``rng`` is for the eigensolver's start."""
    d = curator.rows.n_columns
    sums, counts, first = ask_pairs(curator)
    upper = np.triu_indices(d)
    noise, first_noise = (one.deviation for one in curator.releases)
    own = upper[0] == upper[1]
    columns = Columns(first, sums[own], counts[own], sum_noise=first_noise, noise=noise)
    means = columns.means()
    total = max(float(columns.counts.sum()), noise * float(np.sqrt(d)))
    around = columns.squares - 2 * means * columns.sums + means**2 * columns.counts
    error = noise * float(np.sqrt(d)) / total  # of the mean square, from noise
    typical = max(likely(float(around.sum()) / total, error, 1.0), UNIT)
    product = means[upper[0]] * means[upper[1]]
    sums = sums - counts * product
    off_noise = noise * float(np.sqrt(np.sum(1 + product[~own] ** 2)))  # of the sum over all pairs
    shared = max(float(counts[~own].sum()), off_noise)
    estimate = float(sums[~own].sum()) / shared
    row_variance = row_effect(estimate, off_noise / shared, typical) if center == "both" else 0.0
    with single_blas_thread():
        loss = _PairLoss(d, upper, sums, counts, noise, typical, row_variance)
        solve = loss.minimised(rank, rng, progress)
    return assembled(curator, columns, means, typical, row_variance, solve)


def ask_pairs(curator: Curator) -> tuple[Array, Array, Array]:
    """Both questions: Σ v_i v_j and counts of all pairs i ≤ j, and Σ v of columns."""
    d, most = curator.rows.n_columns, curator.most
    check_columns(d)
    sums, counts = curator.ask(
        "pairs", _pairs, length=float(np.sqrt(most * (most + 1))), opposed=False, share=SHARES["pairs"], unit=UNIT
    )
    first = curator.ask(
        "first moments",
        lambda rows: np.bincount(rows.columns, rows.values, d),
        length=float(np.sqrt(most)),
        opposed=True,
        share=SHARES["first moments"],
        unit=GRID,
    )
    return sums, counts, first


def _pairs(rows: Panel) -> Array:
    """Σ v_i v_j and counts of all pairs i ≤ j, those never seen included."""
    d = rows.n_columns
    moments = PairMoments.from_panel(rows)
    i, j = moments.pairs()
    at = i * d - i * (i - 1) // 2 + (j - i)
    answer = np.zeros((2, d * (d + 1) // 2))
    answer[0, at], answer[1, at] = moments.sums, moments.rows
    return answer


def _likely_counts(d: int, upper: Any, counts: Array, noise: float) -> Array:
    """N̂ of all pairs i ≤ j: noisy counts, shrunk to what they would be if rows chose columns independently."""
    i, j = upper
    off = i != j
    own = np.maximum(np.bincount(i[off], counts[off], d) + np.bincount(j[off], counts[off], d), 0.0)
    total = float(own.sum())
    expected = own[i] * own[j] / total if total > 0 else np.zeros(len(counts))
    gap = (counts - expected)[off]
    variance = max(float(np.mean(gap**2)) - noise**2, 0.0) if len(gap) else 0.0
    return np.maximum(expected + (counts - expected) * (variance / (variance + noise**2)), 0.0)


class _PairLoss:
    """The loss over all pairs, as dense matrices."""

    def __init__(
        self, d: int, upper: Any, sums: Array, counts: Array, noise: float, typical: float, effect: float
    ) -> None:
        known = _likely_counts(d, upper, counts, noise)
        weights = known**2 / (known + (noise / typical) ** 2)
        self.W, self.target = np.zeros((d, d)), np.zeros((d, d))
        for full, half in ((self.W, weights), (self.target, sums / np.where(known > 0, known, 1.0) - effect)):
            full[upper], full.T[upper] = half, half
        np.fill_diagonal(self.W, 0.0)
        self.level = typical * float(np.sqrt(self.W.sum(axis=1).max(initial=0.0)))
        self.ridge = FINDING * self.level

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """Counted from the loss at zero."""
        fitted = X @ X.T
        value = 0.5 * float(np.vdot(self.W, fitted * (fitted - 2 * self.target)))
        return value + self.ridge * float(np.sum(X**2)), 2 * (self.W * (fitted - self.target)) @ X + 2 * self.ridge * X

    def minimised(self, rank: int, rng: np.random.Generator, progress: Progress | None) -> SolveResult:
        """From the top eigenpairs, as if weights were products of the columns' own."""
        own = self.W.sum(axis=1)
        nothing = SolveResult(np.zeros((len(own), rank)), "converged", (), 0)
        if rank == 0 or not own.any():
            return nothing
        root = np.sqrt(own + 0.1 * own.mean())
        K = (self.W * self.target) * (own.sum() / root[:, None] / root)
        values, vectors = top_eigenpairs(aslinearoperator(K), rank, rng, tol=1e-2)
        start = vectors * np.sqrt(np.maximum(values, 1e-6 * abs(values[0]))) / root[:, None]
        found = principal_axes(self._minimised(start, progress).factor)
        strengths = np.sum(found**2, axis=0)
        found = found[:, strengths > FOUND * max(float(strengths[0]), UNIT)]
        if found.shape[1] == 0:
            return nothing
        self.ridge = FITTING * self.level
        solve = self._minimised(found, progress)
        return replace(solve, factor=np.pad(solve.factor, ((0, 0), (0, rank - found.shape[1]))))

    def _minimised(self, start: Array, progress: Progress | None) -> SolveResult:
        own = self.W.sum(axis=1)
        weight = own + LEAST * own.mean()
        strengths, axes = np.linalg.eigh((start * weight[:, None]).T @ start / weight.sum())
        curvature = 2 * (weight[:, None] * np.maximum(strengths, 0.02 * strengths[-1]) + self.ridge)
        return lbfgs(
            self.value_and_gradient,
            start,
            lambda gradient: (gradient @ axes / curvature) @ axes.T,
            tol=1e-6,
            max_passes=MAX_PASSES,
            progress=progress,
        )
