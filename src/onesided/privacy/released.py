"""What a private fit gives: arrays that were released, or follow from what was released alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import truncnorm

from onesided.arrays import Array
from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.fitting.setting import Fit
from onesided.fitting.solvers.result import SolveResult
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.pairs.measured import Measured
from onesided.privacy.curator import Curator

LEAST_NOISE = 0.1  # of that of all columns: a column's own, being noisy, may not say less
EARNED = 2.0  # standard errors by which a direction, or the row effect, must stand out from noise
NARROW = 1e-3  # standard errors between the least and the most that a number can be
MOST_COMMON = 0.9  # of the mean square: the row effect is not all there is


@dataclass(frozen=True, eq=False)
class Columns:
    """Noisy sums over each column, in units of half the width of the bounds, and the deviations of their noise."""

    sums: Array  # Σ v
    squares: Array  # Σ v²
    counts: Array  # N
    sum_noise: float
    noise: float  # of squares and counts

    def means(self) -> Array:
        """The mean of each column, shrunk to that of all entries by as much as noise and the few rows warrant."""
        total = max(float(self.counts.sum()), self.noise * float(np.sqrt(len(self.counts))))
        error = self.sum_noise * float(np.sqrt(len(self.counts))) / total
        middle = likely(float(self.sums.sum()) / total + 1.0, error, 2.0) - 1.0
        spread = float(np.clip(self.squares.sum() / total - middle**2, 0.0, 1.0))
        counts = np.maximum(self.counts, 0.0)
        noise = counts * spread + self.sum_noise**2 + (middle * self.noise) ** 2
        return np.clip(middle + shrunk(self.sums - middle * counts, counts, noise), -1.0, 1.0)

    def variances(self, means: Array, typical: float) -> Array:
        """Of each column around a mean, shrunk likewise to a typical one."""
        counts = np.maximum(self.counts, 0.0)
        around = self.squares - 2 * means * self.sums + means**2 * counts
        noise = (
            counts * 2 * typical**2 + self.noise**2 * (1 + means**4 + typical**2) + (2 * means * self.sum_noise) ** 2
        )
        return np.clip(typical + shrunk(around - typical * counts, counts, noise), 0.0, 1.0)


def shrunk(sums: Array, counts: Array, noise: Array) -> Array:
    """δ_j from sums that are N_j δ_j but for noise of known variance, with δ ~ N(0, s²) and s² estimated.

    s² is what the sums leave of N²s² + noise, less two standard errors: where nothing stands out, all are zero.

    >>> shrunk(np.array([20.0, -20.0]), np.array([10.0, 10.0]), np.array([50.0, 50.0])).round(3)
    array([ 1.667, -1.667])
    """
    weight = float(counts @ counts)
    left = float(np.sum(sums**2 - noise)) - 2 * float(np.sqrt(2 * noise @ noise))
    variance = max(left, 0.0) / weight if weight > 0 else 0.0
    scale = counts**2 * variance + noise
    return np.asarray(counts * sums * variance / np.where(scale > 0, scale, 1.0))


def likely(estimate: float, error: float, most: float) -> float:
    """What a number between 0 and ``most`` is likely to be, given a noisy estimate of it: its posterior mean.

    >>> round(likely(0.5, 0.01, 1.0), 6), round(likely(-2.0, 1.0, 1.0), 2), round(likely(-2.0, 1e6, 1.0), 6)
    (0.5, 0.32, 0.5)
    """
    if not error > 0:
        return float(np.clip(estimate, 0.0, most))
    low, high = -estimate / error, (most - estimate) / error
    if low > 30 or high < -30:  # far outside: at the nearer end, but for the noise
        return min(error / max(low, 1.0), most / 2) if low > 0 else max(most - error / max(-high, 1.0), most / 2)
    if high - low < NARROW:  # the density is all but a straight line there, and differences have few digits
        return most / 2 - error * (low + high) / 2 * (high - low) ** 2 / 12
    return float(np.clip(truncnorm.mean(low, high, estimate, error), 0.0, most))


def possible(factor: Array, most: float) -> Array:
    """The factor with no column of more variance than there can be: such as have more are shortened.

    >>> possible(np.array([[0.5, 0.0], [3.0, 4.0]]), 1.0)
    array([[0.5, 0. ],
           [0.6, 0.8]])
    """
    return np.asarray(factor * np.sqrt(most / np.maximum(np.sum(factor**2, axis=1), most))[:, None])


def row_effect(estimate: float, error: float, mean_square: float) -> float:
    """τ², the variance of the row effect, given a noisy estimate of it; none unless it stands out from the noise.

    Nor is any claimed where even the largest possible would not stand out: there an estimate that does is the noise's.

    >>> round(row_effect(0.2, 0.01, 1.0), 6), row_effect(0.015, 0.01, 1.0), row_effect(3.0, 1.0, 1.0)
    (0.2, 0.0, 0.0)
    """
    most = MOST_COMMON * mean_square
    return likely(estimate, error, most) if EARNED * error < min(estimate, most) else 0.0


def assembled(
    curator: Curator, columns: Columns, means: Array, typical: float, row_variance: float, solve: SolveResult
) -> Fit:
    """The row space in the units of the data, from what was released in those of the curator."""
    half, middle = curator.privacy.half, curator.privacy.middle
    factor = principal_axes(possible(solve.factor, 1.0 - row_variance))
    explained = np.sum(factor**2, axis=1) + row_variance
    variances = np.maximum(columns.variances(means, typical), explained)
    left = max(typical - float(explained.mean()), NOISE_FLOOR * typical)
    noise = np.maximum(variances - explained, LEAST_NOISE * left)
    mean = middle + half * means
    space = RowSpace(mean, half * factor, half**2 * noise, half**2 * row_variance)
    seen = np.maximum(np.rint(columns.counts), 1.0)  # a column of the plan counts as seen
    measured = Measured(mean**2 + half**2 * variances, mean, seen, np.zeros(len(mean), dtype=np.int64))
    return Fit(space.measured_on(curator.rows, measured), solve)
