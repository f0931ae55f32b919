"""How rows differ in noise, learnt from the rows that a model was fitted to."""

from __future__ import annotations

from functools import partial

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import engine_for
from onesided.model.imputation import BestLinearPredictor
from onesided.model.row_noise import RowNoise
from onesided.model.row_space import RowSpace
from onesided.model.shrinkage import GroupVariances, shrinkage
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

LEAST_SHRINKAGE = 5.0  # entries: a row of one or two says little of its noise


def learn_row_noise(space: RowSpace, panel: PanelLike) -> RowNoise:
    """How rows differ: the variances, within and between rows, of e²/s² of entries predicted from the row's others.

    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=(500, 12)) * np.where(np.arange(500) % 2, 0.5, 2.0)[:, None]  # every second row
    >>> space = RowSpace(np.zeros(12), np.zeros((12, 0)), np.full(12, np.mean(values**2)))
    >>> learn_row_noise(space, Panel.from_dense(values)).shrinkage
    5.0
    """
    variances = GroupVariances(panel.total(partial(_scored, predictor=space.predictor)))
    return RowNoise(shrinkage(variances.within, variances.between, LEAST_SHRINKAGE), variances.level)


def _scored(panel: Panel, predictor: BestLinearPredictor) -> Array:
    """Sums over rows from which the variances follow."""
    engine = engine_for(panel)
    counting = panel.row_weights > 0
    weights, counts = (engine.array(values[counting]) for values in (panel.row_weights, panel.row_counts))
    _, _, sums, squares, overlap = engine.leave_one_out(predictor.columns_on(engine)).T
    return np.asarray(GroupVariances.of(sums, squares, counts, overlap=overlap, weights=weights).sums)
