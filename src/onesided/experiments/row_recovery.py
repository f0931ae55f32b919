"""Algorithm 2: rows are recovered where T is, and a row has enough entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.metrics import relative_error, rmse
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.summaries import column, distinct, groups, log_axis, markdown, mean, means, where
from onesided.experiments.synthetic_recovery import hajek_gd, observed, one_sided
from onesided.model.imputation import LeastSquares
from onesided.pairs.measured import Measured

RECOVERED = 0.1  # the relative error below which rows, and T, are called recovered
METHODS = {
    "algorithm2": "HajekGD and Algorithm 2",
    "onesided": "OneSidedCompletion",
    "known": "Algorithm 2 on the true row space",
}


def cells(settings: Settings, panels: Panels) -> list[Row]:
    names = ("n", "d", "rank", "rows")
    return [
        {name: settings[name] for name in names} | {"generator": generator, "seed": seed, "C": C}
        for generator in ("linear-mixture", "text")
        for seed in range(settings["seeds"])
        for C in settings["C"]
    ]


def measure(cell: Row, panels: Panels) -> Row:
    d, rank, seed = cell["d"], cell["rank"], cell["seed"]
    truth = generated(cell["generator"], cell["n"], d, rank, seed)
    T, panel = truth.second_moment(), observed(truth, cell["C"], seed)
    some = np.random.default_rng([seed, 1]).permutation(cell["n"])[: cell["rows"]]
    asked = panel.take_rows(some)
    at = np.nonzero(np.isnan(asked.to_dense()))
    wanted = truth.entries(some[at[0]], at[1])

    published = hajek_gd(panel, rank, seed)
    own = one_sided(panel, seed)
    basis = np.linalg.qr(truth.column_factors)[0]
    predicted: dict[str, Any] = {
        "algorithm2": published.impute_at(asked, *at),
        "onesided": own.impute_at(asked, *at),
        "known": LeastSquares(basis).impute_at(asked, *at),
    }
    means = rmse(Measured.from_panel(panel).means[at[1]], wanted)
    row: Row = {
        "T_algorithm2": relative_error(published.second_moment_.to_dense(), T),
        "T_onesided": relative_error(own.second_moment_.to_dense(), T),
        "rmse_means": means,
        "rmse_zero": rmse(np.zeros(len(wanted)), wanted),
    }
    for name, values in predicted.items():
        row[name] = rmse(values, wanted) / means
        row[f"{name}_rows"] = _share_of_rows(values, wanted, at[0])
    return row


def _share_of_rows(predicted: Array, wanted: Array, rows: Array) -> float:
    """The share of rows of which the missing part is off by less than a tenth of its norm."""
    off, norm = np.bincount(rows, (predicted - wanted) ** 2), np.bincount(rows, wanted**2)
    return float(np.mean(off < RECOVERED**2 * norm))


def _first(rows: list[Row], generator: str, name: str) -> float | None:
    """The least C from which on an error stays below the threshold."""
    found = None
    for C, error in reversed(list(zip(*means(where(rows, generator=generator), "C", name), strict=True))):
        if error >= RECOVERED:
            break
        found = C
    return found


def _from(C: float | None) -> str:
    return "at no C tried" if C is None else f"from C = {C:g}"


def _enough(rows: list[Row]) -> float:
    """r log d."""
    return float(rows[0]["rank"] * np.log(rows[0]["d"]))


def expect(rows: list[Row]) -> list[Expectation]:
    rank, enough, generators = rows[0]["rank"], _enough(rows), distinct(rows, "generator")
    high = [row for row in rows if row["C"] >= enough]
    low = [row for row in rows if row["C"] <= rank]
    least = min(min(column(low, name)) for name in METHODS)
    worst = {name: {g: max(means(where(high, generator=g), "C", name)[1]) for g in generators} for name in METHODS}
    firsts = {
        name: {g: (_first(rows, g, f"T_{name}"), _first(rows, g, name)) for g in generators}
        for name in ("algorithm2", "onesided")
    }
    return [
        *(
            Expectation(
                f"{METHODS[name]}: rows are recovered once C reaches r log d, RMSE below {RECOVERED} of column means'",
                max(most.values()) < RECOVERED,
                "; ".join(f"{g}: at most {one:.2g}, below {_from(_first(rows, g, name))}" for g, one in most.items()),
            )
            for name, most in worst.items()
        ),
        Expectation(
            "no method recovers rows of at most r entries on average, not even with the row space known",
            least >= RECOVERED,
            f"the least RMSE at C ≤ {rank} is {least:.2g} of that of column means",
        ),
        *(
            Expectation(
                f"T is recovered before rows are, with the row space of {METHODS[name]}",
                all(T is not None and (M is None or T < M) for T, M in both.values()),
                "; ".join(f"{g}: T {_from(T)}, rows {_from(M)}" for g, (T, M) in both.items()),
            )
            for name, both in firsts.items()
        ),
    ]


def verdict(rows: list[Row]) -> str:
    published, _, known, impossible, *_ = (one.holds for one in expect(rows))
    word = "Agrees" if published and impossible else "Agrees in part" if known or impossible else "Does not agree"
    found = "; ".join(
        f"{g}: {', '.join(f'{METHODS[name]} {_from(_first(rows, g, name))}' for name in METHODS)}"
        for g in distinct(rows, "generator")
    )
    return f"{word}: rows are recovered, with r log d = {_enough(rows):.0f}, on {found}."


def table(rows: list[Row]) -> str:
    header = ["generator", "C", "error of T, HajekGD", "OneSidedCompletion"]
    header += [f"RMSE / column means, {label}" for label in METHODS.values()]
    header += [f"rows recovered, {label}" for label in METHODS.values()] + ["column means / zero"]
    lines = []
    for kind, group in groups(rows, "generator", "C"):
        shares = [f"{mean(group, f'{name}_rows'):.0%}" for name in METHODS]
        errors = [mean(group, name) for name in ("T_algorithm2", "T_onesided", *METHODS)]
        lines.append([*kind, *errors, *shares, mean(group, "rmse_means") / mean(group, "rmse_zero")])
    return markdown(header, lines)


def draw(rows: list[Row], figure: Figure) -> None:
    generators = distinct(rows, "generator")
    figure.set_size_inches(8, 4)
    axes = figure.subplots(1, len(generators), sharey=True)
    lines = [(name, label, "o-") for name, label in METHODS.items()]
    lines += [("T_algorithm2", "T by HajekGD", "x:"), ("T_onesided", "T by OneSidedCompletion", "x:")]
    for axis, generator in zip(axes, generators, strict=True):
        for position, (name, label, style) in enumerate(lines):
            sizes, heights = means(where(rows, generator=generator), "C", name)
            heights = [max(height, 1e-4) for height in heights]
            axis.plot(sizes, heights, style, color=f"C{position % 3}", label=label)
        axis.axvline(rows[0]["rank"], color="grey", linewidth=0.8)
        axis.axvline(_enough(rows), color="grey", linewidth=0.8, linestyle="--")
        axis.set(yscale="log", xlabel="entries per row C (grey: r, and r log d)", title=generator)
        log_axis(axis, sizes)
    axes[0].set_ylabel("RMSE / column means; relative error of T")
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=7, ncols=3, loc="outside lower center")


EXPERIMENT = Experiment(
    name="row-recovery",
    title="Recovery of rows as C passes r·log d",
    claim="Once T is recovered, least squares on a row's observed entries (Algorithm 2) recovers every row accurately "
    "when C ≥ O(r log d) (section 4.2); with C below the rank, rows cannot be recovered though T can.",
    method="RMSE of M at the entries of 200 rows that were not observed, over that of column means; 'rows recovered' "
    "is the share of rows whose missing part is off by less than a tenth of its norm. Each entry is observed with "
    "probability C/d; n = 10⁴, d = 10³, r = 10, two seeds; the row space is HajekGD's with the paper's settings, "
    "OneSidedCompletion's, or the true one, which tells what the row's own entries allow. The picture ends at 10⁻⁴.",
    full={"n": 10_000, "d": 1000, "rank": 10, "rows": 200, "C": [2, 5, 10, 15, 20, 40, 70, 100], "seeds": 2},
    quick={"n": 1500, "d": 150, "rank": 4, "C": [2, 4, 10, 24], "rows": 100, "seeds": 1},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
