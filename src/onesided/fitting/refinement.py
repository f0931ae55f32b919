"""Variational passes: the moment solution refined, with rows integrated out and every variance estimated.

    v_uj = c_j + a_u + x_jᵀq_u + ε,   var ε = ψ_j,   a ~ N(0, τ²),   q ~ N(0, I),   (c_j, x_j) ~ N(m, Σ)

The posterior is taken as a product over rows and columns. One pass updates the rows z = (a/τ, q) given the columns
(:func:`onesided.kernels.reference.row_posterior`), accumulates the columns' sufficient statistics, and is followed by

    columns:  (c_j, x_j) regressed on (1, q) with E[z zᵀ] in place of z zᵀ, prior N(m, Σ); V_j its covariance
    priors:   m and Σ, the mean and covariance of (c_j, x_j) over columns, V_j included; those of rows likewise
    noise:    ψ_j from expected squared residuals, shrunk to their mean ψ as by k entries, with a floor

k is large where columns have much the same residuals, or values heavy tails (:mod:`onesided.model.shrinkage`). Columns
are taken to differ at least as much as their variances did before anything was fitted: in the first passes, what is not
known yet about columns would hide how they differ.

With no factor to tell columns apart, all weigh alike, by the mean of ψ, until means and τ are found: weights 1/ψ_j
would follow the skewness of the values (columns of low mean and high variance count for little), not their precision.

The rows' mean and covariance z̄ and Λ are carried along; only at the end are z shifted and rotated so that they have
mean zero and covariance I again, and c, τ, x and V follow. The shift matters: without it T would take the rows' mean
for part of their covariance. Rows of weight zero are left out, so folds are weights. What is held at a time is O(d r²),
and nothing is of size n r²: some rows at a time are solved, and then added to the columns' sufficient statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onesided.arrays import Array, host, like, namespace
from onesided.engines.cpu import chunks
from onesided.engines.engine import engine_for
from onesided.engines.threads import single_blas_thread
from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.fitting.setting import Center, Fit, Refinement
from onesided.fitting.solvers.result import Progress
from onesided.kernels.bundles import Columns, Sums
from onesided.kernels.reference import from_half
from onesided.model.axes import principal_rotation
from onesided.model.row_space import RowSpace
from onesided.model.shrinkage import shrinkage, shrunk, variance_between, variance_within
from onesided.pairs.column_sums import column_sums
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import NOWHERE, Work

Refine = Literal["auto", "none", "variational"]

PASSES = 40
TOLERANCE = 1e-3  # relative change in a pass of means and low-rank part, in Frobenius norm
LEAST_SHRINKAGE = 20.0  # of the mean noise on that of a column, in entries: a few entries must not make it look exact
NOISE_PASSES = 5  # that only find each column's own noise, where all weighed alike before
START_NOISE = 0.1  # of the variance, at least: noise that starts too low takes many passes to rise
START_VARIANCE = 0.05  # of the variance: a prior variance for directions that the start leaves empty
MOVING_THERE = ("center", "loadings", "spread", "noise")  # what a pass changes of the columns, where it runs,
MOVING_HERE = ("row_mean", "row_covariance", "prior_mean", "prior_covariance", "mean_noise")  # and on the host
MEMORY = 1 << 29  # bytes beyond which "auto" leaves the moment solution as it is


def working_memory(n_columns: int, rank: int) -> int:
    """Bytes that refining needs beyond the panel: V_j before and after, information, sums, and what is made of them.

    >>> working_memory(100_000, 10) <= MEMORY < working_memory(100_000, 16)  # what "auto" refines, and what it does not
    True
    """
    size = rank + 2
    return 5 * 8 * n_columns * (size * (size + 1) // 2)


def refine(
    panel: PanelLike,
    solution: Fit,
    *,
    center: Center,
    passes: int = PASSES,
    progress: Progress | None = None,
    work: Work = NOWHERE,
) -> Fit:
    """A moment solution refined by variational passes over the rows, those of weight zero left out.

    >>> from onesided import synthetic
    >>> from onesided.fitting.moment_solution import moment_solution
    >>> from onesided.fitting.setting import Setting
    >>> truth = synthetic.linear_mixture(2000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 6, rng=1)
    >>> solution = moment_solution(panel, Setting(2, center="none"))
    >>> refined = refine(panel, solution, center="none")
    >>> L, factors = truth.second_moment(), [fit.row_space.factor for fit in (solution, refined)]
    >>> [bool(np.linalg.norm(X @ X.T - L) < 0.05 * np.linalg.norm(L)) for X in factors]
    [False, True]
    """
    start = solution.row_space
    with single_blas_thread():
        rows = Rows(panel, start.mean)
        if rows.unit == 0:  # no variation: there is nothing to estimate a variance from
            return solution
        columns = _Columns.start(start, rows, center)
        done, change, noise_passes = 0, np.inf, NOISE_PASSES if columns.alike else 0
        if (before := work.load("refine")) is not None:
            done, change, noise_passes = (before.pop(name) for name in ("done", "change", "noise_passes"))
            before |= {name: like(columns.center, before[name]) for name in MOVING_THERE}
            columns = replace(columns, **before)

        def save() -> None:
            if work.kept:
                there = {name: host(getattr(columns, name)) for name in MOVING_THERE}
                here = {name: getattr(columns, name) for name in MOVING_HERE}
                work.save("refine", there | here | {"done": done, "change": change, "noise_passes": noise_passes})

        while columns.free.any() and done < passes and not (done > 1 and change < TOLERANCE):
            last = columns.moving()
            columns = columns.updated(rows.engine.posterior_sums(columns.prepared(rows)), rows)
            done, change = done + 1, _change(last, columns.moving())
            save()
            if progress is not None:
                progress(done, float(namespace(columns.noise).log(columns.noise).mean()))
        while noise_passes > 0:
            columns, noise_passes = columns.with_own_noise(rows), noise_passes - 1
            save()
        ended = Refinement(done, change if done else 0.0)
        return replace(solution, row_space=columns.row_space(start, rows.placed), refinement=ended)


def _change(before: Any, after: Any) -> float:
    """‖AAᵀ − BBᵀ‖ / ‖BBᵀ‖ of what moves, from small products."""
    unit = float(abs(after).max()) or 1.0  # so that no fourth power can overflow or vanish
    before, after = before / unit, after / unit
    old, new, both = map(host, (before.T @ before, after.T @ after, before.T @ after))
    size = float(np.sum(new**2))
    difference = float(np.sum(old**2)) + size - 2 * float(np.sum(both**2))
    return float(np.sqrt(max(difference, 0.0) / size)) if size > 0 else 0.0


def _root(covariance: Array) -> Array:
    """Its upper triangular root: R Rᵀ."""
    covariance = covariance.copy()
    covariance[np.diag_indices_from(covariance)] *= 1 + 1e-9
    return np.asarray(np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1])


class Rows:
    """The rows that count, and what can be said of them before the first pass.

    Values are measured in ``unit``, their root mean square around the means, so that single precision can hold sums.
    What is of columns lies where passes run.
    """

    def __init__(self, panel: PanelLike, mean: Array) -> None:
        self.engine = engine_for(panel)
        unit = self.engine.largest_value() or 1.0
        own = column_sums(self.engine, self.engine.array(mean), unit)
        size = float(np.sqrt(own.mean_square))
        self.unit, self.counts, self.placed = unit * size, own.counts, own.beside > 0
        if size > 0:
            own = own.in_units_of(size)
            self.within = variance_within(own.squares, own.fourths, self.counts)
            self.between = variance_between(own.squares, self.counts, self.within)

    def noise(self, residual: Any, mean_noise: float) -> Any:
        """ψ_j from the columns' sums of expected squared residuals."""
        relative = residual / mean_noise
        between = max(self.between, variance_between(relative, self.counts, self.within))
        return mean_noise * shrunk(relative, self.counts, shrinkage(self.within, between, LEAST_SHRINKAGE))


@dataclass(frozen=True, eq=False)
class _Columns:
    """The posterior of the columns: coordinates (c_j, y_j), y_j = (τ, x_j) or x_j, of which some are ``free``."""

    center: Any
    unit: float  # of all but the center
    loadings: Any
    spread: Any  # V_j over (c_j, y_j), lower halves, in the precision of the panel
    noise: Any
    free: Array
    row_mean: Array  # z̄
    row_covariance: Array  # Λ
    prior_mean: Array
    prior_covariance: Array
    mean_noise: float
    floor: float
    alike: bool  # whether all columns weigh by the mean noise

    @classmethod
    def start(cls, start: RowSpace, rows: Rows, center: Center) -> _Columns:
        effect = int(start.row_variance > 0)
        loadings, noise = start.loadings / rows.unit, start.noise_variance / rows.unit / rows.unit
        d, k = loadings.shape
        free = np.ones(k + 1, dtype=bool)
        free[0], free[1 : 1 + effect] = center != "none", False
        array = rows.engine.array
        columns = cls(
            array(start.mean),
            rows.unit,
            array(loadings),
            like(rows.counts, np.zeros((d, (k + 1) * (k + 2) // 2), rows.engine.dtype)),
            array(np.maximum(noise, START_NOISE)),
            free,
            np.zeros(k),
            np.eye(k),
            np.zeros(0),
            np.zeros((0, 0)),
            max(float(rows.counts @ array(noise) / rows.counts.sum()), START_NOISE),
            NOISE_FLOOR,
            start.factor.shape[1] == 0,
        )
        return columns._with_priors(rows, START_VARIANCE)

    @property
    def xp(self) -> Any:
        return namespace(self.center)

    def moving(self) -> Any:
        """What a pass changes: the centers around their mean, and the loadings, for standard rows."""
        center = self.center / self.unit + self.loadings @ like(self.center, self.row_mean)
        turned = self.loadings @ like(self.center, _root(self.row_covariance))
        return self.xp.column_stack([center - center.mean(), turned])

    @property
    def weighed_by(self) -> Any:
        """The noise by which a pass weighs the columns."""
        return self.xp.full_like(self.noise, self.mean_noise) if self.alike else self.noise

    def prepared(self, rows: Rows) -> Columns:
        """As passes take them."""
        of_rows = (self.row_mean, self.row_covariance, self.unit)
        return rows.engine.prepare_columns(self.center, self.loadings, self.weighed_by, self.spread, *of_rows)

    def updated(self, sums: Sums, rows: Rows) -> _Columns:
        """The columns after a pass, given the rows' sufficient statistics."""
        precision = 1 / self.weighed_by
        prior = np.zeros((len(self.free), len(self.free)))
        prior[np.ix_(self.free, self.free)] = np.linalg.inv(self.prior_covariance)
        expected = np.zeros(len(self.free))
        expected[self.free] = self.prior_mean
        fixed = self.xp.column_stack([self.xp.zeros_like(self.center), self.loadings])
        fixed[:, self.free] = 0.0  # what is fixed explains its share first
        linear = self.xp.zeros_like(fixed) + like(self.center, prior @ expected)
        if self.free[0]:  # c_j is sought as a change from where it was
            linear -= (self.center / self.unit)[:, None] * like(self.center, prior[0])
        at, spread, residual = rows.engine.column_posterior(sums, fixed, self.free, precision, prior, linear)
        mean_noise = max(float(residual.sum() / rows.counts.sum()), self.floor)
        moments = from_half(sums.total) / sums.total[0]
        shift = moments[1:, 0] if self.free[0] else np.zeros(len(moments) - 1)  # else it has nowhere to go, and stays
        return replace(
            self,
            center=self.center + self.unit * at[:, 0],
            loadings=self.xp.asarray(at[:, 1:], copy=True),
            spread=spread,
            noise=rows.noise(residual, mean_noise).clip(self.floor),
            mean_noise=mean_noise,
            row_mean=shift,
            row_covariance=moments[1:, 1:] - np.outer(shift, shift),
        )._with_priors(rows)

    def with_own_noise(self, rows: Rows) -> _Columns:
        """The same columns with the noise that each has when each is weighed by its own."""
        sums = rows.engine.posterior_sums(replace(self, alike=False).prepared(rows))
        at = self.xp.column_stack([self.xp.zeros_like(self.center), self.loadings])
        a, c = np.tril_indices(at.shape[1])
        twice = like(at, np.where(a == c, 1.0, 2.0))
        moments = sums.second[:, : len(a)] * twice
        residual = sums.squares - 2 * (at * sums.first[:, : at.shape[1]]).sum(1)
        residual += (moments * (at[:, a] * at[:, c] + self.spread)).sum(1)
        noise = rows.noise(residual, max(float(residual.sum() / rows.counts.sum()), self.floor)).clip(self.floor)
        spread = self.xp.asarray(self.spread, copy=True)
        if self.free[0]:
            spread[:, 0] = 1 / (1 / self.prior_covariance[0, 0] + sums.second[:, 0] / noise)
        return replace(self, noise=noise, spread=spread)

    def _with_priors(self, rows: Rows, least: float = 1e-9) -> _Columns:
        """The mean and covariance of (c_j, x_j) over the columns seen; ``least``, a share of the variance, is added."""
        seen = rows.counts > 0
        at = self.xp.column_stack([self.center / self.unit, self.loadings])[:, self.free][seen]
        mean = at.mean(0)
        total = np.zeros(self.spread.shape[1])
        for part in chunks(*self.spread.shape):
            total += host(self.spread[part][seen[part]].sum(0, dtype=self.xp.float64))
        spread = from_half(total / len(at))[np.ix_(self.free, self.free)]
        covariance = host((at - mean).T @ (at - mean)) / len(at) + spread
        mean = host(mean)
        diagonal = np.diag_indices_from(covariance)
        covariance[diagonal] = (1 + 1e-9) * covariance[diagonal] + least
        return replace(self, prior_mean=mean, prior_covariance=covariance)

    def row_space(self, start: RowSpace, placed: Any) -> RowSpace:
        """As a row space, with z = z̄ + Λ^½ z' in place of z, so that z' has mean zero and covariance I.

        As the root is upper triangular, a' is τ times the row effect still, the same for all columns. The factor is
        then turned to its principal axes. Columns never seen beside another are not placed in it.
        """
        k, effect, alone = len(self.row_mean), int(start.row_variance > 0), ~placed
        root, noise = _root(self.row_covariance), self.xp.asarray(self.noise, copy=True)
        spread = self.xp.zeros_like(self.spread, dtype=self.xp.float64)
        loadings = self.loadings @ like(self.loadings, root)
        noise[alone] += (loadings[alone, effect:] ** 2).sum(1)
        loadings[alone, effect:] = 0.0
        rotation = principal_rotation(loadings[:, effect:])
        change, turn = np.eye(k + 1), np.eye(k + 1)
        change[0, 1:], change[1:, 1:], turn[1 + effect :, 1 + effect :] = self.row_mean, root.T, rotation.T
        change = like(loadings, turn @ change)
        a, c = np.tril_indices(k + 1)
        inside, whole = (a == c) & (a > 0), from_half(np.arange(len(a))).astype(np.int64)
        for part in chunks(*self.spread.shape):
            V = (change @ self.xp.asarray(self.spread[part], dtype=self.xp.float64)[:, whole] @ change.T)[:, a, c]
            noise[part] += self.xp.where(alone[part], V[:, inside].sum(1), 0.0)
            spread[part] = V * self.unit * self.unit
        spread[alone, 1:] = 0.0
        tau = float(loadings[0, 0]) * self.unit if effect else 0.0
        return replace(
            start,
            mean=host(self.center + self.unit * (self.loadings @ like(loadings, self.row_mean))),
            factor=host(self.unit * (loadings[:, effect:] @ like(loadings, rotation))),
            row_variance=tau**2,
            noise_variance=host(noise * self.unit * self.unit),
            spread=host(spread),
        )
