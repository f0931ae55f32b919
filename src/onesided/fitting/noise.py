"""The rows of a refinement before its first pass, and the noise of columns: their own as far as they tell it.

ψ_j is the mean squared residual of column j, shrunk to that of all columns (in units of their scales) as by 18 entries,
and 1.8 for each direction in which loadings are known. Columns of heavy tails say less than their entries suggest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array, namespace
from onesided.engines.engine import engine_for
from onesided.fitting.scales import AS_THEY_ARE, Scaling, excesses
from onesided.model.shrinkage import shrinkage, shrunk, shrunk_means
from onesided.pairs.column_sums import column_sums
from onesided.panels.panel_like import PanelLike

NOISE_ENTRIES, NOISE_ENTRIES_PER_DIRECTION = 18.0, 1.8  # what the mean noise counts for beside a column's own


class Rows:
    """The rows that count, and what can be said of them before the first pass.

    Values are measured in units of their columns' scales, and these in ``unit``, the root mean square around the means,
    so that single precision can hold sums. What is of columns lies where passes run.
    """

    def __init__(self, panel: PanelLike, mean: Array, scaling: Scaling = AS_THEY_ARE) -> None:
        self.engine = engine_for(panel)
        array, s = self.engine.array, np.ones(panel.n_columns) if scaling.scales is None else scaling.scales
        unit = (self.engine.largest_value() or 1.0) / float(s.min())
        own = column_sums(self.engine, array(mean), array(unit * s))
        size = float(np.sqrt(own.mean_square))
        self.unit, self.counts, self.placed = unit * size, own.counts, own.beside > 0
        self.seen = namespace(own.counts).where(own.counts > 0)[0]
        self.units = array(self.unit * s)
        self.one_unit = scaling.one_unit
        self.common = self.units if self.one_unit or scaling.common is None else array(self.unit * scaling.common)
        self.within = own.mean_square_within / size**2 if size > 0 else 1.0
        if size > 0:
            own = own.in_units_of(size)
            self.excess, self.typical = excesses(own.squares, own.fourths, own.counts)

    def expected_means(self, mean: Any) -> tuple[Any, Any]:
        """Column means shrunk to their level, and what variance is left of them, over s_j²."""
        means, own, between = shrunk_means(mean / self.units, self.counts, self.within, self.common / self.units)
        return self.units * means, between * (1 - own)

    def noise(self, residual: Any, directions: float | None) -> Any:
        """ψ_j from the columns' sums of expected squared residuals, in units of ``units``.

        They are pulled to their mean; with no factor (``directions`` None) and one unit for all columns, as far as they
        do not differ by more than chance.
        """
        level = float(residual.sum() / self.counts.sum())
        if not level > 0:
            return namespace(residual).zeros_like(residual)
        k = NOISE_ENTRIES + NOISE_ENTRIES_PER_DIRECTION * (directions or 0.0)
        if directions is None and self.one_unit:
            k = shrinkage(self.typical, self._between(residual / level), k)
        # s_j follows what is peculiar to a column of heavy tails, unless there is one unit: else its entries tell less.
        overlap = None if self.one_unit else self.counts * self.excess / self.typical
        return level * shrunk(residual / level, self.counts, k, overlap=overlap)

    def _between(self, relative: Any) -> float:
        """The variance of mean squares between columns beyond chance, given their sums in units of the mean of all."""
        n = namespace(relative).where(self.counts > 0, self.counts, 1.0)
        weight = self.counts * self.typical / self.excess
        total = float(weight.sum())
        off = relative / n - 1.0
        around = float((weight * (off - float((weight * off).sum()) / total) ** 2).sum())
        chance = float((weight * self.excess / n * (1 - weight / total)).sum())
        spare = total - float((weight**2).sum()) / total
        return (around - chance) / spare if spare > 0 else 0.0
