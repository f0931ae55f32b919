"""The arguments that kernels take together, by name; numba's kernels, ``reference`` and those of a GPU share the names.

A bundle holds arrays of whatever the kernels work on: numpy's, or torch's on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Some rows of a panel: row u has the entries from ``starts[u]`` to ``stops[u]`` of ``columns`` and ``values``.

    These two may belong to a larger panel.
    """

    starts: Any
    stops: Any
    columns: Any  # int32
    values: Any
    weights: Any

    @classmethod
    def of(cls, indptr: Any, columns: Any, values: Any, weights: Any) -> Rows:
        """From compressed rows."""
        return cls(indptr[:-1], indptr[1:], columns, values, weights)

    def taken(self, chosen: Any) -> Rows:
        """Some of them, by a slice or by positions."""
        return self._replace(starts=self.starts[chosen], stops=self.stops[chosen], weights=self.weights[chosen])


class Columns(NamedTuple):
    """The columns, and the prior of rows, from which the posterior of a row follows.

    With (v − c_j) / unit_j = y_jᵀz + ε, var ε = 1/γ_j, z ~ N(m, Σ), and (c_j, y_j) given up to a covariance V_j.
    Matrices over (1, z) are lower halves. Columns of loadings and of halves beyond their number are zero.
    """

    unit: Any  # of each column's values
    center: Any  # c_j
    loadings: Any  # y_j
    precision: Any  # γ_j
    information: Any  # γ_j (ỹ ỹᵀ + V_j) with ỹ = (0, y_j); without lines where V = 0
    row_prior: Any  # Σ⁻¹ and, beside the 1, −Σ⁻¹m
    floor: float  # the smallest eigenvalue of Σ⁻¹
    n_loadings: int


class Sums(NamedTuple):
    """The columns' sufficient statistics: sums over the rows that have each, z̃ = (1, z) and e = (v − c_j) / unit_j.

    Lines may be wider than they need be, as kernels have them.
    """

    second: Any  # Σ w E[z̃ z̃ᵀ], lower halves, in the precision of the panel
    first: Any  # Σ w e E[z̃]
    squares: Any  # Σ w e²
    total: Any  # Σ w E[z̃ z̃ᵀ] over all rows

    def taken(self, chosen: slice) -> Sums:
        """Those of some columns."""
        return self._replace(second=self.second[chosen], first=self.first[chosen], squares=self.squares[chosen])


class Prior(NamedTuple):
    """The prior of columns: (t_j c_j, u_j y_j) has precision P, t_j and u_j being a line of ``tightness``."""

    precision: Any  # P, over all coordinates, on the host; zero where one is not free
    tightness: Any  # d × 2
    linear: Any  # the precision of (c_j, y_j) times its prior mean, c_j being counted from where it was

    def taken(self, chosen: slice) -> Prior:
        """That of some columns."""
        return self._replace(tightness=self.tightness[chosen], linear=self.linear[chosen])


class ByColumn(NamedTuple):
    """The entries of rows by column: those of column j from ``starts[j]`` to ``starts[j + 1]``."""

    starts: Any
    entries: Any  # the position of each among all, and its row


class CompressedPairs(NamedTuple):
    """Compressed rows of pairs i ≤ j: rows that have both, Σwp and Σwp², and Σw and Σw² where rows are weighed."""

    pointers: Any
    columns: Any  # int32
    rows: Any
    sums: Any
    squares: Any
    totals: Any = None
    squared: Any = None
