"""``onesided impute``: rows filled in by a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import bar, print_result
from onesided.cli.options import EXISTING_FILE, TABLE_OR_PANEL, json_option, one_of, taking
from onesided.cli.reading import ReadingOptions, read_panel
from onesided.errors import InputError, counted, shown

if TYPE_CHECKING:
    import numpy as np

    from onesided.estimators.completion import OneSidedCompletion
    from onesided.panels.panel import Panel

Part = tuple["np.ndarray[Any, Any]", ...]  # row ids, column ids, values, standard deviations

CHUNK = 1 << 20  # values written at a time
LINE_BYTES = {".csv": 40, ".tsv": 40, ".parquet": 20}  # of the output, roughly
ENDINGS = tuple(LINE_BYTES)
MANY_LINES = 10_000_000


@click.command()
@click.argument("model", type=EXISTING_FILE)
@click.argument("table", type=TABLE_OR_PANEL)
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write: .csv, .tsv or .parquet.")
@click.option(
    "--at",
    "positions",
    type=EXISTING_FILE,
    help="Impute only at the (row, column) pairs that this table lists. Its columns are named as those of TABLE; "
    "values, if it has any, are ignored.",
)
@click.option(
    "--unknown",
    **one_of("refuse", "drop"),
    help="When a column is not in the model, or a row of --at not in TABLE: refuse the table, or drop its entries.",
)
@taking("reading", ReadingOptions)
@json_option
def impute(
    model: str, table: str, output: str, positions: str | None, unknown: Any, reading: ReadingOptions, as_json: bool
) -> None:
    """Fill in the rows of TABLE with a fitted MODEL.

    TABLE holds what was observed of each row, in any format that "onesided fit" reads; rows need not be among
    those the model was fitted on. The output has one line for every row of TABLE and every column of the model:
    the value and its predictive standard deviation. Observed values stay as they are, with deviation zero.
    With --at, it has the pairs asked for, and all of them are predicted, each from all entries of its row: where
    the entry itself is among these ("pairs observed" counts such), the prediction has seen it, and its distance from
    the entry says nothing of how good predictions are.

    \b
    Example:
        onesided impute movies.onesided new-rows.csv -o filled.parquet
        onesided impute movies.onesided ratings.csv --at wanted.csv -o predictions.csv
    """
    from onesided.estimators.completion import OneSidedCompletion
    from onesided.kernels.pairs import find_pairs
    from onesided.panels.alignment import align_as_written
    from onesided.storage.atomic import check_output

    check_output(output, ENDINGS, inputs=[path for path in (model, table, positions) if path])
    fitted = OneSidedCompletion.load(model)
    panel, left_out = read_panel(table, reading)
    aligned = align_as_written(panel, fitted.column_ids_, unknown=unknown)
    result = {"output": output, "rows": aligned.n_rows, **left_out}
    result["entries_dropped"] = panel.n_entries - aligned.n_entries
    if positions is None:
        lines, parts = aligned.n_rows * aligned.n_columns, all_values(fitted, aligned)
        _check_disk(output, lines)
    else:
        rows, columns, dropped = _positions(positions, aligned, unknown, reading)
        lines, parts = len(rows), _at(fitted, aligned, rows, columns)
        result["pairs_dropped"] = dropped
        result["pairs_observed"] = int((find_pairs(aligned.indptr, aligned.columns, rows, columns) >= 0).sum())
    write_values(output, aligned, lines, parts)
    print_result(result | {"values": lines}, as_json)


def _check_disk(output: str, lines: int) -> None:
    """Tell of an output that is very long, and refuse one that the disk has no room for."""
    from shutil import disk_usage

    from onesided.memory import memory_in_words

    size = lines * LINE_BYTES[Path(output).suffix.lower()]
    instead = "list the pairs that are wanted with --at"
    free = disk_usage(Path(output).resolve().parent).free
    if size > free:
        raise InputError(
            f"every row filled in would be {lines:,} lines, about {memory_in_words(size)}, and the disk has "
            f"{memory_in_words(free)} left; {instead}"
        )
    if lines > MANY_LINES:
        click.echo(f"Writing {lines:,} lines, about {memory_in_words(size)}; to write fewer, {instead}.", err=True)


def all_values(model: OneSidedCompletion, panel: Panel) -> Iterator[Part]:
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


def _positions(path: str, panel: Panel, unknown: str, reading: ReadingOptions) -> tuple[Any, Any, int]:
    """Row and column positions of the pairs that a table lists, and how many pairs were left out."""
    import numpy as np

    from onesided.panels.alignment import comparable_ids
    from onesided.panels.ids import IdIndex, encode_ids
    from onesided.panels.table_files import open_table

    table = open_table(path, row=reading.row, column=reading.column, values=False)
    wanted = table.reader.read_all()
    pairs, places = [], []
    for name, there in ((table.row, panel.row_ids), (table.column, panel.column_ids)):
        ids, codes, _ = encode_ids(wanted[name], name)
        assert ids is not None
        pairs.append((ids, codes))
        known, listed = comparable_ids(there, ids)
        places.append(IdIndex(known).find(listed)[0][codes])
    rows, columns = places
    placed = (rows >= 0) & (columns >= 0)
    strangers = np.flatnonzero(~placed)
    if len(strangers) and unknown == "refuse":
        first_row, first_column = (shown(ids[codes[strangers[0]]]) for ids, codes in pairs)
        raise InputError(
            f"{path} lists {counted(len(strangers), 'pair')} whose row is not in the table or whose column is not in "
            f"the model, first row {first_row}, column {first_column}; pass --unknown drop to leave them out"
        )
    if len(strangers) == len(placed):
        raise InputError(f"there is nothing to impute: no pair of {path} is known")
    return rows[placed], columns[placed], len(strangers)


def write_values(path: str, panel: Panel, lines: int, parts: Iterator[Part]) -> None:
    """Streamed beside the final name, then renamed."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from onesided.storage.atomic import written_beside

    kinds = [
        pa.string() if ids.dtype.kind == "O" else pa.from_numpy_dtype(ids.dtype)
        for ids in (panel.row_ids, panel.column_ids)
    ]
    names = ("row", "column", "value", "standard_deviation")
    schema = pa.schema(list(zip(names, (*kinds, pa.float64(), pa.float64()), strict=True)))
    with written_beside(path) as temporary, bar("Imputing") as report:
        if path.lower().endswith(".parquet"):
            writer = pa.parquet.ParquetWriter(temporary, schema)
        else:
            options = pa.csv.WriteOptions(delimiter="," if path.lower().endswith(".csv") else "\t")
            writer = pa.csv.CSVWriter(temporary, schema, write_options=options)
        done = 0
        with writer:
            for part in parts:
                writer.write_table(pa.table(list(part), schema=schema))
                done += len(part[0])
                report(done, lines)
