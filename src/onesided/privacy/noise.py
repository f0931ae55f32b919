"""Gaussian noise that a secure source draws, added in whole numbers.

Noise computed in floating point and added to a sum can leave traces of the sum in the lowest bits of the result
(Mironov, 2012). Here statistics are whole numbers of a unit, and noise is rounded to whole numbers before it is added:

    x + round(σZ) = round(x + σZ)   for a whole number x,

which is the Gaussian mechanism followed by rounding, and rounding what was released costs nothing. All whole numbers
can come out whatever x is, and sums are exact. What is left of the risk: Z is Φ⁻¹ of 64 random bits, which ends at 9.1
standard deviations and is off by a relative 10⁻¹⁵; for a release of a million numbers that adds less than 10⁻¹² to δ.
How long a computation takes, and what a refusal says of the data, is not covered by any noise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Array = npt.NDArray[Any]
Draw = Callable[[int], bytes]  # so many random bytes

CHUNK = 1 << 20  # numbers drawn at a time


def whole_gaussian(size: int, deviation: float, draw: Draw = os.urandom) -> Array:
    """Independent N(0, deviation²), rounded to whole numbers; ``draw`` is the operating system's secure source.

    >>> noise = whole_gaussian(10_000, 50.0)
    >>> bool(np.all(noise == np.rint(noise))), bool(45 < noise.std() < 55)
    (True, True)
    """
    noise = np.empty(size)
    for first in range(0, size, CHUNK):
        here = noise[first : first + CHUNK]
        bits = np.frombuffer(draw(8 * len(here)), dtype=np.uint64)
        tail = ndtri(((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64)  # below zero, fine far out
        np.rint(deviation * np.where(bits & np.uint64(1), tail, -tail), out=here)
    return noise
