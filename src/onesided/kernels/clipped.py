"""Contributions of rows that are clipped before they are added: the kernel of private passes.

What it computes is written in ``reference``. Contributions are whole numbers of a unit, so that their sums are exact in
double precision and do not depend on the order of the rows.
"""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.kernels.bundles import Rows
from onesided.kernels.cpu import longest_row
from onesided.kernels.jit import jit
from onesided.kernels.reference import WITHIN


@jit
def clipped_pass(rows: Rows, means: Array, Z: Array, X: Array, effect: float, clip: float, unit: float) -> Array:
    starts, stops, columns, values, _ = rows
    r, k = Z.shape[1], X.shape[1]
    total = np.zeros(Z.shape)
    A, b, s = np.empty((k, r)), np.empty(r), np.empty(r)
    G = np.empty((longest_row(rows), r))
    for u in range(len(starts)):
        start, m = starts[u], stops[u] - starts[u]
        if m < 2:
            continue
        A[:], b[:], s[:] = 0.0, 0.0, 0.0
        for entry in range(start, start + m):
            j = columns[entry]
            e = values[entry] - means[j]
            for q in range(r):
                b[q] += e * Z[j, q]
                s[q] += Z[j, q]
            for a in range(k):
                for q in range(r):
                    A[a, q] += X[j, a] * Z[j, q]
        squares = 0.0
        for i in range(m):
            j = columns[start + i]
            e = values[start + i] - means[j]
            alone = effect - e * e
            for a in range(k):
                alone += X[j, a] * X[j, a]
            for q in range(r):
                value = effect * s[q] - e * b[q] - alone * Z[j, q]
                for a in range(k):
                    value += X[j, a] * A[a, q]
                G[i, q] = value / m
                squares += G[i, q] * G[i, q]
        norm = np.sqrt(squares)
        scale = WITHIN / unit * (clip / norm if norm > clip else 1.0)
        for i in range(m):
            j = columns[start + i]
            for q in range(r):
                total[j, q] += np.trunc(G[i, q] * scale)
    return total
