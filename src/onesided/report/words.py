"""Numbers and names in words: never NaN, never more digits than can be read, never a share of nothing as "0.0%"."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import numpy as np

from onesided.errors import counted
from onesided.names import Names

UNKNOWN = "–"  # an empty cell would look like an oversight
SMALLEST = 1e-200  # what stands for nothing in a panel of zeros
CUT = "…"


def number(one: float | None, digits: int = 3) -> str:
    """A number to so many significant digits; a dash for what is not known.

    >>> number(1234567.0), number(0.0123456), number(-2.0), number(1e-6), number(float("nan"))
    ('1,230,000', '0.0123', '−2', '1e−6', '–')
    """
    if one is None or not math.isfinite(one):
        return UNKNOWN
    if abs(one) < SMALLEST:
        return "0"
    size = math.floor(math.log10(abs(one)))
    if size < -4 or size > 14:
        leading, power = f"{one:.{digits - 1}e}".split("e")
        return f"{leading.rstrip('0').rstrip('.')}e{int(power)}".replace("-", "−")
    rounded = round(one, digits - 1 - size)
    text = f"{rounded:,.{max(0, digits - 1 - size)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def fixed(one: float | None, places: int) -> str:
    """A number to so many places, for columns of a table that are compared; a dash for what is not known.

    >>> fixed(-0.5, 3), fixed(None, 3)
    ('−0.500', '–')
    """
    return UNKNOWN if one is None or not math.isfinite(one) else f"{one:,.{places}f}".replace("-", "−")


def share(one: float | None) -> str:
    """A share as a percentage; one that is not zero or all is not called so.

    >>> share(0.1234), share(0.0001), share(0.99999), share(0.0), share(1.0)
    ('12.3%', 'fewer than 0.1%', 'more than 99.9%', '0%', '100%')
    """
    if one is None or not math.isfinite(one):
        return UNKNOWN
    if 0 < one < 0.001:
        return "fewer than 0.1%"
    if 0.999 < one < 1:
        return "more than 99.9%"
    return f"{100 * one:.3g}%".replace("-", "−")


def with_error(one: float | None, error: float | None, places: int = 3) -> str:
    """A number and its standard error.

    >>> with_error(0.9123, 0.0021), with_error(None, None)
    ('0.912 ± 0.002', '–')
    """
    return UNKNOWN if one is None else f"{fixed(one, places)} ± {fixed(error, places)}"


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


def mentioned(names: Names, position: int) -> dict[str, Any]:
    """A column as JSON has it.

    >>> mentioned(Names(np.array([7]), {7: "Alien"}), 0)
    {'id': 7, 'name': 'Alien'}
    """
    one = names.column_ids[position]
    return {"id": one.item() if isinstance(one, np.generic) else one, "name": names[position]}


def printable(name: str) -> str:
    """A name without what no page can hold: control characters and halves of pairs.

    >>> printable("tea\\x00 <b>")
    'tea� <b>'
    """
    return "".join("�" if unicodedata.category(one) in ("Cc", "Cs") else one for one in str(name))


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
    return name.rstrip() + CUT


def width(name: str) -> int:
    """How wide a name is, in Latin letters.

    >>> width("tea"), width("寿司")
    (3, 4)
    """
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in name)


def listed(names: list[str], total: int) -> str:
    """The first of so many names in all.

    >>> listed(["tea", "rye"], 5)
    'tea, rye and 3 more'
    """
    more = total - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def rows_and_columns(rows: int, columns: int, entries: int) -> str:
    """The size of a panel.

    >>> rows_and_columns(2, 3, 4)
    '2 rows × 3 columns, 4 entries'
    """
    return f"{counted(rows, 'row')} × {counted(columns, 'column')}, {counted(entries, 'entry', 'entries')}"
