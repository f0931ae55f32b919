"""Passes on this machine's processor: compiled kernels, threads over blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from onesided.engines.engine import Engine, Sums, row_prior
from onesided.engines.threads import RowBlocks, Run, cut, in_order, workers
from onesided.kernels import cpu, posterior
from onesided.kernels.reference import to_half
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

Array = npt.NDArray[Any]

CHUNK = 1 << 20  # numbers held at a time when columns are gone through
SAMPLED_ENTRIES = 1 << 22  # of rows that are drawn
HELD = 1 << 22  # numbers of rows that are solved at a time: enough that a column is met often, few enough for cache
PIECES = 16  # into which the rows that are held are cut for threads
SCORED_AT_A_TIME = 1 << 15  # rows and entries of a block that is scored
SOLVED_AT_A_TIME = 1 << 21  # numbers of rows whose posteriors are handed out


class Here:
    """What engines have in common whose factors lie in the memory of this machine."""

    xp: ClassVar[Any] = np

    def array(self, values: Any) -> Array:
        """As doubles."""
        return np.asarray(values, dtype=np.float64)

    def normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Standard normal numbers."""
        return rng.standard_normal(shape)

    def own_terms(self, X: Array, counts: Array, squares: Array, effect: float, ridge: float, gradient: Array) -> float:
        """The terms of the diagonal; their gradient is added."""
        return float(cpu.own_terms(X, counts, squares, effect, ridge, gradient))

    def column_posterior(
        self, sums: Sums, fixed: Array, free: Array, precision: Array, prior: Array, linear: Array
    ) -> tuple[Array, Array, Array]:
        """Columns given what rows tell about them; ``fixed`` is overwritten."""
        width = len(free) * (len(free) + 1) // 2

        def update(part: slice) -> Any:
            told = (sums.second[part], sums.first[part], sums.squares[part])
            return posterior.column_posterior(*told, fixed[part], free, precision[part], prior, linear[part])

        parts = list(chunks(len(fixed), width))
        at, residual = fixed, np.empty_like(sums.squares)
        spread = np.empty((len(fixed), width), sums.second.dtype)
        for part, found in zip(parts, in_order(update, parts), strict=True):
            at[part], spread[part], residual[part] = found
        return at, spread, residual


class CpuEngine(Here, RowBlocks):
    """The engine of a panel in memory or in files.

    >>> CpuEngine(Panel.from_dense([[1.0, 2.0], [3.0, np.nan]])).column_means()
    array([2., 2.])
    """

    where: Any = None

    def __init__(self, panel: Panel, weights: Array | None = None) -> None:
        super().__init__(panel, weights)
        self.panel, self.weights = panel, panel.row_weights if weights is None else weights
        self.n_columns, self.dtype = panel.n_columns, panel.dtype

    def largest_value(self) -> float:
        """The largest magnitude among all entries."""
        values = self.panel.values
        return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))

    def column_means(self) -> Array:
        """Values are taken as differences from the column's first of positive weight: constants have exact means."""
        seen, first = np.zeros(self.n_columns, dtype=bool), np.zeros(self.n_columns)
        for there, values in self.map(
            lambda rows: cpu.first_values(rows.indptr, rows.columns, rows.values, rows.weights, self.n_columns)
        ):
            first[there & ~seen] = values[there & ~seen]
            seen |= there
        counts, _, sums, *_ = self.column_sums(first, 1.0)[0]
        means = first + sums / np.where(seen, counts, 1.0)
        return np.asarray(np.where(seen, means, counts @ means / (counts.sum() or 1.0)))

    def column_sums(self, center: Array, scale: float) -> tuple[Array, Array]:
        """Seven sums for each column, one after the other, and three over all rows."""
        sums, products = self.sum(
            lambda rows: cpu.column_sums(rows.indptr, rows.columns, rows.values, rows.weights, center, scale)
        )
        return np.ascontiguousarray(sums.T), products

    def row_pass(
        self, X: Array, center: Array, scale: float, effect: float, exact: bool = False
    ) -> tuple[float, Array]:
        """The loss and its gradient in X."""
        about = cpu.lines(X, center, np.dtype(np.float64) if exact else self.dtype, effect)
        loss, gradient = self.sum(
            lambda rows: cpu.row_pass(rows.indptr, rows.columns, rows.values, rows.weights, scale, about)
        )
        return loss, gradient[:, about.rank - X.shape[1] :]

    def curvature(self, X: Array) -> Array:
        """Σ_{u∋j} w A_u for every column j."""
        factor = np.ascontiguousarray(X, dtype=self.dtype)
        (blocks,) = self.sum(lambda rows: (cpu.curvature(rows.indptr, rows.columns, rows.weights, factor),))
        return np.asarray(blocks)

    def gram_product(self, V: Array, center: Array, scale: float, effect: float) -> Array:
        """Weighted sums of products, M̂ᵀ diag(w) M̂ − τ²N, applied to the columns of V."""
        around = (center, scale, effect, np.ascontiguousarray(V, dtype=np.float64))
        (product,) = self.sum(
            lambda rows: (cpu.gram_product(rows.indptr, rows.columns, rows.values, rows.weights, *around),)
        )
        return np.asarray(product)

    def drawn(self) -> tuple[Engine, float]:
        """Rows with about SAMPLED_ENTRIES entries, and their share of the weight of all pairs."""
        weights, share = drawn_weights(self.panel, self.weights, SAMPLED_ENTRIES)
        return (self, 1.0) if weights is None else (CpuEngine(self.panel, weights), share)

    def linked_columns(self) -> Array:
        """For each column, the smallest of those that chains of rows link it to."""
        panel = self.panel
        return np.asarray(cpu.linked_columns(panel.indptr, panel.columns, self.weights, self.n_columns))

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
        """As the kernels of row posteriors take it: rows are N(0, I) where nothing else is said."""
        dtype = np.dtype(np.float64 if exact else self.dtype)
        d, k = loadings.shape
        prior, floor = row_prior(k, row_mean, row_covariance)
        information = np.zeros((0, 0), dtype)
        if spread is not None:
            information = cpu.padded(np.empty((d, 0), dtype), spread.shape[1])
            fill = posterior.column_information
            parts = list(chunks(*spread.shape))
            for _ in in_order(lambda at: fill(loadings[at], noise[at], spread[at], information[at]), parts):
                pass
        wide = cpu.padded(loadings.astype(dtype, copy=False))
        return unit, mean, wide, 1 / noise, information, to_half(prior).astype(dtype), floor, k

    def posterior_sums(self, known: tuple[Any, ...]) -> Sums:
        """What rows tell about columns: some are solved at a time, and then tell all columns what they have to tell."""
        center, information, k = known[1], known[4], known[-1]
        wide = cpu.padded(information[:0, :0], k + 1).shape[1]
        second = cpu.padded(information[:, :0], information.shape[1])
        d = len(center)
        sums = Sums(second, np.zeros((d, wide)), np.zeros(d), np.zeros((k + 1) * (k + 2) // 2))
        active = np.flatnonzero((self.weights > 0) & (self.panel.row_counts > 0))
        starts, stops, weights = self.panel.indptr[:-1][active], self.panel.indptr[1:][active], self.weights[active]
        held = np.concatenate([[0], np.cumsum(second.shape[1] + 2 * (stops - starts))])
        with workers() as run:
            for first, last in cut(held, HELD):
                parts = [slice(*part) for part in cut(held[first : last + 1], HELD // PIECES)]
                rows = (starts[first:last], stops[first:last], weights[first:last])
                self._tell(run, *rows, parts, known, sums)
        return sums

    def _tell(
        self,
        run: Run,
        starts: Array,
        stops: Array,
        weights: Array,
        parts: list[slice],
        known: tuple[Any, ...],
        sums: Sums,
    ) -> None:
        """Solve some rows, part by part, and add what they tell to the sums."""
        columns, information, k = self.panel.columns, known[4], known[-1]
        entries = (columns, self.panel.values)
        moments, means = (
            cpu.padded(information[:0, :0], one.shape[1], len(starts)) for one in (sums.second, sums.first)
        )
        for c in range(0, information.shape[1], posterior.GROUP // information.itemsize):
            add = partial(posterior.add_information, columns=columns, information=information, c=c)
            run([partial(add, starts=starts[at], stops=stops[at], halves=moments[at]) for at in parts])

        def solve(at: slice) -> Any:
            posterior.solve_rows(starts[at], stops[at], *entries, *known, moments[at])
            return posterior.row_moments(moments[at], weights[at], k, means[at])

        by_column = partial(posterior.entries_by_column, starts, stops, *entries, *known[:2])
        (met, begins, *entries_of), *totals = run([by_column, *(partial(solve, at) for at in parts)])
        for total in totals:
            sums.total[:] += total
        told = (moments, means, sums.second, sums.first, sums.squares)
        run(
            [
                partial(posterior.column_sums, met[low:high], begins[low : high + 1], *entries_of, *told)
                for low, high in cut(begins, max(1, int(begins[-1]) // PIECES))
            ]
        )

    def row_posteriors(self, known: tuple[Any, ...]) -> Iterator[Array]:
        """Halves of (S, z) of all rows, some rows at a time, in order."""
        panel, k = self.panel, known[-1]
        half = (k + 1) * (k + 2) // 2

        def solve(block: tuple[int, int]) -> Array:
            rows = slice(*block)
            halves = cpu.padded(np.empty((rows.stop - rows.start, 0)), half)
            starts, stops = panel.indptr[:-1][rows], panel.indptr[1:][rows]
            posterior.row_posterior(starts, stops, panel.columns, panel.values, *known, halves)
            return np.asarray(halves[:, :half])

        rows_and_entries = panel.indptr + np.arange(panel.n_rows + 1)
        yield from in_order(solve, cut(rows_and_entries, max(1, SOLVED_AT_A_TIME // (k + 1) ** 2)))

    def leave_one_out(self, known: tuple[Any, ...]) -> Array:
        """For each row of positive weight, in order, five sums over its entries."""
        panel, rows = self.panel, np.flatnonzero(self.weights)
        starts, stops = panel.indptr[:-1][rows], panel.indptr[1:][rows]
        blocks = cut(np.concatenate([[0], np.cumsum(1 + stops - starts)]), SCORED_AT_A_TIME)
        parts = in_order(
            lambda at: posterior.leave_one_out(
                starts[slice(*at)], stops[slice(*at)], panel.columns, panel.values, *known
            ),
            blocks,
        )
        sums = np.empty((len(rows), 5))
        for (first, last), part in zip(blocks, parts, strict=True):
            sums[first:last] = part
        return sums


def drawn_weights(panel: PanelLike, weights: Array, entries: int) -> tuple[Array | None, float]:
    """Row weights that are zero but for rows with about so many entries, and the share of the weight of all pairs.

    None where there are no more entries than that, or none of the rows drawn has a pair.
    """
    if panel.n_entries <= entries:
        return None, 1.0
    pairs = panel.row_counts.astype(np.float64)
    pairs *= pairs - 1
    chosen = np.random.default_rng(0).random(len(pairs)) < entries / panel.n_entries
    some = np.where(chosen, weights, 0.0)
    share = float(some @ pairs) / float(weights @ pairs)
    return (some, share) if share > 0 else (None, 1.0)


def chunks(n: int, width: int) -> Iterator[slice]:
    """Slices of n columns, such that not many matrices of which each half has ``width`` numbers are held at a time."""
    step = max(1, CHUNK // max(1, 2 * width))
    for first in range(0, n, step):
        yield slice(first, first + step)
