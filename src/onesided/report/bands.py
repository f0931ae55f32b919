"""Bands around eigenvalues, where they can be had: the bootstrap over rows of the moment estimator.

The diagonal is always left free in it: fitted, it would put each column's own variance into the factor, and the bands
around eigenvalues that do not have it. Bands are drawn for as many leading directions as resampling leaves in place:
those whose principal angle to the whole panel's stays below 0.4 radians in nine replicates of ten
(:mod:`onesided.uncertainty`). They are left out, and the page says why:

====================================================  ==============================================================
found                                                 said
====================================================  ==============================================================
no component                                          nothing: there is no eigenvalue
a private model, or no panel                          the rows are not at hand
fewer than ten rows with two entries                  too few rows to resample
entries × components above 4 million                  it would take minutes
more than a tenth of the fits not settled             the fits to resampled rows did not settle
no direction that stays in place                      resampled rows turn even the firmest direction
====================================================  ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesided.completion import OneSidedCompletion
from onesided.errors import counted
from onesided.panel import Panel
from onesided.selection import enough_rows
from onesided.uncertainty import Bands, Replicated, bootstrap

REPLICATES = 30
MOST_WORK = 4_000_000  # entries × components, for about ten seconds
MOST_UNSETTLED = 0.1
FIRM = 0.4  # radians
LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class SpectrumBands:
    """Bands of the leading eigenvalues; ``why_not`` is a sentence where there are none."""

    bands: Bands | None = None
    number: int = 0  # of leading eigenvalues that have one
    why_not: str = ""

    @classmethod
    def of(
        cls,
        model: OneSidedCompletion,
        panel: Panel | None,
        components: int,
        seed: int = 0,
        progress: Replicated | None = None,
    ) -> SpectrumBands:
        """Bands for so many components.

        >>> from onesided import synthetic
        >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(1000, 12, 1, rng=0), 5, rng=1)
        >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(panel)
        >>> SpectrumBands.of(model, panel, 1).number
        1
        >>> SpectrumBands.of(model, None, 1).why_not
        'Bands are left out: they come from resampled rows, and the panel is not at hand.'
        """
        if components == 0:
            return cls()
        reason = _hindrance(model, panel, components)
        if reason or panel is None:
            return cls(why_not=f"Bands are left out: {reason}.")
        found = bootstrap(
            panel,
            rank=components,
            center=model.center_,
            diagonal="free",
            weight_exponent=model.weight_exponent,
            replicates=REPLICATES,
            columns=[],
            rng=seed,
            progress=progress,
        )
        if found.unsettled > MOST_UNSETTLED * (REPLICATES + 1):
            return cls(
                why_not=f"Bands are left out: {found.unsettled} of {REPLICATES + 1} fits to resampled rows did not "
                "settle."
            )
        firm = int(np.count_nonzero(found.angles(LEVEL).upper < FIRM))
        if firm == 0:
            return cls(
                why_not="Bands are left out: resampled rows turn even the firmest direction by more than 0.4 radians, "
                "and no band could be relied on."
            )
        return cls(found.eigenvalues(LEVEL), firm)


def _hindrance(model: OneSidedCompletion, panel: Panel | None, components: int) -> str:
    if model.privacy_ is not None:
        return "they come from resampled rows, and a private model keeps none"
    if panel is None:
        return "they come from resampled rows, and the panel is not at hand"
    if not enough_rows(panel):
        return "fewer than ten rows have two entries, too few to resample"
    if panel.n_entries * components > MOST_WORK:
        entries = counted(panel.n_entries, "entry", "entries")
        return (
            f"resampling {entries} for {counted(components, 'component')} would take minutes "
            "(<code>model.bootstrap()</code> makes them)"
        )
    return ""
