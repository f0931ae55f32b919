"""Columns matched by their ids as they are written, where integers and strings have to meet.

Ids of a file are strings as soon as one of them is not an integer, so the ids of a model and those of a table may be
"7" here and 7 there. ``Panel.align_columns`` refuses that; what is read from files is aligned here.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from onesided.arrays import Array
from onesided.panels.ids import id_kind
from onesided.panels.panel import Panel


def as_written(ids: Array) -> Array:
    """Ids as strings."""
    return np.array([str(text) for text in ids.tolist()], dtype=object)


def comparable_ids(ids: Array, others: Array) -> tuple[Array, Array]:
    """Two arrays of ids, both as strings if either is.

    >>> comparable_ids(np.array([7, 31]), np.array(["7", "new"], dtype=object))[0]
    array(['7', '31'], dtype=object)
    """
    return (ids, others) if id_kind(ids) == id_kind(others) else (as_written(ids), as_written(others))


def align_as_written(panel: Panel, column_ids: Array, *, unknown: Literal["refuse", "drop"] = "refuse") -> Panel:
    """The rows of a panel over other columns, matched by id as written; the ids are then those given.

    >>> panel = Panel.from_arrays([1, 1], ["7", "31"], [5.0, 3.0])
    >>> align_as_written(panel, np.array([31, 7, 9])).to_dense()
    array([[ 3.,  5., nan]])
    """
    if np.array_equal(panel.column_ids, column_ids):
        return panel
    wanted, present = comparable_ids(column_ids, panel.column_ids)
    rows: dict[str, Any] = {"row_ids": panel.given_row_ids, "row_weights": panel.row_weights}
    named = Panel(panel.indptr, panel.columns, panel.values, panel.n_columns, column_ids=present, **rows)
    aligned = named.align_columns(wanted, unknown=unknown)
    return Panel(aligned.indptr, aligned.columns, aligned.values, len(wanted), column_ids=column_ids, **rows)
