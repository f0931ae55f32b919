"""Ranges of parameters, as scikit-learn checks and words them, and the one that has no such range.

Interval and StrOptions are not public there, and there is no public way to say "an integer of at least one" that
:meth:`sklearn.base.BaseEstimator._validate_params` understands. They are imported here and nowhere else; a test names
the versions of scikit-learn that have them.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from onesided.errors import InputError

__all__ = ["Interval", "StrOptions", "check_noise", "ranges"]

AT_LEAST_ONE = [Interval(Integral, 1, None, closed="left")]
AT_LEAST_ZERO = [Interval(Real, 0, None, closed="left")]
ABOVE_ZERO = [Interval(Real, 0, None, closed="neither")]
RANGES: dict[str, list[Any]] = {
    **dict.fromkeys(("rank", "max_rank", "epochs", "iterations", "max_iterations"), AT_LEAST_ONE),
    **dict.fromkeys(("alpha", "incoherence", "penalty", "tol"), AT_LEAST_ZERO),
    **dict.fromkeys(("learning_rate", "start_scale", "step_size"), ABOVE_ZERO),
    "random_state": ["random_state", np.random.Generator],
}


def ranges(*names: str) -> dict[str, list[Any]]:
    """The ranges of parameters that estimators have in common, by name."""
    return {name: RANGES[name] for name in names}


def check_noise(noise_variance: Any, n_columns: int) -> None:
    """Refuse a known noise variance that is not one number, or one for each column, at least zero."""
    if noise_variance is None:
        return
    given = np.asarray(noise_variance)
    right = given.shape in ((), (n_columns,)) and given.dtype.kind in "iuf"
    if not right or not np.all(np.isfinite(given) & (given >= 0)):
        raise InputError(
            f"noise_variance must be a number, or one for each of the {n_columns} columns, finite and at least 0; "
            f"found {given.dtype} of shape {given.shape}"
        )
