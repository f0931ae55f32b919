"""Kernels of the variational passes: the posterior of a row, and the columns' sufficient statistics.

Symmetric matrices over (1, z), z a row's k coordinates, are held as lower halves, row by row, in lines of whole pieces
(:mod:`onesided.kernels.llvm`); what is beyond the half is zero. An entry costs two sums of such lines, both taken in
registers: one for its row, over the columns that the row has, and one for its column, over those of some thousand rows
that have it. Rows, and columns, are solved side by side, one in each lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onesided.arrays import Array
from onesided.kernels.bundles import Columns, Prior, Rows, Sums
from onesided.kernels.cpu import gram, longest_row
from onesided.kernels.jit import jit
from onesided.kernels.llvm import (
    BYTES,
    eliminate,
    gather,
    inner,
    lanes,
    products,
    sum_of_lines_1,
    sum_of_lines_2,
    sum_of_lines_4,
    sum_of_lines_8,
    weighted_sum_of_lines,
)
from onesided.kernels.reference import SMALLEST_LEFT

GROUP = 8 * BYTES  # of the lines that are summed at a time
ROOM = 1 << 20  # numbers in the posteriors that are held at a time: few enough to stay in cache


@jit
def _sum_of_lines(lines: Array, starts: Array, stops: Array, table: Array, c: int, out: Array, places: Array) -> None:
    """out[places[k], c:] += Σ table[lines[e], c:] over e from starts[k] to stops[k], up to eight pieces wide."""
    step = lanes(table)
    end = min(c + 8 * step, table.shape[1])
    while c < end:
        pieces = 8 if end - c == 8 * step else 4 if end - c >= 4 * step else 2 if end - c >= 2 * step else 1
        for k in range(len(starts)):
            start, stop, place = starts[k], stops[k], places[k]
            if start == stop:
                continue
            if pieces == 8:
                sum_of_lines_8(lines, start, stop, table, c, out, place)
            elif pieces == 4:
                sum_of_lines_4(lines, start, stop, table, c, out, place)
            elif pieces == 2:
                sum_of_lines_2(lines, start, stop, table, c, out, place)
            else:
                sum_of_lines_1(lines, start, stop, table, c, out, place)
        c += pieces * step


@jit
def _at(a: int, c: int) -> int:
    """Where the half of a matrix over (1, z) has z_a z_c, c ≤ a; z_a itself is at c = −1."""
    return (a + 1) * (a + 2) // 2 + 1 + c


@jit
def _solve(R: Array, k: int, floor: float) -> None:
    """In each lane: halves of P and −h become those of P⁻¹ and z = P⁻¹h. No pivot of P is below ``floor``.

    With P = LLᵀ: the lines of L⁻ᵀ, then P⁻¹ = L⁻ᵀL⁻¹ and z = L⁻ᵀ(L⁻¹h). Every sum runs over adjacent lines.
    """
    half = (k + 1) * (k + 2) // 2
    turned, inverse, h = half, half + k * k, half + k * k + k
    zero, unit, minus = h + k, h + k + 1, h + k + 2
    R[zero], R[unit], R[minus] = 0.0, 1.0, -1.0
    for a in range(k):
        eliminate(R, h + a, zero, unit, _at(a, -1), 1, unit)  # h_a itself
        for c in range(a):
            if c == 0:
                eliminate(R, _at(a, 0), _at(a, 0), zero, zero, 1, inverse)
            else:
                eliminate(R, _at(a, c), _at(a, c), _at(a, 0), _at(c, 0), c, inverse + c)
        if a > 0:
            eliminate(R, _at(a, a), _at(a, a), _at(a, 0), _at(a, 0), a, unit)
        for lane in range(R.shape[1]):
            R[inverse + a, lane] = 1.0 / np.sqrt(max(R[_at(a, a), lane], floor))  # below it only by rounding
        if a == 0:
            eliminate(R, h, h, zero, zero, 1, inverse)
        else:
            eliminate(R, h + a, h + a, _at(a, 0), h, a, inverse + a)
    for c in range(k):
        line = turned + c * k
        R[line + c] = R[inverse + c]
        for a in range(c + 1, k):
            eliminate(R, line + a, zero, _at(a, c), line + c, a - c, inverse + a)
    for a in range(k):
        for c in range(a + 1):
            eliminate(R, _at(a, c), zero, turned + a * k + a, turned + c * k + a, k - a, minus)
        eliminate(R, _at(a, -1), zero, turned + a * k + a, h + a, k - a, minus)


@jit
def _solve_all(halves: Array, k: int, floor: float) -> None:
    """Halves of (P, −h) become those of (P⁻¹, z), with 1 at the top, in groups of as many as there are lanes."""
    half, step = (k + 1) * (k + 2) // 2, lanes(halves)
    R = np.zeros((half + k * k + 2 * k + 3, step), halves.dtype)
    for first in range(0, len(halves), step):
        used = min(step, len(halves) - first)
        for lane in range(step):
            for t in range(half):
                R[t, lane] = halves[first + min(lane, used - 1), t]
        _solve(R, k, floor)
        for lane in range(used):
            halves[first + lane, 0] = 1.0
            for t in range(1, half):
                halves[first + lane, t] = R[t, lane]


@jit
def add_information(rows: Rows, columns: Columns, c: int, halves: Array) -> None:
    """The information of the columns of a row's entries, added to its half from number c on, ``GROUP`` bytes wide.

    To be called for one such group after the other: lines that many rows share then stay in cache.
    """
    _sum_of_lines(rows.columns, rows.starts, rows.stops, columns.information, c, halves, np.arange(len(rows.starts)))


@jit
def row_posterior(rows: Rows, columns: Columns, halves: Array) -> None:
    """Into ``halves``, which are zero."""
    information = columns.information
    if len(information) > 0:
        for c in range(0, information.shape[1], GROUP // information.itemsize):
            add_information(rows, columns, c, halves)
    solve_rows(rows, columns, halves)


@jit
def _weigh(rows: Rows, columns: Columns, u: int, scaled: Array) -> None:
    """γ_j e of every entry of a row. As a loop in the function below it would slow down all of that."""
    unit, center, precision = columns.unit, columns.center, columns.precision
    start = rows.starts[u]
    for e in range(rows.stops[u] - start):
        j = rows.columns[start + e]
        scaled[e] = precision[j] / unit[j] * (rows.values[start + e] - center[j])


@jit
def solve_rows(rows: Rows, columns: Columns, halves: Array) -> None:
    """The rest of :func:`row_posterior`: ``halves`` hold the information of the columns, unless that is certain."""
    starts, stops, column, _, _ = rows
    _, _, loadings, precision, information, row_prior, floor, k = columns
    half, step, width = (k + 1) * (k + 2) // 2, lanes(loadings), loadings.shape[1]
    longest = longest_row(rows)
    scaled, h = np.empty(longest, loadings.dtype), np.zeros((1, width), loadings.dtype)
    certain = len(information) == 0
    B = np.zeros((longest if certain else 1, width), loadings.dtype)
    A = np.zeros((width, width), loadings.dtype)
    for u in range(len(starts)):
        start, m = starts[u], stops[u] - starts[u]
        if m > 0:
            _weigh(rows, columns, u, scaled)
            h[:] = 0
            for c in range(0, width, step):
                weighted_sum_of_lines(scaled, column[start : start + m], 0, m, loadings, c, h, 0)
            for a in range(k):
                halves[u, _at(a, -1)] -= h[0, a]
            if certain:
                for e in range(m):
                    j = column[start + e]
                    root = np.sqrt(precision[j])
                    for c in range(width):
                        B[e, c] = root * loadings[j, c]
                gram(B, m, k, A)
                for a in range(k):
                    for c in range(a + 1):
                        halves[u, _at(a, c)] += A[a, c]
        for t in range(half):
            halves[u, t] += row_prior[t]
    _solve_all(halves, k, loadings.dtype.type(floor))


@jit
def row_moments(halves: Array, weights: Array, k: int, means: Array) -> Array:
    """Halves of (S, z) become those of w E[z̃ z̃ᵀ], and ``means`` w z̃; returns the sum of all halves."""
    half = (k + 1) * (k + 2) // 2
    total = np.zeros(half)
    for u in range(len(halves)):
        w = halves.dtype.type(weights[u])
        means[u, 0] = 1.0
        for a in range(k):
            means[u, 1 + a] = halves[u, _at(a, -1)]
        for a in range(k):
            start, z = _at(a, 0), means[u, 1 + a]
            for c in range(a + 1):
                halves[u, start + c] += z * means[u, 1 + c]
        for t in range(half):
            halves[u, t] *= w
            total[t] += halves[u, t]
        for a in range(k + 1):
            means[u, a] *= w
    return total


class ColumnGroups(NamedTuple):
    """The entries of some rows by column, in the order in which columns are first met."""

    columns: Array
    starts: Array  # of the entries of each column, and where the last ends
    rows: Array  # of each entry, its row's position among the rows
    values: Array  # e = (v − c_j) / unit_j of each entry

    def taken(self, first: int, last: int) -> ColumnGroups:
        """Those of some columns."""
        return self._replace(columns=self.columns[first:last], starts=self.starts[first : last + 1])


@jit
def entries_by_column(rows: Rows, columns: Columns) -> ColumnGroups:
    starts, stops, column, values, _ = rows
    unit, center = columns.unit, columns.center
    entries = 0
    for u in range(len(starts)):
        entries += stops[u] - starts[u]
    place = np.full(len(center), -1, np.int32)
    met = np.empty(min(entries, len(center)), np.int32)
    begins = np.zeros(len(met) + 1, np.int64)
    n = 0
    for u in range(len(starts)):
        for entry in range(starts[u], stops[u]):
            j = column[entry]
            if place[j] < 0:
                place[j] = n
                met[n] = j
                n += 1
            begins[place[j] + 1] += 1
    for t in range(n):
        begins[t + 1] += begins[t]
    free = begins[:n].copy()
    row, e = np.empty(entries, np.int32), np.empty(entries, values.dtype)
    for u in range(len(starts)):
        for entry in range(starts[u], stops[u]):
            j = column[entry]
            t = place[j]
            to = free[t]
            free[t] = to + 1
            row[to] = u
            e[to] = (values[entry] - center[j]) / unit[j]
    return ColumnGroups(met[:n], begins[: n + 1], row, e)


@jit
def column_sums(groups: ColumnGroups, moments: Array, means: Array, sums: Sums) -> None:
    """Accumulates the sufficient statistics of the columns of some groups, given their rows' moments and means."""
    met, begins, rows, e = groups
    step = lanes(means)
    for c in range(0, moments.shape[1], GROUP // moments.itemsize):
        _sum_of_lines(rows, begins[:-1], begins[1:], moments, c, sums.second, met)
    for t in range(len(met)):
        for c in range(0, means.shape[1], step):
            weighted_sum_of_lines(e, rows, begins[t], begins[t + 1], means, c, sums.first, met[t])
        total = 0.0
        for entry in range(begins[t], begins[t + 1]):
            total += means[rows[entry], 0] * e[entry] * e[entry]
        sums.squares[met[t]] += total


@jit
def column_posterior(
    sums: Sums, fixed: Array, free: Array, precision: Array, prior: Prior
) -> tuple[Array, Array, Array]:
    second, first, squares, _ = sums
    shared, tightness, linear = prior
    K = len(free)
    wide = (K + 1) * (K + 2) // 2
    halves = np.zeros((len(second), wide))
    for j in range(len(second)):
        for a in range(K):
            if not free[a]:
                halves[j, _at(a, a)] = 1.0  # solved apart, to zero
                continue
            explained = 0.0
            for c in range(K):
                explained += second[j, _half(max(a, c), min(a, c))] * fixed[j, c]
                if c <= a and free[c]:
                    known = shared[a, c] * tightness[j, min(a, 1)] * tightness[j, min(c, 1)]
                    halves[j, _at(a, c)] = known + precision[j] * second[j, _half(a, c)]
            halves[j, _at(a, -1)] = -linear[j, a] - precision[j] * (first[j, a] - explained)
    _solve_all(halves, K, 0.0)
    at, spread, residual = fixed.copy(), np.zeros((len(second), K * (K + 1) // 2)), squares.copy()
    for j in range(len(second)):
        for a in range(K):
            if free[a]:
                at[j, a] = halves[j, _at(a, -1)]
            residual[j] -= 2.0 * at[j, a] * first[j, a]
            for c in range(a + 1):
                t = _half(a, c)
                if free[a] and free[c]:
                    spread[j, t] = halves[j, _at(a, c)]
                residual[j] += (1.0 if a == c else 2.0) * second[j, t] * (spread[j, t] + at[j, a] * at[j, c])
    return at, spread, residual


@jit
def _half(a: int, c: int) -> int:
    """Where the half of a matrix has its entry (a, c), c ≤ a."""
    return a * (a + 1) // 2 + c


@jit
def column_information(loadings: Array, noise: Array, spread: Array, information: Array) -> None:
    for j in range(len(loadings)):
        for a in range(loadings.shape[1] + 1):
            for c in range(a + 1):
                product = loadings[j, a - 1] * loadings[j, c - 1] if c > 0 else 0.0
                information[j, _half(a, c)] = (spread[j, _half(a, c)] + product) / noise[j]


@jit
def leave_one_out(rows: Rows, columns: Columns) -> Array:
    starts, stops, column, values, weights = rows
    loadings, k = columns.loadings, columns.n_loadings
    scores = np.zeros((len(starts), 5))
    wide = -(-(k + 1) * (k + 2) // (2 * lanes(loadings))) * lanes(loadings)
    chunk = max(1, ROOM // wide)
    for lowest in range(0, len(starts), chunk):
        some = slice(lowest, lowest + chunk)
        halves = np.zeros((len(starts[some]), wide), loadings.dtype)
        these = Rows(starts[some], stops[some], column, values, weights[some])
        row_posterior(these, columns, halves)
        leave_one_out_of(these, columns, halves, scores[some])
    return scores


@jit
def leave_one_out_of(rows: Rows, columns: Columns, halves: Array, scores: Array) -> None:
    """Add the scores of rows whose posteriors are known."""
    starts, stops, column, values, _ = rows
    unit, center, loadings, precision, information, _, _, k = columns
    width, step = loadings.shape[1], lanes(loadings)
    longest = longest_row(rows) + 4  # products are made four at a time
    B, P = np.zeros((longest, width), loadings.dtype), np.zeros((longest, width), loadings.dtype)
    A, S, SA = np.zeros((width, width), loadings.dtype), np.zeros((width, width), loadings.dtype), np.zeros((k, k))
    z, root = np.zeros((1, width), loadings.dtype), np.empty(longest)
    for u in range(len(halves)):
        start, m, half = starts[u], stops[u] - starts[u], halves[u]
        for a in range(k):
            z[0, a] = half[_at(a, -1)]
            for c in range(a + 1):
                S[a, c] = half[_at(a, c)]
                S[c, a] = half[_at(a, c)]
        if m > 0:
            for c in range(0, width, step):
                gather(loadings, column, start, m, c, k - c, B)
        for e in range(0, m, 4):
            for c in range(0, width, step):
                products(B, e, S, k + k % 2, c, P)
        for e in range(m):
            j = column[start + e]
            gamma, ySy = precision[j], np.float64(inner(B, e, P, e))
            left = max(1.0 - gamma * ySy, SMALLEST_LEFT)
            root[e] = np.sqrt(gamma / left)
            residual = ((values[start + e] - center[j]) / unit[j] - inner(B, e, z, 0)) / left
            spread = 0.0
            if len(information) > 0:
                spread += _spread(information[j], half, z[0], P[e], B[e], gamma, residual, left, ySy, k)
            variance = 1.0 / (gamma * left) + spread
            square = residual * residual / variance
            scores[u, 0] -= 0.5 * (np.log(2.0 * np.pi * variance) + square)
            scores[u, 1] += residual * residual
            scores[u, 2] += square
            scores[u, 3] += square * square
        scores[u, 4] = _overlap(B, P, S, root, m, k, A, SA)


@jit
def _spread(
    information: Array,
    half: Array,
    z: Array,
    Sy: Array,
    y: Array,
    gamma: float,
    residual: float,
    left: float,
    ySy: float,
    k: int,
) -> float:
    """tr(V E[z̃ z̃ᵀ]) without the entry, of which V = information / γ − ỹ ỹᵀ."""
    total, along = information[0] / gamma, 0.0
    for a in range(k):
        o = z[a] - gamma * residual * Sy[a]
        along += y[a] * o
        start, twice = _at(a, 0), 0.0
        for c in range(a):
            other = z[c] - gamma * residual * Sy[c]
            moment = o * other + half[start + c] + gamma / left * Sy[a] * Sy[c]
            twice += information[start + c] * moment
        moment = o * o + half[start + a] + gamma / left * Sy[a] * Sy[a]
        total += (2.0 * information[start - 1] * o + 2.0 * twice + information[start + a] * moment) / gamma
    return float(max(total - along * along - ySy - gamma / left * ySy * ySy, 0.0))  # below zero only by rounding


@jit
def _overlap(B: Array, P: Array, S: Array, root: Array, m: int, k: int, A: Array, SA: Array) -> float:
    """Σ ρ² over all pairs of a row's entries, i = j included: one by one, or as a trace where the row is long."""
    overlap = float(m)
    if m <= k:
        for e in range(m):
            for h in range(e):
                overlap += 2.0 * (root[e] * root[h] * inner(P, e, B, h)) ** 2
    else:
        for e in range(m):
            diagonal = root[e] * root[e] * inner(P, e, B, e)
            overlap -= diagonal * diagonal
        for e in range(m):
            for c in range(k):
                B[e, c] *= root[e]
        gram(B, m, k, A)  # of the scaled block, which is not needed any more
        np.dot(S[:k, :k].astype(np.float64), A[:k, :k].astype(np.float64), SA)
        for a in range(k):
            for c in range(k):
                overlap += SA[a, c] * SA[c, a]
    return float(min(max(overlap, m), m * m))
