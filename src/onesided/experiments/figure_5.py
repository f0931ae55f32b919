"""Figure 5: error of T as d, r and the noise grow."""

from __future__ import annotations

import numpy as np

from onesided.experiments.experiment import Axes, Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.summaries import (
    agreement,
    distinct,
    exponent,
    groups,
    log_axis,
    markdown,
    mean,
    means,
    over_seeds,
    slope,
    where,
)
from onesided.experiments.synthetic_recovery import METHODS, observed, recovered

FLAT = 0.15  # the largest exponent of the error in d that is called flat
LINEAR = 0.95  # the least R² that is called linear


def cells(settings: Settings, panels: Panels) -> list[Row]:
    """One matrix after another: parts (a) and (b) at every d, with n = 10 d and with that of the least d; (c) there."""
    C, rank = settings["C"][0], settings["rank"]
    usual = [(one, rank, 1.0) for one in settings["C"]] + [(C, one, 1.0) for one in settings["ranks"]]
    noisy = [(C, rank, variance) for variance in settings["variances"]]
    least = settings["d"][0]
    return [
        {"d": d, "n": n, "C": C, "rank": rank, "variance": variance, "seed": seed}
        for d in settings["d"]
        for n in dict.fromkeys([10 * d, 10 * least])
        for seed in range(settings["seeds"])
        for C, rank, variance in dict.fromkeys(usual + (noisy if d == least else []))
    ]


def measure(cell: Row, panels: Panels) -> Row:
    d, noise = cell["d"], float(np.sqrt(cell["variance"] / cell["d"]))
    truth = generated("text", cell["n"], d, cell["rank"], cell["seed"])
    panel = observed(truth, cell["C"], cell["seed"], noise=noise)
    return recovered(panel, truth.second_moment(), cell["rank"], cell["seed"], noise_variance=noise**2)


def _lines(rows: list[Row], *, growing: bool) -> list[list[Row]]:
    """The rows of each line over d at one C and rank: n = 10 d, or n as it is at the least d."""
    least = min(distinct(rows, "n"))
    usual = [row for row in where(rows, variance=1.0) if row["n"] == (10 * row["d"] if growing else least)]
    return [line for _, line in groups(usual, "C", "rank")]


def _exponents(rows: list[Row], name: str, *, growing: bool) -> list[float]:
    return [exponent(*means(line, "d", name)) for line in _lines(rows, growing=growing)]


def _noisy(rows: list[Row]) -> list[Row]:
    d = min(distinct(rows, "d"))
    one = next(row for row in rows if row["variance"] != 1.0)
    return where(rows, d=d, n=10 * d, C=one["C"], rank=one["rank"])


def expect(rows: list[Row]) -> list[Expectation]:
    flat, own = (_exponents(rows, name, growing=True) for name in ("hajek", "onesided"))
    literal = _exponents(rows, "hajek", growing=False)
    levels = {name: [mean(line, name) for line in _lines(rows, growing=True)] for name in METHODS}
    return [
        Expectation(
            f"with n = 10 d, the error of HajekGD is flat in d: its exponent is within ±{FLAT} at every C and r",
            max(abs(one) for one in flat) <= FLAT,
            f"exponents {min(flat):.2f} to {max(flat):.2f}",
        ),
        Expectation(
            f"with n = 10 d, the error of OneSidedCompletion does not grow with d: exponents up to {FLAT}",
            max(own) <= FLAT,
            f"exponents {min(own):.2f} to {max(own):.2f}",
        ),
        Expectation(
            "with n fixed, as the paper has it, the error of HajekGD is flat in d too",
            max(abs(one) for one in literal) <= FLAT,
            f"exponents {min(literal):.2f} to {max(literal):.2f}",
        ),
        _linear(rows, "hajek", "the error of HajekGD is linear in the noise variance σ²"),
        _linear(rows, "onesided", "so is that of OneSidedCompletion"),
        Expectation(
            "with n = 10 d and σ² = 1, HajekGD is better than returning zero, of relative error 1, at every C and r",
            max(levels["hajek"]) < 1,
            "; ".join(f"{METHODS[name]}: {min(level):.2g} to {max(level):.2g}" for name, level in levels.items()),
        ),
    ]


def _linear(rows: list[Row], name: str, claim: str) -> Expectation:
    steep, explained = slope(*means(_noisy(rows), "variance", name))
    found = f"slope {steep:.3g} per unit of σ², R² = {explained:.3f}"
    return Expectation(f"{claim}: R² of at least {LINEAR}", explained >= LINEAR and steep > 0, found)


def verdict(rows: list[Row]) -> str:
    flat, literal = (_exponents(rows, "hajek", growing=growing) for growing in (True, False))
    steep, explained = slope(*means(_noisy(rows), "variance", "hajek"))
    held = [max(map(abs, flat)) <= FLAT, max(map(abs, literal)) <= FLAT, explained >= LINEAR and steep > 0]
    return (
        f"{agreement(held)}: the error of HajekGD goes as d to the power {min(flat):.2f} to {max(flat):.2f} where n = "
        f"10 d, {min(literal):.2f} to {max(literal):.2f} where n is fixed, and is linear in σ² with R² = "
        f"{explained:.3f}, {steep:.2g} ‖T‖_F per unit."
    )


def table(rows: list[Row]) -> str:
    keys = ("d", "n", "C", "rank", "variance")
    kinds = sorted(groups(rows, *keys), key=lambda one: one[0])
    lines = [[*kind, *(over_seeds(group, name) for name in METHODS)] for kind, group in kinds]
    return markdown(["d", "n", "C", "r", "σ²", *METHODS.values()], lines)


def draw(rows: list[Row], figure: Figure) -> None:
    figure.set_size_inches(9, 5.4)
    axes = figure.subplots(2, 3)
    for line_of_axes, name in zip(axes, ("hajek", "onesided"), strict=True):
        _draw_over_d(line_of_axes[0], rows, name, "C")
        _draw_over_d(line_of_axes[1], rows, name, "rank")
        line_of_axes[2].plot(*means(_noisy(rows), "variance", name), "o-")
        line_of_axes[2].set(xlabel="noise variance σ² (σ²/d per entry)", ylim=(0, None))
        line_of_axes[0].set_ylabel(f"{METHODS[name]}\nrelative error of T")


def _draw_over_d(axis: Axes, rows: list[Row], name: str, by: str) -> None:
    usual = where(rows, variance=1.0)
    other, label = ("rank", "C") if by == "C" else ("C", "r")
    fixed = _noisy(rows)[0][other]
    for position, value in enumerate(sorted(distinct(where(usual, **{other: fixed}), by))):
        for growing, style in ((True, "o-"), (False, "x:")):
            for line in _lines(rows, growing=growing):
                if line[0][by] == value and line[0][other] == fixed:
                    named = f"{label} = {value}" if growing else None
                    axis.plot(*means(line, "d", name), style, color=f"C{position}", label=named)
    axis.set(yscale="log", xlabel="columns d (line: n = 10 d, dotted: n fixed)")
    log_axis(axis, distinct(rows, "d"))
    axis.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="figure-5",
    title="Figure 5: sample complexity",
    claim="With r = 10, σ² = 1 and p from 2/d to 10/d, the error of T stays flat as d goes from 10³ to 5·10³ at fixed "
    "m/d; so it does for r from 5 to 25 at p = 2/d; at d = 10³ it grows linearly in σ² from 1 to 50.",
    method="Relative error of T (‖T‖_F is near 1), T without noise. Noise is N(0, σ²/d) on an entry, as in remark 3.5: "
    "entries are near 1/√d, and noise of variance 1 on an entry would be a thousand times the signal. m/d is fixed "
    "where n = 10 d; the paper also says n = 10⁴, with which m/d falls: both are shown. Two seeds instead of five. "
    "HajekGD knows nothing of the noise, OneSidedCompletion is told its variance and takes it off the diagonal. What "
    "is linear in σ² is the error itself, not its square.",
    full={
        "d": [1000, 2000, 5000],
        "C": [2, 5, 10],
        "rank": 10,
        "ranks": [5, 25],
        "variances": [1.0, 10.0, 20.0, 30.0, 40.0, 50.0],
        "seeds": 2,
    },
    quick={"d": [100, 250], "C": [4, 10], "ranks": [5], "variances": [1.0, 25.0, 50.0], "seeds": 1},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
