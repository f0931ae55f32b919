"""Pictures as inline SVG that take the page's colours, its font and its width.

Pictures are drawn with matplotlib in five stand-in colours, each of which becomes a variable of the page afterwards, so
that one picture serves light and dark. The same numbers give the same bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.report.formatting import number, shortened, width

Draw = Callable[[Any], None]

INK, MUTED, RULE, FIRST, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}
VARIABLES |= {FIRST: "var(--first)", SECOND: "var(--second)"}
WIDTH = 4.4  # inches: narrow, so that letters stay readable on a telephone
LETTERS = 10.0  # points
SMALL = 8.5
BROAD = "mw@%&$#<>=+~…—"
LABEL = 22  # letters of a label at most
TRIES = 4  # points tried for each label that is wanted: those farther in are not worth one
SETTINGS = {
    "svg.fonttype": "none",
    "font.size": LETTERS,
    "axes.prop_cycle": f"cycler('color', ['{FIRST}', '{SECOND}', '{MUTED}'])",
    "font.family": "sans-serif",
    "axes.unicode_minus": True,
    "axes.linewidth": 0.8,
    "legend.fontsize": SMALL + 0.5,
    **dict.fromkeys(
        ["text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "legend.labelcolor"], INK
    ),
    **dict.fromkeys(["axes.edgecolor", "xtick.color", "ytick.color"], RULE),
    **dict.fromkeys(["text.parse_math", "axes.spines.top", "axes.spines.right", "legend.frameon"], False),
}


def drawn(name: str, draw: Draw, *, height: float = 2.9) -> str:
    """A picture that ``draw`` makes on an axis, as an SVG element; ``name`` is unique on the page.

    >>> svg = drawn("example", lambda axis: axis.plot([0, 1], [0, 1], color=FIRST))
    >>> svg.startswith("<svg viewBox="), "var(--first)" in svg, "http" in svg
    (True, True, False)
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("a report has pictures, and matplotlib is missing: pip install 'onesided[report]'") from error
    written = StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font here lacks: the browser's need not
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.subplots())
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return themed(written.getvalue(), name)


def themed(svg: str, name: str) -> str:
    """An SVG file as an element of a page: its colours, its font, no names but those it refers to."""
    svg = svg[svg.index("<svg ") :]
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box is not None
    svg = re.sub(r"<metadata>.*?</metadata>|<style [^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<svg [^>]*>", f'<svg viewBox="{box[1]}">', svg, count=1)
    svg = svg.replace("xlink:href", "href")
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    svg = re.sub(r"font: (?:\w+ )?([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = svg.replace("stroke-miterlimit: 100000; ", "")
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    return re.sub(r"\s*\n\s*", " ", svg).strip()


def few_numbers(axis: Any, *, whole: bool = False, plain: bool = True) -> None:
    """Few ticks, in the numbers of the page or, where these have too few digits to differ, in matplotlib's."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6 if whole else 5, integer=whole))
    if plain:
        plain_numbers(axis)


def plain_numbers(axis: Any) -> None:
    """Tick labels as the text of the page has its numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def round_steps(axis: Any, low: float, high: float) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or at the powers alone over more than two."""
    from matplotlib.ticker import FixedLocator, NullLocator

    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 150 else (1,)
    ticks = [step * power for power in powers for step in steps if low <= step * power <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    plain_numbers(axis)


def ends_first(points: Array) -> Array:
    """The order in which points of a map deserve a label: by turns the farthest right, left, up and down.

    >>> ends_first(np.array([[0.0, 0.1], [3.0, 0.0], [-2.0, 0.0], [0.0, 1.0]]))[:3]
    array([1, 2, 3])
    """
    orders = [np.argsort(sign * points[:, axis], kind="stable") for axis in (0, 1) for sign in (-1, 1)]
    _, first = np.unique(np.column_stack(orders).ravel(), return_index=True)
    return np.asarray(np.column_stack(orders).ravel()[np.sort(first)])


def label_points(axis: Any, points: Array, labels: list[str] | None, most: int) -> list[int]:
    """Label some points, where their labels overlap neither each other nor any point nor the edge.

    Points are tried in the order of :func:`ends_first`; those that were labelled are returned. Without labels they
    are numbered as they are placed, from one.
    """
    figure = axis.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is placed now stays where it is
    places = axis.transData.transform(points) * (72 / figure.dpi)
    edge = axis.get_window_extent().transformed(figure.transFigure.inverted())
    across, up = WIDTH * 72, figure.get_figheight() * 72
    frame = (edge.x0 * across, edge.y0 * up, across, up)  # not over the numbers of the axes
    taken: list[tuple[float, float, float, float]] = []
    done: list[int] = []
    for k in ends_first(points)[: TRIES * most].tolist():
        if len(done) == most:
            break
        label = str(len(done) + 1) if labels is None else shortened(labels[k], LABEL)
        wide, high = SMALL * in_letters(label), SMALL * 1.15
        x, y = places[k]
        for dx, dy, side in ((5, 0, "left"), (-5, 0, "right"), (0, 8, "center"), (0, -8, "center")):
            left = x + dx - {"left": 0.0, "right": wide, "center": wide / 2}[side]
            box = (left, y + dy - high / 2, left + wide, y + dy + high / 2)
            inside = box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]
            hidden = np.all((places > (box[0] - 1, box[1] - 1)) & (places < (box[2] + 1, box[3] + 1)), axis=1)
            if inside and not hidden.any() and not any(_overlap(box, other) for other in taken):
                look = {"ha": side, "va": "center", "fontsize": SMALL, "color": INK, "parse_math": False}
                axis.annotate(label, points[k], (dx, dy), textcoords="offset points", **look)
                taken.append(box)
                done.append(k)
                break
    return done


def in_letters(label: str) -> float:
    """How wide a label is at most, in units of its letters' size, in whatever font a page may be shown.

    >>> in_letters("tea"), in_letters("寿司")
    (1.92, 2.0)
    """
    broad = sum(width(letter) == 2 or letter.isupper() or letter in BROAD for letter in label)
    return round(1.0 * broad + 0.64 * (len(label) - broad), 6)


def _overlap(box: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
