"""The kernels for a processor, compiled by numba; what each computes is written in ``reference``.

All are serial and release the interpreter's lock: threads run over blocks of rows, outside. Entries may be
float32 or float64. The factor's block of a row is gathered once and stays in cache while it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.kernels.compiled import jit
from onesided.kernels.reference import SINGULAR
from onesided.kernels.vectors import (
    BYTES,
    gather,
    gram_4,
    gram_8,
    gram_12,
    gram_16,
    inner,
    prefetch,
    products,
    scatter,
    sum_of_squares,
    weighted_sum,
)

Array = npt.NDArray[Any]

NEAR = 1 << 22  # bytes of a factor that cache can hold: beyond, the lines of the next row are fetched in advance


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
def _longest(indptr: Array) -> int:
    longest = 1
    for u in range(len(indptr) - 1):
        longest = max(longest, indptr[u + 1] - indptr[u])
    return longest


def padded(X: Array, width: int = 1) -> Array:
    """A factor as the row pass takes it: zeros added, up to a whole number of pieces that has room for ``width``."""
    step = BYTES // X.itemsize
    width = -(-max(X.shape[1], width) // step) * step
    room = np.zeros(len(X) * width + step, X.dtype)
    begin = -room.ctypes.data % BYTES // X.itemsize  # lines that begin with a cache line are fetched as one
    wide = room[begin : begin + len(X) * width].reshape(len(X), width)
    wide[:, : X.shape[1]] = X
    return wide


@jit
def gram(B: Array, m: int, rank: int, A: Array) -> None:
    """A = BᵀB: tiles below the diagonal and on it, then their mirror images."""
    step = BYTES // B.itemsize
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
def first_values(indptr: Array, columns: Array, values: Array, weights: Array, n_columns: int) -> tuple[Array, Array]:
    seen, first = np.zeros(n_columns, np.bool_), np.zeros(n_columns)
    for u in range(len(indptr) - 1):
        if weights[u] == 0:
            continue
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            if not seen[j]:
                seen[j], first[j] = True, values[entry]
    return seen, first


@jit
def column_sums(
    indptr: Array, columns: Array, values: Array, weights: Array, center: Array, scale: float
) -> tuple[Array, Array]:
    sums, products, unit = np.zeros((len(center), 7)), np.zeros(3), 1.0 / scale
    for u in range(len(indptr) - 1):
        w, m = weights[u], indptr[u + 1] - indptr[u]
        if w == 0:
            continue
        first, second, fourth = 0.0, 0.0, 0.0
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            e = unit * (values[entry] - center[j])
            e2 = e * e
            first += e
            second += e2
            fourth += e2 * e2
            sums[j, 0] += w
            sums[j, 1] += w if m > 1 else 0.0
            sums[j, 2] += w * e
            sums[j, 3] += w * e2
            sums[j, 4] += w * e2 * e2
            sums[j, 5] += w * (m - 1)
            sums[j, 6] += w * w * (m - 1)
        products[0] += w * m * (m - 1.0)
        products[1] += w * (first * first - second)
        products[2] += w * (second * second - fourth)
    return sums, products


@jit
def row_pass(
    indptr: Array,
    columns: Array,
    values: Array,
    weights: Array,
    center: Array,
    scale: float,
    X: Array,
    rank: int,
) -> tuple[float, Array]:
    """Long rows go through A (r × r), those much shorter than the rank through G = BBᵀ.

    ‖A‖² = ‖G‖², ‖b‖² = vᵀGv, and the gradient of the row's block is 2w (G − vvᵀ) B.
    """
    width, step = X.shape[1], BYTES // X.itemsize
    even = rank + rank % 2
    gradient, far = np.zeros_like(X), X.size * X.itemsize > NEAR
    longest = _longest(indptr) + 4  # products are made four at a time
    B, P = np.zeros((longest, width), X.dtype), np.zeros((longest, width), X.dtype)
    A, b = np.zeros((width, width), X.dtype), np.zeros(width, X.dtype)
    short = max(3, 2 * rank // 3 if width > step else 0)
    E, none = np.zeros((short + 4, short + 4), X.dtype), np.zeros(width, X.dtype)
    v, unit = np.empty(longest, X.dtype), 1.0 / scale
    loss = 0.0
    for u in range(len(indptr) - 1):
        start, m, w = indptr[u], indptr[u + 1] - indptr[u], X.dtype.type(weights[u])
        if m == 0 or w == 0:
            continue
        for k in range(m):
            j = columns[start + k]
            prefetch(gradient, j)
            v[k] = unit * (values[start + k] - center[j])
            for c in range(0, width, step):
                gather(X, j, c, B, k)
        if far and u + 2 < len(indptr):
            for entry in range(indptr[u + 1], indptr[u + 2]):
                prefetch(X, columns[entry])
        if m > short:
            for c in range(0, width, step):
                weighted_sum(v, m, B, c, b)
            gram(B, m, rank, A)
            row_loss = sum_of_squares(A, rank) - 2.0 * sum_of_squares(b, 1)
            for k in range(0, m, 4):
                for c in range(0, width, step):
                    products(B, k, A, even, c, P)
            for k in range(m):
                for c in range(0, width, step):
                    scatter(gradient, columns[start + k], c, 2 * w, P, k, 2 * w * v[k], b)
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
            for k in range(0, m, 4):
                for c in range(0, width, step):
                    products(E, k, B, m + m % 2, c, P)
            for k in range(m):
                for c in range(0, width, step):
                    scatter(gradient, columns[start + k], c, 2 * w, P, k, X.dtype.type(0), none)
        loss += 0.5 * weights[u] * row_loss
    return loss, gradient[:, :rank]


@jit
def own_terms(X: Array, counts: Array, squares: Array, effect: float, ridge: float, gradient: Array) -> float:
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
def curvature(indptr: Array, columns: Array, weights: Array, X: Array) -> Array:
    r = X.shape[1]
    blocks = np.zeros((X.shape[0], r, r), X.dtype)
    block = np.empty((_longest(indptr), r), X.dtype)
    A = np.empty((r, r), X.dtype)
    for u in range(len(indptr) - 1):
        start, m, w = indptr[u], indptr[u + 1] - indptr[u], X.dtype.type(weights[u])
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
def gram_product(
    indptr: Array, columns: Array, values: Array, weights: Array, center: Array, scale: float, effect: float, V: Array
) -> Array:
    r = V.shape[1]
    product = np.zeros((V.shape[0], r))
    coordinate, total, unit = np.empty(r), np.empty(r), 1.0 / scale
    for u in range(len(indptr) - 1):
        if weights[u] == 0:
            continue
        coordinate[:], total[:] = 0.0, 0.0
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            e = unit * (values[entry] - center[j])
            for c in range(r):
                coordinate[c] += e * V[j, c]
                total[c] += V[j, c]
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            e = unit * (values[entry] - center[j])
            for c in range(r):
                others = e * (coordinate[c] - e * V[j, c]) - effect * (total[c] - V[j, c])
                product[j, c] += weights[u] * others
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
