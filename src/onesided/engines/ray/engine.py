"""Passes over rows on a cluster: each is a sum over shards of the same pass by the engine of a node."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onesided.arrays import Array, host
from onesided.engines.cpu import SAMPLED_ENTRIES, NumpyEngine, drawn_weights
from onesided.engines.engine import Engine, engine_for, means_from
from onesided.engines.ray.cluster import Add
from onesided.kernels import cpu
from onesided.kernels.bundles import Sums
from onesided.panels.panel import Panel

if TYPE_CHECKING:
    from onesided.engines.ray.panel import RayPanel


class RayEngine(NumpyEngine):
    """The engine of a panel whose rows lie on a cluster; factors are here. What passes compute, ``Engine`` says."""

    def __init__(self, panel: RayPanel) -> None:
        self.device_key, self.panel = panel.shards.name, panel
        self.n_columns, self.dtype = panel.n_columns, panel.dtype

    def _summed(self, method: str, *arguments: Any, plus: Add | None = None) -> Any:
        return self.panel.total(partial(_passed, method=method, arguments=arguments), plus or _plus)

    def _of_shards(self, method: str, columns: Any) -> Iterator[Any]:
        for _, _, result in self.panel.by_shards(partial(_passed, method=method, arguments=(columns,))):
            yield result

    def largest_value(self) -> float:
        return float(self._summed("largest_value", plus=max))

    def column_means(self) -> Array:
        """From zero, in two passes."""
        return np.asarray(means_from(self, np.zeros(self.n_columns), passes=2))

    def column_sums(self, center: Array, scale: Array) -> tuple[Array, Array]:
        sums, products = self._summed("column_sums", center, scale)
        return sums, products

    def row_pass(
        self, X: Array, center: Array, scale: Array, effect: float, exact: bool = False
    ) -> tuple[float, Array]:
        """The loss and its gradient in X, which travels in the precision in which passes work."""
        X = X if exact else X.astype(self.dtype, copy=False)
        loss, gradient = self._summed("row_pass", X, center, scale, effect, exact)
        return loss, gradient

    def curvature(self, X: Array) -> Array:
        return np.asarray(self._summed("curvature", X))

    def gram_product(self, V: Array, center: Array, scale: Array, effect: float) -> Array:
        return np.asarray(self._summed("gram_product", V, center, scale, effect))

    def drawn(self) -> tuple[Engine, float]:
        """Rows with about SAMPLED_ENTRIES entries, and their share of the weight of all pairs."""
        weights, share = drawn_weights(self.panel, self.panel.row_weights, SAMPLED_ENTRIES)
        return (self, 1.0) if weights is None else (RayEngine(self.panel.weighed(weights)), share)

    def linked_columns(self) -> Array:
        return np.asarray(self._summed("linked_columns", plus=_linked))

    def prepare_columns(self, *arguments: Any, **options: Any) -> Any:
        """The arguments as they are: each node prepares columns for its engine."""
        return _Unprepared(arguments, options)

    def posterior_sums(self, columns: Any) -> Sums:
        return Sums(*self._summed("posterior_sums", columns))

    def row_posteriors(self, columns: Any) -> Iterator[Array]:
        """Halves of (S, z) of all rows, a shard at a time."""
        return chain.from_iterable(self._of_shards("row_posteriors", columns))

    def leave_one_out(self, columns: Any) -> Array:
        return np.concatenate(list(self._of_shards("leave_one_out", columns)))


class _Unprepared(NamedTuple):
    """What :meth:`Engine.prepare_columns` is to be called with: columns first, five arrays, and the prior of rows."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]


def _there(engine: Engine, argument: Any) -> Any:
    """An argument of a pass where an engine works; arrays of the store are copied."""
    if isinstance(argument, _Unprepared):
        arrays, prior = argument.arguments[:5], argument.arguments[5:]
        return engine.prepare_columns(*(_there(engine, array) for array in arrays), *prior, **argument.options)
    return engine.array(np.array(argument, dtype=np.float64)) if isinstance(argument, np.ndarray) else argument


def _passed(rows: Panel, method: str, arguments: tuple[Any, ...]) -> Any:
    engine = engine_for(rows)
    result = getattr(engine, method)(*(_there(engine, argument) for argument in arguments))
    return tuple(map(_brought, result)) if isinstance(result, tuple) else _brought(result)


def _brought(result: Any) -> Any:
    if isinstance(result, Iterator):
        return list(result)
    return result if isinstance(result, float) else np.ascontiguousarray(host(result))


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
