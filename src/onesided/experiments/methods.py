"""The methods that experiments compare, each fitted the same way and asked the same questions.

``SETTINGS`` says how each is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided import synthetic
from onesided.baselines import (
    AlternatingGD,
    ColumnMeans,
    Constant,
    ConvexNuclearNorm,
    FactorAnalysisEM,
    FactoredNuclearNorm,
    SoftImputeALS,
)
from onesided.completion import HajekGD, OneSidedCompletion
from onesided.moments import PairMoments
from onesided.omega import pair_size
from onesided.panel import Panel
from onesided.second_moment import SecondMoment
from onesided.solvers.gradient_descent import stable_step

Array = npt.NDArray[Any]

RANK = 10
SETTINGS = (
    "The settings are those of the paper's appendix, rank 10 among them, but for Hájek-GD: values are divided by √d "
    "times their root mean square first, so that the paper's λ = 10⁻⁴ and α = 10⁻³ fit every panel, and 500 steps of "
    "the inverse of the largest curvature are made, which go as far as 1,000 of half the length. Over more than 20 "
    "million pairs it and the factored nuclear norm have 200 iterations. The penalties of softImpute-ALS and of the "
    "convex program are chosen on held-out data, and the latter is solved to 10⁻³. OneSidedCompletion has nothing set."
)
MANY_PAIRS = 20_000_000
FEW_ITERATIONS = 200  # where there are so many


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a method made of a panel: T in one output or two, values of M at positions, and how long the fit took."""

    outputs: dict[str, SecondMoment]
    predict: Callable[[Array, Array], Array]  # rows and columns of the panel that was fitted
    seconds: float
    scale: float = 1.0  # what T is to be multiplied by
    rank: int | None = None  # where the method chose it

    def at(self, output: str) -> Callable[[Array, Array], Array]:
        """T at pairs of columns."""
        return lambda i, j: self.scale * self.outputs[output].at(i, j)

    def to_dense(self, output: str) -> Array:
        """All of T."""
        return self.scale * self.outputs[output].to_dense()


Method = Callable[[Panel, int, int], Fitted]  # a panel, a rank and a seed


def fit(method: str, panel: Panel, *, seed: int, rank: int = RANK) -> Fitted:
    """Fit one of ``METHODS`` to a panel.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(300, 20, 2, rng=0), 5, rng=1)
    >>> fit("column means", panel, seed=0).to_dense("T").shape
    (20, 20)
    """
    compiled(method, panel.values.dtype)
    return METHODS[method](panel, rank, seed)


@cache
def compiled(method: str, dtype: np.dtype[Any]) -> None:
    """See to it that what a method needs is compiled, so that no fit is charged for it."""
    truth = synthetic.linear_mixture(60, 12, 2, rng=0)
    METHODS[method](synthetic.sample_fixed(truth, 6, rng=0, dtype=dtype), 2, 0)


def _timed(estimator: Any, panel: Panel) -> tuple[Any, float]:
    start = perf_counter()
    estimator.fit(panel)
    return estimator, perf_counter() - start


def _inductive(make: Callable[[int, int], Any]) -> Method:
    """A method that predicts rows from their entries."""

    def fitted(panel: Panel, rank: int, seed: int) -> Fitted:
        model, seconds = _timed(make(rank, seed), panel)
        return Fitted({"T": model.second_moment_}, lambda rows, columns: model.impute_at(panel, rows, columns), seconds)

    return fitted


def _transductive(make: Callable[[int, int], Any]) -> Method:
    """A method that completes the matrix it was fitted to."""

    def fitted(panel: Panel, rank: int, seed: int) -> Fitted:
        model, seconds = _timed(make(rank, seed), panel)
        return Fitted({"T": model.second_moment_}, model.fitted_at, seconds)

    return fitted


def _onesided(panel: Panel, rank: int, seed: int) -> Fitted:
    model, seconds = _timed(OneSidedCompletion(random_state=seed), panel)
    return Fitted(
        {"T": model.second_moment_},
        lambda rows, columns: model.impute_at(panel, rows, columns),
        seconds,
        rank=model.rank_,
    )


def _hajek_gd(panel: Panel, rank: int, seed: int) -> Fitted:
    size = float(np.sqrt(np.mean(np.square(panel.values, dtype=np.float64)) * panel.n_columns))
    scaled = Panel(panel.indptr, panel.columns, panel.values / size, panel.n_columns)
    step = 2 * stable_step(PairMoments.from_panel(scaled), np.random.default_rng(seed))
    model, seconds = _timed(
        HajekGD(rank, step_size=step, iterations=_iterations(panel, 500), random_state=seed), scaled
    )
    return Fitted(
        {"XXᵀ": model.second_moment_, "Algorithm 1": model.second_moment_.algorithm1},
        lambda rows, columns: size * model.impute_at(scaled, rows, columns),
        seconds,
        scale=size**2,
    )


def _factored(panel: Panel, rank: int, seed: int) -> Fitted:
    iterations = _iterations(panel, 1_000)
    return _inductive(lambda rank, seed: FactoredNuclearNorm(rank, iterations=iterations, random_state=seed))(
        panel, rank, seed
    )


def _iterations(panel: Panel, usual: int) -> int:
    return usual if pair_size(panel).pairs <= MANY_PAIRS else FEW_ITERATIONS


METHODS: dict[str, Method] = {
    "constant": _inductive(lambda rank, seed: Constant()),
    "column means": _inductive(lambda rank, seed: ColumnMeans()),
    "shrunk column means": _inductive(lambda rank, seed: ColumnMeans(shrink=True)),
    "alternating GD": _transductive(lambda rank, seed: AlternatingGD(rank, random_state=seed)),
    "softImpute-ALS": _transductive(lambda rank, seed: SoftImputeALS(rank, random_state=seed)),
    "nuclear norm, factored": _factored,
    "nuclear norm, convex": _inductive(lambda rank, seed: ConvexNuclearNorm(rank, tol=1e-3, random_state=seed)),
    "factor analysis by EM": _inductive(lambda rank, seed: FactorAnalysisEM(rank, random_state=seed)),
    "Hájek-GD": _hajek_gd,
    "OneSidedCompletion": _onesided,
    "OneSidedCompletion of that rank": _inductive(
        lambda rank, seed: OneSidedCompletion(rank, center="both", diagonal="free", random_state=seed)
    ),
}

COMPARED = tuple(METHODS)[:-1]  # in tables 3 and 4
