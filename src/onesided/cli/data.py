"""``onesided data``: which datasets can be loaded by name, and their files from where they are published."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from onesided.cli.console import bar, print_result
from onesided.cli.options import json_option


@click.group()
def data() -> None:
    """List the datasets that can be loaded by name, or fetch one.

    \b
    Example:
        onesided data list
        onesided data get movielens-1m --to downloads
    """


@data.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List the datasets that can be loaded by name.

    Each with its shape, entries, licence and page; in Python, onesided.datasets.load() takes the name. Where the shape
    is that of whatever file is given, there is none here.

    \b
    Example:
        onesided data list
    """
    from onesided.datasets.catalogue import CATALOGUE

    listed: list[dict[str, Any]] = []
    for spec in CATALOGUE.values():
        if not spec.page:  # any table of the user's own
            continue
        release = spec.releases[0] if spec.releases else None
        shape = {name: release and getattr(release, name) for name in ("rows", "columns", "entries")}
        listed.append({"name": spec.name, **shape, "licence": spec.licence, "page": spec.page})
    if as_json:
        print_result({"datasets": listed}, as_json)
        return
    click.echo(f"{'name':<20} {'rows':>9} × {'columns':<9} {'entries':>10}")
    for dataset in listed:
        counts = "as in the file"
        if dataset["rows"]:
            counts = f"{dataset['rows']:>9,} × {dataset['columns']:<9,} {dataset['entries']:>10,}"
        click.echo(f"{dataset['name']:<20} {counts}\n    {dataset['licence']}\n    {dataset['page']}")


@data.command()
@click.argument("name")
@click.option(
    "--to", "folder", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to put the file in."
)
@json_option
def get(name: str, folder: str, as_json: bool) -> None:
    """Fetch the file of dataset NAME from where it is published.

    The terms of its publisher are shown first. The file has its name only when it is as long as the server said and,
    where a checksum is published, has that; until then it is NAME.part. Where there is a checksum, the same command
    goes on with what a stopped one has left; otherwise it begins again.

    \b
    Example:
        onesided data get movielens-1m --to downloads
    """
    from onesided.datasets.download import download

    with bar("Fetching") as report:
        fetched = download(name, folder, progress=report, note=partial(click.echo, err=True))
    print_result({"file": str(fetched.path), "bytes": fetched.bytes, "checked": fetched.checked}, as_json)
