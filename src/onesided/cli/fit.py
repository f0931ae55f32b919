"""``onesided fit``: a table in, a model out."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import click

from onesided.cli.console import EXISTING_FILE, json_option, passes, print_result, read_panel, table_options


@click.command()
@click.argument("table", type=EXISTING_FILE)
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write the model.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Dimensions of the row space; 0 for column means alone.",
)
@click.option(
    "--center",
    type=click.Choice(["columns", "none"]),
    default="columns",
    show_default=True,
    help="Whether column means are taken out first and kept in the model.",
)
@click.option(
    "--diagonal",
    type=click.Choice(["free", "fit"]),
    default="free",
    show_default=True,
    help="Whether columns vary on their own too (free), or rows lie in the row space exactly (fit).",
)
@click.option(
    "--max-passes", type=click.IntRange(min=1), default=300, show_default=True, help="Passes over the rows at most."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random start.")
@click.option("--without-panel", is_flag=True, help="Leave the observed entries and row ids out of the model file.")
@table_options
@json_option
def fit(
    table: str,
    output: str,
    rank: int,
    center: Any,
    diagonal: Any,
    max_passes: int,
    seed: int,
    without_panel: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Fit the row space of TABLE and write it to a model file.

    TABLE has one line per observed entry: a row id, a column id and a value; other columns are ignored. It is a
    Parquet file, or UTF-8 text separated by commas, tabs, semicolons or "::", plain or in gzip or xz. Text whose
    first line is already an entry has no header: its fields are row, column, value and at most one more.

    \b
    Example:
        onesided fit ratings.csv -o movies.onesided --rank 20
    """
    import warnings

    from onesided.completion import OneSidedCompletion
    from onesided.storage import check_output

    check_output(output, inputs=[table])
    panel, left_out = read_panel(table, **reading)
    began = perf_counter()
    model = OneSidedCompletion(rank=rank, center=center, diagonal=diagonal, max_passes=max_passes, random_state=seed)
    with passes("Fitting") as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(panel, progress=progress)
    for warning in caught:
        click.echo(f"Warning: {warning.message}", err=True)
    seconds = perf_counter() - began
    model.save(output, panel=not without_panel)
    print_result(
        {
            "model": output,
            "rows": panel.n_rows,
            "columns": panel.n_columns,
            "entries": panel.n_entries,
            **left_out,
            "columns_unsupported": int((~model.measured_.supported).sum()),
            "rank": rank,
            "solver": model.solve_.message if not as_json else model.solve_.status,
            "passes": model.solve_.passes,
            "seconds": seconds,
            "eigenvalues": [float(one) for one in model.eigenvalues_],
            "noise_variance": float(model.noise_variance_.min()),
        },
        as_json,
    )
