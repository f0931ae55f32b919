"""Private fits: by which mechanism, and what the budget does not pay for.

All columns are measured by the bounds, which are public and hold for all of them: whatever ``scale`` is, no scale of a
column is estimated from its values, and ``scales_`` are ones. Where columns are in units of their own, bring their
values to a common range that is known in advance, before the fit.

What is refused, beside what :mod:`onesided.privacy.plan` refuses:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
a rank to choose, with "gradient" or "central"         rank="auto" tries many ranks on the same rows …
``refine``, ``blend`` or ``diagonal`` likewise         refine='variational' would go over the rows again …
``center="none"`` likewise                             center="none" is not for a private fit …
=====================================================  ========================================================
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onesided.errors import FOUND, InputError
from onesided.fitting.fit import Options, Outcome, fit
from onesided.fitting.setting import Setting, check_fittable, check_rank
from onesided.fitting.solvers.result import Progress
from onesided.panels.panel_like import PanelLike
from onesided.privacy.central import release_by_pairs
from onesided.privacy.curator import Account, Curator
from onesided.privacy.gradient import release_by_gradient
from onesided.privacy.local import noised_values, without_noise
from onesided.privacy.plan import Privacy


def fit_privately(
    panel: PanelLike, options: Options, privacy: Privacy, rng: np.random.Generator, progress: Progress | None = None
) -> tuple[Outcome, Account]:
    """Fit an admitted panel, and say what that has cost; ``rng`` seeds only the solver's start, which is public.

    The outcome holds what was released and nothing else.
    """
    if privacy.mechanism == "local":
        curator = Curator.of(panel, privacy)
        noisy = noised_values(curator)
        check_fittable(noisy, options.lowest_rank)
        options = replace(options, blend=None, scale="none")  # no panel to measure in; the bounds are all columns' unit
        outcome = fit(noisy, options, rng, progress=progress)
        released = without_noise(curator, outcome.fit.row_space)
        return replace(outcome, fit=replace(outcome.fit, row_space=released)), curator.account()
    setting = _affordable(options, panel.n_columns)
    curator = Curator.of(panel, privacy)
    release = release_by_gradient if privacy.mechanism == "gradient" else release_by_pairs
    return Outcome(release(curator, setting.rank, setting.center, rng, progress), setting), curator.account()


def _affordable(options: Options, n_columns: int) -> Setting:
    """The setting given; refuse options that the budget does not cover."""
    if options.rank == "auto":
        raise InputError(
            f"{FOUND} tries many ranks on the same rows, which no part of the budget pays for: give a rank, "
            "chosen on other data or by what is known of the subject",
            option="rank",
            found="auto",
        )
    if options.center == "none":
        message = f"{FOUND} is not for a private fit, which counts from the middle of the bounds"
        raise InputError(message, option="center", found="none")
    free = {"refine": ("auto", "none"), "diagonal": ("auto", "free"), "blend": ("auto", None)}
    for name, costless in free.items():
        given = getattr(options, name)
        if given not in costless:
            raise InputError(
                f"{name}={given!r} would go over the rows again, which no part of the budget pays for: "
                f"leave {name} out of a private fit"
            )
    check_rank(int(options.rank), n_columns)
    center = "both" if options.center == "auto" else options.center
    return Setting(int(options.rank), center, "free", refined=False)
