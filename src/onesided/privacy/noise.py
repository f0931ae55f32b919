"""Gaussian noise that a secure source draws, added in whole numbers.

Noise computed in floating point and added to a sum can leave traces of the sum in the lowest bits of the result
(Mironov, 2012). Here statistics are whole numbers of a unit, and noise is rounded to whole numbers before it is added:

    x + round(σZ) = round(x + σZ)   for a whole number x,

which is the Gaussian mechanism followed by rounding, and rounding what was released costs nothing; nor does rounding it
again, to multiples of about σ/2¹⁶ (:func:`coarsened`). What is left of the risk: Z is Φ⁻¹ of 127 random bits, computed
in double precision. It ends at 13 standard deviations, and the probability of each number that can come out is off by a
relative 10⁻⁹ at most, so that what a row says in a thousand numbers is off by less than 10⁻⁶ in ε. How long a
computation takes, and what a refusal says of the data, is not covered by any noise.
"""

from __future__ import annotations

import os

import numpy as np
from scipy.special import ndtri

from onesided.arrays import Array
from onesided.panels.panel_like import Draw

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
        high, low = np.frombuffer(draw(16 * len(here)), dtype=np.uint64).reshape(2, -1)
        # A probability below one half, of full relative precision however small it is; the sign is a bit of its own.
        share = (high >> np.uint64(1)).astype(np.float64) + (low.astype(np.float64) + 0.5) * 2.0**-64
        tail = ndtri(share * 2.0**-64)
        np.rint(deviation * np.where(high & np.uint64(1), tail, -tail), out=here)
    return noise


def coarsened(whole: Array, deviation: float) -> Array:
    """Whole numbers rounded to multiples of the power of two below deviation/2¹⁶, if that is above one.

    >>> coarsened(np.array([1000.0, 1003.0]), 2.0**18)
    array([1000., 1004.])
    """
    step = 2.0 ** np.floor(np.log2(max(deviation / 2**16, 1.0)))
    return np.asarray(np.rint(whole / step) * step)
