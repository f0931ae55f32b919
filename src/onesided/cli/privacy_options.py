"""The options that make up a privacy plan, shared by the commands that take one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.options import option

if TYPE_CHECKING:
    from onesided.privacy import Privacy


@dataclass(frozen=True)
class PrivacyOptions:
    """What a person is promised, and how the promise is kept."""

    epsilon: float | None = option(
        "--epsilon", type=float, metavar="ε", help="Privacy budget ε for the person behind each row; usually 0.1 to 10."
    )
    delta: float | None = option(
        "--delta", type=float, metavar="δ", help="The chance that more may leak; below 1 / the number of rows."
    )
    bounds: tuple[float, float] | None = option(
        "--bounds",
        type=float,
        nargs=2,
        metavar="LOW HIGH",
        help="The least and the largest value there can be, known in advance.",
    )
    max_entries: int | None = option(
        "--max-entries",
        type=click.IntRange(min=2),
        help="How many entries of a row are used at most; of longer rows some, drawn at random.",
    )
    neighbours: Any = option(
        "--neighbours",
        type=click.Choice(["add-remove", "replace"]),
        help="What must not be told: whether a row is there (add-remove, unless said otherwise), or what it "
        "holds instead of another.",
    )
    any_delta: bool = option("--any-delta", is_flag=True, help="Allow a δ of one in all rows or more.")
    mechanism: Any = option(
        "--mechanism",
        type=click.Choice(["gradient", "central", "local"]),
        help="Where noise is added: to passes over the rows (gradient, unless said otherwise), to pair sums and "
        "counts, or to every value.",
    )

    def plan(self, **of_the_fit: Any) -> Privacy | None:
        """The plan that the options make up, with what a fit alone says; None without any of them."""
        from onesided.privacy import Privacy

        if self.epsilon is None or self.delta is None:
            given = (self.epsilon, self.delta, self.bounds or None, self.max_entries, self.mechanism, self.neighbours)
            if any(value is not None for value in given):
                missing = [name for name in ("epsilon", "delta") if getattr(self, name) is None]
                listed = " and ".join(f"--{name}" for name in missing)
                raise click.UsageError(f"{listed} missing: a private fit needs both --epsilon and --delta")
            return None
        if not self.bounds or self.max_entries is None:
            needed = "--bounds LOW HIGH" if not self.bounds else "--max-entries"
            raise click.UsageError(f"a private fit needs {needed}: what a row can hold must be known in advance")
        return Privacy(
            epsilon=self.epsilon,
            delta=self.delta,
            bounds=self.bounds,
            max_entries=self.max_entries,
            mechanism=self.mechanism or "gradient",
            neighbours=self.neighbours or "add-remove",
            any_delta=self.any_delta,
            **of_the_fit,
        )
