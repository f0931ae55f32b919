"""The numbers experiments report, each defined once.

With T the truth, L an estimate of it, T̂ measured entries on Ω with counts N, sums over ordered pairs (i, j), so that a
pair off the diagonal counts twice:

relative error of T
    ‖L − T‖_F / ‖T‖_F over all d × d entries.
squared error on Ω
    Σ_Ω (T̂_ij − T_ij)² / |Ω|.
relative error on Ω
    ‖P_Ω(T̂ − T)‖_F / ‖T‖_F, in which the pairs outside Ω count nothing in the numerator.
variance over repetitions
    Σ_s (e_s − ē)² / (K − 1) of one pair, with e_s what is estimated in the K ≥ 2 repetitions of sampling one matrix
    that have the pair in Ω: the variance given Ω. With zeros, every repetition counts, and the estimate is 0 in those
    that do not have the pair: the variance of the estimator as it stands. Averaged over pairs.
published error of T
    ‖P_Ω(L − T̂)‖_F / |Ω|, T̂ and Ω those of all the data, training entries among them: what the paper reports on real
    panels. It falls with the size of Ω alone.
error against all data
    ‖P_Ω(L − T̂)‖_F / ‖P_Ω(T̂)‖_F for the same T̂: the same distance, relative.
held-out error of T
    the root of the mean over seeds of Σ (N (L − T̂)² − s²) / Σ (N T̂² − s²), with T̂, N and s² (the variance of a pair's
    products) from rows never used in fitting, over the pairs i ≠ j that at least two of them have: s²/N is what the
    measurement T̂ is off by itself, so that the first sum is an unbiased view of Σ N (L − T)², the second of Σ N T².
    Below zero by chance where L is closer to T than T̂ can tell; a mean below zero is given as zero. The diagonal,
    which any method can measure, does not count.
RMSE of M
    the root mean squared error over entries held out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onesided.arrays import Array
from onesided.pairs.moments import PairMoments, hajek

AtPairs = Callable[[Array, Array], Array]  # the entries of an estimate at pairs of columns

CHUNK = 1 << 20  # pairs looked at together


def relative_error(estimate: Array, T: Array) -> float:
    """The relative error of T.

    >>> relative_error(np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[3.0, 0.0], [0.0, 0.0]])).__round__(4)
    1.3333
    """
    return float(np.linalg.norm(estimate - T) / np.linalg.norm(T))


def errors_on_omega(moments: PairMoments, estimate: Array, target: Array, norm: float) -> dict[str, float]:
    """The relative and the squared error on Ω of per-pair estimates, ``target`` being T there and ``norm`` ‖T‖_F."""
    total = sum_over_omega(moments, (estimate - target) ** 2)
    return {"relative_error": float(np.sqrt(total)) / norm, "squared_error": total / size(moments)}


def sum_over_omega(moments: PairMoments, values: Array) -> float:
    """The sum of per-pair values over Ω, both triangles.

    >>> from onesided.panels.panel import Panel
    >>> sum_over_omega(PairMoments.from_panel(Panel.from_dense([[1.0, 2.0]])), np.array([1.0, 10.0, 100.0]))
    121.0
    """
    return float(_times(*moments.pairs()) @ values)


def size(moments: PairMoments) -> int:
    """|Ω|, both triangles and the diagonal."""
    i, j = moments.pairs()
    return int(moments.n_pairs + np.count_nonzero(i != j))


class Repetitions:
    """Errors of per-pair estimates over repetitions of sampling one matrix, added up pair by pair: memory O(d²).

    >>> from onesided.panels.panel import Panel
    >>> repetitions = Repetitions(np.array([[3.0, 1.0], [1.0, 1.0]]))
    >>> for row in ([1.0, np.nan], [3.0, np.nan]):
    ...     moments = PairMoments.from_panel(Panel.from_dense([row]))
    ...     repetitions.add(moments, hajek(moments))
    >>> repetitions.pairs_twice()  # (0, 0) alone was seen, as 1 and as 9
    (array([0]), array([0]))
    >>> repetitions.variance(), repetitions.squared_error()
    (array([32.]), 20.0)
    """

    def __init__(self, T: Array) -> None:
        self._T, self._done, self._upper = T, 0, np.triu_indices(len(T))
        self._counts, self._sums, self._squares = (np.zeros(T.shape) for _ in range(3))

    def add(self, moments: PairMoments, estimate: Array) -> None:
        """One more repetition: its Ω, and what is estimated there."""
        i, j = moments.pairs()
        error = estimate - self._T[i, j]
        self._done += 1
        self._counts[i, j] += 1
        self._sums[i, j] += error
        self._squares[i, j] += error**2

    def pairs_twice(self) -> tuple[Array, Array]:
        """The pairs i ≤ j that were in Ω in two repetitions or more."""
        i, j = np.nonzero(self._counts >= 2)
        return i, j

    def variance(self) -> Array:
        """The variance over repetitions, at these pairs."""
        at = self.pairs_twice()
        count = self._counts[at]
        return np.asarray((self._squares[at] - self._sums[at] ** 2 / count) / (count - 1))

    def variance_with_zeros(self) -> Array:
        """The same with zeros, at all pairs i ≤ j, row after row."""
        at = self._upper
        absent = self._done - self._counts[at]  # there the error is −T
        total = self._sums[at] - absent * self._T[at]
        squares = self._squares[at] + absent * self._T[at] ** 2
        return np.asarray((squares - total**2 / self._done) / (self._done - 1))

    def squared_error(self) -> float:
        """The squared error on Ω, over all repetitions together."""
        return self._total(self._squares) / self._total(self._counts)

    def omega_share(self) -> float:
        """|Ω| / d², mean over repetitions."""
        return self._total(self._counts) / (self._done * self._T.size)

    def _total(self, values: Array) -> float:
        return float(_times(*self._upper) @ values[self._upper])


def mean_over_pairs(pairs: tuple[Array, Array], values: Array) -> float:
    """The mean of values at pairs i ≤ j, a pair off the diagonal counting twice.

    >>> mean_over_pairs((np.array([0, 0]), np.array([0, 1])), np.array([1.0, 4.0]))
    3.0
    """
    return float(np.average(values, weights=_times(*pairs)))


def errors_against_all_data(moments: PairMoments, at: AtPairs) -> dict[str, float | None]:
    """The published error of T and the error against all data, ``moments`` being those of all the data."""
    i, j = moments.pairs()
    target = hajek(moments)
    off, norm = 0.0, 0.0
    for here in _chunks(len(i)):
        twice = _times(i[here], j[here])
        off += float(twice @ (at(i[here], j[here]) - target[here]) ** 2)
        norm += float(twice @ target[here] ** 2)
    return {
        "published_error": float(np.sqrt(off)) / size(moments),
        "error_against_all_data": float(np.sqrt(off / norm)) if norm > 0 else None,
    }


def held_out_squared_error(moments: PairMoments, at: AtPairs) -> float | None:
    """The square of the held-out error of T for one seed; ``moments`` are those of rows never used, of weight one.

    None where these rows cannot tell: no pair was seen twice, or nothing of T stands out from the noise.
    """
    i, j = moments.pairs()
    again = np.flatnonzero((moments.rows >= 2) & (i != j))
    i, j, count = i[again], j[again], moments.counts[again]
    target = moments.sums[again] / count
    variance = np.maximum(moments.squares[again] - count * target**2, 0.0) / (count - 1)
    off, norm = 0.0, 0.0
    for here in _chunks(len(target)):
        residual = at(i[here], j[here]) - target[here]
        off += float(np.sum(count[here] * residual**2 - variance[here]))
        norm += float(np.sum(count[here] * target[here] ** 2 - variance[here]))
    return off / norm if norm > 0 else None


def rmse(predicted: Array, values: Array) -> float:
    """The RMSE of M.

    >>> rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])).__round__(4)
    1.4142
    """
    return float(np.sqrt(np.mean((np.asarray(predicted) - values) ** 2)))


def _times(i: Array, j: Array) -> Array:
    """How often a pair i ≤ j counts."""
    return np.where(i == j, 1.0, 2.0)


def _chunks(n: int) -> list[slice]:
    return [slice(first, first + CHUNK) for first in range(0, n, CHUNK)]
