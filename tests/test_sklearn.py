"""Estimators keep scikit-learn's contract."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from onesided import HajekGD, OneSidedCompletion
from tests.test_baselines import BASELINES

# The checks use a handful of columns in all kinds of units: a rank that fits them, and for gradient descent a step
# short enough for the largest. No check is excepted.
ESTIMATORS = [
    OneSidedCompletion(rank=2, random_state=0),
    HajekGD(rank=2, step_size=1e-6, iterations=30, random_state=0),
    *BASELINES,
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)


def sparse_table(seed=0):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(400, 8))
    return np.where(rng.random(M.shape) < 0.6, M, np.nan)


def test_grid_search_uses_the_held_out_row_score():
    search = GridSearchCV(OneSidedCompletion(center="none", random_state=0), {"rank": [1, 2]}, cv=3)
    search.fit(sparse_table())
    assert search.best_params_ == {"rank": 2}


def test_pipelines_and_clones():
    X = sparse_table()
    pipeline = make_pipeline(StandardScaler(), OneSidedCompletion(rank=2, random_state=0))
    np.testing.assert_array_equal(pipeline.fit_transform(X), clone(pipeline).fit(X).transform(X))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_as_a_data_frame(library):
    frame_library = pytest.importorskip(library)
    model = OneSidedCompletion(rank=2, random_state=0).set_output(transform=library)
    frame = frame_library.DataFrame({f"c{k}": column for k, column in enumerate(sparse_table().T)})
    out = model.fit_transform(frame)
    assert list(out.columns) == ["onesidedcompletion0", "onesidedcompletion1"]
    assert model.column_ids_.tolist() == [f"c{k}" for k in range(8)]
    assert model.second_moment_["c0", "c1"].status == "measured"


def test_what_is_not_public_of_scikit_learn_is_still_there():
    """It was there in 1.6 and in 1.9. Should it go, ``estimators/parameters.py`` is the one place to change."""
    version = f"scikit-learn {sklearn.__version__}"
    assert find_spec("sklearn.utils._param_validation") is not None, f"ranges of parameters are gone in {version}"
    validation = import_module("sklearn.utils._param_validation")
    for owner, name in ((validation, "Interval"), (validation, "StrOptions"), (BaseEstimator, "_validate_params")):
        assert hasattr(owner, name), f"{name} is gone in {version}"
