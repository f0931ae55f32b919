"""What a panel says of each column by itself, and of products in general: sums in one pass over rows.

Nothing as long as the panel is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.engines.local import LocalEngine
from onesided.kernels import cpu
from onesided.panel import Panel

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over rows, w their weights and m their numbers of entries, of e = (v − c_j) / scale.

    The first seven are of each column, over the rows that have it. The last three are over all products p of two
    different entries of a row.
    """

    counts: Array  # w
    beside: Array  # w, of rows with another entry
    sums: Array  # we
    squares: Array  # we²
    fourths: Array  # we⁴
    pairs: Array  # w (m − 1)
    shared: Array  # w² (m − 1)
    product_weight: float  # w
    products: float  # wp
    squared_products: float  # wp²

    @property
    def mean_square(self) -> float:
        """Of all entries."""
        return float(self.squares.sum() / (self.counts.sum() or 1.0))

    @property
    def mean_product(self) -> float:
        """Of two different entries of a row."""
        return self.products / (self.product_weight or 1.0)

    @property
    def mean_squared_product(self) -> float:
        """Likewise."""
        return self.squared_products / (self.product_weight or 1.0)

    def in_units_of(self, scale: float) -> Tally:
        """The sums of e / scale."""
        return Tally(
            self.counts,
            self.beside,
            self.sums / scale,
            self.squares / scale**2,
            self.fourths / scale**4,
            self.pairs,
            self.shared,
            self.product_weight,
            self.products / scale**2,
            self.squared_products / scale**4,
        )


def tally(panel: Panel, center: Array | None = None, scale: float = 1.0, *, weights: Array | None = None) -> Tally:
    """The sums of a panel, by its own row weights or others.

    >>> sums = tally(Panel.from_dense([[1.0, 3.0], [np.nan, 2.0]]))
    >>> sums.counts, sums.beside, sums.squares, sums.mean_product
    (array([1., 2.]), array([1., 1.]), array([ 1., 13.]), 3.0)
    """
    center = np.zeros(panel.n_columns) if center is None else center
    sums, products = LocalEngine(panel, weights).sum(
        lambda rows: cpu.column_sums(rows.indptr, rows.columns, rows.values, rows.weights, center, scale)
    )
    return Tally(*np.ascontiguousarray(sums.T), *map(float, products))


def largest_value(panel: Panel) -> float:
    """The largest magnitude among the entries."""
    return max(float(panel.values.max(initial=0.0)), -float(panel.values.min(initial=0.0)))


def column_means(panel: Panel) -> Array:
    """The weighted mean of each column; the mean of all entries for a column never seen.

    Values are taken as differences from the column's first of positive weight, so that the mean of a constant column
    is exact.

    >>> column_means(Panel.from_dense([[1.0, np.nan], [2.0, np.nan]]))
    array([1.5, 1.5])
    """
    engine = LocalEngine(panel)
    seen, first = np.zeros(panel.n_columns, dtype=bool), np.zeros(panel.n_columns)
    for there, values in engine.map(
        lambda rows: cpu.first_values(rows.indptr, rows.columns, rows.values, rows.weights, panel.n_columns)
    ):
        first[there & ~seen] = values[there & ~seen]
        seen |= there
    around = tally(panel, first)
    means = first + around.sums / np.where(seen, around.counts, 1.0)
    return np.where(seen, means, around.counts @ means / (around.counts.sum() or 1.0))
