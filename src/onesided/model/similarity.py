"""Which columns go together: the correlation of two entries of a row, with a standard error.

Given the means and a row's effect, the entries of a row in columns i and j have correlation

    ρ_ij = x_iᵀx_j / (s_i s_j),   s_j² = ‖x_j‖² + tr V_j + ψ_j,

V_j being the model's own covariance of x_j, zero where it was not refined. Its standard error is that of the loadings,
each as if estimated from the rows that have the column, their coordinates known from their other entries alone:

    C_j⁻¹ = diag(1/mean x²) + Σ_{u∋j} w_u ẑẑᵀ / (ψ_j + x_jᵀS x_j),   ẑ, S: the posterior of row u without its entry in j
    se² = (x_jᵀC_i x_j + x_iᵀC_j x_i) / (s_i s_j)²

(of columns that very many rows have, 500 drawn at random stand for all). The covariances V_j of the variational passes
alone are too narrow: they take the coordinates of rows as independent of the loadings. Shares of 90% intervals that
held the true correlation, on linear mixtures with noise, 3 to 8 panels each:

=========================================  ================  =================  ===========
rows × columns, entries in a row, rank     rows of a column  pairs at random    the nearest
=========================================  ================  =================  ===========
5000 × 40, 6, 2                            750               0.92               0.95
2000 × 60, 8, 3                            267               0.95               0.99
2000 × 200, 10, 5                          100               0.93               0.96
500 × 60, 8, 3                             67                0.91               0.95
500 × 60, 4, 3                             33                0.79               0.87
200 × 60, 6, 3                             20                0.52               0.65
=========================================  ================  =================  ===========

In the last two the model itself finds too little, which no standard error of its loadings can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.model.imputation import BestLinearPredictor
from onesided.model.row_space import RowSpace
from onesided.model.second_moment import SecondMoment
from onesided.panels.ids import plain_id
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

ROWS = 500  # of a column, that stand for all of them


@dataclass(frozen=True)
class Similar:
    """A column beside another: ρ, its standard error, and the weight of the rows that have both.

    The last two are None where the panel is not at hand.

    >>> from onesided import OneSidedCompletion, synthetic
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(1000, 20, 3, sigma=0.5, rng=0), 6, rng=1)
    >>> (nearest,) = OneSidedCompletion(3, center="columns", random_state=0).fit(panel).similar(3, n=1)
    >>> nearest.id, round(nearest.correlation, 1), round(nearest.standard_error, 2), nearest.count
    (15, 0.6, 0.05, 70.0)
    """

    id: Any
    correlation: float
    standard_error: float | None
    count: float | None


def most_similar(space: RowSpace, T: SecondMoment, column: int, n: int) -> list[Similar]:
    """The n columns most correlated with one, best first; of those that a chain of rows links to it."""
    measured = space.known_of_columns
    linked = measured.supported & (measured.parts == measured.parts[column]) & measured.supported[column]
    linked[column] = False
    rho, others = correlations(space, column), np.flatnonzero(linked)
    best = others[np.argsort(-rho[others], kind="stable")[:n]]
    if T.panel is None:
        return [Similar(plain_id(T.column_ids[j]), float(rho[j]), None, None) for j in best]
    errors = standard_errors(space, T.panel, column, best, np.random.default_rng(0))
    counts = T.shared_rows([column], best)[0] if len(best) else []
    return [
        Similar(plain_id(T.column_ids[j]), float(rho[j]), float(error), float(count))
        for j, error, count in zip(best, errors, counts, strict=True)
    ]


def correlations(space: RowSpace, column: int) -> Array:
    """ρ of a column with every column; with itself too."""
    X, s = space.factor, deviations(space)
    return np.asarray((X @ X[column]) / (s * s[column]))


def deviations(space: RowSpace) -> Array:
    """s of every column."""
    variance = np.sum(space.factor**2, axis=1) + space.noise_variance + space.spread_traces
    return np.asarray(np.sqrt(variance))


def standard_errors(space: RowSpace, panel: PanelLike, column: int, others: Array, rng: np.random.Generator) -> Array:
    """The standard errors of ρ of a column with others."""
    X, s, predictor = space.factor, deviations(space), space.predictor
    C = _covariance(predictor, panel, column, rng)
    variance = [X[j] @ C @ X[j] + X[column] @ _covariance(predictor, panel, j, rng) @ X[column] for j in others]
    return np.asarray(np.sqrt(np.array(variance)) / (s[column] * s[others]))


def _covariance(predictor: BestLinearPredictor, panel: PanelLike, column: int, rng: np.random.Generator) -> Array:
    """C of a column's loadings."""
    space, X = predictor.space, predictor.space.factor
    having = panel.rows_having(column)
    having = having[panel.row_weights[having] > 0]
    drawn = having if len(having) <= ROWS else np.sort(rng.choice(having, ROWS, replace=False))
    size = np.mean(X**2, axis=0)
    information = np.diag(1.0 / np.where(size > 0, size, 1.0))
    if len(drawn):
        z, S = predictor.posteriors(_without(panel.take_rows(drawn), column))
        y = space.loadings[column]
        noise = space.noise_variance[column] + np.einsum("a,uab,b->u", y, S, y)
        q, weights = z[:, space.n_common :], panel.row_weights[drawn] * (len(having) / len(drawn))
        information = information + (q * (weights / noise)[:, None]).T @ q
    return np.asarray(np.linalg.inv(information))


def _without(panel: Panel, column: int) -> Panel:
    kept = panel.columns != column
    indptr = np.concatenate([[0], np.cumsum(kept)])[panel.indptr]
    return Panel(indptr, panel.columns[kept], panel.values[kept], panel.n_columns)
