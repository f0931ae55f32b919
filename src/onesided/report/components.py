"""The leading components: which columns are at their two ends, and where columns lie in the first two.

Component k is the k-th column of the factor, X_k; its eigenvalue is λ_k = ‖X_k‖². The loading x_jk says by how much the
value in column j moves when a row moves one standard deviation along the component. Which end is called high is
arbitrary. Where columns have units of their own, everything here is of values in units of the columns' scales, and X
has its own axes there. A column's variance is that of :mod:`onesided.model.similarity` and of the row effect, so that
shares add up to one.

On the map a few points, those farthest out, are labelled. Short names stand in the picture; where names are long,
numbers do, and a list beside the picture says whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.column_names import ColumnNames
from onesided.errors import counted
from onesided.model.axes import principal_axes
from onesided.model.row_space import RowSpace
from onesided.model.units import in_scales
from onesided.report.formatting import mentioned, width
from onesided.report.page import figure, sentence, side_by_side, text
from onesided.report.svg import FIRST, RULE, drawn, few_numbers, label_points

LEAST_SHARE = 1e-3  # of the eigenvalues' sum: a component below is not worth a line
ENOUGH_ROWS = 20.0  # a column seen in fewer, and less often than half of the columns, is not named
AT_AN_END = 5
POINTS = 800  # of the map: the columns seen most often
LABELS = 14
LONG = 10  # letters: names above are listed beside the map


@dataclass(frozen=True, eq=False)
class Component:
    """One direction, and the columns at its ends, strongest first."""

    eigenvalue: float
    share: float  # of the variance of all columns
    high: Array  # positions of columns
    low: Array


@dataclass(frozen=True, eq=False)
class Components:
    """The components of a factor that matter.

    >>> from onesided import OneSidedCompletion
    >>> model = OneSidedCompletion(1, center="none", diagonal="free").fit(np.outer([1.0, 2.0, -1.0], [1.0, -1.0, 3.0]))
    >>> found = Components.of(model.row_space_)
    >>> found.leading[0].high.size + found.leading[0].low.size
    3
    """

    factor: Array
    eigenvalues: Array  # of all components
    variance: float  # of all columns that were seen, added up: τ²s_j² + ‖x_j‖² + tr V_j + ψ_j
    row_share: float  # of it, in row effects
    noise_share: float  # of it, of single entries
    spread_share: float  # of it, of what is not known of the loadings
    leading: tuple[Component, ...]
    named: Array  # positions of columns seen often enough to be named, the most seen first
    fewest: float  # rows that a column must have for that
    scaled: bool = False  # whether all is in units of the columns' scales

    @classmethod
    def of(cls, space: RowSpace) -> Components:
        """Of a fitted row space."""
        scaled = space.in_own_units
        space = in_scales(space) if scaled else space
        factor, counts = np.asarray(space.factor, dtype=np.float64), space.known_of_columns.counts
        factor = principal_axes(factor) if scaled else factor
        eigenvalues = np.sum(factor**2, axis=0)
        seen = counts > 0
        noise = float(space.noise_variance[seen].sum())
        rows = float(space.row_variance) * float(np.sum(space.units[seen] ** 2))
        spread = float(space.spread_traces[seen].sum())
        total = noise + rows + spread + float(np.sum(factor[seen] ** 2))
        fewest = min(ENOUGH_ROWS, float(np.median(counts[seen]))) if seen.any() else 0.0
        named = np.flatnonzero(seen & space.known_of_columns.supported & (counts >= fewest))
        named = named[np.argsort(-counts[named], kind="stable")]
        matter = int(np.count_nonzero(eigenvalues > LEAST_SHARE * eigenvalues.sum()))
        leading = tuple(
            Component(value, value / total if total > 0 else 0.0, _end(loadings, named), _end(-loadings, named))
            for value, loadings in zip(eigenvalues[:matter].tolist(), factor.T[:matter], strict=True)
        )
        shares = (rows / total, noise / total, spread / total) if total > 0 else (0.0, 0.0, 0.0)
        return cls(factor, eigenvalues, total, *shares, leading, named, fewest, scaled)

    @property
    def number(self) -> int:
        """How many matter."""
        return len(self.leading)

    @property
    def factor_share(self) -> float:
        """Of the variance, in all components together."""
        return float(self.eigenvalues.sum()) / self.variance if self.variance > 0 else 0.0

    def to_dict(self, names: ColumnNames) -> list[dict[str, Any]]:
        """The components with their columns, as JSON takes them."""

        def end(k: int, positions: Array) -> list[dict[str, Any]]:
            return [mentioned(names, int(j)) | {"loading": float(self.factor[j, k])} for j in positions]

        return [
            {"eigenvalue": each.eigenvalue, "share": each.share, "high": end(k, each.high), "low": end(k, each.low)}
            for k, each in enumerate(self.leading)
        ]


def _end(loadings: Array, named: Array) -> Array:
    """The columns with the largest loadings above zero: none of them is at the other end too."""
    there = named[loadings[named] > 0]
    return np.asarray(there[np.argsort(-loadings[there], kind="stable")][:AT_AN_END])


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
            axis.set(xlabel="loading on component 1", ylabel="loading on component 2")
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
        lines = "".join(f"<li>{text(self.names[j])}</li>" for j in self.labelled)
        key = f'<div><p class="caption">The numbers on the map</p><ol class="key">{lines}</ol></div>'
        return side_by_side([drawn_map, key] if self.numbered else [drawn_map])
