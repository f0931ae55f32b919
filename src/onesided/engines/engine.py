"""Where passes over rows run: one interface, whatever holds the rows.

An engine holds the rows of a panel with a weight for each, and makes passes over them. What goes in and comes out are
arrays of ``xp``, numpy or torch, that lie where the engine works; :meth:`Engine.array` brings numbers there and
:func:`onesided.arrays.host` takes them back. Algorithms do not know which engine they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from onesided.arrays import Array
from onesided.engines.placement import place_of
from onesided.kernels.bundles import Columns, Prior, Sums
from onesided.panels.panel_like import PanelLike


class Engine(Protocol):
    """Rows, and passes over them. What each pass computes is written in :mod:`onesided.kernels.reference`."""

    xp: ClassVar[Any]
    chunk: ClassVar[int]  # numbers held at a time when columns are gone through
    device_key: Any  # device identity, used as a cache key
    n_columns: int
    dtype: Any  # numpy's, of the values: the precision in which passes work

    def array(self, values: Any) -> Any:
        """Numbers of the host as doubles where passes run."""

    def normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        """Standard normal numbers there."""

    def largest_value(self) -> float:
        """The largest magnitude among all entries."""

    def column_means(self) -> Any:
        """The weighted mean of each column; of all entries for a column never seen."""

    def column_sums(self, center: Any, scale: Any) -> tuple[Any, Array]:
        """Seven sums for each column, one after the other, and three over all rows, of (v − c_j) / s_j."""

    def row_pass(self, X: Any, center: Any, scale: Any, effect: float, exact: bool = False) -> tuple[float, Any]:
        """The loss and its gradient in X, beside which stands a fixed column of ``effect`` if that is not zero."""

    def diagonal_terms(self, X: Any, counts: Any, squares: Any, effect: float, ridge: float, gradient: Any) -> float:
        """The terms of the diagonal; their gradient is added."""

    def curvature(self, X: Any) -> Any:
        """Σ_{u∋j} w A_u for every column j."""

    def gram_product(self, V: Any, center: Any, scale: Any, effect: float) -> Any:
        """Weighted sums of products, M̂ᵀ diag(w) M̂ − τ²N, applied to the columns of V."""

    def drawn(self) -> tuple[Engine, float]:
        """Some rows, drawn at random, and their share of the weight of all pairs; all where there are not many."""

    def linked_columns(self) -> Array:
        """For each column, the smallest of those that chains of rows link it to."""

    def prepare_columns(
        self,
        mean: Any,
        loadings: Any,
        noise: Any,
        spread: Any | None,
        unit: Any = None,
        row_mean: Array | None = None,
        row_covariance: Array | None = None,
        exact: bool = False,
    ) -> Columns:
        """Columns and the prior of rows as the passes below take them, in doubles where ``exact``.

        ``spread`` are the columns' posterior covariances and ``unit`` is what all but the means are measured in, one
        where it is not given; rows are N(0, I) unless their mean and covariance are given.
        """

    def posterior_sums(self, columns: Columns) -> Sums:
        """The columns' sufficient statistics, over rows of positive weight; their total is on the host."""

    def column_posterior(
        self, sums: Sums, fixed: Any, free: Array, precision: Any, prior: Prior
    ) -> tuple[Any, Any, Any]:
        """Columns given their sufficient statistics; ``fixed`` is overwritten."""

    def row_posteriors(self, columns: Columns) -> Iterator[Array]:
        """Halves of (S, z) of all rows, on the host: some rows at a time, in order."""

    def leave_one_out(self, columns: Columns) -> Any:
        """For each row of positive weight, in order, five sums over its entries."""


def means_from(engine: Engine, start: Any, passes: int) -> Any:
    """The weighted mean of each column, of all entries for a column never seen, as corrections of a start.

    Values are taken as differences from it, so that constants have exact means.
    """
    for _ in range(passes):
        counts, _, sums, *_ = engine.column_sums(start, engine.xp.ones_like(start))[0]
        start = start + sums / engine.xp.where(counts > 0, counts, 1.0)
    return engine.xp.where(counts > 0, start, counts @ start / (counts.sum() or 1.0))


def row_prior(k: int, row_mean: Array | None, row_covariance: Array | None) -> tuple[Array, float]:
    """The prior of rows as kernels take it: Σ⁻¹ and −Σ⁻¹m over (1, z), and the smallest eigenvalue of Σ⁻¹.

    Rows are N(0, I) by default.

    >>> row_prior(1, np.ones(1), np.array([[4.0]]))
    (array([[ 0.  , -0.25],
           [-0.25,  0.25]]), 0.25)
    """
    row_mean = np.zeros(k) if row_mean is None else row_mean
    row_covariance = np.eye(k) if row_covariance is None else row_covariance
    prior = np.zeros((k + 1, k + 1))
    prior[1:, 1:] = np.linalg.inv(row_covariance)
    prior[1:, 0] = prior[0, 1:] = -prior[1:, 1:] @ row_mean
    return prior, 1 / float(np.linalg.eigvalsh(row_covariance)[-1]) if k else 1.0


def engine_for(panel: PanelLike, weights: Array | None = None) -> Engine:
    """The engine of a panel, with the panel's row weights or others: its place's, or this machine's processor.

    >>> from onesided.panels.panel import Panel
    >>> type(engine_for(Panel.from_dense([[1.0, 2.0]]))).__name__
    'CpuEngine'
    """
    place = place_of(panel)
    if place is not None:
        return place.engine(panel, weights)
    from onesided.engines.cpu import CpuEngine

    return CpuEngine(panel.to_panel(), weights)
