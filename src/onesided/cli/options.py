"""Options as commands declare them: those that belong together are fields of one frozen dataclass.

A field is made by :func:`option`, with what ``click.option`` takes; ``@taking("reading", ReadingOptions)`` declares the
options of all fields, in their order, and hands the command one ``ReadingOptions`` as its argument ``reading``.
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
POSITIVE, NATURAL = click.IntRange(min=1), click.IntRange(min=0)

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


def option(*names: str, **settings: Any) -> Any:
    """A field of a dataclass that the command line sets."""
    default = settings.get("default", False if settings.get("is_flag") else None)
    return field(default=default, metadata={"option": click.option(*names, **settings)})


def one_of(*choices: str) -> dict[str, Any]:
    """What ``option`` takes for a choice, the first being the default."""
    return {"type": click.Choice(choices), "default": choices[0]}


def taking(argument: str, group: type[Any]) -> Callable[[Command], Command]:
    """Declare the options of a dataclass, which the command takes as one argument.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = option("--width", default=3)
    >>> @click.command()
    ... @taking("size", Size)
    ... def draw(size):
    ...     print(size)
    >>> draw(["--width", "5"], standalone_mode=False)
    Size(width=5)
    """

    def declared(command: Command) -> Command:
        @wraps(command)
        def collected(**given: Any) -> Any:
            chosen = {item.name: given.pop(item.name) for item in fields(group)}
            return command(**given, **{argument: group(**chosen)})

        made: Any = collected
        for item in reversed(fields(group)):
            made = item.metadata["option"](made)
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
        options = {parameter.name: parameter for parameter in command.params if isinstance(parameter, click.Option)}

        def spelled(name: str, values: tuple[object, ...]) -> str:
            return _typed(options[name], values) if name in options else in_python(name, values)

        super().__init__(error.spelled(spelled))


def _typed(parameter: click.Option, values: tuple[object, ...]) -> str:
    """An option as it is typed, with one of the values; without any, with what stands for one in the help."""
    name = parameter.opts[-1]
    if parameter.is_flag:
        return name
    typed = any_of("FILE" if value is list else str(value) for value in values)
    return f"{name} {typed or parameter.metavar or 'VALUE'}"
