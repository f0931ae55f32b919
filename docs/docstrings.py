"""What docstrings hold that Markdown does not: roles, tables drawn with ``===``, and examples outside of a section.

An extension of griffe, which reads the sources for mkdocstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([\w.]+)`")
RULE = re.compile(r"^ *=+(?:  +=+)+$")
EXAMPLE = re.compile(r"^( *)>>> ")


def as_markdown(text: str) -> str:
    """A docstring as Markdown."""
    lines = list(_tables(text.splitlines()))
    if not re.search(r"^ *Examples\n *-{3,}$", text, flags=re.MULTILINE):
        lines = list(_examples(lines))
    return ROLE.sub(_link, "\n".join(lines))


def _link(role: re.Match[str]) -> str:
    """A link where the site has the name, the bare name where it has not."""
    name = role[1]
    return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'


def _tables(lines: list[str]) -> Iterator[str]:
    """The lines, tables among them as Markdown has them: each from a rule to one that nothing follows."""
    table: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not table and not RULE.match(line):
            yield line
            continue
        table.append(line)
        if len(table) > 1 and RULE.match(line) and not after.strip():
            yield from _table(table)
            table = []
    yield from table


def _table(lines: list[str]) -> Iterator[str]:
    """Cells begin where the rules do; a line that leaves a cell empty goes on with the row before it."""
    starts = [rule.start() for rule in re.finditer("=+", lines[0])]
    stops = [*starts[1:], None]
    headed = sum(bool(RULE.match(line)) for line in lines) > 2
    rows: list[list[str]] = [] if headed else [[""] * len(starts)]
    for line in lines[1:-1]:
        if RULE.match(line):
            continue
        cells = [line[start:stop].strip() for start, stop in zip(starts, stops, strict=True)]
        if len(rows) > 1 and not all(cells):
            rows[-1] = [f"{before} {more}".strip() for before, more in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    rows.insert(1, ["---"] * len(starts))
    yield ""
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _examples(lines: list[str]) -> Iterator[str]:
    """Examples between fences; they end with an empty line."""
    inside: str | None = None
    for line in lines:
        begins = EXAMPLE.match(line)
        if inside is None and begins:
            inside = begins[1]
            yield from ("", f"{inside}```pycon")
        elif inside is not None and not line.strip():
            yield f"{inside}```"
            inside = None
        yield line
    if inside is not None:
        yield f"{inside}```"


class Docstrings(griffe.Extension):
    """Turns each docstring to Markdown before it is read for sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """What griffe calls for each module, class, function and attribute."""
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = as_markdown(obj.docstring.value)
