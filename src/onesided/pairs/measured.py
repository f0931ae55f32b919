"""What is measured of each column by itself, and which columns rows link."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onesided.arrays import Array, host
from onesided.pairs.column_sums import column_sums, largest_value
from onesided.pairs.linkage import ALONE, linked_parts
from onesided.panels.panel_like import PanelLike


@dataclass(frozen=True, eq=False)
class Measured:
    """What a model knows of its panel without the panel: the diagonal, and which columns can be placed.

    >>> from onesided import Panel
    >>> measured = Measured.from_panel(Panel.from_arrays([0, 0, 1, 1, 2], [0, 1, 1, 2, 3], [1.0, 2.0, 1.0, 1.0, 3.0]))
    >>> measured.diagonal, measured.linked(0, 2), measured.linked(0, 3)
    (array([1. , 2.5, 1. , 9. ]), True, False)
    """

    diagonal: Array  # T̂_jj; zero where the column was never seen
    means: Array  # of the column's values; zero likewise
    counts: Array  # N_jj
    parts: Array  # of linked columns, by number; -1 where a column shares no row with another

    @classmethod
    def from_panel(cls, panel: PanelLike) -> Measured:
        """With the panel's row weights."""
        scale = largest_value(panel) or 1.0
        of_columns = column_sums(panel, scale=scale)
        counts, sums, squares = map(host, (of_columns.counts, of_columns.sums, of_columns.squares))
        total = np.where(counts > 0, counts, 1.0)
        return cls(squares / total * scale**2, sums / total * scale, counts, linked_parts(panel))

    @property
    def supported(self) -> Array:
        """Whether each column shares a row with another."""
        return np.asarray(self.parts != ALONE)

    @property
    def in_parts(self) -> bool:
        """Whether columns fall into parts that no chain of rows links."""
        return bool(self.parts.max(initial=0) > 0)

    def linked(self, i: int, j: int) -> bool:
        """Whether a chain of rows links two columns."""
        return bool(self.parts[i] == self.parts[j] != ALONE)

    def around(self, center: Array) -> Measured:
        """The same of values less a number for each column: T̂_jj − 2 c_j m_j + c_j²."""
        variance = np.maximum(self.diagonal - 2 * center * self.means + center**2, 0.0)
        seen = self.counts > 0
        return replace(self, diagonal=np.where(seen, variance, 0.0), means=np.where(seen, self.means - center, 0.0))

    def without(self, noise_variance: npt.ArrayLike) -> Measured:
        """Less the variance of noise, down to zero."""
        return replace(self, diagonal=np.maximum(self.diagonal - np.asarray(noise_variance), 0.0))
