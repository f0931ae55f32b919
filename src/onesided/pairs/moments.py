"""Pair moments on Ω: what a panel says about every pair of columns seen together, and two estimators of T.

For columns i ≤ j, with p = v_i v_j over the rows that have both: the number of rows, Σw, Σw², Σwp and Σwp².
Moments of parts of a panel add up to the moments of the whole, and can be taken away again.

Given M (n × d) with T = MᵀM/n and F_ij = (1/n) Σ_k M²_ki M²_kj, a pair seen in N of n rows chosen at random has

    Hájek               T̂_ij = Σp / N            unbiased given N ≥ 1, variance S²_ij (E[1/N | N ≥ 1] − 1/n)
    Horvitz–Thompson    T̄_ij = Σp / (n π_ij)     unbiased, variance F_ij (1 − π_ij) / (n π_ij)

with S² = n/(n−1) (F − T²) and π the probability that a row has the pair: p on the diagonal and p² off it when
each entry is observed with probability p; C/d and C(C−1)/(d(d−1)) when each row has exactly C entries.

Memory is stated in advance, and Ω is counted before anything is allocated for it. What is refused, and what to do:

====================================================  =====================================================
found                                                 instead
====================================================  =====================================================
an Ω larger than the memory that is free              ``OneSidedCompletion``, which never forms Ω
moments over different columns                        panels aligned before their moments are built
moments taken away that these do not hold             a part, from its whole
rows left that weigh nothing beside those taken away  moments of those rows, built from the rows
row weights with Horvitz–Thompson                     the Hájek estimator
a probability that is not above 0 and at most 1       one that is
====================================================  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from onesided.arrays import Array, host
from onesided.engines.placement import place_of
from onesided.engines.threads import in_order
from onesided.errors import InputError, check_choice
from onesided.kernels import cpu, pairs
from onesided.kernels.bundles import CompressedPairs
from onesided.memory import check_room
from onesided.pairs.pair_sums import PairSums
from onesided.pairs.size import EntriesByColumn, PairSize, row_type
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

if TYPE_CHECKING:
    import scipy.sparse as sp

Formula = Literal["exact", "paper"]

ROUNDING = 1e-12  # weights smaller than this share of those taken away are lost in rounding


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Sums over rows of products of two entries, for the pairs i ≤ j of columns seen together (Ω).

    Compressed upper-triangular rows: the pairs (i, ``columns[k]``) of column i are ``indptr[i]`` to
    ``indptr[i + 1]``. ``rows`` counts rows exactly; ``weight_sums`` and ``squared_weight_sums`` are None when
    every row weighs one.

    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, -1.0, np.nan], [np.nan, np.nan, 5.0]])
    >>> moments = PairMoments.from_panel(panel)
    >>> moments.n_pairs
    4
    >>> moments.to_matrix(hajek(moments)).toarray()
    array([[ 5. , -0.5,  0. ],
           [-0.5,  2.5,  0. ],
           [ 0. ,  0. , 25. ]])
    """

    n_rows: int
    indptr: Array
    columns: Array
    rows: Array
    sums: Array
    squares: Array
    weight_sums: Array | None = None
    squared_weight_sums: Array | None = None

    @classmethod
    def from_panel(cls, panel: PanelLike) -> PairMoments:
        """All pairs of a panel; rows of weight zero are left out. Refused where they would not fit in memory.

        Pairs are counted first, so that each sum is written where it stays. Beside the result this takes 8 bytes for
        an entry, and up to 4 more while pairs are counted.
        """
        return cast("PairMoments", panel.total(cls._of_rows))

    @classmethod
    def _of_rows(cls, panel: Panel) -> PairMoments:
        n_rows = int(np.count_nonzero(panel.row_weights))
        place = place_of(panel)
        found = None if place is None else place.pair_moments(panel)
        if found is not None:
            _check_size(PairSize.of(len(found[1]), panel))
            pointers, columns_of, rows, *rest = map(host, found)
            return cls(n_rows, pointers, columns_of, rows.astype(row_type(panel.n_rows)), *rest)
        columns = EntriesByColumn(panel)
        _check_size(columns.size())
        indptr = np.concatenate([[0], np.cumsum(columns.counts)])
        weighed = columns.rows if columns.weighted else columns.rows._replace(weights=np.empty(0))
        n_pairs, n_weighted = int(indptr[-1]), int(indptr[-1]) if columns.weighted else 0
        _check_size(PairSize.of(n_pairs, panel))
        sums = CompressedPairs(
            indptr,
            np.empty(n_pairs, dtype=np.int32),
            np.empty(n_pairs, dtype=row_type(panel.n_rows)),
            *(np.empty(size) for size in (n_pairs, n_pairs, n_weighted, n_weighted)),
        )
        for _ in in_order(lambda block: pairs.pair_moments(*block, columns.by_column, weighed, sums), columns.blocks()):
            pass
        return cls(n_rows, *(sums if columns.weighted else sums[:5]))

    @property
    def n_columns(self) -> int:
        """Columns of the panel, those never seen included."""
        return len(self.indptr) - 1

    @property
    def n_pairs(self) -> int:
        """Pairs i ≤ j in Ω."""
        return len(self.columns)

    @property
    def counts(self) -> Array:
        """N: the total weight of the rows that have each pair, which is their number when all weigh one."""
        return self.rows.astype(np.float64) if self.weight_sums is None else self.weight_sums

    @property
    def effective_counts(self) -> Array:
        """(Σw)² / Σw²: how many equally weighted rows would be as informative."""
        return self.pair_sums().effective_count

    def pair_sums(self) -> PairSums:
        """The sums of all pairs, weights of one included."""
        counts = self.counts
        squared_weights = counts if self.squared_weight_sums is None else self.squared_weight_sums
        return PairSums(self.rows, counts, squared_weights, self.sums, self.squares)

    def pairs(self) -> tuple[Array, Array]:
        """The columns i and j ≥ i of every pair."""
        return np.repeat(np.arange(self.n_columns), np.diff(self.indptr)), self.columns

    def find(self, i: Array, j: Array) -> Array:
        """Where pairs of columns stand among :meth:`pairs`, in either order; −1 for those outside Ω.

        >>> moments = PairMoments.from_panel(Panel.from_dense([[1.0, 2.0, np.nan], [np.nan, np.nan, 5.0]]))
        >>> moments.find(np.array([1, 0, 2]), np.array([0, 2, 2]))
        array([ 1, -1,  3])
        """
        i, j = np.asarray(i), np.asarray(j)
        for positions in (i, j):
            whole = positions.ndim == 1 and positions.dtype.kind in "iu"
            if not whole or np.any((positions < 0) | (positions >= self.n_columns)):
                raise InputError(f"pairs are two lists of whole numbers from 0 to {self.n_columns - 1}, of one length")
        if len(i) != len(j):
            raise InputError(f"{len(i)} and {len(j)} columns; expected pairs, as many of one as of the other")
        return np.asarray(pairs.find_pairs(self.indptr, self.columns, np.minimum(i, j), np.maximum(i, j)))

    def diagonal(self, values: Array) -> Array:
        """The diagonal of per-pair ``values``; zero for columns never seen."""
        i, j = self.pairs()
        on_diagonal = i == j
        diagonal = np.zeros(self.n_columns)
        diagonal[i[on_diagonal]] = values[on_diagonal]
        return diagonal

    def to_matrix(self, values: Array) -> sp.csr_array:
        """Per-pair ``values`` as a symmetric sparse matrix; zeros on Ω are stored."""
        import scipy.sparse as sp

        i, j = (columns.astype(np.int32) for columns in self.pairs())
        off = i != j
        starts, order = cpu.counting_sort(np.concatenate([i, j[off]]), self.n_columns)
        columns = np.concatenate([j, i[off]])[order]
        data = np.concatenate([values, values[off]])[order]
        matrix = sp.csr_array((data, columns, starts), shape=(self.n_columns, self.n_columns))
        matrix.sort_indices()
        return matrix

    def __add__(self, other: PairMoments) -> PairMoments:
        """The moments of both sets of rows together."""
        return self._combine(other, 1)

    def __sub__(self, other: PairMoments) -> PairMoments:
        """The moments without the other's rows, which must be among these; emptied pairs leave Ω."""
        return self._combine(other, -1)

    def _combine(self, other: PairMoments, sign: int) -> PairMoments:
        if self.n_columns != other.n_columns:
            raise InputError(
                f"moments over {self.n_columns} and {other.n_columns} columns; align the panels' columns first"
            )
        mine, theirs = (part.pairs()[0] * part.n_columns + part.columns for part in (self, other))
        union = np.union1d(mine, theirs)
        at_mine, at_theirs = np.searchsorted(union, mine), np.searchsorted(union, theirs)

        def merged(ours: Array, added: Array) -> Array:
            total = np.zeros(len(union), dtype=ours.dtype)
            total[at_mine] = ours
            total[at_theirs] += sign * added
            return total

        sums, others = self.pair_sums(), other.pair_sums()
        rows = merged(self.rows.astype(row_type(self.n_rows + other.n_rows)), other.rows)
        if np.any(rows < 0) or self.n_rows + sign * other.n_rows < 0:
            raise InputError("the moments taken away hold rows that these do not: subtract a part from its whole")
        kept = rows > 0
        counts = merged(sums.weights, others.weights)[kept]
        if np.any(counts <= ROUNDING * merged(sums.weights, np.zeros(other.n_pairs))[kept]):
            raise InputError(
                "the rows left weigh nothing beside those taken away: build their moments from the rows themselves"
            )
        weighted = self.weight_sums is not None or other.weight_sums is not None
        i = union[kept] // self.n_columns
        return PairMoments(
            self.n_rows + sign * other.n_rows,
            np.searchsorted(i, np.arange(self.n_columns + 1)),
            (union[kept] % self.n_columns).astype(np.int32),
            rows[kept],
            merged(self.sums, other.sums)[kept],
            merged(self.squares, other.squares)[kept],
            counts if weighted else None,
            merged(sums.squared_weights, others.squared_weights)[kept] if weighted else None,
        )

    def __repr__(self) -> str:
        return f"PairMoments({self.n_columns:,} columns, {self.n_pairs:,} pairs, {self.n_rows:,} rows)"


def hajek(moments: PairMoments) -> Array:
    """T̂ on Ω: the weighted mean of the products of each pair.

    >>> hajek(PairMoments.from_panel(Panel.from_dense([[1.0, 2.0], [3.0, np.nan]])))  # pairs 00, 01 and 11
    array([5., 2., 4.])
    """
    return moments.sums / moments.counts


def hajek_at(moments: PairMoments, i: Array, j: Array) -> tuple[Array, Array]:
    """T̂ and N at pairs of columns; both zero outside Ω.

    >>> moments = PairMoments.from_panel(Panel.from_dense([[1.0, 2.0, np.nan], [3.0, 0.0, np.nan]]))
    >>> hajek_at(moments, np.array([1, 1]), np.array([0, 2]))
    (array([1., 0.]), array([2., 0.]))
    """
    at = moments.find(i, j)
    seen = np.flatnonzero(at >= 0)
    counts = moments.rows if moments.weight_sums is None else moments.weight_sums
    estimate, count = np.zeros(len(at)), np.zeros(len(at))
    count[seen] = counts[at[seen]]
    estimate[seen] = moments.sums[at[seen]] / count[seen]
    return estimate, count


def horvitz_thompson(moments: PairMoments, p: float, pair_p: float | None = None) -> Array:
    """T̄ on Ω: sums of products over their expected number, n p on the diagonal and n ``pair_p`` off it.

    ``pair_p`` is p² where not given. All rows must weigh one.

    >>> moments = PairMoments.from_panel(Panel.from_dense([[1.0, 2.0], [3.0, np.nan]]))
    >>> horvitz_thompson(moments, 0.5)
    array([10.,  4.,  4.])
    """
    if moments.weight_sums is not None:
        raise InputError("the Horvitz–Thompson estimator is for rows of equal weight; found row weights")
    i, j = moments.pairs()
    expected = moments.n_rows * np.where(i == j, *_inclusion(p, pair_p))
    return np.asarray(moments.sums / expected)


def hajek_variance(
    second: Array, fourth: Array, n: int, p: float, pair_p: float | None = None, *, formula: Formula = "exact"
) -> Array:
    """Var(T̂_ij | (i, j) ∈ Ω) for a known matrix M, from T = MᵀM/n and F = (M∘M)ᵀ(M∘M)/n.

    ``"exact"`` is S² (E[1/N | N ≥ 1] − 1/n) with S² = n/(n−1) (F − T²) and N ~ Binomial(n, π). ``"paper"`` is
    the first-order expansion (1−p)/(np) (F − T²) on the diagonal, and off it F − T², the limit N = 1.

    >>> M = np.array([[1.0, 2.0], [3.0, 0.0]] * 50)
    >>> T, F = M.T @ M / 100, (M**2).T @ M**2 / 100
    >>> np.sqrt(hajek_variance(T, F, 100, 0.2)).round(2)  # standard errors
    array([[0.83, 0.57],
           [0.57, 0.41]])
    """
    check_choice("formula", formula, ("exact", "paper"))
    p, pair_p = _inclusion(p, pair_p)
    variance = fourth - second**2
    diagonal = np.eye(len(second), dtype=bool)
    if formula == "paper":
        return np.asarray(variance * np.where(diagonal, (1 - p) / (n * p), 1.0))
    if n == 1:
        return np.zeros_like(variance)
    on, off = (mean_inverse_count(n, probability) - 1 / n for probability in (p, pair_p))
    return np.asarray(n / (n - 1) * variance * np.where(diagonal, on, off))


def horvitz_thompson_variance(fourth: Array, n: int, p: float, pair_p: float | None = None) -> Array:
    """Var(T̄_ij) = F_ij (1 − π) / (n π) for a known matrix, from F = (M∘M)ᵀ(M∘M)/n.

    >>> M = np.array([[1.0, 2.0], [3.0, 0.0]] * 50)
    >>> np.sqrt(horvitz_thompson_variance((M**2).T @ M**2 / 100, 100, 0.2)).round(2)  # above those of Hájek
    array([[1.28, 0.69],
           [0.69, 0.57]])
    """
    p, pair_p = _inclusion(p, pair_p)
    diagonal = np.eye(len(fourth), dtype=bool)
    return fourth / n * np.where(diagonal, (1 - p) / p, (1 - pair_p) / pair_p)


def mean_inverse_count(n: int, probability: float) -> float:
    """E[1/N | N ≥ 1] for N ~ Binomial(n, probability).

    >>> mean_inverse_count(2, 0.5)  # N is 1 with odds 2, or 2 with odds 1
    0.8333333333333334
    """
    from scipy.stats import binom

    count = binom(n, probability)
    lowest, highest = max(1, int(count.ppf(1e-15))), max(1, int(count.isf(1e-15)))
    k = np.arange(lowest, highest + 1)
    share = count.pmf(k)
    return float(share @ (1 / k) / share.sum())


def standard_errors(moments: PairMoments) -> Array:
    """Standard error of T̂ on Ω, estimated from the data: the formula of :mod:`onesided.pairs.pair_sums`.

    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [3.0, 1.0, np.nan], [2.0, 2.0, 1.0]])
    >>> moments = PairMoments.from_panel(panel)
    >>> moments.to_matrix(standard_errors(moments)).toarray().round(2)  # none where all three rows have the pair
    array([[0.  , 0.  , 0.47],
           [0.  , 0.  , 0.38],
           [0.47, 0.38, 0.65]])
    """
    sums, (i, j) = moments.pair_sums(), moments.pairs()
    sizes = moments.diagonal(sums.mean)
    scale, on_diagonal = sizes[i] * sizes[j], i == j
    ratios = (sums.where(group).pooled_ratio(scale[group]) for group in (on_diagonal, ~on_diagonal))
    return sums.standard_errors(np.where(on_diagonal, *ratios) * sizes[i] * sizes[j], moments.n_rows)


def _inclusion(p: float, pair_p: float | None) -> tuple[float, float]:
    pair_p = p**2 if pair_p is None else pair_p
    for name, probability in (("p", p), ("pair_p", pair_p)):
        if not 0 < probability <= 1:
            raise InputError(f"{name}={probability}: expected a probability above 0 and at most 1")
    return p, pair_p


def _check_size(size: PairSize) -> None:
    check_room(
        size.bytes,
        f"Ω would hold {size} as pair moments",
        "use OneSidedCompletion, which passes over rows and never forms Ω",
    )
