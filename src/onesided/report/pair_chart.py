"""The error of T by how often a pair of columns was seen, drawn and listed."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.errors import counted
from onesided.report.formatting import number
from onesided.report.page import figure, sentence, table
from onesided.report.pair_errors import PairError, PairErrors
from onesided.report.svg import FIRST, MUTED, SECOND, drawn, plain_numbers, round_steps

THAN_MEANS = {1: "better than means", -1: "worse than means", 0: "not to be told from means"}


def pair_chart(found: PairErrors | None) -> str:
    """The error of T by how many fitted rows have a pair: of the model, of pairs as measured, of column means."""
    known = [] if found is None else [one for one in found.model if one.high is not None]
    if found is None or not known:
        return sentence(f"How far T is off cannot be told: {_why_not(found)}.")
    names = [one.rows for one in found.model]
    lines_of_all = zip(found.model, found.means, found.gains, strict=True)
    compared = {one.fewest: (one, means, gain) for one, means, gain in lines_of_all}
    series = [("the model", known, FIRST, "o", -0.12)]
    beside = [one for one in found.measured if one.high is not None]
    if beside:
        series.append(("as measured", beside, SECOND, "s", 0.0))
    series.append(("column means", [one for one in found.means if one.high is not None], MUTED, "D", 0.12))
    highs = [one.high for _, lines, *_ in series for one in lines if one.high is not None]
    lows = [one.low or one.high or 0.0 for _, lines, *_ in series for one in lines]
    logarithmic = min(lows) > 0 and max(highs) > 8 * min(lows)

    def draw(axis: Any) -> None:
        for name, lines, colour, marker, shift in series:
            _draw_errors(axis, name, lines, names, (colour, marker, shift))
        axis.set_xticks(range(len(names)), [_short(one) for one in found.model])
        axis.set_xlim(-0.5, len(names) - 0.5)
        axis.set_xlabel("fitted rows that have the pair")
        axis.set_ylabel("relative error of T (%)")
        if logarithmic:
            axis.set_yscale("log")
            low, high = 70 * min(lows), 150 * max(highs)
            axis.set_ylim(low, high)
            round_steps(axis.yaxis, low, high)
        else:
            axis.set_ylim(0, 115 * max(highs))
            plain_numbers(axis.yaxis)
        axis.figure.legend(loc="outside upper left", ncols=2, borderaxespad=0.2)

    return figure(
        drawn("pairs", draw, height=3.5),
        "Chart: the relative error of T by how many rows have a pair of columns, with 90% intervals, for the model"
        + (", for pairs as measured and for column means alone" if beside else " and for column means alone")
        + ("; arrows where only an upper bound is known" if any(one.error is None for one in known) else ""),
        "; ".join(_reading(*compared[one.fewest], again=k > 0) for k, one in enumerate(known[:1] + known[1:][-1:]))
        + ".",
    )


def pair_table(found: PairErrors | None) -> str:
    """The same as a table; nothing where nothing is known."""
    if found is None or not any(one.high is not None for one in found.model):
        return ""
    measured = {one.fewest: one for one in found.measured}
    rows = [
        [
            one.rows,
            f"{one.pairs:,}",
            _told(one),
            _told(measured[one.fewest]) if one.fewest in measured else "none",
            _told(means),
            THAN_MEANS[gain],
        ]
        for one, means, gain in zip(found.model, found.means, found.gains, strict=True)
    ]
    left = (
        f" {counted(found.left_out, 'pair')} in lines of fewer than {found.fewest} left out." if found.left_out else ""
    )
    return table(
        "Relative error of T, by how many fitted rows have a pair",
        ["rows", "pairs", "the model", "as measured", "column means", "the model is"],
        rows,
        numbers=[1, 2, 3, 4],
    ) + sentence(
        f"Over {counted(found.pairs, 'pair')} among {counted(found.columns, 'column')}.{left} “As measured” is "
        "the mean product of the fitted rows that have the pair, by itself; “column means” the product of the two "
        "columns' means in the fitted rows, which knows of nothing that columns have in common: where the model is no "
        "better, its number says nothing of its components and row effects."
    )


def _why_not(found: PairErrors | None) -> str:
    """Why there is no line to draw."""
    if found is None:
        return "too few pairs of columns are in two held-out rows"
    if not found.model:
        return (
            f"the pairs that two held-out rows have differ so much in how many fitted rows have them that no line of "
            f"the table would have {found.fewest}"
        )
    return "what pairs of columns have in common in held-out rows does not stand out from its noise"


def _told(one: PairError) -> str:
    if one.high is None:
        return "cannot be told"
    if one.error is None:
        return f"at most {_in_percent(one.high)}"
    return f"{_in_percent(one.error)} ({_in_percent(one.low)} to {_in_percent(one.high)})"


def _in_percent(one: float | None) -> str:
    return f"{number(None if one is None else 100 * one, 2)}%"


def _reading(one: PairError, means: PairError, gain: int, *, again: bool = False) -> str:
    def off(error: PairError) -> str:
        return f"at most {_in_percent(error.high)}" if error.error is None else _in_percent(error.error)

    rows = "no fitted row has" if one.most == 0 else f"{one.rows} fitted rows have"
    where = f"{'where' if again else 'Where'} {rows} a pair"
    told = {
        1: "pair by pair the model is better",
        -1: "pair by pair the model is worse",
        0: "which is better cannot be told",
    }
    return f"{where}, the model's T is off by {off(one)}, column means by {off(means)}: {told[gain]}"


def _short(one: PairError) -> str:
    def brief(rows: int) -> str:
        return f"{rows // 1000}k" if rows >= 1000 else str(rows)

    if one.most is None:
        return f"{brief(one.fewest)}+"
    if one.fewest == one.most:
        return brief(one.fewest)
    return (
        f"{brief(one.fewest)}–\n{brief(one.most)}"
        if one.most < 1000
        else f"{brief(one.fewest)}–\n{brief(one.most + 1)}"
    )


def _draw_errors(axis: Any, name: str, lines: list[PairError], names: list[str], look: tuple[str, str, float]) -> None:
    colour, marker, shift = look
    told = [one for one in lines if one.error is not None]
    bounds = [one for one in lines if one.error is None]
    at = [names.index(one.rows) + shift for one in told]
    middle = np.array([100 * (one.error or 0.0) for one in told])
    low = middle - np.array([100 * (one.low or 0.0) for one in told])
    high = np.array([100 * (one.high or 0.0) for one in told]) - middle
    if told:
        axis.errorbar(at, middle, np.stack([low, high]), fmt=marker, color=colour, markersize=4.5, label=name)
    if bounds:
        axis.plot(
            [names.index(one.rows) + shift for one in bounds],
            [100 * (one.high or 0.0) for one in bounds],
            linestyle="none",
            marker="v",
            fillstyle="none",
            markersize=6,
            color=colour,
            label=f"{name}, at most",
        )
