"""The one exception a caller can cause, and the words its messages are made of.

A message that tells the caller to pass an option has :data:`FOUND` or :data:`EXPECTED` in its place, and whoever shows
the message spells it, Python as ``non_finite="drop"``, the command line as ``--non-finite drop``.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

import numpy as np

FOUND = "\ufdd0"  # in a message: the option with the value that was found; two code points that no text has
EXPECTED = "\ufdd1"  # the option with a value that is expected

Spelling = Callable[[str, tuple[object, ...]], str]


class InputError(ValueError):
    """What was given cannot be used; the message says what was found, what was expected and what to do.

    Parameters
    ----------
    message : str
        With :data:`FOUND` and :data:`EXPECTED` where an option is to be spelled. Of several ``EXPECTED`` each takes
        one expected value in turn, the last all that are left.
    option : str, optional
        The option that the message is about, by its name in Python.
    found : object, optional
        The value it had.
    expected : iterable, optional
        Values it may have instead: ``True`` of a flag, ``list`` for any list, nothing where the caller has to choose.

    Examples
    --------
    >>> raise InputError(f"2 values are NaN; drop them or pass {EXPECTED}", option="non_finite", expected=["drop"])
    Traceback (most recent call last):
    onesided.errors.InputError: 2 values are NaN; drop them or pass non_finite="drop"
    """

    def __init__(
        self, message: str, *, option: str | None = None, found: object = None, expected: Iterable[object] = ()
    ) -> None:
        self.template, self.option, self.found, self.expected = message, option, found, tuple(expected)
        super().__init__(self.spelled(in_python))

    def spelled(self, spelling: Spelling) -> str:
        """The message, with its option as ``spelling`` has it.

        >>> InputError(f"pass {EXPECTED}", option="rank", expected=[3]).spelled(lambda name, values: f"{name} {values}")
        'pass rank (3,)'
        """
        if self.option is None:
            return self.template
        first, *others = self.template.replace(FOUND, spelling(self.option, (self.found,))).split(EXPECTED)
        last = len(others) - 1
        for k, text in enumerate(others):
            first += spelling(self.option, self.expected[k:] if k == last else self.expected[k : k + 1]) + text
        return first

    def followed_by(self, text: str) -> InputError:
        """The same refusal with a message that goes on.

        >>> InputError(f"pass {EXPECTED}", option="rank", expected=[3]).followed_by(" (found in a.csv)").option
        'rank'
        """
        return InputError(self.template + text, option=self.option, found=self.found, expected=self.expected)


def in_python(option: str, values: tuple[object, ...]) -> str:
    """An option as it is passed in Python.

    >>> in_python("duplicates", ("mean", "sum", "last")), in_python("any_delta", (True,)), in_python("value", ())
    ('duplicates="mean", "sum" or "last"', 'any_delta=True', 'value=')
    >>> in_python("columns", (list,))
    'columns=[…]'
    """
    return f"{option}={any_of('[…]' if value is list else _quoted(value) for value in values)}"


def any_of(values: Iterable[str]) -> str:
    """Values to choose from, in words.

    >>> any_of(["mean", "sum", "last"]), any_of(["drop"]), any_of([])
    ('mean, sum or last', 'drop', '')
    """
    *most, last = [*values] or [""]
    return f"{', '.join(most)} or {last}" if most else last


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a ``value`` of the option ``name`` that is not one of ``choices``.

    >>> check_choice("duplicates", "sum", ("mean", "sum"))
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        message = f"{name}={value!r} is not an option; choose one of {listed}"
        raise InputError(message, option=name, found=value, expected=choices)


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2000, "entry", "entries")
    ('1 row', '2,000 entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def shown(value: Any) -> str:
    """An id or value as a user would write it."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def examples(ids: Any, most: int = 3) -> str:
    """The first few of a list.

    >>> examples(["a", "b", "c", "d"])
    "'a', 'b', 'c', …"
    """
    listed = ", ".join(shown(value) for value in islice(ids, most))
    return listed + (", …" if len(ids) > most else "")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the caller of the library: the line shown is the first outside of it, of scikit-learn and of decorators."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("onesided.", "contextlib", "sklearn.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
