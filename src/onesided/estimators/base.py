"""What estimators share: reading input, scoring, and the way to and from disk."""

from __future__ import annotations

import os
import warnings
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from onesided.engines.threads import single_blas_thread
from onesided.errors import InputError, check_choice, counted
from onesided.fitting.objective.rows import mean_squared_pair_error
from onesided.fitting.solvers.result import SolveResult
from onesided.model.second_moment import SecondMoment
from onesided.pairs.measured import Measured
from onesided.panels.convert import column_names
from onesided.panels.files import add_panel, stored_panel
from onesided.panels.panel import Panel, as_panel
from onesided.panels.panel_like import AnyPanel, PanelLike
from onesided.storage.archive import Archive, read, write

Array = npt.NDArray[Any]
Unknown = Literal["refuse", "drop"]

MEASURED = ("diagonal", "means", "counts", "parts")


class OneSidedEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer with a second moment; subclasses fit it and predict rows."""

    random_state: Any
    second_moment_: SecondMoment
    factor_: Array
    mean_: Array
    components_: Array
    eigenvalues_: Array
    solve_: SolveResult

    def _read_for_fit(self, X: Any) -> PanelLike:
        """The panel to fit. What an earlier fit left is forgotten: should this one fail, the estimator is unfitted."""
        self._forget()
        panel = self._read(X, reset=True)
        self.n_features_in_ = panel.n_columns
        self.column_ids_ = panel.column_ids
        self._has_ids = panel.has_column_ids
        return panel

    def _forget(self) -> None:
        """Unfitted again."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _read_for_use(self, X: Any, unknown: Unknown = "refuse") -> PanelLike:
        """Rows over the model's columns: matched by id where both have ids, otherwise by position."""
        check_is_fitted(self)
        check_choice("unknown", unknown, ("refuse", "drop"))
        panel = self._read(X, reset=False)
        if panel.has_column_ids and self._has_ids:
            return panel.align_columns(self.column_ids_, unknown=unknown)
        if panel.n_columns != len(self.column_ids_):
            without = "the model has" if panel.has_column_ids else "they have"
            raise InputError(
                f"the rows have {counted(panel.n_columns, 'column')} and the model {len(self.column_ids_)}, "
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
                raise InputError(f"{error} (these are options of Panel.from_sparse: make the panel first)") from error
        if column_names(X) is not None:
            if reset or not self._has_ids or hasattr(self, "feature_names_in_"):
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

        Over all pairs i ≠ j of entries of the same row of X, the mean of (T_ij − v_i v_j)² with T the low-rank
        output, rows weighed by their weights. Larger is better; models can be compared on the same rows.
        """
        panel = self._read_for_use(X)
        with single_blas_thread():
            return -mean_squared_pair_error(panel, self.second_moment_.low_rank.factor)

    def _set_row_space(self, measured: Measured, panel: PanelLike | None) -> None:
        """Set what follows from the fitted arrays, the second moment among it."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, panel: bool = True) -> None:
        """Write the fitted model to one file.

        With ``panel=False`` the observed entries and the row ids stay behind: the file is small, and of T only the
        low-rank part and the measured diagonal remain. That is not anonymous: a column seen once has its value as
        its mean. A bootstrap stays behind in any case.
        """
        check_is_fitted(self)
        parameters = self._plain_parameters()
        settings = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "solve": {name: getattr(self.solve_, name) for name in ("status", "history", "passes", "detail")},
            "names": bool(hasattr(self, "feature_names_in_")),
            "fitted": self._fitted_settings(),
        }
        arrays = {
            name: getattr(self, f"{name}_") for name in self._saved_arrays if getattr(self, f"{name}_") is not None
        }
        arrays |= {f"measured.{name}": getattr(self.measured_, name) for name in MEASURED}
        archive = Archive("model", settings, arrays, {"columns": self.column_ids_} if self._has_ids else {})
        if panel and self.second_moment_.panel is not None:
            add_panel(archive, self.second_moment_.panel)
        write(archive, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a fitted model back."""
        archive = read(path, "model")
        if archive.settings.get("estimator") != cls.__name__:
            raise InputError(f"{path} holds a {archive.settings.get('estimator')}; load it with that class")
        try:
            return cls._from_archive(archive)
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} is incomplete: {error} is missing or of the wrong kind") from error

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        model = cls(**cls._parameters_of(archive.settings["parameters"]))
        for name in cls._saved_arrays:
            setattr(model, f"{name}_", archive.arrays[name] if name not in cls._optional else archive.arrays.get(name))
        model._has_ids = "columns" in archive.ids
        model.column_ids_ = archive.ids.get("columns", np.arange(len(model.factor_)))
        model.n_features_in_ = len(model.factor_)
        if archive.settings["names"]:
            model.feature_names_in_ = model.column_ids_
        solve = archive.settings["solve"]
        model.solve_ = SolveResult(
            model.factor_, solve["status"], tuple(solve["history"]), solve["passes"], solve["detail"]
        )
        measured = Measured(*(archive.arrays[f"measured.{name}"] for name in MEASURED))
        model._restore(archive.settings["fitted"])
        model._set_row_space(measured, stored_panel(archive))
        return model

    _saved_arrays: ClassVar[tuple[str, ...]] = ("factor", "mean")
    _optional: ClassVar[tuple[str, ...]] = ()

    def _plain_parameters(self) -> dict[str, Any]:
        """The parameters, as JSON takes them."""
        plain = {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in self.get_params().items()}
        if "random_state" in plain:  # a generator's state is not part of the model
            seed = plain["random_state"]
            plain["random_state"] = int(seed) if isinstance(seed, Integral) else None
        return plain

    @classmethod
    def _parameters_of(cls, plain: dict[str, Any]) -> dict[str, Any]:
        """The inverse of :meth:`_plain_parameters`."""
        return plain

    def _fitted_settings(self) -> dict[str, Any]:
        """What was fitted beside arrays, as JSON takes it."""
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


def with_weights_as_counts(panel: AnyPanel) -> AnyPanel:
    """The panel as it is, or with weights of mean one where all are below one and so cannot count rows."""
    used = panel.row_weights[panel.row_weights > 0]
    if len(used) == 0 or used.max() >= 1:
        return panel
    return panel.with_row_weights(panel.row_weights / used.mean())


def warn_of_parts(measured: Measured, stacklevel: int = 3) -> None:
    """Tell the caller of a fit that columns fall into parts between which nothing is known."""
    parts = int(measured.parts.max()) + 1
    if parts > 1:
        others = counted(int(np.count_nonzero(measured.parts > 0)), "column is", "columns are")
        warnings.warn(
            f"the panel falls into {parts:,} parts that no chain of rows links; {others} outside the largest: no data "
            "support the entries of T between parts, nor values imputed from one to another; measured_.parts tells "
            "which column is in which",
            stacklevel=stacklevel,
        )
