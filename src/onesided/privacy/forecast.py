"""What a plan will cost in accuracy, before any data is read.

From the numbers of rows n, columns d, entries in a row m and the rank r alone, columns taken to be alike: N = nm/d rows
have a column, N₂ = nm(m − 1)/(d(d − 1)) a pair. The variance ψ of an entry is not known in advance; a standard
deviation of a quarter of the bounds' width is assumed. The noise expected in a covariance, relative to a typical one
(ψ/√r), is

==========  ============================================================================================
gradient    2√2 r σ/(ψp), σ the noise of a pass and p = N(m − 1)/m; the 2 for clipping, which is set to do as
            much harm as the noise
central     σ/(ψN₂) · r √(2/d), σ the noise of a pair sum; the last factor for what a fit of rank r averages out
local       (σ² + ψ)/(ψ√N₂) · r √(2/d), σ the noise of a value
==========  ============================================================================================

On synthetic panels what was measured is within a factor of three of it where it is between 0.05 and 0.5 (the tests hold
it to that). Above 1 there is nothing to be had but means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onesided.errors import InputError
from onesided.privacy import central, gradient
from onesided.privacy.plan import Mechanism, Privacy

Expected = tuple[str, float, float, float]  # what the noise is on, it, that of a mean, that of a covariance

ASSUMED = 0.25  # ψ in units of half the bounds' width, squared: a standard deviation of a quarter of the width
USEFUL = 0.5
MOST_ROWS = 10**12
SPENT: dict[Mechanism, dict[str, float]] = {  # shares of μ²
    "gradient": gradient.SHARES,
    "central": central.SHARES,
    "local": {"values": 1.0},
}


@dataclass(frozen=True)
class Forecast:
    """What to expect of one mechanism.

    ``noise`` is the standard deviation of the noise, in units of the data (squared, for products), on ``noise_on``;
    ``mean_noise`` that on the mean of a column, before it is shrunk. ``covariance_noise`` is the expected error of a
    covariance relative to a typical one, and ``useful_from`` the number of rows from which that is half or less.

    >>> plan = Privacy(epsilon=1.0, delta=1e-6, bounds=(1, 5), max_entries=20)
    >>> found = forecast(plan, 5_000, 1_000)
    >>> found.useful, found.useful_from, round(found.mean_noise, 1)  # stars
    (False, 26000, 1.3)
    """

    mechanism: Mechanism
    mu: float
    noise_on: str
    noise: float
    mean_noise: float
    covariance_noise: float
    useful_from: int | None

    @property
    def useful(self) -> bool:
        """Whether more than means is to be expected."""
        return self.covariance_noise <= USEFUL


def forecast(privacy: Privacy, rows: int, columns: int, *, rank: int = 5, entries: float | None = None) -> Forecast:
    """What to expect of a plan for a panel of this size, with so many entries in a row (k, if not given).

    >>> plan = Privacy(epsilon=1.0, delta=1e-6, bounds=(1, 5), max_entries=20, mechanism="local")
    >>> round(forecast(plan, 500_000, 1_000).noise)  # stars
    76
    >>> forecast(Privacy(epsilon=1.0, delta=1e-6, bounds=(1, 5), max_entries=20), 500_000, 1_000).useful
    True
    """
    entries = float(privacy.most if entries is None else min(entries, privacy.most))
    for name, given, least in (("rows", rows, 2), ("columns", columns, 2), ("rank", rank, 1)):
        if not least <= given < np.inf:
            raise InputError(f"{name}={given}: expected at least {least}")
    privacy.check_rows(int(rows))
    if not entries >= 2:
        raise InputError(f"entries={entries:g}: expected at least two in a row, as pairs are what is learnt from")
    if privacy.mechanism == "central":
        central.check_columns(columns)

    def expected(n: float) -> Expected:
        size = _Size(n, columns, min(entries, columns), min(rank, columns), min(privacy.most, columns))
        return {"gradient": _gradient, "central": _central, "local": _local}[privacy.mechanism](privacy, size)

    what, noise, mean_noise, relative = expected(rows)
    return Forecast(privacy.mechanism, privacy.mu, what, noise, mean_noise, relative, _useful_from(expected))


@dataclass(frozen=True)
class _Size:
    n: float
    d: int
    m: float
    r: int
    k: int  # entries of a row at most

    @property
    def per_column(self) -> float:
        return self.n * self.m / self.d

    @property
    def per_pair(self) -> float:
        return self.n * self.m * (self.m - 1) / (self.d * (self.d - 1))

    @property
    def averaged(self) -> float:
        return self.r * float(np.sqrt(2 / self.d))


def _gradient(privacy: Privacy, size: _Size) -> Expected:
    apart = 1.0 if privacy.neighbours == "add-remove" else 2.0
    pairs = size.per_column * (size.m - 1) / size.m
    clip = gradient.clip_length(ASSUMED, size.r, privacy, pairs)
    noise = apart * clip * np.sqrt(privacy.passes / gradient.SHARES["passes"]) / privacy.mu
    columns = np.sqrt(apart) * np.sqrt(3 * size.k / gradient.SHARES["columns"]) / privacy.mu
    relative = 2 * np.sqrt(2) * size.r * noise / (ASSUMED * pairs)
    scale = privacy.half
    return "each number of a pass", float(noise * scale**2), float(scale * columns / size.per_column), float(relative)


def _central(privacy: Privacy, size: _Size) -> Expected:
    apart = 1.0 if privacy.neighbours == "add-remove" else 2.0
    k = size.k
    noise = np.sqrt(apart) * np.sqrt(k * (k + 1) / central.SHARES["pairs"]) / privacy.mu
    first = apart * np.sqrt(k / central.SHARES["first moments"]) / privacy.mu
    relative = noise / (ASSUMED * size.per_pair) * size.averaged
    scale = privacy.half
    return "each sum over a pair", float(noise * scale**2), float(scale * first / size.per_column), float(relative)


def _local(privacy: Privacy, size: _Size) -> Expected:
    noise = 2 * np.sqrt(size.k) / privacy.mu
    relative = (noise**2 + ASSUMED) / (ASSUMED * np.sqrt(size.per_pair)) * size.averaged
    scale = privacy.half
    return "each value", float(scale * noise), float(scale * noise / np.sqrt(size.per_column)), float(relative)


def _useful_from(expected: Callable[[float], Expected]) -> int | None:
    """The fewest rows, to two digits, from which a plan is useful."""
    numbers = (digits * 10**power for power in range(12) for digits in range(10, 100))
    return next((n for n in numbers if n <= MOST_ROWS and expected(n)[3] <= USEFUL), None)
