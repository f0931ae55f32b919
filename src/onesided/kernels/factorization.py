"""Kernels of low-rank approximations: of the entries of a panel by two factors, and of pairs of columns by eigenpairs.

Lines of factors are filled with zeros up to a whole number of pieces (:func:`onesided.kernels.cpu.padded`), so that
inner loops need no remainder.
"""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.kernels.bundles import Rows
from onesided.kernels.jit import jit


@jit
def entry_pass(rows: Rows, X: Array, Y: Array, GX: Array) -> tuple[float, Array]:
    """``GX``, as large as X, is filled."""
    starts, stops, columns, values, weights = rows
    width = X.shape[1]
    loss, GY = 0.0, np.zeros((Y.shape[0], width))
    for u in range(len(starts)):
        GX[u, :] = 0.0
        w = weights[u]
        if w == 0:
            continue
        for entry in range(starts[u], stops[u]):
            j = columns[entry]
            e = -np.float64(values[entry])
            for c in range(width):
                e += X[u, c] * Y[j, c]
            loss += w * e * e
            e *= 2.0 * w
            for c in range(width):
                GX[u, c] += e * Y[j, c]
                GY[j, c] += e * X[u, c]
    return loss, GY


@jit
def pair_values(first: int, indptr: Array, columns: Array, left: Array, right: Array, out: Array) -> None:
    """Into ``out``, at the places of the block's pairs."""
    width = left.shape[1]
    for k in range(len(indptr) - 1):
        i = first + k
        for entry in range(indptr[k], indptr[k + 1]):
            j = columns[entry]
            total = 0.0
            for c in range(width):
                total += left[i, c] * right[j, c]
            out[entry] = total


@jit
def pair_product(first: int, indptr: Array, columns: Array, values: Array, V: Array) -> Array:
    width = V.shape[1]
    product, line = np.zeros_like(V), np.empty(width)
    for k in range(len(indptr) - 1):
        i = first + k
        line[:] = 0.0
        for entry in range(indptr[k], indptr[k + 1]):
            j, value = columns[entry], values[entry]
            for c in range(width):
                line[c] += value * V[j, c]
            if i != j:
                for c in range(width):
                    product[j, c] += value * V[i, c]
        for c in range(width):
            product[i, c] += line[c]
    return product
