"""Kernels for a GPU, written in Triton; what each computes is written in ``reference``, and called from ``gpu``.

A program is one warp for factors of up to 32 columns. Rows come longest first. Of the row pass there are three kinds:

- rows of up to 32 entries lie side by side in tiles of so many, all rows of a tile being of one length. With B the
  tile's lines of the factor, K = BBᵀ; where two entries are of one row, E = K − vvᵀ, else 0. The loss is
  ½ Σ w K (K − 2vv), the gradient 2wEB;
- a program for each longer row goes over its entries twice: A = BᵀB and b = Bᵀv, then 2w (BA − vbᵀ);
- rows of thousands of entries are cut, so that none is what all others wait for: A and b are summed first.

Products of single precision are made by the tensor cores from three products of bfloat16 (``bf16x3``): 16 bits or more
of each factor count, and sums are in single precision. Doubles stay doubles.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def short_rows(
    tiles, columns, values, weights, X, gradient, losses, R: tl.constexpr, PRECISION: tl.constexpr, STAGED: tl.constexpr
):
    """A tile has its first entry, the one after its last, its first row, and the length of all its rows."""
    t = tl.program_id(0)
    start, stop = tl.load(tiles + 4 * t), tl.load(tiles + 4 * t + 1)
    row, length = tl.load(tiles + 4 * t + 2), tl.load(tiles + 4 * t + 3)
    lane, c = tl.arange(0, 32), tl.arange(0, R)
    at, own = start + lane, lane // length
    there = at < stop
    j = tl.load(columns + at, mask=there, other=0).to(tl.int64)
    v = tl.load(values + at, mask=there, other=0.0)
    w = tl.load(weights + row + own, mask=there, other=0.0)
    x = tl.load(X + j[:, None] * R + c[None, :], mask=there[:, None], other=0.0)
    K = tl.dot(x, tl.trans(x), input_precision=PRECISION, out_dtype=x.dtype)
    vv = v[:, None] * v[None, :]
    own = tl.where(there, own, -1 - lane)
    same = own[:, None] == own[None, :]
    shared = tl.where(same, w[:, None], 0.0)
    tl.store(losses + t, 0.5 * tl.sum(shared * K * (K - 2.0 * vv)))
    g = tl.dot(2.0 * shared * (K - vv), x, input_precision=PRECISION, out_dtype=x.dtype)
    if STAGED:
        tl.store(gradient + at.to(tl.int64)[:, None] * R + c[None, :], g, mask=there[:, None])
    else:
        tl.atomic_add(gradient + j[:, None] * R + c[None, :], g, mask=there[:, None], sem="relaxed")


@triton.jit
def _statistics(start, stop, columns, values, X, R: tl.constexpr, PRECISION: tl.constexpr, B: tl.constexpr):
    """A and b of some entries."""
    c = tl.arange(0, R)
    A, b = tl.zeros((R, R), X.dtype.element_ty), tl.zeros((R,), X.dtype.element_ty)
    for k in range(start, stop, B):
        at = k + tl.arange(0, B)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0).to(tl.int64)
        v = tl.load(values + at, mask=there, other=0.0)
        x = tl.load(X + j[:, None] * R + c[None, :], mask=there[:, None], other=0.0)
        A += tl.dot(tl.trans(x), x, input_precision=PRECISION, out_dtype=x.dtype)
        b += tl.sum(x * v[:, None], 0)
    return A, b


@triton.jit
def _gradients(
    start, stop, columns, values, X, A, b, gradient,
    R: tl.constexpr, PRECISION: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """BA − vbᵀ for some entries."""
    c = tl.arange(0, R)
    for k in range(start, stop, B):
        at = k + tl.arange(0, B)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0).to(tl.int64)
        v = tl.load(values + at, mask=there, other=0.0)
        x = tl.load(X + j[:, None] * R + c[None, :], mask=there[:, None], other=0.0)
        g = tl.dot(x, A, input_precision=PRECISION, out_dtype=x.dtype) - v[:, None] * b[None, :]
        if STAGED:
            tl.store(gradient + at.to(tl.int64)[:, None] * R + c[None, :], g, mask=there[:, None])
        else:
            tl.atomic_add(gradient + j[:, None] * R + c[None, :], g, mask=there[:, None], sem="relaxed")


@triton.jit
def long_rows(
    first, indptr, columns, values, weights, X, gradient, losses,
    R: tl.constexpr, PRECISION: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A program for each row from the first of this kind on."""
    u = first + tl.program_id(0)
    start, stop, w = tl.load(indptr + u).to(tl.int32), tl.load(indptr + u + 1).to(tl.int32), tl.load(weights + u)
    A, b = _statistics(start, stop, columns, values, X, R, PRECISION, B)
    tl.store(losses + tl.program_id(0), 0.5 * w * (tl.sum(A * A) - 2.0 * tl.sum(b * b)))
    _gradients(start, stop, columns, values, X, 2.0 * w * A, 2.0 * w * b, gradient, R, PRECISION, STAGED, B)


@triton.jit
def piece_statistics(pieces, columns, values, X, statistics, R: tl.constexpr, PRECISION: tl.constexpr, B: tl.constexpr):
    """A and b of each piece of a row that was cut, one after the other; a piece has first, last + 1, and its row."""
    t = tl.program_id(0)
    A, b = _statistics(tl.load(pieces + 3 * t), tl.load(pieces + 3 * t + 1), columns, values, X, R, PRECISION, B)
    c = tl.arange(0, R)
    to = statistics + t.to(tl.int64) * R * (R + 1)
    tl.store(to + c[:, None] * R + c[None, :], A)
    tl.store(to + R * R + c, b)


@triton.jit
def piece_gradients(
    pieces, columns, values, X, statistics, gradient,
    R: tl.constexpr, PRECISION: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The gradients of each piece's entries, from 2wA and 2wb of its row."""
    t = tl.program_id(0)
    start, stop, row = tl.load(pieces + 3 * t), tl.load(pieces + 3 * t + 1), tl.load(pieces + 3 * t + 2)
    c = tl.arange(0, R)
    of = statistics + row.to(tl.int64) * R * (R + 1)
    A, b = tl.load(of + c[:, None] * R + c[None, :]), tl.load(of + R * R + c)
    _gradients(start, stop, columns, values, X, A, b, gradient, R, PRECISION, STAGED, B)


@triton.jit
def sum_of_lines(
    index, coefficients, starts, stops, table, stride, out, width,
    LISTED: tl.constexpr, WEIGHED: tl.constexpr, ENTRIES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """out[s] = Σ f_e table[index[e]] over e from starts[s] to stops[s]; line e itself where none are listed."""
    s = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(starts + s), tl.load(stops + s)
    c = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = c < width
    total = tl.zeros((ENTRIES, WIDE), table.dtype.element_ty)
    for e in range(start, stop, ENTRIES):
        at = e + tl.arange(0, ENTRIES)
        there = at < stop
        line = at.to(tl.int64)
        if LISTED:
            line = tl.load(index + at, mask=there, other=0).to(tl.int64)
        x = tl.load(table + line[:, None] * stride + c[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        if WEIGHED:
            x = x * tl.load(coefficients + at, mask=there, other=0.0)[:, None]
        total += x
    tl.store(out + s * width + c, tl.sum(total, 0), mask=inside)


@triton.jit
def solve(halves, k, floor, half, K: tl.constexpr):
    """Halves of P and −h over (1, z), in place, become those of P⁻¹ and z = P⁻¹h: swept on each coordinate.

    Sweeping a symmetric matrix M on p: M − m mᵀ/D with m its column p and D = m_p; m/D in place of m, and −1/D of D.
    """
    u = tl.program_id(0).to(tl.int64)
    a, c = tl.arange(0, K), tl.arange(0, K)
    high = tl.maximum(a[:, None], c[None, :])
    low = tl.minimum(a[:, None], c[None, :])
    place = halves + u * half + high * (high + 1) // 2 + low
    inside = high <= k
    M = tl.load(place, mask=inside, other=0.0)
    for p in range(1, k + 1):
        down = tl.sum(tl.where(c[None, :] == p, M, 0.0), 1)
        across = tl.sum(tl.where(a[:, None] == p, M, 0.0), 0)
        D = tl.maximum(tl.sum(tl.where(a == p, down, 0.0)), floor)
        on_row, on_column = a[:, None] == p, c[None, :] == p
        swept = M - down[:, None] * (across / D)[None, :]
        M = tl.where(on_row, (across / D)[None, :], tl.where(on_column, (down / D)[:, None], swept))
        M = tl.where(on_row & on_column, -1.0 / D, M)
    M = tl.where(high == 0, 1.0, -M)
    tl.store(place, M, mask=inside & (a[:, None] >= c[None, :]))
