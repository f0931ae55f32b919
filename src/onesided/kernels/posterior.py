"""Kernels of the variational passes: the posterior of a row, and what rows tell about columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.kernels.compiled import jit
from onesided.kernels.reference import SMALLEST_LEFT

Array = npt.NDArray[Any]


@jit
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


@jit
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


@jit
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


@jit
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
