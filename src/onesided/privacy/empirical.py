"""The paper's own calibration, for its figure. It promises nothing.

The paper measures by how much an estimate moves when its input does, Δ̂₂, and adds noise of

    σ = 2 √ln(1.25/δ) · Δ̂₂ / ε

to the input. Two things are missing for a guarantee. A measured sensitivity is a lower bound: some other row may move
the estimate further. And the sensitivity of the output calibrates noise on the output, not on the input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, warn
from onesided.panels.panel import Panel


class NoGuarantee(UserWarning):
    """A number that looks like a privacy guarantee, and is none.

    >>> import warnings
    >>> panel = Panel.from_dense([[1.0, 0.0], [0.0, 3.0]])
    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     sensitivity = empirical_sensitivity(lambda rows: rows.to_dense().mean(axis=0), panel)
    >>> said[0].category.__name__
    'NoGuarantee'
    """


def empirical_sensitivity(
    estimate: Callable[[Panel], Array], panel: Panel, *, replacements: int = 20, rng: int | np.random.Generator = 0
) -> float:
    """The largest ‖A(M) − A(M')‖_F found over panels M' in which one row takes the entries of another.

    An estimate of the sensitivity from below; it warns that no guarantee follows from it.

    >>> import warnings
    >>> panel = Panel.from_dense([[1.0, 0.0], [0.0, 3.0]])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     empirical_sensitivity(lambda rows: rows.to_dense().sum(axis=0), panel).__round__(3)
    3.162
    """
    if panel.n_rows < 2:
        raise InputError("one row cannot take the place of another: expected a panel of at least two rows")
    warn(
        "an empirical sensitivity is an estimate from below, and noise calibrated by it is not differentially "
        "private; use Privacy(...) for a guarantee",
        NoGuarantee,
    )
    rng = np.random.default_rng(rng)
    plain = Panel(panel.indptr, panel.columns, panel.values, panel.n_columns)
    before = estimate(plain)
    largest = 0.0
    for _ in range(replacements):
        rows = np.arange(panel.n_rows)
        replaced, by = rng.choice(panel.n_rows, 2, replace=False)
        rows[replaced] = by
        largest = max(largest, float(np.linalg.norm(estimate(plain.take_rows(rows)) - before)))
    return largest


def paper_noise(sensitivity: float, epsilon: float, delta: float) -> float:
    """σ of the paper for a sensitivity, however it was come by.

    >>> round(paper_noise(11.0, 1.0, 1e-6), 1)
    82.4
    """
    return float(2 * np.sqrt(np.log(1.25 / delta)) * sensitivity / epsilon)
