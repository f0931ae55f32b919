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
    names, columns = read_column_names(names_table, model.column_ids_), len(model.column_ids_)
    if names.named < columns:
        click.echo(f"{names_table} names {names.named:,} of {columns:,} columns", err=True)
    return names


def labelled(names: ColumnNames, column_id: Any) -> dict[str, Any]:
    """A column's id, and its name where that is another."""
    name = names.called(column_id)
    return {"id": column_id} if name == str(column_id) else {"id": column_id, "name": name}


def print_table(header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    """Lines under a header: the first field to the left, the others to the right."""
    widths = [max(len(line[k]) for line in [header, *lines]) for k in range(len(header))]
    for first, *others in [header, *lines]:
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        click.echo("  ".join(cells).rstrip())
