"""Theorem 3.4: the bound on the error of T beside the error itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.experiments.summaries import agreement, distinct, exponent, groups, log_axis, markdown, mean, means, where
from onesided.experiments.synthetic_recovery import observed, recovered
from onesided.synthetic import Truth

CLAIMED = {"n": -1.0, "C": -2.0, "d": 1.0}  # the bound's exponents, that of d but for log d
NEAR = 0.5  # how far from the claimed exponent a measured one may be
SQUARED = {"hajek": "HajekGD, XXᵀ", "onesided": "OneSidedCompletion"}


def cells(settings: Settings, panels: Panels) -> list[Row]:
    base = settings["base"]
    kinds = [base | {name: value} for name in CLAIMED for value in settings[name]]
    kinds = [dict(one) for one in dict.fromkeys(tuple(kind.items()) for kind in kinds)]
    return [kind | {"rank": settings["rank"], "seed": seed} for kind in kinds for seed in range(settings["seeds"])]


def condition(truth: Truth) -> tuple[float, float]:
    """κ and μ of U, the factors over √r: σ_max / σ_min, and d/r · max_j ‖U_j‖² / ‖U‖_F², at least 1 in the theorem.

    >>> condition(Truth(np.eye(2), np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.0]])))
    (2.0, 1.2)
    """
    values = np.linalg.svd(truth.column_factors, compute_uv=False)
    d, rank = truth.column_factors.shape
    lengths = np.sum(truth.column_factors**2, axis=1)
    return float(values[0] / values[-1]), max(1.0, float(d / rank * lengths.max() / lengths.sum()))


def bound(n: int, d: int, C: float, rank: int, kappa: float, mu: float) -> float:
    """ε² of the theorem: n = c d r⁵ κ⁶ μ² log d / (C² ε²) solved for it, with c = 1.

    >>> round(bound(10**4, 10**3, 10, 1, 1.0, 1.0), 6)  # log(1000) / 1000
    0.006908
    """
    return float(d * rank**5 * kappa**6 * mu**2 * np.log(d) / (C**2 * n))


def measure(cell: Row, panels: Panels) -> Row:
    n, d, C, rank, seed = (cell[name] for name in ("n", "d", "C", "rank", "seed"))
    truth = generated("common-means", n, d, rank, seed)
    T, (kappa, mu) = truth.second_moment(), condition(truth)
    q = -float(np.expm1(n * np.log1p(-((C / d) ** 2))))
    alpha = 4 * kappa**2 * rank * float(np.sqrt(mu / d))
    penalty = (rank + 1) * d * q / (16 * rank**2 * mu**3)  # of the loss as a sum
    of_the_mean = penalty * d / (d + q * d * (d - 1))  # over |Ω|, and R over d
    panel = observed(truth, C, seed)
    row = recovered(panel, T, rank, seed, penalty=of_the_mean, alpha=alpha)
    return row | {
        **{f"{name}_squared": (row[name] * row["norm"]) ** 2 for name in SQUARED},
        **{"bound": bound(n, d, C, rank, kappa, mu), "kappa": kappa, "mu": mu, "alpha": alpha},
        "longest": float(np.sqrt(T.diagonal().max())),
    }


def _sweep(rows: list[Row], name: str) -> list[Row]:
    """The rows in which the other sizes are as usual."""
    return where(rows, **{one: _usual(rows, one) for one in CLAIMED if one != name})


def _usual(rows: list[Row], name: str) -> Any:
    """The value of a size that most rows have."""
    return max(distinct(rows, name), key=lambda value: len(where(rows, **{name: value})))


def _line(rows: list[Row], by: str, name: str) -> tuple[list[float], list[float]]:
    return means(_sweep(rows, by), by, name)


def _ratios(rows: list[Row]) -> list[float]:
    """How many times the measured squared error of HajekGD the bound is."""
    return [row["bound"] / row["hajek_squared"] for row in rows]


def expect(rows: list[Row]) -> list[Expectation]:
    ratios, sparse = _ratios(rows), min(distinct(rows, "C"))
    informative = [row for row in rows if row["bound"] < row["norm"] ** 2]
    error, own = (mean(where(_sweep(rows, "C"), C=sparse), name) for name in ("hajek", "onesided"))
    return [
        *(_power(rows, by, claimed) for by, claimed in CLAIMED.items()),
        Expectation(
            "the squared error of HajekGD is below the bound with c = 1 everywhere",
            min(ratios) >= 1,
            f"the bound is {_range(ratios)} times it",
        ),
        Expectation(
            "the bound with c = 1 says more than returning zero would, ε² < ‖T‖_F², at every size tried",
            len(informative) == len(rows),
            f"at {len(informative)} of {len(rows)} panels; it is {_range(_over_zero(rows))} times ‖T‖_F²",
        ),
        Expectation(
            f"at C = {sparse} HajekGD is better than returning zero: a relative error below 1",
            error < 1,
            f"{error:.2f}; OneSidedCompletion {own:.2g}",
        ),
    ]


def _power(rows: list[Row], by: str, claimed: float) -> Expectation:
    hajek, onesided = (exponent(*_line(rows, by, f"{name}_squared")) for name in SQUARED)
    return Expectation(
        f"the squared error of HajekGD goes as {by} to the power {claimed:g}, to ±{NEAR}",
        abs(hajek - claimed) <= NEAR,
        f"{hajek:.2f}; OneSidedCompletion {onesided:.2f}",
    )


def _over_zero(rows: list[Row]) -> list[float]:
    """How many times the squared error of returning zero the bound is."""
    return [row["bound"] / row["norm"] ** 2 for row in rows]


def _range(values: list[float]) -> str:
    digits = ",.2g" if max(values) < 100 else ",.0f"
    return f"{min(values):{digits}} to {max(values):{digits}}"


def verdict(rows: list[Row]) -> str:
    powers = {by: exponent(*_line(rows, by, "hajek_squared")) for by in CLAIMED}
    word = agreement([one.holds for one in expect(rows)])
    found = ", ".join(f"{by} to the power {power:.1f} (bound {CLAIMED[by]:g})" for by, power in powers.items())
    return (
        f"{word}: the squared error goes as {found}; the bound with c = 1 is {_range(_ratios(rows))} times it, and "
        f"{_range(_over_zero(rows))} times that of returning zero."
    )


def table(rows: list[Row]) -> str:
    header = ["n", "d", "C", "‖XXᵀ − T‖_F², HajekGD", "OneSidedCompletion", "bound, c = 1", "‖T‖_F²"]
    header += ["relative error, HajekGD", "OneSidedCompletion", "α", "longest row of the true factor"]
    squared, others = ("hajek_squared", "onesided_squared", "bound"), ("hajek", "onesided", "alpha", "longest")
    lines = []
    for kind, group in groups(rows, "n", "d", "C"):
        line = [*kind, *(mean(group, name) for name in squared), mean(group, "norm") ** 2]
        lines.append([*line, *(mean(group, name) for name in others)])
    return markdown(header, lines)


def draw(rows: list[Row], figure: Figure) -> None:
    figure.set_size_inches(9, 3.4)
    axes = figure.subplots(1, len(CLAIMED), sharey=True)
    for axis, by in zip(axes, CLAIMED, strict=True):
        for name, label in SQUARED.items():
            axis.plot(*_line(rows, by, f"{name}_squared"), "o-", label=label)
        axis.plot(*_line(rows, by, "bound"), "k--", label="bound, c = 1")
        axis.axhline(mean(rows, "norm") ** 2, color="grey", linewidth=0.8, label="returning zero")
        axis.set(yscale="log", xlabel={"n": "rows n", "C": "entries per row C", "d": "columns d"}[by])
        log_axis(axis, distinct(_sweep(rows, by), by))
    axes[0].set_ylabel("‖XXᵀ − T‖_F²")
    axes[-1].legend(fontsize=7)


EXPERIMENT = Experiment(
    name="theorem-3-4",
    title="Theorem 3.4: the bound beside the measured error",
    claim="On the common means model, with α = 4κ²r√(μ/d) and λ = (r+1)dq/(16r²μ³), any local minimiser has "
    "‖XXᵀ − T‖_F² ≤ ε² once n ≥ c d r⁵ κ⁶ μ² log d / (C² ε²).",
    method="‖XXᵀ − T‖_F² of HajekGD, r = 5, with the theorem's α and λ (times d over |Ω|, as the loss is a mean here), "
    "after the paper's 1,000 iterations, not at a local minimum found to the end; κ and μ are those of the means, μ at "
    "least 1. c is not given: the ε² shown has c = 1, and exponents do not depend on it. The theorem's α is above "
    "every row of the true factor: near it the penalty is idle.",
    full={
        "base": {"n": 20_000, "d": 1000, "C": 5},
        "n": [5_000, 10_000, 20_000, 40_000, 80_000],
        "C": [2, 3, 5, 10, 20],
        "d": [250, 500, 1000, 2000],
        "rank": 5,
        "seeds": 5,
    },
    quick={
        "base": {"n": 4_000, "d": 200, "C": 5},
        "n": [2_000, 4_000, 16_000],
        "C": [2, 5, 20],
        "d": [100, 200, 400],
        "seeds": 1,
    },
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
