"""Which columns rows link: the panel's parts.

Columns are joined when a row has both. Columns of different parts are linked by no chain of rows, so that nothing can
be known of how they vary together.
"""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import engine_for
from onesided.panels.panel_like import PanelLike

ALONE = -1


def linked_parts(panel: PanelLike) -> Array:
    """The part of each column: 0 is the largest, and −1 that of a column which shares no row with another.

    Rows of weight zero link nothing.

    >>> rows, columns = [0, 0, 1, 1, 2, 2, 3], [0, 2, 1, 3, 0, 4, 5]
    >>> from onesided.panels.panel import Panel
    >>> linked_parts(Panel.from_arrays(rows, columns, np.ones(7)))
    array([ 0,  1,  0,  1,  0, -1])
    """
    smallest = engine_for(panel).linked_columns()
    sizes = np.bincount(smallest, minlength=panel.n_columns)
    number = np.empty(panel.n_columns, dtype=np.int64)
    number[np.argsort(-sizes, kind="stable")] = np.arange(panel.n_columns)
    return np.where(sizes[smallest] > 1, number[smallest], ALONE)
