"""The rank and how it was chosen: the scores on held-out rows of all settings that were tried."""

from __future__ import annotations

from typing import Any

from onesided.errors import counted
from onesided.fitting.selection import Selection, Trial
from onesided.report.formatting import decimals, fixed
from onesided.report.page import figure, table
from onesided.report.svg import FIRST, INK, MUTED, SECOND, drawn, few_numbers

CENTERS = {"none": "no means", "columns": "column means", "both": "column means and row effects"}
DIAGONALS = {"free": "diagonal free", "fit": "diagonal fitted"}
SCALES = {"own": "columns in their own units", "common": "columns in a common unit", "none": "columns as they are"}


def held_out_curve(trials: tuple[Trial, ...]) -> str:
    """The score of every setting against its rank, with the reading of it."""
    chosen = next(trial for trial in trials if trial.chosen)
    kinds = sorted({_kind(trial) for trial in trials}, key=lambda kind: (kind != _kind(chosen), kind))
    scales_differ = len({trial.scale for trial in trials}) > 1
    best = trials[0]

    def label(center: str, diagonal: str, scale: str) -> str:
        return f"{CENTERS[center]}, {DIAGONALS[diagonal]}" + (f", {SCALES[scale]}" if scales_differ else "")

    def draw(axis: Any) -> None:
        for k, kind in enumerate(kinds):
            path = sorted((trial.rank, trial.score, trial.standard_error) for trial in trials if _kind(trial) == kind)
            axis.errorbar(
                *zip(*path, strict=True),
                color=(FIRST, SECOND, MUTED, INK)[k % 4],
                marker="os^D"[k % 4],
                markersize=3.5,
                linewidth=1.4 if k == 0 else 0.9,
                linestyle=("-", "--", ":", "-.")[k % 4],
                label=label(*kind),
            )
        axis.plot(chosen.rank, chosen.score, "o", markersize=9, fillstyle="none", color=INK, label="chosen")
        axis.set(xlabel="rank", ylabel="held-out log score (nats)")
        few_numbers(axis.xaxis, whole=True)
        few_numbers(axis.yaxis, plain=False)
        low = min(trial.score for trial in trials)
        high = max(trial.score + trial.standard_error for trial in trials)
        axis.set_ylim(low - 0.06 * (high - low) - 1e-9, high + 0.06 * (high - low) + 1e-9)
        axis.figure.legend(loc="outside upper left", ncols=1, borderaxespad=0.2)

    last = " No larger rank was tried." if chosen.rank == max(trial.rank for trial in trials) else ""
    within = "which scored best" if chosen == best else f"close to the best score, {fixed(best.score, 4)}"
    zero = [trial for trial in trials if trial.rank == 0]
    gain = f"; rank 0 comes to {fixed(max(trial.score for trial in zero), 4)}" if zero and chosen.rank > 0 else ""
    return figure(
        drawn("held-out", draw, height=3.1 + 0.17 * len(kinds)),
        "Line chart: the held-out score of every setting that was tried against its rank",
        f"Rank {chosen.rank} was taken, at {fixed(chosen.score, 4)} nats, {within}{gain}.{last} Bars are one "
        "standard error of the difference to the best setting, which itself has none.",
    )


def settings_tried(selection: Selection) -> str:
    """All settings as a table."""
    places = decimals(max(trial.rmse for trial in selection.trials), 4)
    rows = [
        [
            str(trial.rank),
            trial.center,
            trial.diagonal,
            trial.scale,
            fixed(trial.score, 4),
            fixed(trial.standard_error, 4),
            fixed(trial.rmse, places),
        ]
        for trial in selection.trials
    ]
    chosen = next(k for k, trial in enumerate(selection.trials) if trial.chosen)
    rmse = "RMSE" if selection.units == "values" else "RMSE, in scales"
    head = ["rank", "center", "diagonal", "scale", "log score", "± to best", rmse]
    title = f"{counted(len(rows), 'setting')} tried, best first; the one chosen stands out"
    return table(title, head, rows, numbers=[0, 4, 5, 6], chosen=chosen)


def _kind(trial: Trial) -> tuple[str, str, str]:
    return trial.center, trial.diagonal, trial.scale
