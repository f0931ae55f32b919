"""What a panel says of each column by itself, and of products in general: sums in one pass over rows.

Nothing as long as the panel is held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import Engine, engine_for
from onesided.panels.panel_like import PanelLike


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Sums over rows, w their weights and m their numbers of entries, of e = (v − c_j) / s_j.

    The first seven are of each column, over the rows that have it, and lie where passes run. The last three are over
    all products p of two different entries of a row.
    """

    counts: Any  # w
    beside: Any  # w, of rows with another entry
    sums: Any  # we
    squares: Any  # we²
    fourths: Any  # we⁴
    pairs: Any  # w (m − 1)
    shared: Any  # w² (m − 1)
    product_weight: float  # w
    products: float  # wp
    squared_products: float  # wp²

    @property
    def mean_square(self) -> float:
        """Of all entries."""
        return float(self.squares.sum() / (self.counts.sum() or 1.0))

    @property
    def mean_square_within(self) -> float:
        """Of entries around columns' means, of which each takes one degree of freedom; of all where none is left."""
        freedom = float(self.counts.sum()) - float((self.counts > 0).sum())
        return float(self.squares.sum()) / freedom if freedom > 0 else self.mean_square

    @property
    def mean_product(self) -> float:
        """Of two different entries of a row."""
        return self.products / (self.product_weight or 1.0)

    @property
    def mean_squared_product(self) -> float:
        """Likewise."""
        return self.squared_products / (self.product_weight or 1.0)

    def in_units_of(self, scale: float) -> ColumnSums:
        """The sums of e / scale."""
        return replace(
            self,
            sums=self.sums / scale,
            squares=self.squares / scale**2,
            fourths=self.fourths / scale**4,
            products=self.products / scale**2,
            squared_products=self.squared_products / scale**4,
        )


def column_sums(
    rows: PanelLike | Engine, center: Any = None, scale: Any = 1.0, *, weights: Array | None = None
) -> ColumnSums:
    """The sums of a panel, by its own row weights or others; or of the rows of an engine, which are where it is.

    ``scale`` is one number, or one for each column.

    >>> from onesided.panels.panel import Panel
    >>> sums = column_sums(Panel.from_dense([[1.0, 3.0], [np.nan, 2.0]]))
    >>> sums.counts, sums.beside, sums.squares, sums.mean_product
    (array([1., 2.]), array([1., 1.]), array([ 1., 13.]), 3.0)
    """
    engine = engine_for(rows, weights) if isinstance(rows, PanelLike) else rows
    zero = engine.array(np.zeros(engine.n_columns))
    center, scale = zero if center is None else center, zero + scale
    sums, products = engine.column_sums(center, scale)
    return ColumnSums(*sums, *map(float, products))


def largest_value(panel: PanelLike) -> float:
    """The largest magnitude among the entries."""
    return engine_for(panel).largest_value()


def column_means(panel: PanelLike) -> Any:
    """The weighted mean of each column; the mean of all entries for a column never seen.

    >>> from onesided.panels.panel import Panel
    >>> column_means(Panel.from_dense([[1.0, np.nan], [2.0, np.nan]]))
    array([1.5, 1.5])
    """
    return engine_for(panel).column_means()
