"""``onesided reproduce``: the tables and figures of the paper, measured again."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from onesided.cli.console import bar, print_result
from onesided.cli.options import json_option


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--list", "listed", is_flag=True, help="Name every table, figure and claim, and end.")
@click.option("--quick", is_flag=True, help="Small panels and few seeds; those of --data stay whole.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False),
    help="A folder with real panels as they were downloaded (see onesided data). Without it, stand-ins.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    help="The folder for NAME.json, NAME.md and NAME.svg.  [default: results, or results/quick]",
)
@json_option
def reproduce(
    names: tuple[str, ...], listed: bool, quick: bool, data: str | None, output: str | None, as_json: bool
) -> None:
    """Measure the tables and figures of the paper again.

    NAME is one of those that --list names, or several, or all.

    Each writes what was measured as JSON (settings, seeds, versions, seconds, numbers), as a table in Markdown and as
    a picture, and says of every claim whether it holds. A run that was stopped goes on where it was.

    \b
    Example:
        onesided reproduce figure-1 --quick
        onesided reproduce all --data downloads
    """
    from onesided.errors import InputError
    from onesided.experiments import NAMES, NOT_EXPERIMENTS, experiment
    from onesided.experiments.experiment import run
    from onesided.experiments.panels import Panels

    if listed and as_json:
        print_result({name: experiment(name).title for name in NAMES}, as_json)
        return
    if listed:
        for name in NAMES:
            click.echo(f"{name:<16}  {experiment(name).title}")
        for what, why in NOT_EXPERIMENTS.items():
            click.echo(f"{'–':<16}  {what} {why}")
        return
    if not names:
        raise click.UsageError("name a table or figure, or all; --list names them")
    experiments = [experiment(name) for name in (NAMES if "all" in names else names)]
    panels, folder = Panels(data), Path(output or ("results/quick" if quick else "results"))
    failed, records = [], {}
    for chosen in experiments:
        try:
            with bar(chosen.name) as report:
                record = run(chosen, folder, panels, quick=quick, progress=report)
            records[chosen.name] = {name: record[name] for name in ("title", "seconds", "expectations", "verdict")}
            if not as_json:
                _print(record, folder)
        except InputError as error:
            if len(experiments) == 1:
                raise
            failed.append(chosen.name)
            click.echo(f"{chosen.name}: {error}\n", err=True)
    if as_json:
        print_result(records, as_json)
    if failed:
        raise click.ClickException(f"could not be run: {', '.join(failed)}")


def _print(record: dict[str, Any], folder: Path) -> None:
    click.echo(f"{record['title']} ({record['seconds']:.0f} s)")
    click.echo((folder / f"{record['experiment']}.md").read_text(encoding="utf-8"))
    for expectation in record["expectations"]:
        holds = "holds" if expectation["holds"] else "does not hold"
        click.echo(f"{holds}: {expectation['claim']}: {expectation['found']}")
    click.echo(f"{record['verdict']}\n")
    if find_spec("matplotlib") is None:
        click.echo("Pictures need matplotlib: pip install 'onesided[report]'", err=True)
