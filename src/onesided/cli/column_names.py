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


def load_named(model: str, names_table: str | None) -> tuple[OneSidedCompletion, ColumnNames]:
    """A model and its columns' names, their ids without a table; says on stderr how many have a name."""
    from onesided.column_names import ColumnNames, read_column_names
    from onesided.estimators.completion import OneSidedCompletion

    fitted = OneSidedCompletion.load(model)
    columns = fitted.column_ids_
    if names_table is None:
        return fitted, ColumnNames(columns, {})
    names = read_column_names(names_table, columns)
    if names.named < len(columns):
        click.echo(f"{names_table} names {names.named:,} of {len(columns):,} columns", err=True)
    return fitted, names


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
