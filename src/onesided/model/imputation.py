"""Rows filled in from a recovered row space; rows never seen before included.

Two ways, with one interface:

``BestLinearPredictor``: v_j = μ_j + x_jᵀq + ε_j with q ~ N(0, I) and var ε_j = ψ_j. Given a row's observed entries,

    S = (I + Σ x xᵀ/ψ)⁻¹,   q = S Σ x (v − μ)/ψ,   v̂_j = μ_j + x_jᵀq,   var(v_j) = ψ_j + x_jᵀ S x_j

A row effect is one more coordinate, with loading τ in all columns. Entries of one part of the panel tell nothing about
columns of another that no chain of rows links to it: these are predicted by μ_j and the row effect alone. Where columns
are known only up to covariances V_j of (μ_j, x_j), they enter S and q
(:func:`onesided.kernels.reference.row_posterior`), and the variance grows by tr(V_j E[q̃ q̃ᵀ]), q̃ = (1, q). Some rows are
steadier than others: the variances of a row are then multiplied by

    (k + m · mean e²/s²) / (k + m),

e the residual and s² the variance of each of the row's entries when it is predicted from the others, m as many
independent ones as they are worth, and k learnt from the rows that the model was fitted to
(:mod:`onesided.model.shrinkage`). Where the mean of e²/s² over these rows is above 1, the model was too sure of itself,
and k pulls to that mean; where it is a little below, because the columns were fitted to the same entries, e²/s² is
divided by it. The values do not depend on any of this, nor does T.

``LeastSquares``: Algorithm 2 of the paper, v̂ = U q with q the least-squares fit on the observed entries, of least
norm when a row has fewer entries than the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.arrays import host
from onesided.engines.engine import Engine, engine_for
from onesided.engines.threads import cut, in_order
from onesided.errors import InputError
from onesided.kernels import cpu
from onesided.kernels.bundles import Columns
from onesided.kernels.reference import from_half
from onesided.model.row_space import RowSpace
from onesided.model.shrinkage import GroupVariances, shrinkage, shrunk
from onesided.panels.panel import Panel

Array = npt.NDArray[Any]

CHUNK = 1 << 21  # numbers held at a time on the way to variances
LEAST_SHRINKAGE = 5.0  # entries: a row of one or two says little of its noise
LEAST_LEVEL = 0.8  # below it, variances are at the noise's floor, not fitted too closely


@dataclass(frozen=True)
class RowNoise:
    """How rows differ in noise.

    ``shrinkage`` is k, in entries: infinite where one row is as steady as another. ``level`` is the mean of e²/s² over
    the rows that the model was fitted to.

    >>> sums = np.array([5.0, 30.0])  # of e²/s² over ten entries each: a steady row, and one that is not
    >>> RowNoise(shrinkage=10.0).scales(sums, np.full(2, 10), overlap=np.full(2, 10))
    array([0.75, 2.  ])
    """

    shrinkage: float = np.inf
    level: float = 1.0

    def scales(self, sums: Array, counts: Array, overlap: Array) -> Array:
        """What the variances of rows are multiplied with, given their sums of e²/s²."""
        fitted = float(np.clip(self.level, LEAST_LEVEL, 1.0))
        return np.asarray(shrunk(sums / fitted, counts, self.shrinkage, overlap=overlap, towards=max(self.level, 1.0)))


@dataclass(frozen=True, eq=False)
class BestLinearPredictor:
    """The best linear predictor of a row, with its predictive standard deviation.

    >>> predictor = BestLinearPredictor(np.zeros(2), np.ones((2, 1)), np.full(2, 0.5))
    >>> panel = Panel.from_dense([[3.0, np.nan]])
    >>> predictor.impute_at(panel, np.array([0]), np.array([1]))
    (array([2.]), array([0.91287093]))
    """

    mean: Array
    loadings: Array
    noise_variance: Array
    spread: Array | None = None  # V_j, lower halves
    row_noise: RowNoise = RowNoise()
    parts: Array | None = None  # of linked columns, by number
    common: int = 0  # leading loadings that hold for columns of every part

    @classmethod
    def of(cls, found: RowSpace) -> BestLinearPredictor:
        """The predictor from a row space."""
        return cls(found.mean, found.loadings, found.noise_variance, found.spread)

    def coordinates(self, panel: Panel) -> Array:
        """q of every row: its posterior mean."""
        (q,) = self._solve(panel, lambda q, covariance: (q,))
        return q

    def posteriors(self, panel: Panel) -> tuple[Array, Array]:
        """q of every row, and S, its posterior covariance."""
        q, covariance = self._solve(panel, lambda q, covariance: (q, covariance))
        return q, covariance

    def reaches(self, panel: Panel) -> Array:
        """Of every row and column, whether the row has an entry in a part that the column is linked to."""
        if not self._in_parts:
            return np.ones(panel.shape, dtype=bool)
        return self._linked(panel, *np.indices(panel.shape))

    def impute(self, panel: Panel) -> Array:
        """Every row filled in; observed entries stay as they are."""
        return np.concatenate([filled for _, _, filled in panel.by_shards(self._impute)])

    def _impute(self, panel: Panel) -> Array:
        q = self.coordinates(panel)
        filled: Array = self.mean + q @ self.loadings.T
        if self._in_parts:
            common = self.mean + q[:, : self.common] @ self.loadings[:, : self.common].T
            filled = np.where(self._linked(panel, *np.indices(panel.shape)), filled, common)
        filled[observed_positions(panel)] = panel.values
        return filled

    def deviations(self, panel: Panel) -> Array:
        """The standard deviation of each value of :meth:`impute`; zero where it was observed."""
        return np.concatenate([deviation for _, _, deviation in panel.by_shards(self._deviations)])

    def _deviations(self, panel: Panel) -> Array:
        deviation = np.empty(panel.shape)
        step = max(1, CHUNK // max(1, self.loadings.size))
        for first in range(0, panel.n_rows, step):
            rows = np.arange(first, min(first + step, panel.n_rows))
            part = panel.at(None).take_rows(rows)  # so few that a device would wait for them
            q, covariance = self.posteriors(part)
            variance = self._variance(q, covariance)
            if self._in_parts:
                linked = self._linked(part, *np.indices(part.shape))
                variance = np.where(linked, variance, self._variance(*self._elsewhere(q, covariance)))
            deviation[rows] = np.sqrt(self.noise_variance + variance) * self._scales(part)[:, None]
        deviation[observed_positions(panel)] = 0.0
        return deviation

    def impute_at(self, panel: Panel, rows: Array, columns: Array) -> tuple[Array, Array]:
        """Predictions at positions and their standard deviations, whether or not they were observed."""
        by_row = np.argsort(rows, kind="stable")
        ordered, at = rows[by_row], columns[by_row]

        def asked(first: int, last: int) -> tuple[Array, Array]:
            low, high = np.searchsorted(ordered, [first, last])
            return ordered[low:high] - first, at[low:high]

        found = [part for _, _, part in panel.by_shards(self._impute_at, asked)]
        values, deviation = np.empty((2, len(rows)))
        values[by_row], deviation[by_row] = np.concatenate(found, axis=1)
        return values, deviation

    def _impute_at(self, panel: Panel, rows: Array, columns: Array) -> Array:
        """Of rows in order."""
        values, deviation = found = np.empty((2, len(rows)))
        step = max(1, CHUNK // max(1, self.loadings.shape[1] ** 2))
        for first in range(0, len(rows), step):  # so that no more covariances are held than that
            here = slice(first, first + step)
            asked, u = np.unique(rows[here], return_inverse=True)
            part = panel.take_rows(asked)
            q, covariance = self.posteriors(part)
            if self._in_parts:
                u = u + len(asked) * ~self._linked(part, u, columns[here])
                others = self._elsewhere(q, covariance)
                q, covariance = np.concatenate([q, others[0]]), np.concatenate([covariance, others[1]])
            x = self.loadings[columns[here]]
            values[here] = self.mean[columns[here]] + np.einsum("ka,ka->k", q[u], x)
            variance = np.einsum("ka,ka->k", np.einsum("ka,kab->kb", x, covariance[u]), x)
            if self.spread is not None:
                variance += np.einsum("kt,kt->k", _traces(q, covariance)[u], self.spread[columns[here]])
            scales = self._scales(part)[u % len(asked)]
            deviation[here] = np.sqrt(self.noise_variance[columns[here]] + variance) * scales
        return found

    def _variance(self, q: Array, covariance: Array) -> Array:
        """Of what the model predicts, at every column for each row."""
        variance: Array = np.einsum("uja,ja->uj", self.loadings @ covariance, self.loadings)
        return variance if self.spread is None else variance + _traces(q, covariance) @ self.spread.T

    @property
    def _in_parts(self) -> bool:
        return self.parts is not None and bool(self.parts.max(initial=0) > 0)

    def _linked(self, panel: Panel, rows: Array, columns: Array) -> Array:
        """Whether each row has an entry in the part of a column."""
        assert self.parts is not None
        size = int(self.parts.max()) + 2
        entries = np.repeat(np.arange(panel.n_rows), panel.row_counts) * size + self.parts[panel.columns]
        return np.isin(rows * size + self.parts[columns], entries)

    def _elsewhere(self, q: Array, covariance: Array) -> tuple[Array, Array]:
        """What is known of rows in parts of which they have no entry: of the factor nothing but the prior."""
        q, covariance = q.copy(), covariance.copy()
        q[:, self.common :] = 0.0
        covariance[:, self.common :] = 0.0
        covariance[:, :, self.common :] = 0.0
        covariance[:, self.common :, self.common :] = np.eye(q.shape[1] - self.common)
        return q, covariance

    def leave_one_out(self, panel: Panel, weights: Array) -> Array:
        """For each row of positive weight, in order, sums over its entries, each predicted from the others.

        The log score, e², e²/s², its square, and the overlap (:func:`onesided.kernels.reference.leave_one_out`).
        """
        engine = engine_for(panel, weights)
        return host(engine.leave_one_out(self._prepared(engine)))

    def learn_row_noise(self, panel: Panel) -> RowNoise:
        """How the rows of a panel differ, those that were fitted."""
        found = GroupVariances(panel.total(self._row_spread))
        return RowNoise(shrinkage(found.within, found.between, LEAST_SHRINKAGE), found.level)

    def _row_spread(self, panel: Panel) -> Array:
        engine = engine_for(panel)
        counting = panel.row_weights > 0
        weights, counts = (engine.array(one[counting]) for one in (panel.row_weights, panel.row_counts))
        _, _, sums, squares, overlap = engine.leave_one_out(self._prepared(engine)).T
        return np.asarray(GroupVariances.of(sums, squares, counts, overlap=overlap, weights=weights).sums)

    def _scales(self, panel: Panel) -> Array:
        """What the standard deviations of each row are multiplied with."""
        if self.row_noise == RowNoise():
            return np.ones(panel.n_rows)
        _, _, sums, _, overlap = self.leave_one_out(panel, np.ones(panel.n_rows)).T
        return np.sqrt(self.row_noise.scales(sums, panel.row_counts, overlap))

    def _prepared(self, engine: Engine) -> Columns:
        """The columns where an engine works, brought there once.

        In double precision: where an entry all but settles its own prediction, 1 − h is a small difference.
        """
        if engine.device_key not in self._brought:
            self._brought.clear()
            mean, loadings, noise = map(engine.array, (self.mean, self.loadings, self.noise_variance))
            spread = None if self.spread is None else engine.array(self.spread)
            self._brought[engine.device_key] = engine.prepare_columns(mean, loadings, noise, spread, exact=True)
        return self._brought[engine.device_key]

    @cached_property
    def _brought(self) -> dict[Any, Columns]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: one for name, one in self.__dict__.items() if name != "_brought"}  # it need not travel

    def _solve(self, panel: Panel, keep: Callable[[Array, Array], tuple[Array, ...]]) -> tuple[Array, ...]:
        def solve(rows: Panel) -> list[tuple[Array, ...]]:
            engine = engine_for(rows)
            full = (from_half(halves) for halves in engine.row_posteriors(self._prepared(engine)))
            return [keep(one[:, 0, 1:].copy(), one[:, 1:, 1:].copy()) for one in full]

        parts = [part for _, _, found in panel.by_shards(solve) for part in found]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Algorithm 2: a row projected on the row space through its observed entries.

    >>> predictor = LeastSquares(np.array([[0.6], [0.8]]))
    >>> predictor.impute(Panel.from_dense([[3.0, np.nan]]))
    array([[3., 4.]])
    """

    basis: Array  # U_r, d × r, orthonormal columns

    def coordinates(self, panel: Panel) -> Array:
        """q of every row."""
        return np.concatenate([q for _, _, q in panel.by_shards(self._coordinates)])

    def _coordinates(self, panel: Panel) -> Array:
        values = panel.values.astype(np.float64)
        (q,) = _row_by_row(
            panel, self.basis.size, lambda indptr: (cpu.least_squares(indptr, panel.columns, values, self.basis),)
        )
        return q

    def impute(self, panel: Panel) -> Array:
        """Every row filled in; observed entries stay as they are."""
        return np.concatenate([filled for _, _, filled in panel.by_shards(self._impute)])

    def _impute(self, panel: Panel) -> Array:
        filled: Array = self.coordinates(panel) @ self.basis.T
        filled[observed_positions(panel)] = panel.values
        return filled

    def impute_at(self, panel: Panel, rows: Array, columns: Array) -> Array:
        """Predictions at positions, whether or not they were observed."""
        if len(rows) == 0:
            return np.empty(0)
        asked, back = np.unique(rows, return_inverse=True)
        q = self.coordinates(panel.take_rows(asked))
        return np.asarray(np.einsum("ka,ka->k", q[back], self.basis[columns]))


def _traces(q: Array, covariance: Array) -> Array:
    """E[q̃ q̃ᵀ] of each row as a lower half that gives tr(V E[q̃ q̃ᵀ]) when multiplied with that of V."""
    one = np.column_stack([np.ones(len(q)), q])
    moments = one[:, :, None] * one[:, None, :]
    moments[:, 1:, 1:] += covariance
    rows, columns = np.tril_indices(one.shape[1])
    return np.asarray(moments[:, rows, columns] * np.where(rows == columns, 1.0, 2.0))


def check_positions(panel: Panel, rows: Any, columns: Any) -> tuple[Array, Array]:
    """Row and column positions as integer arrays of one length, inside the panel."""
    rows, columns = np.atleast_1d(np.asarray(rows)), np.atleast_1d(np.asarray(columns))
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise InputError(f"rows and columns must be two lists of one length; found {rows.shape}, {columns.shape}")
    for name, positions, limit in (("row", rows, panel.n_rows), ("column", columns, panel.n_columns)):
        if positions.size and positions.dtype.kind not in "iu":
            raise InputError(f"{name}s must be positions, whole numbers; found {positions.dtype}")
        outside = (positions < 0) | (positions >= limit)
        if outside.any():
            raise InputError(f"{name} position {positions[outside][0]} is outside 0 to {limit - 1}")
    return rows.astype(np.int64), columns.astype(np.int64)


def observed_positions(panel: Panel) -> tuple[Array, Array]:
    """The row and the column of every entry."""
    return np.repeat(np.arange(panel.n_rows), panel.row_counts), panel.columns


def _row_by_row(panel: Panel, width: int, task: Callable[[Array], tuple[Array, ...]]) -> tuple[Array, ...]:
    """What ``task`` returns for each row, in blocks of rows of which each takes ``width`` numbers on the way."""
    rows_and_entries = panel.indptr + np.arange(panel.n_rows + 1)
    blocks = cut(rows_and_entries, max(1, CHUNK // max(1, width)))
    parts = in_order(lambda block: task(panel.indptr[block[0] : block[1] + 1]), blocks)
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
