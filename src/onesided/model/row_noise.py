"""How rows differ in noise: some are steadier than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesided.arrays import Array
from onesided.model.shrinkage import shrunk

LEAST_LEVEL = 0.8  # below it, variances are at the noise's floor, not fitted too closely


@dataclass(frozen=True)
class RowNoise:
    """How rows differ in noise.

    ``shrinkage`` is k, in entries: infinite where one row is as steady as another. ``level`` is the mean of e²/s² over
    the rows that the model was fitted to.

    >>> sums = np.array([5.0, 30.0])  # of e²/s² over ten entries each: a steady row, and one that is not
    >>> RowNoise(shrinkage=10.0).scales(sums, np.full(2, 10), overlap=np.full(2, 10))
    array([0.75, 2.  ])
    """

    shrinkage: float = np.inf
    level: float = 1.0

    def scales(self, sums: Array, counts: Array, overlap: Array) -> Array:
        """What the variances of rows are multiplied with, given their sums of e²/s²."""
        fitted = float(np.clip(self.level, LEAST_LEVEL, 1.0))
        return np.asarray(shrunk(sums / fitted, counts, self.shrinkage, overlap=overlap, towards=max(self.level, 1.0)))


ALIKE = RowNoise()  # one row is as steady as another
