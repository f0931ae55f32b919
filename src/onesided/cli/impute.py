"""``onesided impute``: rows filled in by a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import EXISTING_FILE, bar, json_option, print_result, read_panel, table_options
from onesided.errors import InputError, counted

if TYPE_CHECKING:
    import numpy as np

    from onesided.completion import OneSidedCompletion
    from onesided.panel import Panel

CHUNK = 1 << 20  # values written at a time


@click.command()
@click.argument("model", type=EXISTING_FILE)
@click.argument("table", type=EXISTING_FILE)
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="Where to write: .csv, .tsv or .parquet."
)
@click.option(
    "--at", "positions", type=EXISTING_FILE, help="Impute only at the (row, column) pairs that this table lists."
)
@click.option(
    "--unknown",
    type=click.Choice(["refuse", "drop"]),
    default="refuse",
    show_default=True,
    help="What to do with columns that the model does not know.",
)
@table_options
@json_option
def impute(
    model: str, table: str, output: str, positions: str | None, unknown: Any, as_json: bool, **reading: Any
) -> None:
    """Fill in the rows of TABLE with a fitted MODEL.

    TABLE holds what was observed of each row; rows need not be among those the model was fitted on. OUT has one
    line per row and column: the value and its predictive standard deviation, zero where the value was observed.
    With --at, only the pairs asked for, all of them predicted.

    \b
    Example:
        onesided impute movies.onesided new-users.csv -o filled.parquet
        onesided impute movies.onesided ratings.csv --at wanted.csv -o predictions.csv
    """
    from onesided.completion import OneSidedCompletion

    fitted = OneSidedCompletion.load(model)
    panel = read_panel(table, **reading)
    if fitted.column_ids_.dtype != panel.column_ids.dtype:
        kinds = {"O": "text"}
        raise InputError(
            f"the model's column ids are {kinds.get(fitted.column_ids_.dtype.kind, 'integers')}, "
            f"those of {table} are {kinds.get(panel.column_ids.dtype.kind, 'integers')}: they cannot be matched"
        )
    aligned = panel.align_columns(fitted.column_ids_, unknown=unknown)
    if positions is None:
        lines, parts = aligned.n_rows * aligned.n_columns, _all(fitted, aligned)
    else:
        rows, columns = _positions(positions, aligned, unknown, reading["row"], reading["column"])
        lines, parts = len(rows), _at(fitted, aligned, rows, columns)
    _write(output, lines, parts)
    print_result(
        {"output": output, "rows": aligned.n_rows, "values": lines, "dropped": panel.n_entries - aligned.n_entries},
        as_json,
    )


Part = tuple["np.ndarray[Any, Any]", ...]  # row ids, column ids, values, standard deviations


def _all(model: OneSidedCompletion, panel: Panel) -> Iterator[Part]:
    import numpy as np

    step = max(1, CHUNK // panel.n_columns)
    for first in range(0, panel.n_rows, step):
        part = panel.take_rows(np.arange(first, min(first + step, panel.n_rows)))
        values, deviations = model.impute(part, return_std=True)
        rows = np.repeat(part.row_ids, panel.n_columns)
        yield rows, np.tile(panel.column_ids, part.n_rows), values.ravel(), np.asarray(deviations).ravel()


def _at(model: OneSidedCompletion, panel: Panel, rows: Any, columns: Any) -> Iterator[Part]:
    for first in range(0, len(rows), CHUNK):
        here = slice(first, first + CHUNK)
        values, deviations = model.impute_at(panel, rows[here], columns[here], return_std=True)
        yield panel.row_ids[rows[here]], panel.column_ids[columns[here]], values, deviations


def _positions(path: str, panel: Panel, unknown: str, row: str | None, column: str | None) -> tuple[Any, Any]:
    import numpy as np

    from onesided.ids import find_ids
    from onesided.tables import open_table

    table = open_table(path, row=row, column=column, values=False)
    wanted = table.reader.read_all()
    row_ids, column_ids = (wanted[name].to_numpy(zero_copy_only=False) for name in (table.row, table.column))
    rows, row_known = find_ids(panel.row_ids, row_ids)
    columns, column_known = find_ids(panel.column_ids, column_ids)
    known = row_known & column_known
    if not known.all():
        if unknown == "refuse":
            first = int(np.flatnonzero(~known)[0])
            raise InputError(
                f"{path} lists {counted(int((~known).sum()), 'pair')} whose row is not in the table or whose column "
                f"is not in the model, first {row_ids[first]!r}, {column_ids[first]!r}; --unknown drop leaves them out"
            )
        click.echo(f"{counted(int((~known).sum()), 'unknown pair')} left out", err=True)
    return rows[known], columns[known]


def _write(path: str, lines: int, parts: Iterator[Part]) -> None:
    """Streamed beside the final name, then renamed."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from onesided.storage import written_beside

    ending = path.rsplit(".", 1)[-1].lower()
    if ending not in ("csv", "tsv", "parquet"):
        raise InputError(f"cannot tell the format of {path}; name it .csv, .tsv or .parquet")
    names, done = ("row", "column", "value", "standard_deviation"), 0
    writer = None
    with written_beside(path) as temporary, bar("Imputing") as report:
        try:
            for part in parts:
                batch = pa.table(dict(zip(names, map(pa.array, part), strict=True)))
                if writer is None:
                    if ending == "parquet":
                        writer = pa.parquet.ParquetWriter(temporary, batch.schema)
                    else:
                        separator = "," if ending == "csv" else "\t"
                        options = pa.csv.WriteOptions(delimiter=separator)
                        writer = pa.csv.CSVWriter(temporary, batch.schema, write_options=options)
                writer.write_table(batch)
                done += batch.num_rows
                report(done, lines)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise InputError("there is nothing to impute: no pair is left")
