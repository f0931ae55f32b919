"""The kernels over pairs of columns on torch tensors, for a GPU; what each computes is written in ``reference``.

Sums of products are added up in place, so that their order, and with it the last bits, can differ from run to run on a
GPU; numbers of rows are exact. The pass over pairs gives the same bits each time.

Both are fused kernels where Triton is there (:mod:`onesided.kernels.fused_pairs`), else what torch has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from onesided.kernels import gpu
from onesided.kernels.bundles import CompressedPairs

HELD = 1 << 27  # numbers of dense lines, one for each column of a block
LANES = 64  # entries of a row that are multiplied side by side
PLAIN, WEIGHTED = 4, 8  # numbers kept for a pair: rows, Σp, Σp²; or rows, Σwp, Σwp², Σw, Σw²; then zeros


def _fused_for(tensor: Tensor) -> Any:
    if gpu.fused_for(tensor) is None:
        return None
    from onesided.kernels import fused_pairs

    return gpu.Launched(fused_pairs, tensor.device)


def pair_moments(
    indptr: Tensor, columns: Tensor, values: Tensor, weights: Tensor | None, n_columns: int
) -> CompressedPairs:
    """Moments of the products p = v_i v_j over rows of positive weight, for every pair i ≤ j seen together.

    A block of columns at a time has dense lines, to which each entry of these columns adds its products with those from
    it on in its row; then the pairs that have rows are collected. No weights mean that each is one. Beside the result
    this takes up to three times ``HELD`` numbers, and 24 bytes for an entry.
    """
    if weights is not None and not bool((weights > 0).all()):
        counted, lengths = weights > 0, indptr.diff()
        kept = torch.repeat_interleave(counted, lengths)
        indptr, weights = gpu.running(lengths[counted]), weights[counted]
        columns, values = columns[kept], values[kept]
        del kept
    lengths, numbers = indptr.diff(), PLAIN if weights is None else WEIGHTED
    blocks = list(_blocks(n_columns, numbers))
    ascending, entries = torch.sort(columns, stable=True)
    edges = torch.tensor([0, *(last for _, last in blocks)], dtype=torch.int32, device=columns.device)
    stops = torch.searchsorted(ascending, edges).tolist()
    del ascending
    rows = torch.arange(len(lengths), dtype=torch.int32, device=columns.device)
    rows = torch.repeat_interleave(rows, lengths)[entries]
    room = max((last - first) * (n_columns - first) * numbers for first, last in blocks)
    held = torch.empty(room, dtype=torch.float64, device=columns.device)
    fields: list[list[Tensor]] = [[] for _ in range(5 if weights is None else 7)]
    for (first, last), (start, stop) in zip(blocks, pairwise(stops), strict=True):
        shape = last - first, n_columns - first, numbers
        dense = held[: shape[0] * shape[1] * shape[2]].zero_().view(shape)
        here = slice(start, stop)
        _add_products(entries[here], rows[here], (indptr, columns, values, weights), first, dense)
        for field, part in zip(fields, _collected(dense, first, len(fields)), strict=True):
            field.append(part)
    del held, dense, entries, rows
    lengths, *sums = (torch.cat(fields.pop(0)) for _ in range(len(fields)))
    return CompressedPairs(gpu.running(lengths), *sums)


def _blocks(n_columns: int, numbers: int) -> Iterator[tuple[int, int]]:
    """Ranges of columns whose lines, of so many numbers for each column from the first on, can be held."""
    first = 0
    while first < n_columns:
        last = min(n_columns, first + max(1, HELD // (numbers * (n_columns - first))))
        yield first, last
        first = last


def _collected(dense: Tensor, first: int, n_fields: int) -> list[Tensor]:
    """How many pairs each column has, then their columns, rows and sums."""
    seen = dense[..., 0] > 0
    i, j = torch.nonzero(seen, as_tuple=True)
    rows, *sums = dense[i, j].T[: n_fields - 2]
    return [
        torch.count_nonzero(seen, dim=1),
        (j + first).to(torch.int32),
        rows.to(torch.int64),
        *(total.contiguous() for total in sums),
    ]


def _add_products(
    entries: Tensor, rows: Tensor, panel: tuple[Tensor, Tensor, Tensor, Tensor | None], first: int, dense: Tensor
) -> None:
    kernels, (indptr, columns, values, weights) = _fused_for(dense), panel
    if len(entries) == 0:
        return
    if kernels is not None:
        kernels.add_products[(len(entries),)](
            entries, rows, indptr, columns, values, weights, first, dense.shape[1], dense,
            WEIGHED=weights is not None, NUMBERS=dense.shape[2], LANES=LANES, num_warps=1,
        )  # fmt: skip
        return
    right = indptr[1:][rows] - entries
    pointers, width = gpu.running(right), dense.shape[1]
    most = max(1, gpu.CHUNK // (4 * dense.shape[2]))
    marks = torch.arange(0, int(pointers[-1]) + most, most, device=pointers.device)
    edges = sorted({0, *torch.searchsorted(pointers, marks).clamp(max=len(entries)).tolist()})
    for begin, end in pairwise(edges):
        here = slice(begin, end)
        left = torch.repeat_interleave(entries[here], right[here])
        at = left + torch.arange(len(left), device=left.device)
        at -= torch.repeat_interleave(pointers[here] - pointers[begin], right[here])
        p = values[left].to(torch.float64) * values[at].to(torch.float64)
        parts = torch.zeros((len(p), dense.shape[2]), dtype=torch.float64, device=p.device)
        parts[:, 0], parts[:, 1], parts[:, 2] = 1.0, p, p * p
        if weights is not None:
            w = torch.repeat_interleave(weights[rows[here]].to(torch.float64), right[here])
            parts[:, 1:3] *= w[:, None]
            parts[:, 3], parts[:, 4] = w, w * w
        place = (columns[left].to(torch.int64) - first) * width + (columns[at].to(torch.int64) - first)
        dense.flatten(0, 1).index_add_(0, place, parts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Ω with a target for each pair, both triangles: the columns seen together with each column, ascending."""

    pointers: Tensor
    columns: Tensor  # int32
    target: Tensor

    @classmethod
    def of(cls, pointers: Tensor, columns: Tensor, target: Tensor) -> Pairs:
        """From pairs given once, with i ≤ j, as :func:`pair_moments` has them."""
        d, device = len(pointers) - 1, pointers.device
        owners = torch.repeat_interleave(torch.arange(d, dtype=torch.int32, device=device), pointers.diff())
        off = owners != columns
        below, order = torch.sort(columns[off], stable=True)
        begins = torch.searchsorted(below, torch.arange(d + 1, dtype=torch.int32, device=device))
        to_lower = torch.arange(len(below), device=device) + pointers[below]
        to_upper = torch.arange(len(owners), device=device) + begins[1:][owners]
        both, aims = (like.new_empty(len(owners) + len(below)) for like in (columns, target))
        both[to_upper], both[to_lower] = columns, owners[off][order]
        aims[to_upper], aims[to_lower] = target, target[off][order]
        return cls(pointers + begins, both, aims)

    @cached_property
    def segments(self) -> gpu.Segments:
        """The pairs of each column as stretches."""
        return gpu.segments(self.pointers)

    @cached_property
    def owners(self) -> Tensor:
        """The column of each stretch."""
        column = torch.arange(len(self.pointers) - 1, dtype=torch.int32, device=self.pointers.device)
        cut = self.segments.pointers
        return column if cut is None else torch.repeat_interleave(column, cut.diff())


def pair_pass(pairs: Pairs, diagonal_weight: float, X: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ_ij W_ij (x_iᵀx_j − t_ij)² over the full matrix, and its gradient 2 (W ∘ (XXᵀ − t)) X.

    W is ``diagonal_weight`` on the diagonal and one elsewhere on Ω. Each column adds up what its pairs give, and
    nothing is added to from two sides: an error is made twice, which costs less than to keep it.
    """
    kernels, X = _fused_for(X), X.contiguous()
    if kernels is None:
        return _plain_pair_pass(pairs, diagonal_weight, X)
    over, R = pairs.segments, X.shape[1]
    gradient, losses = X.new_empty((len(over.starts), R)), X.new_empty(len(over.starts))
    wide, tile = 1 << max(R - 1, 0).bit_length(), 128 if X.dtype == torch.float64 else 512  # fastest on an H200
    kernels.pair_pass[(len(losses),)](
        over.starts, over.stops, pairs.owners, pairs.columns, pairs.target, X.new_full((1,), diagonal_weight), X,
        gradient, losses, R=R, WIDE=wide, PAIRS=max(1, min(32, tile // wide)), num_warps=1 if wide <= 512 else 4,
    )  # fmt: skip
    if over.pieces is not None:
        gradient = gpu.sum_of_lines(over.pieces, gradient)
    return losses.sum(dtype=torch.float64), gradient


def _plain_pair_pass(pairs: Pairs, diagonal_weight: float, X: Tensor) -> tuple[Tensor, Tensor]:
    errors, loss = X.new_empty(len(pairs.columns)), X.new_zeros((), dtype=torch.float64)
    most = max(1, gpu.CHUNK // (4 * max(1, X.shape[1])))
    for start in range(0, len(errors), most):
        here = slice(start, min(start + most, len(errors)))
        places = torch.arange(here.start, here.stop, device=X.device)
        i, j = torch.searchsorted(pairs.pointers, places, right=True) - 1, pairs.columns[here]
        e = (X[i] * X[j]).sum(1) - pairs.target[here].to(X.dtype)
        errors[here] = torch.where(i == j, diagonal_weight * e, e)
        loss += 0.5 * (errors[here] * e).sum(dtype=torch.float64)
    return loss, gpu.sum_of_lines(pairs.segments, X, pairs.columns, 2.0 * errors)
