"""Soft-Impute by alternating least squares (Hastie, Mazumder, Lee and Zadeh, 2015).

    min over A (n × r), B (d × r) of ½ ‖P_Ω(M − A Bᵀ)‖² + λ/2 (‖A‖² + ‖B‖²)

whose minimum, where r is no restriction, is that of ½ ‖P_Ω(M − Z)‖² + λ‖Z‖_* over all Z. Missing entries are filled in
with those of A Bᵀ; the filled matrix is S + A Bᵀ, S the residual on Ω, and is never formed. With A = UD and B = VD:

    B ← (SᵀA + B D²) (D² + λ)⁻¹,   then V, D and U from the singular values of A Bᵀ;   A likewise

and at the end (S + A Bᵀ) V = U Σ Rᵀ gives U (Σ − λ)₊ (VR)ᵀ. These steps alone are slow where nearly all entries are
missing. So each begins not from the last factors but some way beyond them, A + β (A − A'), B + β (B − B'), with A' and
B' those before, turned to be as near as they can; β follows Nesterov's rule, and begins anew whenever the objective
would rise. It falls with every step. A row of weight w counts as w rows: this is the program for rows scaled by √w,
whose factors are scaled back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from onesided.arrays import Array
from onesided.baselines.alternating_gd import EntryObjective
from onesided.baselines.baseline import Fitted
from onesided.baselines.matrix import MatrixBaseline
from onesided.baselines.penalty_path import AUTO, PenaltyChosen, Tell, best_penalty, counting, held_out
from onesided.estimators.base import generator
from onesided.estimators.parameters import ranges
from onesided.fitting.fit import Auto
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.fitting.solvers.spectral import top_eigenpairs
from onesided.model.imputation import observed_positions
from onesided.model.row_space import RowSpace
from onesided.pairs.column_sums import largest_value
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel

COARSE = 1e-4  # the least tolerance while a penalty is chosen: stopping sooner would be a penalty of its own
LEAST = 5  # iterations: they begin small, before β has grown
LIFT = 0.1  # of the penalty: singular values that a new one begins with at least, for zero stays zero


@dataclass(frozen=True, eq=False)
class _Factors:
    """U D² Vᵀ."""

    U: Array
    D: Array
    V: Array

    @property
    def sides(self) -> tuple[Array, Array]:
        """A and B."""
        return self.U * self.D, self.V * self.D

    @classmethod
    def of(cls, A: Array, B: Array) -> _Factors:
        """Those of A Bᵀ."""
        (left, L), (right, R) = np.linalg.qr(A), np.linalg.qr(B)
        P, squares, Q = np.linalg.svd(L @ R.T)
        return cls(left @ P, np.sqrt(squares), right @ Q.T)

    def beyond(self, other: _Factors, beta: float) -> _Factors:
        """Further in the direction that leads here from others, these turned to be as near as they can."""
        (A, B), (A_before, B_before) = self.sides, other.sides
        P, _, Q = np.linalg.svd(A_before.T @ A + B_before.T @ B)
        turn = P @ Q
        return _Factors.of(A + beta * (A - A_before @ turn), B + beta * (B - B_before @ turn))

    def lifted(self, least: float) -> _Factors:
        return replace(self, D=np.sqrt(np.maximum(self.D**2, least)))

    def change_from(self, other: _Factors) -> float:
        """‖Z − Z'‖ / ‖Z'‖ in Frobenius norm: of the part of Z' in the span of V, and of what is outside."""
        both = other.V.T @ self.V
        inside = np.linalg.norm(self.U * self.D**2 - (other.U * other.D**2) @ both)
        outside = np.linalg.norm((other.V - self.V @ both.T) * other.D**2)
        before = float(np.linalg.norm(other.D**2))
        return float(np.hypot(inside, outside)) / before if before > 0 else float(np.any(self.D > 0))


class _Program:
    """The program on a panel whose rows are scaled by √w, in units of its largest value."""

    def __init__(self, panel: Panel) -> None:
        self._roots = np.sqrt(panel.row_weights)
        self.unit = (largest_value(panel) or 1.0) * float(self._roots.max())
        values = panel.values * (np.repeat(self._roots, panel.row_counts) / self.unit)
        self._scaled = Panel(panel.indptr, panel.columns, values, panel.n_columns)
        self._objective = EntryObjective(self._scaled, (self._roots > 0).astype(np.float64))

    def random_start(self, rank: int, rng: np.random.Generator) -> _Factors:
        """Orthonormal U, zero for rows without entries; V = 0, and D² as large as the data."""
        seen = np.flatnonzero((self._scaled.row_counts > 0) & (self._roots > 0))
        rank = min(rank, len(seen))
        U = np.zeros((self._scaled.n_rows, rank))
        U[seen] = np.linalg.qr(rng.standard_normal((len(seen), rank)))[0]
        size = float(np.linalg.norm(self._scaled.values))
        return _Factors(U, np.full(rank, np.sqrt(size or 1.0)), np.zeros((self._scaled.n_columns, rank)))

    def largest_singular_value(self, rng: np.random.Generator) -> float:
        """Of the data with zeros for what is missing."""
        matrix = self._scaled.to_sparse()
        gram = LinearOperator((matrix.shape[1],) * 2, matvec=lambda v: matrix.T @ (matrix @ v), dtype=np.float64)
        return float(np.sqrt(max(top_eigenpairs(gram, 1, rng)[0][0], 0.0)))

    def objective(self, factors: _Factors, penalty: float) -> float:
        loss, _, _ = self._objective(*factors.sides)
        return loss / 2 + penalty * float(np.sum(factors.D**2))

    def step(self, factors: _Factors, penalty: float) -> tuple[_Factors, float]:
        """B given A, then A given B; and the objective before."""
        loss, _, GB = self._objective(*factors.sides)
        value = loss / 2 + penalty * float(np.sum(factors.D**2))
        V, D, R = _regressed(GB, factors.V, factors.D, penalty)
        factors = _Factors(factors.U @ R, D, V)
        _, GA, _ = self._objective(*factors.sides)
        U, D, R = _regressed(GA, factors.U, factors.D, penalty)
        return _Factors(U, D, factors.V @ R), value

    def thresholded(self, factors: _Factors, penalty: float) -> _Factors:
        """The final step: singular values of the filled matrix on V, less the penalty."""
        _, GA, _ = self._objective(factors.U * factors.D**2, factors.V)
        U, values, R = np.linalg.svd(factors.U * factors.D**2 - GA / 2, full_matrices=False)
        return _Factors(U, np.sqrt(np.maximum(values - penalty, 0.0)), factors.V @ R.T)

    def scaled_back(self, factors: _Factors) -> tuple[Array, Array]:
        """A and B for the rows as they are, in the units of the data; rows of weight zero have zeros."""
        A, B = (np.sqrt(self.unit) * side for side in factors.sides)
        roots = self._roots[:, None]
        return np.divide(A, roots, out=np.zeros_like(A), where=roots > 0), B


def _regressed(gradient: Array, V: Array, D: Array, penalty: float) -> tuple[Array, Array, Array]:
    """One side's regression on the other, with the singular values of their product; the other side turns by R.

    ``gradient`` is −2 SᵀA, with A = UD and B = VD.
    """
    square = D**2 + penalty
    side = (V * D**3 - gradient / 2) / np.where(square > 0, square, 1.0)
    side *= D
    # Not by way of the Gram matrix: directions whose value is nearly zero would not be orthogonal to the others, and
    # the next penalty begins with all of them.
    V, values, R = np.linalg.svd(side, full_matrices=False)
    return V, np.sqrt(values), R.T


def soft_impute(
    program: _Program, start: _Factors, penalty: float, *, tol: float, max_iterations: int, progress: Tell
) -> tuple[_Factors, SolveResult]:
    """Alternate until the product changes by less than ``tol``; ``progress`` is told the objective of each step."""
    factors = before = start
    history, change, momentum = list[float](), np.inf, 1.0
    while (change > tol or len(history) < LEAST) and len(history) < max_iterations:
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        beta, momentum = (momentum - 1) / following, following
        new, value = program.step(factors.beyond(before, beta) if beta else factors, penalty)
        if beta and value > history[-1]:
            momentum = 1.0
            new, value = program.step(factors, penalty)
        before, factors = factors, new
        change = factors.change_from(before)
        history.append(value)
        progress(value)
    history.append(program.objective(factors, penalty))
    detail = "" if change <= tol else f"the last changed the matrix by {change:.1e}; raise max_iterations or tol"
    ended = SolveResult(factors.V, "limit" if detail else "converged", tuple(history), len(history) - 1, detail)
    return factors, ended


class SoftImputeALS(PenaltyChosen, MatrixBaseline):
    """A completion of the whole matrix with a penalty on its nuclear norm, of at most a given rank.

    Rows and columns without entries have factors of zero, and so have rows of weight zero.

    Parameters
    ----------
    rank : int, default 10
        At most; and at most the number of rows.
    penalty : float or "auto", default "auto"
        λ. "auto" goes down from the largest singular value of the data and takes the penalty that predicts a tenth of
        the entries, held out at random, best.
    tol : float, default 1e-5
        Iterations end where one changes A Bᵀ by less than this share, in Frobenius norm.
    max_iterations : int, default 500
    random_state : int, Generator, RandomState or None
        For the start, and for what is held out.

    Attributes
    ----------
    penalty_ : float
        λ, chosen or given.
    row_factors_, column_factors_ : arrays of n × rank and d × rank
        A and B; :meth:`fitted_at` reads entries of A Bᵀ.
    factor_, components_, eigenvalues_, second_moment_
        Of T = B (Aᵀ diag(w) A / Σw) Bᵀ, over rows with entries.
    mean_ : array of d
        Zeros.
    solve_ : SolveResult
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(500, 20, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 10, rng=1)
    >>> model = SoftImputeALS(rank=2, penalty=0.1, random_state=0).fit(panel)
    >>> bool(np.abs(model.fitted_at([0, 1], [2, 3]) - truth.to_dense()[[0, 1], [2, 3]]).max() < 0.1)
    True
    """

    _parameter_constraints = ranges("rank", "tol", "max_iterations", "random_state") | AUTO

    def __init__(
        self,
        rank: int = 10,
        *,
        penalty: float | Auto = "auto",
        tol: float = 1e-5,
        max_iterations: int = 500,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        rng, tell, program = generator(self.random_state), counting(progress), _Program(panel)
        if self.penalty == "auto":
            self.penalty_, start = self._choose(panel, rng, tell)
        else:
            self.penalty_, start = float(self.penalty), program.random_start(self.rank, rng)
        penalty = self.penalty_ / program.unit
        start, most = start.lifted(LIFT * penalty), self.max_iterations
        factors, solve = soft_impute(program, start, penalty, tol=self.tol, max_iterations=most, progress=tell)
        return self._with_factors(*program.scaled_back(program.thresholded(factors, penalty)), panel), solve

    def _choose(self, panel: Panel, rng: np.random.Generator, tell: Tell) -> tuple[float, _Factors]:
        """The penalty that predicts held-out entries best, and the solution there to start from."""
        hidden = held_out(panel.n_entries, rng)
        rows, columns = (position[hidden] for position in observed_positions(panel))
        indptr = np.searchsorted(np.flatnonzero(~hidden), panel.indptr)
        entries = panel.columns[~hidden], panel.values[~hidden]
        program = _Program(Panel(indptr, *entries, panel.n_columns, row_weights=panel.row_weights))
        tol = max(self.tol, COARSE)
        last, solutions = program.random_start(self.rank, rng), dict[float, _Factors]()

        def error(penalty: float) -> float:
            nonlocal last
            start = last.lifted(LIFT * penalty)
            last, _ = soft_impute(program, start, penalty, tol=tol, max_iterations=self.max_iterations, progress=tell)
            solutions[penalty] = last
            A, B = program.scaled_back(program.thresholded(last, penalty))
            residual = (np.einsum("ka,ka->k", A[rows], B[columns]) - panel.values[hidden]) / program.unit
            return float(panel.row_weights[rows] @ residual**2)

        best = best_penalty(program.largest_singular_value(rng), error)
        return best * program.unit, solutions[best]

    def _coordinates(self, panel: Panel) -> Array:
        """The method's own step for a row: least squares with the penalty λ."""
        if self.penalty_ == 0:
            return super()._coordinates(panel)
        noise = np.full(panel.n_columns, self.penalty_)
        return RowSpace(self.mean_, self.column_factors_, noise).predictor.coordinates(panel)
