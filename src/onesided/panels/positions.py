"""Positions of rows and columns, checked in one way wherever a caller gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted, shown


def checked_positions(positions: Any, limit: int, axis: str, *, instead: str = "") -> Array:
    """Positions of rows or columns as an int64 array: whole numbers in one dimension, inside 0 to ``limit`` − 1.

    A single position is a list of one; ``instead`` says in the message what to do with what are no positions.

    >>> checked_positions([2, 0], 3, "row")
    array([2, 0])
    >>> checked_positions([3], 3, "row")
    Traceback (most recent call last):
    onesided.errors.InputError: row position 3 is outside 0 to 2
    """
    array = np.atleast_1d(np.asarray(positions))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        advice = f"; {instead}" if instead else ""
        raise InputError(
            f"{axis}s must be positions, whole numbers; found {array.dtype} of shape {array.shape}{advice}"
        )
    outside = (array < 0) | (array >= limit)
    if outside.any():
        raise InputError(f"{axis} position {array[outside][0]} is outside 0 to {limit - 1}")
    return np.asarray(array, dtype=np.int64)


def row_selection(given: Any, n_rows: int, row_ids: Array | None) -> Array:
    """Positions of rows, out of a list of them or a mask; none twice where rows have ids."""
    rows = np.asarray(given)
    if rows.dtype == bool and rows.shape == (n_rows,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise InputError(
            f"expected a list of row positions or a mask over {counted(n_rows, 'row')}; "
            f"found {rows.dtype} of shape {rows.shape}"
        )
    rows = checked_positions(rows, n_rows, "row")
    ordered = np.sort(rows)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if row_ids is not None and len(repeated):
        raise InputError(
            f"row {shown(row_ids[repeated[0]])} is taken more than once, and ids do not repeat; "
            "take it once and give it a larger weight: with_row_weights()"
        )
    return rows
