"""From a panel and a setting to a row space: the moment solution and, if asked, its refinement."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.refinement import refine
from onesided.fitting.scales import AS_THEY_ARE, Scaling
from onesided.fitting.setting import Fit, Setting, check_fittable
from onesided.fitting.solvers.result import Progress
from onesided.panels.panel_like import PanelLike
from onesided.storage.checkpoint import NOWHERE, Work

COARSE = 1e-3  # tolerance of a moment solution that is only the start of a refinement


def fit_row_space(
    panel: PanelLike,
    setting: Setting,
    rng: int | np.random.Generator,
    *,
    scaling: Scaling = AS_THEY_ARE,
    most_passes: int | None = None,
    begun: Fit | None = None,
    progress: Progress | None = None,
    work: Work = NOWHERE,
) -> Fit:
    """Fit the rows of positive weight, in the columns' units; ``most_passes`` further limits a refinement.

    ``begun`` is a fit of the same rows and setting that ended at such a limit, and goes on from there.

    >>> from onesided import Panel
    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [2.0, 4.0, 1.0], [3.0, np.nan, 2.0]])
    >>> fit_row_space(panel, Setting(1, refined=False), rng=0).solve.status
    'converged'
    """
    check_fittable(panel, setting.rank)
    passes = setting.refine_passes if most_passes is None else min(most_passes, setting.refine_passes)
    how = partial(refine, panel, center=setting.center, scaling=scaling, passes=passes, progress=progress, work=work)
    if begun is not None and setting.refined:
        return how(begun)
    start = replace(setting, tol=max(setting.tol, COARSE)) if setting.refined else setting
    solution = moment_solution(panel, start, scales=scaling.scales, rng=rng, progress=progress, work=work)
    return how(solution) if setting.refined else solution
