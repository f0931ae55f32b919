"""Columns in their own units: what `OneSidedCompletion()` makes of a panel when nothing is set.

    python benchmarks/units.py SECTION [--seeds 5] [--panels 40] [--data DIR] [--json FILE] [--beside FILE]

One table per section. A number is the median over seeds, a share their mean, what must hold on every panel (T/means)
their largest; one that misses the section's target has an exclamation mark. ``--json`` keeps the numbers of every seed;
``--beside`` puts those that another version of the code left there next to them, with the ratio, or = where nothing
changed. Only the public interface is used, so that the same script measures both.

invariance   columns multiplied by powers of ten or moved by constants: how far the answer moves with them
noise        independent columns of six kinds: how often no rank is found
signal       unequal noise and unequal units around a low rank: covariance and T beside factor analysis by EM
mixed        real tables in mixed units with entries hidden (freetrade.csv.xz is left out without --data)
generators   panels of one unit of many kinds: T, covariance and hidden entries
rare         columns that are constant, nearly so, of two values or seen a few times: coverage of 90% intervals
ratings      real panels of one unit, split as accuracy.py splits them, and its covariances; without --data a part
trivial      real panels with 2 to 20 entries per row beside tuned row and column effects; needs --data

DIR holds the files that accuracy.py names, book-crossing.csv.xz, big-five.tsv.xz, polis.*.csv.xz and freetrade.csv.xz.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import numpy.typing as npt
import pandas as pd

from onesided import OneSidedCompletion, Panel
from onesided.baselines.factor_analysis import FactorAnalysisEM

Array = npt.NDArray[Any]
Rng = np.random.Generator
Numbers = dict[str, float]
Found = dict[str, dict[str, list[float]]]  # by case, by name, one for each seed

FIRST_SEED = 100
INF = float("inf")


# Fits


def fit(panel: Panel) -> tuple[OneSidedCompletion, float]:
    return accuracy.timed(lambda: OneSidedCompletion(random_state=0).fit(panel))


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else float("nan")


def off_diagonal(matrix: Array) -> Array:
    return matrix - np.diag(np.diag(matrix))


def relative(found: Array, truth: Array) -> float:
    return float(np.linalg.norm(found - truth) / max(np.linalg.norm(truth), 1e-300))


def off_diagonal_error(found: Array, truth: Array) -> float:
    return relative(off_diagonal(found), off_diagonal(truth))


def divided(matrix: Array, scales: Array) -> Array:
    return matrix / np.outer(scales, scales)


# What is observed


def observe(n: int, d: int, per_row: int | Array, rng: Rng, popularity: Array | float = 1.0) -> Array:
    """A mask with so many entries in each row; columns are drawn by popularity, without replacement."""
    keys = np.log(popularity) + rng.gumbel(size=(n, d))
    place = np.argsort(np.argsort(-keys, axis=1), axis=1)
    return np.asarray(place < np.broadcast_to(per_row, n)[:, None])


def at_least(mask: Array, least: int, rng: Rng) -> Array:
    """With entries added at random to columns that have fewer."""
    mask = mask.copy()
    for j in np.flatnonzero(mask.sum(axis=0) < least):
        absent = np.flatnonzero(~mask[:, j])
        mask[rng.choice(absent, least - mask[:, j].sum(), replace=False), j] = True
    return mask


def thinned(mask: Array, counts: Array, rng: Rng) -> Array:
    """With only so many entries left in the last columns."""
    mask = mask.copy()
    for j, count in zip(range(mask.shape[1] - len(counts), mask.shape[1]), counts, strict=True):
        mask[:, j] = False
        mask[rng.choice(len(mask), count, replace=False), j] = True
    return mask


def panel_of(values: Array, mask: Array) -> Panel:
    return accuracy.kept_panel(values.astype(np.float64), mask)


def observed_moments(values: Array, mask: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of what is observed of each column; a deviation of 1 where there is none."""
    counts = np.maximum(mask.sum(axis=0), 1)
    mean = np.where(mask, values, 0.0).sum(axis=0) / counts
    deviation = np.sqrt(np.where(mask, (values - mean) ** 2, 0.0).sum(axis=0) / counts)
    return mean, np.where(deviation > 0, deviation, 1.0)


# Populations


@dataclass(frozen=True, eq=False)
class Drawn:
    """Complete values, which of them are observed, and the population's moments."""

    values: Array
    mask: Array
    mean: Array
    covariance: Array

    @property
    def panel(self) -> Panel:
        return panel_of(self.values, self.mask)

    @property
    def second_moment(self) -> Array:
        return self.covariance + np.outer(self.mean, self.mean)

    @property
    def deviations(self) -> Array:
        return np.sqrt(np.diag(self.covariance))

    def times(self, scales: Array) -> Drawn:
        covariance = self.covariance * np.outer(scales, scales)
        return Drawn(self.values * scales, self.mask, self.mean * scales, covariance)


def loadings_of(d: int, rank: int, rng: Rng, size: float = 0.7) -> Array:
    return size * rng.standard_normal((d, rank))


def linear(mask: Array, loadings: Array, rng: Rng, *, noise: Array | float = 1.0, heavy: str = "") -> Drawn:
    """Rows μ + Λz + ε with noise of such standard deviations; t₃ noise or t₃ rows have the same moments."""
    n, (d, rank) = len(mask), loadings.shape
    mean, deviations = rng.standard_normal(d), np.broadcast_to(noise, d)
    z = rng.standard_normal((n, rank))
    errors = rng.standard_t(3, (n, d)) / np.sqrt(3) if heavy == "noise" else rng.standard_normal((n, d))
    stretch = 1 / np.sqrt(rng.chisquare(3, (n, 1))) if heavy == "rows" else 1.0
    values = mean + stretch * (z @ loadings.T + errors * deviations)
    return Drawn(values, mask, mean, loadings @ loadings.T + np.diag(deviations**2))


def simulated(draw: Callable[[int], Array], mask: Array, rows: int = 40_000) -> Drawn:
    """Where the moments have no formula: those of many rows, the first of which are the panel's."""
    many = draw(max(rows, len(mask))).astype(np.float64)
    return Drawn(many[: len(mask)], mask, many.mean(axis=0), np.cov(many, rowvar=False, bias=True))


# Invariance


def gaussian_kind(rng: Rng) -> tuple[Array, Array]:
    n, d = 2000, 50
    return linear(np.ones((n, d), dtype=bool), loadings_of(d, 3, rng), rng).values, observe(n, d, 8, rng)


def ratings_kind(rng: Rng) -> tuple[Array, Array]:
    n, d = 2000, 60
    latent = rng.standard_normal((n, 3)) @ loadings_of(d, 3, rng, 0.5).T + rng.standard_normal((n, d))
    latent += 0.6 * rng.standard_normal((n, 1)) + 0.6 * rng.standard_normal(d)
    mask = observe(n, d, rng.integers(3, 14, n), rng, np.exp(0.8 * rng.standard_normal(d)))
    return np.clip(np.rint(3.5 + latent), 1, 5), at_least(mask, 50, rng)


def questionnaire_kind(rng: Rng) -> tuple[Array, Array]:
    n, d = 2000, 40
    loadings = np.kron(np.eye(4), np.ones((10, 1))) * rng.choice([-1.0, 1.0], (d, 1)) * rng.uniform(0.4, 1.0, (d, 1))
    latent = rng.standard_normal((n, 4)) @ loadings.T + rng.uniform(0.5, 1.2, d) * rng.standard_normal((n, d))
    return np.clip(np.rint(rng.uniform(2.5, 5.5, d) + rng.uniform(0.5, 2.0, d) * latent), 1, 7), observe(n, d, 5, rng)


def rare_kind(rng: Rng) -> tuple[Array, Array]:
    values, mask = gaussian_kind(rng)
    return values, thinned(mask, np.arange(1, 31, 2), rng)


KINDS = {
    "Gaussian factors": gaussian_kind,
    "ratings": ratings_kind,
    "questionnaire": questionnaire_kind,
    "columns seen 1 to 29 times": rare_kind,
}


def one_at(d: int, value: float, otherwise: float, rng: Rng) -> Array:
    found = np.full(d, otherwise)
    found[rng.integers(d)] = value
    return found


# How columns are multiplied, and what is added then
CHANGES: dict[str, Callable[[int, Rng], tuple[Array, Array]]] = {
    "times 10^(-6…6)": lambda d, rng: (10.0 ** rng.integers(-6, 7, d), np.zeros(d)),
    "half, plus ±10⁶": lambda d, rng: (np.ones(d), rng.uniform(-1e6, 1e6, d) * (rng.random(d) < 0.5)),
    "one times 10⁶": lambda d, rng: (one_at(d, 1e6, 1.0, rng), np.zeros(d)),
    "one plus 10⁶": lambda d, rng: (np.ones(d), one_at(d, 1e6, 0.0, rng)),
}


def invariance(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for kind, draw in KINDS.items():
        for seed in seeds(asked):
            values, mask = draw(np.random.default_rng(seed))
            deviations = observed_moments(values, mask)[1]
            panel = panel_of(values, mask)
            model = fit(panel)[0]
            before = model.impute(panel), model.covariance_.to_dense(), model.rank_
            for name, change in CHANGES.items():
                scales, constants = change(values.shape[1], np.random.default_rng((seed, 1)))
                numbers = partial(moved, values, mask, scales, constants, before, deviations)
                yield from attempted(f"{kind}; {name}", numbers)


def moved(
    values: Array, mask: Array, scales: Array, constants: Array, before: tuple[Array, Array, int], deviations: Array
) -> Numbers:
    imputed, covariance, rank = before
    panel = panel_of(values * scales + constants, mask)
    model = fit(panel)[0]
    back = divided(model.covariance_.to_dense(), scales)
    differences = ((model.impute(panel) - constants) / scales - imputed) / deviations
    return {
        "covariance": relative(back, covariance),
        "off the diagonal": off_diagonal_error(back, covariance),
        "imputed, sd": rms(differences[~mask]),
        "rank before": rank,
        "rank after": model.rank_,
        "same rank": float(model.rank_ == rank),
    }


# Noise


def unequal_rows(n: int, d: int, rng: Rng) -> Array:
    return np.exp(0.7 * rng.standard_normal((n, 1))) * rng.standard_normal((n, d))


def rare_binary(n: int, d: int, rng: Rng) -> Array:
    return (rng.random((n, d)) < np.exp(rng.uniform(np.log(0.005), np.log(0.1), d))).astype(float)


NOISES: dict[str, Callable[[int, int, Rng], Array]] = {
    "Gaussian": lambda n, d, rng: rng.standard_normal((n, d)),
    "t2.5": lambda n, d, rng: rng.standard_t(2.5, (n, d)),
    "unequal columns": lambda n, d, rng: np.exp(rng.standard_normal(d)) * rng.standard_normal((n, d)),
    "unequal rows": unequal_rows,
    "counts": lambda n, d, rng: rng.poisson(np.exp(rng.normal(0.5, 1.0, d)), (n, d)).astype(float),
    "rare binary": rare_binary,
}
SHAPES = ((1000, 40, 6), (2000, 100, 5), (500, 20, 8), (3000, 60, 10))  # rows, columns, entries per row


def noise(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for kind, draw in NOISES.items():
        for index in range(asked.panels):
            n, d, per_row = SHAPES[index % len(SHAPES)]
            rng = np.random.default_rng(FIRST_SEED + index)
            values = draw(n, d, rng) + rng.standard_normal(d) * (kind not in ("counts", "rare binary"))
            yield from attempted(kind, partial(without_rank, panel_of(values, observe(n, d, per_row, rng))))


def without_rank(panel: Panel) -> Numbers:
    model, seconds = fit(panel)
    return {"rank 0": float(model.rank_ == 0), "largest rank": model.rank_, "seconds": seconds}


# Signal


def unequal_noise(mask: Array, rng: Rng) -> Drawn:
    d = mask.shape[1]
    return linear(mask, loadings_of(d, 3, rng), rng, noise=np.exp(rng.standard_normal(d)))


def unequal_scales(mask: Array, rng: Rng) -> Drawn:
    d = mask.shape[1]
    return linear(mask, loadings_of(d, 3, rng), rng).times(np.exp(rng.standard_normal(d)))


def some_in_millionths(mask: Array, rng: Rng) -> Drawn:
    d = mask.shape[1]
    return linear(mask, loadings_of(d, 3, rng), rng).times(np.where(rng.random(d) < 1 / 3, 1e6, 1.0))


SIGNALS = {"noise sd log-normal": unequal_noise, "scales log-normal": unequal_scales, "third × 10⁶": some_in_millionths}
SIGNAL_SHAPES = ((2000, 50, 8), (3000, 100, 6), (1000, 30, 10))


def signal(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for kind, draw in SIGNALS.items():
        for n, d, per_row in SIGNAL_SHAPES:
            for seed in seeds(asked):
                rng = np.random.default_rng(seed)
                drawn = draw(observe(n, d, per_row, rng), rng)
                yield from attempted(f"{kind}; {n:,} × {d}, {per_row} per row", partial(beside_em, drawn))


def beside_em(drawn: Drawn) -> Numbers:
    """Errors of the covariance off the diagonal and of T: as they are, and with columns in standard deviations."""
    model, seconds = fit(drawn.panel)
    ours = model.covariance_.to_dense()
    em = [em_covariance(drawn, rank) for rank in range(1, 9)]
    pairs = pairwise(drawn)
    T, T_of_means, truth = model.second_moment_.to_dense(), means_alone(drawn), drawn.second_moment
    found: Numbers = {}
    for name, units in (("raw", np.ones(len(ours))), ("sd", drawn.deviations)):
        error = partial(lambda at, C: off_diagonal_error(divided(C, at), divided(drawn.covariance, at)), units)
        best = min(map(error, em))
        found |= {f"C {name}": error(ours), f"EM {name}": best, f"pairs {name}": error(pairs)}
        found |= {f"C/EM {name}": found[f"C {name}"] / best}
        errors = [relative(divided(one, units), divided(truth, units)) for one in (T, T_of_means)]
        found |= {f"T {name}": errors[0], f"means {name}": errors[1], f"T/means {name}": errors[0] / errors[1]}
    return found | {"rank": model.rank_, "seconds": seconds}


def em_covariance(drawn: Drawn, rank: int) -> Array:
    """Of factor analysis by EM, fitted to columns divided by their observed standard deviations."""
    mean, deviations = observed_moments(drawn.values, drawn.mask)
    panel = panel_of((drawn.values - mean) / deviations, drawn.mask)
    model = FactorAnalysisEM(rank, iterations=100, random_state=0).fit(panel)
    standard = model.factor_ @ model.factor_.T + np.diag(model.noise_variance_)
    return np.asarray(standard * np.outer(deviations, deviations))


def pairwise(drawn: Drawn) -> Array:
    """pandas' covariance of pairs; zero where a pair was never seen together."""
    return np.nan_to_num(pd.DataFrame(np.where(drawn.mask, drawn.values, np.nan)).cov().to_numpy())


def means_alone(drawn: Drawn) -> Array:
    """μμᵀ off the diagonal, the measured mean square on it."""
    mean, deviations = observed_moments(drawn.values, drawn.mask)
    T = np.outer(mean, mean)
    np.fill_diagonal(T, mean**2 + deviations**2)
    return T


# Mixed units


def wine(_: Path | None) -> Array:
    from sklearn.datasets import load_wine

    return np.asarray(load_wine().data, dtype=np.float64)


def breast_cancer(_: Path | None) -> Array:
    from sklearn.datasets import load_breast_cancer

    return np.asarray(load_breast_cancer().data, dtype=np.float64)


def freetrade(data: Path | None) -> Array | None:
    if data is None:
        return None
    return pd.read_csv(data / "freetrade.csv.xz").select_dtypes("number").to_numpy(dtype=np.float64)


TABLES = {"wine": wine, "breast cancer": breast_cancer, "freetrade": freetrade}


def mixed(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for name, read in TABLES.items():
        table = read(asked.data)
        if table is None:
            continue
        for share in (0.2, 0.5):
            for seed in seeds(asked):
                known = np.isfinite(table)
                mask = known & (np.random.default_rng(seed).random(table.shape) >= share)
                yield from attempted(f"{name}, {share:.0%} hidden", partial(hidden_entries, table, mask, known & ~mask))


def hidden_entries(table: Array, mask: Array, hidden: Array) -> Numbers:
    """Errors in units of each column's standard deviation, over all that is known of it."""
    deviations = np.nanstd(table, axis=0)
    shown = np.where(mask, table, np.nan)
    panel = panel_of(table, mask)
    model, seconds = fit(panel)
    rows, columns = np.nonzero(hidden)
    values, spread = model.impute_at(panel, rows, columns, return_std=True)

    def error(predicted: Array) -> float:
        return rms((predicted - table)[hidden] / deviations[columns])

    ours = rms((values - table[hidden]) / deviations[columns])
    theirs = {name: min(error(impute(shown)) for impute in ways) for name, ways in IMPUTERS.items()}
    least, most = np.nanmin(shown, axis=0) - deviations, np.nanmax(shown, axis=0) + deviations
    return {
        "RMSE": ours,
        **theirs,
        "to iterative": ours / theirs["iterative"],
        "to KNN": ours / theirs["KNN"],
        "to means": ours / theirs["means"],
        "outside": float(np.mean((values < least[columns]) | (values > most[columns]))),
        "coverage": float(np.mean(np.abs(values - table[hidden]) <= accuracy.QUANTILE * spread)),
        "rank": model.rank_,
        "seconds": seconds,
    }


def iterative(shown: Array) -> Array:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return np.asarray(IterativeImputer(random_state=0).fit_transform(shown))


def nearest(shown: Array) -> Array:
    from sklearn.impute import KNNImputer

    return np.asarray(KNNImputer().fit_transform(shown))


def nearest_in_sd(shown: Array) -> Array:
    mean, deviations = np.nanmean(shown, axis=0), np.nanstd(shown, axis=0)
    deviations = np.where(deviations > 0, deviations, 1.0)
    return nearest((shown - mean) / deviations) * deviations + mean


def by_means(shown: Array) -> Array:
    return np.where(np.isfinite(shown), shown, np.nanmean(shown, axis=0))


# Of several ways the better
IMPUTERS: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "iterative": (iterative,),
    "KNN": (nearest, nearest_in_sd),
    "means": (by_means,),
}


# Generators of one unit


def latent_draw(d: int, rng: Rng, rank: int = 3, size: float = 0.7) -> Callable[[int], Array]:
    """Draws of Λz + ε with fixed Λ."""
    loadings = loadings_of(d, rank, rng, size)
    return lambda n: rng.standard_normal((n, rank)) @ loadings.T + rng.standard_normal((n, d))


def mixture(rng: Rng) -> Drawn:
    n, d, parts = 2000, 60, 5
    centres, shares = rng.standard_normal((parts, d)), rng.dirichlet(np.full(parts, 3.0))
    mean = shares @ centres
    values = centres[rng.choice(parts, n, p=shares)] + 0.7 * rng.standard_normal((n, d))
    covariance = (centres - mean).T @ ((centres - mean) * shares[:, None]) + 0.49 * np.eye(d)
    return Drawn(values, observe(n, d, 8, rng), mean, covariance)


def ordinal(rng: Rng) -> Drawn:
    n, d = 2000, 60
    latent, level = latent_draw(d, rng), rng.uniform(2.0, 4.0, d)
    return simulated(lambda n: np.clip(np.rint(level + latent(n)), 1, 5), observe(n, d, 8, rng))


def binary(rng: Rng) -> Drawn:
    n, d = 2000, 60
    latent, level = latent_draw(d, rng), rng.uniform(-1.0, 1.0, d)
    return simulated(lambda n: latent(n) > level, observe(n, d, 8, rng))


def rarely_one(rng: Rng) -> Drawn:
    n, d = 5000, 60
    latent, level = latent_draw(d, rng), rng.uniform(2.0, 3.5, d)
    return simulated(lambda n: latent(n) > level, observe(n, d, 8, rng))


def counts(rng: Rng, spread: float) -> Drawn:
    n, d = 2000, 60
    latent, level = latent_draw(d, rng), rng.uniform(-0.5, 1.0, d)
    return simulated(lambda n: rng.poisson(np.exp(level + spread * latent(n))), observe(n, d, 8, rng))


def sparse_loadings(rng: Rng) -> Drawn:
    n, d, rank = 3000, 80, 6
    loadings = loadings_of(d, rank, rng, 1.2) * (rng.random((d, rank)) < 0.15)
    return linear(observe(n, d, 8, rng), loadings, rng)


def row_effects(rng: Rng) -> Drawn:
    n, d = 2000, 80
    per_row = np.clip(np.rint(np.exp(rng.normal(1.8, 0.8, n))), 2, 60).astype(int)
    loadings = np.column_stack([np.ones(d), loadings_of(d, 2, rng, 0.5)])
    return linear(observe(n, d, per_row, rng), loadings, rng)


def decaying(rng: Rng) -> Drawn:
    n, d, rank = 3000, 80, 30
    return linear(observe(n, d, 10, rng), loadings_of(d, rank, rng, 1.5) / np.arange(1, rank + 1), rng)


def plain(rng: Rng, n: int = 2000, d: int = 60, per_row: int = 8, skew: float = 0.0, **options: Any) -> Drawn:
    popularity = (1.0 + np.arange(d)) ** -skew
    return linear(observe(n, d, per_row, rng, popularity), loadings_of(d, 3, rng), rng, **options)


def unequal(rng: Rng) -> Drawn:
    return plain(rng, noise=np.exp(0.5 * rng.standard_normal(60)))


GENERATORS: dict[str, Callable[[Rng], Drawn]] = {
    "Gaussian factors": plain,
    "mixture": mixture,
    "t₃ noise": partial(plain, heavy="noise"),
    "t₃ rows": partial(plain, heavy="rows"),
    "ordinal": ordinal,
    "binary": binary,
    "rare binary": rarely_one,
    "counts": partial(counts, spread=0.6),
    "counts, less skewed": partial(counts, spread=0.4),
    "sparse loadings": sparse_loadings,
    "300 × 500, 20 per row": partial(plain, n=300, d=500, per_row=20),
    "10,000 × 300, 3 per row": partial(plain, n=10_000, d=300, per_row=3),
    "row effects, skewed activity": row_effects,
    "decaying spectrum": decaying,
    "skewed popularity": partial(plain, d=200, per_row=10, skew=1.0),
    "low noise": partial(plain, noise=0.2),
    "noise sd log-normal, σ = ½": unequal,
}


def generators(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for name, draw in GENERATORS.items():
        for seed in seeds(asked):
            drawn = draw(np.random.default_rng(seed))
            yield from attempted(name, partial(recovered, drawn, np.random.default_rng((seed, 1))))


def recovered(drawn: Drawn, rng: Rng, most: int = 20_000) -> Numbers:
    panel = drawn.panel
    model, seconds = fit(panel)
    rows, columns = np.nonzero(~drawn.mask)
    chosen = rng.permutation(len(rows))[:most]
    rows, columns = rows[chosen], columns[chosen]
    values, spread = model.impute_at(panel, rows, columns, return_std=True)
    errors = values - drawn.values[rows, columns]
    return {
        "T": off_diagonal_error(model.second_moment_.to_dense(), drawn.second_moment),
        "covariance": off_diagonal_error(model.covariance_.to_dense(), drawn.covariance),
        "RMSE, sd": rms(errors / drawn.deviations[columns]),
        "coverage": float(np.mean(np.abs(errors) <= accuracy.QUANTILE * spread)),
        "rank": model.rank_,
        "seconds": seconds,
    }


# Rare columns


@dataclass(frozen=True)
class Rare:
    """Columns of one kind, each seen so many times."""

    group: str
    seen: tuple[int, ...]
    draw: Callable[[Array, int, Rng], Array]  # from ordinary values and how many are seen, for training and the rest


def as_they_are(values: Array, _: int, __: Rng) -> Array:
    return values


def constant(values: Array, _: int, rng: Rng) -> Array:
    return np.full_like(values, rng.standard_normal())


def nearly_constant(values: Array, seen: int, rng: Rng) -> Array:
    """One of those seen deviates, and as many of the others as that suggests."""
    level = rng.standard_normal()
    deviates = np.arange(len(values)) == 0
    deviates[seen:] = rng.random(len(values) - seen) < 1 / seen
    return np.where(deviates, level + 2.0, level)


def two_values(values: Array, _: int, rng: Rng) -> Array:
    return (values > np.quantile(values, rng.uniform(0.5, 0.9))).astype(np.float64)


RARE = (
    Rare("seen once", (1,) * 10, as_they_are),
    Rare("seen twice", (2,) * 10, as_they_are),
    Rare("seen 3 times", (3,) * 10, as_they_are),
    Rare("seen 4 to 10 times", (4, 5, 5, 6, 6, 7, 8, 8, 9, 10), as_they_are),
    Rare("seen more often", (12, 15, 15, 20, 20, 30, 30, 50, 50, 100), as_they_are),
    Rare("constant, seen 1 to 3 times", (1, 2, 3), constant),
    Rare("constant, seen 10 to 200 times", (10, 50, 200), constant),
    Rare("nearly constant, seen 5 to 200 times", (5, 20, 50, 200), nearly_constant),
    Rare("two values, seen 1 to 3 times", (1, 2, 2, 3, 3), two_values),
    Rare("two values, seen 5 to 200 times", (5, 10, 50, 200), two_values),
)
COMMON = 40  # ordinary columns, which come first
UNITS: dict[str, Callable[[int, Rng], Array]] = {
    "alike": lambda d, _: np.ones(d),
    "units log-normal": lambda d, rng: np.exp(rng.standard_normal(d)),
    "units 10^(-3…3)": lambda d, rng: 10.0 ** rng.integers(-3, 4, d),
}


def rare(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    for name, units in UNITS.items():
        for seed in seeds(asked):
            rng = np.random.default_rng(seed)
            values, mask, groups = with_rare_columns(rng)
            scales = units(values.shape[1], rng)
            panel = panel_of(values * scales, mask)
            model = cache(lambda panel=panel: fit(panel)[0])
            for group in dict.fromkeys(groups):
                places = hidden_of(mask, np.flatnonzero(groups == group), rng)
                yield from attempted(f"{name}; {group}", partial(covered, model, panel, values, scales, places))


def with_rare_columns(rng: Rng, n: int = 3000) -> tuple[Array, Array, Array]:
    """Values, what is seen of them, and each column's group."""
    kinds = [(rare, seen) for rare in RARE for seen in rare.seen]
    d = COMMON + len(kinds)
    values = linear(np.ones((n, d), dtype=bool), loadings_of(d, 3, rng), rng).values
    mask = np.zeros((n, d), dtype=bool)
    mask[:, :COMMON] = observe(n, COMMON, 7, rng)
    groups = ["ordinary"] * COMMON
    for j, (kind, seen) in enumerate(kinds, COMMON):
        order = rng.permutation(n)
        values[order, j] = kind.draw(values[order, j], seen, rng)
        mask[order[:seen], j] = True
        groups.append(kind.group)
    return values, mask, np.array(groups)


def hidden_of(mask: Array, columns: Array, rng: Rng, each: int = 300) -> tuple[Array, Array]:
    rows = [rng.choice(np.flatnonzero(~mask[:, j]), each, replace=False) for j in columns]
    return np.concatenate(rows), np.repeat(columns, each)


def covered(
    fitted: Callable[[], OneSidedCompletion], panel: Panel, values: Array, scales: Array, places: tuple[Array, Array]
) -> Numbers:
    """In units of each column; whatever is wrong anywhere in the model is in every group."""
    model, (rows, columns) = fitted(), places
    found, spread = (one / scales[columns] for one in model.impute_at(panel, rows, columns, return_std=True))
    errors = np.abs(found - values[rows, columns])
    noise = model.noise_variance_ / scales**2
    everything = [found, spread, noise, model.score(panel), model.mean_, model.covariance_.to_dense()]
    return {
        "coverage": float(np.mean(errors <= accuracy.QUANTILE * spread + 1e-12)),
        "RMSE": rms(errors),
        "standard deviation": float(np.median(spread)),
        "least noise": float(noise.min()),
        "not finite": float(sum(np.sum(~np.isfinite(one)) for one in everything)),
        "rank": model.rank_,
    }


# Ratings and covariances as accuracy.py has them


RATINGS = {  # and the RMSE they had before columns had units
    "RentTheRunway": (accuracy.rent_the_runway, 1.3837),
    "goodbooks-10k": (accuracy.goodbooks, 0.8217),
    "Jester": (accuracy.jester, 3.9702),
    "MovieLens-1M": (accuracy.movielens, 0.8346),
}
LIMITS_OF_THE_PAPER = {2: 0.0150, 5: 0.0142, 10: 0.0066}
LIMIT_OF_DIGITS = 0.074
JESTER_BEFORE, GENOMES_BEFORE = 0.197, {0.01: 0.0884, 0.002: 0.0914}


def ratings(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    few = range(asked.seeds)  # those of accuracy.py
    if asked.data is not None:
        for name, (read, before) in RATINGS.items():
            _, train, test = accuracy.split(name, read(asked.data))
            yield from attempted(f"{name}: RMSE", partial(rating_error, train, test, before))
        yield from real_covariances(asked.data, few)
    for seed in few:
        panel, truth = accuracy.digits_panel(8, seed)
        yield from attempted("digits, 8 pixels: T", partial(moment_error, panel, truth, seed, LIMIT_OF_DIGITS))
    for per_row, limit in LIMITS_OF_THE_PAPER.items():
        for seed in few:
            panel, truth = accuracy.paper_panel(per_row, seed)
            yield from attempted(f"the paper's, C = {per_row}: T", partial(moment_error, panel, truth, seed, limit))


def real_covariances(data: Path, few: range) -> Iterator[tuple[str, Numbers]]:
    entries = accuracy.jester(data)
    truth = accuracy.pairwise(entries.to_panel())
    for seed in few:
        panel = entries[accuracy.some_of_each_row(entries, 5, np.random.default_rng(seed))].to_panel()
        yield from attempted("Jester, 5 per row: C", partial(covariance_error, panel, truth, seed, JESTER_BEFORE))
    matrix = accuracy.genomes(data)
    truth = np.cov(matrix, rowvar=False, bias=True)
    for share, before in GENOMES_BEFORE.items():
        for seed in few:
            panel = accuracy.kept_panel(matrix, np.random.default_rng(seed).random(matrix.shape) < share)
            yield from attempted(f"1000 Genomes, {share:.1%}: C", partial(covariance_error, panel, truth, seed, before))


def moment_error(panel: Panel, truth: Array, seed: int, reference: float) -> Numbers:
    (T, model), seconds = accuracy.timed(lambda: accuracy.second_moment(panel, seed))
    return beside_reference(relative(T, truth), reference, model, seconds)


def covariance_error(panel: Panel, truth: Array, seed: int, reference: float) -> Numbers:
    (C, model), seconds = accuracy.timed(lambda: accuracy.ours(panel, seed))
    return beside_reference(relative(C, truth), reference, model, seconds)


def rating_error(train: accuracy.Entries, test: accuracy.Entries, reference: float) -> Numbers:
    panel = train.to_panel()
    model, seconds = fit(panel)
    values, spread = model.impute_at(panel, test.rows, test.columns, return_std=True)
    coverage = float(np.mean(np.abs(values - test.values) <= accuracy.QUANTILE * spread))
    return beside_reference(accuracy.rmse(values, test), reference, model, seconds) | {"coverage": coverage}


def beside_reference(error: float, reference: float, model: OneSidedCompletion, seconds: float) -> Numbers:
    ratio = error / reference
    return {"error": error, "reference": reference, "ratio": ratio, "rank": model.rank_, "seconds": seconds}


# Never worse than row and column effects


def compact(rows: Array, columns: Array, values: Array) -> accuracy.Entries:
    """With rows and columns numbered anew, those that occur."""
    of_rows, rows = np.unique(rows, return_inverse=True)
    of_columns, columns = np.unique(columns, return_inverse=True)
    return accuracy.Entries(rows, columns, values.astype(np.float64), (len(of_rows), len(of_columns)))


def from_wide(table: Array) -> accuracy.Entries:
    rows, columns = np.nonzero(np.isfinite(table))
    return compact(rows, columns, table[rows, columns])


def book_crossing(data: Path) -> accuracy.Entries:
    """Explicit ratings alone: zero stands for none."""
    return accuracy.Entries.from_panel(accuracy.loaded("book-crossing", data))


def big_five(data: Path) -> accuracy.Entries:
    items = pd.read_csv(data / "big-five.tsv.xz", sep="\t").loc[:, "E1":"O10"].to_numpy(dtype=np.float64)
    return from_wide(np.where(items > 0, items, np.nan))


def polis(conversation: str, data: Path) -> accuracy.Entries:
    return from_wide(pd.read_csv(data / f"polis.{conversation}.csv.xz").iloc[:, 6:].to_numpy(dtype=np.float64))


def haplotypes(data: Path, each: int = 50) -> accuracy.Entries:
    """So many entries of each site at random, which is more than are used."""
    matrix, rng = accuracy.genomes(data), np.random.default_rng(0)
    columns = np.concatenate([rng.choice(matrix.shape[1], each, replace=False) for _ in range(len(matrix))])
    rows = np.repeat(np.arange(len(matrix)), each)
    return accuracy.Entries(rows, columns, matrix[rows, columns], matrix.shape)


REAL: dict[str, Callable[[Path], accuracy.Entries]] = {
    "Polis, Canada": partial(polis, "canadian-electoral-reform"),
    "Polis, biodiversity": partial(polis, "scoop-hivemind.biodiversity"),
    "Polis, UberX": partial(polis, "vtaiwan.uberx"),
    "Big Five": big_five,
    "Jester": accuracy.jester,
    "1000 Genomes": haplotypes,
    "MovieLens-1M": accuracy.movielens,
    "goodbooks-10k": accuracy.goodbooks,
    "RentTheRunway": accuracy.rent_the_runway,
    "Book-Crossing": book_crossing,
}
LEAST_ROWS, MOST_ROWS, MOST_TESTS = 100, 20_000, 200_000
SHRINKAGES = (0.5, 2.0, 5.0, 15.0, 50.0, 200.0)


def trivial(asked: argparse.Namespace) -> Iterator[tuple[str, Numbers]]:
    if asked.data is None:
        raise SystemExit("trivial needs --data")
    for name, read in REAL.items():
        entries = read(asked.data)
        for per_row in (2, 5, 10, 20):
            for seed in seeds(asked):
                cut = few_of_each_row(entries, per_row, np.random.default_rng(seed))
                if cut is not None:
                    yield from attempted(f"{name}, {per_row} per row", partial(beside_effects, *cut))


def few_of_each_row(
    entries: accuracy.Entries, per_row: int, rng: Rng
) -> tuple[accuracy.Entries, accuracy.Entries] | None:
    """So many entries of each row that has more, and a fifth of the others; None where too few rows have."""
    rows = np.flatnonzero(np.bincount(entries.rows) > per_row)
    if len(rows) < LEAST_ROWS:
        return None
    chosen = np.isin(entries.rows, rng.permutation(rows)[:MOST_ROWS])
    entries = compact(entries.rows[chosen], entries.columns[chosen], entries.values[chosen])
    kept = accuracy.some_of_each_row(entries, per_row, rng)
    others = rng.permutation(np.flatnonzero(~kept))
    return entries[kept], entries[others[: min(MOST_TESTS, max(len(others) // 5, 1000))]]


def beside_effects(train: accuracy.Entries, test: accuracy.Entries) -> Numbers:
    panel = train.to_panel()
    model, seconds = fit(panel)
    values, spread = model.impute_at(panel, test.rows, test.columns, return_std=True)
    shrinkages = [(of_rows, of_columns) for of_rows in SHRINKAGES for of_columns in SHRINKAGES]
    effects = by_effects(train, test, accuracy.best_on_held_out(train, shrinkages, by_effects))
    ours, theirs = accuracy.rmse(values, test), accuracy.rmse(effects, test)
    return {
        "RMSE": ours,
        "effects": theirs,
        "ratio": ours / theirs,
        "coverage": float(np.mean(np.abs(values - test.values) <= accuracy.QUANTILE * spread)),
        "rank": model.rank_,
        "rows": train.shape[0],
        "seconds": seconds,
    }


def by_effects(train: accuracy.Entries, test: accuracy.Entries, shrinkages: tuple[float, float]) -> Array:
    """μ + a_u + b_j, each the mean of what the others leave, shrunk by its own number of entries."""
    level = float(train.values.mean())
    centred = train.values - level
    sizes = [np.bincount(at, minlength=size) for at, size in zip(accuracy.positions(train), train.shape, strict=True)]
    of_rows = np.zeros(train.shape[0])
    for _ in range(15):
        left = np.bincount(train.columns, centred - of_rows[train.rows], minlength=train.shape[1])
        of_columns = left / (sizes[1] + shrinkages[1])
        left = np.bincount(train.rows, centred - of_columns[train.columns], minlength=train.shape[0])
        of_rows = left / (sizes[0] + shrinkages[0])
    return accuracy.add_effects((level, of_rows, of_columns), test)


# Tables


@dataclass(frozen=True)
class Section:
    run: Callable[[argparse.Namespace], Iterator[tuple[str, Numbers]]]
    target: str
    limits: dict[str, tuple[float, float]]


SECTIONS = {
    "invariance": Section(
        invariance,
        "covariance within 1%, imputed values within 0.05 sd, equal ranks (where every column is seen 50 times)",
        {"covariance": (0, 0.01), "off the diagonal": (0, 0.01), "imputed, sd": (0, 0.05), "same rank": (1, 1)},
    ),
    "noise": Section(noise, "rank 0 in 39 of 40 panels", {"rank 0": (0.975, 1)}),
    "signal": Section(
        signal,
        "at most 1.05 of EM at its best rank; T better than column means",
        {"C/EM raw": (0, 1.05), "C/EM sd": (0, 1.05), "T/means raw": (0, 1), "T/means sd": (0, 1)},
    ),
    "mixed": Section(
        mixed,
        "at most 1.02 of iterative, below KNN and means, 0.5% outside, coverage 86% to 94%",
        {
            "to iterative": (0, 1.02),
            "to KNN": (0, 1),
            "to means": (0, 1),
            "outside": (0, 0.005),
            "coverage": (0.86, 0.94),
        },
    ),
    "generators": Section(generators, "no worse than before", {}),
    "rare": Section(
        rare,
        "noise above 0 and all finite; coverage as near to 90% as it comes",
        {"least noise": (1e-6, INF), "not finite": (0, 0)},
    ),
    "ratings": Section(ratings, "within 0.2% of the reference, or its limit", {"ratio": (0, 1.002)}),
    "trivial": Section(trivial, "at most 1.001 of the effects", {"ratio": (0, 1.001)}),
}
SHARES = {"same rank", "rank 0", "outside", "coverage"}  # the mean of all seeds; the rest are medians
LARGEST = {"largest rank", "T/means raw", "T/means sd"}  # what must hold on every panel


def seeds(asked: argparse.Namespace) -> range:
    return range(FIRST_SEED, FIRST_SEED + asked.seeds)


def attempted(case: str, numbers: Callable[[], Numbers]) -> Iterator[tuple[str, Numbers]]:
    """The case with its numbers; where the fit fails, that is said and counted."""
    try:
        yield case, numbers() | {"failed": 0.0}
    except Exception:
        print(f"{case}: {traceback.format_exc(limit=-2)}", file=sys.stderr)
        yield case, {"failed": 1.0}


def summary(name: str, numbers: list[float]) -> float:
    if name == "failed":
        return float(np.sum(numbers))
    return float((np.mean if name in SHARES else np.max if name in LARGEST else np.median)(numbers))


def in_words(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:.5g}"


def cell(name: str, now: list[float], before: list[float], limits: dict[str, tuple[float, float]]) -> str:
    if not now:
        return ""
    value = summary(name, now)
    low, high = limits.get(name, (-INF, INF))
    text = in_words(value) + ("" if low <= value <= high else "!")
    if not before:
        return text
    old = summary(name, before)
    if old == value:
        return f"{text} (=)"
    ratio = f", ×{value / old:.3g}" if old > 0 else ""
    return f"{text} ({in_words(old)}{ratio})"


def table_lines(cases: list[str], found: Found, beside: Found, section: Section, names: list[str]) -> Iterator[str]:
    if not names:
        names += [one for case in cases for one in found[case]] or ["failed"]
        names[:] = [one for one in dict.fromkeys(names) if one != "failed"] + ["failed"]
        yield from accuracy.header("case", *names)
    for case in cases:
        old = beside.get(case, {})
        cells = (cell(name, found[case].get(name, []), old.get(name, []), section.limits) for name in names)
        yield accuracy.row(case, *cells)


def run_section(name: str, asked: argparse.Namespace, beside: Found) -> None:
    """Prints cases as they are done: those that have the part before a semicolon in common come in turn."""
    section, found, names, done = SECTIONS[name], {}, [], []

    def finish(going_on: str | None) -> None:
        ready = [case for case in found if case not in done and case.split(";")[0] != going_on]
        if ready:
            print("\n".join(table_lines(ready, found, beside, section, names)), flush=True)
            done.extend(ready)

    print(f"## {name}\n\nTarget: {section.target}. Missed: !\n", flush=True)
    for case, numbers in section.run(asked):
        finish(case.split(";")[0])
        into = found.setdefault(case, {})
        for one, number in numbers.items():
            into.setdefault(one, []).append(float(number))
        if asked.json:
            asked.json.write_text(json.dumps({"section": name, "found": found}, indent=1))
    finish(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--panels", type=int, default=40, help="of each kind of noise")
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--json", type=Path, help="where to keep the numbers")
    parser.add_argument("--beside", type=Path, help="numbers kept by --json, shown in brackets")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    beside = json.loads(asked.beside.read_text())["found"] if asked.beside else {}
    accuracy.warm_up()
    run_section(asked.section, asked, beside)


if __name__ == "__main__":
    main()
