"""Appendix B.3: the target rank of Algorithm 1 beside the rank of the matrix."""

from __future__ import annotations

from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.metrics import relative_error
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.summaries import (
    agreement,
    distinct,
    groups,
    log_axis,
    markdown,
    mean,
    means,
    over_seeds,
    where,
)
from onesided.experiments.synthetic_recovery import hajek_gd, observed, one_sided

COMPARABLE = 2.0  # the largest ratio between errors that are called comparable
AUTO = "auto"


def cells(settings: Settings, panels: Panels) -> list[Row]:
    return [
        {name: settings[name] for name in ("n", "d", "C")}
        | {"generator": generator, "seed": seed, "rank": rank, "target": target}
        for generator in ("text", "linear-mixture")
        for seed in range(settings["seeds"])
        for rank in settings["ranks"]
        for target in [*settings["ranks"], AUTO]
    ]


def measure(cell: Row, panels: Panels) -> Row:
    target, seed = cell["target"], cell["seed"]
    truth = generated(cell["generator"], cell["n"], cell["d"], cell["rank"], seed)
    T, panel = truth.second_moment(), observed(truth, cell["C"], seed)
    if target == AUTO:
        own = one_sided(panel, seed)
        return {"error": relative_error(own.second_moment_.to_dense(), T), "chosen": int(own.rank_)}
    return {"error": relative_error(hajek_gd(panel, target, seed).second_moment_.to_dense(), T)}


def _errors(rows: list[Row], generator: str, rank: int) -> dict[int | str, float]:
    group = where(rows, generator=generator, rank=rank)
    return {target: mean(here, "error") for (target,), here in groups(group, "target")}


def _worst_ratios(rows: list[Row], generator: str) -> dict[int, float]:
    """For each rank, the largest error of HajekGD over its smallest, between target ranks."""
    own = [row for row in where(rows, generator=generator) if row["target"] != AUTO]
    errors = {rank: means(group, "target", "error")[1] for (rank,), group in groups(own, "rank")}
    return {rank: max(one) / min(one) for rank, one in errors.items()}


def _auto_against_best(rows: list[Row]) -> float:
    """The largest error with the rank chosen, over that of HajekGD at its best target rank."""
    errors = [_errors(rows, *kind) for kind, _ in groups(rows, "generator", "rank")]
    return max(one.pop(AUTO) / min(one.values()) for one in errors)


def expect(rows: list[Row]) -> list[Expectation]:
    worst = _auto_against_best(rows)
    return [
        *(
            Expectation(
                f"on the {generator} generator, errors of HajekGD at different target ranks are within a factor "
                f"{COMPARABLE:g} of each other",
                max(ratios.values()) <= COMPARABLE,
                "; ".join(f"r = {rank}: factor {ratio:.3g}" for rank, ratio in ratios.items()),
            )
            for generator in distinct(rows, "generator")
            for ratios in [_worst_ratios(rows, generator)]
        ),
        Expectation(
            "OneSidedCompletion, which chooses its rank, is never worse than HajekGD at the best target rank",
            worst <= 1,
            f"its error is at most {worst:.3g} times that",
        ),
    ]


def verdict(rows: list[Row]) -> str:
    ratios = {generator: max(_worst_ratios(rows, generator).values()) for generator in distinct(rows, "generator")}
    word = agreement([ratio <= COMPARABLE for ratio in ratios.values()])
    found = ", ".join(f"{ratio:.2g} on {generator}" for generator, ratio in ratios.items())
    return f"{word}: between target ranks the error of HajekGD differs by factors up to {found}."


def table(rows: list[Row]) -> str:
    targets = distinct(rows, "target")
    header = ["generator", "r", *(f"target {target}" if target != AUTO else "OneSidedCompletion" for target in targets)]
    lines = []
    for kind, group in groups(rows, "generator", "rank"):
        words = [over_seeds(where(group, target=one), "error") for one in targets]
        words[-1] += f" (rank {mean(group, 'chosen'):.3g})"
        lines.append([*kind, *words])
    return markdown(header, lines)


def draw(rows: list[Row], figure: Figure) -> None:
    generators = distinct(rows, "generator")
    figure.set_size_inches(8, 3.6)
    axes = figure.subplots(1, len(generators), sharey=True)
    for axis, generator in zip(axes, generators, strict=True):
        for position, rank in enumerate(distinct(rows, "rank")):
            errors = _errors(rows, generator, rank)
            chosen = errors.pop(AUTO)
            axis.plot(list(errors), list(errors.values()), "o-", color=f"C{position}", label=f"r = {rank}")
            axis.axhline(chosen, color=f"C{position}", linestyle=":")
        axis.set(yscale="log", xlabel="target rank", title=generator)
        log_axis(axis, distinct(rows, "rank"))
    axes[0].set_ylabel("relative error of T")
    axes[-1].legend(fontsize=7, title="dotted: OneSidedCompletion")


EXPERIMENT = Experiment(
    name="target-rank",
    title="Appendix B.3: the target rank on synthetic panels",
    claim="With the rank of M and the target rank of Algorithm 1 both between 1 and 50, errors are comparable between "
    "target ranks.",
    method="Relative error of T (XXᵀ of HajekGD, the paper's settings), C = 10, n = 10⁴, d = 10³, on the paper's "
    "generator, whose T is near rank one whatever its rank, and on linear mixtures, whose T has all of its rank; "
    "OneSidedCompletion, which chooses its rank, beside. Three seeds.",
    full={"n": 10_000, "d": 1000, "C": 10, "ranks": [1, 5, 10, 20, 50], "seeds": 3},
    quick={"n": 1000, "d": 100, "ranks": [1, 4, 12], "seeds": 1},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
