"""What a row would have most of: its unseen columns of the highest predicted values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.engines.placement import placed_like
from onesided.model.imputation import BestLinearPredictor
from onesided.panels.panel_like import PanelLike

Array = npt.NDArray[Any]

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


def best_unseen(predictor: BestLinearPredictor, panel: PanelLike, candidates: Array, n: int) -> list[Array]:
    """For each row, the positions of at most n of its unseen candidates, best first.

    ``candidates`` tells of each column whether it may be recommended at all. Of those that are in another part of the
    panel than all of the row's entries, nothing is known but the means: they are left out.
    """
    best: list[Array] = []
    step = max(1, CHUNK // max(1, panel.n_columns))
    for first in range(0, panel.n_rows, step):
        part = placed_like(panel.take_rows(np.arange(first, min(first + step, panel.n_rows))), panel)
        values = predictor.impute(part)
        allowed = candidates & predictor.reaches(part)
        allowed[np.repeat(np.arange(part.n_rows), part.row_counts), part.columns] = False
        for row, open_to in zip(values, allowed, strict=True):
            at = np.flatnonzero(open_to)
            kept = at if len(at) <= n else at[np.argpartition(-row[at], n - 1)[:n]]
            best.append(kept[np.argsort(-row[kept], kind="stable")])
    return best
