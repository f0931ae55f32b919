"""Kernels over text as Arrow lays it out: all characters in one array, and where each string begins."""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.kernels.jit import jit

_MINUS, _ZERO = ord("-"), ord("0")
_MOST_DIGITS = 19
_LEAST = np.iinfo(np.int64).min


@jit
def read_integers(starts: Array, characters: Array, numbers: Array) -> bool:
    for k in range(len(numbers)):
        at, end = starts[k], starts[k + 1]
        numbers[k] = 0
        if at == end:
            continue
        negative = characters[at] == _MINUS
        if negative:
            at += 1
        length = end - at
        if length == 0 or length > _MOST_DIGITS or (characters[at] == _ZERO and (negative or length > 1)):
            return False
        number = np.int64(0)
        for place in range(at, end):
            digit = np.int64(characters[place]) - _ZERO
            if digit < 0 or digit > 9:
                return False
            number = 10 * number + digit
        # Nineteen digits fit 64 bits without sign: what exceeds int64 has wrapped around once, to below zero.
        if number < 0 and not (negative and number == _LEAST):
            return False
        numbers[k] = -number if negative else number
    return True
