"""A hook of the site: the page of commands, written from what ``--help`` of each command prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from onesided.cli import main

PAGE = "reference/commands.md"
WIDTH = 78  # what click takes of a terminal of 80


def commands(group: click.Group = main, path: tuple[str, ...] = ("onesided",)) -> Iterator[tuple[str, ...]]:
    """Every command as it is typed, a group before what is in it."""
    yield path
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def help_of(path: tuple[str, ...]) -> str:
    """What the command prints when it is asked for help."""
    command: click.Command = main
    context = click.Context(main, info_name=path[0], terminal_width=WIDTH, **main.context_settings)
    for name in path[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[name]
        context = click.Context(command, context, info_name=name, terminal_width=WIDTH, **command.context_settings)
    return command.get_help(context)


def sections() -> str:
    """A section for each command: its name and its help."""
    return "\n".join(f"## {' '.join(path)}\n\n```text\n{help_of(path)}\n```\n" for path in commands())


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """What mkdocs calls for each page."""
    return f"{markdown}\n{sections()}" if page.file.src_uri == PAGE else markdown
