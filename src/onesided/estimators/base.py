"""What estimators share: reading input, scoring, views of the fitted row space, and the way to and from disk."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from onesided.arrays import Array
from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, check_choice, counted, warn
from onesided.estimators.saving import load_model, save_model
from onesided.fitting.objective.rows import mean_squared_pair_error
from onesided.fitting.solvers.result import SolveResult
from onesided.model.row_space import RowSpace
from onesided.model.second_moment import SecondMoment
from onesided.pairs.measured import Measured
from onesided.panels.convert import column_names
from onesided.panels.panel import Panel, as_panel
from onesided.panels.panel_like import PanelLike

Unknown = Literal["refuse", "drop"]


class OneSidedEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer over a fitted row space; subclasses fit it and predict rows.

    ``row_space_`` is the model. The other fitted attributes are views of it, or say how it was found. A method without
    a model of the noise predicts rows in its own way, and its T may leave the means out.
    """

    random_state: Any
    row_space_: RowSpace
    second_moment_: SecondMoment
    components_: Array
    eigenvalues_: Array
    solve_: SolveResult

    _saved_arrays: ClassVar[tuple[str, ...]] = ()  # that the file has beside those of the row space
    _optional: ClassVar[tuple[str, ...]] = ()

    @property
    def factor_(self) -> Array:
        """X, d × r."""
        return self.row_space_.factor

    @property
    def mean_(self) -> Array:
        """Column means."""
        return self.row_space_.mean

    @property
    def measured_(self) -> Measured:
        """What the panel measured of its columns."""
        return self.row_space_.known_of_columns

    @property
    def column_ids_(self) -> Array:
        """The id of each column; its position where none was given."""
        ids = self.row_space_.column_ids
        return np.arange(self.row_space_.n_columns) if ids is None else ids

    def _hold(self, space: RowSpace, panel: PanelLike | None) -> None:
        """Hold a fitted row space and, where it may be kept, the panel it was fitted to; set what follows from them."""
        raise NotImplementedError

    def _read_for_fit(self, X: Any) -> PanelLike:
        """The panel to fit. What an earlier fit left is forgotten: should this one fail, the estimator is unfitted."""
        self._forget()
        panel = self._read(X, reset=True)
        self.n_features_in_ = panel.n_columns
        return panel

    def _forget(self) -> None:
        """Unfitted again."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _read_for_use(self, X: Any, unknown: Unknown = "refuse") -> PanelLike:
        """Rows over the model's columns: matched by id where both have ids, otherwise by position."""
        check_is_fitted(self)
        check_choice("unknown", unknown, ("refuse", "drop"))
        panel, ids = self._read(X, reset=False), self.row_space_.column_ids
        if panel.has_column_ids and ids is not None:
            return panel.align_columns(ids, unknown=unknown)
        if panel.n_columns != self.row_space_.n_columns:
            without = "the model has" if panel.has_column_ids else "they have"
            raise InputError(
                f"the rows have {counted(panel.n_columns, 'column')} and the model {self.row_space_.n_columns}, "
                f"and {without} no ids to match them by"
            )
        return panel

    def _read(self, X: Any, *, reset: bool) -> PanelLike:
        if isinstance(X, PanelLike):
            return X
        if hasattr(X, "tocoo"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            try:
                return as_panel(X)
            except InputError as error:
                raise error.followed_by(" (these are options of Panel.from_sparse: make the panel first)") from error
        if column_names(X) is not None:
            if reset or self.row_space_.column_ids is None or hasattr(self, "feature_names_in_"):
                validate_data(self, X, reset=reset, skip_check_array=True)
            return Panel.from_dense(X)
        values = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        return Panel.from_dense(values)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "second_moment_")

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def score(self, X: Any, y: Any = None) -> float:
        """The held-out row score: minus the mean squared error of predicted products of two entries.

        Over all pairs i ≠ j of entries of the same row of X, the mean of (T_ij − v_i v_j)² / (s_i s_j)² with T the
        low-rank output and s the columns' scales as estimated from the rows that were fitted, one with
        ``scale="none"``; rows weigh by their weights. Larger is better. Models that were fitted to the same rows can be
        compared, unless their ``scale`` differs.
        """
        panel = self._read_for_use(X)
        with single_blas_thread():
            return -mean_squared_pair_error(panel, self.second_moment_.low_rank.factor, self.row_space_.units_of_errors)

    def save(self, path: str | os.PathLike[str], *, panel: bool = True) -> None:
        """Write the fitted model to one file.

        With ``panel=False`` the observed entries and the row ids stay behind: the file is small, and of T only the
        low-rank part and the measured diagonal remain. That is not anonymous: a column seen once has its value as
        its mean. A bootstrap stays behind in any case.
        """
        check_is_fitted(self)
        save_model(self, path, panel)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a fitted model back."""
        return load_model(cls, path)

    def _fitted_settings(self) -> dict[str, Any]:
        """What was fitted beside arrays and the row space, as JSON takes it."""
        return {}

    def _restore(self, fitted: dict[str, Any]) -> None:
        """The inverse of :meth:`_fitted_settings`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def generator(random_state: Any) -> np.random.Generator:
    """A numpy Generator from whatever scikit-learn accepts as ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, Integral):
        return np.random.default_rng(None if random_state is None else int(random_state))
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def warn_of_parts(measured: Measured) -> None:
    """Tell the caller of a fit that columns fall into parts between which nothing is known."""
    parts = int(measured.parts.max()) + 1
    if parts > 1:
        others = counted(int(np.count_nonzero(measured.parts > 0)), "column is", "columns are")
        warn(
            f"the panel falls into {parts:,} parts that no chain of rows links; {others} outside the largest: no data "
            "support the entries of T between parts, nor values imputed from one to another; measured_.parts tells "
            "which column is in which"
        )
