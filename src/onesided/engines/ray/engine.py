"""Passes over rows on a cluster: each is a sum over shards of the same pass by the engine of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from onesided.arrays import Array, host
from onesided.engines.cpu import SAMPLED_ENTRIES, NumpyEngine, drawn_weights
from onesided.engines.engine import Engine, engine_for, means_from
from onesided.engines.ray.cluster import Add
from onesided.engines.ray.shards import RayPlace
from onesided.kernels import cpu
from onesided.kernels.bundles import Columns, Sums
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike


class RayEngine(NumpyEngine):
    """The engine of a panel whose rows lie on a cluster; factors are here."""

    def __init__(self, place: RayPlace, panel: PanelLike, weights: Array) -> None:
        self.device_key, self._place, self.panel, self.weights = place.shards.name, place, panel, weights
        self.n_columns, self.dtype = panel.n_columns, panel.dtype

    def _total(self, task: Callable[[Panel], Any], plus: Add) -> Any:
        return self._place.total(self.panel, self.weights, task, plus)

    def _summed(self, method: str, *arguments: Any) -> Any:
        return self._total(partial(_passed, method=method, arguments=arguments), _plus)

    def largest_value(self) -> float:
        """The largest magnitude among all entries."""
        return float(self._total(partial(_passed, method="largest_value", arguments=()), max))

    def column_means(self) -> Array:
        """From zero, in two passes."""
        return np.asarray(means_from(self, np.zeros(self.n_columns), passes=2))

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

    def prepare_columns(
        self,
        mean: Array,
        loadings: Array,
        noise: Array,
        spread: Array | None,
        row_mean: Array | None = None,
        row_covariance: Array | None = None,
        unit: float = 1.0,
        exact: bool = False,
    ) -> Any:
        """The arguments as they are: each node prepares columns for its engine."""
        rest = {"row_mean": row_mean, "row_covariance": row_covariance, "unit": unit, "exact": exact}
        return (mean, loadings, noise, spread), rest

    def posterior_sums(self, columns: Any) -> Sums:
        """The columns' sufficient statistics, over rows of positive weight."""
        return Sums(*self._total(partial(_posterior_sums, columns=columns), _plus))

    def row_posteriors(self, columns: Any) -> Iterator[Array]:
        """Halves of (S, z) of all rows, a shard at a time."""
        for _, _, halves in self._place.by_shards(self.panel, self.weights, partial(_row_posteriors, columns=columns)):
            yield from halves

    def leave_one_out(self, columns: Any) -> Array:
        """For each row of positive weight, in order, five sums over its entries."""
        shards = self._place.by_shards(self.panel, self.weights, partial(_leave_one_out, columns=columns))
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


def _prepared(engine: Engine, columns: tuple[Any, ...]) -> Columns:
    arrays, rest = columns
    mean, loadings, noise, spread = (_there(engine, array) for array in arrays)
    return engine.prepare_columns(mean, loadings, noise, spread, **rest)


def _posterior_sums(rows: Panel, columns: tuple[Any, ...]) -> tuple[Array, ...]:
    engine = engine_for(rows)
    return tuple(map(_brought, engine.posterior_sums(_prepared(engine, columns))))


def _row_posteriors(rows: Panel, columns: tuple[Any, ...]) -> list[Array]:
    engine = engine_for(rows)
    return list(engine.row_posteriors(_prepared(engine, columns)))


def _leave_one_out(rows: Panel, columns: tuple[Any, ...]) -> Array:
    engine = engine_for(rows)
    return host(engine.leave_one_out(_prepared(engine, columns)))


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
