"""A penalty chosen on what was held out, from the largest that leaves anything downwards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from onesided.estimators.parameters import AT_LEAST_ZERO, StrOptions
from onesided.fitting.solvers.result import Progress

Tell = Callable[[float], None]  # called with the objective of each step

AUTO = {"penalty": [*AT_LEAST_ZERO, StrOptions({"auto"})]}
RATIO = 0.7  # from one penalty to the next
MOST = 40  # penalties
PATIENCE = 3  # steps without a lower error before the search ends
HELD_OUT = 0.1  # share of the data


def best_penalty(largest: float, error: Callable[[float], float | None]) -> float:
    """The penalty of least held-out error among largest · 0.7^k, k = 1, 2, …; solutions may start from the last one.

    The search ends where the error has not fallen for three steps, or where ``error`` returns None because a solution
    is too large to go on.

    >>> 1 < best_penalty(10.0, lambda penalty: abs(penalty - 1.2)) < 1.5
    True
    """
    best, least, waited = largest, np.inf, 0
    for k in range(1, MOST + 1):
        penalty = largest * RATIO**k
        found = error(penalty)
        if found is None:
            break
        if found < least:
            best, least, waited = penalty, found, 0
        elif (waited := waited + 1) == PATIENCE:
            break
    return float(best)


def held_out(n: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A mask over n things that holds out a tenth, at least one."""
    mask = np.zeros(n, dtype=bool)
    mask[rng.permutation(n)[: max(1, int(HELD_OUT * n))]] = True
    return mask


def counting(progress: Progress | None) -> Tell:
    """Tells ``progress``, if there is one, values with their number, over all solutions of a search.

    >>> tell = counting(lambda done, value: print(done, value))
    >>> tell(0.5), tell(0.25)
    1 0.5
    2 0.25
    (None, None)
    """
    numbers = count(1)
    return lambda value: None if progress is None else progress(next(numbers), value)


class PenaltyChosen:
    """An estimator with a fitted ``penalty_``, chosen or given, that goes to disk and back."""

    penalty_: float

    def _fitted_settings(self) -> dict[str, Any]:
        return {"penalty": self.penalty_}

    def _restore(self, fitted: dict[str, Any]) -> None:
        self.penalty_ = fitted["penalty"]
