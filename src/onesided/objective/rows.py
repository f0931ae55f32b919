"""The precision-weighted loss: every pair weighed by its count, as one pass over rows.

    L(X) = ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² + ρ Σ_j ‖x_j‖² + constant
         = ½ Σ_u w_u (‖A_u‖² − 2‖b_u‖²) + ρ Σ_j ‖x_j‖² + constant

The sum runs over all pairs i, j when the diagonal is fitted and over i ≠ j when it is free, in which case its
terms, ½ N_jj (‖x_j‖⁴ − 2 T̂_jj ‖x_j‖²), are taken away again: they need only two numbers per column.

With a row effect, x_iᵀx_j + τ² stands in place of x_iᵀx_j: a factor column that is fixed to τ. τ² is the mean
product of two entries of a row, which is what all pairs have in common. L is then counted from L(0).

Values are measured in units of their root mean square. ρ is given as a multiple of the sampling noise in the
sums of products, s √c: s is the standard deviation of all products, and c = Σ_j c_j² / Σ_j c_j the typical
column's Σ w_u² over its pairs. So a given ridge matters less the more rows there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesided.engines.local import Block, LocalEngine
from onesided.errors import InputError, check_choice
from onesided.kernels import cpu
from onesided.objective.penalties import ridge
from onesided.panel import Panel

Array = npt.NDArray[Any]
Diagonal = Literal["fit", "free"]

LEAST_SHARE = 0.02  # of the mean: no column and no direction is taken to be flatter than this


class RowObjective:
    """L(X) for the rows of a panel, for factors in units of ``scale``.

    Parameters
    ----------
    panel : Panel
    center : array of d, optional
        Subtracted from each column's values before anything else.
    weights : array of n, optional
        Row weights, in place of the panel's own.
    diagonal : "fit" or "free"
    ridge : float
        ρ in units of the sampling noise.
    row_effect : bool
        Whether rows have an effect of their own, the same in all columns.

    Examples
    --------
    >>> objective = RowObjective(Panel.from_dense([[2.0, 2.0]]), diagonal="fit")
    >>> objective.scale, objective.value_and_gradient(np.ones((2, 1)))
    (2.0, (-2.0, array([[0.],
           [0.]])))
    """

    def __init__(
        self,
        panel: Panel,
        *,
        center: Array | None = None,
        weights: Array | None = None,
        diagonal: Diagonal = "free",
        ridge: float = 0.0,
        row_effect: bool = False,
    ) -> None:
        check_choice("diagonal", diagonal, ("fit", "free"))
        weights = panel.row_weights if weights is None else weights
        values = panel.values.astype(np.float64) - (0.0 if center is None else center[panel.columns])
        self.scale = _root_mean_square(values[np.repeat(weights > 0, panel.row_counts)]) or 1.0
        values /= self.scale
        entry_weights = np.repeat(weights, panel.row_counts)
        self.n_columns, self.diagonal = panel.n_columns, diagonal
        self.counts = np.bincount(panel.columns, entry_weights, minlength=panel.n_columns)
        self.squares = np.bincount(panel.columns, entry_weights * values**2, minlength=panel.n_columns)
        # Σ_{i≠j} N_ij for each column j: how much weight it shares with others.
        self.pair_counts = np.bincount(
            panel.columns, entry_weights * np.repeat(panel.row_counts - 1, panel.row_counts), panel.n_columns
        )
        products = _Products.of(panel, values, weights)
        self.ridge = ridge * products.sampling_noise
        self.row_variance = max(products.mean, 0.0) if row_effect else 0.0
        self._dtype = panel.values.dtype
        values = values.astype(self._dtype, copy=False)
        self.engine = LocalEngine(panel.indptr, panel.columns, values, weights, panel.n_columns)
        self.resolution = 10 * float(np.finfo(self._dtype).eps)  # relative rounding error of a loss
        self._origin = 0.0
        if self.row_variance > 0:
            self._origin = self.value_and_gradient(np.zeros((panel.n_columns, 1)))[0]

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """L(X) and its gradient, in one pass over the rows."""
        if X.shape[1] == 0:  # rank zero: nothing to fit
            return 0.0, np.zeros(X.shape)
        effect = [np.full(len(X), np.sqrt(self.row_variance))] if self.row_variance > 0 else []
        rank = X.shape[1] + len(effect)
        factor = cpu.padded(np.column_stack([*effect, X]).astype(self._dtype, copy=False))
        loss, gradient = self.engine.sum(
            lambda block: cpu.row_pass(block.indptr, block.columns, block.values, block.weights, factor, rank)
        )
        gradient = gradient[:, len(effect) :]
        if self.diagonal == "free":
            norms = np.sum(X**2, axis=1) + self.row_variance
            loss -= float(self.counts @ norms**2 / 2 - self.squares @ norms)
            gradient -= 2 * (self.counts * norms - self.squares)[:, None] * X
        value, slope = ridge(X)
        return loss - self._origin + self.ridge * value, gradient + self.ridge * slope

    def curvature(self, X: Array) -> Array:
        """The Hessian's diagonal blocks ∂²L/∂x_j², one r × r matrix per column.

        2 Σ_{u∋j} w (A_u − x_j x_jᵀ) + 2ρI when the diagonal is free; when it is fitted,
        2 Σ_{u∋j} w A_u + 2 N_jj (x_j x_jᵀ + (‖x_j‖² + τ² − T̂_jj) I) + 2ρI.
        """
        factor = np.ascontiguousarray(X, dtype=self._dtype)
        (blocks,) = self.engine.sum(lambda block: (cpu.curvature(block.indptr, block.columns, block.weights, factor),))
        own = X[:, :, None] * X[:, None, :]
        slack = np.full(self.n_columns, self.ridge)
        if self.diagonal == "free":
            blocks -= self.counts[:, None, None] * own
        else:
            blocks += self.counts[:, None, None] * own
            slack = slack + self.counts * np.sum(X**2, axis=1) - self.own
        return np.asarray(2 * blocks + 2 * slack[:, None, None] * np.eye(X.shape[1]))

    def metric(self, X: Array) -> Callable[[Array], Array]:
        """An approximate inverse Hessian near X: the curvature of x_j taken as 2 c_j S + 2ρI.

        c_j is the weight that column j shares with others (and with itself when the diagonal is fitted) and S
        the mean of x xᵀ under those weights. It costs no pass, and no memory beyond a number per column.
        """
        weight = self.pair_counts + (self.counts if self.diagonal == "fit" else 0.0)
        seen = weight > 0
        if X.shape[1] == 0 or not seen.any():
            return lambda gradient: gradient
        weight = weight + LEAST_SHARE * weight[seen].mean()
        strengths, axes = np.linalg.eigh((X * weight[:, None]).T @ X / weight.sum())
        strengths = np.maximum(strengths, LEAST_SHARE * max(float(strengths[-1]), np.finfo(float).tiny))
        curvature = 2 * (weight[:, None] * strengths + self.ridge)
        return lambda gradient: (gradient @ axes / curvature) @ axes.T

    @property
    def own(self) -> Array:
        """The diagonal of the sums of products, Σ w v_j², less the row effect."""
        return self.squares - self.row_variance * self.counts

    def products(self, V: Array) -> Array:
        """The weighted sums of products off the diagonal, M̂ᵀ diag(w) M̂ − τ²N, applied to the columns of V."""
        V = np.ascontiguousarray(V, dtype=np.float64)
        ones = np.ones(len(self.engine.blocks[0].values) if self.row_variance > 0 else 0)

        def apply(block: Block) -> tuple[Array]:
            rows = (block.indptr, block.columns)
            product = cpu.gram_product(*rows, block.values, block.weights, V)
            if len(ones):
                product -= self.row_variance * cpu.gram_product(*rows, ones, block.weights, V)
            return (product,)

        (product,) = self.engine.sum(apply)
        return np.asarray(product - self.own[:, None] * V)


def mean_squared_pair_error(panel: Panel, factor: Array) -> float:
    """The mean of (x_iᵀx_j − v_i v_j)² over the pairs i ≠ j of all rows, each weighed by its row's weight.

    >>> round(mean_squared_pair_error(Panel.from_dense([[1.0, 3.0]]), np.ones((2, 1))), 12)
    4.0
    """
    scale = max(_root_mean_square(panel.values), _root_mean_square(factor)) or 1.0
    values, X = panel.values.astype(np.float64) / scale, np.asarray(factor / scale, dtype=np.float64)
    weights = panel.row_weights / (panel.row_weights.max() or 1.0)
    products = _Products.of(panel, values, weights)
    if products.total_weight == 0:
        raise InputError("no row has two observed entries: there is no pair to compare with")
    explained = 0.0
    if X.shape[1]:
        engine = LocalEngine(panel.indptr, panel.columns, values, weights, panel.n_columns)
        wide, rank = cpu.padded(X), X.shape[1]
        explained = engine.sum(
            lambda rows: cpu.row_pass(rows.indptr, rows.columns, rows.values, rows.weights, wide, rank)
        )[0]
    entry_weights, norms = np.repeat(weights, panel.row_counts), np.sum(X**2, axis=1)[panel.columns]
    explained -= float(entry_weights @ (norms**2 / 2 - values**2 * norms))
    return max(2 * explained / products.total_weight + products.mean_square, 0.0) * scale**4  # rounding aside


@dataclass(frozen=True)
class _Products:
    """Statistics of all products of two different entries of a row, before any model."""

    total_weight: float
    mean: float
    mean_square: float
    sampling_noise: float  # s √c

    @classmethod
    def of(cls, panel: Panel, values: Array, weights: Array) -> _Products:
        counts = panel.row_counts
        total = float(weights @ (counts * (counts - 1.0)))
        if total == 0:
            return cls(0.0, 0.0, 0.0, 0.0)
        filled = counts > 0
        starts, used = panel.indptr[:-1][filled], weights[filled]
        first, second, fourth = (np.add.reduceat(values**k, starts, dtype=np.float64) for k in (1, 2, 4))
        mean = float(used @ (first**2 - second)) / total
        mean_square = float(used @ (second**2 - fourth)) / total
        shared = np.bincount(panel.columns, np.repeat(weights**2 * (counts - 1.0), counts), minlength=panel.n_columns)
        noise = np.sqrt(max(mean_square - mean**2, 0.0) * (shared @ shared) / shared.sum())
        return cls(total, mean, mean_square, float(noise))


def _root_mean_square(values: Array) -> float:
    """Divided by the largest first, so that no square can overflow or vanish."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return largest * float(np.sqrt(np.mean((values / largest) ** 2, dtype=np.float64))) if largest > 0 else 0.0
