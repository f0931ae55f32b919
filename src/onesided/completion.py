"""The estimators: ``OneSidedCompletion``, a pass over rows, and ``HajekGD``, the paper's algorithm as printed.

Both are scikit-learn estimators and thin shells: a panel goes in, an objective is minimised by a solver, and what
is known afterwards is held in fitted attributes. What ``fit`` refuses, beside what no panel may hold
(:mod:`onesided.panel`) and parameters outside their ranges:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
no entry at all                                        nothing was observed: …
a single column                                        the panel has one column (n_features = 1) …
no row with two entries                                no row has two observed entries …
a rank above the number of columns                     rank=12 is larger than the panel's 5 columns …
``HajekGD``: a step too long for the panel             diverged after 3 passes: …; try step_size=40
=====================================================  ========================================================
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import aslinearoperator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from onesided.engines.local import single_blas_thread
from onesided.errors import InputError
from onesided.estimator import OneSidedEstimator, Unknown, generator
from onesided.imputation import BestLinearPredictor, LeastSquares, check_positions
from onesided.moments import PairMoments, hajek
from onesided.objective.pairs import PairObjective
from onesided.objective.rows import Diagonal
from onesided.row_space import Center, check_fittable, complete
from onesided.second_moment import Measured
from onesided.solvers.gradient_descent import gradient_descent, random_start
from onesided.solvers.result import Progress
from onesided.solvers.spectral import top_eigenpairs

Array = npt.NDArray[Any]


class OneSidedCompletion(OneSidedEstimator):
    """The second moment and row space of a sparse panel, every pair weighed by its count.

    Minimises ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² + ρ Σ_j ‖x_j‖² by passes over the rows; the pair matrix is never formed.
    Memory grows with the number of entries and with d × rank.

    Parameters
    ----------
    rank : int, default 10
        Columns of the factor; 0 for means alone.
    center : "columns" or "none", default "columns"
        Whether column means are taken out first and kept in the model, T = μμᵀ + XXᵀ.
    diagonal : "free" or "fit", default "free"
        Whether the factor must also explain the second moment of each column by itself. "fit" is for panels
        that are exactly of low rank; where columns have a variance of their own, it ruins the low-rank part.
    weight_exponent : float, default -0.5
        A row of m entries weighs m to this power, times its own weight. At 0 it counts for its m² pairs. Between
        -10 and 10.
    ridge : float, default 1.0
        ρ in units of the sampling noise in the sums of products.
    blend : float, optional
        κ, a number of rows. When given, ``second_moment_`` averages measured and completed entries.
    tol : float, default 1e-6
        Stop when the decrease still expected is this share of the loss.
    max_passes : int, default 300
        Passes over the rows at most.
    random_state : int, Generator, RandomState or None
        For the start of the eigensolver. The same seed gives the same model at any number of threads.

    Attributes
    ----------
    factor_ : array of d × rank
        X, with orthogonal columns, longest first: ``T ≈ mean_ mean_ᵀ + factor_ factor_ᵀ``.
    components_ : array of rank × d
        Orthonormal basis of the row space.
    eigenvalues_ : array of rank
        Of XXᵀ, descending.
    mean_ : array of d
        Column means; zeros when ``center="none"``.
    noise_variance_ : array of d
        Variance of an entry around the row space.
    second_moment_ : SecondMoment
        T as an operator.
    solve_ : SolveResult
        How the solver ended.
    column_ids_ : array of d

    Examples
    --------
    >>> import numpy as np
    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(4000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 6, rng=1)
    >>> model = OneSidedCompletion(rank=2, center="none", diagonal="fit", random_state=0).fit(panel)
    >>> T = truth.second_moment()
    >>> bool(np.linalg.norm(model.second_moment_.to_dense() - T) < 0.1 * np.linalg.norm(T))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rank": [Interval(Integral, 0, None, closed="left")],
        "center": [StrOptions({"none", "columns"})],
        "diagonal": [StrOptions({"fit", "free"})],
        "weight_exponent": [Interval(Real, -10, 10, closed="both")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "blend": [Interval(Real, 0, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_passes": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        rank: int = 10,
        *,
        center: Center = "columns",
        diagonal: Diagonal = "free",
        weight_exponent: float = -0.5,
        ridge: float = 1.0,
        blend: float | None = None,
        tol: float = 1e-6,
        max_passes: int = 300,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.center = center
        self.diagonal = diagonal
        self.weight_exponent = weight_exponent
        self.ridge = ridge
        self.blend = blend
        self.tol = tol
        self.max_passes = max_passes
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fit to a panel, a scipy sparse matrix (stored zeros are observations) or a dense array with NaN.

        ``progress``, if given, is called after every iteration with the passes made and the loss.
        """
        self._validate_params()
        panel = self._read_for_fit(X)
        found = complete(
            panel,
            rank=self.rank,
            center=self.center,
            diagonal=self.diagonal,
            weight_exponent=self.weight_exponent,
            ridge=self.ridge,
            tol=self.tol,
            max_passes=self.max_passes,
            rng=generator(self.random_state),
            progress=progress,
        )
        self.solve_ = found.solve
        if not found.solve.succeeded:
            warnings.warn(found.solve.message, ConvergenceWarning, stacklevel=2)
        self.mean_, self.noise_variance_ = found.mean, found.noise_variance
        lengths = np.linalg.norm(found.factor, axis=0)
        self.eigenvalues_ = lengths**2
        self.components_ = (found.factor / np.where(lengths > 0, lengths, 1.0)).T
        self._set_row_space(found.factor, Measured.from_panel(panel), panel)
        return self

    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``: ``transform(X) @ components_ + mean_`` predicts them.

        A row's coordinates are its posterior mean given its observed entries; they shrink towards zero when it
        has few.
        """
        panel = self._read_for_use(X, unknown)
        return self._predictor().coordinates(panel) * np.sqrt(self.eigenvalues_)

    def impute(self, X: Any, *, return_std: bool = False, unknown: Unknown = "refuse") -> Array | tuple[Array, Array]:
        """Rows filled in, as a dense array; observed entries stay as they are.

        With ``return_std=True`` also the predictive standard deviation of each value, zero where it was
        observed. For many rows and columns use :meth:`impute_at`, which never forms them all.
        """
        panel, predictor = self._read_for_use(X, unknown), self._predictor()
        filled = predictor.impute(panel)
        return (filled, predictor.deviations(panel)) if return_std else filled

    def impute_at(
        self, X: Any, rows: Any, columns: Any, *, return_std: bool = False, unknown: Unknown = "refuse"
    ) -> Array | tuple[Array, Array]:
        """Predictions at positions of X: row positions and column positions of the model, of one length.

        An observed entry is predicted like any other, from all of its row.
        """
        panel = self._read_for_use(X, unknown)
        values, deviation = self._predictor().impute_at(panel, *check_positions(panel, rows, columns))
        return (values, deviation) if return_std else values

    def _predictor(self) -> BestLinearPredictor:
        check_is_fitted(self)
        return BestLinearPredictor(self.mean_, self.factor_, self.noise_variance_)

    _saved_arrays: ClassVar[tuple[str, ...]] = (*OneSidedEstimator._saved_arrays, "noise_variance")


class HajekGD(OneSidedEstimator):
    """Algorithms 1 and 2 of "One-Sided Matrix Completion from Ultra-Sparse Samples", as printed.

    Builds the pair moments explicitly, divides on Ω, and runs gradient descent from a random start on the loss of
    :mod:`onesided.objective.pairs`. Memory grows with the number of observed pairs.

    Parameters
    ----------
    rank : int, default 10
    step_size : float, default 1e4
        η. The default is the paper's, for its synthetic panel; panels in other units need another.
    iterations : int, default 1000
        t.
    penalty : float, default 1e-4
        λ of the incoherence penalty.
    alpha : float, default 1e-3
        α: rows of the factor shorter than this are not penalised.
    p : float, optional
        The probability with which each entry was observed, if known; it sets the weight of the diagonal,
        q = 1 − (1 − p²)ⁿ. Otherwise q is the share of off-diagonal pairs that were observed.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    factor_ : array of d × rank
        X after the last iteration; ``second_moment_`` is XXᵀ, and ``second_moment_.algorithm1`` what Algorithm 1
        returns.
    components_, eigenvalues_ : arrays of rank × d and rank
        The top eigenpairs, by value, of Algorithm 1's output, which may be indefinite.
    mean_ : array of d
        Zeros: the algorithm does not centre.
    second_moment_ : SecondMoment
    solve_ : SolveResult
    column_ids_ : array of d

    Examples
    --------
    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.low_rank_gaussian(2000, 50, 2, rng=0), 5, rng=1)
    >>> HajekGD(rank=2, step_size=500.0, random_state=0).fit(panel).solve_.status
    'completed'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rank": [Interval(Integral, 1, None, closed="left")],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "iterations": [Interval(Integral, 1, None, closed="left")],
        "penalty": [Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "p": [Interval(Real, 0, 1, closed="right"), None],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        rank: int = 10,
        *,
        step_size: float = 1e4,
        iterations: int = 1000,
        penalty: float = 1e-4,
        alpha: float = 1e-3,
        p: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.step_size = step_size
        self.iterations = iterations
        self.penalty = penalty
        self.alpha = alpha
        self.p = p
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fit to a panel, a scipy sparse matrix (stored zeros are observations) or a dense array with NaN."""
        self._validate_params()
        panel = self._read_for_fit(X)
        check_fittable(panel, self.rank)
        rng = generator(self.random_state)
        start = random_start(panel.n_columns, self.rank, rng)
        start[panel.column_counts == 0] = 0.0  # no pair would ever move them from where they began
        q = None if self.p is None else -np.expm1(panel.n_rows * np.log1p(-min(self.p**2, 1 - 1e-16)))
        with single_blas_thread():
            moments = PairMoments.from_panel(panel)
            objective = PairObjective(moments, penalty=self.penalty, alpha=self.alpha, diagonal_weight=q)
            self.solve_ = gradient_descent(
                objective.value_and_gradient,
                start,
                step_size=self.step_size,
                iterations=self.iterations,
                progress=progress,
            )
            if self.solve_.status == "diverged":
                raise InputError(f"{self.solve_.message}; try step_size={_stable_step(moments, rng):.1g}")
            self.mean_ = np.zeros(panel.n_columns)
            self._set_row_space(self.solve_.factor, Measured.from_panel(panel), panel, moments)
            values, vectors = top_eigenpairs(self.second_moment_.algorithm1, self.rank, rng)
        signs = np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(self.rank)])
        self.eigenvalues_, self.components_ = values, (vectors * np.where(signs < 0, -1.0, 1.0)).T
        return self

    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``, by least squares on their observed entries."""
        return self._predictor().coordinates(self._read_for_use(X, unknown))

    def impute(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Algorithm 2: rows filled in, as a dense array; observed entries stay as they are."""
        return self._predictor().impute(self._read_for_use(X, unknown))

    def impute_at(self, X: Any, rows: Any, columns: Any, *, unknown: Unknown = "refuse") -> Array:
        """Predictions at positions of X: row positions and column positions of the model, of one length."""
        panel = self._read_for_use(X, unknown)
        return self._predictor().impute_at(panel, *check_positions(panel, rows, columns))

    def _predictor(self) -> LeastSquares:
        check_is_fitted(self)
        return LeastSquares(np.ascontiguousarray(self.components_.T))


def _stable_step(moments: PairMoments, rng: np.random.Generator) -> float:
    """A step that does not diverge: near the minimum, the curvature of the loss is at most 4 λ / |Ω|.

    λ is the largest eigenvalue of T, or of the random start, whose is one; a quarter is left for the way there.
    """
    i, j = moments.pairs()
    largest, _ = top_eigenpairs(aslinearoperator(moments.to_matrix(hajek(moments))), 1, rng)
    return float((moments.n_pairs + np.count_nonzero(i != j)) / (8 * max(largest[0], 1.0)))
