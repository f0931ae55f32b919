"""Choosing on held-out rows: how each entry of a row is predicted from the row's others.

Rows are split once: four fifths to fit, one fifth to score (small panels are split up to five ways, so that about
20,000 entries are scored). Every setting that is tried is fitted to the first and scored on the second by the mean
over entries of the leave-one-out log score,

    −½ (log 2π s² + e²/s²),

with e the residual and s² the predictive variance of an entry given all others of its row
(:func:`onesided.kernels.reference.leave_one_out`). It is a density of the data themselves, so that settings of any
kind can be compared by it. Folds are row weights: nothing is copied or read again.

What is tried, in this order, by what is left open:

1. the center, at low rank: columns or both, each at ranks 0 to 2. ("none" is not tried: means are shrunk to their own
   mean, and a panel without any loses next to nothing by having them.)
2. the rank, along 0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32, until two in a row improve on the best by less than a
   standard error, or nothing is left to explain (the residuals' mean square is a ten-thousandth of the columns'
   variance); larger ones predict a little better still on large panels, and can be given;
3. the diagonal, at the best rank: free or fit; where "fit" wins by more than a standard error, the rank again, from
   there;
4. the center again, at the best rank;
5. the scales: so far columns are in units of their own; a common unit, where there may be one
   (:func:`onesided.fitting.scales.common_scales`), is tried at the best rank, and taken unless it scores worse by more
   than a standard error: covariances from few entries gain by it. Then larger ranks in this unit, as in 2.

Of the settings that score within two standard errors and 10⁻⁴ nats of the best, that of the lowest rank is taken:
beyond the true rank scores are nearly flat, and which is best hangs on the noise. Other rules come nearer to the best,
but rank 0 is always taken within two: a factor must earn its place. It must also score better than the same fit with
its share of an entry taken for noise, by two standard errors; and where it predicts held-out entries worse than means
and row effects alone, by more than two standard errors of the difference in mean e², a warning says so and rank 0 is
taken. A rank that was given stays.

How long the choice is refined is chosen, too: where 25 passes predict held-out entries no better than 12, by mean e²,
12 are made. On sparse panels more of them fit the rows too closely.

All scores are of values in a common unit, if columns may have one, or else in units of their scales, so that they do
not hang on the largest column. The own scales of a fit are those of the rows that it is fitted to, like all else that
it estimates; whether there is a common unit, and the units of scores, are decided once, by all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import engine_for
from onesided.errors import InputError, warn
from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.refinement import MEMORY, working_memory
from onesided.fitting.row_space import fit_row_space
from onesided.fitting.scales import Deviations, Scale, Scaling, column_scales
from onesided.fitting.setting import Center, Fit, Setting
from onesided.fitting.solvers.result import Progress, begin
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import column_means, column_sums
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import Checkpoint, Work

Rule = Literal["two-standard-errors", "one-standard-error", "best"]

RANKS = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32)
CENTERS: tuple[Center, ...] = ("columns", "both")
DIAGONALS: tuple[Diagonal, ...] = ("free", "fit")
SCALES: tuple[Scale, ...] = ("own", "common")
PATIENCE = 2  # ranks in a row that may improve by less than a standard error before the path ends
CLOSE: dict[Rule, float] = {"two-standard-errors": 2.0, "one-standard-error": 1.0, "best": 0.0}
UNSETTLED = 1e-4  # nats an entry, by which scores may differ beyond that, as the passes of a search do not settle
EARNED = 2.0  # standard errors by which a factor must improve on rank 0
FOREGONE = 1.0  # standard errors by which a common unit may score worse and still be taken
SEARCH_PASSES = 12  # of a refinement that is only scored
LONGER_PASSES = 25  # that must predict better than these, or the final fit makes no more of them either
SCORED_ENTRIES = 20_000
WORST = 20.0  # nats an entry below the median row: none counts for less, so that no choice hangs on one event
FOLDS = 5
LATER = 3.0  # fits of the rank chosen, in cost, that follow: for the blend and to all rows


def cost(rank: int) -> float:
    """What a fit of a rank costs beside one of rank 0, roughly: for the progress bar.

    >>> cost(0), cost(32)
    (1.0, 10.0)
    """
    return 1.0 + rank / 6.4 + (rank / 16) ** 2


@dataclass(frozen=True)
class Trial:
    """A setting and its held-out score: the mean leave-one-out log score of an entry.

    ``standard_error`` is that of the difference to the best trial, over rows; zero for the best itself. ``rmse`` is
    the root mean squared leave-one-out residual on the same entries, in :attr:`Selection.units`.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> trials = select(panel, Setting(rank=0), Candidates(ranks=(0, 1))).trials
    >>> [(one.rank, round(one.rmse, 2), one.chosen) for one in trials]
    [(1, 0.12, True), (0, 0.15, False)]
    """

    rank: int
    center: Center
    diagonal: Diagonal
    score: float
    standard_error: float
    rmse: float
    chosen: bool = False
    scale: Scale = "none"


@dataclass(frozen=True, eq=False)
class Selection:
    """The setting chosen, and all that were tried, best first.

    ``units`` says what residuals and densities are of: "values" as they are, or values over "scales".

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> found = select(panel, Setting(rank=0), Candidates(ranks=(0, 1)))
    >>> found.setting.rank, [one.rank for one in found.trials]  # two means differ in one direction
    (1, [1, 0])
    """

    setting: Setting
    trials: tuple[Trial, ...]
    units: Literal["values", "scales"] = "values"

    def __str__(self) -> str:
        head = f"{'rank':>4}  {'center':<8}{'diagonal':<9}{'scale':<7}{'score':>10}  {'± se':>8}  {'rmse':>9}"
        lines = [head] + [
            f"{one.rank:>4}  {one.center:<8}{one.diagonal:<9}{one.scale:<7}{one.score:>10.5f}  "
            f"{one.standard_error:>8.5f}  {one.rmse:>9.4g}{'  chosen' if one.chosen else ''}"
            for one in self.trials
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Candidates:
    """What is left open: the ranks to try, None where the rank is given; centers, diagonals and scales, or none.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> chosen = select(panel, Setting(1), Candidates(centers=("columns", "both"))).setting
    >>> chosen.rank, chosen.center
    (1, 'columns')
    """

    ranks: tuple[int, ...] | None = None
    centers: tuple[Center, ...] = ()
    diagonals: tuple[Diagonal, ...] = ()
    scales: tuple[Scale, ...] = ()


def select(
    panel: PanelLike,
    setting: Setting,
    candidates: Candidates,
    *,
    rule: Rule = "two-standard-errors",
    rng: int | np.random.Generator = 0,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Selection:
    """Choose what is left open among the candidates; ``setting`` fixes the rest.

    Of all that score within so many standard errors of the best as ``rule`` says, the one of lowest rank is taken; rank
    0 with any rule where it scores within two.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> select(panel, Setting(rank=0, center="none"), Candidates(ranks=(0, 1, 2, 3, 4))).setting.rank
    2
    """
    return Search(panel, candidates, np.random.default_rng(rng), progress, checkpoint).choose(setting, rule)


class Search:
    """Scores of settings on one split of the rows, each computed once.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> search = Search(panel, Candidates(ranks=(0, 1)), np.random.default_rng(0))
    >>> search.choose(Setting(rank=0)).setting.rank, search.fit_to_others().rank, int(search.held_out.sum())
    (1, 1, 100)
    """

    def __init__(
        self,
        panel: PanelLike,
        candidates: Candidates,
        rng: np.random.Generator,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if not enough_rows(panel):
            raise InputError(f"fewer than {2 * FOLDS} rows have two entries: too few to hold some out")
        used = np.flatnonzero((panel.row_weights > 0) & (panel.row_counts > 0))
        self.panel, self.candidates = panel, candidates
        self.progress, self.checkpoint = progress, checkpoint or Checkpoint()
        self.seed = int(rng.integers(2**31))
        fold = np.full(panel.n_rows, -1)
        fold[used] = rng.permutation(len(used)) % FOLDS
        held_out = panel.row_counts[used].sum() / FOLDS
        folds = int(np.clip(np.ceil(SCORED_ENTRIES / held_out), 1, FOLDS))
        self.folds = [np.flatnonzero(fold == k) for k in range(folds)]
        rows = np.concatenate(self.folds)
        self.weights, self.counts = panel.row_weights[rows], panel.row_counts[rows]
        # Of these rows, in this order: sums of log scores, of e², and of log scores as if nothing were known of the row
        self.scores: dict[Setting, Array] = {}
        self.fits: dict[tuple[Setting, int], Fit] = {}  # of the best setting so far with each kind of scales, by fold
        self.chosen: Setting | None = None
        self.own: dict[int, Array] = {}  # scales of columns in units of their own, by the fold that is left out
        scored = np.where((fold >= 0) & (fold < folds), panel.row_weights, 0.0)
        self.lowest: float | None = None  # that an entry of a row scores, from the first setting
        self.most = 0.0  # cost of all that may be tried, and of what follows the search
        deviations = Deviations.of(panel) if candidates.scales else None
        self.common = None if deviations is None else deviations.common_scales
        self.units = np.ones(panel.n_columns)
        if deviations is not None:
            self.units = deviations.own_scales if self.common is None else self.common
        self.of: Literal["values", "scales"] = "values" if np.all(self.units == 1) else "scales"
        sums = column_sums(panel, column_means(panel), engine_for(panel).array(self.units), weights=scored)
        self.negligible = NOISE_FLOOR * sums.mean_square

    def choose(self, setting: Setting, rule: Rule = "two-standard-errors") -> Selection:
        """What is left open chosen among the candidates, as :func:`select`."""
        ranks, centers, diagonals = self.candidates.ranks, self.candidates.centers, self.candidates.diagonals
        path = None if ranks is None else sorted({rank for rank in ranks if rank <= self.panel.n_columns})
        if path == []:
            raise InputError("no rank to choose from: all are larger than the number of columns")
        self.most = self.cost_at_most(path or [setting.rank], len(centers), len(diagonals), path is not None)
        best = setting if path is None else replace(setting, rank=path[0])
        if centers:
            low = [best.rank] if path is None else path[:3]
            best = self.best(replace(best, center=center, rank=rank) for center in centers for rank in low)
        if path is not None:
            best = self.along(path, best)
        if diagonals:
            other = self.best(replace(best, diagonal=diagonal) for diagonal in diagonals)
            if self.improves(other, best, 1.0):
                best = other if path is None else self.along(path[path.index(best.rank) :], other)
        if centers:
            best = self.best(replace(best, center=center) for center in centers)
        if self.common is not None and not self.improves(best, other := replace(best, scale="common"), FOREGONE):
            best = other
            if path is not None:
                self.score(replace(best, rank=path[0]))
                best = self.along(path[path.index(best.rank) :], best)
        return self.selection(best, rule, path is not None, centers or (setting.center,))

    @property
    def held_out(self) -> Array:
        """Which rows the first fold holds out."""
        rows = np.zeros(self.panel.n_rows, dtype=bool)
        rows[self.folds[0]] = True
        return rows

    def fit_to_others(self) -> RowSpace:
        """What was chosen, fitted to the rows that the first fold does not hold out."""
        assert self.chosen is not None
        return self._fitted(self.chosen, 0).row_space

    def forget(self, settings: Iterable[Setting]) -> None:
        """Let go of the fits of settings, but not of their scores."""
        for one, fold in product(settings, range(len(self.folds))):
            self.fits.pop((one, fold), None)
            self._work(one, fold).forget()

    def cost_at_most(self, path: list[int], centers: int, diagonals: int, along: bool) -> float:
        """Of a search, and of the fits that follow it."""
        low = centers * sum(map(cost, path[:3]))
        whole = sum(map(cost, path)) * max(diagonals, 1) if along else diagonals * cost(path[-1])
        units = (self.common is not None) * cost(path[-1])
        return len(self.folds) * (low + whole + centers * cost(path[-1]) + units) + LATER * cost(path[-1])

    def score(self, setting: Setting) -> float:
        """The mean log score of a setting over held-out entries, rows by their weights."""
        if setting not in self.scores:
            own = len(self.folds) * cost(setting.rank)
            self.most = max(self.most - own, LATER * cost(setting.rank))
            begin(self.progress, f"trying rank {setting.rank}", own, self.most)
            self.scores[setting] = self._bounded([self._scored(setting, fold) for fold in range(len(self.folds))])
            alike = [one for one in self.scores if one.scale == setting.scale]
            best = max(alike, key=lambda one: self._mean(self.scores[one][:, 0]))
            self.forget(one for one in alike if one != best)
        return float(self._mean(self.scores[setting][:, 0]))

    def best(self, settings: Iterable[Setting]) -> Setting:
        """The one that scores best; of equals, the first."""
        return max(settings, key=self.score)

    def improves(self, other: Setting, one: Setting, errors: float) -> bool:
        """Whether a setting scores better than one by more than so many standard errors."""
        return self.score(other) - self.score(one) > errors * self._standard_error(other, one)

    def along(self, path: list[int], setting: Setting) -> Setting:
        """The best rank of a path that ends when nothing has improved for a while."""
        best, behind = replace(setting, rank=path[0]), 0
        self.score(best)
        for rank in path[1:]:
            if self._mean(self.scores[best][:, 1]) <= self.negligible:
                break
            one = replace(setting, rank=rank)
            gain = self.score(one) - self.score(best)
            behind = 0 if gain > self._standard_error(one, best) else behind + 1
            best = one if gain > 0 else best
            if behind == PATIENCE:
                break
        return best

    def selection(self, best: Setting, rule: Rule, rank_is_open: bool, centers: Iterable[Center]) -> Selection:
        """The choice among all that was scored in the same units, guarded by means and row effects alone."""
        ordered = sorted(self.scores, key=self.score, reverse=True)
        comparable = [one for one in ordered if one.scale == best.scale]
        eligible = [one for one in comparable if not rank_is_open or self._earned(one)] or comparable
        best = eligible[0]

        def close(one: Setting) -> bool:
            if one.rank == 0:
                return not self.improves(best, one, EARNED)
            behind = self.score(best) - self.score(one) - CLOSE[rule] * self._standard_error(best, one)
            return behind <= (UNSETTLED if CLOSE[rule] > 0 else 0.0)

        def trial(one: Setting) -> Trial:
            rmse, behind = np.sqrt(self._mean_square(one)), self._standard_error(one, ordered[0])
            return Trial(
                one.rank, one.center, one.diagonal, self.score(one), behind, float(rmse), one == chosen, one.scale
            )

        chosen = min(filter(close, eligible), key=lambda one: one.rank)
        if chosen.rank > 0:
            simple = min((replace(chosen, rank=0, center=center) for center in centers), key=self._mean_square)
            if self._predicts_worse(chosen, simple):
                rmse = [float(np.sqrt(self._mean_square(setting))) for setting in (chosen, simple)]
                units = ", in units of the columns' scales" if self.of == "scales" else ""
                warn(
                    f"rank {chosen.rank} predicts held-out entries worse than means and row effects alone (RMSE "
                    f"{rmse[0]:.4g} and {rmse[1]:.4g}{units}): "
                    + ("rank 0 is taken" if rank_is_open else "rank=0 would predict better")
                )
                chosen = simple if rank_is_open else chosen
            ordered = sorted(self.scores, key=self.score, reverse=True)
        self.chosen = chosen
        return Selection(self._refined_as_long_as_it_helps(chosen), tuple(map(trial, ordered)), self.of)

    def _refined_as_long_as_it_helps(self, setting: Setting) -> Setting:
        """The setting with the number of passes that its final fit makes at most."""
        if not setting.refined or setting.rank == 0 or setting.refine_passes <= SEARCH_PASSES:
            return setting
        begin(self.progress, f"rank {setting.rank}, refined for longer", cost(setting.rank), LATER * cost(setting.rank))
        longer = self._bounded([self._scored(setting, fold, LONGER_PASSES) for fold in range(len(self.folds))])
        if self._mean(longer[:, 1]) < self._mean_square(setting):
            return setting
        return replace(setting, refine_passes=SEARCH_PASSES)

    def _earned(self, setting: Setting) -> bool:
        """Whether what a row's other entries say of its factor coordinates improves the score; of rank 0, yes."""
        gain = self.scores[setting][:, 0] - self.scores[setting][:, 2]
        return setting.rank == 0 or self._mean(gain) > EARNED * self._error_of_mean(gain)

    def _mean_square(self, setting: Setting) -> float:
        """The mean over held-out entries of e²."""
        self.score(setting)
        return self._mean(self.scores[setting][:, 1])

    def _predicts_worse(self, setting: Setting, simple: Setting) -> bool:
        """Whether its mean e² is larger by more than two standard errors."""
        more = self._mean_square(setting) - self._mean_square(simple)
        return more > EARNED * self._standard_error(setting, simple, of=1)

    def _scored(self, setting: Setting, fold: int, passes: int = SEARCH_PASSES) -> Array:
        held_out = np.zeros(self.panel.n_rows)
        held_out[self.folds[fold]] = self.panel.row_weights[self.folds[fold]]

        def score() -> dict[str, Any]:
            space = self._fitted(setting, fold, passes).row_space
            found = space.predictor.leave_one_out(self.panel, held_out, self.units)
            bare = found
            if space.rank:
                bare = space.without_factor.predictor.leave_one_out(self.panel, held_out, self.units)
            return {"scores": np.column_stack([found[:, :2], bare[:, 0]])}

        return np.asarray(self._work(setting, fold, passes).done(score, keep=passes == SEARCH_PASSES)["scores"])

    def _fitted(self, setting: Setting, fold: int, passes: int = SEARCH_PASSES) -> Fit:
        """The rows of the other folds fitted; more passes go on where those of the search ended."""
        if passes == SEARCH_PASSES and (setting, fold) in self.fits:
            return self.fits[setting, fold]
        begun = None if passes == SEARCH_PASSES else self._fitted(setting, fold)
        weights = self.panel.row_weights.copy()
        weights[self.folds[fold]] = 0.0
        train = self.panel.with_row_weights(weights)
        if setting.scale == "own" and fold not in self.own:
            self.own[fold] = column_scales(train)
        scales = {"own": self.own.get(fold), "common": self.common, "none": None}[setting.scale]
        scaling = Scaling(scales, None if setting.scale == "none" else self.common)
        how = partial(fit_row_space, scaling=scaling, most_passes=passes, begun=begun, progress=self.progress)
        fit = how(train, setting, self.seed, work=self._work(setting, fold, passes))
        if begun is None:
            self.fits[setting, fold] = fit
        return fit

    def _work(self, setting: Setting, fold: int, passes: int = SEARCH_PASSES) -> Work:
        longer = f" {passes} passes" if passes != SEARCH_PASSES else ""
        what = f"rank {setting.rank} {setting.center} {setting.diagonal} {setting.scale} fold {fold}{longer}"
        return self.checkpoint.work(what)

    def _bounded(self, scores: list[Array]) -> Array:
        """The scores of all folds, no log score of a row so bad that it alone decides."""
        found, counts = np.concatenate(scores), np.maximum(self.counts, 1)
        if self.lowest is None:
            self.lowest = float(np.median((found[:, 0] / counts)[self.counts > 0])) - WORST
        found[:, ::2] = found[:, ::2].clip(self.lowest * counts[:, None])
        return found

    def _mean(self, sums: Array) -> float:
        return float(self.weights @ sums) / float(self.weights @ self.counts)

    def _standard_error(self, one: Setting, other: Setting, of: int = 0) -> float:
        """Of the difference in mean score, or with ``of=1`` in mean e², rows being independent."""
        return self._error_of_mean(self.scores[one][:, of] - self.scores[other][:, of])

    def _error_of_mean(self, sums: Array) -> float:
        residual = self.weights * (sums - self._mean(sums) * self.counts)
        return float(np.sqrt(np.sum(residual**2)) / (self.weights @ self.counts))


def enough_rows(panel: PanelLike) -> bool:
    """Whether there are rows with pairs of entries to hold some out: at least ten."""
    return int(np.count_nonzero((panel.row_weights > 0) & (panel.row_counts > 1))) >= 2 * FOLDS


def affordable_ranks(n_columns: int, refined: bool) -> Iterator[int]:
    """The path of ranks, as far as there are columns and, for refining, memory."""
    for rank in RANKS:
        if rank < n_columns and not (refined and working_memory(n_columns, rank) > MEMORY):
            yield rank
