"""The one exception a caller can cause."""

from __future__ import annotations

from collections.abc import Collection


class InputError(ValueError):
    """What was given cannot be used; the message says what was found, what was expected and what to do."""


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a ``value`` of the option ``name`` that is not one of ``choices``.

    >>> check_choice("duplicates", "sum", ("mean", "sum"))
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}={value!r} is not an option; choose one of {listed}")
