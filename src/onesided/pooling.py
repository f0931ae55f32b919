"""How far to pull what groups of entries say of their noise to what all say: one-way analysis of variance.

Groups g, columns or rows, with n_g squared residuals each. Their mean square is pulled to 1, that of all, as by k
entries that have it,

    (k + Σ_g e²) / (k + n_g),   k = (variance of e² within groups) / (variance of its mean between groups).

Both variances are unbiased whatever the distribution of e: heavy tails pull strongly, true differences weakly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def variance_within(sums: Array, squares: Array, counts: Array, weights: Array | float = 1.0) -> float:
    """The mean variance within groups, from sums of values and of their squares; a group of weight two is two.

    >>> variance_within(np.array([2.0, 9.0]), np.array([4.0, 29.0]), np.array([2.0, 3.0]))
    1.3333333333333333
    """
    left = np.sum(weights * (squares - sums**2 / np.where(counts > 0, counts, 1.0)))
    spare = np.sum(weights * np.maximum(counts - 1, 0.0))
    return max(float(left), 0.0) / float(spare) if spare > 0 else 0.0


def variance_between(sums: Array, counts: Array, within: float, weights: Array | float = 1.0) -> float:
    """The variance of the groups' means beyond what the variance within explains; below zero by chance."""
    weights = np.where(counts > 0, weights, 0.0)
    n = float(np.sum(weights * counts))
    means = sums / np.where(counts > 0, counts, 1.0)
    around = np.sum(weights * counts * (means - np.sum(weights * sums) / n) ** 2)
    spare = n - float(np.sum(weights * counts**2)) / n
    return (float(around) - (float(weights.sum()) - 1) * within) / spare if spare > 0 else 0.0


def pull(within: float, between: float, least: float) -> float:
    """k, at least so many entries; infinite where groups do not differ.

    >>> pull(2.0, 0.1, least=5.0), pull(2.0, 1.0, least=5.0), pull(2.0, 0.0, least=5.0)
    (20.0, 5.0, inf)
    """
    return max(within / between, least) if between > 0 else np.inf


def pulled(sums: Array, counts: Array, k: float) -> Array:
    """The groups' mean squares, pulled to 1.

    >>> pulled(np.array([0.0, 30.0]), np.array([0.0, 10.0]), 20.0)
    array([1.        , 1.66666667])
    """
    return (k + sums) / (k + counts) if np.isfinite(k) else np.ones(len(counts))
