"""Figure 6: runtime in d and in |Ω|."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from onesided import synthetic
from onesided.errors import InputError
from onesided.estimators.hajek_gd import HajekGD
from onesided.experiments import metrics
from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.methods import compiled
from onesided.experiments.panels import COMPLETE, Panels
from onesided.experiments.summaries import agreement, column, distinct, exponent, groups, markdown, over_seeds, where
from onesided.fitting.moment_solution import moment_solution
from onesided.fitting.setting import Setting
from onesided.fitting.solvers.gradient_descent import stable_step
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel

RANK, ITERATIONS = 10, 1_000
TIMES = {"seconds_hajek_gd": "Hájek-GD, 1,000 iterations (s)", "seconds_rows": "moment solution by rows (s)"}


def cells(settings: Settings, panels: Panels) -> list[Row]:
    """Synthetic panels over d and C; shares of every panel at hand that has few enough pairs."""
    synthetic_ones = [
        {"panel": "synthetic", "d": d, "C": C, "seed": seed}
        for C in settings["C"]
        for d in settings["d"]
        for seed in range(settings["seeds"])
    ]
    real = [
        {"panel": name, "share": share, "seed": seed}
        for name in panels.names
        if name not in settings["left_out"]
        for share in settings["shares"]
        for seed in range(settings["seeds"])
    ]
    return [cell | {"iterations": settings["iterations"]} for cell in synthetic_ones + real]


def measure(cell: Row, panels: Panels) -> Row:
    """Seconds of Hájek-GD, which goes over Ω, and of the count-weighted moment solution, which goes over rows."""
    panel = _panel(cell, panels)
    compiled("Hájek-GD", panel.values.dtype)
    compiled("OneSidedCompletion", panel.values.dtype)
    try:
        moments = PairMoments.from_panel(panel)
    except InputError as error:
        return {"refused": str(error)}
    size, step = metrics.size(moments), stable_step(moments, np.random.default_rng(0))
    del moments
    times = [perf_counter()]
    model = HajekGD(RANK, step_size=step, iterations=cell["iterations"], random_state=0)
    model.fit(panel, progress=lambda done, loss: times.append(perf_counter()))
    middle = perf_counter()
    moment_solution(panel, Setting(RANK))
    end = perf_counter()
    each = (times[-1] - times[1]) / (len(times) - 2)
    return {
        "columns": panel.n_columns,
        "entries": panel.n_entries,
        "omega": size,
        "seconds_hajek_gd": middle - times[0] + (ITERATIONS - cell["iterations"]) * each,
        "seconds_rows": end - middle,
    }


def _panel(cell: Row, panels: Panels) -> Panel:
    if cell["panel"] == "synthetic":
        truth = synthetic.linear_mixture(10 * cell["d"], cell["d"], RANK, rng=cell["seed"])
        return synthetic.sample_fixed(truth, cell["C"], rng=cell["seed"])
    whole = panels.load(cell["panel"])
    kept = np.random.default_rng(cell["seed"]).random(whole.n_entries) < cell["share"]
    panel = synthetic.keep_entries(whole, kept)
    return Panel(panel.indptr, panel.columns, panel.values / np.abs(panel.values).max(), panel.n_columns)


def _lines(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    rows = [row for row in rows if "omega" in row]
    drawn = [(f"synthetic, C = {C}", where(rows, panel="synthetic", C=C)) for C in distinct(rows, "C")]
    return drawn + [(name, where(rows, panel=name)) for name in distinct(rows, "panel") if name != "synthetic"]


def _powers(rows: list[Row]) -> dict[str, float]:
    """Of |Ω|, to which the time of Hájek-GD grows, for each line."""
    return {name: exponent(column(here, "omega"), column(here, "seconds_hajek_gd")) for name, here in _lines(rows)}


def expect(rows: list[Row]) -> list[Expectation]:
    claim = "the time of Hájek-GD grows as a power of |Ω| between 0.8 and 1.2"
    return [
        Expectation(f"{name}: {claim}", 0.8 <= power <= 1.2, f"power {power:.2f}")
        for name, power in _powers(rows).items()
    ]


def verdict(rows: list[Row]) -> str:
    """The powers, and how far apart the two ways are at the largest Ω."""
    powers = list(_powers(rows).values())
    held = [one.holds for one in expect(rows)]
    largest = max((row for row in rows if "omega" in row), key=lambda row: row["omega"])
    return (
        f"{agreement(held)}: the time of Hájek-GD grows as |Ω| to the power {min(powers):.2f} "
        f"to {max(powers):.2f}; at the largest Ω, {largest['omega']:,} pairs, it takes "
        f"{largest['seconds_hajek_gd']:.0f} s and the moment solution, which never forms Ω, "
        f"{largest['seconds_rows']:.1f} s."
    )


def table(rows: list[Row]) -> str:
    lines = []
    for name, here in _lines(rows):
        for _, group in groups(here, "d" if "d" in here[0] else "share"):
            sizes = [group[0][size] for size in ("columns", "entries", "omega")]
            lines.append([name, *sizes, *(over_seeds(group, time) for time in TIMES)])
    return markdown(["panel", "columns", "entries", "|Ω|", *TIMES.values()], lines)


def draw(rows: list[Row], figure: Figure) -> None:
    figure.set_size_inches(8, 3.6)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (time, title) in zip(axes, TIMES.items(), strict=True):
        for name, here in _lines(rows):
            ordered = sorted(here, key=lambda row: row["omega"])
            axis.plot(column(ordered, "omega"), column(ordered, time), "o-", markersize=3, linewidth=1, label=name)
        axis.set(xscale="log", yscale="log", xlabel="|Ω|", title=title)
    axes[0].set_ylabel("seconds")
    axes[1].legend(fontsize=7)


EXPERIMENT = Experiment(
    name="figure-6",
    title="Figure 6: runtime in d and in |Ω|",
    claim="The runtime of Hájek-GD grows nearly linearly with d at fixed C, and with the number of observed pairs "
    "|Ω| on MovieLens.",
    method="Seconds of a fit, pair moments included. Hájek-GD is timed over fewer iterations, and the others are "
    "charged at what one takes; n = 10 d on synthetic panels; of real panels a share of the entries is kept. Beside "
    "it the count-weighted moment solution of the same rank to convergence, which goes over rows.",
    full={
        "d": [1000, 2000, 4000, 8000],
        "C": [2, 5, 10],
        "shares": [0.1, 0.2, 0.4, 0.8],
        "left_out": [*COMPLETE, "book-crossing"],  # where every pair is seen, or too many for many fits
        "iterations": 100,
        "seeds": 5,
    },
    quick={"d": [1000, 2000, 4000], "C": [2, 10], "shares": [0.2, 0.8], "iterations": 50, "seeds": 2},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
