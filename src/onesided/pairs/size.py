"""How large Ω is, before it is formed: the pairs of columns that some row has, and the memory of their moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.engines.threads import cut, in_order
from onesided.errors import counted
from onesided.kernels import pairs
from onesided.kernels.bundles import ByColumn, Rows
from onesided.memory import memory_in_words
from onesided.panels.panel import Panel

BLOCK_PRODUCTS = 1 << 20  # products per block of columns
COUNTED_PRODUCTS = 1 << 23  # up to so many, the pairs of all columns are counted to state the size of Ω
LEAST_SAMPLE = 64


@dataclass(frozen=True)
class PairSize:
    """How large Ω is, and how large the pair moments on it; ``str()`` of it says so in words.

    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, np.nan, 5.0]])
    >>> size = pair_size(panel)
    >>> size.pairs, size.bytes, size.exact
    (5, 152, True)
    >>> print(PairSize.of(50_000_000, panel, columns_counted=64))
    about 50 million pairs, 1.1 GiB
    """

    pairs: int
    """Pairs i ≤ j that some row of positive weight has, the diagonal included."""
    bytes: int
    """Memory of the pair moments."""
    standard_error: float = 0.0
    """Of the pairs, where they were estimated."""
    columns_counted: int | None = None
    """From how many columns they were estimated; None where all were counted."""

    @classmethod
    def of(
        cls, n_pairs: int, panel: Panel, standard_error: float = 0.0, columns_counted: int | None = None
    ) -> PairSize:
        """The size of so many pairs of a panel."""
        sums = 4 if _is_weighted(panel) else 2
        each = np.dtype(np.int32).itemsize + np.dtype(row_type(panel.n_rows)).itemsize + 8 * sums
        return cls(n_pairs, each * n_pairs + 8 * (panel.n_columns + 1), standard_error, columns_counted)

    @property
    def exact(self) -> bool:
        """Whether all pairs were counted."""
        return self.columns_counted is None

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{_spoken(self.pairs)}, {memory_in_words(self.bytes)}"


def pair_size(panel: Panel, *, rng: int | np.random.Generator = 0) -> PairSize:
    """How many pairs Ω has and what :class:`onesided.PairMoments` would take, without forming Ω.

    A row with m entries has m (m + 1) / 2 products. Up to 2²³ of them, every pair is counted. Beyond, pairs are counted
    for some columns, at least 64 drawings or as many as have about so many products. Column i has at most b_i pairs
    (i, j ≥ i): as many as products, and as many as columns from i on. Columns are drawn with chances in proportion to
    b, so that Σ b times the mean share of b_i that there is, a number between 0 and 1, is unbiased.

    >>> print(pair_size(Panel.from_dense([[1.0, 2.0, np.nan], [3.0, np.nan, 5.0]])))
    5 pairs, 152 bytes
    """
    return EntriesByColumn(panel).size(rng)


class EntriesByColumn:
    """A panel's entries by column, those of rows of weight zero left out: what Ω is counted from."""

    def __init__(self, panel: Panel) -> None:
        self.panel, self.rows = panel, Rows.of(panel.indptr, panel.columns, panel.values, panel.row_weights)
        self.weighted = _is_weighted(panel)
        self.by_column = ByColumn(
            np.empty(panel.n_columns + 1, dtype=np.int64),
            np.empty((panel.n_entries, 2), dtype=row_type(max(panel.n_rows, panel.n_entries))),
        )
        self.products = pairs.by_column(self.rows, self.by_column)

    def size(self, rng: int | np.random.Generator = 0) -> PairSize:
        """The number of pairs: counted, or estimated from some columns."""
        seen, total = np.flatnonzero(self.products), int(self.products.sum())
        bound = np.minimum(self.products[seen], np.arange(len(seen), 0, -1))
        chance = bound / max(int(bound.sum()), 1)
        draws = max(LEAST_SAMPLE, int(COUNTED_PRODUCTS / max(float(chance @ self.products[seen]), 1.0)))
        if total <= COUNTED_PRODUCTS or draws >= len(seen):
            return PairSize.of(int(self.counts.sum()), self.panel)
        drawn = np.random.default_rng(rng).choice(len(seen), draws, p=chance)
        columns, which = np.unique(drawn, return_inverse=True)
        ratios = (self._count(seen[columns]) / bound[columns])[which]
        error = float(np.sqrt(ratios.var(ddof=1) / draws)) * int(bound.sum())
        return PairSize.of(round(ratios.mean() * int(bound.sum())), self.panel, error, len(columns))

    @cached_property
    def counts(self) -> Array:
        """The pairs (i, j ≥ i) of every column i."""
        return self._count(np.arange(self.panel.n_columns))

    def _count(self, chosen: Array) -> Array:
        n, d = self.panel.shape
        # Rows as bits, where they take no more memory than as columns.
        few_words = 8 * n * ((d >> 6) + 1) <= self.panel.columns.nbytes
        bits = pairs.row_bits(self.rows, d) if few_words else np.empty((0, 0), dtype=np.uint64)
        given = (self.by_column, self.rows, bits)
        counts = in_order(lambda block: pairs.pair_counts(chosen[slice(*block)], *given), self.blocks(chosen))
        return np.concatenate(list(counts))

    def blocks(self, chosen: Array | None = None) -> list[tuple[int, int]]:
        """Ranges of columns, or of those chosen, with as many products each."""
        products = self.products if chosen is None else self.products[chosen]
        # Each block has a line over all columns.
        return cut(np.concatenate([[0], np.cumsum(products)]), max(BLOCK_PRODUCTS, 4 * self.panel.n_columns))


def _is_weighted(panel: Panel) -> bool:
    return bool(np.any((panel.row_weights != 1) & (panel.row_weights != 0)))


def row_type(most: int) -> type[np.signedinteger[Any]]:
    """The type of numbers up to this."""
    return np.int32 if most < 2**31 else np.int64


def _spoken(n_pairs: int) -> str:
    for unit, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if n_pairs >= unit:
            return f"{n_pairs / unit:,.3g} {name} pairs"
    return counted(n_pairs, "pair")
