"""What Gaussian noise is worth: (ε, δ) and μ, in closed form.

A release of f(panel) + N(0, σ²I), where f moves by at most Δ (in Euclidean norm) between neighbours, is μ-Gaussian
differentially private with μ = Δ/σ: to tell neighbours apart from it is at least as hard as to tell N(0, 1) from
N(μ, 1) by one draw. That is the same as being (ε, δ)-differentially private for every ε with

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)

(the analytic Gaussian mechanism of Balle and Wang, 2018). Releases compose exactly, even if each depends on what the
ones before it gave: μ² = Σ μ_t² (Dong, Roth and Su, 2022). No sampling of rows is counted on.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from onesided.errors import InputError

EPSILONS, DELTAS = (1e-3, 1e4), (1e-15, 1.0)  # where the formula is exact in double precision
SMALLEST_MU, LARGEST_MU = 1e-16, 1e4


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of releases that are μ-Gaussian differentially private.

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    if mu <= 0:
        return 0.0
    first, second = log_ndtr(-epsilon / mu + mu / 2), epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(-np.exp(first) * np.expm1(min(second - first, 0.0)))


@lru_cache(maxsize=16)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ whose δ(ε) is at most δ.

    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    if not (EPSILONS[0] <= epsilon <= EPSILONS[1] and DELTAS[0] <= delta < DELTAS[1]):
        raise InputError(
            f"epsilon={epsilon}, delta={delta}: expected ε from {EPSILONS[0]:g} to {EPSILONS[1]:g} and δ from "
            f"{DELTAS[0]:g} to below 1"
        )

    def excess(log_mu: float) -> float:
        return float(np.log(max(gaussian_delta(np.exp(log_mu), epsilon), 1e-320)) - np.log(delta))

    found = float(np.exp(brentq(excess, np.log(SMALLEST_MU), np.log(LARGEST_MU), xtol=1e-13, rtol=1e-13)))
    return found * (1 - 1e-9)  # on the safe side of what rounding left open
