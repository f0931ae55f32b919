"""The paper's loss over Ω, with the weighted projection and the incoherence penalty.

    ℓ(X) = 1/|Ω| · ½ ⟨P_Ω(XXᵀ − T̂), XXᵀ − T̂⟩ + λ/d · R(X)
    ∇ℓ(X) = 2/|Ω| · P_Ω(XXᵀ − T̂) X + λ/d · ∇R(X)

P_Ω keeps the observed pairs and weighs the diagonal by q, once, as the paper's first-order condition has it.
With p known, q = 1 − (1 − p²)ⁿ; otherwise q is the share of off-diagonal pairs that were observed. The means,
over |Ω| (both triangles and the diagonal counted) and over d, are what the paper's step sizes and λ belong to:
the sums of its equation (5), taken as printed with those settings, leave errors twice as large.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.engines.placement import Place
from onesided.engines.threads import cut, in_order
from onesided.fitting.objective.penalties import incoherence
from onesided.kernels import pairs
from onesided.pairs.moments import PairMoments, hajek

BLOCK_PAIRS = 1 << 18
PAIRS_OF_A_COLUMN = 16  # at least, in a block: its gradient has a line for every column


def pair_blocks(indptr: Array) -> list[tuple[int, Array]]:
    """Lines of pairs in blocks, each with its first column and its part of ``indptr``.

    >>> pair_blocks(np.array([0, 2, 3]))
    [(0, array([0, 2, 3]))]
    """
    size = max(BLOCK_PAIRS, PAIRS_OF_A_COLUMN * (len(indptr) - 1))
    return [(first, indptr[first : last + 1]) for first, last in cut(indptr, size)]


class PairObjective:
    """ℓ(X) of the paper for given pair moments, on this machine's processor or at a place of its own.

    >>> from onesided.panels.panel import Panel
    >>> objective = PairObjective(PairMoments.from_panel(Panel.from_dense([[2.0, 1.0]])))
    >>> objective.value_and_gradient(np.array([[2.0], [1.0]]))
    (0.0, array([[0.],
           [0.]]))
    """

    def __init__(
        self,
        moments: PairMoments,
        *,
        penalty: float = 0.0,
        alpha: float = 0.0,
        diagonal_weight: float | None = None,
        place: Place | None = None,
    ) -> None:
        d = moments.n_columns
        off = moments.n_pairs - int(np.count_nonzero(np.diff(moments.indptr)))  # a column seen is a pair with itself
        self.diagonal_weight = 2 * off / (d * (d - 1)) if diagonal_weight is None and d > 1 else diagonal_weight or 0.0
        self.size = max(1, moments.n_pairs + off)
        self.penalty, self.alpha = penalty, alpha
        self._columns, self._target = moments.columns, hajek(moments)
        self._blocks = pair_blocks(moments.indptr)
        there = None if place is None else place.pair_pass(moments.indptr, self._columns, self._target)
        self._pass = there or self._pass_here

    def value_and_gradient(self, X: Any) -> tuple[float, Any]:
        """ℓ(X) and ∇ℓ(X)."""
        loss, gradient = self._pass(self.diagonal_weight, X)
        value, slope = incoherence(X, self.alpha)
        strength = self.penalty / len(X)
        return loss / self.size + strength * value, gradient / self.size + strength * slope

    def _pass_here(self, diagonal_weight: float, X: Array) -> tuple[float, Array]:
        X = np.ascontiguousarray(X, dtype=np.float64)
        wide = pairs.padded(X)
        loss, total = 0.0, np.zeros(wide.shape)
        given = (self._columns, self._target, diagonal_weight, wide)
        for block_loss, block_gradient in in_order(lambda block: pairs.pair_pass(*block, *given), self._blocks):
            loss += block_loss
            total += block_gradient
        return loss, total[:, : X.shape[1]]
