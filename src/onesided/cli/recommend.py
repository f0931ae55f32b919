"""``onesided recommend``: the best unseen columns for a row."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.column_names import labelled, load_named, names_option, print_table
from onesided.cli.console import print_result
from onesided.cli.options import EXISTING_FILE, POSITIVE, TABLE_OR_PANEL, json_option, one_of, taking
from onesided.cli.reading import ReadingOptions, read_panel
from onesided.errors import InputError, examples

if TYPE_CHECKING:
    from onesided.panels.panel import Panel


@click.command()
@click.argument("model", type=EXISTING_FILE)
@click.argument("table", type=TABLE_OR_PANEL, required=False)
@click.option("--row-id", metavar="ID", help="The row to recommend for; not needed where TABLE has one row alone.")
@click.option("-n", "number", type=POSITIVE, default=10, help="How many columns.")
@click.option(
    "--unknown",
    **one_of("refuse", "drop"),
    help="When the row has entries in columns that are not in the model: refuse them, or drop them.",
)
@names_option
@taking("reading", ReadingOptions)
@json_option
def recommend(
    model: str,
    table: str | None,
    row_id: str | None,
    number: int,
    unknown: Any,
    names_table: str | None,
    reading: ReadingOptions,
    as_json: bool,
) -> None:
    """List the best columns among those a row does not have yet.

    Without TABLE the row is one of those that the MODEL was fitted to. A TABLE, in any format that "onesided fit"
    reads, holds what is known of other rows; they need not have been there when the model was fitted. Listed are the
    columns of the highest predicted values, each with the standard deviation of an entry around it.

    \b
    Example:
        onesided recommend movies.onesided --row-id 17 --names movies.dat
        onesided recommend movies.onesided my-ratings.csv
    """
    from onesided.panels.alignment import align_as_written

    fitted, names = load_named(model, names_table)
    if table is not None:
        panel = align_as_written(read_panel(table, reading)[0], fitted.column_ids_, unknown=unknown)
    elif fitted.second_moment_.panel is not None:
        panel = fitted.second_moment_.panel.to_panel()
    else:
        raise InputError(f"{model} holds no rows: name a table with those to recommend for")
    row = _row(panel, row_id, table or model)
    best = fitted.recommend(row, number)[0]
    row_name: Any = row.row_ids[:1].tolist()[0]
    if as_json:
        recommended = [
            labelled(names, column.id) | {"value": column.value, "standard_deviation": column.standard_deviation}
            for column in best
        ]
        print_result({"row": row_name, "entries": row.n_entries, "recommended": recommended}, as_json)
        return
    if not fitted.factor_.any():
        click.echo("The model has no factor: every row is recommended the columns of the highest means.", err=True)
    if not best:
        click.echo(f"There is nothing to recommend to {row_name}: no unseen column is linked to this row's entries.")
        return
    # So many that a standard deviation has two digits, and none before large numbers run out of them.
    deviation = min(column.standard_deviation for column in best)
    decimals = min(max(1 - floor(log10(deviation)), 0), 12) if deviation > 0 else 3
    lines = [
        (names.called(column.id), f"{column.value:.{decimals}f}", f"{column.standard_deviation:.{decimals}f}")
        for column in best
    ]
    print_table((f"for {row_name}", "value", "standard deviation"), lines)


def _row(panel: Panel, row_id: str | None, where: str) -> Panel:
    if row_id is None:
        if panel.n_rows != 1:
            first = panel.row_ids[0]
            raise InputError(f"{where} has {panel.n_rows:,} rows; say which with --row-id, for example {first}")
        return panel
    ids = [str(value) for value in panel.row_ids.tolist()]
    if row_id not in ids:
        raise InputError(f"{where} has no row {row_id!r}; its rows are such as {examples(panel.row_ids)}")
    return panel.take_rows([ids.index(row_id)])
