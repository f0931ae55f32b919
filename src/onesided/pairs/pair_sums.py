"""Sums over the rows that have both columns of a pair, and the standard error of their mean product.

T̂_ij is the mean of N products out of the n that T = MᵀM/n averages, a sample from a finite population, so its standard
error as an estimate of these very rows' T_ij is the root of

    s² (1/N − 1/n),    s² = (N s²_ij + 4 κ T̂_ii T̂_jj) / (N − 1 + 4),    s²_ij the mean squared deviation of the products

The pooled variance κ T̂_ii T̂_jj counts for four rows; κ, one for the diagonal and one off it, is fitted to all pairs
seen at least twice. A pair seen once has the pooled variance alone. N is the effective count.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread

POOLED_ROWS = 4.0  # how many rows' worth of evidence the pooled variance stands for


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over rows, w their weights and p the product of their two entries: one number for each pair.

    >>> sums = PairSums(*np.array([[2.0], [2.0], [2.0], [5.0], [13.0]]))  # the products are 2 and 3
    >>> sums.mean, sums.deviance, sums.standard_errors(pooled=np.zeros(1), n_rows=10).round(3)
    (array([2.5]), array([0.5]), array([0.2]))
    """

    rows: Array  # their number
    weights: Array  # w
    squared_weights: Array  # w²
    products: Array  # wp
    squares: Array  # wp²

    def where(self, chosen: Array) -> PairSums:
        """The sums of some of the pairs."""
        return PairSums(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @cached_property
    def effective_count(self) -> Array:
        """(Σw)² / Σw²: how many equally weighted rows would be as informative; zero where no row has the pair."""
        return np.asarray(self.weights**2 / np.where(self.rows > 0, self.squared_weights, 1.0))

    @cached_property
    def mean(self) -> Array:
        """T̂; zero where no row has the pair."""
        return np.asarray(self.products / np.where(self.rows > 0, self.weights, 1.0))

    @cached_property
    def mean_square(self) -> Array:
        """The mean of p²; likewise."""
        return np.asarray(self.squares / np.where(self.rows > 0, self.weights, 1.0))

    @cached_property
    def freedom(self) -> Array:
        """Degrees of freedom of the variance."""
        return np.where(self.rows > 1, np.maximum(self.effective_count - 1, 0.0), 0.0)

    @cached_property
    def deviance(self) -> Array:
        """Squared deviations from the mean, added up; zero without a degree of freedom."""
        squared_deviation = np.maximum(self.mean_square - self.mean**2, 0.0)
        return np.where(self.freedom > 0, self.effective_count * squared_deviation, 0.0)

    def pooled_ratio(self, scale: Array) -> float:
        """κ = Σ deviance / Σ freedom · scale, where the scale of a pair is T̂_iiT̂_jj.

        Where no pair was seen twice, mean squares bound the variances from above.
        """
        with single_blas_thread():
            fitted = float(self.freedom @ scale)
        if fitted > 0:
            return float(self.deviance.sum()) / fitted
        total = float(scale.sum())
        return float(self.mean_square.sum()) / total if total > 0 else 0.0

    def standard_errors(self, pooled: Array, n_rows: int) -> Array:
        """Of the mean as an estimate for all rows, given the pooled variance; infinite where no row has the pair."""
        variance = (self.deviance + POOLED_ROWS * pooled) / (self.freedom + POOLED_ROWS)
        seen = self.rows > 0
        count = np.where(seen, self.effective_count, 1.0)
        return np.where(seen, np.sqrt(variance * np.maximum(1 / count - 1 / max(n_rows, 1), 0)), np.inf)
