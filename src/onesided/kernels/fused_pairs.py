"""Kernels over pairs of columns, written in Triton; what each computes is written in ``reference``, and called from
``gpu_pairs``.

A number handed to a kernel would arrive in single precision: those that must not are handed over as tensors.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["first", "width"])
def add_products(
    entries, rows, indptr, columns, values, weights, first, width, dense,
    WEIGHED: tl.constexpr, NUMBERS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """dense[i − first, j − first] += (1, wp, wp², w, w²), p the products of an entry, at i, and those from it on, at j.

    A program for each entry. What is kept of a pair lies together, so that one place in memory is added to; the last
    two are there where rows are weighed, and zeros fill up to so many ``NUMBERS``.
    """
    k = tl.program_id(0).to(tl.int64)
    start, u = tl.load(entries + k), tl.load(rows + k).to(tl.int64)
    stop, i = tl.load(indptr + u + 1), tl.load(columns + start).to(tl.int64)
    v_i = tl.load(values + start).to(tl.float64)
    line = dense + ((i - first) * width - first) * NUMBERS
    c = tl.arange(0, NUMBERS)[None, :]
    kept = c < 3
    if WEIGHED:
        w = tl.load(weights + u).to(tl.float64)
        kept = c < 5
    for e in range(start, stop, LANES):
        at = e + tl.arange(0, LANES)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0).to(tl.int64)
        p = (v_i * tl.load(values + at, mask=there, other=0.0).to(tl.float64))[:, None]
        if WEIGHED:
            of_weights = tl.where(c == 0, 1.0, tl.where(c == 3, w, w * w))
            part = tl.where(c == 1, w * p, tl.where(c == 2, w * p * p, of_weights))
        else:
            part = tl.where(c == 0, 1.0, tl.where(c == 1, p, p * p))
        tl.atomic_add(line + j[:, None] * NUMBERS + c, part, mask=there[:, None] & kept, sem="relaxed")


@triton.jit
def pair_pass(
    starts, stops, owners, columns, target, diagonal_weight, X, gradient, losses,
    R: tl.constexpr, WIDE: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """½ Σ_j W_ij e² and 2 Σ_j W_ij e x_j with e = x_iᵀx_j − t_ij, over each stretch of pairs of one column i."""
    s = tl.program_id(0).to(tl.int64)
    start, stop, i = tl.load(starts + s), tl.load(stops + s), tl.load(owners + s).to(tl.int64)
    on_diagonal = tl.load(diagonal_weight)
    c = tl.arange(0, WIDE)
    inside = c < R
    x_i = tl.load(X + i * R + c, mask=inside, other=0.0)
    total, loss = tl.zeros((PAIRS, WIDE), X.dtype.element_ty), tl.zeros((PAIRS,), X.dtype.element_ty)
    for k in range(start, stop, PAIRS):
        at = k + tl.arange(0, PAIRS)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0).to(tl.int64)
        t = tl.load(target + at, mask=there, other=0.0).to(X.dtype.element_ty)
        x = tl.load(X + j[:, None] * R + c[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        e = tl.sum(x * x_i[None, :], 1) - t
        weighed = tl.where(j == i, on_diagonal, 1.0) * e
        loss += 0.5 * weighed * e
        total += 2.0 * weighed[:, None] * x
    tl.store(losses + s, tl.sum(loss))
    tl.store(gradient + s * R + c, tl.sum(total, 0), mask=inside)
