"""The leading components: which columns are at their two ends, and where columns lie in the first two.

Component k is the k-th column of the factor, X_k; its eigenvalue is λ_k = ‖X_k‖². The loading x_jk says by how much the
value in column j moves, in its own units, when a row moves one standard deviation along the component. Which end is
called high is arbitrary. A column's variance is that of :mod:`onesided.model.similarity` and of the row effect, so that
shares add up to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.column_names import ColumnNames
from onesided.model.row_space import RowSpace
from onesided.report.formatting import mentioned

LEAST_SHARE = 1e-3  # of the eigenvalues' sum: a component below is not worth a line
ENOUGH_ROWS = 20.0  # a column seen in fewer, and less often than half of the columns, is not named
AT_AN_END = 5


@dataclass(frozen=True, eq=False)
class Component:
    """One direction, and the columns at its ends, strongest first."""

    eigenvalue: float
    share: float  # of the variance of all columns
    high: Array  # positions of columns
    low: Array


@dataclass(frozen=True, eq=False)
class Components:
    """The components of a factor that matter.

    >>> from onesided import OneSidedCompletion
    >>> model = OneSidedCompletion(1, center="none", diagonal="free").fit(np.outer([1.0, 2.0, -1.0], [1.0, -1.0, 3.0]))
    >>> found = Components.of(model.row_space_)
    >>> found.leading[0].high.size + found.leading[0].low.size
    3
    """

    factor: Array
    eigenvalues: Array  # of all components
    variance: float  # of all columns that were seen, added up: τ² + ‖x_j‖² + tr V_j + ψ_j
    row_share: float  # of it, in row effects
    noise_share: float  # of it, of single entries
    spread_share: float  # of it, of what is not known of the loadings
    leading: tuple[Component, ...]
    named: Array  # positions of columns seen often enough to be named, the most seen first
    fewest: float  # rows that a column must have for that

    @classmethod
    def of(cls, space: RowSpace) -> Components:
        """Of a fitted row space."""
        factor, counts = np.asarray(space.factor, dtype=np.float64), space.known_of_columns.counts
        eigenvalues = np.sum(factor**2, axis=0)
        seen = counts > 0
        noise = float(space.noise_variance[seen].sum())
        rows = float(space.row_variance) * int(np.count_nonzero(seen))
        spread = float(space.spread_traces[seen].sum())
        total = noise + rows + spread + float(np.sum(factor[seen] ** 2))
        fewest = min(ENOUGH_ROWS, float(np.median(counts[seen]))) if seen.any() else 0.0
        named = np.flatnonzero(seen & space.known_of_columns.supported & (counts >= fewest))
        named = named[np.argsort(-counts[named], kind="stable")]
        matter = int(np.count_nonzero(eigenvalues > LEAST_SHARE * eigenvalues.sum()))
        leading = tuple(
            Component(
                float(eigenvalues[k]),
                float(eigenvalues[k]) / total if total > 0 else 0.0,
                _end(factor[:, k], named),
                _end(-factor[:, k], named),
            )
            for k in range(matter)
        )
        shares = (rows / total, noise / total, spread / total) if total > 0 else (0.0, 0.0, 0.0)
        return cls(factor, eigenvalues, total, *shares, leading, named, fewest)

    @property
    def number(self) -> int:
        """How many matter."""
        return len(self.leading)

    @property
    def factor_share(self) -> float:
        """Of the variance, in all components together."""
        return float(self.eigenvalues.sum()) / self.variance if self.variance > 0 else 0.0

    def to_dict(self, names: ColumnNames) -> list[dict[str, Any]]:
        """The components with their columns, as JSON takes them."""

        def end(k: int, positions: Array) -> list[dict[str, Any]]:
            return [mentioned(names, int(j)) | {"loading": float(self.factor[j, k])} for j in positions]

        return [
            {
                "eigenvalue": component.eigenvalue,
                "share": component.share,
                "high": end(k, component.high),
                "low": end(k, component.low),
            }
            for k, component in enumerate(self.leading)
        ]


def _end(loadings: Array, named: Array) -> Array:
    """The columns with the largest loadings above zero: none of them is at the other end too."""
    there = named[loadings[named] > 0]
    return np.asarray(there[np.argsort(-loadings[there], kind="stable")][:AT_AN_END])
