"""Passes over rows on a cluster: each is a sum over shards of the same pass by the engine of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.arrays import host
from onesided.engines.cpu import SAMPLED_ENTRIES, Here, drawn_weights
from onesided.engines.engine import Engine, Sums, engine_for
from onesided.engines.ray.cluster import Add
from onesided.engines.ray.shards import RayPlace
from onesided.kernels import cpu
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

Array = npt.NDArray[Any]


class RayEngine(Here):
    """The engine of a panel whose rows lie on a cluster; factors are here."""

    def __init__(self, place: RayPlace, panel: PanelLike, weights: Array) -> None:
        self.where, self._place, self.panel, self.weights = place.shards.name, place, panel, weights
        self.n_columns, self.dtype = panel.n_columns, panel.dtype

    def _total(self, task: Callable[[Panel], Any], plus: Add) -> Any:
        return self._place.total(self.panel, self.weights, task, plus)

    def _summed(self, method: str, *arguments: Any) -> Any:
        return self._total(partial(_passed, method=method, arguments=arguments), _plus)

    def largest_value(self) -> float:
        """The largest magnitude among all entries."""
        return float(self._total(partial(_passed, method="largest_value", arguments=()), max))

    def column_means(self) -> Array:
        """Of differences from a first mean, so that constants have exact means."""
        first = np.zeros(self.n_columns)
        for _ in range(2):
            counts, _, sums, *_ = self.column_sums(first, 1.0)[0]
            first = first + sums / np.where(counts > 0, counts, 1.0)
        return np.asarray(np.where(counts > 0, first, counts @ first / (counts.sum() or 1.0)))

    def column_sums(self, center: Array, scale: float) -> tuple[Array, Array]:
        """Seven sums for each column, one after the other, and three over all rows."""
        sums, products = self._summed("column_sums", center, scale)
        return sums, products

    def row_pass(
        self, X: Array, center: Array, scale: float, effect: float, exact: bool = False
    ) -> tuple[float, Array]:
        """The loss and its gradient in X, which travels in the precision in which passes work."""
        X = X if exact else X.astype(self.dtype, copy=False)
        loss, gradient = self._summed("row_pass", X, center, scale, effect, exact)
        return loss, gradient

    def curvature(self, X: Array) -> Array:
        """Σ_{u∋j} w A_u for every column j."""
        return np.asarray(self._summed("curvature", X))

    def gram_product(self, V: Array, center: Array, scale: float, effect: float) -> Array:
        """Weighted sums of products, M̂ᵀ diag(w) M̂ − τ²N, applied to the columns of V."""
        return np.asarray(self._summed("gram_product", V, center, scale, effect))

    def drawn(self) -> tuple[Engine, float]:
        """Rows with about SAMPLED_ENTRIES entries, and their share of the weight of all pairs."""
        weights, share = drawn_weights(self.panel, self.weights, SAMPLED_ENTRIES)
        return (self, 1.0) if weights is None else (RayEngine(self._place, self.panel, weights), share)

    def linked_columns(self) -> Array:
        """For each column, the smallest of those that chains of rows link it to."""
        return np.asarray(self._total(partial(_passed, method="linked_columns", arguments=()), _linked))

    def known(
        self,
        mean: Array,
        loadings: Array,
        noise: Array,
        spread: Array | None,
        row_mean: Array | None = None,
        row_covariance: Array | None = None,
        unit: float = 1.0,
        exact: bool = False,
    ) -> tuple[Any, ...]:
        """As it is: each node makes of it what its engine takes."""
        rest = {"row_mean": row_mean, "row_covariance": row_covariance, "unit": unit, "exact": exact}
        return (mean, loadings, noise, spread), rest

    def posterior_sums(self, known: tuple[Any, ...]) -> Sums:
        """What rows of positive weight tell about columns."""
        return Sums(*self._total(partial(_posterior_sums, known=known), _plus))

    def row_posteriors(self, known: tuple[Any, ...]) -> Iterator[Array]:
        """Halves of (S, z) of all rows, a shard at a time."""
        for _, _, halves in self._place.by_shards(self.panel, self.weights, partial(_row_posteriors, known=known)):
            yield from halves

    def leave_one_out(self, known: tuple[Any, ...]) -> Array:
        """For each row of positive weight, in order, five sums over its entries."""
        shards = self._place.by_shards(self.panel, self.weights, partial(_leave_one_out, known=known))
        return np.concatenate([scores for _, _, scores in shards])


def _there(engine: Engine, argument: Any) -> Any:
    """An argument of a pass where an engine works; arrays of the store are copied."""
    return engine.array(np.array(argument, dtype=np.float64)) if isinstance(argument, np.ndarray) else argument


def _passed(rows: Panel, method: str, arguments: tuple[Any, ...]) -> Any:
    engine = engine_for(rows)
    result = getattr(engine, method)(*(_there(engine, argument) for argument in arguments))
    return tuple(map(_brought, result)) if isinstance(result, tuple) else _brought(result)


def _brought(result: Any) -> Any:
    return result if isinstance(result, float) else np.ascontiguousarray(host(result))


def _known(engine: Engine, known: tuple[Any, ...]) -> Any:
    columns, rest = known
    mean, loadings, noise, spread = (_there(engine, column) for column in columns)
    return engine.known(mean, loadings, noise, spread, **rest)


def _posterior_sums(rows: Panel, known: tuple[Any, ...]) -> tuple[Array, ...]:
    engine = engine_for(rows)
    sums = engine.posterior_sums(_known(engine, known))
    return tuple(_brought(total) for total in (sums.second, sums.first, sums.squares, sums.total))


def _row_posteriors(rows: Panel, known: tuple[Any, ...]) -> list[Array]:
    engine = engine_for(rows)
    return list(engine.row_posteriors(_known(engine, known)))


def _leave_one_out(rows: Panel, known: tuple[Any, ...]) -> Array:
    engine = engine_for(rows)
    return host(engine.leave_one_out(_known(engine, known)))


def _plus(first: Any, second: Any) -> Any:
    """The sum of what passes return; of tuples, member by member."""
    if isinstance(first, tuple):
        return tuple(_plus(a, b) for a, b in zip(first, second, strict=True))
    return first + second


def _linked(first: Array, second: Array) -> Array:
    """Columns that chains of either link: a column and its smallest in each are as a row that has both."""
    d = len(first)
    columns = np.column_stack([np.tile(np.arange(d), 2), np.concatenate([first, second])]).ravel().astype(np.int32)
    return np.asarray(cpu.linked_columns(np.arange(0, 4 * d + 1, 2), columns, np.ones(2 * d), d))
