"""The options that make up a privacy plan, shared by the commands that take one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from onesided.privacy import Privacy

Command = TypeVar("Command", bound=Callable[..., Any])


def plan_options(command: Command) -> Command:
    """What a person is promised."""
    for option in reversed(
        (
            click.option(
                "--epsilon", type=float, metavar="ε", help="How much may leak of a person, at most; usually 0.1 to 10."
            ),
            click.option(
                "--delta", type=float, metavar="δ", help="The chance that more may; below 1 / the number of rows."
            ),
            click.option(
                "--bounds",
                type=float,
                nargs=2,
                metavar="LOW HIGH",
                help="The least and the largest value there can be, known in advance.",
            ),
            click.option(
                "--max-entries",
                type=click.IntRange(min=2),
                help="How many entries of a row are used at most; of longer rows some, drawn at random.",
            ),
            click.option(
                "--neighbours",
                type=click.Choice(["add-remove", "replace"]),
                help="What must not be told: whether a row is there (add-remove, unless said otherwise), or what it "
                "holds instead of another.",
            ),
            click.option("--any-delta", is_flag=True, help="Allow a δ of one in all rows or more."),
        )
    ):
        command = option(command)
    return command


mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(["gradient", "central", "local"]),
    help="Where noise is added: to passes over the rows (gradient, unless said otherwise), to pair sums and counts, or "
    "to every value.",
)


def made_plan(
    mechanism: Any,
    *,
    epsilon: float | None,
    delta: float | None,
    bounds: tuple[float, float] | None,
    max_entries: int | None,
    neighbours: Any,
    **others: Any,
) -> Privacy | None:
    """The plan that options make up; None where there is none."""
    from onesided.privacy import Privacy

    if epsilon is None or delta is None:
        if any(one is not None for one in (epsilon, delta, bounds or None, max_entries, mechanism, neighbours)):
            missing = [name for name, one in (("--epsilon", epsilon), ("--delta", delta)) if one is None]
            raise click.UsageError(f"{' and '.join(missing)} missing: a private fit needs both --epsilon and --delta")
        return None
    if not bounds or max_entries is None:
        needed = "--bounds LOW HIGH" if not bounds else "--max-entries"
        raise click.UsageError(f"a private fit needs {needed}: what a row can hold must be known in advance")
    return Privacy(
        epsilon=epsilon,
        delta=delta,
        bounds=bounds,
        max_entries=max_entries,
        mechanism=mechanism or "gradient",
        neighbours=neighbours or "add-remove",
        **others,
    )
