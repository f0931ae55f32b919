"""Models on disk: a row space, the parameters it was fitted with and what the fit says of itself, in one file."""

from __future__ import annotations

import os
from dataclasses import asdict
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from onesided.errors import InputError
from onesided.fitting.selection import Selection, Trial
from onesided.fitting.setting import Refinement, Setting
from onesided.fitting.solvers.result import SolveResult
from onesided.model.files import add_row_space, stored_row_space
from onesided.model.row_space import RowSpace
from onesided.panels.files import add_panel, stored_panel
from onesided.privacy.curator import Account, Release
from onesided.privacy.plan import Privacy
from onesided.storage.archive import Archive, read, write
from onesided.storage.provenance import Provenance

if TYPE_CHECKING:
    from onesided.estimators.base import OneSidedEstimator

Model = TypeVar("Model", bound="OneSidedEstimator")


def save_model(model: OneSidedEstimator, path: str | os.PathLike[str], panel: bool) -> None:
    """Write a fitted estimator, with the panel it holds or without."""
    settings = {
        "estimator": type(model).__name__,
        "parameters": plain_parameters(model),
        "solve": {name: getattr(model.solve_, name) for name in ("status", "history", "passes", "detail")},
        "names": hasattr(model, "feature_names_in_"),
        "fitted": model._fitted_settings(),
    }
    arrays = {name: getattr(model, f"{name}_") for name in model._saved_arrays}
    archive = Archive("model", settings, {name: array for name, array in arrays.items() if array is not None})
    add_row_space(archive, model.row_space_)
    if panel and model.second_moment_.panel is not None:
        add_panel(archive, model.second_moment_.panel)
    write(archive, path)


def load_model(cls: type[Model], path: str | os.PathLike[str]) -> Model:
    """Read a fitted estimator of a class back."""
    archive = read(path, "model")
    if archive.settings.get("estimator") != cls.__name__:
        raise InputError(f"{path} holds a {archive.settings.get('estimator')}; load it with that class")
    try:
        return _restored(cls, archive)
    except InputError as error:
        raise error.followed_by(f" (found in {path})") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is incomplete: {error} is missing or of the wrong kind") from error


def _restored(cls: type[Model], archive: Archive) -> Model:
    settings, space = archive.settings, stored_row_space(archive)
    parameters = settings["parameters"]
    if parameters.get("privacy") is not None:
        parameters["privacy"] = _stored_plan(parameters["privacy"], settings["fitted"], space)
    model = cls(**parameters)
    for name in cls._saved_arrays:
        setattr(model, f"{name}_", archive.arrays[name] if name not in cls._optional else archive.arrays.get(name))
    model.n_features_in_ = space.n_columns
    if settings["names"]:
        model.feature_names_in_ = space.column_ids
    solve = settings["solve"]
    model.solve_ = SolveResult(space.factor, solve["status"], tuple(solve["history"]), solve["passes"], solve["detail"])
    model._restore(settings["fitted"])
    model._hold(space, stored_panel(archive))
    return model


def plain_parameters(model: OneSidedEstimator) -> dict[str, Any]:
    """The parameters of an estimator, as JSON takes them."""
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in model.get_params().items()
    }
    here = {"engine": "local", "device": "cpu"}  # of this machine, not of the model
    plain |= {name: value for name, value in here.items() if name in plain}
    if "random_state" in plain:  # a generator's state is not part of the model
        seed = plain["random_state"]
        plain["random_state"] = int(seed) if isinstance(seed, Integral) else None
    if plain.get("privacy") is not None:  # the plan's columns are those of the model
        listed = plain["privacy"].columns
        plain["privacy"] = asdict(plain["privacy"]) | {"columns": "public" if listed == "public" else None}
    return plain


def _stored_plan(plan: dict[str, Any], fitted: dict[str, Any], space: RowSpace) -> Privacy:
    columns = plan["columns"]
    if fitted.get("privacy") is not None and fitted["columns_listed"]:
        columns = tuple(range(space.n_columns) if space.column_ids is None else space.column_ids.tolist())
    return Privacy(**(plan | {"bounds": tuple(plan["bounds"]), "columns": columns}))


def stored_selection(stored: dict[str, Any] | None) -> Selection | None:
    """A selection from what JSON has of it."""
    if stored is None:
        return None
    trials = tuple(Trial(**trial) for trial in stored["trials"])
    return Selection(**(stored | {"setting": Setting(**stored["setting"]), "trials": trials}))


def stored_account(stored: dict[str, Any] | None) -> Account | None:
    """An account from what JSON has of it."""
    if stored is None:
        return None
    return Account(**(stored | {"releases": tuple(Release(**release) for release in stored["releases"])}))


def stored_refinement(stored: dict[str, Any] | None) -> Refinement | None:
    """How a refinement ended, from what JSON has of it."""
    return None if stored is None else Refinement(**stored)


def stored_provenance(stored: dict[str, Any] | None) -> Provenance:
    """How a model was made, from what JSON has of it."""
    return Provenance(versions={}) if stored is None else Provenance(**stored)
