"""Scores on rows that were held out: the model's setting fitted again to four fifths of the rows, tried on the others.

With u a held-out row of weight w_u and n_u entries, e what an entry is off when it is predicted from the others of its
row (in a row of one entry, from nothing), s² the variance predicted for that, and m_j the mean of column j over the
rows that were fitted:

    RMSE              √( Σ w e² / Σ w )                     sums over entries of held-out rows
    log score         Σ w · −½ (log 2πs² + e²/s²) / Σ w     for the trivial predictors, s² is that of the rows fitted
    explained         1 − Σ w e² / Σ w (v − m_j)²           beyond column means
    coverage at 90%   the share of entries, by weight, with |e| ≤ 1.645 s

A column that no fitted row has gets as m_j the mean of all entries.

Standard errors take rows as independent: that of a ratio R = Σ w_u a_u / Σ w_u b_u is
√Σ w_u² (a_u − R b_u)² / Σ w_u b_u. That of a coverage is at least √(p(1 − p)/n), p the level promised and
n = (Σw)² / Σw²: all of a few entries inside say little.

All of this is of values as they are or, of a refit in units of its columns' scales (:meth:`Refit.in_scales`), of
values divided by these. Scales are the model's.

For coverage each of a sample of entries, drawn without replacement, is taken out of its row and predicted as
``impute_at`` would, with the noise of rows learnt from the rows fitted. Large panels are sampled: as many rows as can
be fitted in some twenty seconds, 20,000 held-out ones at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.row_noise import learn_row_noise
from onesided.fitting.row_space import fit_row_space
from onesided.fitting.scales import Scaling, common_scales
from onesided.fitting.selection import EARNED, enough_rows
from onesided.fitting.setting import Setting, with_weights_as_counts
from onesided.model.row_space import RowSpace
from onesided.model.units import in_scales
from onesided.pairs.column_sums import column_means, column_sums
from onesided.panels.panel import Panel
from onesided.report.units import panel_in_scales

HELD_OUT = 5  # one row in so many
MOST_ENTRIES = 8_000_000  # of a panel whose rows are all used
MOST_WORK = 3e9  # entries × (rank + 2)², likewise: some twenty seconds
LEAST_ROWS = 100
SCORED_ROWS = 20_000
TAKEN_OUT = 20_000  # entries predicted one by one
COPIED = 2_000_000  # entries of their rows, each time without the one
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Score:
    """How a predictor did, each number with its standard error; None where it cannot be told."""

    rmse: float
    rmse_error: float
    explained: float | None
    explained_error: float | None
    log_score: float | None
    log_error: float | None


@dataclass(frozen=True)
class Coverage:
    """The share of entries that fell into intervals of a nominal level."""

    level: float
    share: float
    error: float


@dataclass(frozen=True, eq=False)
class Refit:
    """A panel cut in two by its rows, and the model's setting fitted to one part."""

    train: Panel  # all rows, those held out with weight zero
    weights: Array  # of all rows, those held out too
    held_out: Array  # positions of rows, 20,000 at most
    setting: Setting
    scaling: Scaling
    row_space: RowSpace  # with the blend of the model
    sampled: bool  # whether rows of the panel were left out altogether

    @classmethod
    def of(cls, model: OneSidedCompletion, panel: Panel, rng: np.random.Generator) -> Refit | None:
        """The setting of a model fitted to four fifths of a panel's rows; None where there are too few."""
        if not enough_rows(panel):
            return None
        panel = with_weights_as_counts(panel)
        part = some_rows(panel, model.rank_, rng)
        used = np.flatnonzero((part.row_weights > 0) & (part.row_counts > 0))
        held_out = np.sort(rng.permutation(used)[: max(1, len(used) // HELD_OUT)])
        weights = part.row_weights.copy()
        weights[held_out] = 0.0
        if not np.any(weights[part.row_counts > 1]):
            return None
        train = part.with_row_weights(weights)
        setting = model.fitted_setting()
        scales = model.row_space_.scales
        scaling = Scaling() if scales is None else Scaling(scales, common_scales(panel))
        space = fit_row_space(train, setting, int(rng.integers(2**31)), scaling=scaling).row_space
        noise, blend = learn_row_noise(space, train), model.row_space_.blend
        space = replace(space, row_noise=noise, blend=blend).measured_on(train)
        if len(held_out) > SCORED_ROWS:
            held_out = np.sort(rng.choice(held_out, SCORED_ROWS, replace=False))
        return cls(train, part.row_weights, held_out, setting, scaling, space, part is not panel)

    def in_scales(self) -> Refit:
        """The same of values in units of their columns' scales."""
        space = self.row_space
        return replace(self, train=panel_in_scales(self.train, space.units), row_space=in_scales(space))

    def scored(self) -> Panel:
        """The held-out rows, with their own weights and without ids."""
        return _bare(self.train.with_row_weights(self.weights).take_rows(self.held_out))


def some_rows(panel: Panel, rank: int, rng: np.random.Generator) -> Panel:
    """The panel itself, or of a large one as many rows, drawn at random, as can be fitted in some twenty seconds."""
    budget = min(MOST_ENTRIES, MOST_WORK / (rank + 2) ** 2)
    if panel.n_entries <= budget:
        return panel
    order = rng.permutation(np.flatnonzero((panel.row_weights > 0) & (panel.row_counts > 0)))
    affordable = int(np.searchsorted(np.cumsum(panel.row_counts[order]), budget, side="right"))
    if max(affordable, LEAST_ROWS) >= len(order):
        return panel
    return _bare(panel.take_rows(np.sort(order[: max(affordable, LEAST_ROWS)])))


def _bare(panel: Panel) -> Panel:
    """Without ids, so that rows can be taken more than once."""
    return Panel(panel.indptr, panel.columns, panel.values, panel.n_columns, row_weights=panel.row_weights)


def scores(refit: Refit) -> dict[str, Score]:
    """Of the model and of the two trivial predictors, on the entries of held-out rows.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(500, 12, 1, rng=0), 5, rng=1)
    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(panel)
    >>> found = scores(Refit.of(model, panel, np.random.default_rng(0)))
    >>> found["model"].rmse < found["column means"].rmse
    True
    """
    rows, train = refit.scored(), refit.train
    weights, counts = rows.row_weights, rows.row_counts
    means, totals = column_means(train), column_sums(train)
    level = float(totals.sums.sum() / totals.counts.sum())
    with single_blas_thread():
        space = in_units_of_values(refit.row_space)
        log_score, squares = space.predictor.leave_one_out(rows, np.ones(rows.n_rows))[:, :2].T
    plain = {"constant": np.full(len(means), level), "column means": means}
    off = {name: _sums(rows, (rows.values - center[rows.columns]) ** 2) for name, center in plain.items()}
    by_predictor: dict[str, Score] = {}
    for name, center in plain.items():
        variance = column_sums(train, center).mean_square
        logs = None if variance <= 0 else -(counts * np.log(2 * np.pi * variance) + off[name] / variance) / 2
        by_predictor[name] = _score(weights, counts, off[name], off["column means"], logs)
    by_predictor["model"] = _score(weights, counts, squares, off["column means"], log_score)
    return by_predictor


def in_units_of_values(space: RowSpace) -> RowSpace:
    """The same predictions, with errors in units of the values: row effects are part of the factor, scales are ones."""
    return RowSpace(space.mean, space.loadings, space.noise_variance, spread=space.spread, row_noise=space.row_noise)


def _score(weights: Array, counts: Array, squares: Array, around: Array, logs: Array | None) -> Score:
    mse, mse_error = ratio(weights, squares, counts)
    rmse = float(np.sqrt(mse))
    left, left_error = ratio(weights, squares, around) if weights @ around > 0 else (None, None)
    score, score_error = ratio(weights, logs, counts) if logs is not None else (None, None)
    rmse_error = mse_error / (2 * rmse) if rmse > 0 else 0.0
    return Score(rmse, rmse_error, None if left is None else 1 - left, left_error, score, score_error)


def earned(refit: Refit, by_predictor: dict[str, Score]) -> bool | None:
    """Whether components predict held-out rows better than a model without, by two standard errors of e².

    Without is column means; where rows have effects, these too, fitted to the same rows. None where it cannot be told.
    """
    if refit.setting.rank == 0:
        return None
    if refit.setting.center != "both":
        gain, error = by_predictor["model"].explained, by_predictor["model"].explained_error
        return None if gain is None or error is None else gain > EARNED * error
    bare = fit_row_space(refit.train, replace(refit.setting, rank=0), 0, scaling=refit.scaling).row_space
    rows = refit.scored()
    with single_blas_thread():
        squares, without = (
            space.predictor.leave_one_out(rows, np.ones(rows.n_rows))[:, 1] for space in (refit.row_space, bare)
        )
    if not rows.row_weights @ without > 0:
        return None
    left, error = ratio(rows.row_weights, squares, without)
    return 1 - left > EARNED * error


def ratio(weights: Array, above: Array, below: Array) -> tuple[float, float]:
    """R = Σ w a / Σ w b and its standard error, rows being independent.

    >>> ratio(np.ones(2), np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    (1.0, 0.3535533905932738)
    """
    total = float(weights @ below)
    quotient = float(weights @ above) / total
    return quotient, float(np.linalg.norm(weights / total * (above - quotient * below)))


def _sums(rows: Panel, values: Array) -> Array:
    return np.bincount(np.repeat(np.arange(rows.n_rows), rows.row_counts), values, rows.n_rows)


def coverage(refit: Refit, rng: np.random.Generator) -> tuple[tuple[Coverage, ...], int]:
    """How often intervals of each level hold an entry taken out of its row, and how many entries were."""
    rows = refit.scored()
    entries = rng.permutation(rows.n_entries)[:TAKEN_OUT]
    of_row = np.repeat(np.arange(rows.n_rows), rows.row_counts)
    affordable = int(np.searchsorted(np.cumsum(rows.row_counts[of_row[entries]]), COPIED, side="right"))
    entries = np.sort(entries[: max(1, affordable)])
    taken, columns = of_row[entries], rows.columns[entries]
    with single_blas_thread():
        values, deviations = refit.row_space.predictor.impute_at(
            without_entries(rows, entries), np.arange(len(entries)), columns.astype(np.int64)
        )
    off = np.abs(rows.values[entries] - values)
    row, place = np.unique(taken, return_inverse=True)
    weights, number = rows.row_weights[row], np.bincount(place)
    effective = float(weights @ number) ** 2 / float(weights**2 @ number)
    covered = []
    for level in LEVELS:
        inside = off <= float(norm.ppf((1 + level) / 2)) * deviations
        share, error = ratio(weights, np.bincount(place, inside), number)
        covered.append(Coverage(level, share, max(error, float(np.sqrt(level * (1 - level) / effective)))))
    return tuple(covered), len(entries)


def without_entries(rows: Panel, entries: Array) -> Panel:
    """For each of the entries named, its row without it.

    >>> panel = Panel.from_dense([[1.0, 2.0, 3.0], [4.0, np.nan, 5.0]])
    >>> without_entries(panel, np.array([1, 3])).to_dense()
    array([[ 1., nan,  3.],
           [nan, nan,  5.]])
    """
    of_row = np.repeat(np.arange(rows.n_rows), rows.row_counts)[entries]
    copies = _bare(rows).take_rows(of_row)
    gone = copies.indptr[:-1] + entries - rows.indptr[of_row]
    kept = np.ones(copies.n_entries, dtype=bool)
    kept[gone] = False
    indptr = copies.indptr - np.arange(len(entries) + 1)
    return Panel(indptr, copies.columns[kept], copies.values[kept], rows.n_columns)
