"""``onesided demo``: handwritten digits from eight pixels each."""

from __future__ import annotations

import click

from onesided.cli.console import passes, print_result
from onesided.cli.options import NATURAL, json_option


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="onesided-demo.png",
    help="Where to draw the picture: .png, .svg or .pdf.",
)
@click.option("--seed", type=NATURAL, default=0, help="Seed of the choice of pixels.")
@json_option
def demo(output: str, seed: int, as_json: bool) -> None:
    """Recover handwritten digits from 8 pixels each.

    Of 1,797 images of 64 pixels, 8 random pixels of each are kept. No image is ever seen whole. The principal
    components come out all the same, and with them an estimate of each image, with its uncertainty.

    \b
    Example:
        onesided demo -o digits.png
    """
    from onesided.report.digits import PICTURES, draw, recover_digits
    from onesided.storage.atomic import check_output

    check_output(output, PICTURES)
    with passes("Recovering") as progress:
        recovery = recover_digits(rng=seed, progress=progress)
    drawn = draw(recovery, output)
    if not drawn:
        click.echo("The picture needs matplotlib: pip install 'onesided[report]'", err=True)
    print_result(recovery.summary() | {"picture": output if drawn else None}, as_json)
