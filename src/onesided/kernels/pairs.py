"""Kernels over pairs of columns: the sums of products on Ω, and the paper's loss over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.kernels.compiled import jit

Array = npt.NDArray[Any]


@jit
def _grown(array: Array, used: int, needed: int) -> Array:
    """An array with room for ``needed`` items that begins with the ``used`` ones of the old."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger


@jit
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


@jit
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
