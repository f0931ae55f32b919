"""``onesided privacy``: what a plan will cost, before any data is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import print_result
from onesided.cli.options import POSITIVE, json_option, taking
from onesided.cli.privacy_options import PrivacyOptions

if TYPE_CHECKING:
    from onesided.privacy.forecast import Forecast


@click.command()
@taking("privacy", PrivacyOptions)
@click.option("--rows", type=click.IntRange(min=2), required=True, help="How many people there are, roughly.")
@click.option("--columns", type=click.IntRange(min=2), required=True, help="How many columns there are.")
@click.option("--rank", type=POSITIVE, default=5, help="Dimensions of the row space.")
@click.option(
    "--entries", type=click.FloatRange(min=2), help="How many entries a row has on average; --max-entries if not said."
)
@json_option
def privacy(privacy: PrivacyOptions, rows: int, columns: int, rank: int, entries: float | None, as_json: bool) -> None:
    """Tell what a private fit would cost, before any data is read.

    A promise of ε and δ to everybody behind a row is kept by noise. This tells how much noise that is, what it is spent
    on, and what it leaves of covariances: by how much noise alone would put a typical one wrong, and from how many rows
    that is half of it or less. It assumes that values have a standard deviation of a quarter of the bounds' width.
    Without --mechanism, all three are compared.

    \b
    Example:
        onesided privacy --epsilon 1 --delta 1e-7 --bounds 1 5 --max-entries 20 --rows 1000000 --columns 500
    """
    from onesided.privacy.central import MOST_COLUMNS
    from onesided.privacy.forecast import SPENT, forecast
    from onesided.privacy.plan import MECHANISMS

    if privacy.epsilon is None or privacy.delta is None:
        raise click.UsageError("a plan needs --epsilon and --delta")
    result: dict[str, Any] = {}
    for mechanism in [privacy.mechanism] if privacy.mechanism else MECHANISMS:
        compared = replace(privacy, mechanism=mechanism)
        if mechanism == "local" and not privacy.mechanism:
            compared = replace(compared, neighbours=None)  # it has its own
        plan = compared.plan()
        assert plan is not None
        if mechanism == "central" and columns > MOST_COLUMNS and not privacy.mechanism:
            result[mechanism] = None if as_json else f"  not for more than {MOST_COLUMNS:,} columns"
            continue
        cost = forecast(plan, rows, columns, rank=rank, entries=entries)
        if as_json:
            result[mechanism] = {
                "mu": cost.mu,
                "noise": cost.noise,
                "noise_on": cost.noise_on,
                "mean_noise": cost.mean_noise,
                "covariance_noise": cost.covariance_noise,
                "useful_from_rows": cost.useful_from,
                "spent_on": SPENT[plan.mechanism],
            }
        else:
            result[mechanism] = _in_words(cost, SPENT[plan.mechanism], plan.epsilon, plan.most)
    if as_json:
        print_result(result, as_json)
        return
    for name, words in result.items():
        click.echo(f"{name}\n{words}\n")


def _in_words(cost: Forecast, shares: dict[str, float], epsilon: float, entries: int) -> str:
    spent = ", ".join(f"{what} {share:.0%}" for what, share in shares.items())
    lines = [
        f"  μ = {cost.mu:.3g}, spent on {spent}",
        f"  noise on {cost.noise_on}: {cost.noise:.3g}; on the mean of a column: {cost.mean_noise:.3g}",
        f"  covariances: off by {cost.covariance_noise:.2g} times a typical one, from noise alone",
    ]
    fewest = f"from about {cost.useful_from:,} rows" if cost.useful_from else "with no number of rows"
    if cost.useful:
        lines.append(f"  useful: noise is at most half a covariance {fewest}")
    else:
        lines.append(
            f"  at ε = {epsilon:g} and {entries} entries per row nothing but means is to be expected; useful {fewest}: "
            "choose another mechanism, fewer entries or a larger ε"
        )
    return "\n".join(lines)
