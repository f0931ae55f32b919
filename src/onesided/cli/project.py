"""``onesided project``: one's own row on a published row space, on one's own machine."""

from __future__ import annotations

from typing import Any

import click

from onesided.cli.console import print_result
from onesided.cli.impute import ENDINGS, all_values, write_values
from onesided.cli.options import EXISTING_FILE, json_option, taking
from onesided.cli.reading import ReadingOptions, read_panel


@click.command()
@click.argument("space", type=EXISTING_FILE)
@click.argument("entries", metavar="ROW", type=EXISTING_FILE)
@click.option("-o", "--output", type=click.Path(), help="Where to write the row filled in: .csv, .tsv or .parquet.")
@taking("reading", ReadingOptions)
@json_option
def project(space: str, entries: str, output: str | None, reading: ReadingOptions, as_json: bool) -> None:
    """Place your own ROW in a published SPACE: nothing is sent.

    SPACE is a model file, as whoever collected the data has published it. ROW is a table with what you know of
    yourself: lines of your id, a column id and a value, in any format that "onesided fit" reads. Entries in columns
    that the space does not have are left out, and counted. Printed are your coordinates in the space; with -o, every
    column's value and its standard deviation are written.

    \b
    Example:
        onesided project published.onesided me.csv
        onesided project published.onesided me.csv -o me-filled.csv
    """
    from onesided.estimators.completion import OneSidedCompletion
    from onesided.panels.alignment import align_as_written
    from onesided.storage.atomic import check_output

    if output is not None:
        check_output(output, ENDINGS, inputs=[space, entries])
    model = OneSidedCompletion.load(space)
    panel, _ = read_panel(entries, reading)
    rows = align_as_written(panel, model.column_ids_, unknown="drop")
    result: dict[str, Any] = {
        "rows": [str(row) for row in rows.row_ids.tolist()],
        "entries_used": rows.n_entries,
        "entries_unknown": panel.n_entries - rows.n_entries,
        "coordinates": model.transform(rows).tolist(),
    }
    if output is not None:
        write_values(output, rows, rows.n_rows * rows.n_columns, all_values(model, rows))
        result["output"] = output
    if as_json:
        print_result(result, as_json)
        return
    placed = zip(result.pop("rows"), result.pop("coordinates"), strict=True)
    print_result({f"coordinates of {row}": line for row, line in placed} | result, as_json)
