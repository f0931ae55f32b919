"""The numbers experiments report, each defined once.

With T the truth, L an estimate of it, T̂ measured entries on Ω with counts N, sums over ordered pairs (i, j), so that a
pair off the diagonal counts twice:

relative error of T
    ‖L − T‖_F / ‖T‖_F over all d × d entries.
squared error on Ω
    Σ_Ω (T̂_ij − T_ij)² / |Ω|.
relative error on Ω
    ‖P_Ω(T̂ − T)‖_F / ‖T‖_F, in which the pairs outside Ω count nothing in the numerator.
published error of T
    ‖P_Ω(L − T̂)‖_F / |Ω|, T̂ and Ω those of all the data, training entries among them: what the paper reports on real
    panels. It falls with the size of Ω alone.
error against all data
    ‖P_Ω(L − T̂)‖_F / ‖P_Ω(T̂)‖_F for the same T̂: the same distance, relative.
held-out error of T
    the root of the mean over seeds of Σ_{N ≥ 2} (N (L − T̂)² − s²) / Σ_{N ≥ 2} (N T̂² − s²), with T̂, N and s² (the
    variance of a pair's products) from rows never used in fitting: s²/N is what the measurement T̂ is off by itself, so
    that the first sum is an unbiased view of Σ N (L − T)², the second of Σ N T². Below zero by chance where L is closer
    to T than T̂ can tell; a mean below zero is given as zero.
RMSE of M
    the root mean squared error over entries held out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.moments import PairMoments, hajek

Array = npt.NDArray[Any]
AtPairs = Callable[[Array, Array], Array]  # the entries of an estimate at pairs of columns

CHUNK = 1 << 20  # pairs looked at together


def relative_error(estimate: Array, T: Array) -> float:
    """The relative error of T.

    >>> relative_error(np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[3.0, 0.0], [0.0, 0.0]])).__round__(4)
    1.3333
    """
    return float(np.linalg.norm(estimate - T) / np.linalg.norm(T))


def squared_error_on_omega(moments: PairMoments, estimate: Array, T: Array) -> float:
    """The squared error on Ω of per-pair estimates."""
    return _sum_over_omega(moments, estimate, T) / size(moments)


def relative_error_on_omega(moments: PairMoments, estimate: Array, T: Array) -> float:
    """The relative error on Ω of per-pair estimates."""
    return float(np.sqrt(_sum_over_omega(moments, estimate, T)) / np.linalg.norm(T))


def size(moments: PairMoments) -> int:
    """|Ω|, both triangles and the diagonal."""
    i, j = moments.pairs()
    return int(moments.n_pairs + np.count_nonzero(i != j))


def errors_against_all_data(moments: PairMoments, at: AtPairs) -> dict[str, float]:
    """The published error of T and the error against all data, ``moments`` being those of all the data."""
    i, j = moments.pairs()
    target = hajek(moments)
    off, norm = 0.0, 0.0
    for here in _chunks(len(i)):
        twice = np.where(i[here] == j[here], 1.0, 2.0)
        off += float(twice @ (at(i[here], j[here]) - target[here]) ** 2)
        norm += float(twice @ target[here] ** 2)
    return {
        "published_error": float(np.sqrt(off)) / size(moments),
        "error_against_all_data": float(np.sqrt(off / norm)) if norm > 0 else 0.0,
    }


def held_out_squared_error(moments: PairMoments, at: AtPairs) -> float:
    """The square of the held-out error of T for one seed; ``moments`` are those of rows never used, of weight one."""
    again = moments.rows >= 2
    i, j = (one[again] for one in moments.pairs())
    count = moments.counts[again]
    target = hajek(moments)[again]
    variance = np.maximum(moments.squares[again] - count * target**2, 0.0) / (count - 1)
    off, norm = 0.0, 0.0
    for here in _chunks(len(target)):
        twice = np.where(i[here] == j[here], 1.0, 2.0)
        residual = at(i[here], j[here]) - target[here]
        off += float(twice @ (count[here] * residual**2 - variance[here]))
        norm += float(twice @ (count[here] * target[here] ** 2 - variance[here]))
    return off / norm if norm > 0 else 0.0


def rmse(predicted: Array, values: Array) -> float:
    """The RMSE of M.

    >>> rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])).__round__(4)
    1.4142
    """
    return float(np.sqrt(np.mean((np.asarray(predicted) - values) ** 2)))


def _sum_over_omega(moments: PairMoments, estimate: Array, T: Array) -> float:
    i, j = moments.pairs()
    return float(np.where(i == j, 1.0, 2.0) @ (estimate - T[i, j]) ** 2)


def _chunks(n: int) -> list[slice]:
    return [slice(first, first + CHUNK) for first in range(0, n, CHUNK)]
