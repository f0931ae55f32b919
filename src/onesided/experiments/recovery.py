"""Recovery of T and M on real panels: what tables 3, 4 and 5 share."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from onesided.errors import InputError
from onesided.experiments import metrics
from onesided.experiments.experiment import Row
from onesided.experiments.methods import RANK, fit
from onesided.experiments.panels import Panels
from onesided.experiments.split import all_moments, split
from onesided.experiments.summaries import column, distinct, groups, mean, over_seeds, root_over_seeds, tables, where

HELD_OUT = "held_out_squared_error"
SCORES = {
    "published_error": "published error of T",
    "error_against_all_data": "error against all data",
    HELD_OUT: "held-out error of T",
    "rmse": "RMSE of M",
    "seconds": "seconds, T",
    "seconds_predicting": "seconds more, M",
}
DEFINED = (
    "A tenth of the rows is never used; a ninth of the other entries is held out (of panels that are all but "
    "complete far more: 5 of 72 entries of Jester are trained on, 1% of genomes, an eighth of digits). The published "
    "error of T is ‖P_Ω(L − T̂)‖_F / |Ω| with T̂ of all the data, of which the training entries are a part, four "
    "fifths as a rule; the error against all data is the same distance relative to ‖P_Ω(T̂)‖_F; the held-out error "
    "of T is the relative distance to T of the rows never used, pairs of different columns weighed by their count "
    "and the noise of the measurement taken off. RMSE of M is over held-out entries whose row and column have "
    "others. Mean ± standard deviation over seeds."
)


def measure(cell: Row, panels: Panels) -> list[Row]:
    """All scores of one method on one panel, one seed; a row for each output of T."""
    parts = split(panels, cell["panel"], cell["seed"])
    try:
        fitted = fit(cell["method"], parts.train, seed=cell["seed"], rank=cell.get("rank", RANK))
    except InputError as error:
        return [{"output": "T", "refused": str(error)}]
    start = perf_counter()
    predicted = fitted.predict(parts.rows, parts.columns)
    shared = {
        "rmse": metrics.rmse(predicted, parts.values),
        "seconds": fitted.seconds,
        "seconds_predicting": perf_counter() - start,
        "rank_chosen": fitted.rank,
    }
    everything = all_moments(panels, cell["panel"])
    return [
        {"output": output}
        | metrics.errors_against_all_data(everything, fitted.at(output))
        | {HELD_OUT: metrics.held_out_squared_error(parts.unused, fitted.at(output))}
        | shared
        for output in fitted.outputs
    ]


def by_method(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each method and output, with its name."""
    return [
        (method if output == "T" else f"{method}, {output}", group)
        for (method,), here in groups(rows, "method")
        for (output,), group in groups(here, "output")
    ]


def score_table(rows: list[Row]) -> str:
    """One table for each panel, a line for each method."""
    lines: dict[str, list[list[Any]]] = {panel: [] for panel in distinct(rows, "panel")}
    for panel in lines:
        for name, group in by_method(where(rows, panel=panel)):
            if refused := column(group, "refused"):
                name += f" (refused for {len(refused)} of {len(group)} seeds: {refused[0]})"
            lines[panel].append([name, *(in_words(group, score) for score in SCORES)])
    return tables(["method", *SCORES.values()], lines)


def in_words(rows: list[Row], score: str) -> str:
    """A score, mean ± standard deviation over seeds; of a squared one the root."""
    return over_seeds(rows, score) if score != HELD_OUT else root_over_seeds(rows, score)


def lowest(rows: list[Row], score: str) -> tuple[str, float]:
    """The method with the lowest mean of a score, and that mean."""
    scored = [(name, mean(group, score)) for name, group in by_method(rows) if column(group, score)]
    return min(scored, key=lambda one: one[1])


def standing(rows: list[Row], score: str, method: str) -> tuple[float, str, float, float]:
    """Of a method: its mean; the best other one and its mean; and the standard error of the difference over seeds."""
    own = {row["seed"]: row[score] for row in where(rows, method=method) if row.get(score) is not None}
    others = [row for row in rows if row["method"] != method]
    name, best = lowest(others, score)
    group = dict(by_method(others))[name]
    scored = [row for row in group if row["seed"] in own and row.get(score) is not None]
    differences = [row[score] - own[row["seed"]] for row in scored]
    error = float(np.std(differences, ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 0.0
    return float(np.mean(list(own.values()))), name, best, error
