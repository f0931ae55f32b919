"""What a panel can support, before any fit: coverage of Ω, its parts, and how large a rank stands out from chance.

Rows of weight zero are left out throughout. With n_u entries in row u, the numbers are:

**Coverage.** The share of the d(d−1)/2 pairs of columns that some row has both of, and how often. The pairs, and
what explicit pair moments on them would take, are those of :func:`onesided.pairs.size.pair_size`: on a large panel
estimated from a random sample of columns, with a standard error. How often is counted for a sample of columns, too,
where Σ n_u² is above 2²³ (as large as so many steps allow, at least 64). Ω itself is never formed when it is large.

**Parts.** Columns are joined when a row has both. Columns of different parts are linked by no chain of rows, so
nothing observed says how they vary together. A column that is never seen, or never beside another, has no place in
any row space.

**Coherence.** d · max_j T̂_jj / Σ_j T̂_jj over the d columns that were seen, T̂_jj the mean square of a column's
values: 1 when all columns are alike, d when one has everything. Where rows lie in the row space exactly it is r·μ, with
μ the coherence of Assumption 3.3 in the paper. The effective number of columns, (Σn_j)² / Σn_j² with n_j entries in
column j, says among how many columns the entries are really spread.

**Supported rank.** K = D^−½ P D^−½ Σc, with P_ij = Σ_u w_u v_ui v_uj off the diagonal and nothing on it, values less
their column means, w_u the row's weight over √n_u, c_j = Σ_{i≠j} N_ij the weight that column j shares with others, and
D_jj = c_j plus a tenth of their mean (:mod:`onesided.fitting.solvers.spectral`). If entries had random signs, all
structure would be gone and only sampling noise left: the largest eigenvalue of K then is what chance yields. A
direction's strength is its eigenvalue over that of chance (the mean of 3 to 19 draws of signs, or their largest over
1.1 if that is more), and it is supported when its strength is above 1.1. The supported rank counts directions beyond
the column means; an effect that a row has on all its entries is one of them.

**Rows needed.** Noise lifts a real direction of h times chance to the strength s = h + 1/(4h) when h is above one half;
a weaker one is lost. So h = (s + √(s² − 1))/2, and at most s/2 for a strength below one. It grows with √n: to reach the
margin of 1.1, where h = 0.78, takes (0.78/h)² times the rows. Nor can r directions have more than tr K̄ / r each, where
K̄ has all of the columns' variance on its diagonal. So a rank that is not supported needs about
max((0.78/h_r)², (0.78 r · chance / tr K̄)²) times the rows, and no number of rows if there are fewer directions.

**The paper's bound.** Theorem 3.4 asks for n ≥ c d r⁵ κ⁶ μ² log d / (C² ε²) rows, each entry observed with probability
C/d. The constant c is not known; ``paper_rows`` sets c = κ = ε = 1, μ to the coherence over r but at least 1, and C to
the mean number of entries in a row. It says how n grows with r and d, not how many rows are enough; it is not given
for C below 2, for which the theorem makes no statement.

How well it does: 459 synthetic panels not used in choosing the 1.1 (mixtures with and without noise, equal and falling
strengths, even and uneven columns; 500 to 20,000 rows, 50 to 1,000 columns, 2 to 20 entries per row, ranks 1 to 10)
were fitted at ranks from 1 upwards. The supported rank was the largest at which ``OneSidedCompletion`` found a space
with all principal cosines to the true one above 0.7 for 78% of them, and within one of it for 94%; it was higher for 3%
and lower for 19%, mostly where many directions of equal strength begin to show together. Answering zero every time is
right for 39%, and so is the best rule that counts rows, columns and entries alone. ``rows_needed`` of an unsupported
rank is rougher: rows were doubled until the rank was found, which took 0.4 to 3.1 times that figure (80% of the
196 panels by which the formula was chosen; 0.9 at the median); for 136 more, 16 times the rows were not enough.

A supported direction is one that the sums of products show by themselves. A larger rank may still predict better, as
weaker directions are found in part: choose a rank for prediction on held-out rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, counted, examples
from onesided.fitting.objective.rows import RowObjective
from onesided.fitting.solvers.spectral import balanced_products, damped_counts, top_eigenpairs
from onesided.pairs.column_sums import column_means
from onesided.pairs.linkage import ALONE, linked_parts
from onesided.pairs.size import PairSize, pair_size
from onesided.panels.panel import Panel

Array = npt.NDArray[Any]

RANKS = (1, 2, 3, 5, 10, 20)
ROUNDING = 1e-12  # of tr K̄: eigenvalues below it are those of rounding errors
MARGIN = 1.1  # a direction is supported above this many times the eigenvalue of chance
SAMPLE_PRODUCTS = 1 << 23
LEAST_SAMPLE = 64
SIGN_ENTRIES = 1 << 21  # entries given random signs, over all draws
DRAWS = 3, 19
EXAMPLES = 5


@dataclass(frozen=True)
class Counts:
    """How a count is spread: over rows, over columns, or over pairs seen at least once.

    >>> panel = Panel.from_dense([[5.0, 4.0, 1.0], [3.0, 1.0, np.nan], [2.0, np.nan, np.nan]])
    >>> recoverability(panel).entries_per_row
    Counts(least=1, median=2.0, mean=2.0, ninety_percent=3.0, most=3)
    """

    least: int
    median: float
    mean: float
    ninety_percent: float
    """Nine in ten are at most this."""
    most: int


@dataclass(frozen=True)
class Coverage:
    """Pairs of different columns that were seen together.

    >>> panel = Panel.from_dense([[5.0, 4.0, np.nan], [3.0, 1.0, np.nan], [np.nan, 2.0, 3.0]])
    >>> found = recoverability(panel).coverage
    >>> found.observed_pairs, found.possible_pairs, found.seen_once
    (2, 3, 0.5)
    """

    possible_pairs: int
    observed_pairs: int
    """Estimated where not all columns were counted."""
    share: float
    standard_error: float
    """Of the share; zero where all columns were counted."""
    columns_counted: int
    exact: bool
    seen_once: float
    """Share of the observed pairs that a single row has."""
    rows_per_pair: Counts
    """Over observed pairs, in the sample where there is one."""
    pair_moments: PairSize
    """What explicit pair moments would hold, the diagonal included."""


@dataclass(frozen=True)
class Parts:
    """The panel's parts: columns linked by chains of rows.

    >>> rows = [5.0, 4.0, np.nan, np.nan, np.nan], [np.nan, np.nan, 2.0, 4.0, np.nan]  # with no column in common
    >>> recoverability(Panel.from_dense(rows)).parts
    Parts(parts=2, largest_share=0.4, columns_never_seen=1, columns_always_alone=0, examples=(4,))
    """

    parts: int
    """With at least two columns each."""
    largest_share: float
    """Columns in the largest part, among all columns."""
    columns_never_seen: int
    columns_always_alone: int
    """Seen, but never beside another."""
    examples: tuple[Any, ...]
    """Ids of a few columns that cannot be placed."""

    @property
    def unplaced(self) -> int:
        """Columns that cannot be placed: never seen, or never beside another."""
        return self.columns_never_seen + self.columns_always_alone


@dataclass(frozen=True)
class Evenness:
    """How evenly columns share the values' size and the entries.

    >>> found = recoverability(Panel.from_dense([[3.0, 1.0], [3.0, np.nan], [3.0, np.nan]])).evenness
    >>> round(found.coherence, 2), round(found.effective_columns, 2)  # 1 and 2, were both columns alike
    (1.8, 1.6)
    """

    coherence: float
    effective_columns: float


@dataclass(frozen=True)
class RankSupport:
    """What the panel says about one rank.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> [(one.rank, round(one.strength), one.supported) for one in recoverability(panel).ranks[:3]]
    [(1, 7, True), (2, 3, True), (3, 0, False)]
    """

    rank: int
    strength: float
    """Of the last of so many directions: its eigenvalue over that of chance."""
    supported: bool
    rows_needed: int | None
    """With rows like these; where the rank is not supported, these or more. None where nothing can be said."""
    paper_rows: float | None
    """The paper's bound with its constants set to one."""


@dataclass(frozen=True)
class Recoverability:
    """What a panel can support; ``str()`` of it says so in plain words.

    The module's docstring defines every number.

    >>> found = recoverability(Panel.from_dense([[5.0, np.nan], [np.nan, 4.0], [np.nan, 2.0]]))
    >>> found.supported_rank, found.density
    (0, 0.5)
    >>> print(found.sentences[0])
    no row has two entries, so no two columns were ever seen together: only column means can be learnt
    """

    rows: int
    columns: int
    entries: int
    density: float
    """Entries over rows × columns."""
    rows_without_pairs: int
    """With fewer than two entries."""
    entries_per_row: Counts
    entries_per_column: Counts
    coverage: Coverage
    parts: Parts
    evenness: Evenness
    supported_rank: int
    strengths: tuple[float, ...]
    """Of the leading directions, 20 at most, descending."""
    ranks: tuple[RankSupport, ...]

    @property
    def sentences(self) -> list[str]:
        """The answer in plain words, the rank first."""
        return [self._about_rank(), *self._about_parts(), *self._about_coverage()]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, the sentences among them."""
        found = asdict(self)
        found["strengths"], found["ranks"] = list(found["strengths"]), list(found["ranks"])
        found["parts"]["examples"] = list(found["parts"]["examples"])
        return {"sentences": self.sentences, **found}

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _about_rank(self) -> str:
        if self.rows_without_pairs == self.rows:
            return "no row has two entries, so no two columns were ever seen together: only column means can be learnt"
        if self.supported_rank == 0:
            known = "no direction stands out from chance: only rank 0, the column means, is supported"
        else:
            known = f"rank {self.supported_rank} is supported"
        further = next((one for one in self.ranks if one.rank > self.supported_rank), None)
        if further is None:
            tried_all = len(self.strengths) < RANKS[-1]
            return known if tried_all else f"{known}, and perhaps more: no more directions were tried"
        if further.rows_needed is None:
            return f"{known}; nothing points to rank {further.rank}"
        wanted = f"rank {further.rank} needs about {self._times(further)} the rows or more"
        return f"{known}; {wanted}, if there are so many directions"

    def _times(self, wanted: RankSupport) -> str:
        times = (wanted.rows_needed or 0) / self.rows
        return "100 times" if times > 100 else f"{times:.2g} times"

    def _about_parts(self) -> list[str]:
        said, parts = [], self.parts
        if parts.parts > 1:
            said.append(
                f"the panel falls into {parts.parts:,} parts that no chain of rows links, the largest with "
                f"{parts.largest_share:.0%} of the columns: columns of different parts can never be compared"
            )
        if parts.unplaced:
            column = counted(parts.unplaced, "column")
            said.append(
                f"{column} cannot be placed: {parts.columns_never_seen:,} never seen, "
                f"{parts.columns_always_alone:,} never beside another (first: {examples(parts.examples)})"
            )
        return said

    def _about_coverage(self) -> list[str]:
        said, coverage = [], self.coverage
        if coverage.observed_pairs:
            were = "was" if coverage.possible_pairs == 1 else "were"
            error = "" if coverage.exact else f" (± {100 * coverage.standard_error:.1g})"
            pairs = counted(coverage.possible_pairs, "pair")
            said.append(
                f"{100 * coverage.share:.3g}%{error} of the {pairs} of columns {were} seen together, "
                f"{coverage.seen_once:.0%} of these in one row only"
            )
        if 0 < self.rows_without_pairs < self.rows:
            said.append(
                f"{self.rows_without_pairs:,} of {self.rows:,} rows have fewer than two entries "
                "and say nothing about pairs of columns"
            )
        return said


def recoverability(panel: Panel, *, rng: int | np.random.Generator = 0) -> Recoverability:
    """What ``panel`` can support, in a few passes over its entries.

    ``rng`` draws the random signs and the sample of columns; the same seed gives the same answer.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(5000, 60, 3, rng=0), 8, rng=1)
    >>> found = recoverability(panel)
    >>> found.supported_rank
    3
    >>> print(found)
    rank 3 is supported; rank 5 needs about 45 times the rows or more, if there are so many directions
    100% of the 1,770 pairs of columns were seen together, 0% of these in one row only
    """
    panel, rng = _counting_rows(panel), np.random.default_rng(rng)
    n, d = panel.shape
    with single_blas_thread():
        spectrum = _Spectrum.of(panel, rng)
    evenness = _evenness(panel)
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


def _evenness(panel: Panel) -> Evenness:
    weights = np.repeat(panel.row_weights, panel.row_counts)
    values = panel.values / (float(np.max(np.abs(panel.values))) or 1.0)
    totals = np.bincount(panel.columns, weights, minlength=panel.n_columns)
    seen = totals > 0
    sizes = np.bincount(panel.columns, weights * values**2, minlength=panel.n_columns)[seen] / totals[seen]
    entries = panel.column_counts.astype(np.float64)
    coherence = len(sizes) * sizes.max() / sizes.sum() if sizes.any() else 1.0
    return Evenness(float(coherence), float(entries.sum() ** 2 / (entries @ entries)))


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """The leading eigenvalues of K over that of chance, and tr K̄ over it."""

    strengths: Array
    whole: float

    @classmethod
    def of(cls, panel: Panel, rng: np.random.Generator) -> _Spectrum:
        if not np.any(panel.row_counts > 1):
            return cls(np.zeros(0), 0.0)
        pairs = _paired(panel)
        leading = min(RANKS[-1], pairs.n_columns - 1)
        values, chance = _leading(pairs, leading, rng), 0.0
        if values.any():
            draws = int(np.clip(SIGN_ENTRIES // pairs.n_entries, *DRAWS))
            tops = [float(_leading(_with_random_signs(pairs, rng), 1, rng)[0]) for _ in range(draws)]
            chance = max(float(np.mean(tops)), max(tops) / MARGIN)
        whole = _whole_variance(pairs)
        if chance <= ROUNDING * whole:
            return cls(np.zeros(leading), 0.0)
        return cls(values / chance, whole / chance)

    def rows_needed(self, rank: int, rows: int) -> int | None:
        strength = float(self.strengths[rank - 1])
        if strength <= 0:
            return None
        times = (_without_noise(MARGIN) / _without_noise(strength)) ** 2
        if strength <= MARGIN:
            times = max(times, (_without_noise(MARGIN) * rank / self.whole) ** 2)
        return int(np.ceil(rows * times))


def _without_noise(strength: float) -> float:
    """h: what a direction has of its own, in units of chance, when noise lifts it to this strength."""
    return float(strength + np.sqrt(max(strength**2 - 1.0, 0.0))) / 2


def _paired(panel: Panel) -> Panel:
    """The rows that have pairs and the columns they have, values less the column's mean, weights over √n_u."""
    paired = panel.row_counts > 1
    kept = np.repeat(paired, panel.row_counts)
    columns, codes = np.unique(panel.columns[kept], return_inverse=True)
    values = panel.values[kept] - column_means(panel)[panel.columns[kept]]
    counts = panel.row_counts[paired]
    return Panel(
        np.concatenate([[0], np.cumsum(counts)]),
        codes.astype(np.int32),
        values.astype(panel.values.dtype),
        len(columns),
        row_weights=panel.row_weights[paired] / np.sqrt(counts),
    )


def _with_random_signs(panel: Panel, rng: np.random.Generator) -> Panel:
    values = np.where(rng.integers(2, size=panel.n_entries) == 1, panel.values, -panel.values)
    return Panel(panel.indptr, panel.columns, values, panel.n_columns, row_weights=panel.row_weights)


def _leading(pairs: Panel, rank: int, rng: np.random.Generator) -> Array:
    """The largest eigenvalues of K, descending, to about 1%; zeros where no two columns have anything in common.

    In units of the values' mean square, which signs do not change.
    """
    objective = RowObjective(pairs)
    K = balanced_products(objective, objective.products)
    if not (K @ rng.standard_normal(pairs.n_columns)).any():
        return np.zeros(rank)
    values, _ = top_eigenpairs(K, rank, rng, tol=1e-2)
    return values


def _whole_variance(pairs: Panel) -> float:
    """tr K̄ = Σ_j c_j² T̂_jj / D_jj: what K's eigenvalues would add up to if columns shared all their variance."""
    objective = RowObjective(pairs)
    shares = objective.pair_counts**2 / damped_counts(objective)
    return float(np.sum(shares * objective.squares / objective.counts))
