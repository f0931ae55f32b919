"""The spectrum: what each component stands for, and how sure that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.errors import counted
from onesided.report.bands import SpectrumBands
from onesided.report.components import Components
from onesided.report.formatting import number, share
from onesided.report.page import figure, sentence, table
from onesided.report.svg import FIRST, SECOND, drawn, few_numbers, plain_numbers, round_steps

LINES = 12  # of the table


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
        axis.set_xlabel("component")
        axis.set_ylabel("eigenvalue (squared units)")
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
    bands = around.bands
    head, numbers = ["component", "eigenvalue", "share of variance"], [1, 2]
    rows = []
    for k, component in enumerate(components.leading[:LINES]):
        row = [str(k + 1), number(component.eigenvalue), share(component.share)]
        if bands is not None:
            has = k < around.number
            row.append(f"{number(bands.lower[k])} to {number(bands.upper[k])}" if has else "not to be told")
        rows.append(row)
    if bands is not None:
        head, numbers = [*head, "90% band"], [*numbers, 3]
    more = components.number - len(rows)
    left = sentence(f"{counted(more, 'more component is', 'more components are')} not listed.") if more else ""
    return f"<div>{table('Eigenvalues', head, rows, numbers=numbers)}{left}</div>"
