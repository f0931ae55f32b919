"""Rows of an experiment in words: chosen, grouped, averaged over seeds, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onesided.experiments.experiment import Axes, Row


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows that have the given values.

    >>> where([{"p": 1, "e": 0.5}, {"p": 2, "e": 0.25}], p=2)
    [{'p': 2, 'e': 0.25}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def column(rows: Iterable[Row], name: str) -> list[Any]:
    """One value of every row that has it.

    >>> column([{"e": 0.5}, {"e": None}, {"e": 0.25}], "e")
    [0.5, 0.25]
    """
    return [row[name] for row in rows if row.get(name) is not None]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """The values that a name takes, in order of appearance.

    >>> distinct([{"d": 20}, {"d": 10}, {"d": 20}], "d")
    [20, 10]
    """
    return list(dict.fromkeys(column(rows, name)))


def groups(rows: Iterable[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """The rows that agree in some values, with these values, in order of appearance.

    >>> groups([{"d": 20, "e": 0.5}, {"d": 10, "e": 0.25}, {"d": 20, "e": 0.75}], "d")
    [((20,), [{'d': 20, 'e': 0.5}, {'d': 20, 'e': 0.75}]), ((10,), [{'d': 10, 'e': 0.25}])]
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.items())


def means(rows: Sequence[Row], by: str, name: str) -> tuple[list[Any], list[float]]:
    """The values that ``by`` takes, ascending, and the mean of another value over the rows of each.

    >>> means([{"d": 20, "e": 0.5}, {"d": 10, "e": 0.25}, {"d": 20, "e": 1.5}], "d", "e")
    ([10, 20], [0.25, 1.0])
    """
    at = sorted(distinct(rows, by))
    return at, [mean(where(rows, **{by: value}), name) for value in at]


def mean(rows: Iterable[Row], name: str) -> float:
    """The mean of a value over rows, which are seeds as a rule.

    >>> mean([{"e": 0.5}, {"e": 0.25}], "e")
    0.375
    """
    return float(np.mean(column(rows, name)))


def deviation(rows: Iterable[Row], name: str) -> float:
    """Its standard deviation, with n − 1; 0 for a single row.

    >>> deviation([{"e": 1.0}, {"e": 3.0}], "e").__round__(4)
    1.4142
    """
    values = column(rows, name)
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def over_seeds(rows: Sequence[Row], name: str) -> str:
    """Both, to three digits; a dash where no row has the value.

    >>> over_seeds([{"e": 1.0}, {"e": 3.0}], "e"), over_seeds([], "e")
    ('2 ± 1.4', '–')
    """
    if not (values := column(rows, name)):
        return "–"
    return f"{mean(rows, name):.3g}" + (f" ± {deviation(rows, name):.2g}" if len(values) > 1 else "")


def root_mean(rows: Iterable[Row], name: str) -> float:
    """The root of the mean of a squared value; zero where the mean is below.

    >>> root_mean([{"e2": 0.03}, {"e2": 0.05}], "e2"), root_mean([{"e2": -0.01}], "e2")
    (0.2, 0.0)
    """
    return float(np.sqrt(max(mean(rows, name), 0.0)))


def root_over_seeds(rows: Sequence[Row], name: str) -> str:
    """The root of the mean of a squared value, and to first order the standard deviation of such roots over seeds.

    >>> root_over_seeds([{"e2": 0.03}, {"e2": 0.05}], "e2"), root_over_seeds([{"e2": -1.0}], "e2")
    ('0.2 ± 0.035', '0')
    """
    if not column(rows, name):
        return "–"
    root, spread = root_mean(rows, name), deviation(rows, name)
    return f"{root:.3g} ± {spread / (2 * root):.2g}" if root > 0 and len(column(rows, name)) > 1 else f"{root:.3g}"


def markdown(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; a bar in a cell is escaped.

    >>> print(markdown(["d", "error"], [[10, 0.5]]), end="")
    | d | error |
    | --- | --- |
    | 10 | 0.5 |
    """
    rows = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(_in_words(one) for one in row) + " |\n" for row in rows)


def _in_words(one: Any) -> str:
    if isinstance(one, float):
        return f"{one:.3g}"
    if isinstance(one, int) and not isinstance(one, bool):
        return f"{one:,}"
    return str(one).replace("|", "\\|")


def tables(header: Sequence[str], lines: dict[str, list[list[Any]]]) -> str:
    """Markdown tables with one header, each under its title.

    >>> print(tables(["d"], {"digits": [[10]], "ratings": [[20]]}).splitlines()[:4])
    ['**digits**', '', '| d |', '| --- |']
    """
    return "\n".join(f"**{title}**\n\n{markdown(header, below)}" for title, below in lines.items())


def agreement(holds: Sequence[bool], mainly: bool | None = None) -> str:
    """How a verdict begins: whether all claims hold, or at least the main one (any, where none is named).

    >>> agreement([True, True]), agreement([True, False]), agreement([True, False], False)
    ('Agrees', 'Agrees in part', 'Does not agree')
    """
    part = any(holds) if mainly is None else mainly
    return "Agrees" if all(holds) else "Agrees in part" if part else "Does not agree"


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of the straight line through points by least squares, and R², the share of variance it explains.

    >>> steep, explained = slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    >>> round(steep, 6), round(explained, 6)
    (2.0, 1.0)
    """
    steep, level = np.polyfit(x, y, 1)
    residual = np.asarray(y) - steep * np.asarray(x) - level
    total = float(np.sum((np.asarray(y) - np.mean(y)) ** 2))
    return float(steep), 1.0 - float(np.sum(residual**2)) / total if total > 0 else 1.0


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The power k of y ∝ xᵏ, by least squares between logarithms.

    >>> round(exponent([1.0, 10.0], [3.0, 300.0]), 6)
    2.0
    """
    return slope(np.log(x).tolist(), np.log(y).tolist())[0]


def log_axis(axis: Axes, values: Iterable[float]) -> None:
    """A logarithmic x axis with ticks at the values that were measured, and at no others."""
    axis.set_xscale("log")
    values = sorted(set(values))
    axis.set_xticks(values, [f"{value:,g}" for value in values], fontsize=7)
    axis.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
