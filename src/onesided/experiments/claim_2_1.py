"""Claim 2.1: the probability that a pair is in Ω."""

from __future__ import annotations

import numpy as np

from onesided import synthetic
from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.summaries import distinct, groups, markdown, mean, means, where
from onesided.pairs.moments import PairMoments


def cells(settings: Settings, panels: Panels) -> list[Row]:
    d = settings["d"]
    return [
        {"d": d, "C": C, "n": int(times * d), "seed": seed}
        for C in settings["C"]
        for times in settings["rows_per_column"]
        for seed in range(settings["seeds"])
    ]


def measure(cell: Row, panels: Panels) -> Row:
    n, d, p = cell["n"], cell["d"], cell["C"] / cell["d"]
    truth = synthetic.linear_mixture(n, d, 1, rng=cell["seed"])  # only where it is observed matters
    moments = PairMoments.from_panel(synthetic.sample_bernoulli(truth, p, rng=cell["seed"]))
    i, j = moments.pairs()
    on = int(np.count_nonzero(i == j))
    return {
        "diagonal": on / d,
        "diagonal_claimed": -np.expm1(n * np.log1p(-p)),
        "off_diagonal": 2 * (moments.n_pairs - on) / (d * (d - 1)),
        "off_diagonal_claimed": -np.expm1(n * np.log1p(-(p**2))),
    }


def _worst(rows: list[Row]) -> float:
    """The largest distance of a mean over seeds from the claimed probability, on and off the diagonal."""
    return max(
        abs(mean(group, name) - mean(group, f"{name}_claimed"))
        for _, group in groups(rows, "C", "n")
        for name in ("diagonal", "off_diagonal")
    )


def expect(rows: list[Row]) -> list[Expectation]:
    worst = _worst(rows)
    return [
        Expectation(
            "the shares of Ω on and off the diagonal are 1 − (1 − p)ⁿ and 1 − (1 − p²)ⁿ, to 0.01",
            worst < 0.01,
            f"the largest distance is {worst:.4f}",
        )
    ]


def verdict(rows: list[Row]) -> str:
    return f"Agrees: no share is further than {_worst(rows):.4f} from the formula."


def table(rows: list[Row]) -> str:
    header = ["C", "n", "diagonal in Ω", "claimed", "off-diagonal in Ω", "claimed"]
    names = ("diagonal", "diagonal_claimed", "off_diagonal", "off_diagonal_claimed")
    kinds = groups(rows, "C", "n")
    return markdown(header, [[*kind, *(f"{mean(group, name):.4f}" for name in names)] for kind, group in kinds])


def draw(rows: list[Row], figure: Figure) -> None:
    figure.set_size_inches(5, 3.4)
    axis = figure.subplots()
    for C in distinct(rows, "C"):
        group = where(rows, C=C)
        (line,) = axis.plot(*means(group, "n", "off_diagonal_claimed"), label=f"C = {C}")
        axis.plot(*means(group, "n", "off_diagonal"), "o", color=line.get_color())
    axis.set(xscale="log", xlabel="rows n", ylabel="share of off-diagonal pairs in Ω", ylim=(0, 1))
    axis.legend(title="line: formula, points: measured", fontsize=8)


EXPERIMENT = Experiment(
    name="claim-2-1",
    title="Claim 2.1: the probability that a pair is in Ω",
    claim="Sampling each entry with probability p = C/d, a diagonal pair is in Ω with probability 1 − (1 − p)ⁿ, an "
    "off-diagonal one with 1 − (1 − p²)ⁿ: the diagonal is seen whole, the rest sparsely.",
    method="The share of the d diagonal and the d(d − 1) off-diagonal pairs that are in Ω, mean over seeds.",
    full={"d": 1000, "C": [2, 5, 10], "rows_per_column": [1, 3, 10, 30, 100], "seeds": 5},
    quick={"d": 300, "rows_per_column": [1, 10, 100], "seeds": 3},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
