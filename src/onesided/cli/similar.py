"""``onesided similar``: a column's nearest columns."""

from __future__ import annotations

import click

from onesided.cli.column_names import labelled, load_named, names_option, print_table
from onesided.cli.console import print_result
from onesided.cli.options import EXISTING_FILE, POSITIVE, json_option


@click.command()
@click.argument("model", type=EXISTING_FILE)
@click.argument("column")
@click.option("-n", "number", type=POSITIVE, default=10, help="How many columns.")
@names_option
@json_option
def similar(model: str, column: str, number: int, names_table: str | None, as_json: bool) -> None:
    """List the columns that go together with COLUMN.

    MODEL is a fitted one; COLUMN is an id or, with --names, a name or a part of one. Columns are listed by the
    correlation of their entries in the same row, beyond what means and the level of the row explain: 1 where knowing
    one tells the other, 0 where it tells nothing. The standard error says how far it may be off; "rows" is how many
    rows have both columns, by their weights. Few common rows need not matter where other columns link the two, at
    least as many as the rank.

    \b
    Example:
        onesided similar movies.onesided 2571
        onesided similar movies.onesided "blade runner" --names movies.dat
    """
    fitted, names = load_named(model, names_table)
    column_id = fitted.column_ids_.tolist()[names.find(column)]
    column = names.called(column_id)
    nearest = fitted.similar(column_id, number)
    if as_json:
        listed = [
            labelled(names, near.id)
            | {"correlation": near.correlation, "standard_error": near.standard_error, "rows": near.count}
            for near in nearest
        ]
        print_result(labelled(names, column_id) | {"factor": bool(fitted.factor_.any()), "similar": listed}, as_json)
        return
    if not fitted.factor_.any():
        click.echo("The model has no factor: beyond means and row effects no two columns go together.", err=True)
        return
    if not nearest:
        click.echo(f"No column is linked to {column} by a chain of rows: there is nothing to compare it with.")
        return
    lines = [
        (
            names.called(near.id),
            f"{near.correlation:.3f}",
            "–" if near.standard_error is None else f"{near.standard_error:.3f}",
            "–" if near.count is None else f"{near.count:,.0f}",
        )
        for near in nearest
    ]
    print_table((column, "correlation", "standard error", "rows"), lines)
    if fitted.second_moment_.panel is None:
        click.echo(f"{model} holds no rows, of which standard errors are made.", err=True)
