"""The precision-weighted loss: every pair weighed by its count, as one pass over rows.

    L(X) = ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² + ρ Σ_j ‖x_j‖² + constant
         = ½ Σ_u w_u (‖A_u‖² − 2‖b_u‖²) + ρ Σ_j ‖x_j‖² + constant

The sum runs over all pairs i, j when the diagonal is fitted and over i ≠ j when it is free, in which case its
terms, ½ N_jj (‖x_j‖⁴ − 2 T̂_jj ‖x_j‖²), are taken away again: they need only two numbers per column.

With a row effect, x_iᵀx_j + τ² stands in place of x_iᵀx_j: a factor column that is fixed to τ. τ² is the mean
product of two entries of a row, which is what all pairs have in common. L is then counted from L(0).

Values are measured in units of their columns' scales, and these in units of the root mean square: a pair of columns
then weighs N_ij / (s_i² s_j²), by its precision, and the row effect is τ s_j. ρ is given as a multiple of the sampling
noise in the sums of products, s √c: s is the standard deviation of all products, and c = Σ_j c_j² / Σ_j c_j the
typical column's Σ w_u² over its pairs. So a given ridge matters less the more rows there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np

from onesided.arrays import Array, host, like, namespace
from onesided.engines.engine import Engine, engine_for
from onesided.errors import InputError, check_choice
from onesided.model.shrinkage import shrunk_means
from onesided.pairs.column_sums import ColumnSums, column_sums
from onesided.panels.panel_like import PanelLike

Diagonal = Literal["fit", "free"]

LEAST_SHARE = 0.02  # of the mean: no column and no direction is taken to be flatter than this
LEAST_LEFT = 0.01  # of the row effects in products, at least
FAR = 1e20  # times the largest value: what is added to values so that they make no difference


class RowObjective:
    """L(X) for the rows of a panel, for factors of which each column's line is in units of its ``scale``.

    Parameters
    ----------
    panel : Panel
    center : array of d, optional
        Subtracted from each column's values before anything else. It lies where the panel's engine works, as all does
        that goes in or comes out below.
    weights : array of n, optional
        Row weights, in place of the panel's own.
    diagonal : "fit" or "free"
    ridge : float
        ρ in units of the sampling noise.
    row_effect : bool
        Whether rows have an effect of their own, the same in all columns but for their scales.
    scales : array of d, optional
        s_j; one where not given.

    Examples
    --------
    >>> from onesided.panels.panel import Panel
    >>> objective = RowObjective(Panel.from_dense([[2.0, 2.0]]), diagonal="fit")
    >>> objective.unit, objective.value_and_gradient(np.ones((2, 1)))
    (2.0, (-2.0, array([[0.],
           [0.]])))
    """

    def __init__(
        self,
        panel: PanelLike,
        *,
        center: Any = None,
        weights: Array | None = None,
        diagonal: Diagonal = "free",
        ridge: float = 0.0,
        row_effect: bool = False,
        scales: Array | None = None,
    ) -> None:
        check_choice("diagonal", diagonal, ("fit", "free"))
        self.n_columns, self.diagonal = panel.n_columns, diagonal
        self.engine = engine_for(panel, weights)
        self._center = self.engine.array(np.zeros(panel.n_columns)) if center is None else center
        scales = np.ones(panel.n_columns) if scales is None else scales
        unit = max(self.engine.largest_value(), float(abs(self._center).max())) or 1.0
        unit /= float(scales.min())  # so that no fourth power overflows
        own = column_sums(self.engine, self._center, self.engine.array(unit * scales))
        size = float(np.sqrt(own.mean_square)) or 1.0
        own, self.unit = own.in_units_of(size), unit * size
        self.scale = self.engine.array(self.unit * scales)
        self.counts, self.squares = own.counts, own.squares
        self.pair_counts = own.pairs  # Σ_{i≠j} N_ij for each column j: how much weight it shares with others
        self.ridge = ridge * _sampling_noise(own)
        self.row_variance = self._products_in_common(panel) if row_effect else 0.0
        self.resolution = 10 * float(np.finfo(self.engine.dtype).eps)  # relative rounding error of a loss
        self._origin = 0.0
        if self.row_variance > 0:
            self._origin = self.value_and_gradient(self.engine.array(np.zeros((panel.n_columns, 1))))[0]

    def _products_in_common(self, panel: PanelLike) -> float:
        """τ²: the mean product of two entries of a row, of values around means that are shrunk where they are rare.

        A mean of N entries that is its own by b has taken up b/N of each row's effect, so that the mean product is τ²
        times that of 1 − b_i/N_i and 1 − b_j/N_j.
        """
        center, left = self._center, namespace(self.counts).ones_like(self.counts)
        if bool((center != 0).any()):
            of_means = column_sums(panel, center, self.scale)
            means, own, _ = shrunk_means(center / self.scale, of_means.counts, of_means.mean_square_within)
            center, left = means * self.scale, 1 - own / of_means.counts.clip(1.0)
        far = FAR * (self.engine.largest_value() or 1.0)
        share = column_sums(self.engine, -far * left, far).mean_product  # of (v + far · left_j) / far, which is left_j
        return max(column_sums(self.engine, center, self.scale).mean_product, 0.0) / max(share, LEAST_LEFT)

    def value_and_gradient(self, X: Any) -> tuple[float, Any]:
        """L(X) and its gradient, in one pass over the rows."""
        if X.shape[1] == 0:  # rank zero: nothing to fit
            return 0.0, self.engine.array(np.zeros(X.shape))
        loss, gradient = self.engine.row_pass(X, self._center, self.scale, float(np.sqrt(self.row_variance)))
        share = 1.0 if self.diagonal == "free" else 0.0
        own = (share * self.counts, share * self.squares)
        loss += self.engine.diagonal_terms(X, *own, self.row_variance, self.ridge, gradient)
        return loss - self._origin, gradient

    def curvature(self, X: Any) -> Any:
        """The Hessian's diagonal blocks ∂²L/∂x_j², one r × r matrix per column.

        2 Σ_{u∋j} w (A_u − x_j x_jᵀ) + 2ρI when the diagonal is free; when it is fitted,
        2 Σ_{u∋j} w A_u + 2 N_jj (x_j x_jᵀ + (‖x_j‖² + τ² − T̂_jj) I) + 2ρI.
        """
        blocks = self.engine.curvature(X)
        own = X[:, :, None] * X[:, None, :]
        slack = namespace(self.counts).full_like(self.counts, self.ridge)
        if self.diagonal == "free":
            blocks = blocks - self.counts[:, None, None] * own
        else:
            blocks = blocks + self.counts[:, None, None] * own
            slack = slack + self.counts * (X * X).sum(1) - self.own
        return 2 * blocks + 2 * slack[:, None, None] * self.engine.array(np.eye(X.shape[1]))

    def metric(self, X: Any) -> Callable[[Any], Any]:
        """An approximate inverse Hessian near X: the curvature of x_j taken as 2 c_j S + 2ρI.

        c_j is the weight that column j shares with others (and with itself when the diagonal is fitted) and S
        the mean of x xᵀ under those weights. It costs no pass, and no memory beyond a number per column.
        """
        weight = self.pair_counts + (self.counts if self.diagonal == "fit" else 0.0)
        seen = weight > 0
        if X.shape[1] == 0 or not seen.any():
            return lambda gradient: gradient
        weight = weight + LEAST_SHARE * weight[seen].mean()
        strengths, axes = np.linalg.eigh(host((X * weight[:, None]).T @ X / weight.sum()))
        strengths = np.maximum(strengths, LEAST_SHARE * max(float(strengths[-1]), np.finfo(float).tiny))
        strengths, axes, xp = like(X, strengths), like(X, axes), namespace(X)

        def apply(gradient: Any) -> Any:
            turn, spread, level = (xp.asarray(one, dtype=gradient.dtype) for one in (axes, weight, strengths))
            along = gradient @ turn
            along /= 2 * (spread[:, None] * level + self.ridge)
            return along @ turn.T

        return apply

    @property
    def own(self) -> Any:
        """The diagonal of the sums of products, Σ w v_j², less the row effect."""
        return self.squares - self.row_variance * self.counts

    def products(self, V: Any) -> Any:
        """The weighted sums of products off the diagonal, M̂ᵀ diag(w) M̂ − τ²N, applied to the columns of V."""
        return self._products(self.engine, V, self.own)

    def rough_products(self, V: Any) -> Any:
        """The same as estimated from some of the rows, drawn at random, where there are many entries."""
        engine, share, own = self._sample
        return self._products(engine, V, own) / share

    def _products(self, engine: Engine, V: Any, own: Any) -> Any:
        return engine.gram_product(V, self._center, self.scale, self.row_variance) - own[:, None] * V

    @cached_property
    def _sample(self) -> tuple[Engine, float, Any]:
        engine, share = self.engine.drawn()
        if engine is self.engine:
            return engine, share, self.own
        some = column_sums(engine, self._center, self.scale)
        return engine, share, some.squares - self.row_variance * some.counts


def mean_squared_pair_error(panel: PanelLike, factor: Array, scales: Array | None = None) -> float:
    """The mean of (x_iᵀx_j − v_i v_j)² over the pairs i ≠ j of all rows, each weighed by its row's weight.

    With ``scales``, of values and factor in units of these.

    >>> from onesided.panels.panel import Panel
    >>> round(mean_squared_pair_error(Panel.from_dense([[1.0, 3.0]]), np.ones((2, 1))), 12)
    4.0
    """
    scales = np.ones(panel.n_columns) if scales is None else scales
    engine = engine_for(panel, panel.row_weights / panel.row_weights.max())
    largest = (engine.largest_value() or 1.0) / float(scales.min())
    own = column_sums(engine, scale=engine.array(largest * scales))
    if own.product_weight == 0:
        raise InputError("no row has two observed entries: there is no pair to compare with")
    factor = factor / scales[:, None]
    unit = max(float(np.sqrt(own.mean_square)) * largest, float(np.max(np.abs(factor), initial=0.0))) or 1.0
    scale, X = engine.array(unit * scales), engine.array(factor / unit)
    own, zero = column_sums(engine, scale=scale), engine.array(np.zeros(panel.n_columns))
    explained = engine.row_pass(X, zero, scale, 0.0, exact=True)[0] if X.shape[1] else 0.0
    norms = (X * X).sum(1)
    explained -= float(own.counts @ norms**2 / 2 - own.squares @ norms)
    return max(2 * explained / own.product_weight + own.mean_squared_product, 0.0) * unit**4  # rounding aside


def _sampling_noise(own: ColumnSums) -> float:
    """s √c of the products of two entries."""
    total = float(own.shared.sum())
    if total == 0:
        return 0.0
    variance = max(own.mean_squared_product - own.mean_product**2, 0.0)
    return float(np.sqrt(variance * float(own.shared @ own.shared) / total))
