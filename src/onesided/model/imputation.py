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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.arrays import Array, host
from onesided.engines.cpu import CpuEngine
from onesided.engines.engine import Engine, engine_for
from onesided.engines.placement import place_of, placed_like
from onesided.engines.threads import cut, in_order
from onesided.errors import InputError
from onesided.kernels import cpu
from onesided.kernels.bundles import Columns
from onesided.kernels.reference import from_half
from onesided.model.row_noise import ALIKE
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike
from onesided.panels.positions import checked_positions

if TYPE_CHECKING:
    from onesided.model.row_space import RowSpace


CHUNK = 1 << 21  # numbers held at a time on the way to variances


@dataclass(frozen=True, eq=False)
class BestLinearPredictor:
    """The best linear predictor of a row, with its predictive standard deviation.

    >>> from onesided.model.row_space import RowSpace
    >>> predictor = BestLinearPredictor(RowSpace(np.zeros(2), np.ones((2, 1)), np.full(2, 0.5)))
    >>> panel = Panel.from_dense([[3.0, np.nan]])
    >>> predictor.impute_at(panel, np.array([0]), np.array([1]))
    (array([2.]), array([0.91287093]))
    """

    space: RowSpace

    def coordinates(self, panel: PanelLike) -> Array:
        """q of every row: its posterior mean."""
        (q,) = self._solve(panel, lambda q, covariance: (q,))
        return q

    def posteriors(self, panel: PanelLike) -> tuple[Array, Array]:
        """q of every row, and S, its posterior covariance."""
        q, covariance = self._solve(panel, lambda q, covariance: (q, covariance))
        return q, covariance

    def reaches(self, panel: Panel) -> Array:
        """Of every row and column, whether the row has an entry in a part that the column is linked to."""
        if not self._in_parts:
            return np.ones(panel.shape, dtype=bool)
        return self._linked(panel, *np.indices(panel.shape))

    def impute(self, panel: PanelLike) -> Array:
        """Every row filled in; observed entries stay as they are."""
        return np.concatenate([filled for _, _, filled in panel.by_shards(self._impute)])

    def impute_with_deviations(self, panel: PanelLike) -> tuple[Array, Array]:
        """Every row filled in, and the standard deviation of each value: zero where it was observed."""
        filled, deviation = zip(*(both for _, _, both in panel.by_shards(self._impute_with_deviations)), strict=True)
        return np.concatenate(filled), np.concatenate(deviation)

    def _impute(self, panel: Panel) -> Array:
        return self._filled(panel, self.coordinates(panel))

    def _impute_with_deviations(self, panel: Panel) -> tuple[Array, Array]:
        """Each row is solved once, some rows at a time: so few that a device would wait for them."""
        space = self.space
        coordinates, deviation = np.empty((panel.n_rows, space.loadings.shape[1])), np.empty(panel.shape)
        step = max(1, CHUNK // max(1, space.loadings.size))
        for first in range(0, panel.n_rows, step):
            rows = np.arange(first, min(first + step, panel.n_rows))
            some = panel.take_rows(rows)  # on the processor
            q, covariance, scales = self._solved(some)
            coordinates[rows] = q
            variance = self._variance(q, covariance)
            if self._in_parts:
                variance = np.where(self.reaches(some), variance, self._variance(*self._elsewhere(q, covariance)))
            deviation[rows] = np.sqrt(space.noise_variance + variance) * scales[:, None]
        deviation[observed_positions(panel)] = 0.0
        return self._filled(panel, coordinates) if place_of(panel) is None else self._impute(panel), deviation

    def _filled(self, panel: Panel, q: Array) -> Array:
        space = self.space
        filled: Array = space.mean + q @ space.loadings.T
        if self._in_parts:
            common = space.mean + q[:, : space.n_common] @ space.loadings[:, : space.n_common].T
            filled = np.where(self.reaches(panel), filled, common)
        filled[observed_positions(panel)] = panel.values
        return filled

    def impute_at(self, panel: PanelLike, rows: Array, columns: Array) -> tuple[Array, Array]:
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
        step = max(1, CHUNK // max(1, self.space.loadings.shape[1] ** 2))
        for first in range(0, len(rows), step):  # so that no more covariances are held than that
            here = slice(first, first + step)
            asked, u = np.unique(rows[here], return_inverse=True)
            part = placed_like(panel.take_rows(asked), panel)
            q, covariance, scales = self._solved(part)
            if self._in_parts:
                u = u + len(asked) * ~self._linked(part, u, columns[here])
                others = self._elsewhere(q, covariance)
                q, covariance = np.concatenate([q, others[0]]), np.concatenate([covariance, others[1]])
            x = self.space.loadings[columns[here]]
            values[here] = self.space.mean[columns[here]] + np.einsum("ka,ka->k", q[u], x)
            variance = np.einsum("ka,ka->k", np.einsum("ka,kab->kb", x, covariance[u]), x)
            if self.space.spread is not None:
                variance += np.einsum("kt,kt->k", _traces(q, covariance)[u], self.space.spread[columns[here]])
            deviation[here] = np.sqrt(self.space.noise_variance[columns[here]] + variance) * scales[u % len(asked)]
        return found

    def _variance(self, q: Array, covariance: Array) -> Array:
        """Of what the model predicts, at every column for each row."""
        variance: Array = np.einsum("uja,ja->uj", self.space.loadings @ covariance, self.space.loadings)
        return variance if self.space.spread is None else variance + _traces(q, covariance) @ self.space.spread.T

    @property
    def _in_parts(self) -> bool:
        return self.space.measured is not None and self.space.measured.in_parts

    def _linked(self, panel: Panel, rows: Array, columns: Array) -> Array:
        """Whether each row has an entry in the part of a column."""
        parts = self.space.known_of_columns.parts
        size = int(parts.max()) + 2
        entries = np.repeat(np.arange(panel.n_rows), panel.row_counts) * size + parts[panel.columns]
        return np.isin(rows * size + parts[columns], entries)

    def _elsewhere(self, q: Array, covariance: Array) -> tuple[Array, Array]:
        """What is known of rows in parts of which they have no entry: of the factor nothing but the prior."""
        q, covariance = q.copy(), covariance.copy()
        q[:, self.space.n_common :] = 0.0
        covariance[:, self.space.n_common :] = 0.0
        covariance[:, :, self.space.n_common :] = 0.0
        covariance[:, self.space.n_common :, self.space.n_common :] = np.eye(q.shape[1] - self.space.n_common)
        return q, covariance

    def leave_one_out(self, panel: PanelLike, weights: Array, units: Array | None = None) -> Array:
        """For each row of positive weight, in order, sums over its entries, each predicted from the others.

        Of values in ``units``, the columns' scales where not given:
        the log score, e², e²/s², its square, and the overlap (:func:`onesided.kernels.reference.leave_one_out`).
        """
        engine = engine_for(panel, weights)
        columns = self.columns_on(engine) if units is None else self._prepared(engine, units)
        return host(engine.leave_one_out(columns))

    def _solved(self, panel: Panel) -> tuple[Array, Array, Array]:
        """q and S of every row, and what the row's standard deviations are multiplied with.

        On this machine's processor each row is solved once for all three.
        """
        if self.space.row_noise == ALIKE:
            return *self.posteriors(panel), np.ones(panel.n_rows)
        engine = engine_for(panel)
        if isinstance(engine, CpuEngine):
            halves, scores = zip(*engine.scored_posteriors(self.columns_on(engine)), strict=True)
            (q, covariance), (_, _, sums, _, overlap) = _split(np.concatenate(halves)), np.concatenate(scores).T
        else:
            q, covariance = self.posteriors(panel)
            _, _, sums, _, overlap = self.leave_one_out(panel, np.ones(panel.n_rows)).T
        return q, covariance, np.sqrt(self.space.row_noise.scales(sums, panel.row_counts, overlap))

    def columns_on(self, engine: Engine) -> Columns:
        """The columns where an engine works, brought there once, in units of their scales.

        In double precision: where an entry all but settles its own prediction, 1 − h is a small difference.
        """
        if engine.device_key not in self._brought:
            self._brought.clear()
            self._brought[engine.device_key] = self._prepared(engine, self.space.units)
        return self._brought[engine.device_key]

    def _prepared(self, engine: Engine, units: Array) -> Columns:
        space, unit = self.space, engine.array(units)
        loadings = engine.array(space.loadings) / unit[:, None]
        noise = engine.array(space.noise_variance) / unit / unit
        spread = None if space.spread is None else engine.array(space.spread) / (unit * unit)[:, None]
        return engine.prepare_columns(engine.array(space.mean), loadings, noise, spread, unit, exact=True)

    @cached_property
    def _brought(self) -> dict[Any, Columns]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"space": replace(self.space, column_ids=None)}  # what else there is need not travel

    def _solve(self, panel: PanelLike, keep: Callable[[Array, Array], tuple[Array, ...]]) -> tuple[Array, ...]:
        def solve(rows: Panel) -> list[tuple[Array, ...]]:
            engine = engine_for(rows)
            return [keep(*_split(halves)) for halves in engine.row_posteriors(self.columns_on(engine))]

        blocks = [block for _, _, solved in panel.by_shards(solve) for block in solved]
        return tuple(np.concatenate(block) for block in zip(*blocks, strict=True))


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Algorithm 2: a row projected on the row space through its observed entries.

    >>> predictor = LeastSquares(np.array([[0.6], [0.8]]))
    >>> predictor.impute(Panel.from_dense([[3.0, np.nan]]))
    array([[3., 4.]])
    """

    basis: Array  # U_r, d × r, orthonormal columns

    def coordinates(self, panel: PanelLike) -> Array:
        """q of every row."""
        return np.concatenate([q for _, _, q in panel.by_shards(self._coordinates)])

    def _coordinates(self, panel: Panel) -> Array:
        """In blocks of rows of which each takes as many numbers on the way as the basis has."""
        given = (panel.columns, panel.values.astype(np.float64), self.basis)
        blocks = cut(panel.indptr + np.arange(panel.n_rows + 1), max(1, CHUNK // max(1, self.basis.size)))
        parts = in_order(lambda block: cpu.least_squares(panel.indptr[block[0] : block[1] + 1], *given), blocks)
        return np.concatenate(list(parts))

    def impute(self, panel: PanelLike) -> Array:
        """Every row filled in; observed entries stay as they are."""
        return np.concatenate([filled for _, _, filled in panel.by_shards(self._impute)])

    def _impute(self, panel: Panel) -> Array:
        filled: Array = self.coordinates(panel) @ self.basis.T
        filled[observed_positions(panel)] = panel.values
        return filled

    def impute_at(self, panel: PanelLike, rows: Array, columns: Array) -> Array:
        """Predictions at positions, whether or not they were observed."""
        if len(rows) == 0:
            return np.empty(0)
        asked, back = np.unique(rows, return_inverse=True)
        q = self.coordinates(panel.take_rows(asked))
        return np.asarray(np.einsum("ka,ka->k", q[back], self.basis[columns]))


def _split(halves: Array) -> tuple[Array, Array]:
    """q and S from the halves over (1, z) in which engines hand them out."""
    full = from_half(halves)
    return full[:, 0, 1:].copy(), full[:, 1:, 1:].copy()


def _traces(q: Array, covariance: Array) -> Array:
    """E[q̃ q̃ᵀ] of each row as a lower half that gives tr(V E[q̃ q̃ᵀ]) when multiplied with that of V."""
    one = np.column_stack([np.ones(len(q)), q])
    moments = one[:, :, None] * one[:, None, :]
    moments[:, 1:, 1:] += covariance
    rows, columns = np.tril_indices(one.shape[1])
    return np.asarray(moments[:, rows, columns] * np.where(rows == columns, 1.0, 2.0))


def check_positions(panel: PanelLike, rows: Any, columns: Any) -> tuple[Array, Array]:
    """Row and column positions as integer arrays of one length, inside the panel."""
    rows, columns = np.atleast_1d(np.asarray(rows)), np.atleast_1d(np.asarray(columns))
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise InputError(f"rows and columns must be two lists of one length; found {rows.shape}, {columns.shape}")
    return checked_positions(rows, panel.n_rows, "row"), checked_positions(columns, panel.n_columns, "column")


def observed_positions(panel: Panel) -> tuple[Array, Array]:
    """The row and the column of every entry."""
    return np.repeat(np.arange(panel.n_rows), panel.row_counts), panel.columns
