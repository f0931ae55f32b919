"""The columns' units: how large the values of each column are, as far as that can be told.

Columns may be in units of their own (people beside percentages) or in a common one (stars). Both are the same model,
with other scales s_j.

**Units of their own.** Of column j, with N_j entries of variance S_j² and excess e_j (the kurtosis less one, the
relative variance of its squares), log S_j² is

    y_j = log S_j² − ψ(ν_j/2) + log(ν_j/2),   ν_j = 2(N_j − 1)/e_j,   known up to v_j = ψ'(ν_j/2),

ψ the digamma function. Over columns y_j is normal around g with variance σ² + v_j, σ² and g by Paule and Mandel; then

    w_j = σ̃²/(σ̃² + v_j),   σ̃² = σ² + 50/d,
    log s_j² = g + w_j² (y_j − g) + ½ min(σ̃²(1 − w_j), 2) + 1.28 (1 − w_j) max(σ − 2, 0).

So a column that is known well is measured by its own standard deviation, and a rare one by what its column and the
others say. 50/d stands for what d columns cannot tell: that a few of them vary alike is weak evidence of a common unit,
that thousands do is strong. w_j is squared because what is standardised by s_j is used again. e_j is shrunk to the
typical excess, so that heavy tails widen v_j and a scale does not follow an outlier.

The last two terms turn the mean of log s_j² into that of s_j² where it is not known, and where units are far apart,
into what nine columns in ten do not exceed: a column seen once then has a wide interval, not a wrong one. A column that
is constant over N_j entries, five or more, could deviate about once in as many: its y_j is g − log N_j, known up to
v_j = ψ'(1), and its scale is no larger than its value.

**A common unit.** Scales are one, or powers of ten where columns have the unit with different prefixes (metres and
millimetres, shares and per cent). Where all columns are seen fifty times or more, log₁₀ of their deviations, whole
numbers aside, must lie within 0.2 of their circular mean (root mean square, beyond chance), and s_j is the power of ten
nearest to what is left. So multiplying columns by powers of ten changes neither whether there is a common unit nor
anything that is measured in it. Where some columns are rarer, their prefixes cannot be told, and only one for all is
possible: log₁₀ of the deviations of the columns seen fifty times (or else five times, or else at all) must lie within
0.2 of their median, each of those seen fifty times within 0.9, and no column above that.

Which of the two is taken is chosen on held-out rows (:mod:`onesided.fitting.selection`): a common unit of equal noise
is worth knowing, and where columns differ it misleads.

Scales are relative: their geometric mean over entries is one, so that errors, variances and row effects stay in the
unit of the data where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from onesided.arrays import Array, host, namespace
from onesided.engines.engine import engine_for
from onesided.pairs.column_sums import column_sums
from onesided.panels.panel_like import PanelLike

Scale = Literal["own", "common", "none"]  # what columns are measured in: s_j, powers of ten, or one for all

TYPICAL_ENTRIES = 20.0  # that the typical excess counts for beside a column's own
LEAST_EXCESS = 0.5
FEWEST = 5.0  # entries of a column that tells how columns differ
KNOWN_ENTRIES = 8.0  # of a column whose kurtosis tells what is typical
DOUBT = 50.0  # over the number of columns, added to σ²
MOST_UNKNOWN = 2.0  # of the variance of log s², in what is added for scales that are not known
FAR_APART = 2.0  # σ from which it is the ninetieth percentile that is sought
NINETIETH = 1.28
TELLING = 50.0  # entries of a column that tells its prefix
ONE_PREFIX = 0.9  # powers of ten around their median within which columns have one prefix
ONE_UNIT = 0.2  # powers of ten by which such columns may lie apart in a common unit, root mean square
CHANCE = 0.5 / np.log(10.0) ** 2  # over N − 1: the variance of log₁₀ of a deviation of normal values
SAME_UNIT = 1e-9  # difference of the logarithms of scales that are powers of ten up to rounding
CONSTANT = 1e-12  # of a column's mean: a smaller deviation is rounding


@dataclass(frozen=True, eq=False)
class Deviations:
    """What the columns' values are around their means: sums in units of one value for all.

    >>> found = Deviations(np.full(2, 100.0), np.array([1.0, 9.0]), np.array([3.0, 27.0]), np.zeros(2), 1.0)
    >>> found.varies, found.prefixes is None
    (array([ True,  True]), True)
    """

    counts: Array
    squares: Array
    fourths: Array
    mean: Array
    unit: float

    @classmethod
    def of(cls, panel: PanelLike) -> Deviations:
        """Of a panel."""
        engine = engine_for(panel)
        mean = engine.column_means()
        unit = max(engine.largest_value(), float(abs(mean).max())) or 1.0
        sums = column_sums(engine, mean, unit)
        return cls(host(sums.counts), host(sums.squares), host(sums.fourths), host(mean), unit)

    @property
    def freedom(self) -> Array:
        return np.asarray(np.maximum(self.counts - 1, 0.0))

    @property
    def variance(self) -> Array:
        return np.asarray(self.squares / np.where(self.freedom > 0, self.freedom, 1.0))

    @property
    def varies(self) -> Array:
        """Which columns have a variance that is more than rounding."""
        return np.asarray((self.freedom > 0) & (self.variance > (CONSTANT * self.mean / self.unit) ** 2))

    @property
    def prefixes(self) -> Array | None:
        """The powers of ten by which columns of a common unit differ; None where columns show that they have none."""
        powers, logs = np.zeros(len(self.counts)), np.log10(np.where(self.varies, self.variance, 1.0)) / 2
        telling = self.varies & (self.counts >= TELLING)
        if telling.any() and not self.counts[~telling].any():
            middle = np.angle(np.exp(2j * np.pi * logs[telling]).sum()) / (2 * np.pi)
            whole = np.rint(logs[telling] - middle)
            middle, powers[telling] = middle + whole[0], whole - whole[0]
        else:  # what prefix a rare column has cannot be told: only one that all have is possible
            if not telling.any():
                known = self.varies & (self.counts >= FEWEST)
                telling = known if known.any() else self.varies
            middle = np.median(logs[telling]) if telling.any() else 0.0
            wide = logs[self.varies] - middle > ONE_PREFIX
            if wide.any() or np.any(abs(logs[self.varies & (self.counts >= TELLING)] - middle) > ONE_PREFIX):
                return None
        apart = (logs - middle - powers)[telling] ** 2 - CHANCE / self.freedom[telling]
        return None if telling.any() and apart.mean() > ONE_UNIT**2 else powers

    @property
    def own_scales(self) -> Array:
        """Scales in units of their own."""
        counts, mean, varies = self.counts, self.mean, self.varies
        excess, _ = excesses(np.where(varies, self.squares, 0.0), self.fourths, counts)
        nu = np.where(varies, 2 * self.freedom / excess, 2.0)
        y = np.log(np.where(varies, self.variance, 1.0)) - digamma(nu / 2) + np.log(nu / 2)
        v = polygamma(1, nu / 2)
        known = varies & (counts >= FEWEST)
        known = known if known.any() else varies
        between, level = paule_mandel(y[known], v[known])
        doubted = between + DOUBT / max(int(known.sum()), 1)
        constant = ~varies & (counts >= FEWEST)
        y = np.where(varies, y, level - np.log(np.maximum(counts, 1.0)))
        share = np.where(varies | constant, doubted / (doubted + v), 0.0)
        logs = level + share**2 * (y - level) + np.minimum(doubted * (1 - share), MOST_UNKNOWN) / 2
        logs += NINETIETH * (1 - share) * max(np.sqrt(between) - FAR_APART, 0.0)
        constant &= mean != 0
        logs[constant] = np.minimum(logs[constant], 2 * np.log(abs(mean[constant]) / self.unit))
        return self.relative(logs)

    @property
    def common_scales(self) -> Array | None:
        """Powers of ten of a unit that columns may have in common, but for a factor; None if there is none."""
        return None if self.prefixes is None else self.relative(2 * np.log(10.0) * self.prefixes)

    def relative(self, logs: Array) -> Array:
        """Scales by the logarithms of their squares, with a geometric mean over entries of one."""
        return np.asarray(np.exp((logs - self.counts @ logs / self.counts.sum()) / 2))


@dataclass(frozen=True, eq=False)
class Scaling:
    """What a fit measures columns in, s_j, and the powers of ten p_j of a unit that they may have in common.

    Without scales all are one; without powers, columns show that they have no unit in common. Both are of all rows, so
    that fits of some of them agree on what the unit is.

    >>> values = np.random.default_rng(0).normal(size=(200, 4)) * [1, 1, 1, 100]
    >>> from onesided import Panel
    >>> own, common = (Scaling.of(Panel.from_dense(values), scale) for scale in ("own", "common"))
    >>> own.one_unit, common.one_unit, np.array_equal(own.common, common.scales)
    (False, True, True)
    """

    scales: Array | None = None
    common: Array | None = None

    @classmethod
    def of(cls, panel: PanelLike, scale: Scale) -> Scaling:
        """Of a panel, with scales None where all are one."""
        if scale == "none":
            return cls()
        deviations = Deviations.of(panel)
        common = deviations.common_scales
        scales = deviations.own_scales if scale == "own" else common
        return cls(None if scales is None or np.all(scales == 1) else scales, common)

    @property
    def one_unit(self) -> bool:
        """Whether all columns are measured in one unit, prefixes aside."""
        if self.scales is None:
            return True
        return self.common is not None and bool(np.ptp(np.log(self.scales / self.common)) < SAME_UNIT)


AS_THEY_ARE = Scaling()


def column_scales(panel: PanelLike) -> Array:
    """The scales of a panel's columns in units of their own.

    >>> from onesided import Panel
    >>> values = np.random.default_rng(0).normal(size=(200, 5))
    >>> column_scales(Panel.from_dense(values)).round(1)
    array([0.9, 1. , 1. , 1.1, 1. ])
    >>> column_scales(Panel.from_dense(values * [1, 1, 1, 1, 100])).round(2)
    array([ 0.37,  0.39,  0.39,  0.44, 40.3 ])
    """
    return Deviations.of(panel).own_scales


def common_scales(panel: PanelLike) -> Array | None:
    """Powers of ten of a unit that a panel's columns may have in common, ones without prefixes; None if there is none.

    >>> from onesided import Panel
    >>> values = np.random.default_rng(0).normal(size=(200, 4))
    >>> common_scales(Panel.from_dense(values))
    array([1., 1., 1., 1.])
    >>> common_scales(Panel.from_dense(values * [1, 1, 1, 100])).round(2)
    array([ 0.32,  0.32,  0.32, 31.62])
    >>> common_scales(Panel.from_dense(values * [1, 2, 4, 8])) is None
    True
    """
    return Deviations.of(panel).common_scales


def excesses(squares: Any, fourths: Any, counts: Any) -> tuple[Any, float]:
    """The relative variance of squares in each column, shrunk to the typical one as by 20 entries; and that one.

    The typical one is the median over entries. Of a column without variation, the number of its entries: it says
    nothing.

    >>> excesses(np.array([10.0, 0.0]), np.array([30.0, 0.0]), np.array([10.0, 4.0]))  # kurtosis 3
    (array([2., 3.]), 2.0)
    """
    xp, varies = namespace(squares), squares > 0
    kurtosis = xp.where(varies, fourths * counts / xp.where(varies, squares, 1.0) ** 2, 3.0)
    known = varies & (counts >= KNOWN_ENTRIES)
    values, weights = kurtosis[known], counts[known]
    if len(values) == 0:
        return xp.where(varies, 2.0, counts.clip(2.0)), 2.0
    order = xp.argsort(values)
    reached = weights[order].cumsum(0)
    typical = float(values[order[xp.searchsorted(reached, reached[-1] / 2)]])
    shrunk = (counts * kurtosis + TYPICAL_ENTRIES * typical) / (counts + TYPICAL_ENTRIES)
    shrunk = xp.where(varies, shrunk, xp.where(counts > shrunk, counts, shrunk))
    return (shrunk - 1).clip(LEAST_EXCESS), max(typical - 1, LEAST_EXCESS)


def paule_mandel(y: Array, v: Array) -> tuple[float, float]:
    """σ² and g of y_j ~ N(g, σ² + v_j): the σ² at which Σ (y_j − g)²/(σ² + v_j) is what it should be, or zero.

    >>> round(paule_mandel(np.array([-2.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0]))[0], 10)
    3.0
    >>> paule_mandel(np.array([-0.5, 0.0, 0.5]), np.array([1.0, 1.0, 1.0]))
    (0.0, 0.0)
    """
    if len(y) < 2:
        return 0.0, float(y.mean()) if len(y) else 0.0

    def around(between: float) -> tuple[float, float]:
        w = 1 / (v + between)
        g = float(w @ y / w.sum())
        return float(w @ (y - g) ** 2) - (len(y) - 1), g

    if around(0.0)[0] <= 0:
        return 0.0, around(0.0)[1]
    between = float(brentq(lambda s: around(s)[0], 0.0, float(np.ptp(y)) ** 2 + 1.0, xtol=1e-12))
    return between, around(between)[1]
