"""``onesided pack``: tables larger than memory in, a panel on the disk out."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import click

from onesided.cli.console import bar, print_result
from onesided.cli.options import EXISTING_FILE, json_option, taking
from onesided.cli.reading import ReadingOptions


@click.command()
@click.argument("tables", nargs=-1, required=True, type=EXISTING_FILE)
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write the panel, a folder.")
@click.option(
    "--memory",
    metavar="MEGABYTES",
    type=click.IntRange(min=64),
    default=256,
    help="Memory for the sort; the rest of the work takes some 200 MB more.",
)
@taking("reading", ReadingOptions)
@json_option
def pack(tables: tuple[str, ...], output: str, memory: int, reading: ReadingOptions, as_json: bool) -> None:
    """Pack tables larger than memory into one panel on the disk.

    TABLES are as for fit; their lines may come in any order, and a row id in several tables is one row. The panel
    is a folder, which other commands take in the place of a table and do not read into memory. While it is made,
    the folder .NAME.part beside it needs some six times the room of the panel (more where ids are long).

    The same command goes on from the last finished pass of one that was stopped, however it was. A packed panel of
    the same name is replaced at the end.

    \b
    Example:
        onesided pack ratings-*.csv.gz -o ratings.panel
        onesided fit ratings.panel -o movies.onesided
    """
    from onesided.panels.packed.sort import pack as pack_tables
    from onesided.panels.refusals import ValueRules
    from onesided.panels.table_files import TableColumns

    columns = TableColumns(reading.row, reading.column, reading.value)
    rules, note = ValueRules(reading.duplicates, reading.non_finite), partial(click.echo, err=True)
    packed = pack_tables(tables, output, columns=columns, rules=rules, memory=memory, progress=bar, note=note)
    print_result({"panel": output} | asdict(packed), as_json)
