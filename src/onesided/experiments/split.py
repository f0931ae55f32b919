"""A real panel cut for an experiment: what is trained on, what is predicted, and rows that nobody saw.

A tenth of the rows is never used: T is scored on them. Of the entries of the other rows a ninth is held out, to score
predictions of M, so that four fifths of the panel's entries are trained on, as in the paper. Of a panel that is
complete or nearly so, a small share of these entries is trained on and the rest, up to a million, is held out; its T,
and that of its unused rows, is then all but exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from onesided.arrays import Array
from onesided.experiments.panels import COMPLETE, Panels
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel
from onesided.synthetic import keep_entries

UNUSED_ROWS = 0.1
TRAINED = 8 / 9  # of the entries of the other rows
MOST_PREDICTED = 1_000_000
DENSE = 0.5  # with this share of its entries a panel has all pairs, and BLAS makes their moments


@dataclass(frozen=True, eq=False)
class Split:
    """One way of cutting a panel, by a seed."""

    train: Panel  # all rows but those never used, all columns
    rows: Array  # of the entries held out: positions in ``train``, whose row and column have other entries there
    columns: Array
    values: Array
    unused: PairMoments  # of the rows never used


@lru_cache(maxsize=1)
def split(panels: Panels, name: str, seed: int) -> Split:
    """The panel of a name, cut by a seed; the last one made stays in memory."""
    return cut(panels.load(name), seed, COMPLETE.get(name, TRAINED))


@lru_cache(maxsize=1)
def all_moments(panels: Panels, name: str) -> PairMoments:
    """The pair moments of the whole panel, of which the last made stay in memory."""
    return moments_of(panels.load(name))


def cut(panel: Panel, seed: int, share: float = TRAINED) -> Split:
    """A panel cut by a seed; ``share`` of the entries of the rows that are used is trained on.

    >>> parts = cut(Panel.from_dense(np.arange(1.0, 401.0).reshape(40, 10)), 0)
    >>> parts.train.n_rows, parts.train.n_entries + len(parts.values), parts.unused.n_rows
    (36, 360, 4)
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(panel.n_rows)
    n_unused = max(1, round(UNUSED_ROWS * panel.n_rows))
    used = panel.take_rows(np.sort(shuffled[n_unused:]))
    trained = rng.random(used.n_entries) < share
    train = keep_entries(used, trained)
    held_out = np.flatnonzero(~trained)
    rows = np.repeat(np.arange(used.n_rows), used.row_counts)[held_out]
    known = (train.row_counts[rows] > 0) & (train.column_counts[used.columns[held_out]] > 0)
    rows, held_out = rows[known], held_out[known]
    if len(rows) > MOST_PREDICTED:
        chosen = np.sort(rng.choice(len(rows), MOST_PREDICTED, replace=False))
        rows, held_out = rows[chosen], held_out[chosen]
    unused = moments_of(panel.take_rows(np.sort(shuffled[:n_unused])))
    return Split(train, rows, used.columns[held_out], used.values[held_out].astype(np.float64), unused)


def moments_of(panel: Panel) -> PairMoments:
    """Pair moments, by dense products where the panel is nearly complete."""
    if panel.n_entries < DENSE * panel.n_rows * panel.n_columns:
        return PairMoments.from_panel(panel)
    seen = np.zeros(panel.shape, dtype=np.float32)
    values = np.zeros(panel.shape)
    rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
    seen[rows, panel.columns], values[rows, panel.columns] = 1.0, panel.values
    upper = np.triu(np.ones((panel.n_columns,) * 2, dtype=bool))
    counts = np.rint(seen.T @ seen).astype(np.int64)  # exact below 2²⁴ rows
    on = upper & (counts > 0)
    i, j = np.nonzero(on)
    sums = (values.T @ values)[on]
    np.square(values, out=values)
    squares = (values.T @ values)[on]
    indptr = np.searchsorted(i, np.arange(panel.n_columns + 1))
    return PairMoments(panel.n_rows, indptr, j.astype(np.int32), counts[on], sums, squares)
