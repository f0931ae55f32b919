"""The kernels in plain numpy, written to be read; the oracle of the tests.

Notation: row u has weight w and observes values v in a set of columns; B is the factor restricted to them
(one line per entry), A = BᵀB and b = Bᵀv.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from onesided.arrays import Array
from onesided.kernels.bundles import ByColumn, Columns, CompressedPairs, Prior, Rows, Sums

SINGULAR = 1e-12  # singular values below this share of the largest count as zero
SMALLEST_LEFT = 1e-9  # of 1 − h: an entry that alone settles its prediction
WITHIN = 1.0 - 2.0**-40  # by which contributions are shortened, so that rounding errors do not lengthen them


def _slices(starts: Array, stops: Array) -> Iterator[tuple[int, slice]]:
    for u, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        yield u, slice(start, stop)


def counting_sort(keys: Array, n_keys: int) -> tuple[Array, Array]:
    """Where each key's entries begin in sorted order, and the stable order itself."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_keys))])
    return starts, np.argsort(keys, kind="stable")


def key_counts(keys: Array, n_keys: int) -> Array:
    """How many entries each key has."""
    return np.bincount(keys, minlength=n_keys)


def group(keys: Array, others: Array, values: Array, free: Array, to_others: Array, to_values: Array) -> None:
    """Put what each entry carries where its key's next one goes, which then moves on by one."""
    for key, other, value in zip(keys, others, values, strict=True):
        to_others[free[key]], to_values[free[key]] = other, value
        free[key] += 1


def read_integers(starts: Array, characters: Array, numbers: Array) -> bool:
    """Write the numbers that strings print, 0 for an empty one; False if one is not an int64 as it is printed."""
    text = characters.tobytes()
    for k, (begin, end) in enumerate(pairwise(starts)):
        string = text[begin:end]
        number = int(string) if string.removeprefix(b"-").isdigit() else 0
        if string and (string != str(number).encode() or not -(2**63) <= number < 2**63):
            return False
        numbers[k] = number
    return True


def linked_columns(indptr: Array, columns: Array, weights: Array, n_columns: int) -> Array:
    """For each column, the smallest of those that chains of rows of positive weight link it to."""
    smallest = np.arange(n_columns)
    for u, row in _slices(indptr[:-1], indptr[1:]):
        if weights[u] > 0 and row.stop > row.start:
            met = smallest[columns[row]]
            smallest[np.isin(smallest, met)] = met.min()
    return smallest


def by_column(rows: Rows, into: ByColumn) -> Array:
    """Fills in the entries of rows of positive weight by column; the rows are all of a panel.

    Returns how many entries stand at and right of those of each column, which is how many products of two entries of a
    row make up its pairs (i, j ≥ i).
    """
    d = len(into.starts) - 1
    row = np.repeat(np.arange(len(rows.starts)), rows.stops - rows.starts)
    kept = np.flatnonzero(rows.weights[row] > 0)
    into.starts[:], order = counting_sort(rows.columns[kept], d)
    into.entries[: len(kept)] = np.column_stack([kept, row[kept]])[order]
    return np.bincount(rows.columns[kept], (rows.stops[row] - np.arange(len(row)))[kept], d).astype(np.int64)


def row_bits(rows: Rows, n_columns: int) -> Array:
    """Which columns a row has: bit j mod 64 of word j div 64."""
    bits = np.zeros((len(rows.starts), n_columns // 64 + 1), np.uint64)
    for u, row in _slices(rows.starts, rows.stops):
        for j in rows.columns[row].tolist():
            bits[u, j // 64] |= np.uint64(1 << j % 64)
    return bits


def pair_counts(chosen: Array, by: ByColumn, rows: Rows, bits: Array) -> Array:
    """How many columns j ≥ i stand in one row with i, for each column i chosen; ``bits`` has all rows, or none."""
    counts = np.zeros(len(chosen), np.int64)
    for k, i in enumerate(chosen):
        entries = by.entries[by.starts[i] : by.starts[i + 1]]
        counts[k] = len({j for entry, u in entries for j in rows.columns[entry : rows.stops[u]].tolist()})
    return counts


def pair_moments(first: int, last: int, by: ByColumn, rows: Rows, out: CompressedPairs) -> None:
    """Moments of the products p = v_i v_j over rows of positive weight, for every pair i ≤ j seen together.

    For the columns i from ``first`` to ``last`` of a panel given by rows and :func:`by_column`. The pairs of column i
    are written at ``out.pointers[i]`` to ``out.pointers[i + 1]``, j ascending: the column j, the number of rows, Σwp
    and Σwp², and Σw and Σw²; no weights mean that each is one, and the last two are left out. A pair belongs to Ω when
    a row has it, whatever its products sum to.
    """
    d, values, weights = len(by.starts) - 1, rows.values, rows.weights
    for i in range(first, last):
        counts, total, squared, sums, squares = np.zeros((5, d))
        for entry, u in by.entries[by.starts[i] : by.starts[i + 1]]:
            right = slice(entry, rows.stops[u])
            p, w = np.float64(values[entry]) * values[right].astype(np.float64), weights[u] if len(weights) else 1.0
            j = rows.columns[right]
            counts[j] += 1
            total[j] += w
            squared[j] += w**2
            sums[j] += w * p
            squares[j] += w * p**2
        here, seen = slice(out.pointers[i], out.pointers[i + 1]), np.flatnonzero(counts)
        out.columns[here], out.rows[here] = seen, counts[seen]
        out.sums[here], out.squares[here] = sums[seen], squares[seen]
        if len(weights):
            out.totals[here], out.squared[here] = total[seen], squared[seen]


def find_pairs(indptr: Array, columns: Array, first: Array, second: Array) -> Array:
    """The position of each pair in compressed rows; −1 where it is not there."""
    positions = []
    for i, j in zip(first, second, strict=True):
        here = indptr[i] + np.flatnonzero(columns[indptr[i] : indptr[i + 1]] == j)
        positions.append(here[0] if len(here) else -1)
    return np.array(positions, dtype=np.int64)


def pair_pass(
    first: int, indptr: Array, columns: Array, target: Array, diagonal_weight: float, X: Array
) -> tuple[float, Array]:
    """½ Σ_ij W_ij (x_iᵀx_j − t_ij)² over the full matrix, and its gradient 2 (W ∘ (XXᵀ − t)) X.

    W is ``diagonal_weight`` on the diagonal and one elsewhere on Ω. The block's k-th row is column ``first + k``; pairs
    are given once, with i ≤ j, and j ascends.
    """
    loss, gradient = 0.0, np.zeros(X.shape)
    for k, row in _slices(indptr[:-1], indptr[1:]):
        i = first + k
        for j, t in zip(columns[row], target[row], strict=True):
            error, weight = X[i] @ X[j] - t, diagonal_weight if i == j else 2.0  # off the diagonal, both triangles
            loss += 0.5 * weight * error**2
            gradient[i] += 2 * (diagonal_weight if i == j else 1.0) * error * X[j]
            if i != j:
                gradient[j] += 2 * error * X[i]
    return loss, gradient


def entry_pass(rows: Rows, X: Array, Y: Array, GX: Array) -> tuple[float, Array]:
    """Σ w e² over the entries, e = x_uᵀy_j − v_uj, and its gradients: 2 Σ_j w e y_j into ``GX``, and 2 Σ_u w e x_u.

    X and ``GX`` have a line for each row of the block, Y one for each column.
    """
    _, _, columns, values, weights = rows
    loss, GY = 0.0, np.zeros(Y.shape)
    for u, row in _slices(rows.starts, rows.stops):
        B = Y[columns[row]]
        e = B @ X[u] - values[row]
        loss += weights[u] * float(e @ e)
        GX[u] = 2 * weights[u] * (e @ B)
        GY[columns[row]] += 2 * weights[u] * np.outer(e, X[u])
    return loss, GY


def pair_values(first: int, indptr: Array, columns: Array, left: Array, right: Array, out: Array) -> None:
    """l_iᵀr_j at every pair, i = ``first + k`` for the block's k-th row, into ``out`` at the places of the pairs."""
    for k, row in _slices(indptr[:-1], indptr[1:]):
        out[row] = right[columns[row]] @ left[first + k]


def pair_product(first: int, indptr: Array, columns: Array, values: Array, V: Array) -> Array:
    """The symmetric matrix with ``values`` at the block's pairs i ≤ j, and at (j, i), times V."""
    product = np.zeros(V.shape)
    for k, row in _slices(indptr[:-1], indptr[1:]):
        i, j = first + k, columns[row]
        product[i] += values[row] @ V[j]
        off = j != i
        product[j[off]] += np.outer(values[row][off], V[i])
    return product


def first_values(rows: Rows, n_columns: int) -> tuple[Array, Array]:
    """Whether a row of positive weight has each column, and the value of the first that does."""
    _, _, columns, values, weights = rows
    seen, first = np.zeros(n_columns, dtype=bool), np.zeros(n_columns)
    for u, row in _slices(rows.starts, rows.stops):
        if weights[u] > 0:
            new = ~seen[columns[row]]
            first[columns[row][new]] = values[row][new]
            seen[columns[row]] = True
    return seen, first


def column_sums(rows: Rows, center: Array, scale: Array) -> tuple[Array, Array]:
    """Sums over the rows that have each column, with e = (v − c_j) / s_j and m the number of the row's entries: of
    w, of w where m > 1, of we, we², we⁴, w (m − 1) and w² (m − 1).

    And three sums over rows: w m (m − 1), w ((Σe)² − Σe²) and w ((Σe²)² − Σe⁴), which are of w, of wp and of wp² over
    all products p of two different entries of a row.
    """
    _, _, columns, values, weights = rows
    sums, products = np.zeros((len(center), 7)), np.zeros(3)
    for u, row in _slices(rows.starts, rows.stops):
        w, m, e = weights[u], row.stop - row.start, (values[row] - center[columns[row]]) / scale[columns[row]]
        ones = np.ones(m)
        parts = (w * ones, w * (m > 1) * ones, w * e, w * e**2, w * e**4, w * (m - 1) * ones, w**2 * (m - 1) * ones)
        sums[columns[row]] += np.column_stack(parts)
        products += w * np.array([m * (m - 1), e.sum() ** 2 - np.sum(e**2), np.sum(e**2) ** 2 - np.sum(e**4)])
    return sums, products


def row_pass(rows: Rows, X: Array, center: Array, scale: Array) -> tuple[float, Array]:
    """½ Σ_u w (‖A‖² − 2‖b‖²) and its gradient, for x_j: 2 Σ_u w (A x_j − v_j b), of values (v − c_j) / s_j.

    This is ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² over all pairs of columns, diagonal included, up to a constant.
    """
    _, _, columns, values, weights = rows
    loss, gradient = 0.0, np.zeros(X.shape)
    for u, row in _slices(rows.starts, rows.stops):
        j = columns[row]
        B, v = X[j].astype(np.float64), (values[row] - center[j]) / scale[j]
        A, b = B.T @ B, B.T @ v
        loss += 0.5 * weights[u] * (np.sum(A**2) - 2 * b @ b)
        gradient[j] += 2 * weights[u] * (B @ A - np.outer(v, b))
    return loss, gradient


def diagonal_terms(X: Array, counts: Array, squares: Array, effect: float, ridge: float, gradient: Array) -> float:
    """ρ Σ ‖x_j‖² less the terms of the diagonal, ½ N_jj n² − S_jj n with n = ‖x_j‖² + τ²; its gradient is added."""
    norms = np.sum(X**2, axis=1) + effect
    gradient += 2 * (ridge - counts * norms + squares)[:, None] * X
    return float(ridge * np.sum(X**2) - np.sum(counts * norms**2 / 2 - squares * norms))


def clipped_pass(rows: Rows, means: Array, Z: Array, X: Array, effect: float, clip: float, unit: float) -> Array:
    """Σ_u of G_u, each clipped to Frobenius norm ``clip`` and rounded towards zero to whole numbers of ``unit``.

    With e = v − μ the residuals of the row's m entries, G_u = (1/m) (B_X B_Xᵀ + τ² − e eᵀ) B_Z, the diagonal of the
    matrix in brackets left out; rows of one entry contribute nothing.
    """
    total = np.zeros(Z.shape)
    for _, row in _slices(rows.starts, rows.stops):
        at = rows.columns[row]
        e = rows.values[row] - means[at]
        if len(e) < 2:
            continue
        E = X[at] @ X[at].T + effect - np.outer(e, e)
        np.fill_diagonal(E, 0.0)
        G = E @ Z[at] / len(e)
        norm = np.linalg.norm(G)
        total[at] += np.trunc(G * (WITHIN / unit * min(1.0, clip / norm if norm > 0 else 1.0)))
    return total


def curvature(rows: Rows, X: Array) -> Array:
    """Σ_{u∋j} w A_u for every column j: the blocks from which the curvature is made."""
    blocks = np.zeros((*X.shape, X.shape[1]))
    for u, row in _slices(rows.starts, rows.stops):
        B = X[rows.columns[row]].astype(np.float64)
        blocks[rows.columns[row]] += rows.weights[u] * (B.T @ B)
    return blocks


def gram_product(rows: Rows, center: Array, scale: Array, effect: float, V: Array) -> Array:
    """(M̂ᵀ diag(w) M̂ − τ²N) V for values (v − c_j) / s_j; ``effect`` is τ²."""
    _, _, columns, values, weights = rows
    product = np.zeros(V.shape)
    for u, row in _slices(rows.starts, rows.stops):
        v = (values[row] - center[columns[row]]) / scale[columns[row]]
        product[columns[row]] += weights[u] * ((np.outer(v, v) - effect) @ V[columns[row]])
    return product


def row_posterior(rows: Rows, columns: Columns) -> Array:
    """The posterior of the coordinates z of each row, given columns as :class:`onesided.kernels.bundles.Columns` says.

        S = (Σ⁻¹ + Σ_j γ (y yᵀ + V_yy))⁻¹,   z = S (Σ⁻¹m + Σ_j γ (y (v − c) − V_yc))

    The result holds S and, beside the 1, z, as lower halves.
    """
    unit, center, loadings, precision, information, row_prior, _, k = columns
    half = (k + 1) * (k + 2) // 2
    halves = np.zeros((len(rows.starts), half))
    for u, row in _slices(rows.starts, rows.stops):
        j, v = rows.columns[row], rows.values[row]
        y = np.column_stack([np.zeros(len(j)), loadings[j, :k].astype(np.float64)])
        gained = from_half(information[j, :half].sum(axis=0)) if len(information) else (y.T * precision[j]) @ y
        total = from_half(row_prior[:half]) + gained
        h = y[:, 1:].T @ (precision[j] * (v - center[j]) / unit[j]) - total[1:, 0]
        posterior = np.eye(k + 1)
        posterior[1:, 1:] = np.linalg.inv(total[1:, 1:])
        posterior[1:, 0] = posterior[0, 1:] = posterior[1:, 1:] @ h
        halves[u] = to_half(posterior)
    return halves


def posterior_sums(rows: Rows, columns: Columns) -> Sums:
    """The columns' sufficient statistics: sums over the rows u that have column j; E[z zᵀ] = z zᵀ + S."""
    unit, center, d, k = columns.unit, columns.center, len(columns.center), columns.n_loadings
    half = (k + 1) * (k + 2) // 2
    second, first, squares, total = np.zeros((d, half)), np.zeros((d, k + 1)), np.zeros(d), np.zeros(half)
    posteriors = from_half(row_posterior(rows, columns))
    for u, row in _slices(rows.starts, rows.stops):
        j, w, moment = rows.columns[row], rows.weights[u], posteriors[u]
        z, e = moment[0].copy(), (rows.values[row] - center[j]) / unit[j]
        moment[1:, 1:] += np.outer(z[1:], z[1:])
        second[j] += w * to_half(moment)
        first[j] += w * np.outer(e, z)
        squares[j] += w * e**2
        total += w * to_half(moment)
    return Sums(second, first, squares, total)


def column_posterior(
    sums: Sums, fixed: Array, free: Array, precision: Array, prior: Prior
) -> tuple[Array, Array, Array]:
    """Columns given their sufficient statistics: the mean and covariance of (c_j, y_j), and Σ w E[(v − ỹᵀz̃)²].

    Of the coordinates some are ``free``, the others as ``fixed`` (where those are zero) has them. c_j is counted from
    where it was.
    """
    second, first, squares, _ = sums
    moments = from_half(second[:, : len(free) * (len(free) + 1) // 2])
    at, V, residual = fixed.copy(), np.zeros_like(moments), np.empty(len(fixed))
    for j, M in enumerate(moments):
        inside = np.ix_(free, free)
        t = prior.tightness[j, np.minimum(np.arange(len(free)), 1)]
        known = prior.precision * np.outer(t, t)
        V[j][inside] = np.linalg.inv(known[inside] + precision[j] * M[inside])
        target = first[j, : len(free)] - M @ fixed[j]
        at[j, free] = V[j][inside] @ (prior.linear[j, free] + precision[j] * target[free])
        residual[j] = squares[j] - 2 * at[j] @ first[j, : len(free)] + at[j] @ M @ at[j] + np.sum(V[j] * M)
    return at, to_half(V), residual


def column_information(loadings: Array, noise: Array, spread: Array, information: Array) -> None:
    """Fills in (ỹ ỹᵀ + V_j) / ψ_j, ỹ = (0, y_j), as lower halves."""
    y = np.column_stack([np.zeros(len(loadings)), loadings])
    information[:, : spread.shape[1]] = (to_half(y[:, :, None] * y[:, None, :]) + spread) / noise[:, None]


def leave_one_out(rows: Rows, columns: Columns) -> Array:
    """For each row, sums over its entries, each predicted from the row's others.

    With h = γ yᵀSy the prediction without an entry leaves the residual e = (v − c − yᵀz) / (1 − h), with variance
    s² = 1/(γ (1 − h)) + tr(V E[z̃ z̃ᵀ]), where z and S are without the entry, too: z − γ e S y and
    S + γ S y yᵀ S / (1 − h). (What its V adds to S⁻¹ stays.) Four sums: of the log score −½ (log 2π s² + e²/s²), of
    e², of e²/s² and of its square. And Σ ρ² over all pairs of entries, i = j included, of the correlations between
    residuals, γ_i γ_j (y_iᵀSy_j)² / ((1 − h_i)(1 − h_j)) for i ≠ j.
    """
    unit, center, loadings, precision, information, _, _, k = columns
    scores, half = np.zeros((len(rows.starts), 5)), (k + 1) * (k + 2) // 2
    posteriors = from_half(row_posterior(rows, columns))
    for u, row in _slices(rows.starts, rows.stops):
        z, S, at = posteriors[u, 0, 1:], posteriors[u, 1:, 1:], rows.columns[row]
        scores[u, 4] = _overlap(loadings[at, :k] * np.sqrt(precision[at, None]), S)
        for j, v in zip(at, rows.values[row], strict=True):
            y, gamma = loadings[j, :k], precision[j]
            left = max(1 - gamma * y @ S @ y, SMALLEST_LEFT)
            e = ((v - center[j]) / unit[j] - y @ z) / left
            mean = np.concatenate([[1.0], z - gamma * e * S @ y])
            others = np.outer(mean, mean)
            others[1:, 1:] += S + gamma * np.outer(S @ y, S @ y) / left
            V = np.zeros((k + 1, k + 1))
            if len(information):
                V = from_half(information[j, :half]) / gamma - np.outer([0.0, *y], [0.0, *y])
            variance = 1 / (gamma * left) + max(np.sum(V * others), 0.0)
            square = e**2 / variance
            scores[u, :4] += -(np.log(2 * np.pi * variance) + square) / 2, e**2, square, square**2
    return scores


def _overlap(scaled: Array, S: Array) -> float:
    h, n = scaled @ S @ scaled.T, len(scaled)
    left = np.maximum(1 - np.diag(h), SMALLEST_LEFT)
    squares = h**2 / np.outer(left, left)
    np.fill_diagonal(squares, 1.0)
    return float(np.clip(squares.sum(), n, n**2))  # outside only by rounding


def to_half(matrices: Array) -> Array:
    """The lower halves of symmetric matrices, row by row."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., rows, columns])


def from_half(halves: Array) -> Array:
    """Symmetric matrices from their lower halves.

    >>> from_half(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = int(np.sqrt(2 * halves.shape[-1]))
    rows, columns = np.tril_indices(size)
    matrices = np.empty((*halves.shape[:-1], size, size))
    matrices[..., rows, columns] = halves
    matrices[..., columns, rows] = halves
    return matrices


def least_squares(indptr: Array, columns: Array, values: Array, X: Array) -> Array:
    """argmin ‖B q − v‖ for each row, of least norm where there are several."""
    coordinates = np.zeros((len(indptr) - 1, X.shape[1]))
    for u, row in _slices(indptr[:-1], indptr[1:]):
        coordinates[u] = np.linalg.pinv(X[columns[row]], rcond=SINGULAR) @ values[row]
    return coordinates
