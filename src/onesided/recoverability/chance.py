"""How far directions stand out from chance: eigenvalues of K beside those of entries with random signs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesided.arrays import Array
from onesided.fitting.objective.rows import RowObjective
from onesided.fitting.solvers.spectral import balanced_products, damped_counts, top_eigenpairs
from onesided.pairs.column_sums import column_means
from onesided.panels.panel import Panel

MARGIN = 1.1  # a direction is supported above this many times the eigenvalue of chance
ROUNDING = 1e-12  # of tr K̄: eigenvalues below it are those of rounding errors
SIGN_ENTRIES = 1 << 21  # entries given random signs, over all draws
DRAWS = 3, 19


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The leading eigenvalues of K over that of chance, and tr K̄ over it."""

    strengths: Array
    whole: float

    @classmethod
    def of(cls, panel: Panel, scales: Array, most: int, rng: np.random.Generator) -> Spectrum:
        """The spectrum of a panel's rows in units of their columns' scales, at most so many directions."""
        if not np.any(panel.row_counts > 1):
            return cls(np.zeros(0), 0.0)
        pairs = _paired(panel, scales)
        leading, objective = min(most, pairs.n_columns - 1), RowObjective(pairs)
        values, chance = _leading(objective, leading, rng), 0.0
        if values.any():
            draws = int(np.clip(SIGN_ENTRIES // pairs.n_entries, *DRAWS))
            tops = [float(_leading(RowObjective(_with_random_signs(pairs, rng)), 1, rng)[0]) for _ in range(draws)]
            chance = max(float(np.mean(tops)), max(tops) / MARGIN)
        whole = _whole_variance(objective)
        if chance <= ROUNDING * whole:
            return cls(np.zeros(leading), 0.0)
        return cls(values / chance, whole / chance)

    def rows_needed(self, rank: int, rows: int) -> int | None:
        """How many rows like these a rank needs; None where nothing can be said."""
        strength = float(self.strengths[rank - 1])
        if strength <= 0:
            return None
        times = (_without_noise(MARGIN) / _without_noise(strength)) ** 2
        if strength <= MARGIN:
            times = max(times, (_without_noise(MARGIN) * rank / self.whole) ** 2)
        return int(np.ceil(rows * times))


def _without_noise(strength: float) -> float:
    """h: a direction's eigenvalue without noise, in units of chance, when noise lifts it to this strength."""
    return float(strength + np.sqrt(max(strength**2 - 1.0, 0.0))) / 2


def _paired(panel: Panel, scales: Array) -> Panel:
    """The rows that have pairs and the columns they have, (v − mean_j) / s_j, weights over √n_u."""
    paired = panel.row_counts > 1
    kept = np.repeat(paired, panel.row_counts)
    columns, codes = np.unique(panel.columns[kept], return_inverse=True)
    values = (panel.values[kept] - column_means(panel)[panel.columns[kept]]) / scales[panel.columns[kept]]
    counts = panel.row_counts[paired]
    return Panel(
        np.concatenate([[0], np.cumsum(counts)]),
        codes.astype(np.int32),
        values.astype(panel.values.dtype),
        len(columns),
        row_weights=panel.row_weights[paired] / np.sqrt(counts),
    )


def _with_random_signs(panel: Panel, rng: np.random.Generator) -> Panel:
    values = np.where(rng.integers(2, size=panel.n_entries) == 1, panel.values, -panel.values)
    return Panel(panel.indptr, panel.columns, values, panel.n_columns, row_weights=panel.row_weights)


def _leading(objective: RowObjective, rank: int, rng: np.random.Generator) -> Array:
    """The largest eigenvalues of K, descending, to about 1%; zeros where no two columns have anything in common.

    In units of the values' mean square, which signs do not change.
    """
    K = balanced_products(objective, objective.products)
    if not (K @ rng.standard_normal(K.shape[0])).any():
        return np.zeros(rank)
    values, _ = top_eigenpairs(K, rank, rng, tol=1e-2)
    return values


def _whole_variance(objective: RowObjective) -> float:
    """tr K̄ = Σ_j c_j² T̂_jj / D_jj: what K's eigenvalues would add up to if columns shared all their variance."""
    shares = objective.pair_counts**2 / damped_counts(objective)
    return float(np.sum(shares * objective.squares / objective.counts))
