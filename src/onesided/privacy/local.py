"""Noise on every value before it leaves its owner: the paper's mechanism, made honest.

**Who is trusted.** Nobody with values. Which entries a row has is known to the one who fits and is not protected.

**Neighbours.** Panels of the same pattern that differ in the values of one row.

**What is released.** Every observed value, of at most k in a row, plus N(0, σ²).

**Proof.** Two rows of the same m ≤ k entries with values in [a, b] differ by at most b − a in each: by (b − a)√k in
Euclidean norm. With σ = (b − a)√k/μ the noisy values are μ-Gaussian differentially private, and what is fitted depends
on them and the pattern alone, selection of the rank and all. ∎

The noise has mean zero and is independent of everything else, so that the means and off-diagonal products of a panel
keep their expectation; its known variance σ² is taken off the diagonal of T and off the noise variance of columns. The
price is high, as nothing averages the noise out before it is added: at ε = 1, δ = 10⁻⁶ and 20 entries in a row it is 19
times the width of the bounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike
from onesided.privacy.curator import Curator, with_values
from onesided.privacy.released import LEAST_NOISE, MOST_COMMON, likely, possible, shrunk


def noised_values(curator: Curator) -> PanelLike:
    """The panel with noise on its values, in the units of the data."""
    rows, plan = curator.rows, curator.privacy
    longest = max(1, int(rows.row_counts.max(initial=0)))  # k or less: the pattern is known
    noisy = curator.noised("values", length=2 * float(np.sqrt(longest)))
    return noisy.each(partial(_in_units_of_data, middle=plan.middle, half=plan.half))


def _in_units_of_data(rows: Panel, middle: float, half: float) -> Panel:
    return with_values(rows, middle + half * rows.values)


def without_noise(curator: Curator, found: RowSpace) -> RowSpace:
    """The row space of noisy values with the known noise taken off, and nothing of single columns' rows.

    Means are shrunk by it and held to the bounds, and directions that noise alone might have are dropped: the
    covariance of d columns, each pair seen N₂ times on average, has eigenvalues up to 2 v √(d/N₂) from noise, v the
    variance of a noisy value. The variance of values is one for all columns, what is likely after σ² was taken off, and
    no column has more than the bounds allow. Counts are replaced by their mean.
    """
    plan, rows, d = curator.privacy, curator.rows, curator.rows.n_columns
    noise = (plan.half * curator.releases[0].deviation) ** 2
    measured = found.known_of_columns
    counts, seen = measured.counts, measured.counts > 0
    number = float(counts.sum())
    total = float(counts @ measured.around(found.mean).diagonal) / number
    mean = found.mean
    if np.any(mean):  # there are means in the model
        low = plan.middle - plan.half
        middle = float(counts @ mean) / number
        away = shrunk(counts * (mean - middle), counts, counts * total)
        middle = low + likely(middle - low, float(np.sqrt(total / number)), 2 * plan.half)
        mean = np.clip(middle + away, low, low + 2 * plan.half)
    m = rows.row_counts.astype(np.float64)
    per_pair = float(np.sum(m * (m - 1))) / (d * (d - 1))
    chance = 2 * total * float(np.sqrt(d / max(per_pair, 1e-300)))
    row_variance = found.row_variance if found.row_variance * d > chance else 0.0
    row_variance = min(row_variance, MOST_COMMON * plan.half**2)
    factor = np.where(np.sum(found.factor**2, axis=0) > chance, found.factor, 0.0)
    factor = principal_axes(possible(factor, plan.half**2 - row_variance))
    pooled = float(counts @ measured.around(mean).diagonal) / number
    typical = likely(pooled - noise, pooled * float(np.sqrt(2 / number)), plan.half**2)
    explained = np.sum(factor**2, axis=1) + row_variance
    left = np.maximum(typical - explained, LEAST_NOISE * max(typical, NOISE_FLOOR * plan.half**2))
    kept = replace(
        measured,
        diagonal=np.where(seen, np.maximum(typical, explained) + mean**2, 0.0),
        means=mean,
        counts=np.where(seen, float(counts[seen].mean()), 0.0),
    )
    return RowSpace(mean, factor, left, row_variance, measured=kept, column_ids=found.column_ids)
