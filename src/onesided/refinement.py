"""Variational passes: the moment solution refined, with rows integrated out and every variance estimated.

    v_uj = c_j + a_u + x_jᵀq_u + ε,   var ε = ψ_j,   a ~ N(0, τ²),   q ~ N(0, I),   (c_j, x_j) ~ N(m, Σ)

The posterior is taken as a product over rows and columns. One pass updates the rows z = (a/τ, q) given the columns
(:func:`onesided.kernels.reference.row_posterior`), sums what they tell about the columns, and is followed by

    columns:  (c_j, x_j) regressed on (1, q) with E[z zᵀ] in place of z zᵀ, prior N(m, Σ); V_j its covariance
    priors:   m and Σ, the mean and covariance of (c_j, x_j) over columns, V_j included; those of rows likewise
    noise:    ψ_j from expected squared residuals, pulled to their mean ψ as by k entries, with a floor

k is large where columns have much the same residuals, or values heavy tails (:mod:`onesided.pooling`). Columns are
taken to differ at least as much as their variances did before anything was fitted: in the first passes, what is not
known yet about columns would hide how they differ.

With no factor to tell columns apart, all weigh alike, by the mean of ψ, until means and τ are found: weights 1/ψ_j
would follow the skewness of the values (columns of low mean and high variance count for little), not their precision.

The rows' mean and covariance z̄ and Λ are carried along; only at the end are z shifted and rotated so that they have
mean zero and covariance I again, and c, τ, x and V follow. The shift matters: without it T would take the rows' mean
for part of their covariance. Rows of weight zero are left out, so folds are weights. What is held at a time is O(d r²),
and nothing is of size n r²: some rows at a time are solved, and then tell all columns what they have to tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.checkpoint import NOWHERE, Work
from onesided.engines.local import Run, cut, in_order, single_blas_thread, workers
from onesided.kernels import cpu, posterior
from onesided.kernels.reference import packed, unpacked
from onesided.panel import Panel
from onesided.pooling import pull, pulled, variance_between, variance_within
from onesided.row_space import NOISE_FLOOR, Center, Refinement, RowSpace, chunks, known_columns, principal_rotation
from onesided.solvers.result import Progress
from onesided.tallies import largest_value, tally

Array = npt.NDArray[Any]
Refine = Literal["auto", "none", "variational"]

PASSES = 40
TOLERANCE = 1e-3  # relative change in a pass of means and low-rank part, in Frobenius norm
LEAST_PULL = 20.0  # of the mean noise on that of a column, in entries: a few entries must not make it look exact
NOISE_PASSES = 5  # that only find each column's own noise, where all weighed alike before
START_NOISE = 0.1  # of the variance, at least: noise that starts too low takes many passes to rise
START_SPREAD = 0.05  # of the variance: a prior variance for directions that the start leaves empty
HELD = 1 << 22  # numbers of rows that are solved at a time: enough that a column is met often, few enough for cache
PIECES = 16  # into which the rows that are held are cut for threads
MOVING = (  # what a pass changes of the columns
    "center",
    "loadings",
    "spread",
    "noise",
    "row_mean",
    "row_covariance",
    "prior_mean",
    "prior_covariance",
    "mean_noise",
)
MEMORY = 1 << 29  # bytes beyond which "auto" leaves the moment solution as it is


def working_memory(n_columns: int, rank: int) -> int:
    """Bytes that refining needs beyond the panel: V_j before and after, information, sums, and what is made of them.

    >>> working_memory(100_000, 10) <= MEMORY < working_memory(100_000, 16)  # what "auto" refines, and what it does not
    True
    """
    size = rank + 2
    return 5 * 8 * n_columns * (size * (size + 1) // 2)


def refine(
    panel: Panel,
    start: RowSpace,
    *,
    center: Center,
    passes: int = PASSES,
    progress: Progress | None = None,
    work: Work = NOWHERE,
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
        rows = Rows(panel, start.mean)
        if rows.unit == 0:  # no variation: there is nothing to estimate a variance from
            return start
        columns = _Columns.start(start, rows, center)
        done, change, noise_passes = 0, np.inf, NOISE_PASSES if columns.alike else 0
        if (before := work.load("refine")) is not None:
            done, change, noise_passes = (before.pop(name) for name in ("done", "change", "noise_passes"))
            columns = replace(columns, **before)

        def save() -> None:
            ahead = {"done": done, "change": change, "noise_passes": noise_passes}
            work.save("refine", {name: getattr(columns, name) for name in MOVING} | ahead)

        while columns.free.any() and done < passes and not (done > 1 and change < TOLERANCE):
            last = columns.moving()
            columns = columns.updated(rows.sums(columns.known(rows.dtype)), rows)
            done, change = done + 1, _change(last, columns.moving())
            save()
            if progress is not None:
                progress(done, float(np.log(columns.noise).mean()))
        while noise_passes > 0:
            columns, noise_passes = columns.with_own_noise(rows), noise_passes - 1
            save()
        found = columns.row_space(start, rows.placed)
        return replace(found, refinement=Refinement(done, change if done else 0.0))


def _change(before: Array, after: Array) -> float:
    """‖AAᵀ − BBᵀ‖ / ‖BBᵀ‖ of what moves, from small products."""
    unit = float(np.max(np.abs(after))) or 1.0  # so that no fourth power can overflow or vanish
    before, after = before / unit, after / unit
    old, new, both = before.T @ before, after.T @ after, before.T @ after
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
    """

    def __init__(self, panel: Panel, mean: Array) -> None:
        active = np.flatnonzero((panel.row_weights > 0) & (panel.row_counts > 0))
        self.starts, self.stops = panel.indptr[:-1][active], panel.indptr[1:][active]
        self.weights, self.columns, self.values = panel.row_weights[active], panel.columns, panel.values
        unit = largest_value(panel) or 1.0
        own = tally(panel, mean, unit)
        size = float(np.sqrt(own.mean_square))
        self.unit, self.counts, self.placed = unit * size, own.counts, own.beside > 0
        if size > 0:
            own = own.in_units_of(size)
            self.within = variance_within(own.squares, own.fourths, self.counts)
            self.between = variance_between(own.squares, self.counts, self.within)

    def noise(self, residual: Array, mean_noise: float) -> Array:
        """ψ_j from the columns' sums of expected squared residuals."""
        relative = residual / mean_noise
        between = max(self.between, variance_between(relative, self.counts, self.within))
        return mean_noise * pulled(relative, self.counts, pull(self.within, between, LEAST_PULL))

    @property
    def dtype(self) -> Any:
        """The precision to work in."""
        return self.values.dtype.type

    def sums(self, known: tuple[Any, ...]) -> Sums:
        """What rows tell about columns (:func:`onesided.kernels.reference.posterior_sums`)."""
        sums = Sums.none(known)
        held = np.concatenate([[0], np.cumsum(sums.second.shape[1] + 2 * (self.stops - self.starts))])
        with workers() as run:
            for first, last in cut(held, HELD):
                parts = [slice(*part) for part in cut(held[first : last + 1], HELD // PIECES)]
                self._tell(run, slice(first, last), parts, known, sums)
        return sums

    def _tell(self, run: Run, rows: slice, parts: list[slice], known: tuple[Any, ...], sums: Sums) -> None:
        """Solve some rows, part by part, and add what they tell to the sums."""
        starts, stops, weights, k = self.starts[rows], self.stops[rows], self.weights[rows], known[-1]
        entries, information = (self.columns, self.values), known[4]
        moments, means = (
            cpu.padded(information[:0, :0], one.shape[1], len(starts)) for one in (sums.second, sums.first)
        )
        for c in range(0, information.shape[1], posterior.GROUP // information.itemsize):
            add = partial(posterior.add_information, columns=self.columns, information=information, c=c)
            run([partial(add, starts=starts[at], stops=stops[at], halves=moments[at]) for at in parts])

        def solve(at: slice) -> Any:
            posterior.solve_rows(starts[at], stops[at], *entries, *known, moments[at])
            return posterior.row_moments(moments[at], weights[at], k, means[at])

        by_column = partial(posterior.entries_by_column, starts, stops, *entries, *known[:2])
        (met, begins, *entries_of), *totals = run([by_column, *(partial(solve, at) for at in parts)])
        for total in totals:
            sums.total[:] += total
        told = (moments, means, sums.second, sums.first, sums.squares)
        run(
            [
                partial(posterior.column_sums, met[low:high], begins[low : high + 1], *entries_of, *told)
                for low, high in cut(begins, max(1, int(begins[-1]) // PIECES))
            ]
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """What a pass adds up; lines are wider than they need be, as the kernels have them."""

    second: Array  # Σ w E[z̃ z̃ᵀ] of each column, lower halves, in the precision of the panel
    first: Array  # Σ w e E[z̃]
    squares: Array  # Σ w e²
    total: Array  # Σ w E[z̃ z̃ᵀ] over all rows

    @classmethod
    def none(cls, known: tuple[Any, ...]) -> Sums:
        center, information, k = known[1], known[4], known[-1]
        wide = cpu.padded(information[:0, :0], k + 1).shape[1]
        second = cpu.padded(information[:, :0], information.shape[1])
        d = len(center)
        return cls(second, np.zeros((d, wide)), np.zeros(d), np.zeros((k + 1) * (k + 2) // 2))


@dataclass(frozen=True, eq=False)
class _Columns:
    """The posterior of the columns: coordinates (c_j, y_j), y_j = (τ, x_j) or x_j, of which some are ``free``."""

    center: Array
    unit: float  # of all but the center
    loadings: Array
    spread: Array  # V_j over (c_j, y_j), lower halves, in the precision of the panel
    noise: Array
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
        columns = cls(
            start.mean,
            rows.unit,
            loadings,
            np.zeros((d, (k + 1) * (k + 2) // 2), rows.values.dtype),
            np.maximum(noise, START_NOISE),
            free,
            np.zeros(k),
            np.eye(k),
            np.zeros(0),
            np.zeros((0, 0)),
            max(float(rows.counts @ noise / rows.counts.sum()), START_NOISE),
            NOISE_FLOOR,
            start.factor.shape[1] == 0,
        )
        return columns._with_priors(rows, START_SPREAD)

    def moving(self) -> Array:
        """What a pass changes: the centers around their mean, and the loadings, for standard rows."""
        center = self.center / self.unit + self.loadings @ self.row_mean
        return np.column_stack([center - center.mean(), self.loadings @ _root(self.row_covariance)])

    @property
    def weighed_by(self) -> Array:
        """The noise by which a pass weighs the columns."""
        return np.full_like(self.noise, self.mean_noise) if self.alike else self.noise

    def known(self, dtype: Any) -> tuple[Any, ...]:
        """As the kernels take it."""
        rows = (self.row_mean, self.row_covariance, self.unit)
        return known_columns(self.center, self.loadings, self.weighed_by, self.spread, dtype, *rows)

    def updated(self, sums: Sums, rows: Rows) -> _Columns:
        """The columns after a pass, given what the rows tell about them."""
        precision = 1 / self.weighed_by
        prior = np.zeros((len(self.free), len(self.free)))
        prior[np.ix_(self.free, self.free)] = np.linalg.inv(self.prior_covariance)
        expected = np.zeros(len(self.free))
        expected[self.free] = self.prior_mean
        fixed = np.column_stack([np.zeros(len(self.center)), self.loadings])
        fixed[:, self.free] = 0.0  # what is fixed explains its share first
        pull = np.tile(prior @ expected, (len(self.center), 1))
        if self.free[0]:
            pull -= np.outer(self.center / self.unit, prior[0])  # c_j is sought as a change from where it was

        def update(part: slice) -> Any:
            told = (sums.second[part], sums.first[part], sums.squares[part])
            return posterior.column_posterior(*told, fixed[part], self.free, precision[part], prior, pull[part])

        parts = list(chunks(*self.spread.shape))
        at, residual, spread = fixed, np.empty_like(sums.squares), np.empty_like(self.spread)
        for part, found in zip(parts, in_order(update, parts), strict=True):
            at[part], spread[part], residual[part] = found
        mean_noise = max(float(residual.sum() / rows.counts.sum()), self.floor)
        moments = unpacked(sums.total) / sums.total[0]
        shift = moments[1:, 0] if self.free[0] else np.zeros(len(moments) - 1)  # else it has nowhere to go, and stays
        return replace(
            self,
            center=self.center + self.unit * at[:, 0],
            loadings=at[:, 1:].copy(),
            spread=spread,
            noise=np.maximum(rows.noise(residual, mean_noise), self.floor),
            mean_noise=mean_noise,
            row_mean=shift,
            row_covariance=moments[1:, 1:] - np.outer(shift, shift),
        )._with_priors(rows)

    def with_own_noise(self, rows: Rows) -> _Columns:
        """The same columns with the noise that each has when each is weighed by its own."""
        sums = rows.sums(replace(self, alike=False).known(rows.dtype))
        at = np.column_stack([np.zeros(len(self.center)), self.loadings])
        moments, V = (unpacked(half[:, : self.spread.shape[1]].astype(float)) for half in (sums.second, self.spread))
        residual = sums.squares - 2 * np.sum(at * sums.first[:, : at.shape[1]], axis=1)
        residual += np.einsum("ja,jab,jb->j", at, moments, at) + np.sum(V * moments, axis=(1, 2))
        noise = rows.noise(residual, max(float(residual.sum() / rows.counts.sum()), self.floor))
        noise = np.maximum(noise, self.floor)
        if self.free[0]:
            V[:, 0, 0] = 1 / (1 / self.prior_covariance[0, 0] + moments[:, 0, 0] / noise)
        return replace(self, noise=noise, spread=packed(V).astype(self.spread.dtype))

    def _with_priors(self, rows: Rows, least: float = 1e-9) -> _Columns:
        """The mean and covariance of (c_j, x_j) over the columns seen; ``least``, a share of the variance, is added."""
        seen = rows.counts > 0
        at = np.column_stack([self.center / self.unit, self.loadings])[:, self.free][seen]
        mean = at.mean(axis=0)
        spread = unpacked(self.spread.mean(axis=0, dtype=np.float64, where=seen[:, None]))[np.ix_(self.free, self.free)]
        covariance = (at - mean).T @ (at - mean) / len(at) + spread
        diagonal = np.diag_indices_from(covariance)
        covariance[diagonal] = (1 + 1e-9) * covariance[diagonal] + least
        return replace(self, prior_mean=mean, prior_covariance=covariance)

    def row_space(self, start: RowSpace, placed: Array) -> RowSpace:
        """As a row space, with z = z̄ + Λ^½ z' in place of z, so that z' has mean zero and covariance I.

        As the root is upper triangular, a' is τ times the row effect still, the same for all columns. The factor is
        then turned to its principal axes. Columns never seen beside another are not placed in it.
        """
        k, effect, alone = len(self.row_mean), int(start.row_variance > 0), ~placed
        root, noise, spread = _root(self.row_covariance), self.noise.copy(), np.empty(self.spread.shape)
        loadings = self.loadings @ root
        noise[alone] += np.sum(loadings[alone, effect:] ** 2, axis=1)
        loadings[alone, effect:] = 0.0
        rotation = principal_rotation(loadings[:, effect:])
        change, turn = np.eye(k + 1), np.eye(k + 1)
        change[0, 1:], change[1:, 1:], turn[1 + effect :, 1 + effect :] = self.row_mean, root.T, rotation.T
        change = turn @ change
        for part in chunks(*self.spread.shape):
            V = change @ unpacked(self.spread[part]) @ change.T
            noise[part] += np.where(alone[part], np.trace(V[:, 1:, 1:], axis1=1, axis2=2), 0.0)
            spread[part] = packed(V) * self.unit * self.unit
        spread[alone, 1:] = 0.0
        tau = float(loadings[0, 0]) * self.unit if effect else 0.0
        return replace(
            start,
            mean=self.center + self.unit * (self.loadings @ self.row_mean),
            factor=self.unit * (loadings[:, effect:] @ rotation),
            row_variance=tau**2,
            noise_variance=noise * self.unit * self.unit,
            spread=spread,
        )
