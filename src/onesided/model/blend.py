"""How many rows the model counts for beside a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesided.arrays import Array


@dataclass(frozen=True)
class Blend:
    """How many rows the model counts for beside a measurement.

    >>> blend = Blend(pairs=30.0)
    >>> 90 / (90 + blend.pairs), 90 / (90 + blend.means)  # what a measurement from 90 rows weighs: of a pair, of a mean
    (0.75, 0.0)
    """

    pairs: float = np.inf  # κ
    means: float = np.inf  # κ'


NO_BLEND = Blend()  # the model alone


def blended_means(mean: Array, measured: Array, counts: Array, kappa: float) -> Array:
    """m, from the model's means and the measured ones with their counts.

    >>> blended_means(np.array([1.0, 1.0]), np.array([3.0, 0.0]), np.array([10.0, 0.0]), 10.0)
    array([2., 1.])
    """
    return mean + (measured - mean) * (counts / (counts + kappa))
