"""The columns' scales in words, and a row space in units of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import shown
from onesided.model.row_space import RowSpace, unlike_units
from onesided.panels.ids import plain_id


@dataclass(frozen=True)
class Units:
    """Between which scales the columns lie, and which columns have these.

    >>> units = Units.of(np.array([0.02, 50.0, 1.0]), np.array(["share", "people", "age"]))
    >>> print(units.sentence())
    columns are measured in units of their own: scales, 1 for a typical entry, run from 0.02 ('share') to 50 ('people')
    """

    smallest: float
    smallest_column: Any
    largest: float
    largest_column: Any

    @classmethod
    def of(cls, scales: Array, column_ids: Any) -> Units:
        """Of columns with ids, or names."""
        low, high = int(np.argmin(scales)), int(np.argmax(scales))
        return cls(float(scales[low]), plain_id(column_ids[low]), float(scales[high]), plain_id(column_ids[high]))

    @property
    def own(self) -> bool:
        """Whether columns have units of their own: the largest scale is ten times the smallest, or more."""
        return unlike_units(np.array([self.smallest, self.largest]))

    def sentence(self, number: Callable[[float], str] = "{:.3g}".format, called: Callable[[Any], str] = shown) -> str:
        """What is said where columns have units of their own, in lower case and without a full stop."""
        ends = (self.smallest, self.smallest_column), (self.largest, self.largest_column)
        low, high = (f"{number(scale)} ({called(column)})" for scale, column in ends)
        return f"columns are measured in units of their own: scales, 1 for a typical entry, run from {low} to {high}"

    def to_dict(self) -> dict[str, Any]:
        """The scales, and whether they are said to differ."""
        return {"own": self.own, **asdict(self)}


def in_scales(space: RowSpace) -> RowSpace:
    """The row space of values divided by their columns' scales.

    >>> space = RowSpace(np.array([1.0, 50.0]), np.array([[2.0], [30.0]]), np.ones(2), scales=np.array([0.5, 10.0]))
    >>> found = in_scales(space)
    >>> found.mean, found.factor.ravel(), found.scales
    (array([2., 5.]), array([4., 3.]), None)
    """
    if space.scales is None:
        return space
    s, measured, noise = space.scales, space.measured, space.measurement_noise
    if measured is not None:
        measured = replace(measured, diagonal=measured.diagonal / s / s, means=measured.means / s)
    return replace(
        space,
        mean=space.mean / s,
        factor=space.factor / s[:, None],
        noise_variance=space.noise_variance / s / s,
        spread=None if space.spread is None else space.spread / s[:, None] / s[:, None],
        measured=measured,
        measurement_noise=None if noise is None else np.asarray(noise) / s / s,
        scales=None,
        own_scales=None if space.own_scales is None else space.own_scales / s,
    )
