"""A panel with some of its entries taken away at random, and the chances that they stay.

``"bernoulli"`` keeps each entry with probability ``amount``. ``"fixed"`` keeps ``amount`` entries of each row, or all
of a row that has no more. ``"snowball"`` keeps each entry of a row of m with probability ``amount`` · m / max m: the
paper's C·m/d, at that share of the largest C that gives no row a probability above 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesided.arrays import Array
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel
from onesided.synthetic import keep_entries, sample_snowball


@dataclass(frozen=True, eq=False)
class Thinned:
    """What is left, and for each row the chances that an entry stays, and that both entries of a pair do."""

    panel: Panel
    entry: Array
    pair: Array

    def horvitz_thompson(self, moments: PairMoments, counts: Array) -> Array:
        """Σ_u v_ui v_uj / π_u / N_ij on the Ω of what is left, ``counts`` being N of the whole panel there.

        π_u is the chance of a row's pair, or of its entry on the diagonal: what stays speaks for what does not, so
        that the mean over all ways to thin is the T̂ of the whole panel.

        >>> left = thinned(Panel.from_dense([[1.0, 2.0, 3.0]]), "fixed", 2, 0)
        >>> left.panel.to_dense()
        array([[nan,  2.,  3.]])
        >>> left.horvitz_thompson(PairMoments.from_panel(left.panel), np.ones(3))  # 4 · 3/2, 6 · 3, 9 · 3/2
        array([ 6. , 18. , 13.5])
        """
        i, j = moments.pairs()
        sums = PairMoments.from_panel(self.panel.with_row_weights(1 / self.pair)).sums.copy()
        rows = np.repeat(np.arange(self.panel.n_rows), self.panel.row_counts)
        squares = np.asarray(self.panel.values, dtype=np.float64) ** 2 / self.entry[rows]
        sums[i == j] = np.bincount(self.panel.columns, squares, self.panel.n_columns)[i[i == j]]
        return np.asarray(sums / counts)


def thinned(panel: Panel, sampler: str, amount: float, seed: int) -> Thinned:
    """Some entries of a panel.

    >>> whole = Panel.from_dense([[1.0, 2.0, 3.0], [4.0, np.nan, np.nan]])
    >>> left = thinned(whole, "fixed", 2, 0)
    >>> left.panel.row_counts, left.entry.round(2), left.pair.round(2)
    (array([2, 1]), array([0.67, 1.  ]), array([0.33, 1.  ]))
    """
    length, rng = panel.row_counts, np.random.default_rng(seed)
    if sampler == "snowball":
        most = int(length.max())
        entry = np.where(length > 0, amount * length / most, 1.0)
        return Thinned(sample_snowball(panel, amount * panel.n_columns / most, rng=rng), entry, entry**2)
    if sampler == "fixed":
        rows = np.repeat(np.arange(panel.n_rows), length)
        order = np.lexsort((rng.random(panel.n_entries), rows))  # each row's entries, shuffled
        chosen = np.zeros(panel.n_entries, dtype=bool)
        chosen[order[np.arange(panel.n_entries) - panel.indptr[rows] < amount]] = True
        kept = np.minimum(length, amount)
        entry, pair = kept / np.maximum(length, 1), kept * (kept - 1) / np.maximum(length * (length - 1), 1)
        # A row without entries, or without pairs, has no chance that matters.
        return Thinned(keep_entries(panel, chosen), np.where(length > 0, entry, 1.0), np.where(length > 1, pair, 1.0))
    entry = np.full(panel.n_rows, float(amount))
    return Thinned(keep_entries(panel, rng.random(panel.n_entries) < amount), entry, entry**2)
