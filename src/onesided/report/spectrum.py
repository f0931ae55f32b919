"""The spectrum: what each component stands for and, where they can be had, bands around eigenvalues.

Bands come from the bootstrap over rows of the moment estimator. The diagonal is always left free in it: fitted, it
would put each column's own variance into the factor, and the bands around eigenvalues that do not have it. Bands are
drawn for as many leading eigenvalues as the row space has directions that resampling leaves in place: those whose
principal angle to the whole panel's stays below 0.4 radians in nine replicates of ten
(:mod:`onesided.fitting.bootstrap`). Angles alone do not tell noise, which every replicate has in common with the whole:
the components must also have earned their place on held-out rows, by two standard errors, against rank 0 among the
settings tried or else as :func:`onesided.report.held_out.earned` has it. Bands are left out, and the page says why:

======================================================  ============================================================
found                                                   said
======================================================  ============================================================
no component                                            nothing: there is no eigenvalue
a private model, or no panel                            the rows are not at hand
fewer than ten rows with two entries                    too few rows to resample
fewer than five rows to a pair of columns, on average   there the moment estimator fits noise
components that have not earned their place             they may be noise
entries × components above 4 million                    it would take minutes
more than a tenth of the fits not settled               the fits to resampled rows did not settle
no direction that stays in place                        resampled rows turn even the firmest direction
======================================================  ============================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.bootstrap import Replicated, bootstrap
from onesided.fitting.selection import EARNED, Selection, enough_rows
from onesided.model.uncertainty import Bands
from onesided.panels.panel import Panel
from onesided.report.components import Components
from onesided.report.formatting import number, share
from onesided.report.page import figure, sentence, table
from onesided.report.svg import FIRST, SECOND, drawn, few_numbers, plain_numbers, round_steps
from onesided.report.units import panel_in_scales

REPLICATES = 30
MOST_WORK = 4_000_000  # entries × components, for about ten seconds
MOST_UNSETTLED = 0.1
FIRM = 0.4  # radians
LEVEL = 0.9
LEAST_ROWS = 5.0  # that have a pair of columns, on average (:mod:`onesided.fitting.bootstrap`)
LINES = 12  # of the table


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
        *,
        earned: bool | None = None,
    ) -> SpectrumBands:
        """Bands for so many components.

        ``earned`` is whether they predict held-out rows better than a model without; None where that is not known.
        Trials of the fit's own choice, where rank 0 is among them, say it instead.

        >>> from onesided import synthetic
        >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(1000, 12, 1, rng=0), 5, rng=1)
        >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(panel)
        >>> SpectrumBands.of(model, panel, 1, earned=True).number
        1
        >>> SpectrumBands.of(model, None, 1).why_not
        'Bands are left out: they come from resampled rows, and the panel is not at hand.'
        """
        if components == 0:
            return cls()
        reason = _hindrance(model, panel, components, earned)
        if not reason and panel is not None:
            space, scaled = model.row_space_, model.row_space_.in_own_units
            replicates = bootstrap(
                panel_in_scales(panel, space.units) if scaled else panel,
                rank=components,
                center=model.center_,
                diagonal="free",
                weight_exponent=model.weight_exponent,
                scales=None if scaled else space.scales,
                replicates=REPLICATES,
                columns=[],
                rng=seed,
                progress=progress,
            )
            firm = int(np.count_nonzero(replicates.angles(LEVEL).upper < FIRM))
            if replicates.unsettled > MOST_UNSETTLED * (REPLICATES + 1):
                reason = f"{replicates.unsettled} of {REPLICATES + 1} fits to resampled rows did not settle"
            elif firm > 0:
                return cls(replicates.eigenvalues(LEVEL), firm)
            else:
                turned = "resampled rows turn even the firmest direction by more than 0.4 radians"
                reason = f"{turned}, and no band could be relied on"
        return cls(why_not=f"Bands are left out: {reason}.")


def rows_of_a_pair(panel: Panel) -> float:
    """How many rows have a pair of different columns, on average over all pairs.

    >>> rows_of_a_pair(Panel.from_dense([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan], [1.0, np.nan, np.nan]]))
    1.3333333333333333
    """
    m = panel.row_counts[panel.row_weights > 0].astype(np.float64)
    d = panel.n_columns
    return float(np.sum(m * (m - 1))) / max(d * (d - 1), 1)


def beat_rank_zero(selection: Selection | None) -> bool | None:
    """Whether the setting chosen scored above rank 0 by two standard errors; None where rank 0 was not tried.

    The standard error is that of the difference between rank 0 and the best.
    """
    zero = [] if selection is None else [trial for trial in selection.trials if trial.rank == 0]
    if selection is None or not zero:
        return None
    chosen = next(trial for trial in selection.trials if trial.chosen)
    return all(chosen.score - trial.score > EARNED * trial.standard_error for trial in zero)


def _hindrance(model: OneSidedCompletion, panel: Panel | None, components: int, earned: bool | None) -> str:
    if model.privacy_ is not None:
        return "they come from resampled rows, and a private model keeps none"
    if panel is None:
        return "they come from resampled rows, and the panel is not at hand"
    if not enough_rows(panel):
        return "fewer than ten rows have two entries, too few to resample"
    rows = rows_of_a_pair(panel)
    if rows < LEAST_ROWS:
        average = f"{number(rows, 2)} rows have a pair of columns on average"
        return f"{average}, and below {LEAST_ROWS:.0f} bands are too narrow"
    tried = beat_rank_zero(model.selection_)
    earned = earned if tried is None else tried
    if earned is None:
        return "whether the components predict held-out rows better than means do cannot be told, and they may be noise"
    if not earned:
        return (
            "on held-out rows the components do not predict better, by two standard errors, than a model without them, "
            "and they may be noise"
        )
    if panel.n_entries * components > MOST_WORK:
        work = f"{counted(panel.n_entries, 'entry', 'entries')} for {counted(components, 'component')}"
        return f"resampling {work} would take minutes (<code>model.bootstrap()</code> makes them)"
    return ""


def spectrum(components: Components, around: SpectrumBands) -> str:
    """The eigenvalues of the components that matter, with their bands, and the reading of it."""
    values = np.array([component.eigenvalue for component in components.leading])
    ranks = np.arange(1, len(values) + 1)
    bands, firm = around.bands, around.number
    logarithmic = values.max() > 20 * values.min()

    def draw(axis: Any) -> None:
        if bands is not None:
            middle = (bands.lower[:firm] + bands.upper[:firm]) / 2
            axis.errorbar(
                ranks[:firm],
                middle,
                (bands.upper[:firm] - bands.lower[:firm]) / 2,
                fmt="none",
                ecolor=SECOND,
                elinewidth=2.5,
                capsize=6,  # a band narrower than the mark of its eigenvalue still shows
                capthick=1.2,
                zorder=3,
                label="90% band",
            )
        axis.plot(ranks, values, "o-", color=FIRST, markersize=4, linewidth=1, label="the model")
        axis.set(xlabel="component", ylabel=f"eigenvalue (squared {'scales' if components.scaled else 'units'})")
        few_numbers(axis.xaxis, whole=True)
        if logarithmic:
            axis.set_yscale("log")
            low, high = float(values.min()) * 0.7, float(values.max()) * 1.6
            axis.set_ylim(low, high)
            round_steps(axis.yaxis, low, high)
        else:
            axis.set_ylim(bottom=0)
            plain_numbers(axis.yaxis)
        if bands is not None:
            axis.legend(loc="upper right")

    half = int(np.searchsorted(np.cumsum(values), values.sum() / 2)) + 1
    first = f"The first {half} of {len(values)} components hold" if half > 1 else "The first component holds"
    how_many = ""
    if bands is not None and firm < len(values):
        drawn_for = f"Bands are drawn for the first {firm}" if firm > 1 else "A band is drawn for the first alone"
        how_many = (
            f" {drawn_for}: so many of the {len(values)} directions of the row space stay within 0.4 radians when rows "
            "are resampled."
        )
    return figure(
        drawn("spectrum", draw),
        "Chart: the eigenvalue of each component, largest first"
        + (", on a logarithmic scale" if logarithmic else "")
        + (", with bands" if bands is not None else ""),
        f"{first} at least half of the variance that all components have; the largest eigenvalue is "
        f"{number(values[0])}, the last {number(values[-1])}.{how_many}",
    )


def eigenvalues(components: Components, around: SpectrumBands) -> str:
    """The same as a table."""
    bands, head = around.bands, ["component", "eigenvalue", "share of variance"]
    shown = enumerate(components.leading[:LINES], 1)
    rows = [[str(k), number(component.eigenvalue), share(component.share)] for k, component in shown]
    if bands is not None:
        head.append("90% band")
        for k, row in enumerate(rows):
            has = k < around.number
            row.append(f"{number(bands.lower[k])} to {number(bands.upper[k])}" if has else "not to be told")
    more = components.number - len(rows)
    left = sentence(f"{counted(more, 'more component is', 'more components are')} not listed.") if more else ""
    return f"<div>{table('Eigenvalues', head, rows, numbers=range(1, len(head)))}{left}</div>"
