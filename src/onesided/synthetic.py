"""Panels with known truth: the paper's generator, mixtures; samplers.

A generator makes a :class:`Truth`, the matrix M in factor form; a sampler observes some of its entries. The
truth stays beside the panel, and M is never formed: a panel of fifty million entries needs little memory
beyond its own. ``rng`` is a seed or a numpy Generator; the same seed gives the same truth and the same panel.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.linalg

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.panels.panel import Panel

Seed = int | np.random.Generator

BLOCK_ENTRIES = 2**18  # worked on at a time; samplers draw by block, so another size gives other panels


@dataclass(frozen=True, eq=False)
class Truth:
    """A matrix M of n rows and d columns as a product of factors, with noise on its entries.

    ``M = row_factors @ column_factors.T`` (n × k and d × k), plus independent Gaussian noise of standard
    deviation ``noise`` on each entry. Noise is drawn when an entry is sampled: two panels sampled from one
    truth carry different noise.

    >>> Truth(np.array([[1.0], [2.0]]), np.array([[3.0], [0.0], [1.0]])).to_dense()
    array([[3., 0., 1.],
           [6., 0., 2.]])
    """

    row_factors: Array
    column_factors: Array
    noise: float = 0.0

    def __post_init__(self) -> None:
        shapes = np.shape(self.row_factors), np.shape(self.column_factors)
        if len(shapes[0]) != 2 or len(shapes[1]) != 2 or shapes[0][1] != shapes[1][1]:
            raise InputError(f"factors of shapes {shapes[0]} and {shapes[1]}; expected n × k and d × k")
        _check_not_negative("noise", self.noise)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of M."""
        return len(self.row_factors), len(self.column_factors)

    @property
    def rank(self) -> int:
        """How many factors there are: the rank of M before noise, or more where factors are dependent."""
        return int(self.column_factors.shape[1])

    def second_moment(self) -> Array:
        """``T = MᵀM / n``, d × d; with noise its expectation, which adds ``noise²`` to the diagonal.

        >>> Truth(np.array([[1.0], [2.0]]), np.array([[3.0], [1.0]])).second_moment()
        array([[22.5,  7.5],
               [ 7.5,  2.5]])
        """
        L = self.second_moment_factor()
        T: Array = L @ L.T
        T[np.diag_indices_from(T)] += self.noise**2
        return T

    def second_moment_factor(self) -> Array:
        """L, d × k, with ``L @ L.T`` equal to T less the noise, for when T itself does not fit in memory.

        >>> linear_mixture(100, 8, 3, rng=0).second_moment_factor().shape
        (8, 3)
        """
        eigenvalues, vectors = np.linalg.eigh(self.row_factors.T @ self.row_factors / len(self.row_factors))
        scale = np.sqrt(np.maximum(eigenvalues, 0.0))  # rounding may leave a zero below zero
        return np.asarray(self.column_factors @ (vectors * scale))

    def entries(self, rows: Array, columns: Array) -> Array:
        """M at the given positions, without noise.

        >>> Truth(np.array([[1.0], [2.0]]), np.array([[3.0], [1.0]])).entries([0, 1], [1, 0])
        array([1., 6.])
        """
        rows, columns = np.asarray(rows), np.asarray(columns)
        values = np.empty(len(rows))
        step = BLOCK_ENTRIES // (self.rank + 1) + 1  # each position gathers ``rank`` numbers, twice
        for first in range(0, len(rows), step):
            here = slice(first, first + step)
            values[here] = np.vecdot(self.row_factors[rows[here]], self.column_factors[columns[here]])
        return values

    def to_dense(self) -> Array:
        """M itself, n × d, without noise."""
        return self.row_factors @ self.column_factors.T


def low_rank_gaussian(
    n: int, d: int, rank: int, *, rng: Seed, mean: float | None = None, deviation: float | None = None
) -> Truth:
    """The paper's synthetic matrix: entries N(1/√d, 1/d), cut to its ``rank`` largest singular values.

    ``mean`` and ``deviation`` of the entries are 1/√d unless given; the code published with the paper draws with
    2/√d and 1/d. The matrix is ``rng.normal(mean, deviation, (n, d))``, drawn twice, a block of rows at a time: for
    its Gram matrix, whose leading eigenvectors are the column factors, and to project its rows on them. Memory
    O(d² + n·rank), time O(n·d² + d³).

    >>> int(np.linalg.matrix_rank(low_rank_gaussian(200, 30, 4, rng=0).to_dense()))
    4
    """
    _check_size(n, d, rank)
    mean = 1.0 / np.sqrt(d) if mean is None else mean
    deviation = 1.0 / np.sqrt(d) if deviation is None else deviation
    if not np.isfinite(mean):
        raise InputError(f"mean={mean!r}; expected a finite number")
    _check_not_negative("deviation", deviation)
    rng = np.random.default_rng(rng)
    first_pass = _gaussian_blocks(n, d, mean, deviation, copy.deepcopy(rng))
    if n < d:  # the matrix is smaller than its Gram matrix, and is one block
        basis = np.linalg.svd(next(first_pass), full_matrices=False)[2][:rank].T
    else:
        gram = np.zeros((d, d))
        for block in first_pass:
            gram += block.T @ block
        basis = scipy.linalg.eigh(gram, subset_by_index=(d - rank, d - 1))[1][:, ::-1]
    basis = np.array(basis, order="C")
    return Truth(np.concatenate([block @ basis for block in _gaussian_blocks(n, d, mean, deviation, rng)]), basis)


def common_means(n: int, d: int, rank: int, *, rng: Seed) -> Truth:
    """The paper's common means model: each row is one of ``rank`` means, chosen uniformly.

    The means have entries N(0, 1/d): their norms are near one and their coherence grows only with log d.

    >>> len(np.unique(common_means(50, 6, 3, rng=0).to_dense(), axis=0))
    3
    """
    _check_size(n, d, rank)
    rng = np.random.default_rng(rng)
    means = rng.normal(0.0, 1.0 / np.sqrt(d), size=(d, rank))
    chosen = np.zeros((n, rank))
    chosen[np.arange(n), rng.integers(rank, size=n)] = 1.0
    return Truth(chosen, means)


def noisy_mixture(n: int, d: int, rank: int, *, sigma: float, rng: Seed) -> Truth:
    """Common means with noise N(0, sigma²/d) on every entry: a noise vector of norm near ``sigma`` per row.

    >>> noisy_mixture(50, 4, 3, sigma=0.5, rng=0).noise
    0.25
    """
    _check_not_negative("sigma", sigma)
    return replace(common_means(n, d, rank, rng=rng), noise=float(sigma / np.sqrt(d)))


def linear_mixture(n: int, d: int, rank: int, *, rng: Seed) -> Truth:
    """Each row is a random linear combination of ``rank`` factors.

    Factors have entries N(0, 1/d), coefficients are N(0, 1/rank): rows have norms near one, and T the same
    expectation as under :func:`common_means`. Memory O((n + d)·rank): this makes the largest panels.

    >>> linear_mixture(1_000, 500, 10, rng=0).shape
    (1000, 500)
    """
    _check_size(n, d, rank)
    rng = np.random.default_rng(rng)
    factors = rng.normal(0.0, 1.0 / np.sqrt(d), size=(d, rank))
    return Truth(rng.normal(0.0, 1.0 / np.sqrt(rank), size=(n, rank)), factors)


def _gaussian_blocks(n: int, d: int, mean: float, deviation: float, rng: np.random.Generator) -> Iterator[Array]:
    """The rows of one Gaussian matrix: blocks draw from one stream, so their height does not change it."""
    height = max(d, BLOCK_ENTRIES // d)  # at least d: a lower block saves no memory beside the Gram matrix
    for first in range(0, n, height):
        yield rng.normal(mean, deviation, size=(min(height, n - first), d))


def sample_bernoulli(truth: Truth, p: npt.ArrayLike, *, rng: Seed, dtype: npt.DTypeLike = np.float64) -> Panel:
    """Observe each entry independently with probability ``p``: one number, or one for each row.

    >>> sample_bernoulli(linear_mixture(4, 3, 1, rng=0), [0.0, 1.0, 1.0, 0.0], rng=1).row_counts
    array([0, 3, 3, 0])
    """
    n, d = truth.shape
    p = np.asarray(p, dtype=np.float64)
    if p.shape not in ((), (n,)):
        raise InputError(f"p of shape {p.shape}; expected one probability, or one for each of {n} rows")
    if not np.all((p >= 0.0) & (p <= 1.0)):  # also refuses NaN
        raise InputError(f"p must lie between 0 and 1; found {p.min():g} to {p.max():g}")
    rng = _own_stream(rng, 0)
    # How many of d independent coins show heads, then which: given their number, all subsets are alike.
    return _sample(truth, rng.binomial(d, p, size=n), rng, dtype)


def sample_fixed(truth: Truth, per_row: int, *, rng: Seed, dtype: npt.DTypeLike = np.float64) -> Panel:
    """Observe exactly ``per_row`` entries of each row, chosen uniformly without replacement.

    >>> sample_fixed(linear_mixture(4, 9, 2, rng=0), 3, rng=1).row_counts
    array([3, 3, 3, 3])
    """
    n, d = truth.shape
    _check_integer("per_row", per_row, 0, d)
    return _sample(truth, np.full(n, per_row, dtype=np.int64), _own_stream(rng, 0), dtype)


def sample_snowball(panel: Panel, rate: float, *, rng: Seed) -> Panel:
    """Keep each entry of row i with probability ``rate / d`` times the number of entries in row i.

    The paper's biased sampling of a real panel (its C is ``rate``): active rows are observed more. A row of c
    entries keeps ``rate · c² / d`` of them on average. No probability is clipped: a rate that gives a row
    more than 1 is refused. Ids and row weights stay.

    >>> panel = Panel.from_dense([[1.0, 2.0, 3.0, 4.0], [5.0, np.nan, np.nan, np.nan]])
    >>> sample_snowball(panel, 1.0, rng=0).row_counts
    array([4, 0])
    """
    _check_not_negative("rate", rate)
    counts, d = panel.row_counts, panel.n_columns
    largest = d / max(int(counts.max()), 1)
    if rate > largest:
        above = f"{np.count_nonzero(counts > d / rate):,} of {panel.n_rows:,} rows"
        raise InputError(f"rate={rate:g} gives {above} a probability above 1; use at most {largest}")
    rng = _own_stream(rng, 1)
    chosen = np.empty(panel.n_entries, dtype=bool)
    for rows, here in _row_blocks(panel.indptr):
        p = np.repeat(rate * counts[rows] / d, counts[rows])
        chosen[here] = rng.random(len(p)) < p
    return keep_entries(panel, chosen)


def keep_entries(panel: Panel, chosen: Array) -> Panel:
    """The panel with the entries that a mask over them keeps; rows, columns, ids and weights stay.

    >>> keep_entries(Panel.from_dense([[1.0, 2.0], [3.0, 4.0]]), np.array([True, False, False, True]))
    Panel(2 rows × 2 columns, 2 entries)
    """
    kept = np.flatnonzero(chosen)
    return Panel(
        np.searchsorted(kept, panel.indptr),
        panel.columns[kept],
        panel.values[kept],
        panel.n_columns,
        row_ids=panel.row_ids if panel.has_row_ids else None,
        column_ids=panel.column_ids if panel.has_column_ids else None,
        row_weights=panel.row_weights,
    )


def _own_stream(rng: Seed, which: int) -> np.random.Generator:
    """A stream apart from the truth's and other samplers': one seed for all must not tie choice to value."""
    return np.random.default_rng(rng).spawn(which + 1)[which]


def _sample(truth: Truth, counts: Array, rng: np.random.Generator, dtype: npt.DTypeLike) -> Panel:
    """A panel with ``counts`` entries in each row, every subset of that size alike."""
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InputError(f"dtype must be float32 or float64; found {np.dtype(dtype)}")
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=dtype)
    for rows, here in _row_blocks(indptr):
        columns[here] = _draw_columns(counts[rows], truth.shape[1], rng)
        block = truth.entries(np.repeat(np.arange(rows.start, rows.stop), counts[rows]), columns[here])
        if truth.noise > 0.0:
            block += rng.normal(0.0, truth.noise, size=len(block))
        values[here] = block
    return Panel(indptr, columns, values, truth.shape[1])


def _row_blocks(indptr: Array) -> Iterator[tuple[slice, slice]]:
    """Rows that hold at most ``BLOCK_ENTRIES`` entries together, or a single row; and their entries."""
    first = 0
    while first < len(indptr) - 1:
        within = np.searchsorted(indptr, indptr[first] + BLOCK_ENTRIES, side="right") - 1
        last = max(int(within), first + 1)
        yield slice(first, last), slice(indptr[first], indptr[last])
        first = last


def _draw_columns(counts: Array, d: int, rng: np.random.Generator) -> Array:
    """For each row a uniform subset of its size, row after row, ascending.

    By rejection: draw with replacement, and draw repeats again until there are none. Renaming the columns
    renames the outcome and changes nothing else, so every subset of the right size is equally likely.
    """
    full = counts > d - counts  # here draw what is left out, which keeps repeats rare
    drawn = np.where(full, d - counts, counts)
    start = np.repeat(np.arange(len(counts)) * d, drawn)
    codes = np.sort(start + rng.integers(d, size=len(start)))
    while len(repeats := np.flatnonzero(codes[1:] == codes[:-1]) + 1):
        codes[repeats] = start[repeats] + rng.integers(d, size=len(repeats))
        codes.sort()  # each row keeps its place, so ``start`` still fits
    if full.any():
        every = (np.flatnonzero(full)[:, np.newaxis] * d + np.arange(d)).ravel()
        codes = np.setxor1d(codes, every, assume_unique=True)  # the complement in full rows only, sorted
    return codes % d


def _check_size(n: int, d: int, rank: int) -> None:
    _check_integer("n", n, 1)
    _check_integer("d", d, 1)
    _check_integer("rank", rank, 1, min(n, d))


def _check_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    if not isinstance(value, (int, np.integer)) or value < least or (most is not None and value > most):
        upwards = "upwards" if most is None else f"to {most}"
        raise InputError(f"{name}={value!r}; expected an integer from {least} {upwards}")


def _check_not_negative(name: str, value: float) -> None:
    if not 0.0 <= value < np.inf:  # also refuses NaN
        raise InputError(f"{name}={value!r}; expected a finite number that is not negative")
