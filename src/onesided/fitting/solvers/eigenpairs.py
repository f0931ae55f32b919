"""Leading eigenpairs of a symmetric operator, by magnitude, from a good guess.

Eigenpairs are sought in the span of a block of vectors (Rayleigh and Ritz). What the operator makes of those that are
not found yet, beyond that span, is added to it (Davidson's method without a preconditioner), until it is several times
the block; then one begins anew from the best found. The block holds ``SPARE`` directions more than are wanted, drawn at
random at first, in which eigenpairs can turn up that were not guessed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onesided.arrays import Array

SPARE = 8
BLOCKS = 4  # that the span holds before one begins anew
STEPS = 60  # at most


def leading_eigenpairs(
    apply: Callable[[Array], Array],
    guess: Array,
    *,
    above: float,
    most: int,
    tol: float,
    rng: np.random.Generator,
    least_steps: int = 1,
) -> tuple[Array, Array, Array]:
    """All eigenvalues of magnitude beyond ``above``, at most ``most``, largest first; their vectors; and a guess.

    ``apply`` multiplies the operator with the columns of a matrix. A pair is found when (1 − above/|θ|) ‖Gv − θv‖ is
    below ``tol`` times the largest eigenvalue: what is beyond ``above`` by little matters little. Pairs that were not
    guessed turn up in a number of steps, of which at least ``least_steps`` are made. The guess, for an operator that is
    a little different, has further directions.

    >>> G = np.diag([1.0, -5.0, 0.1, 2.0] + [0.0] * 60)
    >>> values, _, _ = leading_eigenpairs(
    ...     lambda V: G @ V, np.empty((64, 0)), above=0.5, most=9, tol=1e-9, rng=np.random.default_rng(0), least_steps=5
    ... )
    >>> values.round(6)
    array([-5.,  2.,  1.])
    """
    d = len(guess)
    largest = min(most + SPARE, d)
    size = min(guess.shape[1] + SPARE, largest)
    guess = np.column_stack([guess, rng.standard_normal((d, size))])[:, :size]
    basis = _orthonormal(guess, np.empty((d, 0)))
    images = apply(basis)
    for step in range(STEPS):
        values, turn = _by_magnitude(basis.T @ images)
        vectors, images = basis @ turn, images @ turn
        wanted = min(int(np.sum(np.abs(values) > above)), most)
        crowded = wanted > size - SPARE // 2 and size < largest
        residual = images[:, :size] - vectors[:, :size] * values[:size]
        lengths = np.linalg.norm(residual, axis=0)
        sizes = np.abs(values[:size])
        left = lengths > tol * sizes[0]
        found = np.all(lengths * np.maximum(sizes - above, 0.0) <= tol * sizes[0] * sizes)
        if step >= least_steps and found and not crowded:
            break
        new = residual[:, left] / lengths[left]
        if crowded:
            size = min(2 * size, largest)
            new = np.column_stack([new, rng.standard_normal((d, size))])
        basis = vectors
        if vectors.shape[1] > (BLOCKS - 1) * size:
            basis, images = vectors[:, :size], images[:, :size]
        block = _orthonormal(new, basis)[:, : d - basis.shape[1]]
        if block.shape[1] == 0:
            break
        basis, images = np.column_stack([basis, block]), np.column_stack([images, apply(block)])
    return values[:wanted], vectors[:, :wanted], vectors[:, : wanted + SPARE]


def _by_magnitude(matrix: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")
    return values[order], vectors[:, order]


def _orthonormal(vectors: Array, basis: Array) -> Array:
    """An orthonormal basis of what vectors have outside an orthonormal basis; what is all rounding is left out."""
    lengths = np.linalg.norm(vectors, axis=0)
    vectors = vectors / np.where(lengths > 0, lengths, 1.0)
    for _ in range(2):  # once more, for what rounding has left
        vectors = vectors - basis @ (basis.T @ vectors)
        vectors, triangle = np.linalg.qr(vectors)
        vectors = vectors[:, np.abs(np.diag(triangle)) > 1e-10]
    return np.asarray(vectors)
