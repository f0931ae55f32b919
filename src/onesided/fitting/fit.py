"""A whole fit: what is left open is chosen on held-out rows, then the row space is fitted to all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onesided.errors import counted, warn
from onesided.fitting.blending import choose_blend
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.refinement import MEMORY, TOLERANCE, Refine, working_memory
from onesided.fitting.row_noise import learn_row_noise
from onesided.fitting.row_space import fit_row_space
from onesided.fitting.scales import Scaling, column_scales
from onesided.fitting.selection import (
    CENTERS,
    DIAGONALS,
    SCALES,
    SEARCH_PASSES,
    Candidates,
    Rule,
    Search,
    Selection,
    affordable_ranks,
    cost,
    enough_rows,
)
from onesided.fitting.setting import REFINE_PASSES, Center, Fit, Setting
from onesided.fitting.solvers.result import Progress, begin
from onesided.model.blend import NO_BLEND, Blend
from onesided.model.row_space import RowSpace
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import Checkpoint, Work

Auto = Literal["auto"]


@dataclass(frozen=True)
class Options:
    """What a fit is asked for; "auto" is left open. The fields are those of :class:`onesided.OneSidedCompletion`.

    >>> Options(rank=3).setting(100).rank, Options().largest_rank(10)
    (3, 8)
    """

    rank: int | Auto = "auto"
    center: Center | Auto = "auto"
    diagonal: Diagonal | Auto = "auto"
    refine: Refine = "auto"
    rule: Rule = "two-standard-errors"
    weight_exponent: float = -0.5
    ridge: float = 1.0
    scale: Auto | Literal["none"] = "auto"
    blend: float | Auto | None = "auto"
    tol: float = 1e-6
    max_passes: int = 300
    refine_passes: int = REFINE_PASSES

    @property
    def lowest_rank(self) -> int:
        """The rank given, or the lowest that is tried."""
        return 0 if self.rank == "auto" else int(self.rank)

    def largest_rank(self, n_columns: int) -> int:
        """The rank given, or the largest that is tried."""
        if self.rank != "auto":
            return int(self.rank)
        return max(affordable_ranks(n_columns, self.refines(n_columns)), default=0)

    def refines(self, n_columns: int) -> bool:
        """Whether the moment solution is refined."""
        if self.refine != "auto":
            return self.refine == "variational"
        return self.refining_memory(n_columns) <= MEMORY

    def refining_memory(self, n_columns: int) -> int:
        """Bytes that refining needs at least."""
        return working_memory(n_columns, 1 if self.rank == "auto" else self.rank)

    def setting(self, n_columns: int) -> Setting:
        """What is given, and for what is left open the simplest."""
        return Setting(
            self.lowest_rank,
            "columns" if self.center == "auto" else self.center,
            "free" if self.diagonal == "auto" else self.diagonal,
            self.refines(n_columns),
            self.weight_exponent,
            self.ridge,
            tol=self.tol,
            max_passes=self.max_passes,
            refine_passes=self.refine_passes,
            scale="own" if self.scale == "auto" else "none",
        )

    def candidates(self, n_columns: int) -> Candidates:
        """What is tried for what is left open."""
        return Candidates(
            tuple(affordable_ranks(n_columns, self.refines(n_columns))) if self.rank == "auto" else None,
            CENTERS if self.center == "auto" else (),
            DIAGONALS if self.diagonal == "auto" else (),
            SCALES if self.scale == "auto" else (),
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fit, the setting it was made with, and how that was chosen; None where nothing was left open."""

    fit: Fit
    setting: Setting
    selection: Selection | None = None


def fit(
    panel: PanelLike,
    options: Options,
    rng: np.random.Generator,
    *,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Choose what is left open and fit all rows of a panel that can be fitted.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> outcome = fit(panel, Options(center="columns", diagonal="free"), np.random.default_rng(0))
    >>> outcome.setting.rank, outcome.fit.row_space.factor.shape
    (2, (30, 2))
    """
    checkpoint = checkpoint or Checkpoint()
    setting, selection, search = choose(panel, options, rng, progress, checkpoint)
    how = partial(fit_row_space, setting=setting, scaling=Scaling.of(panel, setting.scale), progress=progress)
    # One seed for each, drawn whether or not the work was done before.
    blend_seed, fit_seed = (int(seed) for seed in rng.integers(2**31, size=2))
    begin(progress, f"rank {setting.rank}, four fifths of the rows", cost(setting.rank), 2 * cost(setting.rank))
    blend = _blend(panel, options, search, how, blend_seed, checkpoint.work("blends"))
    if search is not None:
        search.forget(search.scores)
    begin(progress, f"rank {setting.rank}, all rows", 2 * cost(setting.rank), 0.0)
    result = how(panel, rng=fit_seed, work=checkpoint.work("fit"))
    if not result.solve.succeeded:
        warn(result.solve.message, ConvergenceWarning)
    if (
        result.refinement is not None
        and not result.refinement.settled
        and setting.refine_passes == options.refine_passes
    ):
        ended = result.refinement
        warn(
            f"refinement stopped at its limit of {counted(ended.passes, 'pass', 'passes')} before it had settled: the "
            f"last one still changed means or loadings by {ended.change:.2%} (settled: {TOLERANCE:.1%}); raise "
            "refine_passes to go on",
            ConvergenceWarning,
        )
    own_scales = column_scales(panel) if setting.scale == "common" else None
    noise_of_rows = learn_row_noise(result.row_space, panel)
    space = replace(result.row_space, row_noise=noise_of_rows, blend=blend, own_scales=own_scales)
    return Outcome(replace(result, row_space=space.measured_on(panel), to_go_on=None), setting, selection)


def choose(
    panel: PanelLike,
    options: Options,
    rng: np.random.Generator,
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> tuple[Setting, Selection | None, Search | None]:
    """The setting to fit: what was given, and the rest by held-out rows; and the search, if there was one."""
    d, setting = panel.n_columns, options.setting(panel.n_columns)
    if options.refine == "auto" and not setting.refined:
        warn(
            f"the moment solution is not refined: for {d:,} columns that would take "
            f'{options.refining_memory(d) / 2**30:.1f} GiB; pass refine="variational" to do it nevertheless, or '
            '"none" to silence this'
        )
    if "auto" not in (options.rank, options.center, options.diagonal):
        return setting, None, None
    if not enough_rows(panel):
        warn(
            f"fewer than ten rows have two entries: too few to choose by holding some out; rank={setting.rank}, "
            f"center={setting.center!r} and diagonal={setting.diagonal!r} are taken: name others to change that"
        )
        return setting, None, None
    search = Search(panel, options.candidates(d), rng, progress, checkpoint)
    selection = search.choose(setting, options.rule)
    return selection.setting, selection, search


def _blend(
    panel: PanelLike, options: Options, search: Search | None, how: Callable[..., Fit], seed: int, work: Work
) -> Blend:
    """As it was asked for, or chosen on held-out rows: those of the search, whose fit to the others is used again."""
    if options.blend is None or (options.blend == "auto" and not enough_rows(panel)):
        return NO_BLEND
    if options.blend != "auto":
        return Blend(float(options.blend))

    def fit(rows: PanelLike) -> RowSpace:
        if search is not None:
            return search.fit_to_others()
        return how(rows, rng=seed, most_passes=SEARCH_PASSES, work=work).row_space

    held_out = None if search is None else search.held_out
    return Blend(**work.done(lambda: asdict(choose_blend(panel, fit, seed, held_out))))
