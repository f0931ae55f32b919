"""Figure 8: how the error of T answers to noise on the entries."""

from __future__ import annotations

import numpy as np

from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.summaries import agreement, deviation, distinct, groups, markdown, mean, means, slope, where
from onesided.experiments.synthetic_recovery import hajek_gd, observed, one_sided
from onesided.panels.panel import Panel

LINEAR = 0.95  # the least R² that is called linear
PAPER = {(5, 10): 19, (10, 10): 14, (20, 10): 13, (20, 20): 16, (20, 5): 11}  # slopes, by n/d and r
USUAL = 10  # the rank at which n varies
Slopes = dict[tuple[int, int], tuple[float, float]]


def cells(settings: Settings, panels: Panels) -> list[Row]:
    return [
        {"generator": generator, "d": settings["d"], "times": times, "rank": rank, "C": C, "seed": seed}
        | {"sigmas": settings["sigmas"]}
        for generator in ("text", "code")
        for times in sorted({times for times, _ in settings["kinds"]})
        for seed in range(settings["seeds"])
        for rank in (rank for other, rank in settings["kinds"] if other == times)
        for C in settings["C"]
    ]


def measure(cell: Row, panels: Panels) -> list[Row]:
    d, seed = cell["d"], cell["seed"]
    truth = generated(cell["generator"], cell["times"] * d, d, cell["rank"], seed)
    T, panel = truth.second_moment(), observed(truth, cell["C"], seed)
    noise = np.random.default_rng([seed, 1]).normal(size=panel.n_entries)
    rows, unmoved = [], None
    for sigma in cell["sigmas"]:
        noisy = Panel(panel.indptr, panel.columns, panel.values + sigma * noise, d)
        estimate = hajek_gd(noisy, cell["rank"], seed).second_moment_.to_dense()
        unmoved = estimate if unmoved is None else unmoved
        row: Row = {
            "sigma": sigma,
            "error": float(np.linalg.norm(estimate - T)),
            "change": float(np.linalg.norm(estimate - unmoved)),
            "norm": float(np.linalg.norm(T)),
        }
        if seed == 0 and sigma in (cell["sigmas"][0], cell["sigmas"][-1]):
            own = one_sided(noisy, seed, noise_variance=sigma**2)
            row["onesided"] = float(np.linalg.norm(own.second_moment_.to_dense() - T))
        rows.append(row)
    return rows


def _panels(rows: list[Row]) -> list[Row]:
    return [{"generator": g, "C": C} for g in distinct(rows, "generator") for C in distinct(rows, "C")]


def _kinds(rows: list[Row], panel: Row) -> list[tuple[tuple[int, int], list[Row]]]:
    """The rows of a panel by n/d and r."""
    return sorted(groups(where(rows, **panel), "times", "rank"), key=lambda one: one[0])


def _slopes(rows: list[Row], name: str, panel: Row) -> Slopes:
    """Slopes in σ and R² of the means over seeds."""
    return {kind: slope(*means(group, "sigma", name)) for kind, group in _kinds(rows, panel)}


def _ordered(slopes: Slopes) -> tuple[bool, bool]:
    """Whether slopes fall with n at the usual rank, and rise with the rank at the largest n."""
    most = max(times for times, _ in slopes)
    by_n = [slopes[one][0] for one in sorted(slopes) if one[1] == USUAL]
    by_rank = [slopes[one][0] for one in sorted(slopes) if one[0] == most]
    return by_n == sorted(by_n, reverse=True), by_rank == sorted(by_rank)


def _nearest(rows: list[Row]) -> Row:
    """The panel whose slopes are off the paper's by the least factor: picked by that, and so no test of the paper."""

    def furthest(panel: Row) -> float:
        slopes = _slopes(rows, "error", panel)
        ratios = [max(slopes[kind][0], 1e-9) / PAPER[kind] for kind in slopes if kind in PAPER]
        return max(max(ratio, 1 / ratio) for ratio in ratios)

    return min(_panels(rows), key=furthest)


def _beside_paper(rows: list[Row]) -> str:
    """The slopes of the nearest panel, the paper's in brackets."""
    panel = _nearest(rows)
    slopes = _slopes(rows, "error", panel)
    words = [f"{slopes[one][0]:.3g} ({PAPER[one]}) at n = {one[0]} d, r = {one[1]}" for one in slopes if one in PAPER]
    return f"{panel['generator']}, C = {panel['C']}: {', '.join(words)}"


def expect(rows: list[Row]) -> list[Expectation]:
    panels = _panels(rows)
    errors, changes = ([_slopes(rows, name, panel) for panel in panels] for name in ("error", "change"))
    straight, moved = ([one[1] for slopes in part for one in slopes.values()] for part in (errors, changes))
    falling, rising = zip(*(_ordered(slopes) for slopes in errors), strict=True)
    steep = [one[0] for slopes in errors for one in slopes.values()]
    by_n, by_rank = (
        "; ".join(
            f"{panel['generator']}, C = {panel['C']}: {'yes' if one else 'no'}"
            for panel, one in zip(panels, ordered, strict=True)
        )
        for ordered in (falling, rising)
    )
    return [
        Expectation(
            f"the error of T grows linearly in σ: R² of at least {LINEAR} in every case",
            min(straight) >= LINEAR,
            f"R² from {min(straight):.3f} to {max(straight):.3f}; it bends upwards from what it is without noise",
        ),
        Expectation(
            f"what noise changes in the output, ‖XXᵀ(σ) − XXᵀ(0)‖_F, grows linearly in σ: R² of at least {LINEAR}",
            min(moved) >= LINEAR,
            f"R² from {min(moved):.3f} to {max(moved):.3f}",
        ),
        Expectation("slopes fall as n grows at r = 10", all(falling), by_n),
        Expectation("slopes rise with the rank at the largest n", all(rising), by_rank),
        Expectation(
            "slopes lie between 11 and 19, whatever C and the generator, which the paper does not name here",
            all(11 <= one <= 19 for one in steep),
            f"from {min(steep):.3g} to {max(steep):.3g}; nearest to the paper's of {len(panels)} settings tried, "
            f"and picked for that: {_beside_paper(rows)}",
        ),
    ]


def verdict(rows: list[Row]) -> str:
    held = [one.holds for one in expect(rows)]
    found = [one for panel in _panels(rows) for one in _slopes(rows, "error", panel).values()]
    steep, straight = zip(*found, strict=True)
    return (
        f"{agreement(held)}: slopes of the error in σ are {min(steep):.2g} to {max(steep):.2g} over C and generators "
        f"(paper: 11 to 19), and the error bends upwards (R² from {min(straight):.2f}); of {len(_panels(rows))} "
        f"settings the nearest, picked for that, the paper's in brackets, is {_beside_paper(rows)}."
    )


def table(rows: list[Row]) -> str:
    header = ["generator", "C", "n/d", "r", "error at σ = 0", "at the most", "slope", "R²", "paper"]
    header += ["slope of the change", "OneSidedCompletion at σ = 0", "at the most"]
    lines = []
    for panel in _panels(rows):
        for kind, group in _kinds(rows, panel):
            ends = [where(group, sigma=end(distinct(group, "sigma"))) for end in (min, max)]
            errors, own = ([mean(end, name) for end in ends] for name in ("error", "onesided"))
            steep, change = (slope(*means(group, "sigma", name)) for name in ("error", "change"))
            lines.append([*panel.values(), *kind, *errors, *steep, PAPER.get(kind, "–"), change[0], *own])
    return markdown(header, lines)


def draw(rows: list[Row], figure: Figure) -> None:
    panels = _panels(rows)
    figure.set_size_inches(2.6 * len(panels), 5)
    axes = figure.subplots(2, len(panels), squeeze=False)
    for position, panel in enumerate(panels):
        for line_of_axes, by_n in zip(axes, (True, False), strict=True):
            axis, most = line_of_axes[position], max(distinct(rows, "times"))
            for (times, rank), group in _kinds(rows, panel):
                if (rank == USUAL) if by_n else (times == most):
                    sigmas, heights = means(group, "sigma", "error")
                    spread = [deviation(where(group, sigma=sigma), "error") for sigma in sigmas]
                    axis.errorbar(sigmas, heights, spread, label=f"n = {times} d" if by_n else f"r = {rank}")
            axis.set(xlabel="noise σ on an entry", title=f"{panel['generator']}, C = {panel['C']}", ylim=(0, None))
            axis.set_xticks([0.0, max(distinct(rows, "sigma"))])
            axis.legend(fontsize=8)
    for line_of_axes in axes:
        line_of_axes[0].set_ylabel("‖XXᵀ − T‖_F")


EXPERIMENT = Experiment(
    name="figure-8",
    title="Figure 8: sensitivity to input noise",
    claim="Adding noise N(0, σ²) to the observed entries, σ from 0 to 0.01, d = 10³, the error of T grows linearly in "
    "σ: slopes 19, 14, 13 for n = 5 d, 10 d, 20 d at r = 10, and 16, 13, 11 for r = 20, 10, 5 at n = 20 d.",
    method="‖XXᵀ − T‖_F, absolute, and its slope in σ by least squares through the means over seeds; beside it the "
    "change of the output, ‖XXᵀ(σ) − XXᵀ(0)‖_F, with the same entries, noise direction and start. The paper's "
    "equation for sensitivity is a maximum over panels that differ in one row: neither slope measures that. It does "
    "not say how many entries a row has: C = 2 and 10, with both generators. OneSidedCompletion, told σ², on the first "
    "seed at either end. Two seeds instead of five.",
    full={
        "d": 1000,
        "kinds": [[5, 10], [10, 10], [20, 10], [20, 5], [20, 20]],
        "C": [2, 10],
        "sigmas": [0.0, 0.0025, 0.005, 0.0075, 0.01],
        "seeds": 2,
    },
    quick={"d": 100, "kinds": [[5, 10], [10, 10], [10, 5]], "C": [5], "sigmas": [0.0, 0.01, 0.02], "seeds": 1},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
