"""Kernels for a GPU, written in Triton; what each computes is written in ``reference``, and called from ``gpu``.

A program is one warp for factors of up to 32 columns. Rows come longest first. Of the row pass there are three kinds:

- rows of up to 16 entries lie side by side in tiles of 32, all rows of a tile being of one length. With B the tile's
  lines of the factor, K = BBᵀ; where two entries are of one row, E = K − vvᵀ, else 0. The loss is ½ Σ w K (K − 2vv),
  the gradient 2wEB;
- a program for each longer row goes over its entries twice: A = BᵀB and b = Bᵀv, then 2w (BA − vbᵀ);
- rows of very many entries are cut, so that none is what all others wait for: A and b are summed first.

Products of single precision are made by the tensor cores, from numbers in two halves (``HALVES``): x = h + l, each in
half precision, after a scaling that keeps both in its range; xy = hh' + hl' + lh', and what is left out is 2⁻²² of it.
Of a product with itself, hl' and lh' are one another's mirror image, and one is made. Sums are in single precision.
Doubles stay doubles. ``FAR`` is for factors of 2³¹ numbers and more, whose places need long integers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _lines(X, j, there, R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr):
    """Lines of the factor: upper and lower halves; or whole, twice."""
    if FAR:
        j = j.to(tl.int64)
    c = tl.arange(0, R)[None, :]
    if HALVES:
        line = X + j[:, None] * (2 * R) + c
        high = tl.load(line, mask=there[:, None], other=0.0)
        low = tl.load(line + R, mask=there[:, None], other=0.0)
    else:
        high = tl.load(X + j[:, None] * R + c, mask=there[:, None], other=0.0)
        low = high
    return high, low


@triton.jit
def _in_halves(M):
    """A matrix in two halves, scaled so that its largest number is 1024; and the scale."""
    most = tl.max(tl.max(tl.abs(M), 1), 0)
    scale = tl.where(most > 0.0, 1024.0 / most, 1.0)
    high = (M * scale).to(tl.float16)
    return high, (M * scale - high.to(tl.float32)).to(tl.float16), scale


@triton.jit
def _add(gradient, at, j, g, there, R: tl.constexpr, FAR: tl.constexpr, STAGED: tl.constexpr):
    """Gradients of entries, to where those of each entry are kept or to the lines of their columns."""
    c = tl.arange(0, R)[None, :]
    if STAGED:
        tl.store(gradient + at.to(tl.int64)[:, None] * R + c, g, mask=there[:, None])
    else:
        if FAR:
            j = j.to(tl.int64)
        tl.atomic_add(gradient + j[:, None] * R + c, g, mask=there[:, None], sem="relaxed")


@triton.jit
def halve(X, units, table, size, R: tl.constexpr, N: tl.constexpr):
    """Each line of a factor, in its unit, as its upper halves followed by its lower ones."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = at < size
    x = tl.load(X + at, mask=there, other=0.0) / tl.load(units)
    high = x.to(tl.float16)
    to = table + at + at // R * R
    tl.store(to, high, mask=there)
    tl.store(to + R, (x - high.to(tl.float32)).to(tl.float16), mask=there)


@triton.jit
def centred(values, columns, center, scale, out, size, N: tl.constexpr):
    """(v − c_j) / s_j of every entry, from double precision."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    there = at < size
    j = tl.load(columns + at, mask=there, other=0)
    v = tl.load(values + at, mask=there, other=0.0).to(tl.float64)
    e = (v - tl.load(center + j)) / tl.load(scale + j)
    tl.store(out + at, e, mask=there)


@triton.jit
def short_rows(
    tiles, columns, values, weights, X, units, gradient, losses,
    R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, STAGED: tl.constexpr,
):  # fmt: skip
    """A tile has its first entry, the one after its last, its first row, and the length of all its rows.

    No number of K − vvᵀ is larger than that of R products of the largest in X and the square of the largest in v: by
    that it is scaled.
    """
    t = tl.program_id(0)
    start, stop = tl.load(tiles + 4 * t), tl.load(tiles + 4 * t + 1)
    row, length, unit = tl.load(tiles + 4 * t + 2), tl.load(tiles + 4 * t + 3), tl.load(units)
    lane = tl.arange(0, 32)
    at, place = start + lane, lane // length
    there = at < stop
    j = tl.load(columns + at, mask=there, other=0)
    v = tl.load(values + at, mask=there, other=0.0)
    w = tl.load(weights + row + place, mask=there, other=0.0)
    high, low = _lines(X, j, there, R, FAR, HALVES)
    if HALVES:
        K = tl.dot(high, tl.trans(high))
        K += tl.dot(high, tl.trans(low)) + tl.dot(low, tl.trans(high))
        K = K * (unit * unit)
    else:
        K = tl.dot(high, tl.trans(high), input_precision="ieee", out_dtype=high.dtype)
    vv = v[:, None] * v[None, :]
    place = tl.where(there, place, -1 - lane)
    same = place[:, None] == place[None, :]
    tl.store(losses + t, 0.5 * tl.sum(tl.where(same, K * (K - 2.0 * vv), 0.0) * w[:, None]))
    E = tl.where(same, K - vv, 0.0)
    if HALVES:
        most, largest = tl.load(units + 1), tl.max(tl.abs(v), 0)
        scale = 16384.0 / tl.maximum(R * most * most + largest * largest, 1e-30)
        upper = (E * scale).to(tl.float16)
        lower = (E * scale - upper.to(tl.float32)).to(tl.float16)
        g = tl.dot(upper, high)
        g += tl.dot(upper, low) + tl.dot(lower, high)
        g = g * (2.0 * (unit / scale) * w)[:, None]
    else:
        g = tl.dot(E, high, input_precision="ieee", out_dtype=E.dtype) * (2.0 * w)[:, None]
    _add(gradient, at, j, g, there, R, FAR, STAGED)


@triton.jit
def _statistics(
    start, stop, columns, values, X, unit, R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, B: tl.constexpr
):
    """A and b of some entries."""
    A, b = tl.zeros((R, R), values.dtype.element_ty), tl.zeros((R,), values.dtype.element_ty)
    mixed = tl.zeros((R, R), values.dtype.element_ty)
    for k in range(start, stop, B):
        at = k + tl.arange(0, B)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0)
        v = tl.load(values + at, mask=there, other=0.0)
        high, low = _lines(X, j, there, R, FAR, HALVES)
        if HALVES:
            A += tl.dot(tl.trans(high), high)
            mixed += tl.dot(tl.trans(high), low)
            b += tl.sum((high.to(tl.float32) + low.to(tl.float32)) * v[:, None], 0)
        else:
            A += tl.dot(tl.trans(high), high, input_precision="ieee", out_dtype=A.dtype)
            b += tl.sum(high * v[:, None], 0)
    if HALVES:
        A = (A + (mixed + tl.trans(mixed))) * (unit * unit)
        b = b * unit
    return A, b


@triton.jit
def _gradients(
    start, stop, columns, values, X, unit, A, b, gradient,
    R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """BA − vbᵀ for some entries."""
    if HALVES:
        upper, lower, scale = _in_halves(A)
    for k in range(start, stop, B):
        at = k + tl.arange(0, B)
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0)
        v = tl.load(values + at, mask=there, other=0.0)
        high, low = _lines(X, j, there, R, FAR, HALVES)
        if HALVES:
            g = (tl.dot(high, upper) + (tl.dot(high, lower) + tl.dot(low, upper))) * (unit / scale)
        else:
            g = tl.dot(high, A, input_precision="ieee", out_dtype=A.dtype)
        _add(gradient, at, j, g - v[:, None] * b[None, :], there, R, FAR, STAGED)


@triton.jit(do_not_specialize=["first"])
def long_rows(
    first, indptr, columns, values, weights, X, units, gradient, losses,
    R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A program for each row from the first of this kind on."""
    u = first + tl.program_id(0)
    start, stop, w = tl.load(indptr + u).to(tl.int32), tl.load(indptr + u + 1).to(tl.int32), tl.load(weights + u)
    unit = tl.load(units)
    A, b = _statistics(start, stop, columns, values, X, unit, R, FAR, HALVES, B)
    tl.store(losses + tl.program_id(0), 0.5 * w * (tl.sum(A * A) - 2.0 * tl.sum(b * b)))
    A, b = 2.0 * w * A, 2.0 * w * b
    _gradients(start, stop, columns, values, X, unit, A, b, gradient, R, FAR, HALVES, STAGED, B)


@triton.jit
def piece_statistics(
    pieces, columns, values, X, units, statistics,
    R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A and b of each piece of a row that was cut, one after the other; a piece has first, last + 1, and its row."""
    t = tl.program_id(0)
    start, stop = tl.load(pieces + 3 * t), tl.load(pieces + 3 * t + 1)
    A, b = _statistics(start, stop, columns, values, X, tl.load(units), R, FAR, HALVES, B)
    c = tl.arange(0, R)
    to = statistics + t.to(tl.int64) * R * (R + 1)
    tl.store(to + c[:, None] * R + c[None, :], A)
    tl.store(to + R * R + c, b)


@triton.jit
def row_statistics(of_pieces, statistics, weights, whole, losses, R: tl.constexpr):
    """The loss, 2wA and 2wb of each row that was cut, from its pieces."""
    u = tl.program_id(0)
    c = tl.arange(0, R)
    A, b = tl.zeros((R, R), whole.dtype.element_ty), tl.zeros((R,), whole.dtype.element_ty)
    for t in range(tl.load(of_pieces + u), tl.load(of_pieces + u + 1)):
        piece = statistics + t * R * (R + 1)
        A += tl.load(piece + c[:, None] * R + c[None, :])
        b += tl.load(piece + R * R + c)
    w = tl.load(weights + u)
    tl.store(losses + u, 0.5 * w * (tl.sum(A * A) - 2.0 * tl.sum(b * b)))
    to = whole + u.to(tl.int64) * R * (R + 1)
    tl.store(to + c[:, None] * R + c[None, :], 2.0 * w * A)
    tl.store(to + R * R + c, 2.0 * w * b)


@triton.jit
def piece_gradients(
    pieces, columns, values, X, units, statistics, gradient,
    R: tl.constexpr, FAR: tl.constexpr, HALVES: tl.constexpr, STAGED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The gradients of each piece's entries, from 2wA and 2wb of its row."""
    t = tl.program_id(0)
    start, stop, row = tl.load(pieces + 3 * t), tl.load(pieces + 3 * t + 1), tl.load(pieces + 3 * t + 2)
    c = tl.arange(0, R)
    of = statistics + row.to(tl.int64) * R * (R + 1)
    A, b = tl.load(of + c[:, None] * R + c[None, :]), tl.load(of + R * R + c)
    _gradients(start, stop, columns, values, X, tl.load(units), A, b, gradient, R, FAR, HALVES, STAGED, B)


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

    In doubles. Sweeping a symmetric matrix M on p: M − m mᵀ/D with m its column p and D = m_p; m/D in place of m, and
    −1/D of D.
    """
    u = tl.program_id(0).to(tl.int64)
    a, c = tl.arange(0, K), tl.arange(0, K)
    high = tl.maximum(a[:, None], c[None, :])
    low = tl.minimum(a[:, None], c[None, :])
    place = halves + u * half + high * (high + 1) // 2 + low
    inside = high <= k
    M = tl.load(place, mask=inside, other=0.0).to(tl.float64)
    for p in range(1, k + 1):
        down = tl.sum(tl.where(c[None, :] == p, M, 0.0), 1)
        across = tl.sum(tl.where(a[:, None] == p, M, 0.0), 0)
        D = tl.maximum(tl.sum(tl.where(a == p, down, 0.0)), floor)
        on_row, on_column = a[:, None] == p, c[None, :] == p
        swept = M - down[:, None] * (across / D)[None, :]
        M = tl.where(on_row, (across / D)[None, :], tl.where(on_column, (down / D)[:, None], swept))
        M = tl.where(on_row & on_column, -1.0 / D, M)
    M = tl.where(high == 0, 1.0, -M)
    tl.store(place, M.to(halves.dtype.element_ty), mask=inside & (a[:, None] >= c[None, :]))


@triton.jit
def leave_one_out(
    indptr, columns, values, loadings, precision, information, halves, scores, k, half, least,
    CERTAIN: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Five sums over the entries of a row, each predicted from the others; all matrices are over (1, z).

    tr(V E[z̃ z̃ᵀ]) is summed over the lines of V = information / γ − ỹ ỹᵀ.
    """
    u = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(indptr + u).to(tl.int32), tl.load(indptr + u + 1).to(tl.int32)
    a, c = tl.arange(0, K)[:, None], tl.arange(0, K)[None, :]
    high, low = tl.maximum(a, c), tl.minimum(a, c)
    whole = tl.load(halves + u * half + high * (high + 1) // 2 + low, mask=high <= k, other=0.0)
    S, z = tl.where(low > 0, whole, 0.0), tl.sum(tl.where(a == 0, whole, 0.0), 0)[None, :]
    A, lane = tl.zeros((K, K), tl.float64), tl.arange(0, B)
    score, squares = tl.zeros((B,), tl.float64), tl.zeros((B,), tl.float64)
    relative, fourths, diagonal = tl.zeros((B,), tl.float64), tl.zeros((B,), tl.float64), tl.zeros((B,), tl.float64)
    for first in range(start, stop, B):
        at = first + lane
        there = at < stop
        j = tl.load(columns + at, mask=there, other=0).to(tl.int64)[:, None]
        e = tl.load(values + at, mask=there, other=0.0)
        inside = there[:, None] & (c > 0) & (c <= k)
        y = tl.load(loadings + j * k + c - 1, mask=inside, other=0.0)
        gamma = tl.load(precision + tl.sum(j, 1), mask=there, other=1.0)
        Sy = tl.dot(y, S, input_precision="ieee", out_dtype=tl.float64)
        h = tl.sum(y * Sy, 1)
        left = tl.maximum(1.0 - gamma * h, least)
        residual = (e - tl.sum(y * z, 1)) / left
        variance = 1.0 / (gamma * left)
        if not CERTAIN:
            o, more = z - (gamma * residual)[:, None] * Sy, gamma / left
            trace = tl.zeros((B,), tl.float64)
            for p in range(0, k + 1):
                far, near = tl.maximum(c, p), tl.minimum(c, p)
                line = tl.load(information + j * half + far * (far + 1) // 2 + near, mask=far <= k, other=0.0)
                on = c == p
                y_p, o_p = tl.sum(tl.where(on, y, 0.0), 1)[:, None], tl.sum(tl.where(on, o, 0.0), 1)[:, None]
                Sy_p, S_p = tl.sum(tl.where(on, Sy, 0.0), 1)[:, None], tl.sum(tl.where(a == p, S, 0.0), 0)[None, :]
                moments = o_p * o + more[:, None] * Sy_p * Sy + S_p
                trace += tl.sum((line / gamma[:, None] - y_p * y) * moments, 1)
            variance += tl.maximum(trace, 0.0)
        square = residual * residual / variance
        score -= tl.where(there, 0.5 * (tl.log(6.283185307179586 * variance) + square), 0.0)
        squares += tl.where(there, residual * residual, 0.0)
        relative += tl.where(there, square, 0.0)
        fourths += tl.where(there, square * square, 0.0)
        diagonal += tl.where(there, (gamma / left * h) * (gamma / left * h), 0.0)
        scaled = y * tl.sqrt(gamma / left)[:, None]
        A += tl.dot(tl.trans(scaled), scaled, input_precision="ieee", out_dtype=tl.float64)
    SA = tl.dot(S, A, input_precision="ieee", out_dtype=tl.float64)
    m = (stop - start).to(tl.float64)
    overlap = m + tl.sum(SA * tl.trans(SA)) - tl.sum(diagonal)
    to = scores + 5 * u
    tl.store(to, tl.sum(score))
    tl.store(to + 1, tl.sum(squares))
    tl.store(to + 2, tl.sum(relative))
    tl.store(to + 3, tl.sum(fourths))
    tl.store(to + 4, tl.minimum(tl.maximum(overlap, m), m * m))
