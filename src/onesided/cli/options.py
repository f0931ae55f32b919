"""Options as commands declare them: those that belong together are fields of one frozen dataclass.

A field is made by :func:`option`, with what ``click.option`` takes; ``@taking(Reading)`` declares the options of all
fields, in their order, and hands the command one ``Reading`` as its argument ``reading``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import wraps
from typing import Any, TypeVar

import click

from onesided.errors import InputError, any_of, in_python

Command = TypeVar("Command", bound=Callable[..., Any])

EXISTING_FILE = click.Path(exists=True, dir_okay=False)
TABLE_OR_PANEL = click.Path(exists=True)  # a packed panel is a folder

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


def option(*names: str, **settings: Any) -> Any:
    """A field of a dataclass that the command line sets."""
    default = settings.get("default", False if settings.get("is_flag") else None)
    return field(default=default, metadata={"option": click.option(*names, **settings)})


def taking(group: type[Any], argument: str | None = None) -> Callable[[Command], Command]:
    """Declare the options of a dataclass's fields; the command takes one of it.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = option("--width", default=3)
    >>> @click.command()
    ... @taking(Size)
    ... def draw(size):
    ...     print(size)
    >>> draw(["--width", "5"], standalone_mode=False)
    Size(width=5)
    """
    argument = argument or group.__name__.lower()

    def declared(command: Command) -> Command:
        @wraps(command)
        def collected(**given: Any) -> Any:
            chosen = {one.name: given.pop(one.name) for one in fields(group)}
            return command(**given, **{argument: group(**chosen)})

        made: Any = collected
        for one in reversed(fields(group)):
            made = one.metadata["option"](made)
        return made  # type: ignore[no-any-return]

    return declared


class Refusal(click.ClickException):
    """What the library refuses, with options as the command has them.

    >>> from onesided.errors import EXPECTED
    >>> command = click.Command("read", params=[click.Option(["--non-finite"]), click.Option(["--clip"], is_flag=True)])
    >>> error = InputError(f"drop them or pass {EXPECTED}", option="non_finite", expected=["drop"])
    >>> print(Refusal(error, command).message)
    drop them or pass --non-finite drop
    >>> print(Refusal(error, click.Command("draw")).message)
    drop them or pass non_finite="drop"
    """

    exit_code = 2

    def __init__(self, error: InputError, command: click.Command) -> None:
        options = {one.name: one for one in command.params if isinstance(one, click.Option)}

        def spelled(name: str, values: tuple[object, ...]) -> str:
            return _typed(options[name], values) if name in options else in_python(name, values)

        super().__init__(error.spelled(spelled))


def _typed(parameter: click.Option, values: tuple[object, ...]) -> str:
    """An option as it is typed, with one of the values; without any, with what stands for one in the help."""
    name = parameter.opts[-1]
    if parameter.is_flag:
        return name
    return f"{name} {any_of('FILE' if one is list else str(one) for one in values) or parameter.metavar or 'VALUE'}"
