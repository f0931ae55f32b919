"""The kernels on torch tensors, for a GPU; what each computes is written in ``reference``.

Rows are held longest first (:class:`Rows`). All but the row pass and the pairs is made of two sums: over the entries of
a row of what their columns carry, and over the entries of a column of what their rows carry. No sum but the gradient of
the row pass depends on the order in which programs happen to run, and that one only where it is added up in place.

Sums, row passes and solutions of many small systems are fused kernels where Triton is there (:mod:`onesided.kernels.
fused`), else what torch has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onesided.kernels.bundles import Columns, Prior, Sums
from onesided.kernels.reference import SMALLEST_LEFT

TILE, SHORT = 32, 16  # entries that are computed side by side, and of a row of which several are
SHARE = 3000  # a row with more than one in so many of all entries would be what all others wait for,
SPLIT = 1024  # unless it has no more than so many: it is cut
PIECE = 256  # into pieces of so many entries
LONGEST = 1024  # entries that one program sums
CHUNK = 1 << 26  # numbers held at a time on the way
WIDEST = 128  # columns of a factor that a fused row pass can hold


@lru_cache(maxsize=1)
def _triton() -> Any:
    try:
        from onesided.kernels import fused
    except ImportError:
        return None
    return fused


def fused_for(tensor: Tensor) -> Any:
    """The fused kernels, where they can run on a tensor; None where they cannot."""
    if _triton() is None or not (tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"):
        return None
    return Launched(_triton(), tensor.device)


@dataclass(frozen=True)
class Launched:
    """The kernels of a module, ``kernels.name[grid](…)``, on a device, whichever is the present one."""

    kernels: Any
    device: torch.device

    def __getattr__(self, name: str) -> Launched:
        return Launched(getattr(self.kernels, name), self.device)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
                self.kernels[grid](*arguments, **options)

        return launch


class Segments(NamedTuple):
    """Stretches of entries that are summed. Longer ones are cut: then where the pieces of each begin, as stretches."""

    starts: Tensor
    stops: Tensor
    pointers: Tensor | None = None
    pieces: Segments | None = None


def segments(pointers: Tensor) -> Segments:
    """From where each stretch begins, and where the last ends."""
    lengths = pointers.diff()
    if len(lengths) == 0 or int(lengths.max()) <= LONGEST:
        return Segments(pointers[:-1], pointers[1:])
    number = torch.clamp((lengths + LONGEST - 1) // LONGEST, min=1)
    within = running(number)
    piece = torch.arange(int(within[-1]), device=pointers.device) - torch.repeat_interleave(within[:-1], number)
    starts = torch.repeat_interleave(pointers[:-1], number) + LONGEST * piece
    stops = torch.minimum(starts + LONGEST, torch.repeat_interleave(pointers[1:], number))
    return Segments(starts, stops, within, segments(within))


def running(lengths: Tensor) -> Tensor:
    """Sums up to each and over all, from zero."""
    pointers = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=pointers[1:])
    return pointers


class ByColumn(NamedTuple):
    """The entries by column: where those of each begin, and the row and the place of each among all."""

    segments: Segments
    rows: Tensor
    places: Tensor


PREPARED = ("segments", "by_column", "plan")  # what is computed once for some rows, not in each pass


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a panel, longest first: pointers, columns and values, and which row each was."""

    order: Tensor
    indptr: Tensor
    columns: Tensor  # int32
    values: Tensor
    n_columns: int

    @classmethod
    def of(cls, indptr: Tensor, columns: Tensor, values: Tensor, n_columns: int) -> Rows:
        """From compressed rows in any order."""
        lengths = indptr.diff()
        order = torch.argsort(lengths, descending=True, stable=True)
        lengths = lengths[order]
        pointers = running(lengths)
        at = torch.repeat_interleave(indptr[:-1][order] - pointers[:-1], lengths)
        at += torch.arange(len(at), device=at.device)
        return cls(order, pointers, columns[at], values[at], n_columns)

    @property
    def n_rows(self) -> int:
        return len(self.order)

    @property
    def lengths(self) -> Tensor:
        return self.indptr.diff()

    @cached_property
    def segments(self) -> Segments:
        return segments(self.indptr)

    @cached_property
    def by_column(self) -> ByColumn:
        """The same entries by column, those of a column in the order of the rows."""
        columns, places = torch.sort(self.columns, stable=True)
        begins = torch.arange(self.n_columns + 1, dtype=torch.int32, device=columns.device)
        pointers = torch.searchsorted(columns, begins)
        del columns
        rows = torch.repeat_interleave(self.row_numbers, self.lengths)
        return ByColumn(segments(pointers), rows[places], places.to(torch.int32))

    @property
    def row_numbers(self) -> Tensor:
        return torch.arange(self.n_rows, dtype=torch.int32, device=self.indptr.device)

    @cached_property
    def plan(self) -> Plan:
        """How a row pass cuts them."""
        lengths = self.lengths
        most = max(SPLIT, len(self.columns) // SHARE)
        n_cut, n_beyond = (int(torch.count_nonzero(lengths > bound)) for bound in (most, SHORT))
        counts = torch.bincount(lengths[n_beyond:], minlength=SHORT + 1).tolist()
        row, entry, tiles = n_beyond, int(self.indptr[n_beyond]), []
        for length in range(SHORT, 0, -1):
            many, abreast = counts[length], TILE // length
            first = torch.arange(0, many, abreast, device=lengths.device)
            starts = entry + length * first
            stops = torch.clamp(starts + abreast * length, max=entry + length * many)
            tiles.append(torch.stack([starts, stops, row + first, torch.full_like(first, length)], dim=1))
            row, entry = row + many, entry + length * many
        number = (lengths[:n_cut] + PIECE - 1) // PIECE
        pointers = running(number)
        owner = torch.repeat_interleave(torch.arange(n_cut, device=lengths.device), number)
        starts = self.indptr[owner] + PIECE * (torch.arange(len(owner), device=owner.device) - pointers[owner])
        pieces = torch.stack([starts, torch.minimum(starts + PIECE, self.indptr[owner + 1]), owner], dim=1)
        return Plan(torch.cat(tiles).to(torch.int32), pieces.to(torch.int32), pointers, n_cut, n_beyond - n_cut)

    def prepared(self) -> Rows:
        """The same, with all that passes need prepared."""
        for name in PREPARED:
            getattr(self, name)
        return self

    def moved(self, move: Callable[[Tensor], Tensor]) -> Rows:
        """The same elsewhere, with what has been prepared."""
        order, indptr, columns, values = map(move, (self.order, self.indptr, self.columns, self.values))
        rows = Rows(order, indptr, columns, values, self.n_columns)
        for name in PREPARED:
            if name in self.__dict__:
                rows.__dict__[name] = _moved(self.__dict__[name], move)
        return rows

    def taken(self, chosen: Tensor) -> Rows:
        """Some of them, by a mask."""
        lengths = self.lengths
        kept = torch.repeat_interleave(chosen, lengths)
        pointers = running(lengths[chosen])
        return Rows(self.order[chosen], pointers, self.columns[kept], self.values[kept], self.n_columns)

    def chunks(self, width: int) -> Iterator[tuple[slice, slice]]:
        """Ranges of rows and their entries, few enough that ``width`` numbers of an entry or row can be held."""
        most, first = max(1, CHUNK // max(1, width)), 0
        while first < self.n_rows:
            start = int(self.indptr[first])
            last = int(torch.searchsorted(self.indptr, start + most, right=True)) - 1
            last = min(max(last, first + 1), first + most)
            yield slice(first, last), slice(start, int(self.indptr[last]))
            first = last


def _moved(item: Any, move: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(item, Tensor):
        return move(item)
    return type(item)(*(_moved(part, move) for part in item)) if isinstance(item, tuple) else item


class Plan(NamedTuple):
    """Tiles of short rows, pieces of very long ones, and those between; each row is in one of the three."""

    tiles: Tensor
    pieces: Tensor
    of_pieces: Tensor  # where those of each row begin
    n_cut: int
    n_long: int


def centred(rows: Rows, center: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """(v − c_j) / s_j of every entry, from double precision."""
    kernels = fused_for(center)
    if kernels is not None:
        e = torch.empty(len(rows.values), dtype=dtype, device=center.device)
        grid = (-(-len(e) // 1024),)
        if len(e):
            of_columns = center.contiguous(), scale.contiguous()
            kernels.centred[grid](rows.values, rows.columns, *of_columns, e, len(e), N=1024, num_warps=4)
        return e
    return ((rows.values.to(torch.float64) - center[rows.columns]) / scale[rows.columns]).to(dtype)


def width_for(rank: int) -> int:
    """Columns of a factor as a row pass takes it: a power of two, at least sixteen.

    >>> width_for(3), width_for(16), width_for(17)
    (16, 16, 32)
    """
    return max(16, 1 << (rank - 1).bit_length())


def row_pass(rows: Rows, values: Tensor, weights: Tensor, X: Tensor, in_order: bool = False) -> tuple[Tensor, Tensor]:
    """The loss and the gradient, for a factor that is ``width_for`` its rank wide and zero beyond.

    ``values`` are centred. Where the gradient is to be the same bit by bit each time, ``in_order``, that of each entry
    is kept and those of a column are added up after, which takes R numbers for an entry.
    """
    kernels = fused_for(X) if X.shape[1] <= WIDEST else None
    if kernels is None:
        return _plain_row_pass(rows, values, weights, X)
    R = X.shape[1]
    tiles, pieces, of_pieces, n_cut, n_long = rows.plan
    gradient = X.new_empty((len(values), R)) if in_order else torch.zeros_like(X)
    losses = X.new_empty(n_cut + n_long + len(tiles))
    halves = X.dtype == torch.float32
    table, units = _in_halves(kernels, X) if halves else (X, X.new_ones(2))
    shape = {"R": R, "FAR": table.numel() >= 1 << 31, "HALVES": halves}
    B, warps = 32, 1 if R <= 32 else 4
    entries, factor = (rows.columns, values), (table, units)
    if n_cut:
        statistics, whole = (X.new_empty((n, R * (R + 1))) for n in (len(pieces), n_cut))
        kernels.piece_statistics[(len(pieces),)](pieces, *entries, *factor, statistics, **shape, B=B, num_warps=warps)
        kernels.row_statistics[(n_cut,)](of_pieces, statistics, weights, whole, losses, R=R, num_warps=warps)
        kernels.piece_gradients[(len(pieces),)](
            pieces, *entries, *factor, whole, gradient, **shape, STAGED=in_order, B=B, num_warps=warps
        )
    if n_long:
        kernels.long_rows[(n_long,)](
            n_cut, rows.indptr, *entries, weights, *factor, gradient, losses[n_cut:],
            **shape, STAGED=in_order, B=B, num_warps=warps,
        )  # fmt: skip
    if len(tiles):
        kernels.short_rows[(len(tiles),)](
            tiles, *entries, weights, *factor, gradient, losses[n_cut + n_long :],
            **shape, STAGED=in_order, num_warps=warps,
        )  # fmt: skip
    if in_order:
        columns = rows.by_column
        gradient = sum_of_lines(columns.segments, gradient, columns.places)
    return losses.sum(dtype=torch.float64), gradient


def _in_halves(kernels: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """A factor in two halves of half precision, side by side, in a unit of which its largest number is 64; and both."""
    table, most = X.new_empty((len(X), 2 * X.shape[1]), dtype=torch.float16), torch.linalg.vector_norm(X, torch.inf)
    units = torch.stack([torch.where(most > 0, most / 64, 1.0), most])
    kernels.halve[(-(-X.numel() // 4096),)](X, units, table, X.numel(), R=X.shape[1], N=4096, num_warps=4)
    return table, units


def _plain_row_pass(rows: Rows, values: Tensor, weights: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    R = X.shape[1]
    loss = X.new_zeros((), dtype=torch.float64)
    staged = X.new_empty((len(values), R))
    for here, entries in rows.chunks(2 * R * R):
        lengths = rows.lengths[here]
        B, v = X[rows.columns[entries]], values[entries]
        outer = (B[:, :, None] * B[:, None, :]).flatten(1)
        A, b, w = _summed(outer, lengths).reshape(len(lengths), R, R), _summed(v[:, None] * B, lengths), weights[here]
        loss += (0.5 * w * ((A**2).sum((1, 2)) - 2 * (b**2).sum(1))).sum(dtype=torch.float64)
        row = torch.repeat_interleave(torch.arange(len(w), device=w.device), lengths)
        g = torch.bmm(B[:, None], A[row])[:, 0] - v[:, None] * b[row]
        staged[entries] = 2 * w[row, None] * g
    columns = rows.by_column
    return loss, sum_of_lines(columns.segments, staged, columns.places)


def _summed(lines: Tensor, lengths: Tensor) -> Tensor:
    """Sums of adjacent lines, so many each."""
    if len(lines) == 0:
        return lines.new_zeros((len(lengths), lines.shape[1]))
    return torch.segment_reduce(lines.contiguous(), "sum", lengths=lengths, axis=0, unsafe=True, initial=0)


def sum_of_lines(
    over: Segments, table: Tensor, index: Tensor | None = None, coefficients: Tensor | None = None
) -> Tensor:
    """Σ f_e table[index[e]] over the entries e of each stretch; of lines as they come where no index is given."""
    kernels = fused_for(table)
    table = table.contiguous()
    if kernels is None:
        out = _plain_sum(over, table, index, coefficients)
    else:
        n, width = len(over.starts), table.shape[1]
        out = table.new_empty((n, width))
        wide = min(128, 1 << max(width - 1, 0).bit_length())
        if n and width:
            kernels.sum_of_lines[(n, -(-width // wide))](
                index, coefficients, over.starts, over.stops, table, table.stride(0), out, width,
                LISTED=index is not None, WEIGHED=coefficients is not None,
                ENTRIES=min(64, 1024 // wide), WIDE=wide, num_warps=1,
            )  # fmt: skip
    return out if over.pieces is None else sum_of_lines(over.pieces, out)


def _plain_sum(over: Segments, table: Tensor, index: Tensor | None, coefficients: Tensor | None) -> Tensor:
    lengths = over.stops - over.starts
    pointers = running(lengths)
    out = table.new_zeros((len(lengths), table.shape[1]))
    most = max(1, CHUNK // max(1, table.shape[1]))
    marks = torch.arange(0, int(pointers[-1]) + most, most, device=pointers.device)
    edges = sorted({0, len(lengths), *torch.searchsorted(pointers, marks).clamp(max=len(lengths)).tolist()})
    for first, last in pairwise(edges):
        start, stop = int(over.starts[first]), int(over.stops[last - 1])  # stretches follow one another
        lines = table[start:stop] if index is None else table[index[start:stop]]
        if coefficients is not None:
            lines = lines * coefficients[start:stop, None]
        out[first:last] = _summed(lines, lengths[first:last])
    return out


def diagonal_terms(X: Tensor, counts: Tensor, squares: Tensor, effect: float, ridge: float, gradient: Tensor) -> Tensor:
    lengths = (X * X).sum(1)
    norms = lengths + effect
    gradient += (2 * (ridge - counts * norms + squares))[:, None] * X
    return ridge * lengths.sum() - (norms * (0.5 * counts * norms - squares)).sum()


def column_sums(rows: Rows, e: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Seven sums for each column, one after the other, and three over all rows; ``e`` are centred values."""
    by, m, w = rows.by_column, rows.lengths.to(torch.float64), weights
    lines = torch.stack([w, torch.where(m > 1, w, 0.0), w * (m - 1), w * w * (m - 1)], dim=1)
    counts, beside, pairs, shared = sum_of_lines(by.segments, lines, by.rows).T
    e = e.to(torch.float64)
    powers = torch.stack([e, e * e, (e * e) ** 2], dim=1)
    first, second, fourth = sum_of_lines(rows.segments, powers).T
    products = [m * (m - 1), first * first - second, second * second - fourth]
    powers *= torch.repeat_interleave(w, rows.lengths)[:, None]
    sums = sum_of_lines(by.segments, powers, by.places)
    of_rows = torch.stack([(w * product).sum() for product in products])
    return torch.stack([counts, beside, *sums.T, pairs, shared]), of_rows


def curvature(rows: Rows, weights: Tensor, X: Tensor) -> Tensor:
    by, r = rows.by_column, X.shape[1]
    a, c = torch.tril_indices(r, r, device=X.device)
    A = sum_of_lines(rows.segments, X[:, a] * X[:, c], rows.columns) * weights.to(X.dtype)[:, None]
    return from_half(sum_of_lines(by.segments, A, by.rows), r)


def gram_product(rows: Rows, e: Tensor, weights: Tensor, effect: float, V: Tensor) -> Tensor:
    """Of centred values, with the diagonal."""
    by, w = rows.by_column, weights.to(V.dtype)[:, None]
    product = sum_of_lines(by.segments, w * sum_of_lines(rows.segments, V, rows.columns, e), by.rows, e[by.places])
    if effect:
        totals = sum_of_lines(rows.segments, V, rows.columns)
        product -= effect * sum_of_lines(by.segments, w * totals, by.rows)
    return product


def linked(rows: Rows, weights: Tensor, above: Tensor) -> Tensor:
    """For each column a smaller one that rows of positive weight link it to, if any; ``above`` are those so far.

    A column gets the smallest that any column beside it is linked to so far, and so does the one that it had.
    """
    counted = torch.repeat_interleave(weights > 0, rows.lengths)
    columns = rows.columns[counted].to(torch.int64)
    owner = torch.repeat_interleave(rows.row_numbers, rows.lengths)[counted].to(torch.int64)
    smallest = above.new_full((rows.n_rows,), rows.n_columns)
    smallest.scatter_reduce_(0, owner, above[columns], "amin")
    below = above.clone()
    for place in (columns, above[columns].to(torch.int64)):
        below.scatter_reduce_(0, place, smallest[owner], "amin")
    return below[below.to(torch.int64)]


def to_half(matrices: Tensor) -> Tensor:
    """The lower halves of symmetric matrices, row by row."""
    a, c = torch.tril_indices(*matrices.shape[-2:], device=matrices.device)
    return matrices[..., a, c].contiguous()


def from_half(halves: Tensor, size: int) -> Tensor:
    """Symmetric matrices from their lower halves."""
    a = torch.arange(size, device=halves.device)
    high, low = torch.maximum(a[:, None], a), torch.minimum(a[:, None], a)
    return halves[..., high * (high + 1) // 2 + low]


def _beside_one(k: int, device: torch.device) -> Tensor:
    """Where the half of a matrix over (1, z) has z."""
    a = torch.arange(1, k + 1, device=device)
    return a * (a + 1) // 2


def solve(halves: Tensor, k: int, floor: float) -> Tensor:
    """Halves of (P, −h) over (1, z) as those of (P⁻¹, z), with 1 at the top; in place, where that can be."""
    kernels = fused_for(halves)
    size = 1 << k.bit_length()
    if kernels is not None and size <= 128 and len(halves):
        warps = 1 if size <= 32 else 4 if size <= 64 else 8
        kernels.solve[(len(halves),)](halves, k, floor, halves.shape[1], K=max(size, 2), num_warps=warps)
        return halves
    out = torch.ones_like(halves)
    step = max(1, CHUNK // (k + 1) ** 2)
    for first in range(0, len(halves), step):
        M = from_half(halves[first : first + step].to(torch.float64), k + 1)
        S = torch.linalg.inv(M[:, 1:, 1:])
        M[:, 1:, 1:] = (S + S.mT) / 2
        M[:, 1:, 0] = -(S @ M[:, 1:, :1])[..., 0]
        M[:, 0, 0] = 1.0
        out[first : first + step] = to_half(M)
    return out


def row_posterior(rows: Rows, e: Tensor, columns: Columns) -> Tensor:
    """Halves of (S, z) of every row; ``e`` are centred values."""
    _, _, loadings, precision, information, row_prior, floor, k = columns
    if len(information):
        halves = sum_of_lines(rows.segments, information, rows.columns)
    else:  # not from a table of all columns' products, which would be large
        a, c = torch.tril_indices(k + 1, k + 1, device=loadings.device)
        halves = loadings.new_empty((rows.n_rows, len(a)))
        for here, entries in rows.chunks(2 * len(a)):
            j = rows.columns[entries]
            y = torch.nn.functional.pad(loadings[j], (1, 0))
            halves[here] = _summed(y[:, a] * y[:, c] * precision[j].to(y.dtype)[:, None], rows.lengths[here])
    halves[:, _beside_one(k, halves.device)] -= sum_of_lines(
        rows.segments, loadings * precision.to(loadings.dtype)[:, None], rows.columns, e
    )
    halves += row_prior
    return solve(halves, k, floor)


def posterior_sums(rows: Rows, e: Tensor, weights: Tensor, columns: Columns) -> Sums:
    by, k = rows.by_column, columns.n_loadings
    weights = torch.where(rows.lengths > 0, weights, 0.0)  # rows without entries do not count, not in the total either
    moments = row_posterior(rows, e, columns)
    z = torch.nn.functional.pad(moments[:, _beside_one(k, moments.device)], (1, 0), value=1.0)
    a, c = torch.tril_indices(k + 1, k + 1, device=z.device)
    moments += torch.where(c > 0, z[:, a] * z[:, c], 0.0)
    w = weights.to(moments.dtype)[:, None]
    moments *= w
    of_columns = e[by.places]
    return Sums(
        sum_of_lines(by.segments, moments, by.rows),
        sum_of_lines(by.segments, w * z, by.rows, of_columns).to(torch.float64),
        sum_of_lines(by.segments, weights[:, None], by.rows, of_columns.to(torch.float64) ** 2)[:, 0],
        moments.sum(0, dtype=torch.float64),
    )


def column_posterior(
    sums: Sums, fixed: Tensor, free: Tensor, precision: Tensor, prior: Prior
) -> tuple[Tensor, Tensor, Tensor]:
    K, first = len(free), sums.first
    M, gamma = from_half(sums.second.to(torch.float64), K), precision[:, None]
    inside = free[:, None] & free[None, :]
    tight = prior.tightness[:, torch.arange(K, device=M.device).clamp(max=1)]
    P = torch.addcmul(gamma[:, :, None] * M, tight[:, :, None] * tight[:, None, :], prior.precision)
    P = torch.where(inside, P, torch.eye(K, dtype=M.dtype, device=M.device))
    explained = (M @ fixed[:, :, None])[..., 0]
    h = torch.where(free, prior.linear + gamma * (first - explained), 0.0)
    bordered = torch.nn.functional.pad(P, (1, 0, 1, 0))
    bordered[:, 1:, 0] = -h
    solution = from_half(solve(to_half(bordered), K, 0.0), K + 1)
    at = torch.where(free, solution[:, 1:, 0], fixed)
    V = torch.where(inside, solution[:, 1:, 1:], 0.0)
    residual = sums.squares - 2 * (at * first).sum(1) + (M * (V + at[:, :, None] * at[:, None, :])).sum((1, 2))
    return at, to_half(V), residual


def column_information(loadings: Tensor, noise: Tensor, spread: Tensor) -> Tensor:
    a, c = torch.tril_indices(loadings.shape[1] + 1, loadings.shape[1] + 1, device=loadings.device)
    y = torch.nn.functional.pad(loadings, (1, 0))
    return (y[:, a] * y[:, c] + spread) / noise[:, None]


def leave_one_out(rows: Rows, e: Tensor, columns: Columns) -> Tensor:
    """For each row, five sums over its entries, each predicted from the others."""
    loadings, information, k = columns.loadings, columns.information, columns.n_loadings
    precision = columns.precision.to(loadings.dtype)
    halves = row_posterior(rows, e, columns)
    scores = halves.new_zeros((rows.n_rows, 5))
    kernels, size = fused_for(halves), max(16, 1 << k.bit_length())
    if kernels is not None and size <= 64 and halves.dtype == torch.float64:
        kernels.leave_one_out[(rows.n_rows,)](
            rows.indptr, rows.columns, e, loadings.contiguous(), precision, information, halves, scores,
            k, halves.shape[1], SMALLEST_LEFT,
            CERTAIN=len(information) == 0, K=size, B=16, num_warps=1 if size == 16 else 4,
        )  # fmt: skip
        return scores
    a, c = torch.tril_indices(k + 1, k + 1, device=halves.device)
    twice = torch.where(a == c, 1.0, 2.0).to(halves.dtype)
    inner = c > 0
    for here, entries in rows.chunks(4 * (k + 1) ** 2):
        lengths, j = rows.lengths[here], rows.columns[entries]
        row = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
        M = from_half(halves[here], k + 1)
        S, z, y, gamma = M[:, 1:, 1:], M[:, 1:, 0], loadings[j], precision[j]
        Sy = torch.bmm(S[row], y[:, :, None])[..., 0]
        h = (y * Sy).sum(1)
        left = torch.clamp(1 - gamma * h, min=SMALLEST_LEFT)
        residual = (e[entries] - (y * z[row]).sum(1)) / left
        variance = 1 / (gamma * left)
        if len(information):
            mean = torch.nn.functional.pad(z[row] - (gamma * residual)[:, None] * Sy, (1, 0), value=1.0)
            lines, Sy0 = torch.nn.functional.pad(y, (1, 0)), torch.nn.functional.pad(Sy, (1, 0))
            others = mean[:, a] * mean[:, c] + (gamma / left)[:, None] * Sy0[:, a] * Sy0[:, c]
            others += torch.where(inner, halves[here][row], 0.0)
            V = information[j] / gamma[:, None] - lines[:, a] * lines[:, c]
            variance = variance + torch.clamp((V * others * twice).sum(1), min=0.0)
        square = residual**2 / variance
        score = -0.5 * (torch.log(2 * torch.pi * variance) + square)
        sums = _summed(torch.stack([score, residual**2, square, square**2, (gamma / left * h) ** 2], dim=1), lengths)
        scaled = y * torch.sqrt(gamma / left)[:, None]
        A = _summed((scaled[:, :, None] * scaled[:, None, :]).flatten(1), lengths).reshape(len(lengths), k, k)
        SA = S @ A
        overlap = lengths + (SA * SA.mT).sum((1, 2)) - sums[:, 4]
        sums[:, 4] = torch.minimum(torch.maximum(overlap, lengths), lengths**2)
        scores[here] = sums
    return scores
