"""What a row space is fitted with, what a fit returns, and which panels can be fitted at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onesided.errors import InputError
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.scales import Scale
from onesided.fitting.solvers.result import SolveResult
from onesided.model.row_space import RowSpace
from onesided.panels.panel_like import AnyPanel, PanelLike

REFINE_PASSES = 35

Center = Literal["none", "columns", "both"]


@dataclass(frozen=True)
class Setting:
    """What a row space is fitted with; the fields are parameters of :class:`onesided.OneSidedCompletion`.

    >>> from onesided import synthetic
    >>> from onesided.fitting.row_space import fit_row_space
    >>> panel = synthetic.sample_fixed(synthetic.noisy_mixture(500, 20, 2, sigma=0.5, rng=0), 6, rng=1)
    >>> fits = [fit_row_space(panel, Setting(rank), rng=0) for rank in (0, 1)]
    >>> [round(float(fit.row_space.noise_variance.mean()), 2) for fit in fits]  # a factor leaves less of it
    [0.02, 0.01]
    """

    rank: int
    center: Center = "columns"
    diagonal: Diagonal = "free"
    refined: bool = True
    weight_exponent: float = -0.5
    ridge: float = 1.0
    tol: float = 1e-6
    max_passes: int = 300
    refine_passes: int = REFINE_PASSES
    scale: Scale = "none"


@dataclass(frozen=True)
class Refinement:
    """How the variational passes ended.

    ``change`` is what the last one moved: means, in standard deviations, or loadings, relative to their size, whichever
    is more. Below 1e-3 it has settled; at the limit of passes it may not have.

    >>> from onesided import synthetic
    >>> from onesided.fitting.row_space import fit_row_space
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> ended = fit_row_space(panel, Setting(2, center="none"), rng=0).refinement
    >>> ended.passes < REFINE_PASSES, ended.settled
    (True, True)
    """

    passes: int
    change: float
    settled: bool = True


@dataclass(frozen=True, eq=False)
class Fit:
    """A row space, how the solver of its moment solution ended, and how its refinement did, if there was one.

    ``to_go_on`` is what further passes of the refinement begin with (:mod:`onesided.fitting.refinement`).

    >>> from onesided import synthetic
    >>> from onesided.fitting.moment_solution import moment_solution
    >>> truth = synthetic.linear_mixture(2000, 30, 2, rng=0)
    >>> space = moment_solution(synthetic.sample_fixed(truth, 6, rng=1), Setting(2)).row_space
    >>> error = np.outer(space.mean, space.mean) + space.factor @ space.factor.T - truth.second_moment()
    >>> bool(np.linalg.norm(error) < 0.15 * np.linalg.norm(truth.second_moment()))
    True
    """

    row_space: RowSpace
    solve: SolveResult
    refinement: Refinement | None = None
    to_go_on: Any = None


def check_fittable(panel: PanelLike, rank: int = 0) -> None:
    """Refuse a panel from which no row space of this rank can be learnt."""
    n, d = panel.shape
    if panel.n_entries == 0 or not np.any(panel.row_weights[panel.row_counts > 0]):
        raise InputError(f"nothing was observed: {n} rows and {d} columns, but no entry of positive weight")
    check_rank(rank, d)
    if not np.any(panel.row_weights[panel.row_counts > 1]):
        raise InputError(
            "no row has two observed entries, so no two columns were ever seen together: "
            "there is nothing to learn a row space from"
        )


def check_rank(rank: int, n_columns: int) -> None:
    """Refuse a rank above the number of columns, and a single column."""
    if n_columns == 1:
        raise InputError("the panel has one column (n_features = 1); a row space needs at least two")
    if rank > n_columns:
        raise InputError(f"rank={rank} is larger than the panel's {n_columns} columns; choose at most {n_columns}")


def with_weights_as_counts(panel: AnyPanel) -> AnyPanel:
    """The panel as it is, or with weights of mean one where all are below one and so cannot count rows."""
    used = panel.row_weights[panel.row_weights > 0]
    if len(used) == 0 or used.max() >= 1:
        return panel
    return panel.with_row_weights(panel.row_weights / used.mean())
