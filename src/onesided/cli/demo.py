"""``onesided demo``: handwritten digits from eight pixels each."""

from __future__ import annotations

from typing import Any

import click

from onesided.cli.console import json_option, print_result


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="onesided-demo.png",
    show_default=True,
    help="Where to draw the picture.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which pixels are kept.")
@json_option
def demo(output: str, seed: int, as_json: bool) -> None:
    """Keep 8 random pixels of each of 1,797 handwritten digits and recover the rest.

    No digit is ever seen whole. The principal components come out all the same, and with them the images.
    """
    from onesided.report.digits import draw, recover_digits

    recovery = recover_digits(rng=seed)
    result: dict[str, Any] = recovery.summary()
    if draw(recovery, output):
        result["picture"] = output
    else:
        result["picture"] = "not drawn: pip install 'onesided[report]'"
    print_result(result, as_json)
