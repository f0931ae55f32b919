"""What a row would have most of: its unseen columns of the highest predicted values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.engines.placement import placed_like
from onesided.model.row_space import RowSpace
from onesided.panels.ids import plain_id
from onesided.panels.panel_like import PanelLike

CHUNK = 1 << 22  # values predicted at a time


@dataclass(frozen=True)
class Recommended:
    """An unseen column of a row: its predicted value, with the predictive standard deviation of an entry there.

    >>> from onesided import OneSidedCompletion
    >>> films = [[5.0, 4.0, 1.0], [4.0, 4.0, 2.0], [1.0, 2.0, 5.0]]
    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(films)
    >>> ((best,),) = model.recommend([[5.0, np.nan, np.nan]], n=1)
    >>> best.id, round(best.value, 1), round(best.standard_deviation, 1)
    (1, 4.1, 0.3)
    """

    id: Any
    value: float
    standard_deviation: float


def recommend(space: RowSpace, panel: PanelLike, n: int) -> list[list[Recommended]]:
    """For each row, its n unseen columns of the highest predicted values, best first."""
    best = best_unseen(space, panel, n)
    rows = np.repeat(np.arange(panel.n_rows), [len(columns) for columns in best])
    columns = np.concatenate(best) if best else np.empty(0, dtype=np.int64)
    ids = np.arange(space.n_columns) if space.column_ids is None else space.column_ids
    predicted = zip(columns, *space.predictor.impute_at(panel, rows, columns), strict=True)
    each = (Recommended(plain_id(ids[j]), float(value), float(deviation)) for j, value, deviation in predicted)
    return [list(islice(each, len(columns))) for columns in best]


def best_unseen(space: RowSpace, panel: PanelLike, n: int) -> list[Array]:
    """For each row, the positions of at most n of its unseen columns, best first.

    Columns never seen beside another are left out. Of columns in another part of the panel than all of the row's
    entries nothing is known but the means: they are left out too.
    """
    best: list[Array] = []
    predictor = space.predictor
    step = max(1, CHUNK // max(1, panel.n_columns))
    for first in range(0, panel.n_rows, step):
        some = placed_like(panel.take_rows(np.arange(first, min(first + step, panel.n_rows))), panel)
        values = predictor.impute(some)
        allowed = space.known_of_columns.supported & predictor.reaches(some)
        allowed[np.repeat(np.arange(some.n_rows), some.row_counts), some.columns] = False
        for row, unseen in zip(values, allowed, strict=True):
            at = np.flatnonzero(unseen)
            kept = at if len(at) <= n else at[np.argpartition(-row[at], n - 1)[:n]]
            best.append(kept[np.argsort(-row[kept], kind="stable")])
    return best
