"""Alternating gradient descent: two factors of the whole matrix, fitted to its observed entries.

    min over A (n × r), B (d × r) of ‖P_Ω(A Bᵀ − M)‖²

by Adam on both, all entries at a time, from an isotropic Gaussian start, as the paper's appendix has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.baselines.baseline import Fitted, descended
from onesided.baselines.matrix import MatrixBaseline
from onesided.engines.threads import cut, in_order
from onesided.estimators.base import generator
from onesided.estimators.parameters import ranges
from onesided.fitting.solvers.result import Progress
from onesided.kernels import cpu, factorization
from onesided.kernels.bundles import Rows
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel

BLOCK_ENTRIES = 1 << 17


class EntryObjective:
    """‖P_Ω(A Bᵀ − M)‖², rows weighed by ``weights``, and its gradients.

    >>> objective = EntryObjective(Panel.from_dense([[2.0, np.nan], [1.0, 3.0]]), np.ones(2))
    >>> objective(np.ones((2, 1)), np.ones((2, 1)))
    (5.0, array([[-2.],
           [-4.]]), array([[-2.],
           [-4.]]))
    """

    def __init__(self, panel: Panel, weights: Array) -> None:
        self._rows = Rows.of(panel.indptr, panel.columns, panel.values, weights)
        size = max(BLOCK_ENTRIES, 4 * panel.n_columns)  # a block has a gradient over all columns
        self._blocks = [slice(*block) for block in cut(panel.indptr, size)]

    def __call__(self, A: Array, B: Array) -> tuple[float, Array, Array]:
        """The loss and its gradients in A and B, in one pass over the entries."""
        rank = A.shape[1]
        A, B = cpu.padded(A), cpu.padded(B)
        GA, GB, loss = np.empty_like(A), np.zeros_like(B), 0.0
        for part, gradient in in_order(
            lambda block: factorization.entry_pass(self._rows.taken(block), A[block], B, GA[block]), self._blocks
        ):
            loss += part
            GB += gradient
        return loss, GA[:, :rank], GB[:, :rank]


class AlternatingGD(MatrixBaseline):
    """Two factors of the whole matrix by Adam. Rate, epochs and the Gaussian start are the paper's.

    Adam's steps are as long as the learning rate whatever the values: it fits values of about one best, and what it
    makes of others depends on their unit.

    Rows and columns without entries have factors of zero. A row's weight multiplies its squared errors.

    Parameters
    ----------
    rank : int, default 10
    learning_rate : float, default 0.1
    epochs : int, default 300
        Steps, each of which sees all entries.
    start_scale : float, default 1.0
        The standard deviation of the numbers at the start.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
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
    >>> model = AlternatingGD(rank=2, random_state=0).fit(panel)
    >>> bool(np.abs(model.fitted_at([0, 1], [2, 3]) - truth.to_dense()[[0, 1], [2, 3]]).max() < 0.1)
    True
    """

    _parameter_constraints = ranges("rank", "learning_rate", "epochs", "start_scale", "random_state")

    def __init__(
        self,
        rank: int = 10,
        *,
        learning_rate: float = 0.1,
        epochs: int = 300,
        start_scale: float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.start_scale = start_scale
        self.random_state = random_state

    def _fit(self, panel: Panel, measured: Measured, progress: Progress | None) -> Fitted:
        n, objective = panel.n_rows, EntryObjective(panel, panel.row_weights)
        start = generator(self.random_state).normal(scale=self.start_scale, size=(n + panel.n_columns, self.rank))
        seen = np.concatenate([(panel.row_counts > 0) & (panel.row_weights > 0), measured.counts > 0])
        start[~seen] = 0.0  # no entry would ever move them from where they began

        def value_and_gradient(factors: Array) -> tuple[float, Array]:
            loss, *gradients = objective(factors[:n], factors[n:])
            return loss, np.concatenate(gradients)

        solve = descended(value_and_gradient, start, self.learning_rate, self.epochs, progress)
        return self._with_factors(solve.factor[:n].copy(), solve.factor[n:].copy(), panel), solve
