"""The methods that experiments compare, each fitted the same way and asked the same questions.

``SETTINGS`` says how each is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from onesided import synthetic
from onesided.arrays import Array
from onesided.baselines import (
    AlternatingGD,
    ColumnMeans,
    Constant,
    ConvexNuclearNorm,
    FactorAnalysisEM,
    FactoredNuclearNorm,
    SoftImputeALS,
)
from onesided.estimators.completion import OneSidedCompletion
from onesided.estimators.hajek_gd import HajekGD
from onesided.experiments.synthetic_recovery import step_size
from onesided.fitting.solvers.gradient_descent import stable_step
from onesided.model.second_moment import SecondMoment
from onesided.pairs.moments import PairMoments
from onesided.pairs.size import pair_size
from onesided.panels.panel import Panel

RANK = 10
PRINTED = "Hájek-GD as printed"  # with the step and the iterations that the paper chose for its synthetic panel
SETTINGS = (
    "The settings are those of the paper's appendix, rank 10 among them. Steps and penalties belong to units, so "
    "that values are divided by a number first: to a root mean square of 1/√d for Hájek-GD, as on the paper's "
    "synthetic panel, and of one for alternating GD and the factored nuclear norm, whose steps have the length 0.1. "
    "Hájek-GD makes 500 steps of the inverse of the largest curvature, which go as far as 1,000 of half the length; "
    "over more than 20 million pairs it and the factored nuclear norm have 200 iterations. The penalties of "
    "softImpute-ALS and of the convex program are chosen on held-out data; the former makes at most 100 iterations for "
    "each, for the sake of time and often before it has converged, and the latter is solved to 10⁻³. "
    "OneSidedCompletion has nothing set."
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


def _by(make: Callable[[Panel, int, int], Any]) -> Method:
    """The method of an estimator, which predicts rows from their entries or completes the matrix it was fitted to."""

    def fitted(panel: Panel, rank: int, seed: int) -> Fitted:
        model = make(panel, rank, seed)
        start = perf_counter()
        model.fit(panel)
        seconds, T = perf_counter() - start, model.second_moment_
        outputs = {"XXᵀ": T, "Algorithm 1": T.algorithm1} if isinstance(model, HajekGD) else {"T": T}
        predict = getattr(model, "fitted_at", partial(model.impute_at, panel))
        chosen = model.rank_ if getattr(model, "rank", None) == "auto" else None
        return Fitted(outputs, predict, seconds, rank=chosen)

    return fitted


def _hajek_gd(panel: Panel, rank: int, seed: int) -> HajekGD:
    step = 2 * stable_step(PairMoments.from_panel(panel), np.random.default_rng(seed))
    return HajekGD(rank, step_size=step, iterations=_iterations(panel, 500), random_state=seed)


def _factored(panel: Panel, rank: int, seed: int) -> FactoredNuclearNorm:
    return FactoredNuclearNorm(rank, iterations=_iterations(panel, 1_000), random_state=seed)


def _with_size(size: Callable[[int], float], method: Method) -> Method:
    """A method on values of a root mean square that depends on d, with what it finds in the units of the panel."""

    def fitted(panel: Panel, rank: int, seed: int) -> Fitted:
        unit = float(np.sqrt(np.mean(np.square(panel.values, dtype=np.float64)))) / size(panel.n_columns)
        found = method(Panel(panel.indptr, panel.columns, panel.values / unit, panel.n_columns), rank, seed)
        return replace(found, predict=lambda rows, columns: unit * found.predict(rows, columns), scale=unit**2)

    return fitted


def _iterations(panel: Panel, usual: int) -> int:
    return usual if pair_size(panel).pairs <= MANY_PAIRS else FEW_ITERATIONS


METHODS: dict[str, Method] = {
    "constant": _by(lambda panel, rank, seed: Constant()),
    "column means": _by(lambda panel, rank, seed: ColumnMeans()),
    "shrunk column means": _by(lambda panel, rank, seed: ColumnMeans(shrink=True)),
    "alternating GD": _with_size(lambda d: 1.0, _by(lambda panel, rank, seed: AlternatingGD(rank, random_state=seed))),
    "softImpute-ALS": _by(lambda panel, rank, seed: SoftImputeALS(rank, max_iterations=100, random_state=seed)),
    "nuclear norm, factored": _with_size(lambda d: 1.0, _by(_factored)),
    "nuclear norm, convex": _by(lambda panel, rank, seed: ConvexNuclearNorm(rank, tol=1e-3, random_state=seed)),
    "factor analysis by EM": _by(lambda panel, rank, seed: FactorAnalysisEM(rank, random_state=seed)),
    "Hájek-GD": _with_size(lambda d: d**-0.5, _by(_hajek_gd)),
    "OneSidedCompletion": _by(lambda panel, rank, seed: OneSidedCompletion(random_state=seed)),
    PRINTED: _by(lambda panel, rank, seed: HajekGD(rank, step_size=step_size(panel.n_columns), random_state=seed)),
    "OneSidedCompletion of that rank": _by(
        lambda panel, rank, seed: OneSidedCompletion(rank, center="both", diagonal="free", random_state=seed)
    ),
}

COMPARED = tuple(METHODS)[:-2]  # in tables 3 and 4
