"""Figure 1: variance of the Hájek and the Horvitz–Thompson estimator."""

from __future__ import annotations

import numpy as np

from onesided.experiments import sampling
from onesided.experiments.experiment import Expectation, Experiment, Figure, Row, Settings
from onesided.experiments.metrics import Repetitions, mean_over_pairs
from onesided.experiments.panels import Panels
from onesided.experiments.summaries import agreement, column, distinct, markdown, where
from onesided.pairs.moments import hajek, hajek_variance, horvitz_thompson, horvitz_thompson_variance

SPARSE = 0.01  # the paper's ultra-sparse regime is about p = C/d with C up to 10


def cells(settings: Settings, panels: Panels) -> list[Row]:
    return [cell | {"repetitions": settings["repetitions"]} for cell in sampling.grid(settings)]


def measure(cell: Row, panels: Panels) -> Row:
    n, d, sampler = cell["n"], cell["d"], cell["sampler"]
    truth = sampling.generated(cell["generator"], n, d, cell["rank"], cell["seed"])
    T, F = sampling.second_and_fourth(truth)
    chances = sampling.inclusion(sampler, cell["p"], d)
    ours, theirs = Repetitions(T), Repetitions(T)
    for moments in sampling.repeated(truth, sampler, cell["p"], cell["repetitions"], cell["seed"]):
        ours.add(moments, hajek(moments))
        theirs.add(moments, horvitz_thompson(moments, *chances))
    every = np.triu_indices(d)
    variance = horvitz_thompson_variance(F, n, *chances)[every]
    # Given Ω, Horvitz–Thompson is biased: outside Ω, with probability 1 − q, its squared error is T².
    q = -np.expm1(n * np.log1p(-np.where(every[0] == every[1], *chances)))
    on_omega = mean_over_pairs(every, variance - (1 - q) * T[every] ** 2) / mean_over_pairs(every, q)
    twice = ours.pairs_twice()
    return {
        "omega_share": ours.omega_share(),
        "hajek_variance": mean_over_pairs(twice, ours.variance()),
        "hajek_exact": mean_over_pairs(twice, hajek_variance(T, F, n, *chances)[twice]),
        "hajek_paper": mean_over_pairs(twice, hajek_variance(T, F, n, *chances, formula="paper")[twice]),
        "ht_variance": mean_over_pairs(every, theirs.variance_with_zeros()),
        "ht_exact": mean_over_pairs(every, variance),
        "hajek_squared_error": ours.squared_error(),
        "ht_squared_error": theirs.squared_error(),
        "ht_squared_error_exact": on_omega,
    }


def _reduction(row: Row) -> float:
    """By how much Hájek's squared error on Ω is below Horvitz–Thompson's."""
    return float(1 - row["hajek_squared_error"] / row["ht_squared_error"])


def _farthest(rows: list[Row], formula: str, measured: str) -> float:
    """The largest distance of a formula from what was measured, relative to it."""
    return max(abs(float(row[formula] / row[measured]) - 1) for row in rows)


def _ratios(rows: list[Row]) -> list[float]:
    return [row["hajek_variance"] / row["ht_variance"] for row in rows]


def expect(rows: list[Row]) -> list[Expectation]:
    least = min(_reduction(row) for row in rows if row["p"] <= SPARSE)
    exact = {"exact variance of Hájek given Ω": "hajek", "variance of Horvitz–Thompson": "ht"}
    off = {what: _farthest(rows, f"{name}_exact", f"{name}_variance") for what, name in exact.items()}
    smallest = where(rows, p=min(column(rows, "p")))
    limit = _farthest(smallest, "hajek_paper", "hajek_variance")
    times = max(row["hajek_paper"] / row["hajek_variance"] for row in rows)
    return [
        Expectation(
            f"for p ≤ {SPARSE}, the squared error of Hájek on Ω is below that of Horvitz–Thompson by at least 80%",
            least >= 0.8,
            f"by {least:.1%} or more",
        ),
        *(_thousandth(where(rows, generator=generator)) for generator in distinct(rows, "generator")),
        *(
            Expectation(f"the {what} is within 10% of the measured one", most <= 0.1, f"at most {most:.1%} off")
            for what, most in off.items()
        ),
        Expectation(
            "the paper's formula for Hájek, for pairs seen once, is within 10% of the measured one at the smallest p",
            limit <= 0.1,
            f"at most {limit:.1%} off at p = {smallest[0]['p']:.3g}, up to {times:.3g} times as large at other p",
        ),
    ]


def _thousandth(rows: list[Row]) -> Expectation:
    ratios = _ratios(rows)
    return Expectation(
        f"generator {sampling.GENERATORS[rows[0]['generator']]}: Var(T̂) is at most 10⁻³ of Var(T̄)",
        max(ratios) <= 1e-3,
        f"{min(ratios):.1e} to {max(ratios):.1e}",
    )


def verdict(rows: list[Row]) -> str:
    found = expect(rows)
    text = _ratios(where(rows, generator="text"))
    agrees = agreement([one.holds for one in found], found[0].holds)
    return (
        f"{agrees}: on the text's generator Var(T̂) is {min(text):.1e} to {max(text):.1e} of Var(T̄); the squared "
        f"error on Ω is lower {found[0].found} for p ≤ {SPARSE}; the exact variance of T̂ is {found[3].found}, the "
        f"paper's formula {found[-1].found}."
    )


def table(rows: list[Row]) -> str:
    header = ["generator", "sampler", "p", "Ω / d²", "Var T̂", "exact", "paper", "Var T̄", "exact"]
    header += ["T̄ on Ω", "T̂ lower by"]
    names = ("hajek_variance", "hajek_exact", "hajek_paper", "ht_variance", "ht_exact", "ht_squared_error")
    lines = [
        [
            *(row[name] for name in ("generator", "sampler", "p", "omega_share")),
            *(f"{row[name]:.2e}" for name in names),
            f"{_reduction(row):.1%}",
        ]
        for row in rows
    ]
    return markdown(header, lines)


def draw(rows: list[Row], figure: Figure) -> None:
    generators, samplers = distinct(rows, "generator"), distinct(rows, "sampler")
    figure.set_size_inches(4.2 * len(samplers), 3.0 * len(generators))
    axes = figure.subplots(len(generators), len(samplers), squeeze=False, sharey="row")
    shown = [
        ("hajek_variance", "hajek_exact", "T̂ (Hájek), given Ω", "C0"),
        ("ht_variance", "ht_exact", "T̄ (Horvitz–Thompson)", "C1"),
        ("ht_squared_error", "ht_squared_error_exact", "T̄, squared error on Ω", "C3"),
    ]
    for line, generator in enumerate(generators):
        for at, sampler in enumerate(samplers):
            axis, here = axes[line][at], where(rows, generator=generator, sampler=sampler)
            p = column(here, "p")
            for measured, exact, label, colour in shown:
                axis.plot(p, column(here, exact), color=colour)
                axis.plot(p, column(here, measured), "o", color=colour, label=label)
            axis.plot(p, column(here, "hajek_paper"), "--", color="C0", label="T̂, the paper's formula")
            sampling.logarithmic(axis, p)
            axis.set_title(f"{sampling.GENERATORS[generator]}, {sampling.SAMPLERS[sampler]}", fontsize=9)
        axes[line][0].set_ylabel("variance of an entry of T")
    axes[0][0].legend(title="points: measured, lines: exact", fontsize=7, title_fontsize=7)


EXPERIMENT = Experiment(
    name="figure-1",
    title="Figure 1: variance of the Hájek and the Horvitz–Thompson estimator",
    claim="Over 100 repetitions of sampling one matrix, n = 10⁴ and d = 10³, the variance of the Hájek estimator T̂ is "
    "“generally 10⁻³ lower” than that of the Horvitz–Thompson estimator T̄, for either sampler.",
    method="Variance over repetitions, averaged over pairs: of T̂ given that the pair is in Ω (pairs seen in two "
    "repetitions or more), of T̄ with zeros outside Ω, as the paper's formulas have them; beside both, the squared "
    "error on Ω, which asks the same of either. T̄ divides by the true probabilities of the sampler, C(C−1)/(d(d−1)) "
    "for pairs of C entries per row. “10⁻³ lower” is read as a ratio. Both generators: the text's, and that of the "
    "published code.",
    full={"n": 10_000, "d": 1_000, "rank": 10, "p": [0.002, 0.005, 0.01, 0.02, 0.05], "seeds": 1, "repetitions": 100},
    quick={"n": 3_000, "d": 300, "p": [2 / 300, 5 / 300, 15 / 300], "repetitions": 40},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
    draw=draw,
)
