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


def pair_chart(errors: PairErrors | None) -> str:
    """The error of T by how many fitted rows have a pair: of the model, of pairs as measured, of column means."""
    drawable = [] if errors is None else _drawable(errors.model)
    if errors is None or not drawable:
        return sentence(f"How far T is off cannot be told: {_why_not(errors)}.")
    names = [line.rows for line in errors.model]
    compared = [line for line in zip(errors.model, errors.means, errors.gains, strict=True) if line[0] in drawable]
    beside = _drawable(errors.measured)
    series = [
        ("the model", drawable, FIRST, "o", -0.12),
        ("as measured", beside, SECOND, "s", 0.0),
        ("column means", _drawable(errors.means), MUTED, "D", 0.12),
    ]
    highs = [line.high for _, lines, *_ in series for line in lines if line.high is not None]
    lows = [line.low or line.high or 0.0 for _, lines, *_ in series for line in lines]
    logarithmic = min(lows) > 0 and max(highs) > 8 * min(lows)

    def draw(axis: Any) -> None:
        for name, lines, colour, marker, shift in series:
            if lines:
                _draw_errors(axis, name, lines, names, (colour, marker, shift))
        axis.set_xticks(range(len(names)), [_short(line) for line in errors.model])
        axis.set_xlim(-0.5, len(names) - 0.5)
        axis.set(xlabel="fitted rows that have the pair", ylabel="relative error of T (%)")
        if logarithmic:
            axis.set_yscale("log")
            low, high = 70 * min(lows), 150 * max(highs)
            axis.set_ylim(low, high)
            round_steps(axis.yaxis, low, high)
        else:
            axis.set_ylim(0, 115 * max(highs))
            plain_numbers(axis.yaxis)
        axis.figure.legend(loc="outside upper left", ncols=2, borderaxespad=0.2)

    others = ", for pairs as measured and for column means alone" if beside else " and for column means alone"
    arrows = "; arrows where only an upper bound is known" if any(line.error is None for line in drawable) else ""
    shows = "Chart: the relative error of T by how many rows have a pair of columns, with 90% intervals, for the model"
    reading = "; ".join(_reading(*line) for line in compared[:1] + compared[1:][-1:])
    return figure(drawn("pairs", draw, height=3.5), f"{shows}{others}{arrows}", f"{reading[0].upper()}{reading[1:]}.")


def pair_table(errors: PairErrors | None) -> str:
    """The same as a table; nothing where nothing is known."""
    if errors is None or not _drawable(errors.model):
        return ""
    measured = {line.fewest: line for line in errors.measured}
    rows = [
        [
            line.rows,
            f"{line.pairs:,}",
            _in_words(line),
            _in_words(measured[line.fewest]) if line.fewest in measured else "none",
            _in_words(means),
            THAN_MEANS[gain],
        ]
        for line, means, gain in zip(errors.model, errors.means, errors.gains, strict=True)
    ]
    short = f" {counted(errors.left_out, 'pair')} in lines of fewer than {errors.fewest} left out."
    left = short if errors.left_out else ""
    title = "Relative error of T, by how many fitted rows have a pair"
    head = ["rows", "pairs", "the model", "as measured", "column means", "the model is"]
    return table(title, head, rows, numbers=[1, 2, 3, 4]) + sentence(
        f"Over {counted(errors.pairs, 'pair')} among {counted(errors.columns, 'column')}.{left} “As measured” is "
        "the mean product of the fitted rows that have the pair, by itself; “column means” the product of the two "
        "columns' means in the fitted rows, which knows of nothing that columns have in common: where the model is no "
        "better, its number says nothing of its components and row effects."
    )


def _drawable(lines: tuple[PairError, ...]) -> list[PairError]:
    return [line for line in lines if line.high is not None]


def _why_not(errors: PairErrors | None) -> str:
    if errors is None:
        return "too few pairs of columns are in two held-out rows"
    if not errors.model:
        differ = "the pairs that two held-out rows have differ so much in how many fitted rows have them"
        return f"{differ} that no line of the table would have {errors.fewest}"
    return "what pairs of columns have in common in held-out rows does not stand out from its noise"


def _in_words(line: PairError) -> str:
    if line.high is None:
        return "cannot be told"
    if line.error is None:
        return f"at most {_in_percent(line.high)}"
    return f"{_in_percent(line.error)} ({_in_percent(line.low)} to {_in_percent(line.high)})"


def _in_percent(share: float | None) -> str:
    return f"{number(None if share is None else 100 * share, 2)}%"


def _reading(line: PairError, means: PairError, gain: int) -> str:
    def off(error: PairError) -> str:
        return f"at most {_in_percent(error.high)}" if error.error is None else _in_percent(error.error)

    rows = "no fitted row has" if line.most == 0 else f"{line.rows} fitted rows have"
    better = {1: "pair by pair the model is better", -1: "pair by pair the model is worse"}
    told = better.get(gain, "which is better cannot be told")
    return f"where {rows} a pair, the model's T is off by {off(line)}, column means by {off(means)}: {told}"


def _short(line: PairError) -> str:
    def brief(rows: int) -> str:
        return f"{rows // 1000}k" if rows >= 1000 else str(rows)

    if line.most is None:
        return f"{brief(line.fewest)}+"
    if line.fewest == line.most:
        return brief(line.fewest)
    return f"{brief(line.fewest)}–\n{brief(line.most if line.most < 1000 else line.most + 1)}"


def _draw_errors(axis: Any, name: str, lines: list[PairError], names: list[str], look: tuple[str, str, float]) -> None:
    colour, marker, shift = look
    at = np.array([names.index(line.rows) + shift for line in lines])
    known = np.array([line.error is not None for line in lines])
    errors = [(line.error or 0.0, line.low or 0.0, line.high or 0.0) for line in lines]
    middle, low, high = 100 * np.array(errors).T
    if known.any():
        off = np.stack([middle - low, high - middle])[:, known]
        axis.errorbar(at[known], middle[known], off, fmt=marker, color=colour, markersize=4.5, label=name)
    if not known.all():
        look_of_bounds = {"fillstyle": "none", "markersize": 6, "color": colour, "label": f"{name}, at most"}
        axis.plot(at[~known], high[~known], linestyle="none", marker="v", **look_of_bounds)
