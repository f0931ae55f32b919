"""The option ``--names``, and columns by name in what commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from onesided.column_names import ColumnNames
    from onesided.estimators.completion import OneSidedCompletion

names_option = click.option(
    "--names",
    "names_table",
    type=click.Path(exists=True, dir_okay=False),
    metavar="TABLE",
    help="A table with a column's id and its name in each line (movies.dat, movies.csv): columns go by their names.",
)


def names_of(model: OneSidedCompletion, names_table: str | None) -> ColumnNames:
    """The names of a model's columns, their ids without a table; says on stderr how many have a name."""
    from onesided.column_names import ColumnNames, read_column_names

    if names_table is None:
        return ColumnNames(model.column_ids_, {})
    names = read_column_names(names_table, model.column_ids_)
    missing = len(model.column_ids_) - names.named
    if missing:
        click.echo(f"{names_table} names {names.named:,} of {len(model.column_ids_):,} columns", err=True)
    return names


def labelled(names: ColumnNames, position: int) -> dict[str, Any]:
    """A column's id, and its name where that is another."""
    column_id = names.column_ids[position]
    label = {"id": column_id.item() if hasattr(column_id, "item") else column_id}
    return label if names[position] == str(label["id"]) else label | {"name": names[position]}


def print_table(header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    """Lines under a header: the first field to the left, the others to the right."""
    widths = [max(len(line[k]) for line in [header, *lines]) for k in range(len(header))]
    for line in [header, *lines]:
        first, *others = (
            cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        click.echo("  ".join([first, *others]).rstrip())
