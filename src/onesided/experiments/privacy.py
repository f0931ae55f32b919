"""The second extension: accuracy against ε, by three mechanisms with a proof, and the paper's measured sensitivity."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from onesided import synthetic
from onesided.baselines import ColumnMeans, Constant
from onesided.estimators.completion import OneSidedCompletion
from onesided.experiments import metrics
from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.split import Split, cut, split
from onesided.experiments.summaries import column, distinct, groups, mean, root_mean, tables, where
from onesided.experiments.synthetic_recovery import hajek_gd, observed
from onesided.panels.panel import Panel
from onesided.privacy import Privacy, empirical_sensitivity
from onesided.privacy.curator import cut_rows
from onesided.privacy.plan import MECHANISMS

DELTA = 1e-7
OPEN = "without noise"
TRIVIAL = {"column means": ColumnMeans, "constant": Constant}
REAL = {"movielens-1m": ((1.0, 5.0), 20), "jester": ((-10.0, 10.0), 10), "ratings": ((1.0, 5.0), 20)}  # bounds, and k
ERROR, HELD_OUT = "relative_error", "held_out_squared_error"
USEFUL = 0.5  # of the error of column means


def cells(settings: Settings, panels: Panels) -> list[Row]:
    methods: list[Row] = [{"method": one, "epsilon": e} for one in MECHANISMS for e in settings["epsilons"]]
    methods += [{"method": one} for one in (OPEN, *TRIVIAL)]
    sizes = {name: settings[name] for name in ("d", "C", "rank")}
    cases: list[Row] = [{"panel": "synthetic", "n": n} | sizes for n in settings["n"]]
    cases += [{"panel": name, "rank": settings["rank"]} for name in panels.names if name in REAL]
    seeds = range(settings["seeds"])
    paper = [{"panel": "paper's", "seed": seed, "method": "sensitivity"} | settings["paper"] for seed in seeds]
    return [panel | {"seed": seed} | method for panel in cases for seed in seeds for method in methods] + paper


def measure(cell: Row, panels: Panels) -> Row:
    if cell["method"] == "sensitivity":
        return _sensitivity(cell)
    if cell["panel"] == "synthetic":
        truth, parts, bounds, most = _synthetic(cell)
        model = _fitted(cell, parts.train, bounds, most)
        score: Row = {ERROR: _off_diagonal_error(model, truth)}
    else:
        parts = split(panels, cell["panel"], cell["seed"])
        model = _fitted(cell, parts.train, *REAL[cell["panel"]])
        score = {HELD_OUT: metrics.held_out_squared_error(parts.unused, model.second_moment_.at)}
    rows = Panel(parts.train.indptr, parts.train.columns, parts.train.values, parts.train.n_columns)
    predicted = model.impute_at(rows, parts.rows, parts.columns)
    return score | {"rmse": metrics.rmse(predicted, parts.values)}


def _synthetic(cell: Row) -> tuple[synthetic.Truth, Split, tuple[float, float], int]:
    """Rows of rank r with noise of a quarter of their variance, C entries of each; bounds at four deviations."""
    n, d = cell["n"], cell["d"]
    truth = replace(generated("linear-mixture", n, d, cell["rank"], cell["seed"]), noise=float(0.5 / np.sqrt(d)))
    panel = synthetic.sample_fixed(truth, cell["C"], rng=cell["seed"])
    far = float(4 * np.sqrt(1.25 / d))
    return truth, cut(panel, cell["seed"]), (-far, far), int(cell["C"])


def _fitted(cell: Row, train: Panel, bounds: tuple[float, float], most: int) -> Any:
    plain = Panel(train.indptr, train.columns, train.values, train.n_columns)  # columns are known in advance
    if cell["method"] in TRIVIAL:
        return TRIVIAL[cell["method"]]().fit(plain)
    settings: dict[str, Any] = {
        "rank": cell["rank"],
        "center": "columns" if cell["panel"] == "synthetic" else "both",
        "diagonal": "free",
        "random_state": cell["seed"],
        "blend": None,
    }
    if cell["method"] == OPEN:  # the same entries of a row at most
        return OneSidedCompletion(**settings).fit(cut_rows(plain, most, np.random.default_rng(cell["seed"]).bytes))
    plan: Row = {"epsilon": cell["epsilon"], "mechanism": cell["method"], "bounds": bounds, "max_entries": most}
    return OneSidedCompletion(privacy=Privacy(delta=DELTA, clip_values=True, **plan), **settings).fit(plain)


def _off_diagonal_error(model: Any, truth: synthetic.Truth) -> float:
    found, T = model.second_moment_.to_dense(), truth.second_moment()
    for one in (found, T):
        np.fill_diagonal(one, 0.0)
    return metrics.relative_error(found, T)


def _sensitivity(cell: Row) -> Row:
    """Δ̂₂ of Algorithm 1 by replacing rows with others, and what one row made for it does."""
    truth = generated("text", cell["n"], cell["d"], cell["rank"], cell["seed"])
    panel = observed(truth, cell["C"], cell["seed"])

    def estimate(rows: Panel) -> Any:
        return hajek_gd(rows, cell["rank"], cell["seed"]).second_moment_.to_dense()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = empirical_sensitivity(estimate, panel, replacements=cell["replacements"], rng=cell["seed"])
    dense = panel.to_dense()
    before = estimate(Panel.from_dense(dense))
    dense[0] = np.abs(panel.values).max()  # all columns, at the largest value that occurs
    return {"found": found, "made": float(np.linalg.norm(estimate(Panel.from_dense(dense)) - before))}


def _error(rows: list[Row]) -> float:
    """The error of T, mean over seeds: relative on synthetic panels, held-out on real ones."""
    return mean(rows, ERROR) if column(rows, ERROR) else root_mean(rows, HELD_OUT)


def _panels(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each panel, by its name."""
    sizes = groups(where(rows, panel="synthetic"), "n")
    real = [name for name in distinct(rows, "panel") if name in REAL]
    return {f"synthetic, {n:,} rows": group for (n,), group in sizes} | {name: where(rows, panel=name) for name in real}


def _useful_from(rows: list[Row], method: str, epsilon: float) -> int | None:
    """The fewest rows of the synthetic panel from which the error is half that of column means, or less."""
    for n in sorted(distinct(where(rows, panel="synthetic"), "n")):
        group = where(rows, panel="synthetic", n=n)
        if _error(where(group, method=method, epsilon=epsilon)) <= USEFUL * _error(where(group, method="column means")):
            return int(n)
    return None


def expect(rows: list[Row]) -> list[Expectation]:
    epsilons = distinct(rows, "epsilon")

    def worse_than(other: str) -> str:
        """Where the gradient mechanism is."""
        pairs = [
            (name, epsilon, *(_error(where(group, method=one, epsilon=epsilon)) for one in ("gradient", other)))
            for name, group in _panels(rows).items()
            for epsilon in epsilons
        ]
        found = [f"{name} at ε = {epsilon:g}: {a:.3g}, {other} {b:.3g}" for name, epsilon, a, b in pairs if a > b]
        return "; ".join(found) or "nowhere"

    most = max(distinct(where(rows, panel="synthetic"), "n"))
    largest = where(rows, panel="synthetic", n=most)
    falling = [_error(where(largest, method="gradient", epsilon=epsilon)) for epsilon in epsilons]
    at_one = _error(where(largest, method="gradient", epsilon=1.0))
    means = _error(where(largest, method="column means"))
    made, found = (column(where(rows, method="sensitivity"), name) for name in ("made", "found"))
    local, central = worse_than("local"), worse_than("central")
    return [
        Expectation("the gradient mechanism is nowhere further off in T than the local one", local == "nowhere", local),
        Expectation("nor than the central one", central == "nowhere", central),
        Expectation(
            f"with {most:,} rows the gradient mechanism at ε = 1 has at most half the error of column means",
            at_one <= USEFUL * means,
            f"{at_one:.3g}, column means {means:.3g}",
        ),
        Expectation(
            "and its error falls as ε grows",
            falling == sorted(falling, reverse=True),
            ", ".join(f"{one:.3g}" for one in falling),
        ),
        Expectation(
            "a measured sensitivity bounds what one row can do to Algorithm 1",
            max(made) <= max(found),
            f"the largest change by replacing a row with another was {max(found):.3g}, by one row made for it "
            f"{max(made):.3g}",
        ),
    ]


def verdict(rows: list[Row]) -> str:
    parts = []
    for epsilon in (1.0, 10.0):
        useful = {method: _useful_from(rows, method, epsilon) for method in MECHANISMS}
        words = ", ".join(
            f"{method} from {n:,} rows" if n else f"{method} not by the largest" for method, n in useful.items()
        )
        parts.append(f"at ε = {epsilon:g} {words}")
    made, found = (column(where(rows, method="sensitivity"), name) for name in ("made", "found"))
    return (
        "The paper gives no accuracy for its private extension, and its calibration no guarantee: one row made for it "
        f"moves Algorithm 1 {max(made) / max(found):.2g} times as far as the rows tried. Useful (half the error of "
        f"column means, synthetic panel): {'; '.join(parts)}."
    )


def table(rows: list[Row]) -> str:
    epsilons = distinct(rows, "epsilon")
    lines = {
        name: [
            *([one, *(_both(where(group, method=one, epsilon=e)) for e in epsilons), ""] for one in MECHANISMS),
            *([one, *([""] * len(epsilons)), _both(where(group, method=one))] for one in (OPEN, *TRIVIAL)),
        ]
        for name, group in _panels(rows).items()
    }
    return tables(["error of T, RMSE of M", *(f"ε = {epsilon:g}" for epsilon in epsilons), "∞"], lines)


def _both(rows: list[Row]) -> str:
    return f"{_error(rows):.3g}, {mean(rows, 'rmse'):.3g}"


def draw(rows: list[Row], figure: Figure) -> None:
    panels, epsilons = _panels(rows), distinct(rows, "epsilon")
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure.set_size_inches(3.2 * across, 2.9 * down)
    places = figure.subplots(down, across, squeeze=False).ravel()
    for axis in places[len(panels) :]:
        axis.set_axis_off()
    for axis, (name, group) in zip(places, panels.items(), strict=False):
        for method in MECHANISMS:
            axis.plot(epsilons, [_error(where(group, method=method, epsilon=e)) for e in epsilons], "o-", label=method)
        for other, style in ((OPEN, "--"), ("column means", ":")):
            axis.axhline(_error(where(group, method=other)), color="gray", linestyle=style, label=other)
        axis.set(title=name, xlabel="ε", ylabel="error of T", xscale="log", yscale="log")
    if len(panels) < len(places):
        places[-1].legend(*places[0].get_legend_handles_labels(), loc="center", frameon=False)
    else:
        places[0].legend(fontsize=7)


EXPERIMENT = Experiment(
    name="privacy",
    title="Privacy: the error of T against ε",
    claim="Noise on the entries, σ = 2 √ln(1.25/δ) Δ₂/ε with Δ₂ the sensitivity of Algorithm 1 as measured, between 11 "
    "and 19 (figure 8), makes it (ε, δ)-differentially private. No accuracy is reported.",
    method=f"The three mechanisms of `onesided.privacy`, δ = {DELTA:g}, rank 5, beside the same fit without noise and "
    "without a factor. Synthetic panels are linear mixtures with noise of a quarter of their variance, 10 of 100 "
    "entries in each row, bounds at four standard deviations; the error of T is the relative error over pairs of "
    "different columns (1 for column means, as there are none). MovieLens-1M has at most 20 entries of a row and "
    "bounds 1 and 5, Jester (5 of 72 entries) 10 and ±10; there it is the held-out error of T. RMSE of M is over "
    "held-out entries, each predicted from its own row without noise, as its owner would with the published row space. "
    "Mean over seeds; the noise is drawn from a secure source, so that no run is like another. Last, the change of "
    "Algorithm 1's XXᵀ in Frobenius norm when one of its rows takes the entries of another, the largest of 20, and "
    "when one row has all columns at the largest value that occurs.",
    full={
        "n": [10_000, 100_000, 1_000_000],
        "d": 100,
        "C": 10,
        "rank": 5,
        "epsilons": [0.5, 1.0, 2.0, 5.0, 10.0],
        "seeds": 3,
        "paper": {"n": 4_000, "d": 200, "C": 10, "rank": 5, "replacements": 20},
    },
    quick={
        "n": [3_000, 30_000],
        "d": 40,
        "epsilons": [1.0, 10.0],
        "seeds": 1,
        "paper": {"n": 500, "d": 50, "C": 10, "rank": 3, "replacements": 3},
    },
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
