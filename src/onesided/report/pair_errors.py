"""How far T is off, by how often a pair of columns was seen: told from held-out rows, their own noise taken off.

Over the pairs i ≠ j that at least two held-out rows have, with p = v_i v_j in these rows, W = Σw, W₂ = Σw², T̂ = Σwp/W
and s² = Σ w (p − T̂)² / (W − W₂/W) their variance, L the entry of T from the rows fitted,

    θ = Σ ( W (L − T̂)² − s² W₂/W )  /  Σ ( W T̂² − s² W₂/W )

is the square of the relative error: s² W₂/W² is what the measurement T̂ is off by itself, so that both sums are
unbiased views of Σ W (L − T)² and Σ W T². With weights of one it is the held-out error of
:mod:`onesided.experiments.metrics`. Its standard error is the jackknife's over ten groups of held-out rows. An error is
told where θ exceeds zero by t standard errors, with Student's t for 90%; where it does not, only that it is at most
√(θ + t · error). Where Σ W T² itself does not stand out, nothing is told.

Three estimates are scored alike: the model's T, the pairs as measured in the rows fitted, and L_ij = m_i m_j, which
knows nothing but the column means of these rows. Where values are far from zero the last is close to T by itself, and
only what the model gains on it says anything of the components. The difference of their θ, from the same held-out rows,
has a jackknife error of its own, far below that of either: the model is better or worse where it exceeds t of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from onesided.arrays import Array
from onesided.model.blend import blended_means
from onesided.model.second_moment import SecondMoment
from onesided.pairs.column_sums import column_means
from onesided.pairs.lookup import some_columns
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments, hajek_at
from onesided.pairs.size import pair_size
from onesided.report.held_out import Refit

EDGES = np.array([0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000])  # rows fitted that have a pair
GROUPS = 10
MOST_PRODUCTS, MOST_PAIRS = 1 << 29, 1 << 23  # up to which all columns are looked at
FEWEST_PAIRS = 30  # of a line: fewer tell too little; a quarter of all pairs where there are few columns
ROUNDING = 1e-9


@dataclass(frozen=True)
class PairError:
    """The relative error of T over the pairs that so many fitted rows have.

    ``error`` is None where it is only known to be at most ``high``; ``high`` is None where nothing is known.
    """

    fewest: int
    most: int | None
    pairs: int
    error: float | None
    low: float | None
    high: float | None

    @property
    def rows(self) -> str:
        """The numbers of rows, in words.

        >>> PairError(3, 9, 40, 0.1, 0.05, 0.2).rows, PairError(0, 0, 40, 0.1, 0.05, 0.2).rows
        ('3 to 9', '0')
        """
        if self.most is None:
            return f"{self.fewest:,} and more"
        return f"{self.fewest:,}" if self.fewest == self.most else f"{self.fewest:,} to {self.most:,}"


@dataclass(frozen=True)
class PairErrors:
    """Of the model's T, of the pairs as measured in the rows fitted, and of their column means, line by line."""

    model: tuple[PairError, ...]
    measured: tuple[PairError, ...]
    means: tuple[PairError, ...]
    gains: tuple[int, ...]  # 1 where the model is better than column means, −1 where worse, 0 where it cannot be told
    pairs: int
    left_out: int  # pairs of lines too short to tell
    columns: int  # among which pairs were looked at
    fewest: int  # pairs of a line

    @classmethod
    def of(cls, refit: Refit, rng: np.random.Generator) -> PairErrors | None:
        """None where too few pairs of columns are in two held-out rows."""
        kept, columns = refit.train, np.arange(refit.train.n_columns)
        products = float(np.sum(kept.row_counts.astype(np.float64) ** 2))
        if products > MOST_PRODUCTS or pair_size(kept).pairs > MOST_PAIRS:
            kept, columns = some_columns(kept)  # evenly spaced by how often they occur

        def moments(held_out: Array) -> PairMoments:
            weights = np.zeros(kept.n_rows)
            weights[held_out] = refit.weights[held_out]
            return PairMoments.from_panel(kept.with_row_weights(weights))

        target = moments(refit.held_out)
        i, j = target.pairs()
        sums = _Sums.of(target)
        chosen = np.flatnonzero((i != j) & sums.usable)
        fewest = fewest_pairs(len(columns))
        if len(chosen) < fewest:
            return None
        i, j = i[chosen], j[chosen].astype(np.int64)
        trained = PairMoments.from_panel(kept)
        place = trained.find(i, j)
        seen = np.where(place >= 0, trained.rows[place], 0) if trained.n_pairs else np.zeros(len(i), dtype=int)
        means = column_means(refit.train)[columns]
        completed = _second_moment(refit, trained, columns).at(i, j)
        values = (completed, hajek_at(trained, i, j)[0], means[i] * means[j])
        line = np.searchsorted(EDGES, seen, side="right") - 1
        totals = _totals(sums.at(chosen), values, line)
        groups = min(GROUPS, max(2, len(refit.held_out) // 2))
        fold = rng.permutation(len(refit.held_out)) % groups
        left = (sums.less(target, moments(refit.held_out[fold == k])) for k in range(groups))
        without = [_totals(part.at(chosen), values, line) for part in left]
        sizes = np.bincount(line, minlength=len(EDGES))
        lines = [k for k in range(len(EDGES)) if sizes[k] >= fewest]
        errors = [tuple(_pair_error(k, int(sizes[k]), which, totals, without) for k in lines) for which in range(3)]
        measured = tuple(error for error in errors[1] if error.fewest > 0)
        left_out = len(chosen) - int(sizes[lines].sum())
        gains = tuple(_gain(k, totals, without) for k in lines)
        return cls(errors[0], measured, errors[2], gains, len(chosen), left_out, len(columns), fewest)


def fewest_pairs(columns: int) -> int:
    """How many pairs a line must have: 30, or a quarter of all there are among few columns.

    >>> fewest_pairs(100), fewest_pairs(8), fewest_pairs(2)
    (30, 7, 1)
    """
    return int(np.clip(columns * (columns - 1) // 8, 1, FEWEST_PAIRS))


class _Totals(NamedTuple):
    """For each line, Σ W (L − T̂)² less noise, for the three estimates, and Σ W T̂² less noise."""

    model: Array
    measured: Array
    means: Array
    norm: Array


class _Sums(NamedTuple):
    """Of held-out rows, for each pair: their number, Σw, Σw², Σwp and Σwp²."""

    rows: Array
    weights: Array
    squared: Array
    sums: Array
    squares: Array

    @classmethod
    def of(cls, moments: PairMoments) -> _Sums:
        squared = moments.counts if moments.squared_weight_sums is None else moments.squared_weight_sums
        return cls(moments.rows.astype(np.int64), moments.counts, squared, moments.sums, moments.squares)

    @property
    def usable(self) -> Array:
        freedom = self.weights**2 - self.squared
        return (self.rows >= 2) & (freedom > ROUNDING * self.weights**2)

    def at(self, chosen: Array) -> _Sums:
        return _Sums(*(array[chosen] for array in self))

    def less(self, whole: PairMoments, part: PairMoments) -> _Sums:
        """Without the rows of a part."""
        at = whole.find(part.pairs()[0], part.pairs()[1].astype(np.int64))
        left = [array.copy() for array in self]
        for array, taken in zip(left, _Sums.of(part), strict=True):
            array[at] -= taken
        return _Sums(*left)


def _totals(sums: _Sums, values: tuple[Array, Array, Array], line: Array) -> _Totals:
    good = sums.usable
    rows = sums.at(np.flatnonzero(good))
    mean, own_weight = rows.sums / rows.weights, rows.squared / rows.weights
    variance = np.maximum(rows.squares - rows.weights * mean**2, 0.0) / (rows.weights - own_weight)

    def total(value: Array) -> Array:
        return np.bincount(line[good], rows.weights * (value - mean) ** 2 - variance * own_weight, len(EDGES))

    model, measured, means = (total(value[good]) for value in values)
    return _Totals(model, measured, means, norm=total(np.zeros_like(mean)))


def _pair_error(k: int, pairs: int, which: int, totals: _Totals, without: list[_Totals]) -> PairError:
    most = None if k + 1 == len(EDGES) else int(EDGES[k + 1]) - 1
    bare = PairError(int(EDGES[k]), most, pairs, None, None, None)
    norms = np.array([group.norm[k] for group in without])
    if totals.norm[k] <= 0 or _half_width(norms / totals.norm[k]) >= 1 or np.any(norms <= 0):
        return bare
    theta = float(totals[which][k] / totals.norm[k])
    error = _half_width(np.array([group[which][k] for group in without]) / norms)
    high = float(np.sqrt(max(theta, 0.0) + error))
    if theta <= error:
        return replace(bare, high=high)
    return replace(bare, error=float(np.sqrt(theta)), low=float(np.sqrt(theta - error)), high=high)


def _gain(k: int, totals: _Totals, without: list[_Totals]) -> int:
    """Whether the model is better than column means, beyond the noise of their difference."""
    parts = np.array([(group.means[k] - group.model[k], group.norm[k]) for group in without])
    if totals.norm[k] <= 0 or np.any(parts[:, 1] <= 0):
        return 0
    gain = float((totals.means[k] - totals.model[k]) / totals.norm[k])
    return int(np.sign(gain)) if abs(gain) > _half_width(parts[:, 0] / parts[:, 1]) else 0


def _half_width(values: Array) -> float:
    """Of a 90% interval, by the jackknife's standard error and Student's t."""
    n = len(values)
    return float(student.ppf(0.95, n - 1)) * float(np.sqrt((n - 1) / n * np.sum((values - values.mean()) ** 2)))


def _second_moment(refit: Refit, trained: PairMoments, columns: Array) -> SecondMoment:
    """T as the model gives it, from the rows fitted, for some columns."""
    row_space = refit.row_space
    whole = row_space.known_of_columns
    measured = Measured(*(array[columns] for array in (whole.diagonal, whole.means, whole.counts, whole.parts)))
    mean = blended_means(row_space.mean[columns], measured.means, measured.counts, row_space.blend.means)
    return SecondMoment(
        row_space.loadings[columns],
        measured,
        mean=mean if np.any(row_space.mean) else None,
        panel=refit.train,
        moments=trained,
        kappa=row_space.blend.pairs,
        output="blend",
        common=row_space.n_common,
    )
