"""The one exception a caller can cause, and the words its messages are made of."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection
from itertools import islice
from typing import Any

import numpy as np


class InputError(ValueError):
    """What was given cannot be used; the message says what was found, what was expected and what to do.

    >>> from onesided import Panel
    >>> try:
    ...     Panel.from_arrays(["ann", "bob"], ["tea", "tea"], [5.0, float("inf")])
    ... except InputError as error:
    ...     print(error)
    the array of values has 1 infinite value (first at row 'bob', column 'tea'); drop them or pass non_finite="drop"
    """


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a ``value`` of the option ``name`` that is not one of ``choices``.

    >>> check_choice("duplicates", "sum", ("mean", "sum"))
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}={value!r} is not an option; choose one of {listed}")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2000, "entry", "entries")
    ('1 row', '2,000 entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def shown(one: Any) -> str:
    """An id or value as a user would write it."""
    return repr(one.item() if isinstance(one, np.generic) else one)


def examples(ids: Any, most: int = 3) -> str:
    """The first few of a list.

    >>> examples(["a", "b", "c", "d"])
    "'a', 'b', 'c', …"
    """
    listed = ", ".join(shown(one) for one in islice(ids, most))
    return listed + (", …" if len(ids) > most else "")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the caller of the library: the line shown is the first outside of it, and of decorators."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("onesided.", "contextlib")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
