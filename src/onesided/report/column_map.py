"""A map of the columns: where they lie in the first two components.

A few points, those farthest out, are labelled. Short names stand in the picture; where names are long, numbers do, and
a list beside the picture says whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.column_names import ColumnNames
from onesided.errors import counted
from onesided.report.components import Components
from onesided.report.formatting import mentioned, width
from onesided.report.page import figure, sentence, side_by_side, text
from onesided.report.svg import FIRST, RULE, drawn, few_numbers, label_points

POINTS = 800  # the columns seen most often
LABELS = 14
LONG = 10  # letters: names above are listed beside the map


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """The picture, and the columns it names, in the order of their numbers; no picture for fewer than two components.

    >>> from onesided import OneSidedCompletion
    >>> model = OneSidedCompletion(2, center="none", diagonal="free").fit(np.random.default_rng(0).normal(size=(50, 5)))
    >>> ColumnMap.of(Components.of(model.row_space_), ColumnNames(model.column_ids_, {})).shown.size
    5
    """

    names: ColumnNames
    shown: Array  # positions of columns
    left_out: int
    points: Array
    labelled: tuple[int, ...] = ()  # positions of columns
    numbered: bool = False
    picture: str = ""

    @classmethod
    def of(cls, components: Components, names: ColumnNames) -> ColumnMap:
        """Draw the map."""
        shown = components.named[:POINTS]
        points = components.factor[shown, :2]
        if components.number < 2 or len(shown) == 0:
            return cls(names, shown, 0, points)
        called = [names[int(j)] for j in shown]
        numbered = max(map(width, called)) > LONG
        labelled: list[int] = []

        def draw(axis: Any) -> None:
            axis.axhline(0, color=RULE, linewidth=0.6)
            axis.axvline(0, color=RULE, linewidth=0.6)
            axis.plot(points[:, 0], points[:, 1], "o", color=FIRST, markersize=2.6, markeredgewidth=0)
            axis.margins(0.08 if numbered else 0.16, 0.1)  # room for labels on both sides
            axis.set_xlabel("loading on component 1")
            axis.set_ylabel("loading on component 2")
            few_numbers(axis.xaxis)
            few_numbers(axis.yaxis)
            labelled.extend(int(shown[k]) for k in label_points(axis, points, None if numbered else called, LABELS))

        picture = drawn("map", draw, height=3.9)
        return cls(names, shown, len(components.named) - len(shown), points, tuple(labelled), numbered, picture)

    @property
    def _farthest(self) -> tuple[int, int]:
        """The columns farthest right and farthest up."""
        right, up = np.argmax(self.points, axis=0)
        return int(self.shown[right]), int(self.shown[up])

    def to_dict(self) -> dict[str, Any] | None:
        """The columns named, as JSON takes them."""
        if not self.picture:
            return None
        right, up = (mentioned(self.names, j) for j in self._farthest)
        labelled = [mentioned(self.names, j) for j in self.labelled]
        return {"labelled": labelled, "farthest_right": right, "farthest_up": up}

    def html(self) -> str:
        """The picture with its reading, or a sentence on why there is none."""
        if not self.picture:
            return sentence("A map needs two components, and there is one.")
        seldom = counted(self.left_out, "column seen less often is", "columns seen less often are")
        left = f" {seldom} not drawn." if self.left_out else ""
        right, up = (text(self.names[j]) for j in self._farthest)
        drawn_map = figure(
            self.picture,
            f"Scatter chart: {counted(len(self.shown), 'column')} by their loadings on the first two components, "
            f"{len(self.labelled)} with their {'numbers in a list' if self.numbered else 'names'}",
            "Columns near each other rise and fall together along these two components: farthest right is "
            f"{right}, farthest up {up}.{left}",
        )
        if not self.numbered:
            return side_by_side([drawn_map])
        lines = "".join(f"<li>{text(self.names[j])}</li>" for j in self.labelled)
        return side_by_side(
            [drawn_map, f'<div><p class="caption">The numbers on the map</p><ol class="key">{lines}</ol></div>']
        )
