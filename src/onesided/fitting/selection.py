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
   variance); larger ranks predict a little better still on large panels, at a cost that grows with their square, and
   can be given;
3. the diagonal, at the best rank: free or fit; where "fit" wins, the rank again, from there;
4. the center again, at the best rank.

The best of all is taken, unless one of rank 0 scores within two standard errors of it: a factor must earn its place.
Nor is it taken where it predicts held-out entries worse than means and row effects alone, by more than two standard
errors of the difference in mean e²: a warning says so, and rank 0 is taken; a rank that was given stays.

How long the choice is refined is chosen, too: where 25 passes predict held-out entries no better than 12, by mean e²,
12 are made. On sparse panels more of them fit the rows too closely.

All scores are of values in units of their columns' scales, so that they do not hang on the largest column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import engine_for
from onesided.errors import InputError, warn
from onesided.fitting.moment_solution import NOISE_FLOOR
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.refinement import MEMORY, working_memory
from onesided.fitting.row_space import fit_row_space
from onesided.fitting.setting import Center, Setting
from onesided.fitting.solvers.result import Progress, begin
from onesided.pairs.column_sums import column_means, column_sums
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import Checkpoint

Rule = Literal["best", "one-standard-error"]

RANKS = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32)
CENTERS: tuple[Center, ...] = ("columns", "both")
DIAGONALS: tuple[Diagonal, ...] = ("free", "fit")
PATIENCE = 2  # ranks in a row that may improve by less than a standard error before the path ends
CLOSE: dict[Rule, float] = {"best": 0.0, "one-standard-error": 1.0}  # standard errors at which a lower rank is taken
EARNED = 2.0  # standard errors by which a factor must improve on rank 0
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
    the root mean squared leave-one-out residual on the same entries, in units of the columns' scales.

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


@dataclass(frozen=True, eq=False)
class Selection:
    """The setting chosen, and all that were tried, best first.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> found = select(panel, Setting(rank=0), Candidates(ranks=(0, 1)))
    >>> found.setting.rank, [one.rank for one in found.trials]  # two means differ in one direction
    (1, [1, 0])
    """

    setting: Setting
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [f"{'rank':>4}  {'center':<8}{'diagonal':<9}{'score':>10}  {'± se':>8}  {'rmse':>9}"]
        lines += [
            f"{one.rank:>4}  {one.center:<8}{one.diagonal:<9}{one.score:>10.5f}  {one.standard_error:>8.5f}  "
            f"{one.rmse:>9.4g}{'  chosen' if one.chosen else ''}"
            for one in self.trials
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Candidates:
    """What is left open: the ranks to try, None where the rank is given; likewise centers and diagonals, or none.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> chosen = select(panel, Setting(1), Candidates(centers=("columns", "both"))).setting
    >>> chosen.rank, chosen.center
    (1, 'columns')
    """

    ranks: tuple[int, ...] | None = None
    centers: tuple[Center, ...] = ()
    diagonals: tuple[Diagonal, ...] = ()


def select(
    panel: PanelLike,
    setting: Setting,
    candidates: Candidates,
    *,
    rule: Rule = "best",
    rng: int | np.random.Generator = 0,
    scales: Array | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Selection:
    """Choose what is left open among the candidates; ``setting`` fixes the rest.

    ``rule="one-standard-error"`` takes, of all that score within one standard error of the best, the one of lowest
    rank. With either rule rank 0 is taken where it scores within two.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> select(panel, Setting(rank=0, center="none"), Candidates(ranks=(0, 1, 2, 3, 4))).setting.rank
    2
    """
    search = _Search(panel, scales, np.random.default_rng(rng), progress, checkpoint or Checkpoint())
    ranks, centers, diagonals = candidates.ranks, candidates.centers, candidates.diagonals
    path = None if ranks is None else sorted({rank for rank in ranks if rank <= panel.n_columns})
    if path == []:
        raise InputError("no rank to choose from: all are larger than the number of columns")
    search.most = search.cost_at_most(path or [setting.rank], len(centers), len(diagonals), path is not None)
    best = setting if path is None else replace(setting, rank=path[0])
    if centers:
        low = [best.rank] if path is None else path[:3]
        best = search.best(replace(best, center=center, rank=rank) for center in centers for rank in low)
    if path is not None:
        best = search.along(path, best)
    if diagonals:
        other = search.best(replace(best, diagonal=diagonal) for diagonal in diagonals)
        if path is not None and other.diagonal != best.diagonal:
            other = search.along(path[path.index(best.rank) :], other)
        best = other
    if centers:
        best = search.best(replace(best, center=center) for center in centers)
    return search.selection(rule, path is not None, centers or (setting.center,))


class _Search:
    """Scores of settings on one split of the rows, each computed once."""

    def __init__(
        self,
        panel: PanelLike,
        scales: Array | None,
        rng: np.random.Generator,
        progress: Progress | None,
        checkpoint: Checkpoint,
    ) -> None:
        if not enough_rows(panel):
            raise InputError(f"fewer than {2 * FOLDS} rows have two entries: too few to hold some out")
        used = np.flatnonzero((panel.row_weights > 0) & (panel.row_counts > 0))
        self.panel, self.scales, self.progress, self.checkpoint = panel, scales, progress, checkpoint
        self.seed = int(rng.integers(2**31))
        fold = np.full(panel.n_rows, -1)
        fold[used] = rng.permutation(len(used)) % FOLDS
        held_out = panel.row_counts[used].sum() / FOLDS
        folds = int(np.clip(np.ceil(SCORED_ENTRIES / held_out), 1, FOLDS))
        self.folds = [np.flatnonzero(fold == k) for k in range(folds)]
        rows = np.concatenate(self.folds)
        self.weights, self.counts = panel.row_weights[rows], panel.row_counts[rows]
        self.scores: dict[Setting, Array] = {}  # of these rows, in this order: sums of log scores and of e²
        scored = np.where((fold >= 0) & (fold < folds), panel.row_weights, 0.0)
        self.limits: tuple[float, float] | None = None  # of what an entry scores, from the first setting
        self.most = 0.0  # cost of all that may be tried, and of what follows the search
        unit = 1.0 if scales is None else engine_for(panel).array(scales)
        self.negligible = NOISE_FLOOR * column_sums(panel, column_means(panel), unit, weights=scored).mean_square

    def cost_at_most(self, path: list[int], centers: int, diagonals: int, along: bool) -> float:
        """Of a search, and of the fits that follow it."""
        low = centers * sum(map(cost, path[:3]))
        whole = sum(map(cost, path)) * max(diagonals, 1) if along else diagonals * cost(path[-1])
        return len(self.folds) * (low + whole + centers * cost(path[-1])) + LATER * cost(path[-1])

    def score(self, setting: Setting) -> float:
        """The mean log score of a setting over held-out entries, rows by their weights."""
        if setting not in self.scores:
            own = len(self.folds) * cost(setting.rank)
            self.most = max(self.most - own, LATER * cost(setting.rank))
            begin(self.progress, f"trying rank {setting.rank}", own, self.most)
            self.scores[setting] = self._bounded([self._scored(setting, fold) for fold in range(len(self.folds))])
        return float(self._mean(self.scores[setting][:, 0]))

    def best(self, settings: Iterable[Setting]) -> Setting:
        """The one that scores best; of equals, the first."""
        return max(settings, key=self.score)

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

    def selection(self, rule: Rule, rank_is_open: bool, centers: Iterable[Center]) -> Selection:
        """The choice among all that was scored, guarded by means and row effects alone."""
        ordered = sorted(self.scores, key=self.score, reverse=True)
        errors = {one: self._standard_error(one, ordered[0]) for one in ordered}

        def close(one: Setting) -> bool:
            allowed = EARNED if one.rank == 0 else CLOSE[rule]
            return self.score(ordered[0]) - self.score(one) <= allowed * errors[one]

        def trial(one: Setting) -> Trial:
            rmse = float(np.sqrt(self._mean(self.scores[one][:, 1])))
            return Trial(one.rank, one.center, one.diagonal, self.score(one), errors[one], rmse, one == chosen)

        chosen = min(filter(close, ordered), key=lambda one: one.rank)
        if chosen.rank > 0:
            simple = min((replace(chosen, rank=0, center=center) for center in centers), key=self._mean_square)
            if self._predicts_worse(chosen, simple):
                rmse = [float(np.sqrt(self._mean_square(setting))) for setting in (chosen, simple)]
                warn(
                    f"rank {chosen.rank} predicts held-out entries worse than means and row effects alone (RMSE "
                    f"{rmse[0]:.4g} and {rmse[1]:.4g}, in units of the columns' scales): "
                    + ("rank 0 is taken" if rank_is_open else "rank=0 would predict better")
                )
                if rank_is_open:
                    chosen = simple
                    ordered = sorted({*ordered, simple}, key=self.score, reverse=True)
                    errors[simple] = self._standard_error(simple, ordered[0])
        return Selection(self._refined_as_long_as_it_helps(chosen), tuple(map(trial, ordered)))

    def _refined_as_long_as_it_helps(self, setting: Setting) -> Setting:
        """The setting with the number of passes that its final fit makes at most."""
        if not setting.refined or setting.rank == 0 or setting.refine_passes <= SEARCH_PASSES:
            return setting
        begin(self.progress, f"rank {setting.rank}, refined for longer", cost(setting.rank), LATER * cost(setting.rank))
        longer = self._bounded([self._scored(setting, fold, LONGER_PASSES) for fold in range(len(self.folds))])
        if self._mean(longer[:, 1]) < self._mean_square(setting):
            return setting
        return replace(setting, refine_passes=SEARCH_PASSES)

    def _mean_square(self, setting: Setting) -> float:
        """The mean over held-out entries of e²."""
        self.score(setting)
        return self._mean(self.scores[setting][:, 1])

    def _predicts_worse(self, setting: Setting, simple: Setting) -> bool:
        """Whether its mean e² is larger by more than two standard errors."""
        more = self._mean_square(setting) - self._mean_square(simple)
        return more > EARNED * self._standard_error(setting, simple, of=1)

    def _scored(self, setting: Setting, fold: int, passes: int = SEARCH_PASSES) -> Array:
        rows, weights, held_out = self.folds[fold], self.panel.row_weights.copy(), np.zeros(self.panel.n_rows)
        held_out[rows], weights[rows] = weights[rows], 0.0
        train = self.panel.with_row_weights(weights)
        longer = f" {passes} passes" if passes != SEARCH_PASSES else ""
        work = self.checkpoint.work(f"rank {setting.rank} {setting.center} {setting.diagonal} fold {fold}{longer}")

        def score() -> dict[str, Any]:
            how = partial(fit_row_space, scales=self.scales, most_passes=passes, progress=self.progress)
            fit = how(train, setting, self.seed, work=work)
            return {"scores": fit.row_space.predictor.leave_one_out(self.panel, held_out)[:, :2]}

        return np.asarray(work.done(score)["scores"])

    def _bounded(self, scores: list[Array]) -> Array:
        """The scores of all folds, none of a row so bad that it alone decides."""
        found = np.concatenate(scores)
        counts = np.maximum(self.counts, 1)[:, None]
        if self.limits is None:
            middle = np.median((found / counts)[self.counts > 0], axis=0)
            self.limits = (float(middle[0]) - WORST, 2 * WORST * float(middle[1]))
        lowest, largest = self.limits
        each = found / counts
        return np.asarray(counts * np.column_stack([each[:, 0].clip(lowest), each[:, 1].clip(max=largest)]))

    def _mean(self, sums: Array) -> float:
        return float(self.weights @ sums) / float(self.weights @ self.counts)

    def _standard_error(self, one: Setting, other: Setting, of: int = 0) -> float:
        """Of the difference in mean score, or with ``of=1`` in mean e², rows being independent."""
        difference = self.scores[one][:, of] - self.scores[other][:, of]
        residual = self.weights * (difference - self._mean(difference) * self.counts)
        return float(np.sqrt(np.sum(residual**2)) / (self.weights @ self.counts))


def enough_rows(panel: PanelLike) -> bool:
    """Whether there are rows with pairs of entries to hold some out: at least ten."""
    return int(np.count_nonzero((panel.row_weights > 0) & (panel.row_counts > 1))) >= 2 * FOLDS


def affordable_ranks(n_columns: int, refined: bool) -> Iterator[int]:
    """The path of ranks, as far as there are columns and, for refining, memory."""
    for rank in RANKS:
        if rank < n_columns and not (refined and working_memory(n_columns, rank) > MEMORY):
            yield rank
