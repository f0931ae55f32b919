"""The convex program behind nuclear-norm completion of T, by accelerated proximal gradient steps.

    min over symmetric Z of F(Z) = ½ ‖P_Ω(Z − T̂)‖² + λ‖Z‖_*

Pairs off the diagonal count twice, as in the Frobenius norm. One step from Y = Z + β (Z − Z'), with Z' the iterate
before, takes the eigenvalues of Y + P_Ω(T̂ − Y), moves each by λ towards zero, and keeps the rest. That matrix is of low
rank plus sparse, so that only its eigenvalues of magnitude beyond λ are sought, beginning from those of the last step.
β follows Nesterov's rule and begins anew whenever F has risen (O'Donoghue and Candès, 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onesided.arrays import Array
from onesided.baselines.penalty_path import Tell
from onesided.engines.threads import in_order
from onesided.fitting.objective.pairs import pair_blocks
from onesided.fitting.solvers.eigenpairs import leading_eigenpairs
from onesided.kernels import cpu, factorization
from onesided.pairs.moments import PairMoments, hajek

DENSE = 500  # up to so many columns, all eigenpairs are found at once
THOROUGH = 10  # steps of the eigensolver, at the beginning and before the end
MANY = 4  # likewise where more than one in so many is wanted
FULL, WIDEST = 20, 12_000  # Ω is dense where it has a tenth of all pairs, if there are not too many columns


@dataclass(frozen=True, eq=False)
class LowRank:
    """V diag(values) Vᵀ with orthonormal V."""

    values: Array
    vectors: Array

    @classmethod
    def zero(cls, d: int) -> LowRank:
        return cls(np.zeros(0), np.zeros((d, 0)))

    @property
    def rank(self) -> int:
        return len(self.values)

    def __matmul__(self, V: Array) -> Array:
        return np.asarray((self.vectors * self.values) @ (self.vectors.T @ V))

    def to_dense(self) -> Array:
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def change_from(self, other: LowRank) -> float:
        """‖Z − Z'‖ / ‖Z'‖ in Frobenius norm: of the part of Z' in the span of V, and of what is outside."""
        both = self.vectors.T @ other.vectors
        inside = np.diag(self.values) - (both * other.values) @ both.T
        beyond = other.vectors - self.vectors @ both
        crossed, outside = _product_norm(beyond, both * other.values), _product_norm(beyond * other.values, beyond)
        difference = float(np.sqrt(np.sum(inside**2) + 2 * crossed**2 + outside**2))
        before = float(np.linalg.norm(other.values))
        return difference / before if before > 0 else float(self.rank > 0)


class PairTarget:
    """T̂ on Ω, and what is needed of Ω: entries of a low-rank matrix there, and products with a sparse one."""

    def __init__(self, indptr: Array, columns: Array, target: Array) -> None:
        self.indptr, self.columns, self.target = indptr, columns, target
        self._blocks = pair_blocks(indptr)
        self.off_diagonal = np.repeat(np.arange(self.n_columns), np.diff(indptr)) != columns

    @classmethod
    def of(cls, moments: PairMoments) -> PairTarget:
        """The Hájek estimate."""
        return cls(moments.indptr, moments.columns, hajek(moments))

    @property
    def n_columns(self) -> int:
        return len(self.indptr) - 1

    def split(self, hidden: Array) -> tuple[PairTarget, PairTarget]:
        """The pairs that a mask does not hide, and those that it does."""

        def of(kept: Array) -> PairTarget:
            return PairTarget(np.searchsorted(np.flatnonzero(kept), self.indptr), self.columns[kept], self.target[kept])

        return of(~hidden), of(hidden)

    def at(self, Z: LowRank) -> Array:
        """Z on Ω."""
        out = np.zeros(len(self.columns))
        if Z.rank:
            sides = cpu.padded(Z.vectors * Z.values), cpu.padded(Z.vectors)
            done = in_order(lambda block: factorization.pair_values(*block, self.columns, *sides, out), self._blocks)
            for _ in done:
                pass
        return out

    def times(self, values: Array) -> Callable[[Array], Array]:
        """Multiplication with the symmetric matrix that has these values on Ω: as a dense matrix where Ω is."""
        if FULL * len(self.columns) > self.n_columns**2 and self.n_columns <= WIDEST:
            matrix = self.dense(values)
            return lambda V: np.asarray(matrix @ V)
        return lambda V: self.product(values, V)

    def product(self, values: Array, V: Array) -> Array:
        """The symmetric matrix with these values on Ω, times V, pair by pair."""
        wide = cpu.padded(V)
        total = np.zeros_like(wide)
        for part in in_order(
            lambda block: factorization.pair_product(*block, self.columns, values, wide), self._blocks
        ):
            total += part
        return total[:, : V.shape[1]]

    def dense(self, values: Array) -> Array:
        """The symmetric matrix with these values on Ω."""
        matrix = np.zeros((self.n_columns,) * 2)
        i = np.repeat(np.arange(self.n_columns), np.diff(self.indptr))
        matrix[i, self.columns] = matrix[self.columns, i] = values
        return matrix

    def loss(self, on: Array) -> float:
        """½ ‖P_Ω(Z − T̂)‖² from Z on Ω."""
        return float(np.sum(np.where(self.off_diagonal, 1.0, 0.5) * (on - self.target) ** 2))


@dataclass(frozen=True, eq=False)
class Solution:
    """Z, the objective after each step, and how large the last step was; ``guess`` is for the next program."""

    Z: LowRank
    guess: Array
    history: tuple[float, ...]
    change: float

    @classmethod
    def nothing(cls, d: int) -> Solution:
        return cls(LowRank.zero(d), np.zeros((d, 0)), (), np.inf)


class Limits(NamedTuple):
    """Where steps end: at a change of Z, as a share of it, or after so many; and how many eigenpairs Z may have."""

    tol: float
    max_iterations: int
    max_rank: int


def solve(
    target: PairTarget,
    penalty: float,
    start: Solution,
    limits: Limits,
    rng: np.random.Generator,
    *,
    stop_at_max_rank: bool = False,
    progress: Tell = lambda value: None,
) -> Solution:
    """Steps until one changes Z by less than ``tol`` of it, in Frobenius norm; no more than ``max_rank`` pairs.

    >>> target = PairTarget(np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([2.0, 1.0, 2.0]))
    >>> limits = Limits(tol=1e-9, max_iterations=99, max_rank=2)
    >>> solution = solve(target, 0.5, Solution.nothing(2), limits, np.random.default_rng(0))
    >>> solution.Z.to_dense().round(6)  # eigenvalues 3 and 1, less 0.5
    array([[1.5, 1. ],
           [1. , 1.5]])
    """
    tol, max_iterations, max_rank = limits
    Z, last, guess = start.Z, start.Z, start.guess
    on = last_on = target.at(Z)
    history, change, momentum = [target.loss(on) + penalty * float(np.sum(np.abs(Z.values)))], np.inf, 1.0
    thorough = guess.shape[1] == 0
    while len(history) <= max_iterations:
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        beta, momentum = (momentum - 1) / following, following
        residual = target.target - (1 + beta) * on + beta * last_on
        new, guess = _step(target, residual, (Z, last, beta), guess, penalty, limits, rng, THOROUGH if thorough else 1)
        change = new.change_from(Z)
        last, last_on, Z = Z, on, new
        on = target.at(Z)
        history.append(target.loss(on) + penalty * float(np.sum(np.abs(Z.values))))
        if history[-1] > history[-2]:
            momentum, last, last_on = 1.0, Z, on
        progress(history[-1])
        if (change <= tol and thorough) or (stop_at_max_rank and Z.rank == max_rank):
            break
        thorough = change <= tol  # before the end, a look for eigenpairs that may have been missed
    return Solution(Z, guess, tuple(history), change)


def _step(
    target: PairTarget,
    residual: Array,
    point: tuple[LowRank, LowRank, float],
    guess: Array,
    penalty: float,
    limits: Limits,
    rng: np.random.Generator,
    least_steps: int,
) -> tuple[LowRank, Array]:
    """Eigenvalues of Y + P_Ω(T̂ − Y) moved towards zero by the penalty, and directions for the next step."""
    (Z, last, beta), d = point, target.n_columns
    if d <= DENSE or MANY * guess.shape[1] > d:
        G = target.dense(residual) + (1 + beta) * Z.to_dense() - beta * last.to_dense()
        values, vectors = np.linalg.eigh((G + G.T) / 2)
        kept = np.argsort(-np.abs(values), kind="stable")[: limits.max_rank]
        kept = kept[np.abs(values[kept]) > penalty]
        values, vectors = values[kept], vectors[:, kept]
    else:
        sparse = target.times(residual)
        values, vectors, guess = leading_eigenpairs(
            lambda V: sparse(V) + (1 + beta) * (Z @ V) - beta * (last @ V),
            guess,
            above=penalty,
            most=limits.max_rank,
            tol=min(limits.tol / 10, 1e-3),
            rng=rng,
            least_steps=least_steps,
        )
    return LowRank(np.sign(values) * (np.abs(values) - penalty), vectors), guess


def _product_norm(left: Array, right: Array) -> float:
    """‖L Rᵀ‖ in Frobenius norm."""
    return float(np.sqrt(max(float(np.sum((left.T @ left) * (right.T @ right))), 0.0)))
