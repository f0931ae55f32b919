"""The columns' units: what is said of them, their scales as a table, and a panel in units of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.column_names import ColumnNames
from onesided.model.units import Units
from onesided.panels.panel import Panel
from onesided.report.formatting import mentioned, number
from onesided.report.page import table, text

AT_AN_END = 6  # columns of the smallest scales, and of the largest, that are listed


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """The scales of a model's columns, and what columns are called.

    >>> units = ColumnUnits(np.array([0.1, 20.0]), ColumnNames(np.array([7, 9]), {7: "share"}))
    >>> units.own, units.to_dict()["smallest"]
    (True, {'id': 7, 'name': 'share', 'scale': 0.1})
    """

    scales: Array
    names: ColumnNames

    @property
    def _units(self) -> Units:
        return Units.of(self.scales, self.names.column_ids)

    @property
    def own(self) -> bool:
        """Whether columns have units of their own."""
        return self._units.own

    @property
    def said(self) -> list[str]:
        """The sentence, where columns have units of their own."""
        if not self.own:
            return []
        sentence = self._units.sentence(number, self.names.called)
        return [f"{sentence[0].upper()}{sentence[1:]}."]

    @property
    def _listed(self) -> Array:
        order = np.argsort(self.scales, kind="stable")
        return order if len(order) <= 2 * AT_AN_END else np.concatenate([order[:AT_AN_END], order[-AT_AN_END:]])

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        listed = [mentioned(self.names, int(j)) | {"scale": float(self.scales[j])} for j in self._listed]
        return {"own": self.own, "smallest": listed[0], "largest": listed[-1], "listed": listed if self.own else []}

    def html(self) -> str:
        """The scales as a table, smallest first."""
        rows = [[text(self.names[int(j)]), number(float(self.scales[j]))] for j in self._listed]
        left = len(self.scales) - len(rows)
        title = "Scales of the columns" + (f", but for {left:,} between the smallest and the largest" if left else "")
        return table(title, ["column", "scale"], rows, numbers=[1])


def panel_in_scales(panel: Panel, scales: Array) -> Panel:
    """The panel with each value divided by its column's scale.

    >>> panel_in_scales(Panel.from_dense([[1.0, 20.0], [3.0, np.nan]]), np.array([0.5, 10.0])).to_dense()
    array([[ 2.,  2.],
           [ 6., nan]])
    """
    values = (panel.values / scales[panel.columns]).astype(panel.values.dtype)
    return Panel(
        panel.indptr,
        panel.columns,
        values,
        panel.n_columns,
        row_weights=panel.row_weights,
        column_ids=panel.given_column_ids,
    )
