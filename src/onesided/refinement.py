"""Variational passes: the moment solution refined, with rows integrated out and every variance estimated.

    v_uj = c_j + a_u + x_jᵀq_u + ε,   var ε = ψ_j,   a ~ N(0, τ²),   q ~ N(0, I),   (c_j, x_j) ~ N(m, Σ)

The posterior is taken as a product over rows and columns. One pass updates the rows z = (a/τ, q) given the columns
(:func:`onesided.kernels.reference.row_posterior`), sums what they tell about the columns, and is followed by

    columns:  (c_j, x_j) regressed on (1, q) with E[z zᵀ] in place of z zᵀ, prior N(m, Σ); V_j its covariance
    rows:     z shifted and rotated so that they have mean zero and covariance I again; c, τ, x and V follow
    priors:   m and Σ, the mean and covariance of (c_j, x_j) over columns, V_j included
    noise:    ψ_j from expected squared residuals, pulled to their mean ψ as by k entries, with a floor

k is large where columns have much the same residuals, or values heavy tails (:mod:`onesided.pooling`). Columns are
taken to differ at least as much as their variances did before anything was fitted: in the first passes, what is not
known yet about columns would hide how they differ.

With no factor to tell columns apart, all weigh alike, by the mean of ψ, until means and τ are found: weights 1/ψ_j
would follow the skewness of the values (columns of low mean and high variance count for little), not their precision.

Rows of weight zero are left out, so folds are weights. The shift matters: without it T would take the rows' mean
for part of their covariance. What is held at a time is O(d r²), and nothing is of size n r².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.engines.local import LocalEngine, single_blas_thread
from onesided.kernels import posterior
from onesided.kernels.reference import packed, unpacked
from onesided.panel import Panel
from onesided.pooling import pull, pulled, variance_between, variance_within
from onesided.row_space import NOISE_FLOOR, Center, Refinement, RowSpace, chunks, information, principal_rotation
from onesided.solvers.result import Progress

Array = npt.NDArray[Any]
Refine = Literal["auto", "none", "variational"]

PASSES = 40
TOLERANCE = 1e-3  # relative change in a pass of means and low-rank part, in Frobenius norm
LEAST_PULL = 20.0  # of the mean noise on that of a column, in entries: a few entries must not make it look exact
NOISE_PASSES = 5  # that only find each column's own noise, where all weighed alike before
START_NOISE = 0.1  # of the variance, at least: noise that starts too low takes many passes to rise
START_SPREAD = 0.05  # of the variance: a prior variance for directions that the start leaves empty
MEMORY = 1 << 29  # bytes beyond which "auto" leaves the moment solution as it is


def working_memory(n_columns: int, rank: int) -> int:
    """Bytes that refining needs beyond the panel: column covariances, what is made of them, sums of two threads."""
    size = rank + 2
    return 5 * 8 * n_columns * (size * (size + 1) // 2)


def refine(
    panel: Panel,
    start: RowSpace,
    *,
    center: Center,
    passes: int = PASSES,
    progress: Progress | None = None,
) -> RowSpace:
    """A row space refined by variational passes over the rows, those of weight zero left out.

    >>> from onesided import synthetic
    >>> from onesided.row_space import complete
    >>> truth = synthetic.linear_mixture(2000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 6, rng=1)
    >>> start = complete(panel, rank=2, center="none")
    >>> refined = refine(panel, start, center="none")
    >>> L = truth.second_moment()
    >>> [bool(np.linalg.norm(one.factor @ one.factor.T - L) < 0.05 * np.linalg.norm(L)) for one in (start, refined)]
    [False, True]
    """
    with single_blas_thread():
        rows = _Rows(panel, start.mean)
        if rows.size == 0:  # no variation: there is nothing to estimate a variance from
            return start
        columns = _Columns.start(start, rows, center)
        done, change = 0, 0.0
        for done in range(1, 1 + passes if columns.free.any() else 0):
            before = columns
            columns = columns.updated(*rows.sums(columns), rows)
            if progress is not None:
                progress(done, float(np.log(columns.noise).mean()))
            change = _change(before.moving(), columns.moving())
            if change < TOLERANCE and done > 1:
                break
        for _ in range(NOISE_PASSES if columns.alike else 0):
            columns = columns.with_own_noise(rows)
        return replace(columns.row_space(start, rows.placed), refinement=Refinement(done, change))


def _change(before: Array, after: Array) -> float:
    """‖AAᵀ − BBᵀ‖ / ‖BBᵀ‖ of what moves, from small products."""
    unit = float(np.max(np.abs(after))) or 1.0  # so that no fourth power can overflow or vanish
    before, after = before / unit, after / unit
    old, new, both = before.T @ before, after.T @ after, before.T @ after
    size = float(np.sum(new**2))
    difference = float(np.sum(old**2)) + size - 2 * float(np.sum(both**2))
    return float(np.sqrt(max(difference, 0.0) / size)) if size > 0 else 0.0


def _expected_squares(at: Array, V: Array, moments: Array, first: Array, squares: Array) -> Array:
    """Σ w E[(v − ỹᵀz̃)²] of each column, ỹ of mean ``at`` and covariance V, from sums over its rows."""
    explained = np.einsum("ja,jab,jb->j", at, moments, at) + np.sum(V * moments, axis=(1, 2))
    return np.asarray(squares - 2 * np.sum(at * first, axis=1) + explained)


class _Rows:
    """The rows that count, in blocks, and what can be said of them before the first pass."""

    def __init__(self, panel: Panel, mean: Array) -> None:
        entries = np.repeat(panel.row_weights, panel.row_counts)
        self.engine = LocalEngine(panel.indptr, panel.columns, panel.values, panel.row_weights, panel.n_columns)
        self.counts = np.bincount(panel.columns, entries, minlength=panel.n_columns)
        beside = np.repeat(panel.row_counts > 1, panel.row_counts)
        self.placed = np.bincount(panel.columns, entries * beside, minlength=panel.n_columns) > 0
        squares = (panel.values - mean[panel.columns]) ** 2
        self.size = float(entries @ squares) / float(entries.sum())
        if self.size > 0:
            relative = squares / self.size
            sums, of_squares = (
                np.bincount(panel.columns, entries * relative**power, minlength=panel.n_columns) for power in (1, 2)
            )
            self.within = variance_within(sums, of_squares, self.counts)
            self.between = variance_between(sums, self.counts, self.within)

    def noise(self, residual: Array, mean_noise: float) -> Array:
        """ψ_j from the columns' sums of expected squared residuals."""
        relative = residual / mean_noise
        between = max(self.between, variance_between(relative, self.counts, self.within))
        return mean_noise * pulled(relative, self.counts, pull(self.within, between, LEAST_PULL))

    def sums(self, columns: _Columns) -> tuple[Array, Array, Array, Array]:
        known = columns.known()
        second, first, squares, total = self.engine.sum(
            lambda block: posterior.posterior_sums(block.indptr, block.columns, block.values, block.weights, *known)
        )
        return second, first, squares, total


@dataclass(frozen=True, eq=False)
class _Columns:
    """The posterior of the columns: coordinates (c_j, y_j), y_j = (τ, x_j) or x_j, of which some are ``free``."""

    center: Array
    loadings: Array
    spread: Array  # V_j over (c_j, y_j), lower halves
    noise: Array
    free: Array
    prior_mean: Array
    prior_covariance: Array
    mean_noise: float
    floor: float
    alike: bool  # whether all columns weigh by the mean noise

    @classmethod
    def start(cls, start: RowSpace, rows: _Rows, center: Center) -> _Columns:
        effect = int(start.row_variance > 0)
        loadings = start.loadings
        d, k = loadings.shape
        free = np.ones(k + 1, dtype=bool)
        free[0], free[1 : 1 + effect] = center != "none", False
        columns = cls(
            start.mean,
            loadings,
            np.zeros((d, (k + 1) * (k + 2) // 2)),
            np.maximum(start.noise_variance, START_NOISE * rows.size),
            free,
            np.zeros(0),
            np.zeros((0, 0)),
            max(float(rows.counts @ start.noise_variance / rows.counts.sum()), START_NOISE * rows.size),
            NOISE_FLOOR * rows.size,
            start.factor.shape[1] == 0,
        )
        return columns._with_priors(rows, START_SPREAD)

    def moving(self) -> Array:
        """What a pass changes: the centers around their mean, and the loadings."""
        return np.column_stack([self.center - self.center.mean(), self.loadings])

    @property
    def weighed_by(self) -> Array:
        """The noise by which a pass weighs the columns."""
        return np.full_like(self.noise, self.mean_noise) if self.alike else self.noise

    def known(self) -> tuple[Array, Array, Array, Array]:
        """The columns as the kernels take them."""
        noise = self.weighed_by
        return self.center, self.loadings, 1 / noise, information(self.loadings, noise, self.spread)

    def updated(self, second: Array, first: Array, squares: Array, total: Array, rows: _Rows) -> _Columns:
        """The columns after a pass, given what the rows tell about them."""
        free, precision = self.free, 1 / self.weighed_by
        prior = np.linalg.inv(self.prior_covariance)
        center, loadings, spread = self.center.copy(), self.loadings.copy(), np.empty_like(self.spread)
        residual = np.empty_like(squares)
        for part in chunks(*self.spread.shape):
            moments = unpacked(second[part])
            at = np.column_stack([np.zeros(len(moments)), self.loadings[part]])
            at[:, free] = 0.0  # what is fixed explains its share first
            target = first[part] - np.einsum("jab,jb->ja", moments, at)
            expected = np.broadcast_to(self.prior_mean, (len(at), len(prior))).copy()
            if free[0]:
                expected[:, 0] -= self.center[part]  # c_j is sought as a change from where it was
            scale = precision[part, None]
            covariance = np.linalg.inv(prior + scale[:, :, None] * moments[:, free][:, :, free])
            solution = np.einsum("jab,jb->ja", covariance, expected @ prior + scale * target[:, free])
            at[:, free] = solution
            V = np.zeros_like(moments)
            V[:, np.outer(free, free)] = covariance.reshape(len(at), -1)
            residual[part] = _expected_squares(at, V, moments, first[part], squares[part])
            center[part] += at[:, 0]
            loadings[part] = at[:, 1:]
            spread[part] = packed(V)
        mean_noise = max(float(residual.sum() / rows.counts.sum()), self.floor)
        moved = replace(
            self,
            center=center,
            loadings=loadings,
            spread=spread,
            noise=np.maximum(rows.noise(residual, mean_noise), self.floor),
            mean_noise=mean_noise,
        )
        return moved._standardised(unpacked(total))._with_priors(rows)

    def with_own_noise(self, rows: _Rows) -> _Columns:
        """The same columns with the noise that each has when each is weighed by its own."""
        second, first, squares, _ = rows.sums(replace(self, alike=False))
        at = np.column_stack([np.zeros(len(first)), self.loadings])
        moments, V = unpacked(second), unpacked(self.spread)
        residual = _expected_squares(at, V, moments, first, squares)
        noise = rows.noise(residual, max(float(residual.sum() / rows.counts.sum()), self.floor))
        noise = np.maximum(noise, self.floor)
        if self.free[0]:
            V[:, 0, 0] = 1 / (1 / self.prior_covariance[0, 0] + moments[:, 0, 0] / noise)
        return replace(self, noise=noise, spread=packed(V))

    def _standardised(self, total: Array) -> _Columns:
        """With z = z̄ + Λz' in place of z, so that z' has mean zero and covariance I; Λ is upper triangular.

        Then a' is τ times the row effect still, the same for all columns, and uncorrelated with q'. Where columns
        have no center, z̄ has nowhere to go and stays.
        """
        moments = total[1:, 1:] / total[0, 0]
        shift = total[1:, 0] / total[0, 0] if self.free[0] else np.zeros(len(moments))
        moments = moments - np.outer(shift, shift)
        moments[np.diag_indices_from(moments)] *= 1 + 1e-9
        root = np.linalg.cholesky(moments[::-1, ::-1])[::-1, ::-1]
        change = np.zeros_like(total)
        change[0, 0], change[0, 1:], change[1:, 1:] = 1.0, shift, root.T
        spread = np.empty_like(self.spread)
        for part in chunks(*self.spread.shape):
            spread[part] = packed(change @ unpacked(self.spread[part]) @ change.T)
        return replace(self, center=self.center + self.loadings @ shift, loadings=self.loadings @ root, spread=spread)

    def _with_priors(self, rows: _Rows, least: float = 1e-9) -> _Columns:
        """The mean and covariance of (c_j, x_j) over the columns seen; ``least``, a share of the variance, is added."""
        seen = rows.counts > 0
        at = np.column_stack([self.center, self.loadings])[:, self.free][seen]
        mean = at.mean(axis=0)
        spread = unpacked(self.spread[seen].mean(axis=0))[np.ix_(self.free, self.free)]
        covariance = (at - mean).T @ (at - mean) / len(at) + spread
        diagonal = np.diag_indices_from(covariance)
        covariance[diagonal] = (1 + 1e-9) * covariance[diagonal] + least * rows.size
        return replace(self, prior_mean=mean, prior_covariance=covariance)

    def row_space(self, start: RowSpace, placed: Array) -> RowSpace:
        """As a row space, the factor in its principal axes; columns never seen beside another are not placed in it."""
        effect = int(start.row_variance > 0)
        loadings, noise = self.loadings.copy(), self.noise.copy()
        spread = self.spread.copy()
        alone = ~placed
        loadings[alone, effect:] = 0.0
        spread[alone, 1:] = 0.0
        noise[alone] += np.sum(self.loadings[alone, effect:] ** 2, axis=1)
        noise[alone] += np.trace(unpacked(self.spread[alone])[:, 1:, 1:], axis1=1, axis2=2)
        rotation = principal_rotation(loadings[:, effect:])
        factor = loadings[:, effect:] @ rotation
        turn = np.eye(1 + loadings.shape[1])
        turn[1 + effect :, 1 + effect :] = rotation.T
        for part in chunks(*spread.shape):
            spread[part] = packed(turn @ unpacked(spread[part]) @ turn.T)
        tau = float(loadings[0, 0]) if effect else 0.0
        return replace(start, mean=self.center, factor=factor, row_variance=tau**2, noise_variance=noise, spread=spread)
