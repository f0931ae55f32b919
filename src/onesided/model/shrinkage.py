"""How far to pull what groups of entries say of their noise to what all say: one-way analysis of variance.

Groups, columns or rows, with n squared residuals each. Their mean square is pulled to 1, that of all, as by k entries
that have it,

    (k + m · mean e²) / (k + m),   k = (variance of e² within groups) / (variance of its mean between groups).

Both variances are unbiased whatever the distribution of e: heavy tails pull strongly, true differences weakly. Where
the residuals of a group correlate, so do their squares, and n of them are worth m = n²/Σ_ij ρ_ij² independent ones. The
sum is the ``overlap`` of a group; without correlation it is n, and so is m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import namespace

Array = Any  # of numpy or torch

CHUNK = 1 << 20  # groups that are summed at a time


def variance_between(sums: Array, counts: Array, within: float) -> float:
    """The variance of the groups' means beyond what the variance within explains; below zero by chance.

    >>> sums, counts = np.array([2.0, 22.0]), np.array([2.0, 2.0])  # of 0 and 2, and of 10 and 12
    >>> variance_between(sums, counts, within=2.0)
    49.0
    """
    total, n = _at_least_one(counts), float(counts.sum())
    around = (counts * (sums / total - sums.sum() / n) ** 2).sum()
    chance = within * float((counts * (1 / total - 1 / n)).sum())
    spare = n - float((counts**2).sum()) / n
    return (float(around) - chance) / spare if spare > 0 else 0.0


@dataclass(frozen=True, eq=False)
class GroupVariances:
    """Both variances from sums over groups, so that groups may lie apart: sums of all are those of the parts, added.

    Values of a group may correlate, by its overlap, and a group of weight two is two. For mean squares near 1: the
    squares of their differences from 1 are what is added up.

    >>> sums, squares, counts = np.array([2.0, 4.0]), np.array([4.0, 10.0]), np.array([2.0, 2.0])
    >>> whole = GroupVariances.of(sums, squares, counts)
    >>> whole.within, whole.between, whole.level
    (2.0, -0.5, 1.5)
    >>> variance_between(sums, counts, whole.within)
    -0.5
    """

    sums: Any  # on the host: of what is left, what is spare, n, values, n², overlap, overlap/n, first and second moment

    @classmethod
    def of(
        cls, sums: Array, squares: Array, counts: Array, *, overlap: Array | None = None, weights: Array | float = 1.0
    ) -> GroupVariances:
        """Of groups by their sums of values and of squares."""
        whole = np.zeros(9)
        for first in range(0, len(counts), CHUNK):  # there may be very many groups
            here = slice(first, first + CHUNK)
            v, v2, n, shared = (one[here] for one in (sums, squares, counts, counts if overlap is None else overlap))
            w = weights if isinstance(weights, float) else weights[here]
            total = _at_least_one(n)
            off = v / total - 1.0
            spare = (n - shared / total).clip(0.0)
            each = (v2 - v**2 / total, spare, n, v, n**2, shared, shared / total, n * off, n * off**2)
            whole += [float((w * one).sum()) for one in each]
        return cls(whole)

    @property
    def within(self) -> float:
        """The mean variance within groups."""
        left, spare = self.sums[:2]
        return max(float(left), 0.0) / float(spare) if spare > 0 else 0.0

    @property
    def level(self) -> float:
        """The mean of all values."""
        return float(self.sums[3] / self.sums[2])

    @property
    def between(self) -> float:
        """As :func:`variance_between`."""
        _, _, n, _, squared, overlap, share, first, second = self.sums
        mean = self.level - 1.0
        around = second - 2 * mean * first + mean**2 * n
        spare = n - squared / n
        return float((around - self.within * (share - overlap / n)) / spare) if spare > 0 else 0.0


def shrinkage(within: float, between: float, least: float) -> float:
    """k, at least so many entries; infinite where groups do not differ.

    >>> shrinkage(2.0, 0.1, least=5.0), shrinkage(2.0, 1.0, least=5.0), shrinkage(2.0, 0.0, least=5.0)
    (20.0, 5.0, inf)
    """
    return max(within / between, least) if between > 0 else np.inf


def shrunk(sums: Array, counts: Array, k: float, *, overlap: Array | None = None, towards: float = 1.0) -> Array:
    """The groups' mean squares, pulled to that of all.

    >>> shrunk(np.array([0.0, 30.0]), np.array([0.0, 10.0]), 20.0)
    array([1.        , 1.66666667])
    """
    if not np.isfinite(k):
        return namespace(sums).full_like(sums, towards)
    share = counts / namespace(sums).where(counts > 0, counts if overlap is None else overlap, 1.0)  # m / n
    return (k * towards + share * sums) / (k + share * counts)


def _at_least_one(counts: Array) -> Array:
    return namespace(counts).where(counts > 0, counts, 1.0)


def shrunk_means(means: Any, counts: Any, within: float, level: Any = 1.0) -> tuple[Any, Any, float]:
    """Means of columns shrunk to a multiple of ``level``, by an analysis of variance.

    ``within`` is the variance of an entry around its column's mean. Returned are the means, how much of each is its
    own, b_j = N_j ω²/(N_j ω² + within), and ω², the variance of the columns' means beyond chance.

    >>> means, own, between = shrunk_means(np.array([-1.0, 0.0, 1.0]), np.array([2.0, 2.0, 2.0]), 1.0)
    >>> means, own, between
    (array([-0.5,  0. ,  0.5]), array([0.5, 0.5, 0.5]), 0.5)
    """
    weights = counts * level
    level = level * (float(weights @ means) / (float((weights * level).sum()) or 1.0))
    between = max(variance_between(counts * (means - level), counts, within), 0.0)
    total = counts * between + within
    own = counts * between / namespace(counts).where(total > 0, total, 1.0)
    return level + own * (means - level), own, between
