"""What completions of the whole matrix share: M̂ = A Bᵀ, and T from it."""

from __future__ import annotations

import os
from copy import copy
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onesided.arrays import Array
from onesided.baselines.baseline import Baseline
from onesided.errors import InputError
from onesided.model.axes import principal_axes
from onesided.model.imputation import check_positions
from onesided.model.row_space import RowSpace, noiseless
from onesided.panels.panel import Panel


class MatrixBaseline(Baseline):
    """M̂ = A Bᵀ with a line of A for each row of the panel, and T = B (Aᵀ diag(w) A / Σw) Bᵀ over rows with entries.

    ``fitted_at`` reads M̂ itself, at rows that were fitted; ``impute`` and ``impute_at`` find the coordinates of any
    rows anew, given B.
    """

    row_factors_: Array | None
    column_factors_: Array

    def fitted_at(self, rows: Any, columns: Any) -> Array:
        """Entries of the completed matrix, at row positions of the panel that was fitted and column positions."""
        check_is_fitted(self)
        panel = self.second_moment_.panel
        if panel is None or self.row_factors_ is None:
            raise InputError(
                "the completed matrix needs the rows' factors, and this model was saved without its panel; "
                "use impute_at, or save the model together with its panel"
            )
        rows, columns = check_positions(panel, rows, columns)
        return np.asarray(np.einsum("ka,ka->k", self.row_factors_[rows], self.column_factors_[columns]))

    def save(self, path: str | os.PathLike[str], *, panel: bool = True) -> None:
        """Write the fitted model to one file; with ``panel=False`` the factors of the rows stay behind, too."""
        check_is_fitted(self)
        model = self
        if not panel:
            model = copy(self)
            model.row_factors_ = None
        super(MatrixBaseline, model).save(path, panel=panel)

    def _with_factors(self, A: Array, B: Array, panel: Panel) -> RowSpace:
        """Keep both factors, and make of them that of T."""
        self.row_factors_, self.column_factors_ = A, B
        weights = np.where(panel.row_counts > 0, panel.row_weights, 0.0)  # of the others nothing was completed
        scaled = A * np.sqrt(weights / weights.sum())[:, None]
        triangle: Array = np.asarray(np.linalg.qr(scaled, mode="r"))
        return noiseless(principal_axes(B @ triangle.T))

    def _loadings(self) -> Array:
        return self.column_factors_

    _saved_arrays: ClassVar[tuple[str, ...]] = ("row_factors", "column_factors")
    _optional: ClassVar[tuple[str, ...]] = ("row_factors",)
