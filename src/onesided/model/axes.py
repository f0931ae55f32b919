"""A factor turned to its principal axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array, host, like

TALL = 1 << 22  # columns beyond which a singular value decomposition takes minutes


def principal_axes(factor: Any) -> Any:
    """The factor of the same XXᵀ whose columns are orthogonal, longest first, largest entry positive."""
    return factor @ like(factor, principal_rotation(factor))


def principal_rotation(factor: Any) -> Array:
    """The orthogonal matrix that takes a factor to its principal axes.

    Of very many columns, or on a device, from the factor's inner products, which are few: columns shorter than 10⁻⁸ of
    the longest are then orthogonal only to rounding beside that one.
    """
    if factor.shape[1] == 0:
        return np.zeros((0, 0))
    if not isinstance(factor, np.ndarray) or len(factor) > TALL:
        _, turn = np.linalg.eigh(host(factor.T @ factor))
        turn = turn[:, ::-1]
        vectors = factor @ like(factor, turn.copy())
        largest = host(vectors[abs(vectors).argmax(0), np.arange(len(turn))])
        return np.asarray(turn * np.where(largest < 0, -1.0, 1.0))
    vectors, _, axes = np.linalg.svd(factor, full_matrices=len(factor) < factor.shape[1])
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    signs = np.ones(len(axes))
    signs[: len(largest)] = np.where(largest < 0, -1.0, 1.0)
    return np.asarray(axes.T * signs)
