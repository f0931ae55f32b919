"""Count what a panel has: coverage of Ω, parts, evenness; and put the supported rank beside it."""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, counted
from onesided.fitting.scales import column_scales
from onesided.model.units import Units
from onesided.pairs.linkage import ALONE, linked_parts
from onesided.pairs.size import pair_size
from onesided.panels.panel import Panel
from onesided.recoverability.chance import MARGIN, Spectrum
from onesided.recoverability.findings import (
    MOST_DIRECTIONS,
    Counts,
    Coverage,
    Evenness,
    Parts,
    RankSupport,
    Recoverability,
)

RANKS = (1, 2, 3, 5, 10, MOST_DIRECTIONS)
SAMPLE_PRODUCTS = 1 << 23
LEAST_SAMPLE = 64
EXAMPLES = 5


def recoverability(panel: Panel, *, rng: int | np.random.Generator = 0) -> Recoverability:
    """What ``panel`` can support, in a few passes over its entries.

    ``rng`` draws the random signs and the sample of columns; the same seed gives the same answer.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(5000, 60, 3, rng=0), 8, rng=1)
    >>> answer = recoverability(panel)
    >>> answer.supported_rank
    3
    >>> print(answer)
    rank 3 is supported; rank 5 needs about 21 times the rows or more, if there are so many directions
    columns are measured in units of their own: scales, 1 for a typical entry, run from 0.177 (37) to 1.9 (46)
    100% of the 1,770 pairs of columns were seen together, 0% of these in one row only
    """
    panel, rng = _counting_rows(panel), np.random.default_rng(rng)
    n, d = panel.shape
    with single_blas_thread():
        scales = column_scales(panel.with_row_weights(panel.row_weights / panel.row_weights.mean()))
        spectrum = Spectrum.of(panel, scales, MOST_DIRECTIONS, rng)
    units = Units.of(scales, panel.column_ids)
    evenness = _evenness(panel, scales if units.own else np.ones(d))
    supported = int(np.count_nonzero(spectrum.strengths > MARGIN))
    return Recoverability(
        rows=n,
        columns=d,
        entries=panel.n_entries,
        density=panel.n_entries / (n * d),
        rows_without_pairs=int(np.count_nonzero(panel.row_counts < 2)),
        entries_per_row=_counts(panel.row_counts),
        entries_per_column=_counts(panel.column_counts),
        coverage=_coverage(panel, rng),
        parts=_parts(panel),
        units=units,
        evenness=evenness,
        supported_rank=supported,
        strengths=tuple(spectrum.strengths.tolist()),
        ranks=tuple(
            RankSupport(
                rank,
                float(spectrum.strengths[rank - 1]),
                rank <= supported,
                spectrum.rows_needed(rank, n),
                paper_rows(rank, d, panel.n_entries / n, evenness.coherence),
            )
            for rank in RANKS
            if rank <= len(spectrum.strengths)
        ),
    )


def paper_rows(rank: int, columns: int, entries_per_row: float, coherence: float) -> float | None:
    """d r⁵ μ² log d / C², Theorem 3.4 with c = κ = ε = 1 and μ = max(coherence / r, 1); None for C < 2.

    >>> round(paper_rows(2, 100, 4.0, 2.0))
    921
    """
    if entries_per_row < 2:
        return None
    mu = max(coherence / rank, 1.0)
    return float(columns * rank**5 * mu**2 * np.log(columns) / entries_per_row**2)


def _counting_rows(panel: Panel) -> Panel:
    """The panel without rows of weight zero; refused when that leaves no entry."""
    counting = panel.row_weights > 0
    if not np.any(panel.row_counts[counting]):
        n, d = panel.shape
        raise InputError(
            f"nothing was observed: {counted(n, 'row')} and {counted(d, 'column')}, but no entry of positive weight; "
            "give a panel with entries"
        )
    return panel if counting.all() else panel.take_rows(counting)


def _counts(counts: Array) -> Counts:
    if len(counts) == 0:
        return Counts(0, 0.0, 0.0, 0.0, 0)
    ninety = float(np.quantile(counts, 0.9, method="inverted_cdf"))
    return Counts(int(counts.min()), float(np.median(counts)), float(counts.mean()), ninety, int(counts.max()))


def _coverage(panel: Panel, rng: np.random.Generator) -> Coverage:
    d, size = panel.n_columns, pair_size(panel, rng=rng)
    possible, observed = d * (d - 1) // 2, size.pairs - int(np.count_nonzero(panel.column_counts))
    rows = _rows_per_pair(panel, rng)
    return Coverage(
        possible_pairs=possible,
        observed_pairs=observed,
        share=observed / max(possible, 1),
        standard_error=size.standard_error / max(possible, 1),
        columns_counted=d if size.columns_counted is None else size.columns_counted,
        exact=size.exact,
        seen_once=float(np.mean(rows == 1)) if len(rows) else 0.0,
        rows_per_pair=_counts(rows),
        pair_moments=size,
    )


def _rows_per_pair(panel: Panel, rng: np.random.Generator) -> Array:
    """How many rows have each observed pair of different columns, for all columns or a sample."""
    import scipy.sparse as sp

    n, d = panel.shape
    work = float(np.sum(panel.row_counts.astype(np.float64) ** 2))
    size = min(d, max(LEAST_SAMPLE, int(SAMPLE_PRODUCTS * d / work)))
    chosen = np.sort(rng.choice(d, size, replace=False)) if size < d else np.arange(d)
    ones = np.ones(panel.n_entries, dtype=np.int32)
    indptr, rows, _ = panel.by_column
    by_column = sp.csr_array((ones, rows, indptr), shape=(d, n))
    met = by_column[chosen] @ sp.csr_array((ones, panel.columns, panel.indptr), shape=(n, d))
    return np.asarray(met.data[met.indices != np.repeat(chosen, np.diff(met.indptr))])


def _parts(panel: Panel) -> Parts:
    part = linked_parts(panel)
    alone, never = part == ALONE, panel.column_counts == 0
    return Parts(
        parts=int(part.max(initial=ALONE)) + 1,
        largest_share=float(np.mean(part == 0)),
        columns_never_seen=int(np.count_nonzero(never)),
        columns_always_alone=int(np.count_nonzero(alone & ~never)),
        examples=tuple(panel.column_ids[alone][:EXAMPLES].tolist()),
    )


def _evenness(panel: Panel, scales: Array) -> Evenness:
    weights = np.repeat(panel.row_weights, panel.row_counts)
    values = panel.values / scales[panel.columns]
    values = values / (float(np.max(np.abs(values))) or 1.0)
    totals = np.bincount(panel.columns, weights, minlength=panel.n_columns)
    seen = totals > 0
    sizes = np.bincount(panel.columns, weights * values**2, minlength=panel.n_columns)[seen] / totals[seen]
    entries = panel.column_counts.astype(np.float64)
    coherence = len(sizes) * sizes.max() / sizes.sum() if sizes.any() else 1.0
    return Evenness(float(coherence), float(entries.sum() ** 2 / (entries @ entries)))
