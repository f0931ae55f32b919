"""Numbers and names in words: never NaN, never more digits than can be read, never a share of nothing as "0.0%"."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import numpy as np

from onesided.column_names import ColumnNames
from onesided.panels.ids import plain_id

UNKNOWN = "–"  # an empty cell would look like an oversight
SMALLEST = 1e-200  # what stands for nothing in a panel of zeros
NOTHING = 1e-9  # a share below this is rounding
PLAIN = (1e-4, 1e9)  # magnitudes that are written out; others have a power of ten


def number(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits; a dash for what is not known.

    >>> number(1234567.0), number(0.0123456), number(-2.0), number(1e-6), number(float("nan"))
    ('1,230,000', '0.0123', '−2', '1e−6', '–')
    >>> number(0.00009999), number(1.234e70)  # rounded first: one number has one form
    ('0.0001', '1.23e70')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < SMALLEST:
        return "0"
    text, power = f"{value:.{digits - 1}e}".split("e")
    plain = PLAIN[0] <= abs(rounded := float(f"{text}e{power}")) < PLAIN[1]
    if plain:
        text = f"{rounded:,.{max(0, digits - 1 - int(power))}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return (text if plain else f"{text}e{int(power)}").replace("-", "−")


def fixed(value: float | None, places: int) -> str:
    """A number to so many places, for columns of a table that are compared; a dash for what is not known.

    What so many places would show as zero, or as a row of digits, is written with significant digits.

    >>> fixed(-0.5, 3), fixed(None, 3), fixed(0.0, 3), fixed(1.234e-8, 3), fixed(-1.234e70, 0)
    ('−0.500', '–', '0.000', '1.23e−8', '−1.23e70')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < SMALLEST:
        return f"{0:.{places}f}"
    if not PLAIN[0] <= abs(value) < PLAIN[1] or round(value, places) == 0:
        return number(value)
    return f"{value:,.{places}f}".replace("-", "−")


def share(value: float | None) -> str:
    """A share as a percentage; one that is not zero or all is not called so.

    >>> share(0.1234), share(0.000042), share(0.99999), share(0.0), share(1.0)
    ('12.3%', '0.0042%', 'more than 99.9%', '0%', '100%')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if 0 < value < 0.001:
        return f"{number(100 * value, 2)}%"
    if 0.999 < value < 1:
        return "more than 99.9%"
    return f"{100 * value:.3g}%".replace("-", "−")


def with_error(value: float | None, error: float | None, places: int = 3) -> str:
    """A number and its standard error.

    >>> with_error(0.9123, 0.0021), with_error(None, None), with_error(1.2342e-8, 3.21e-10)
    ('0.912 ± 0.002', '–', '1.234e−8 ± 3.2e−10')
    """
    if value is None:
        return UNKNOWN
    if value != 0 and not PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{number(value, 4)} ± {number(error, 2)}"
    return f"{fixed(value, places)} ± {fixed(error, places)}"


def percent_with_error(value: float | None, error: float | None) -> str:
    """A share, perhaps below zero, and its standard error.

    >>> percent_with_error(0.2512, 0.0123), percent_with_error(-0.00002, 0.00013), percent_with_error(-1e-17, 0.0)
    ('25.1% ± 1.2%', '−0.002% ± 0.013%', '0% ± 0%')
    """
    if value is None or error is None:
        return UNKNOWN
    if abs(value) < NOTHING and error < NOTHING:
        return "0% ± 0%"
    places = max(1, places_for(100 * error)) if error > NOTHING else 1
    return f"{fixed(100 * value if abs(value) > NOTHING else 0.0, places)}% ± {fixed(100 * error, places)}%"


def decimals(largest: float, digits: int) -> int:
    """To how many places the numbers of a list are printed whose largest has so many significant digits.

    >>> decimals(4.2, 3), decimals(0.031, 3), decimals(0.0, 3)
    (2, 4, 0)
    """
    if not math.isfinite(largest) or largest < SMALLEST:
        return 0
    return int(np.clip(digits - 1 - math.floor(math.log10(largest)), 0, 9))


def places_for(error: float | None) -> int:
    """To how many places a number with this standard error is worth printing.

    >>> places_for(0.0021), places_for(12.0), places_for(None)
    (4, 0, 3)
    """
    if error is None or not math.isfinite(error) or error <= 0:
        return 3
    return int(np.clip(1 - math.floor(math.log10(error)), 0, 6))


def mentioned(names: ColumnNames, position: int) -> dict[str, Any]:
    """A column as JSON has it.

    >>> mentioned(ColumnNames(np.array([7]), {7: "Alien"}), 0)
    {'id': 7, 'name': 'Alien'}
    """
    return {"id": plain_id(names.column_ids[position]), "name": names[position]}


def printable(name: str) -> str:
    """A name without what no page can hold: control characters and halves of pairs.

    >>> printable("tea\\x00 <b>")
    'tea� <b>'
    """
    return "".join("�" if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in str(name))


def shortened(name: str, most: int) -> str:
    """A name that is at most so many Latin letters wide; wide letters count for two.

    >>> shortened("A very long name", 8), shortened("寿司と刺身と天ぷら", 8)
    ('A very…', '寿司と…')
    """
    name = printable(name)
    if width(name) <= most:
        return name
    while name and width(name) > most - 1:
        name = name[:-1]
    return name.rstrip() + "…"


def width(name: str) -> int:
    """How wide a name is, in Latin letters.

    >>> width("tea"), width("寿司")
    (3, 4)
    """
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)
