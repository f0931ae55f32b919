"""Passes on this machine's processor: compiled kernels, threads over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onesided.arrays import Array
from onesided.engines.engine import Engine, means_from, row_prior
from onesided.engines.threads import RowBlocks, Run, cut, in_order, workers
from onesided.kernels import cpu, posterior
from onesided.kernels.bundles import Columns, Prior, Rows, Sums
from onesided.kernels.reference import to_half
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

CHUNK = 1 << 20  # numbers held at a time when columns are gone through
SAMPLED_ENTRIES = 1 << 22  # of rows that are drawn
HELD = 1 << 22  # numbers of rows that are solved at a time: enough that a column is met often, few enough for cache
PIECES = 16  # into which the rows that are held are cut for threads
SCORED_AT_A_TIME = 1 << 15  # rows and entries of a block that is scored
SOLVED_AT_A_TIME = 1 << 21  # numbers of rows whose posteriors are handed out


class NumpyEngine(Engine):
    """Base of the engines whose factors are arrays of numpy in this process, wherever the rows are."""

    xp: ClassVar[Any] = np
    chunk: ClassVar[int] = CHUNK

    def array(self, values: Any) -> Array:
        return np.asarray(values, dtype=np.float64)

    def normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_normal(shape)

    def diagonal_terms(
        self, X: Array, counts: Array, squares: Array, effect: float, ridge: float, gradient: Array
    ) -> float:
        return float(cpu.diagonal_terms(X, counts, squares, effect, ridge, gradient))

    def column_posterior(
        self, sums: Sums, fixed: Array, free: Array, precision: Array, prior: Prior
    ) -> tuple[Array, Array, Array]:
        width = len(free) * (len(free) + 1) // 2

        def update(at: slice) -> Any:
            return posterior.column_posterior(sums.taken(at), fixed[at], free, precision[at], prior.taken(at))

        slices = list(chunks(len(fixed), width))
        residual, spread = np.empty_like(sums.squares), np.empty((len(fixed), width), sums.second.dtype)
        for at, updated in zip(slices, in_order(update, slices), strict=True):
            fixed[at], spread[at], residual[at] = updated
        return fixed, spread, residual


class CpuEngine(RowBlocks, NumpyEngine):
    """The engine of a panel in memory or in files; what its passes compute is said in :class:`Engine`.

    >>> CpuEngine(Panel.from_dense([[1.0, 2.0], [3.0, np.nan]])).column_means()
    array([2., 2.])
    """

    device_key: Any = None

    def __init__(self, panel: Panel, weights: Array | None = None) -> None:
        super().__init__(panel, weights)
        self.panel, self.weights = panel, panel.row_weights if weights is None else weights
        self.n_columns, self.dtype = panel.n_columns, panel.dtype

    def largest_value(self) -> float:
        values = self.panel.values
        return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))

    def column_means(self) -> Array:
        """From the column's first value of positive weight."""
        seen, first = np.zeros(self.n_columns, dtype=bool), np.zeros(self.n_columns)
        for there, values in self.map(lambda rows: cpu.first_values(rows, self.n_columns)):
            first[there & ~seen] = values[there & ~seen]
            seen |= there
        return np.asarray(means_from(self, first, passes=1))

    def column_sums(self, center: Array, scale: Array) -> tuple[Array, Array]:
        sums, products = self.sum(lambda rows: cpu.column_sums(rows, center, scale))
        return np.ascontiguousarray(sums.T), products

    def row_pass(
        self, X: Array, center: Array, scale: Array, effect: float, exact: bool = False
    ) -> tuple[float, Array]:
        lines = cpu.lines(X, center, scale, np.dtype(np.float64) if exact else self.dtype, effect)
        loss, gradient = self.sum(lambda rows: cpu.row_pass(rows, lines))
        return loss, gradient[:, lines.rank - X.shape[1] :]

    def curvature(self, X: Array) -> Array:
        factor = np.ascontiguousarray(X, dtype=self.dtype)
        (blocks,) = self.sum(lambda rows: (cpu.curvature(rows, factor),))
        return np.asarray(blocks)

    def gram_product(self, V: Array, center: Array, scale: Array, effect: float) -> Array:
        V = np.ascontiguousarray(V, dtype=np.float64)
        (product,) = self.sum(lambda rows: (cpu.gram_product(rows, center, scale, effect, V),))
        return np.asarray(product)

    def drawn(self) -> tuple[Engine, float]:
        """Rows with about SAMPLED_ENTRIES entries, and their share of the weight of all pairs."""
        weights, share = drawn_weights(self.panel, self.weights, SAMPLED_ENTRIES)
        return (self, 1.0) if weights is None else (CpuEngine(self.panel, weights), share)

    def linked_columns(self) -> Array:
        panel = self.panel
        return np.asarray(cpu.linked_columns(panel.indptr, panel.columns, self.weights, self.n_columns))

    def prepare_columns(
        self,
        mean: Array,
        loadings: Array,
        noise: Array,
        spread: Array | None,
        unit: Array | None = None,
        row_mean: Array | None = None,
        row_covariance: Array | None = None,
        exact: bool = False,
    ) -> Columns:
        dtype = np.dtype(np.float64 if exact else self.dtype)
        d, k = loadings.shape
        prior, floor = row_prior(k, row_mean, row_covariance)
        information = np.zeros((0, 0), dtype)
        if spread is not None:
            information = cpu.padded(np.empty((d, 0), dtype), spread.shape[1])
            fill, slices = posterior.column_information, list(chunks(*spread.shape))
            for _ in in_order(lambda at: fill(loadings[at], noise[at], spread[at], information[at]), slices):
                pass
        wide = cpu.padded(loadings.astype(dtype, copy=False))
        unit = np.ones(d) if unit is None else unit
        return Columns(unit, mean, wide, 1 / noise, information, to_half(prior).astype(dtype), floor, k)

    def posterior_sums(self, columns: Columns) -> Sums:
        """The columns' sufficient statistics: some rows are solved at a time, then accumulated column by column."""
        information, k = columns.information, columns.n_loadings
        wide = cpu.padded(information[:0, :0], k + 1).shape[1]
        second = cpu.padded(information[:, :0], information.shape[1])
        d = len(columns.center)
        sums = Sums(second, np.zeros((d, wide)), np.zeros(d), np.zeros((k + 1) * (k + 2) // 2))
        rows = self.rows.taken(np.flatnonzero((self.weights > 0) & (self.panel.row_counts > 0)))
        held = np.concatenate([[0], np.cumsum(second.shape[1] + 2 * (rows.stops - rows.starts))])
        with workers() as run:
            for first, last in cut(held, HELD):
                pieces = [slice(*piece) for piece in cut(held[first : last + 1], HELD // PIECES)]
                _accumulate(run, rows.taken(slice(first, last)), pieces, columns, sums)
        return sums

    def row_posteriors(self, columns: Columns) -> Iterator[Array]:
        """Halves of (S, z) of all rows, some rows at a time, in order."""
        for _, halves in self._solved(lambda rows, halves: None, columns):
            yield halves

    def scored_posteriors(self, columns: Columns) -> Iterator[tuple[Array, Array]]:
        """The same, with the sums of :meth:`leave_one_out` for each row: rows are solved once for both."""

        def scored(rows: Rows, halves: Array) -> Array:
            scores = np.zeros((len(halves), 5))
            posterior.leave_one_out_of(rows, columns, halves, scores)
            return scores

        for scores, halves in self._solved(scored, columns):
            yield halves, scores

    def _solved(self, then: Callable[[Rows, Array], Any], columns: Columns) -> Iterator[tuple[Any, Array]]:
        """Solve some rows at a time, in order: what ``then`` makes of them and their padded halves, and the halves."""
        panel, k = self.panel, columns.n_loadings
        half = (k + 1) * (k + 2) // 2

        def solve(block: tuple[int, int]) -> tuple[Any, Array]:
            rows = self.rows.taken(slice(*block))
            halves = cpu.padded(np.empty((len(rows.starts), 0)), half)
            posterior.row_posterior(rows, columns, halves)
            return then(rows, halves), halves[:, :half]

        rows_and_entries = panel.indptr + np.arange(panel.n_rows + 1)
        yield from in_order(solve, cut(rows_and_entries, max(1, SOLVED_AT_A_TIME // (k + 1) ** 2)))

    def leave_one_out(self, columns: Columns) -> Array:
        rows = self.rows.taken(np.flatnonzero(self.weights))
        blocks = cut(np.concatenate([[0], np.cumsum(1 + rows.stops - rows.starts)]), SCORED_AT_A_TIME)
        scores = in_order(lambda block: posterior.leave_one_out(rows.taken(slice(*block)), columns), blocks)
        sums = np.empty((len(rows.starts), 5))
        for (first, last), scored in zip(blocks, scores, strict=True):
            sums[first:last] = scored
        return sums


def _accumulate(run: Run, rows: Rows, pieces: list[slice], columns: Columns, sums: Sums) -> None:
    """Solve some rows, piece by piece, and add their moments to the columns' sufficient statistics."""
    information = columns.information
    moments, means = (
        cpu.padded(information[:0, :0], table.shape[1], len(rows.starts)) for table in (sums.second, sums.first)
    )
    for c in range(0, information.shape[1], posterior.GROUP // information.itemsize):
        run([partial(posterior.add_information, rows.taken(at), columns, c, moments[at]) for at in pieces])

    def solve(at: slice) -> Any:
        piece = rows.taken(at)
        posterior.solve_rows(piece, columns, moments[at])
        return posterior.row_moments(moments[at], piece.weights, columns.n_loadings, means[at])

    by_column = partial(posterior.entries_by_column, rows, columns)
    groups, *totals = run([by_column, *(partial(solve, at) for at in pieces)])
    for total in totals:
        sums.total[:] += total
    parts = cut(groups.starts, max(1, int(groups.starts[-1]) // PIECES))
    run([partial(posterior.column_sums, groups.taken(*part), moments, means, sums) for part in parts])


def drawn_weights(panel: PanelLike, weights: Array, entries: int) -> tuple[Array | None, float]:
    """Row weights that are zero but for rows with about so many entries, and the share of the weight of all pairs.

    None where there are no more entries than that, or none of the rows drawn has a pair.
    """
    if panel.n_entries <= entries:
        return None, 1.0
    pairs = panel.row_counts.astype(np.float64)
    pairs *= pairs - 1
    chosen = np.random.default_rng(0).random(len(pairs)) < entries / panel.n_entries
    drawn = np.where(chosen, weights, 0.0)
    share = float(drawn @ pairs) / float(weights @ pairs)
    return (drawn, share) if share > 0 else (None, 1.0)


def chunks(n: int, width: int, most: int = CHUNK) -> Iterator[slice]:
    """Slices of n columns, such that matrices of which each half has ``width`` numbers have at most so many in all."""
    step = max(1, most // max(1, 2 * width))
    for first in range(0, n, step):
        yield slice(first, first + step)
