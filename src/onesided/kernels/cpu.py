"""The kernels for a processor, compiled by numba; what each computes is written in ``reference``.

All are serial and release the interpreter's lock: threads run over blocks of rows, outside. Entries may be
float32 or float64. The factor's block of a row is gathered once and stays in cache while it is used.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from onesided.kernels.reference import SINGULAR, SMALLEST_LEFT
from onesided.kernels.vectors import (
    BYTES,
    gather,
    gram_4,
    gram_8,
    gram_12,
    gram_16,
    inner,
    products,
    scatter,
    sum_of_squares,
    weighted_sum,
)

Array = npt.NDArray[Any]

# Reassociation lets reductions vectorise; NaN and infinities keep their meaning.
_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})


@_jit
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


@_jit
def _root(above: Array, column: int) -> int:
    while above[column] != column:
        above[column] = above[above[column]]
        column = above[column]
    return column


@_jit
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


@_jit
def _grown(array: Array, used: int, needed: int) -> Array:
    """An array with room for ``needed`` items that begins with the ``used`` ones of the old."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger


@_jit
def pair_moments(
    first: int,
    last: int,
    column_indptr: Array,
    column_rows: Array,
    column_values: Array,
    indptr: Array,
    columns: Array,
    values: Array,
    weights: Array,
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """The pairs (i, j ≥ i) of the columns ``first`` to ``last``.

    Column i walks down its rows and adds what stands right of it into one dense line, then collects the line.
    Every pair is summed in one place, in the order of rows: threads over columns cannot change the result.
    """
    d = len(column_indptr) - 1
    rows, total, squared = np.zeros(d, np.int64), np.zeros(d), np.zeros(d)
    sums, squares = np.zeros(d), np.zeros(d)
    seen = np.empty(d, np.int32)

    pointers = np.zeros(last - first + 1, np.int64)
    used, room = 0, 1024
    out_columns, out_rows = np.empty(room, np.int32), np.empty(room, np.int64)
    out_total, out_squared = np.empty(room), np.empty(room)
    out_sums, out_squares = np.empty(room), np.empty(room)

    for i in range(first, last):
        n_seen = 0
        for k in range(column_indptr[i], column_indptr[i + 1]):
            u, w = column_rows[k], weights[column_rows[k]]
            if w <= 0:
                continue
            v = np.float64(column_values[k])
            for entry in range(indptr[u + 1] - 1, indptr[u] - 1, -1):
                j = columns[entry]
                if j < i:
                    break  # columns ascend within a row
                p = v * values[entry]
                if rows[j] == 0:
                    seen[n_seen] = j
                    n_seen += 1
                rows[j] += 1
                total[j] += w
                squared[j] += w * w
                sums[j] += w * p
                squares[j] += w * p * p
        if n_seen * 8 > d - i:  # nearly full: walking the line is cheaper than sorting
            n_seen = 0
            for j in range(i, d):
                if rows[j] > 0:
                    seen[n_seen] = j
                    n_seen += 1
        else:
            seen[:n_seen].sort()

        needed = used + n_seen
        out_columns, out_rows = _grown(out_columns, used, needed), _grown(out_rows, used, needed)
        out_total, out_squared = _grown(out_total, used, needed), _grown(out_squared, used, needed)
        out_sums, out_squares = _grown(out_sums, used, needed), _grown(out_squares, used, needed)
        for k in range(n_seen):
            j = seen[k]
            out_columns[used + k], out_rows[used + k] = j, rows[j]
            out_total[used + k], out_squared[used + k] = total[j], squared[j]
            out_sums[used + k], out_squares[used + k] = sums[j], squares[j]
            rows[j], total[j], squared[j], sums[j], squares[j] = 0, 0.0, 0.0, 0.0, 0.0
        used = needed
        pointers[i - first + 1] = used
    return (
        pointers,
        out_columns[:used],
        out_rows[:used],
        out_total[:used],
        out_squared[:used],
        out_sums[:used],
        out_squares[:used],
    )


@_jit
def pair_pass(
    first: int, indptr: Array, columns: Array, weights: Array, target: Array, X: Array
) -> tuple[float, Array]:
    r = X.shape[1]
    gradient = np.zeros((X.shape[0], r))
    own, own_gradient = np.empty(r), np.empty(r)
    loss = 0.0
    for k in range(len(indptr) - 1):
        i = first + k
        for c in range(r):
            own[c] = X[i, c]
            own_gradient[c] = 0.0
        for entry in range(indptr[k], indptr[k + 1]):
            j = columns[entry]
            inner = 0.0
            for c in range(r):
                inner += own[c] * X[j, c]
            error = inner - target[entry]
            weighted = 2.0 * weights[entry] * error
            loss += (0.25 if i == j else 0.5) * weighted * error
            for c in range(r):
                own_gradient[c] += weighted * X[j, c]
            if i != j:
                for c in range(r):
                    gradient[j, c] += weighted * own[c]
        for c in range(r):
            gradient[i, c] += own_gradient[c]
    return loss, gradient


@_jit
def _longest(indptr: Array) -> int:
    longest = 1
    for u in range(len(indptr) - 1):
        longest = max(longest, indptr[u + 1] - indptr[u])
    return longest


def padded(X: Array) -> Array:
    """A factor as the row pass takes it: zeros added, up to a whole number of pieces."""
    step = BYTES // X.itemsize
    width = -(-max(X.shape[1], 1) // step) * step
    wide = np.zeros((len(X), width), X.dtype)
    wide[:, : X.shape[1]] = X
    return wide


@_jit
def _gram(B: Array, m: int, rank: int, A: Array) -> None:
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


@_jit
def row_pass(indptr: Array, columns: Array, values: Array, weights: Array, X: Array, rank: int) -> tuple[float, Array]:
    """Long rows go through A (r × r), those much shorter than the rank through G = BBᵀ.

    ‖A‖² = ‖G‖², ‖b‖² = vᵀGv, and the gradient of the row's block is 2w (G − vvᵀ) B.
    """
    width, step = X.shape[1], BYTES // X.itemsize
    even = rank + rank % 2
    gradient = np.zeros_like(X)
    longest = _longest(indptr) + 4  # products are made four at a time
    B, P = np.zeros((longest, width), X.dtype), np.zeros((longest, width), X.dtype)
    A, b = np.zeros((width, width), X.dtype), np.zeros(width, X.dtype)
    short = max(3, 2 * rank // 3 if width > step else 0)
    E, none = np.zeros((short + 4, short + 4), X.dtype), np.zeros(width, X.dtype)
    loss = 0.0
    for u in range(len(indptr) - 1):
        start, m, w = indptr[u], indptr[u + 1] - indptr[u], X.dtype.type(weights[u])
        if m == 0 or w == 0:
            continue
        for k in range(m):
            for c in range(0, width, step):
                gather(X, columns[start + k], c, B, k)
        if m > short:
            for c in range(0, width, step):
                weighted_sum(values, start, m, B, c, b)
            _gram(B, m, rank, A)
            row_loss = sum_of_squares(A, rank) - 2.0 * sum_of_squares(b, 1)
            for k in range(0, m, 4):
                for c in range(0, width, step):
                    products(B, k, A, even, c, P)
            for k in range(m):
                for c in range(0, width, step):
                    scatter(gradient, columns[start + k], c, 2 * w, P, k, 2 * w * values[start + k], b)
        else:
            row_loss = 0.0
            for k in range(m):
                for h in range(k + 1):
                    product, vv = inner(B, k, B, h), values[start + k] * values[start + h]
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


@_jit
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


@_jit
def gram_product(indptr: Array, columns: Array, values: Array, weights: Array, V: Array) -> Array:
    r = V.shape[1]
    product = np.zeros((V.shape[0], r))
    coordinate = np.empty(r)
    for u in range(len(indptr) - 1):
        if weights[u] == 0:
            continue
        coordinate[:] = 0.0
        for entry in range(indptr[u], indptr[u + 1]):
            j, v = columns[entry], values[entry]
            for c in range(r):
                coordinate[c] += v * V[j, c]
        for entry in range(indptr[u], indptr[u + 1]):
            j, wv = columns[entry], weights[u] * values[entry]
            for c in range(r):
                product[j, c] += wv * coordinate[c]
    return product


@_jit
def _posterior(
    start: int,
    stop: int,
    columns: Array,
    values: Array,
    center: Array,
    loadings: Array,
    precision: Array,
    information: Array,
    total: Array,
    h: Array,
    L: Array,
    S: Array,
    z: Array,
) -> None:
    """Fills S and z for one row; ``total``, ``h`` and ``L`` are room to work in.

    By the Cholesky factor L of I + Σ γ (y yᵀ + V), whose smallest eigenvalue is at least one.
    """
    k = loadings.shape[1]
    total[:] = 0.0
    h[:] = 0.0
    for entry in range(start, stop):
        j = columns[entry]
        scaled = precision[j] * (values[entry] - center[j])
        for a in range(k):
            h[a] += scaled * loadings[j, a]
        if len(information) > 0:
            for t in range(len(total)):
                total[t] += information[j, t]
        else:
            for a in range(k):
                scaled = precision[j] * loadings[j, a]
                first = (a + 1) * (a + 2) // 2 + 1
                for c in range(a + 1):
                    total[first + c] += scaled * loadings[j, c]
    for a in range(k):
        first = (a + 1) * (a + 2) // 2
        h[a] -= total[first]
        for c in range(a + 1):
            rest = total[first + 1 + c] + (1.0 if a == c else 0.0)
            for t in range(c):
                rest -= L[a, t] * L[c, t]
            L[a, c] = np.sqrt(max(rest, 1.0)) if a == c else rest / L[c, c]  # below one only by rounding
    for c in range(k):  # S holds L⁻¹, column by column
        S[c, c] = 1.0 / L[c, c]
        for a in range(c + 1, k):
            rest = 0.0
            for t in range(c, a):
                rest -= L[a, t] * S[t, c]
            S[a, c] = rest / L[a, a]
    for a in range(k):  # L holds L⁻ᵀL⁻¹
        for c in range(a + 1):
            rest = 0.0
            for t in range(a, k):
                rest += S[t, a] * S[t, c]
            L[a, c] = rest
    for a in range(k):
        for c in range(a + 1):
            S[a, c] = L[a, c]
            S[c, a] = L[a, c]
    for a in range(k):
        z[a] = 0.0
        for c in range(k):
            z[a] += S[a, c] * h[c]


@_jit
def row_posterior(
    indptr: Array,
    columns: Array,
    values: Array,
    center: Array,
    loadings: Array,
    precision: Array,
    information: Array,
) -> tuple[Array, Array]:
    n, k = len(indptr) - 1, loadings.shape[1]
    mean, covariance = np.zeros((n, k)), np.zeros((n, k, k))
    total, h, L = np.empty((k + 1) * (k + 2) // 2), np.empty(k), np.empty((k, k))
    for u in range(n):
        _posterior(
            indptr[u], indptr[u + 1], columns, values, center, loadings, precision, information,
            total, h, L, covariance[u], mean[u],
        )  # fmt: skip
    return mean, covariance


@_jit
def posterior_sums(
    indptr: Array,
    columns: Array,
    values: Array,
    weights: Array,
    center: Array,
    loadings: Array,
    precision: Array,
    information: Array,
) -> tuple[Array, Array, Array, Array]:
    d, k = loadings.shape
    half = (k + 1) * (k + 2) // 2
    second, first, squares, everywhere = np.zeros((d, half)), np.zeros((d, k + 1)), np.zeros(d), np.zeros(half)
    total, h, L, S, z = np.empty(half), np.empty(k), np.empty((k, k)), np.empty((k, k)), np.empty(k)
    moment = np.empty(half)
    for u in range(len(indptr) - 1):
        w = weights[u]
        if w == 0 or indptr[u] == indptr[u + 1]:
            continue
        _posterior(
            indptr[u], indptr[u + 1], columns, values, center, loadings, precision, information,
            total, h, L, S, z,
        )  # fmt: skip
        moment[0] = w
        for a in range(k):
            start = (a + 1) * (a + 2) // 2
            moment[start] = w * z[a]
            for c in range(a + 1):
                moment[start + 1 + c] = w * (z[a] * z[c] + S[a, c])
        for t in range(half):
            everywhere[t] += moment[t]
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            e = values[entry] - center[j]
            for t in range(half):
                second[j, t] += moment[t]
            first[j, 0] += w * e
            for a in range(k):
                first[j, a + 1] += w * e * z[a]
            squares[j] += w * e * e
    return second, first, squares, everywhere


@_jit
def leave_one_out(
    indptr: Array,
    columns: Array,
    values: Array,
    weights: Array,
    center: Array,
    loadings: Array,
    precision: Array,
    information: Array,
) -> Array:
    k = loadings.shape[1]
    scores = np.zeros((len(indptr) - 1, 5))
    total, h, L, S, z = (
        np.empty((k + 1) * (k + 2) // 2),
        np.empty(k),
        np.empty((k, k)),
        np.empty((k, k)),
        np.empty(k),
    )
    Sy, others = np.empty(k), np.empty(k)
    gram = np.empty((k, k))  # Σ γ y yᵀ / (1 − h), of which tr(S gram)² makes the overlap
    for u in range(len(indptr) - 1):
        if weights[u] == 0:
            continue
        gram[:] = 0.0
        overlap = 0.0
        _posterior(
            indptr[u], indptr[u + 1], columns, values, center, loadings, precision, information,
            total, h, L, S, z,
        )  # fmt: skip
        for entry in range(indptr[u], indptr[u + 1]):
            j = columns[entry]
            fit, own = 0.0, 0.0
            for a in range(k):
                fit += loadings[j, a] * z[a]
                Sy[a] = 0.0
                for c in range(k):
                    Sy[a] += S[a, c] * loadings[j, c]
                own += Sy[a] * loadings[j, a]
            left = max(1.0 - precision[j] * own, SMALLEST_LEFT)
            for a in range(k):
                scaled = precision[j] / left * loadings[j, a]
                for c in range(k):
                    gram[a, c] += scaled * loadings[j, c]
            overlap += 1.0 - (precision[j] * own / left) ** 2
            e = (values[entry] - center[j] - fit) / left
            spread = 0.0
            if len(information) > 0:
                gamma = precision[j]
                for a in range(k):
                    others[a] = z[a] - gamma * e * Sy[a]
                spread = information[j, 0] / gamma
                for a in range(k):
                    start = (a + 1) * (a + 2) // 2
                    spread += 2.0 * information[j, start] / gamma * others[a]
                    for c in range(a + 1):
                        V = information[j, start + 1 + c] / gamma - loadings[j, a] * loadings[j, c]
                        moment = others[a] * others[c] + S[a, c] + gamma * Sy[a] * Sy[c] / left
                        spread += (1.0 if a == c else 2.0) * V * moment
                spread = max(spread, 0.0)  # below zero only by rounding
            variance = 1.0 / (precision[j] * left) + spread
            square = e * e / variance
            scores[u, 0] -= 0.5 * (np.log(2.0 * np.pi * variance) + square)
            scores[u, 1] += e * e
            scores[u, 2] += square
            scores[u, 3] += square * square
        for a in range(k):
            for c in range(k):
                L[a, c] = 0.0
                for t in range(k):
                    L[a, c] += S[a, t] * gram[t, c]
        for a in range(k):
            for c in range(k):
                overlap += L[a, c] * L[c, a]
        m = float(indptr[u + 1] - indptr[u])
        scores[u, 4] = min(max(overlap, m), m * m)
    return scores


@_jit
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
