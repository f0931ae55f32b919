"""Variational passes: the moment solution refined, with rows integrated out and every variance estimated.

    v_uj = c_j + s_j a_u + x_jᵀq_u + ε,   var ε = ψ_j,   a ~ N(0, τ²),   q ~ N(0, I),
    (t_j (c_j − p_j level)/s_j, x_j/u_j) ~ N(m, Σ)

with s_j the columns' scales (:mod:`onesided.fitting.scales`). All is computed in units of s_j.

The posterior is taken as a product over rows and columns. One pass updates the rows z = (a/τ, q) given the columns
(:func:`onesided.kernels.reference.row_posterior`), accumulates the columns' sufficient statistics, and is followed by

    columns:  (c_j, x_j) regressed on (1, q) with E[z zᵀ] in place of z zᵀ and the prior above; V_j its covariance
    priors:   m and Σ, the mean and covariance over columns, V_j included; those of rows likewise
    noise:    ψ_j from expected squared residuals, shrunk to their mean (:mod:`onesided.fitting.noise`), with a floor

u_j is what loadings are in proportion to: the scale s_j, √ψ_j, or the mean of the two, whichever has the largest
−(d/2) log|Σ| − r Σ_j log u_j, which is what the bound has of it. Centers and loadings are taken as unrelated unless the
columns tell otherwise (:func:`_related`): moving columns by constants then does not move loadings. t_j is one, and less
for a center more than three standard deviations from the others, so that one of them does not widen the prior of all.

Where columns have fewer than ten entries on average and there is no factor, τ² stays what the moments say: passes take
columns for independent of rows, given the data, and would find too little of it. With no factor, all columns weigh
alike, by the mean of ψ, until means and τ are found: weights 1/ψ_j would follow the skewness of the values (columns of
low mean and high variance count for little), not their precision.

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
from onesided.engines.threads import single_blas_thread
from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.fitting.noise import Rows
from onesided.fitting.scales import AS_THEY_ARE, Scaling
from onesided.fitting.setting import REFINE_PASSES, Center, Fit, Refinement
from onesided.fitting.solvers.result import Progress
from onesided.kernels.bundles import Columns, Prior, Sums
from onesided.kernels.reference import from_half
from onesided.model.axes import principal_rotation
from onesided.model.row_space import RowSpace
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import NOWHERE, Work

Refine = Literal["auto", "none", "variational"]

TOLERANCE = 1e-3  # of means in standard deviations, and of loadings: it ends where a pass changes less
NOISE_PASSES = 5  # that only find each column's own noise, where all weighed alike before
START_NOISE = 0.1  # of the variance, at least: noise that starts too low takes many passes to rise
START_VARIANCE = 0.05  # of the variance: a prior variance for directions that the start leaves empty
POWERS = (0.0, 0.25, 0.5)  # of ψ_j, in what loadings are measured in by their prior: units s_j to √ψ_j
RARE = 10.0  # entries of a column, on average, below which passes would lose row effects
LEAST_EVIDENCE = 1e-6  # nats by which a power must be better than one before it
FAR = 9.0  # squared standard deviations of centers: one further away does not widen the prior of all
LEVELLING = 5  # rounds in which that is found to begin with; each pass makes one more
# What a pass changes of columns, where it runs, and on the host
MOVING_THERE = ("center", "loadings", "spread", "noise", "tightness")
MOVING_HERE = ("row_mean", "row_covariance", "prior_mean", "prior_covariance", "level", "directions", "mean_noise")
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
    scaling: Scaling = AS_THEY_ARE,
    passes: int = REFINE_PASSES,
    progress: Progress | None = None,
    work: Work = NOWHERE,
) -> Fit:
    """A moment solution refined by variational passes over the rows, those of weight zero left out.

    Given a refined fit of the same rows it goes on, up to ``passes`` in all, as if it had not ended.

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
    begun: _Begun = solution.to_go_on or _Begun(solution.row_space)
    start = begun.start
    with single_blas_thread():
        rows = Rows(panel, start.mean, scaling)
        if rows.unit == 0:  # no variation: there is nothing to estimate a variance from
            return solution
        columns = begun.columns or _Columns.start(start, rows, center)
        done, change, noise_passes = begun.done, begun.change, NOISE_PASSES if columns.alike else 0
        if (before := work.load("refine")) is not None:
            done, change, noise_passes = (before.pop(name) for name in ("done", "change", "noise_passes"))
            before |= {name: like(columns.center, before[name]) for name in MOVING_THERE}
            columns = replace(columns, **before)

        def save() -> None:
            if work.kept:
                there = {name: host(getattr(columns, name)) for name in MOVING_THERE}
                here = {name: getattr(columns, name) for name in MOVING_HERE}
                work.save("refine", there | here | {"done": done, "change": change, "noise_passes": noise_passes})

        last = columns.moving()
        while columns.free.any() and done < passes and not (done > 1 and change < TOLERANCE):
            columns = columns.updated(rows.engine.posterior_sums(columns.prepared(rows)), rows)
            moved = columns.moving()
            done, change, last = done + 1, _change(last, moved), moved
            save()
            if progress is not None:
                progress(done, float(namespace(columns.noise).log(columns.noise).mean()))
        to_go_on = _Begun(start, columns, done, change)
        while noise_passes > 0:
            columns, noise_passes = columns.with_own_noise(rows), noise_passes - 1
            save()
        ended = Refinement(done, float(change) if done else 0.0, bool(done == 0 or change < TOLERANCE))
        space = columns.row_space(start, rows)
        return replace(solution, row_space=space, refinement=ended, to_go_on=to_go_on)


def _change(before: tuple[Any, Any], after: tuple[Any, Any]) -> float:
    """What a pass changed, the larger of two: the root mean square change of centers, in units of the values' standard
    deviation, and ‖AAᵀ − BBᵀ‖ / 2‖BBᵀ‖ of the loadings, which is their own change, however they are turned."""
    (center, A), (moved, B) = before, after
    old, new, both = map(host, (A.T @ A, B.T @ B, A.T @ B))
    size = float(np.sum(new**2))
    difference = max(float(np.sum(old**2)) + size - 2 * float(np.sum(both**2)), 0.0)
    shift = float(((moved - center) ** 2).mean())
    return float(np.sqrt(max(shift, difference / (4 * size) if size > 0 else 0.0)))


def _root(covariance: Array) -> Array:
    """Its upper triangular root: R Rᵀ."""
    covariance = covariance.copy()
    covariance[np.diag_indices_from(covariance)] *= 1 + 1e-9
    return np.asarray(np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1])


def _related(covariance: Array, n: int) -> bool:
    """Whether n columns tell that centers and loadings go together, by the Bayesian information criterion."""
    if len(covariance) == 1 or covariance[0, 0] == 0:
        return False
    explained = covariance[0, 1:] @ np.linalg.lstsq(covariance[1:, 1:], covariance[1:, 0], rcond=None)[0]
    unexplained = max(1.0 - float(explained) / float(covariance[0, 0]), 1e-12)
    return bool(-n * np.log(unexplained) > (len(covariance) - 1) * np.log(n))


def _known(covariance: Array, spread: Array, first: int) -> float:
    """In how many directions columns are known: r − tr(Σ⁻¹V̄), of their covariance and of what is not known of each."""
    prior, unknown = covariance[first:, first:], spread[first:, first:]
    return len(prior) - float(np.trace(np.linalg.solve(prior, unknown)))


@dataclass(frozen=True, eq=False)
class _Begun:
    """How far a refinement is, and the moment solution that it started from."""

    start: RowSpace
    columns: _Columns | None = None
    done: int = 0
    change: float = float("inf")


@dataclass(frozen=True, eq=False)
class _Columns:
    """The posterior of the columns: coordinates (c_j, y_j), y_j = (τ, x_j) or x_j, of which some are ``free``."""

    center: Any
    units: Any  # s_j, of all but the center
    common: Any  # p_j
    loadings: Any
    spread: Any  # V_j over (c_j, y_j), lower halves, in the precision of the panel
    noise: Any
    free: Array
    row_mean: Array  # z̄
    row_covariance: Array  # Λ
    prior_mean: Array
    prior_covariance: Array
    level: float  # of the centers over p_j
    directions: float  # in which the columns' loadings are known
    tightness: Any  # t_j and 1/u_j
    mean_noise: float
    floor: float
    alike: bool  # whether all columns weigh by the mean noise

    @classmethod
    def start(cls, start: RowSpace, rows: Rows, center: Center) -> _Columns:
        effect, array = int(start.row_variance > 0), rows.engine.array
        loadings, noise = (
            array(start.loadings) / rows.units[:, None],
            array(start.noise_variance) / rows.units / rows.units,
        )
        d, k = loadings.shape
        free = np.ones(k + 1, dtype=bool)
        free[0], free[1 : 1 + effect] = center != "none", False
        mean, spread = array(start.mean), like(rows.counts, np.zeros((d, (k + 1) * (k + 2) // 2), rows.engine.dtype))
        if free[0]:
            mean, spread[:, 0] = rows.expected_means(mean)
        columns = cls(
            mean,
            rows.units,
            rows.common,
            loadings,
            spread,
            noise.clip(START_NOISE),
            free,
            np.zeros(k),
            np.eye(k),
            np.zeros(0),
            np.zeros((0, 0)),
            0.0,
            0.0,
            array(np.ones((d, 2))),
            max(float(rows.counts @ noise / rows.counts.sum()), START_NOISE),
            NOISE_FLOOR,
            start.factor.shape[1] == 0,
        )
        return columns._with_priors(rows, START_VARIANCE, LEVELLING)

    @property
    def xp(self) -> Any:
        return namespace(self.center)

    @property
    def rank(self) -> int:
        """Of the factor, without the row effect."""
        return int(np.count_nonzero(self.free[1:]))

    def moving(self) -> tuple[Any, Any]:
        """What a pass changes: centers and loadings, for standard rows, in units of the columns' scales."""
        center = self.center / self.units + self.loadings @ like(self.center, self.row_mean)
        return center, self.loadings @ like(self.center, _root(self.row_covariance))

    @property
    def weighed_by(self) -> Any:
        """The noise by which a pass weighs the columns."""
        return self.xp.full_like(self.noise, self.mean_noise) if self.alike else self.noise

    def prepared(self, rows: Rows) -> Columns:
        """As passes take them."""
        of_rows = (self.units, self.row_mean, self.row_covariance)
        return rows.engine.prepare_columns(self.center, self.loadings, self.weighed_by, self.spread, *of_rows)

    def updated(self, sums: Sums, rows: Rows) -> _Columns:
        """The columns after a pass, given the rows' sufficient statistics."""
        precision = 1 / self.weighed_by
        fixed = self.xp.column_stack([self.xp.zeros_like(self.center), self.loadings])
        fixed[:, self.free] = 0.0  # what is fixed explains its share first
        at, spread, residual = rows.engine.column_posterior(sums, fixed, self.free, precision, self._prior())
        mean_noise = max(float(residual.sum() / rows.counts.sum()), self.floor)
        moments = from_half(sums.total) / sums.total[0]
        rare = float(rows.counts.sum()) < RARE * len(rows.seen)
        shift = moments[1:, 0] if self.free[0] else np.zeros(len(moments) - 1)  # else it has nowhere to go, and stays
        return replace(
            self,
            center=self.center + self.units * at[:, 0],
            loadings=self.xp.asarray(at[:, 1:], copy=True),
            spread=spread,
            noise=rows.noise(residual, self.directions if self.rank else None).clip(self.floor),
            mean_noise=mean_noise,
            row_mean=shift,
            row_covariance=moments[1:, 1:] - np.outer(shift, shift) if self.rank or not rare else self.row_covariance,
        )._with_priors(rows)

    def _prior(self) -> Prior:
        """As the columns' update takes it: c_j is sought as a change from where it was."""
        precision = np.zeros((len(self.free), len(self.free)))
        precision[np.ix_(self.free, self.free)] = np.linalg.inv(self.prior_covariance)
        expected = np.zeros(len(self.free))
        expected[self.free] = self.prior_mean
        linear = self.xp.zeros_like(self.center)[:, None] + like(self.center, precision @ expected)
        if self.free[0]:
            linear -= self.deviations[:, None] * like(self.center, precision[0])
        linear *= self.tightness[:, [0] + [1] * (linear.shape[1] - 1)]
        return Prior(precision, self.tightness, linear)

    @property
    def deviations(self) -> Any:
        """t_j (c_j − p_j level)/s_j, which the prior of centers is about."""
        return self.tightness[:, 0] * (self.center - self.common * self.level) / self.units

    def with_own_noise(self, rows: Rows) -> _Columns:
        """The same columns with the noise that each has when each is weighed by its own."""
        sums = rows.engine.posterior_sums(replace(self, alike=False).prepared(rows))
        at = self.xp.column_stack([self.xp.zeros_like(self.center), self.loadings])
        a, c = np.tril_indices(at.shape[1])
        twice = like(at, np.where(a == c, 1.0, 2.0))
        moments = sums.second[:, : len(a)] * twice
        residual = sums.squares - 2 * (at * sums.first[:, : at.shape[1]]).sum(1)
        residual += (moments * (at[:, a] * at[:, c] + self.spread)).sum(1)
        noise = rows.noise(residual, None).clip(self.floor)
        spread = self.xp.asarray(self.spread, copy=True)
        if self.free[0]:
            prior = self.tightness[:, 0] ** 2 / self.prior_covariance[0, 0]
            spread[:, 0] = 1 / (prior + sums.second[:, 0] / noise)
        return replace(self, noise=noise, spread=spread)

    def _with_priors(self, rows: Rows, least: float = 1e-9, levelling: int = 1) -> _Columns:
        """The priors that columns seen suggest; ``least``, a share of the variance, is added."""
        columns, n, powers = self._levelled(rows.seen, levelling), len(rows.seen), POWERS if self.rank else POWERS[:1]
        units = self.xp.stack([self.noise**-power for power in powers], 1)
        logs = float(self.xp.log(self.noise[rows.seen]).sum())
        best, evidence = columns, -np.inf
        each = zip(powers, units.T, columns._moments(units, rows), columns._mean_spreads(units, rows), strict=True)
        for power, unit, (mean, covariance), spread in each:
            covariance = covariance + spread
            if self.free[0] and not _related(covariance, n):
                covariance[0, 1:] = covariance[1:, 0] = 0.0
            diagonal = np.diag_indices_from(covariance)
            covariance[diagonal] = (1 + 1e-9) * covariance[diagonal] + 1e-12
            bound = -0.5 * n * float(np.linalg.slogdet(covariance)[1]) - self.rank * power * logs
            if bound > evidence + LEAST_EVIDENCE:
                covariance[diagonal] += least
                known = _known(covariance, spread, int(self.free[0]))
                tightness = self.xp.stack([columns.tightness[:, 0], unit], 1)
                best = replace(
                    columns, tightness=tightness, prior_mean=mean, prior_covariance=covariance, directions=known
                )
                evidence = bound
        return best

    def _moments(self, units: Any, rows: Rows) -> list[tuple[Array, Array]]:
        """For each way to measure loadings, the mean and covariance over columns seen of what the prior is about."""
        centers = self.deviations[:, None][:, : int(self.free[0])]
        loadings = self.loadings[:, len(self.free) - 1 - self.rank :]
        at = self.xp.hstack([part for unit in units.T for part in (centers, loadings * unit[:, None])])[rows.seen]
        mean, size = at.mean(0), centers.shape[1] + self.rank
        at = at - mean  # all ways side by side: one product serves all of them
        mean, covariance = host(mean), host(at.T @ at) / len(at)
        ways = [slice(way * size, (way + 1) * size) for way in range(units.shape[1])]
        return [(mean[way], covariance[way, way]) for way in ways]

    def _mean_spreads(self, units: Any, rows: Rows) -> list[Array]:
        """For each way to measure loadings, the mean over columns seen of V_j, of what is free."""
        k, seen, tight = len(self.free), (rows.counts > 0)[:, None], self.tightness[:, :1]
        weights = (self.xp.hstack([tight * tight, tight * units, units * units]) * seen).T
        parts = [
            weights[:, part] @ self.xp.asarray(self.spread[part], dtype=self.xp.float64)
            for part in chunks(len(self.spread), self.spread.shape[1], rows.engine.chunk)
        ]
        total, ways = host(sum(parts)) / len(rows.seen), units.shape[1]
        a, c = np.tril_indices(k)
        kind, inside = np.where(c > 0, 1 + ways, np.where(a > 0, 1, 0)), np.ix_(self.free, self.free)
        return [from_half(total[kind + (kind > 0) * way, np.arange(len(kind))])[inside] for way in range(ways)]

    def _levelled(self, seen: Any, rounds: int) -> _Columns:
        """With the level of centers and t_j² = min(1, 9ω²/q_j): q_j = E[(c_j − p_j level)²]/s_j², ω² = mean t_j²q_j."""
        if not self.free[0]:
            return self
        center, common = self.center[seen] / self.units[seen], self.common[seen] / self.units[seen]
        spread, weight, level = self.spread[seen, 0], self.tightness[seen, 0] ** 2, 0.0
        for _ in range(rounds):  # nothing is brought to the host on the way
            level = (weight * common) @ center / ((weight * common) @ common)
            squares = (center - common * level) ** 2 + spread
            width = FAR * (weight * squares).mean()
            farthest = self.xp.where(width > 0, width, 1.0)
            weight = farthest / squares.clip(farthest)
        tightness = self.xp.asarray(self.tightness, copy=True)
        tightness[:, 0] = 1.0
        tightness[seen, 0] = weight**0.5
        return replace(self, level=float(level), tightness=tightness)

    def row_space(self, start: RowSpace, rows: Rows) -> RowSpace:
        """As a row space, with z = z̄ + Λ^½ z' in place of z, so that z' has mean zero and covariance I.

        As the root is upper triangular, a' is τ times the row effect still, the same for all columns. The factor is
        then turned to its principal axes. Columns never seen beside another are not placed in it.
        """
        k, effect, alone = len(self.row_mean), int(start.row_variance > 0), ~rows.placed
        root, noise = _root(self.row_covariance), self.xp.asarray(self.noise, copy=True)
        spread = self.xp.zeros_like(self.spread, dtype=self.xp.float64)
        loadings = self.loadings @ like(self.loadings, root)
        noise[alone] += (loadings[alone, effect:] ** 2).sum(1)
        loadings[alone, effect:] = 0.0
        factor = self.units[:, None] * loadings[:, effect:]
        rotation = principal_rotation(factor)
        change, turn = np.eye(k + 1), np.eye(k + 1)
        change[0, 1:], change[1:, 1:], turn[1 + effect :, 1 + effect :] = self.row_mean, root.T, rotation.T
        change = like(loadings, turn @ change)
        a, c = np.tril_indices(k + 1)
        inside, whole = (a == c) & (a > 0), from_half(np.arange(len(a))).astype(np.int64)
        for part in chunks(len(self.spread), self.spread.shape[1], rows.engine.chunk):
            V = (change @ self.xp.asarray(self.spread[part], dtype=self.xp.float64)[:, whole] @ change.T)[:, a, c]
            noise[part] += self.xp.where(alone[part], V[:, inside].sum(1), 0.0)
            spread[part] = V * (self.units[part] ** 2)[:, None]
        spread[alone, 1:] = 0.0
        tau = float(loadings[0, 0]) * rows.unit if effect else 0.0
        return replace(
            start,
            mean=host(self.center + self.units * (self.loadings @ like(loadings, self.row_mean))),
            factor=host(factor @ like(loadings, rotation)),
            row_variance=tau**2,
            noise_variance=host(noise * self.units**2),
            spread=host(spread),
        )
