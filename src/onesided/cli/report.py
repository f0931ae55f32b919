"""``onesided report``: a model on one page.

What is refused, beside what :mod:`onesided.report.report`, :mod:`onesided.column_names` and
:mod:`onesided.storage.archive` refuse:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
an output that does not end in .html or .htm           cannot tell the format of report.pdf from its name …
an output that is the model, the panel or the names    the output movies.onesided is the input …
options on how to read a table, without a table        --row is about the table of --panel, which was not given …
=====================================================  ========================================================
"""

from __future__ import annotations

from pathlib import Path

import click

from onesided.cli.column_names import load_named, names_option
from onesided.cli.console import bar, print_result
from onesided.cli.options import EXISTING_FILE, NATURAL, TABLE_OR_PANEL, json_option, taking
from onesided.cli.reading import ReadingOptions, read_panel
from onesided.errors import InputError

ENDINGS = (".html", ".htm")


@click.command()
@click.argument("model", type=EXISTING_FILE)
@click.option(
    "-o", "--output", type=click.Path(), default="report.html", help="Where to write the page: .html or .htm."
)
@click.option(
    "--panel",
    type=TABLE_OR_PANEL,
    help="The table or packed panel that MODEL was fitted to, where the model file does not hold it.",
)
@names_option
@click.option("--seed", type=NATURAL, default=0, help="Seed of all that is random.")
@taking("reading", ReadingOptions)
@json_option
def report(
    model: str,
    output: str,
    panel: str | None,
    names_table: str | None,
    seed: int,
    reading: ReadingOptions,
    as_json: bool,
) -> None:
    """Write a page on MODEL: what was found, how good it is.

    The page is one HTML file that needs no other: no scripts, nothing from the network. How good the model is, is told
    by rows held out from a fit with the same setting. The options on rows, columns and values are about the table of
    --panel. With --json, the numbers on the page are printed, too.

    \b
    Example:
        onesided report movies.onesided -o movies.html --names movies.csv
        onesided report large.onesided --panel ratings.panel
    """
    from onesided.report.report import Report
    from onesided.storage.atomic import check_output

    check_output(output, ENDINGS, inputs=[path for path in (model, panel, names_table) if path])
    if panel is None and reading.given:
        raise InputError(
            f"{reading.given} is about the table of --panel, which was not given; name it, or leave {reading.given} out"
        )
    fitted, names = load_named(model, names_table)
    rows = None if panel is None else read_panel(panel, reading)[0]
    if rows is None and fitted.second_moment_.panel is None and fitted.privacy_ is None:
        click.echo(f"{model} holds no rows: name them with --panel, and the page says how good the model is.", err=True)
    with bar("Making the report") as progress:
        page = Report.of(fitted, rows, names, title=Path(model).stem, seed=seed, progress=progress)
        page.write(output)
        progress(100, 100)
    short = {section.anchor: section.in_short for section in page.sections if section.in_short}
    print_result({"output": output} | (page.to_dict() if as_json else short), as_json)
