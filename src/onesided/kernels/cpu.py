"""The kernels for a processor, compiled by numba; what each computes is written in ``reference``.

Compiled code is serial and releases the interpreter's lock: threads run over blocks of rows, outside. Entries may be
float32 or float64. The factor's block of a row is gathered once and stays in cache while it is used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onesided.arrays import Array
from onesided.kernels.bundles import Rows
from onesided.kernels.jit import jit
from onesided.kernels.llvm import (
    BYTES,
    centred,
    gather,
    gram_4,
    gram_8,
    gram_12,
    gram_16,
    inner,
    lanes,
    prefetch,
    scattered_products_1,
    scattered_products_2,
    scattered_products_4,
    sum_of_squares,
    weighted_sum,
)
from onesided.kernels.reference import SINGULAR

NEAR = 1 << 22  # bytes of a factor that cache can hold: beyond, lines are fetched in advance
AHEAD = 64  # so many entries before they are needed


@jit
def counting_sort(keys: Array, n_keys: int) -> tuple[Array, Array]:
    starts = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for key in range(n_keys):
        starts[key + 1] += starts[key]
    order = np.empty(len(keys), np.int64)
    free = starts[:-1].copy()
    for position in range(len(keys)):
        key = keys[position]
        order[free[key]] = position
        free[key] += 1
    return starts, order


@jit
def key_counts(keys: Array, n_keys: int) -> Array:
    counts = np.zeros(n_keys, np.int64)
    for key in keys:
        counts[key] += 1
    return counts


@jit
def group(keys: Array, others: Array, values: Array, free: Array, to_others: Array, to_values: Array) -> None:
    for entry in range(len(keys)):
        to = free[keys[entry]]
        free[keys[entry]] = to + 1
        to_others[to] = others[entry]
        to_values[to] = values[entry]


@jit
def _root(above: Array, column: int) -> int:
    while above[column] != column:
        above[column] = above[above[column]]
        column = above[column]
    return column


@jit
def linked_columns(indptr: Array, columns: Array, weights: Array, n_columns: int) -> Array:
    above = np.arange(n_columns)  # a forest: each root is the smallest column of its tree
    for u in range(len(indptr) - 1):
        if weights[u] == 0 or indptr[u] == indptr[u + 1]:
            continue
        root = _root(above, columns[indptr[u]])
        for entry in range(indptr[u] + 1, indptr[u + 1]):
            other = _root(above, columns[entry])
            if other < root:
                root, other = other, root
            above[other] = root
    for column in range(n_columns):
        above[column] = _root(above, column)
    return above


@jit
def longest_row(rows: Rows) -> int:
    """Entries of the row that has most, at least one."""
    longest = 1
    for u in range(len(rows.starts)):
        longest = max(longest, rows.stops[u] - rows.starts[u])
    return longest


def padded(X: Array, width: int = 1, n: int = 0) -> Array:
    """X with zeros added: at least n lines, of a whole number of pieces that has room for ``width``.

    Lines begin where cache lines do: each piece is then fetched as one.
    """
    step, n = BYTES // X.itemsize, max(len(X), n)
    width = -(-max(X.shape[1], width) // step) * step
    room = np.zeros(n * width + step, X.dtype)
    begin = -room.ctypes.data % BYTES // X.itemsize
    wide = room[begin : begin + n * width].reshape(n, width)
    wide[: len(X), : X.shape[1]] = X
    return wide


@jit
def gram(B: Array, m: int, rank: int, A: Array) -> None:
    """A = BᵀB: tiles below the diagonal and on it, then their mirror images."""
    step = lanes(B)
    for p in range(0, B.shape[1], step):
        for q in range(0, p + 1, step):
            if rank - p <= 4:
                gram_4(B, m, p, q, A)
            elif rank - p <= 8:
                gram_8(B, m, p, q, A)
            elif rank - p <= 12:
                gram_12(B, m, p, q, A)
            else:
                gram_16(B, m, p, q, A)
            if q < p:
                for a in range(p, min(p + step, rank)):
                    for c in range(q, q + step):
                        A[c, a] = A[a, c]


@jit
def add(total: Array, part: Array) -> None:
    """total += part, which may be in single precision and have gaps between its lines."""
    for j in range(part.shape[0]):
        for c in range(part.shape[1]):
            total[j, c] += part[j, c]


@jit
def first_values(rows: Rows, n_columns: int) -> tuple[Array, Array]:
    seen, first = np.zeros(n_columns, np.bool_), np.zeros(n_columns)
    for u in range(len(rows.starts)):
        if rows.weights[u] == 0:
            continue
        for entry in range(rows.starts[u], rows.stops[u]):
            j = rows.columns[entry]
            if not seen[j]:
                seen[j], first[j] = True, rows.values[entry]
    return seen, first


@jit
def column_sums(rows: Rows, center: Array, scale: Array) -> tuple[Array, Array]:
    """A column's sums, its center and 1/s_j stand on one line of a table: an entry finds all in one place."""
    starts, stops, columns, values, weights = rows
    table, products = np.zeros((len(center), 9)), np.zeros(3)
    for j in range(len(center)):
        table[j, 7], table[j, 8] = center[j], 1.0 / scale[j]
    for u in range(len(starts)):
        w, m = weights[u], stops[u] - starts[u]
        if w == 0:
            continue
        first, second, fourth = 0.0, 0.0, 0.0
        for entry in range(starts[u], stops[u]):
            line = table[columns[entry]]
            e = line[8] * (values[entry] - line[7])
            e2 = e * e
            first += e
            second += e2
            fourth += e2 * e2
            line[0] += w
            line[1] += w if m > 1 else 0.0
            line[2] += w * e
            line[3] += w * e2
            line[4] += w * e2 * e2
            line[5] += w * (m - 1)
            line[6] += w * w * (m - 1)
        products[0] += w * m * (m - 1.0)
        products[1] += w * (first * first - second)
        products[2] += w * (second * second - fourth)
    return table[:, :7], products


class Lines(NamedTuple):
    """What a row pass looks up of a column, laid out so that it lies together.

    A line of ``factor`` holds x_j, ``rank`` numbers, and is filled up to a whole number of pieces. The column's line of
    ``center`` has c_j and 1/s_j from ``at`` on. In single precision c_j is the sum of two numbers, for one would not be
    close enough. That line is the factor's own, after x_j, where there is room; else it is one that no cache line cuts.
    """

    factor: Array
    rank: int
    center: Array
    at: int


def lines(X: Array, center: Array, scale: Array, dtype: Any, effect: float = 0.0) -> Lines:
    """The columns of a factor, after one that is ``effect`` throughout if it is not zero, of a center and a scale."""
    rank = X.shape[1] + int(effect != 0)
    factor = padded(np.empty((len(X), 0), dtype), rank)
    numbers, whole = (2, 2) if factor.itemsize == 8 else (3, 4)
    room = factor.shape[1] - rank >= numbers
    made = Lines(factor, rank, factor if room else np.empty((len(X), whole), dtype), rank if room else 0)
    _fill(X, center, scale, effect, made)
    return made


@jit
def _fill(X: Array, middle: Array, scale: Array, effect: float, lines: Lines) -> None:
    factor, rank, center, at = lines
    first, double = rank - X.shape[1], factor.itemsize == 8
    for j in range(X.shape[0]):
        for c in range(first):
            factor[j, c] = effect
        for c in range(X.shape[1]):
            factor[j, first + c] = X[j, c]
        center[j, at] = middle[j]
        if double:
            center[j, at + 1] = 1.0 / scale[j]
        else:
            center[j, at + 1] = middle[j] - center[j, at]
            center[j, at + 2] = 1.0 / scale[j]


def row_pass(rows: Rows, lines: Lines) -> tuple[float, Array]:
    """The room for it comes from numpy, which asks for large pages: lines far apart are found sooner in them."""
    width, longest = lines.factor.shape[1], int(np.max(rows.stops - rows.starts, initial=0))
    gradient, B, A = (padded(lines.factor[:0, :0], width, n) for n in (len(lines.factor), longest + 4, width))
    loss = _row_pass(rows, lines, gradient, B, A)
    return loss, gradient[:, : lines.rank]


@jit
def _row_pass(rows: Rows, lines: Lines, gradient: Array, B: Array, A: Array) -> float:
    """Long rows go through A (r × r), those much shorter than the rank through G = BBᵀ.

    ‖A‖² = ‖G‖², ‖b‖² = vᵀGv, and the gradient of the row's block is 2w (BA − vbᵀ) or 2w (G − vvᵀ) B: 2w times a left
    matrix times a right one, less v times another.
    """
    starts, stops, columns, values, weights = rows
    X, rank, center, at = lines
    width, step = X.shape[1], lanes(X)
    even = rank + rank % 2
    short = max(3, 2 * rank // 3 if width > step else 0)
    E, none, b = np.zeros((short + 4, short + 4), X.dtype), np.zeros(width, X.dtype), np.zeros(width, X.dtype)
    v = np.empty(len(B), X.dtype)
    last = len(columns) - AHEAD - 4 if X.size * X.itemsize > NEAR else -1  # entry at which lines are still fetched
    loss = 0.0
    for u in range(len(starts)):
        start, m, w = starts[u], stops[u] - starts[u], X.dtype.type(weights[u])
        if m == 0 or w == 0:
            continue
        for c in range(0, width, step):
            gather(X, columns, start, m, c, rank - c, B)
        if at == 0 and start <= last:
            prefetch(center, columns, start + AHEAD, min(m, len(columns) - AHEAD - start), 0)
        centred(values, center, at, columns, start, m, v)
        if m > short:
            for c in range(0, width, step):
                weighted_sum(v, m, B, c, b)
            gram(B, m, rank, A)
            row_loss = sum_of_squares(A, rank) - 2.0 * sum_of_squares(b, 1)
            left, right, depth, other = B, A, even, b
        else:
            row_loss = 0.0
            for k in range(m):
                for h in range(k + 1):
                    product, vv = inner(B, k, B, h), v[k] * v[h]
                    row_loss += (1.0 if h == k else 2.0) * product * (product - 2.0 * vv)
                    E[k, h] = product - vv
                    E[h, k] = product - vv
            if m % 2:
                E[:, m] = 0
            left, right, depth, other = E, B, m + m % 2, none
        for c in range(0, width, step):  # as loops here: a call with so many arrays takes as long as a short row
            for k in range(0, m & ~3, 4):
                if start + k <= last:
                    prefetch(X, columns, start + k + AHEAD, 4, c)
                    prefetch(gradient, columns, start + k + AHEAD, 4, c)
                scattered_products_4(left, k, right, depth, c, gradient, columns, start, 2 * w, v, other)
            for k in range(m & ~3, m & ~1, 2):
                if start + k <= last:
                    prefetch(X, columns, start + k + AHEAD, 2, c)
                    prefetch(gradient, columns, start + k + AHEAD, 2, c)
                scattered_products_2(left, k, right, depth, c, gradient, columns, start, 2 * w, v, other)
            for k in range(m & ~1, m):
                if start + k <= last:
                    prefetch(X, columns, start + k + AHEAD, 1, c)
                    prefetch(gradient, columns, start + k + AHEAD, 1, c)
                scattered_products_1(left, k, right, depth, c, gradient, columns, start, 2 * w, v, other)
        loss += 0.5 * weights[u] * row_loss
    return loss


@jit
def diagonal_terms(X: Array, counts: Array, squares: Array, effect: float, ridge: float, gradient: Array) -> float:
    loss = 0.0
    for j in range(X.shape[0]):
        length = 0.0
        for c in range(X.shape[1]):
            length += X[j, c] * X[j, c]
        norm = length + effect
        loss += ridge * length - norm * (0.5 * counts[j] * norm - squares[j])
        slope = 2.0 * (ridge - counts[j] * norm + squares[j])
        for c in range(X.shape[1]):
            gradient[j, c] += slope * X[j, c]
    return loss


@jit
def curvature(rows: Rows, X: Array) -> Array:
    starts, stops, columns, _, weights = rows
    r = X.shape[1]
    blocks = np.zeros((X.shape[0], r, r), X.dtype)
    block = np.empty((longest_row(rows), r), X.dtype)
    A = np.empty((r, r), X.dtype)
    for u in range(len(starts)):
        start, m, w = starts[u], stops[u] - starts[u], X.dtype.type(weights[u])
        if m == 0 or w == 0:
            continue
        B = block[:m]
        for k in range(m):
            j = columns[start + k]
            for c in range(r):
                B[k, c] = X[j, c]
        np.dot(B.T, B, A)
        for k in range(m):
            j = columns[start + k]
            for a in range(r):
                for c in range(r):
                    blocks[j, a, c] += w * A[a, c]
    return blocks


@jit
def gram_product(rows: Rows, center: Array, scale: Array, effect: float, V: Array) -> Array:
    starts, stops, columns, values, weights = rows
    r = V.shape[1]
    product = np.zeros((V.shape[0], r))
    coordinate, total, around = np.empty(r), np.empty(r), np.empty((len(center), 2))
    for j in range(len(center)):
        around[j, 0], around[j, 1] = center[j], 1.0 / scale[j]
    for u in range(len(starts)):
        if weights[u] == 0:
            continue
        coordinate[:], total[:] = 0.0, 0.0
        for entry in range(starts[u], stops[u]):
            j = columns[entry]
            e = around[j, 1] * (values[entry] - around[j, 0])
            for c in range(r):
                coordinate[c] += e * V[j, c]
                total[c] += V[j, c]
        for entry in range(starts[u], stops[u]):
            j = columns[entry]
            e = around[j, 1] * (values[entry] - around[j, 0])
            for c in range(r):
                product[j, c] += weights[u] * (e * coordinate[c] - effect * total[c])
    return product


@jit
def least_squares(indptr: Array, columns: Array, values: Array, X: Array) -> Array:
    r = X.shape[1]
    coordinates = np.zeros((len(indptr) - 1, r))
    for u in range(len(indptr) - 1):
        start, m = indptr[u], indptr[u + 1] - indptr[u]
        if m == 0:
            continue
        B, v = np.empty((m, r)), np.empty(m)
        for k in range(m):
            v[k] = values[start + k]
            for c in range(r):
                B[k, c] = X[columns[start + k], c]
        coordinates[u] = np.linalg.lstsq(B, v, SINGULAR)[0]
    return coordinates
