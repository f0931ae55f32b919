"""Accuracy beside other methods, on real and synthetic panels. Writes its tables to docs/accuracy.md.

    python benchmarks/accuracy.py movielens sparse ratings jester genomes paper selection bands --data DIR [--seeds 5]

Each name is a section of that page and can be run alone. DIR holds ml-1m.ratings.dat.xz, goodbooks-10k.csv.xz,
renttherunway.csv.xz, jester-1.csv.xz and 1kg-chr22-haplotypes.npz; the last three need no data. ``cmfrec`` and
``myfm`` are compared with where they are installed.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import os
import platform
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.datasets import load_digits

from onesided import OneSidedCompletion, PairMoments, Panel, datasets, synthetic
from onesided.baselines.factor_analysis import FactorAnalysisEM
from onesided.pairs.moments import hajek

Array = npt.NDArray[Any]

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
CORES = os.cpu_count() or 1
TEST_SHARE = 0.2
LEVEL = 0.9
QUANTILE = float(norm.ppf((1 + LEVEL) / 2))
N, D = 10_000, 1_000


# Panels


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries by position, in the order of their file."""

    rows: Array
    columns: Array
    values: Array
    shape: tuple[int, int]

    def __getitem__(self, kept: Array) -> Entries:
        return Entries(self.rows[kept], self.columns[kept], self.values[kept], self.shape)

    def __len__(self) -> int:
        return len(self.values)

    def to_sparse(self) -> sp.coo_array:
        return sp.coo_array((self.values, (self.rows, self.columns)), shape=self.shape)

    def to_panel(self) -> Panel:
        return Panel.from_sparse(self.to_sparse().tocsr())

    @classmethod
    def from_panel(cls, panel: Panel) -> Entries:
        rows = np.repeat(np.arange(panel.n_rows), panel.row_counts)
        return cls(rows, panel.columns, panel.values.astype(np.float64), panel.shape)


def movielens(data: Path) -> Entries:
    """In the order of the file, to which the mask of the test entries belongs."""
    text = lzma.decompress((data / "ml-1m.ratings.dat.xz").read_bytes()).replace(b"::", b",")
    names = pyarrow.csv.ReadOptions(column_names=["user", "movie", "rating", "time"])
    table = pyarrow.csv.read_csv(pa.BufferReader(text), names)
    users, rows = np.unique(table["user"].to_numpy(), return_inverse=True)
    movies, columns = np.unique(table["movie"].to_numpy(), return_inverse=True)
    return Entries(rows, columns, table["rating"].to_numpy().astype(np.float64), (len(users), len(movies)))


def loaded(name: str, data: Path) -> Panel:
    path = datasets.find(name, data)
    if path is None:
        raise FileNotFoundError(f"{name} is not in {data}")
    return datasets.load(name, path)


def goodbooks(data: Path) -> Entries:
    return Entries.from_panel(loaded("goodbooks", data))


def rent_the_runway(data: Path) -> Entries:
    return Entries.from_panel(loaded("renttherunway", data))


def jester(data: Path) -> Entries:
    return Entries.from_panel(loaded("jester", data))


def genomes(data: Path) -> Array:
    return loaded("genomes", data).to_dense().astype(np.float64)


def some_of_each_row(entries: Entries, per_row: int, rng: np.random.Generator) -> Array:
    """A mask that keeps so many entries of each row at random, all of a row that has fewer."""
    order = np.lexsort((rng.random(len(entries)), entries.rows))
    counts = np.bincount(entries.rows, minlength=entries.shape[0])
    place = np.arange(len(entries)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.zeros(len(entries), dtype=bool)
    kept[order[place < per_row]] = True
    return kept


# Predicting entries


@dataclass(frozen=True, eq=False)
class Prediction:
    values: Array
    seconds: float
    deviations: Array | None = None
    remark: str = ""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = perf_counter()
    return work(), perf_counter() - began


def in_seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def bias_effects(train: Entries, penalty: float, sweeps: int = 20) -> tuple[float, Array, Array]:
    """Mean, row and column effects: means of what the others leave, shrunk by so many entries worth zero."""
    level = float(train.values.mean())
    counts = [np.bincount(at, minlength=size) + penalty for at, size in zip(positions(train), train.shape, strict=True)]
    of_rows, of_columns = np.zeros(train.shape[0]), np.zeros(train.shape[1])
    for _ in range(sweeps):
        left = train.values - level - of_rows[train.rows]
        of_columns = np.bincount(train.columns, left, minlength=train.shape[1]) / counts[1]
        left = train.values - level - of_columns[train.columns]
        of_rows = np.bincount(train.rows, left, minlength=train.shape[0]) / counts[0]
    return level, of_rows, of_columns


def positions(entries: Entries) -> tuple[Array, Array]:
    return entries.rows, entries.columns


def add_effects(effects: tuple[float, Array, Array], test: Entries) -> Array:
    level, of_rows, of_columns = effects
    return level + of_rows[test.rows] + of_columns[test.columns]


def best_on_held_out(train: Entries, candidates: Iterable[Any], predict: Callable[..., Array]) -> Any:
    """The candidate that predicts a tenth of the training entries best."""
    held_out = np.random.default_rng(0).random(len(train)) < 0.1
    inner, outer = train[~held_out], train[held_out]
    return min(candidates, key=lambda candidate: rmse(predict(inner, outer, candidate), outer))


def biases(train: Entries, test: Entries, penalty: float) -> Array:
    return add_effects(bias_effects(train, penalty), test)


def by_biases(train: Entries, test: Entries) -> Prediction:
    penalty, seconds = timed(lambda: best_on_held_out(train, (2.0, 5.0, 10.0, 25.0), biases))
    values, more = timed(lambda: biases(train, test, penalty))
    return Prediction(values, seconds + more, remark=f"shrinkage {penalty:g}")


def by_onesided(train: Entries, test: Entries) -> Prediction:
    panel = train.to_panel()
    model, seconds = timed(lambda: OneSidedCompletion(random_state=0).fit(panel))
    values, deviations = model.impute_at(panel, test.rows, test.columns, return_std=True)
    return Prediction(values, seconds, deviations, chosen_setting(model))


def collective(train: Entries, test: Entries, penalties: tuple[float, float]) -> Array:
    """cmfrec with a penalty for biases and one for factors; its biases alone where a row or column is new."""
    from cmfrec import CMF

    of_biases, of_factors = penalties
    penalty = [of_biases] * 2 + [of_factors] * 4
    model = CMF(k=10, lambda_=penalty, user_bias=True, item_bias=True, nthreads=CORES, verbose=False, random_state=0)
    model.fit(sp.coo_matrix(train.to_sparse()))
    known = [np.isin(np.arange(size), at) for at, size in zip(positions(train), train.shape, strict=True)]
    effects = [np.where(known[0], model.user_bias_, 0.0), np.where(known[1], model.item_bias_, 0.0)]
    both = known[0][test.rows] & known[1][test.columns]
    return np.where(both, model.predict(*positions(test)), add_effects((model.glob_mean_, *effects), test))


def by_cmfrec(train: Entries, test: Entries) -> Prediction:
    candidates = ((10.0, 10.0), (5.0, 10.0), (5.0, 20.0), (5.0, 40.0))
    penalties, seconds = timed(lambda: best_on_held_out(train, candidates, collective))
    values, more = timed(lambda: collective(train, test, penalties))
    return Prediction(values, seconds + more, remark="k=10, λ={:g} for biases, {:g} for factors".format(*penalties))


def by_myfm(train: Entries, test: Entries, rank: int = 10) -> Prediction:
    from myfm import MyFMRegressor

    model = MyFMRegressor(rank=rank, random_seed=0)
    design = one_hot(train)
    _, seconds = timed(lambda: model.fit(design, train.values, n_iter=100, group_shapes=list(train.shape)))
    return Prediction(model.predict(one_hot(test)), seconds, remark=f"rank {rank}, 100 draws")


def one_hot(entries: Entries) -> sp.csr_matrix:
    indices = np.column_stack([entries.rows, entries.shape[0] + entries.columns]).ravel()
    indptr = np.arange(0, 2 * len(entries) + 1, 2)
    return sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(len(entries), sum(entries.shape)))


def chosen_setting(model: OneSidedCompletion) -> str:
    blend = f", blend {model.blend_:.3g}" if np.isfinite(model.blend_) else ""
    return f"rank {model.rank_}, center {model.center_}, diagonal {model.diagonal_}{blend}"


Predictor = Callable[[Entries, Entries], Prediction]
PREDICTORS: dict[str, Predictor] = {
    "row and column effects": by_biases,
    "`OneSidedCompletion()`": by_onesided,
    "cmfrec": by_cmfrec,
    "myFM": by_myfm,
}
LARGER = {"myFM, rank 20": partial(by_myfm, rank=20)}
PEERS = {"cmfrec": "cmfrec", "myFM": "myfm", "myFM, rank 20": "myfm"}

PREDICTION_TEXT = f"""
RMSE is the root mean squared error on the held-out entries. Seconds are those of the fit, choosing included. Coverage
is the share of held-out entries inside the nominal {LEVEL:.0%} interval, the prediction ± {QUANTILE:.3f} of its
standard deviations; in brackets its lowest and highest value among fifths of these entries, by standard deviation. Row
and column effects are alternating means of what the other leaves, shrunk by a number of entries. That number, and the
penalties of cmfrec, are chosen on a tenth of the training entries. cmfrec has biases for rows and columns and {CORES}
threads; where a row or column has no training entry, its biases alone predict. myFM sees rows and columns as two groups
of indicators. No prediction is clipped to the scale of the ratings."""


def rmse(predicted: Array, test: Entries) -> float:
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)))


def coverage(prediction: Prediction, test: Entries) -> str:
    if prediction.deviations is None:
        return ""
    inside = np.abs(prediction.values - test.values) <= QUANTILE * prediction.deviations
    fifths = [part.mean() for part in np.array_split(inside[np.argsort(prediction.deviations, kind="stable")], 5)]
    return f"{inside.mean():.3f} ({min(fifths):.2f} to {max(fifths):.2f})"


def prediction_table(
    splits: Iterable[tuple[str, Entries, Entries]], predictors: dict[str, Predictor] = PREDICTORS
) -> Iterator[str]:
    yield from header("panel", "training / test entries", "method", "RMSE", "seconds", "coverage", "setting")
    winners = []
    for name, train, test in splits:
        errors = {}
        for method, predict in predictors.items():
            if method in PEERS and find_spec(PEERS[method]) is None:
                yield row(name, "", method, "", "", "", "not installed")
                continue
            found = predict(train, test)
            errors[method] = rmse(found.values, test)
            sizes, error, seconds = (
                f"{len(train):,} / {len(test):,}",
                f"{errors[method]:.4f}",
                in_seconds(found.seconds),
            )
            yield row(name, sizes, method, error, seconds, coverage(found, test), found.remark)
        best = min(errors, key=errors.__getitem__)
        winners.append(f"{name}: {best} ({errors[best]:.4f})")
    yield "\n" + paragraph(f"The lowest RMSE: {'; '.join(winners)}.").rstrip()


def movielens_section(data: Path, _: int | None) -> Iterator[str]:
    entries = movielens(data)
    held_out = np.random.default_rng(0).random(len(entries)) < TEST_SHARE
    yield "## MovieLens-1M\n"
    yield paragraph(f"""
        A fifth of the ratings is held out: `numpy.random.default_rng(0).random({len(entries)}) < {TEST_SHARE}`, in the
        order of the file. {PREDICTION_TEXT}""")
    yield from prediction_table([("MovieLens-1M", entries[~held_out], entries[held_out])], PREDICTORS | LARGER)


def sparse_section(data: Path, _: int | None) -> Iterator[str]:
    entries = movielens(data)
    yield "## MovieLens-1M with few ratings per user\n"
    yield paragraph("""
        C ratings of each user are kept at random, and a fifth of the others is held out. Columns and settings as
        above.""")
    yield from prediction_table(few_per_user(entries))


def few_per_user(entries: Entries) -> Iterator[tuple[str, Entries, Entries]]:
    test = np.random.default_rng(1).random(len(entries)) < TEST_SHARE
    for per_row in (5, 10, 20):
        kept = some_of_each_row(entries, per_row, np.random.default_rng(0))
        yield f"C = {per_row}", entries[kept], entries[test & ~kept]


def ratings_section(data: Path, _: int | None) -> Iterator[str]:
    yield "## Other ratings\n"
    yield paragraph("""
        A fifth of the entries is held out at random. Ratings that a row gives a column twice are averaged. Columns and
        settings as above.""")
    yield from prediction_table(split(name, read(data)) for name, read in RATINGS.items())


RATINGS = {"goodbooks-10k": goodbooks, "RentTheRunway": rent_the_runway, "Jester": jester}


def split(name: str, entries: Entries) -> tuple[str, Entries, Entries]:
    held_out = np.random.default_rng(0).random(len(entries)) < TEST_SHARE
    return name, entries[~held_out], entries[held_out]


# Recovering the covariance


def factor_analysis(panel: Panel, rank: int, seed: int, iterations: int = 100) -> Array:
    """ΛΛᵀ + Ψ by expectation maximisation for rows μ + Λz + ε with missing entries, from a random start."""
    model = FactorAnalysisEM(rank, iterations=iterations, random_state=seed).fit(panel)
    return np.asarray(model.factor_ @ model.factor_.T + np.diag(model.noise_variance_))


def column_moments(panel: Panel) -> tuple[Array, Array]:
    counts = np.maximum(panel.column_counts, 1)
    mean = np.bincount(panel.columns, panel.values, minlength=panel.n_columns) / counts
    centred = panel.values - mean[panel.columns]
    return mean, np.bincount(panel.columns, centred**2, minlength=panel.n_columns) / counts


def pairwise(panel: Panel) -> Array:
    """Means of the products of centred entries; zero for a pair that no row has."""
    moments = PairMoments.from_panel(panel.centred(column_moments(panel)[0]))
    return np.asarray(moments.to_matrix(hajek(moments)).toarray())


def constant_covariance(panel: Panel) -> Array:
    """The mean product of two centred entries of a row in every place, with the measured diagonal."""
    mean, variance = column_moments(panel)
    rows, centred = np.repeat(np.arange(panel.n_rows), panel.row_counts), panel.values - mean[panel.columns]
    products = np.bincount(rows, centred, minlength=panel.n_rows) ** 2
    number = np.sum(panel.row_counts.astype(np.float64) * (panel.row_counts - 1))
    constant = np.full((panel.n_columns, panel.n_columns), (products.sum() - np.sum(centred**2)) / number)
    np.fill_diagonal(constant, variance)
    return constant


def relative_error(found: Array, truth: Array) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def ours(panel: Panel, seed: int, **options: Any) -> tuple[Array, OneSidedCompletion]:
    model = OneSidedCompletion(random_state=seed, **options).fit(panel)
    return model.covariance_.to_dense(), model


COVARIANCE_TEXT = """
The error is the relative Frobenius error ‖Ĉ − C‖ / ‖C‖ of the whole covariance matrix, diagonal included. Pairwise
means of centred products are zero where no row has the pair; the constant covariance is the mean product of two centred
entries of a row, beside the measured diagonal; factor analysis is fitted by 100 iterations of expectation maximisation
from a random start. Seconds are those of one fit."""


@dataclass(frozen=True)
class Errors:
    """Errors and seconds of methods over several panels."""

    found: dict[str, list[tuple[float, float]]]

    def add(self, method: str, truth: Array, work: Callable[[], Array]) -> None:
        estimate, seconds = timed(work)
        self.found.setdefault(method, []).append((relative_error(estimate, truth), seconds))

    def cell(self, method: str) -> str:
        if method not in self.found:
            return ""
        errors, seconds = np.transpose(self.found[method])
        return f"{np.median(errors):.3f} ({in_seconds(np.median(seconds))} s)"


def jester_section(data: Path, seeds: int | None) -> Iterator[str]:
    entries, seeds = jester(data), seeds or 3
    truth, errors, settings = pairwise(entries.to_panel()), Errors({}), []
    for seed in range(seeds):
        panel = entries[some_of_each_row(entries, 5, np.random.default_rng(seed))].to_panel()
        model = add_covariances(errors, panel, truth, seed)
        add_factor_analysis(
            errors, panel, truth, seed, max(model.rank_, 1), "the rank that `OneSidedCompletion()` chose"
        )
        settings.append(chosen_setting(model))
    yield "## The covariance of Jester from five ratings per row\n"
    yield paragraph(f"""
        Five of the {len(entries) / entries.shape[0]:.0f} ratings that a row has on average are kept. The truth is the
        pairwise covariance of all of them, from {pair_range(entries)} rows for a pair. {COVARIANCE_TEXT} Median of
        {seeds} seeds.""")
    yield from header("method", "error (seconds)")
    for method in errors.found:
        yield row(method, errors.cell(method))
    yield "\n" + paragraph(f"Chosen: {'; '.join(settings)}.").rstrip()


def add_covariances(errors: Errors, panel: Panel, truth: Array, seed: int) -> OneSidedCompletion:
    """The errors of all methods on one panel, and the model that chose for itself."""
    models = []
    errors.add("pairwise", truth, lambda: pairwise(panel))
    errors.add("constant", truth, lambda: constant_covariance(panel))
    errors.add('`OneSidedCompletion(refine="none")`', truth, lambda: ours(panel, seed, refine="none")[0])
    errors.add("`OneSidedCompletion()`", truth, lambda: models.append(ours(panel, seed)) or models[0][0])
    for rank in (1, 2, 3, 5):
        add_factor_analysis(errors, panel, truth, seed, rank, f"rank {rank}")
    return models[0][1]


def add_factor_analysis(errors: Errors, panel: Panel, truth: Array, seed: int, rank: int, name: str) -> None:
    errors.add(f"factor analysis, {name}", truth, lambda: factor_analysis(panel, rank, seed))


def pair_range(entries: Entries) -> str:
    counts = PairMoments.from_panel(entries.to_panel()).counts
    return f"{int(counts.min()):,} to {int(counts.max()):,}"


def genomes_section(data: Path, seeds: int | None) -> Iterator[str]:
    matrix, seeds, shares = genomes(data), seeds or 1, (0.01, 0.002)
    truth, errors, settings = np.cov(matrix, rowvar=False, bias=True), {}, []
    for share in shares:
        errors[share] = Errors({})
        for seed in range(seeds):
            kept = np.random.default_rng(seed).random(matrix.shape) < share
            model = add_covariances(errors[share], kept_panel(matrix, kept), truth, seed)
            settings.append(f"{share:.1%}: {chosen_setting(model)}")
    yield "## The covariance of haplotypes\n"
    yield paragraph(f"""
        1000 Genomes, chromosome 22: {matrix.shape[0]:,} sites in rows, {matrix.shape[1]:,} haplotypes in columns, 0 or
        1, complete. A share of the entries is kept at random. {COVARIANCE_TEXT} Median of
        {seeds} seed(s).""")
    yield from header("method", *(f"{share:.1%} kept" for share in shares))
    for method in errors[shares[0]].found:
        yield row(method, *(errors[share].cell(method) for share in shares))
    yield "\n" + paragraph(f"Chosen: {'; '.join(settings)}.").rstrip()


def kept_panel(matrix: Array, kept: Array) -> Panel:
    rows, columns = np.nonzero(kept)
    return Entries(rows, columns, matrix[rows, columns], matrix.shape).to_panel()


# Synthetic panels


def paper_panel(per_row: int, seed: int) -> tuple[Panel, Array]:
    truth = synthetic.low_rank_gaussian(N, D, 10, rng=seed)
    return synthetic.sample_bernoulli(truth, per_row / D, rng=seed), truth.second_moment()


def mixture_panel(make: Callable[..., synthetic.Truth], per_row: int, seed: int) -> tuple[Panel, Array]:
    truth = make(N, D, 5, rng=seed)
    return synthetic.sample_fixed(truth, per_row, rng=seed), truth.second_moment()


def noisy_mixture(n: int, d: int, rank: int, *, rng: int) -> synthetic.Truth:
    return synthetic.noisy_mixture(n, d, rank, sigma=1.0, rng=rng)


def digits_panel(per_row: int, seed: int) -> tuple[Panel, Array]:
    images = load_digits().data
    kept = np.random.default_rng(seed).random(images.shape) < per_row / images.shape[1]
    return kept_panel(images, kept), images.T @ images / len(images)


def second_moment(panel: Panel, seed: int, **options: Any) -> tuple[Array, OneSidedCompletion]:
    model = OneSidedCompletion(random_state=seed, **options).fit(panel)
    return model.second_moment_.to_dense(), model


def means_alone(panel: Panel) -> Array:
    mean = column_moments(panel)[0]
    return np.outer(mean, mean)


def paper_section(_: Path, seeds: int | None) -> Iterator[str]:
    seeds, per_rows = seeds or 5, (2, 5, 10)
    errors: dict[int, Errors] = {}
    settings = []
    for per_row in per_rows:
        errors[per_row] = Errors({})
        for seed in range(seeds):
            panel, truth = paper_panel(per_row, seed)
            settings.append(add_paper(errors[per_row], panel, truth, seed))
    yield "## The paper's synthetic panel\n"
    yield paragraph(f"""
        {N:,} rows, {D:,} columns, rank 10, each entry observed with probability C/{D:,}; nothing is set. Relative
        Frobenius error of `second_moment_.to_dense()`, median of {seeds} seeds, and the seconds of one fit.""")
    yield from header("method", *(f"C = {per_row}" for per_row in per_rows))
    for method in errors[2].found:
        yield row(method, *(errors[per_row].cell(method) for per_row in per_rows))
    yield "\n" + paragraph(f"Chosen: {'; '.join(sorted(set(settings)))}.").rstrip()


def add_paper(errors: Errors, panel: Panel, truth: Array, seed: int) -> str:
    models = []
    errors.add("column means alone, μμᵀ", truth, lambda: means_alone(panel))
    errors.add("`OneSidedCompletion()`", truth, lambda: models.append(second_moment(panel, seed)) or models[0][0])
    return chosen_setting(models[0][1])


CASES: dict[str, Callable[[int], tuple[Panel, Array]]] = {
    **{f"the paper's, C = {c}": lambda seed, c=c: paper_panel(c, seed) for c in (2, 5, 10)},
    **{f"common means, C = {c}": lambda seed, c=c: mixture_panel(synthetic.common_means, c, seed) for c in (10, 20)},
    **{f"noisy mixture, C = {c}": lambda seed, c=c: mixture_panel(noisy_mixture, c, seed) for c in (10, 20)},
    **{f"linear mixture, C = {c}": lambda seed, c=c: mixture_panel(synthetic.linear_mixture, c, seed) for c in (5, 20)},
    **{f"digits, C = {c}": lambda seed, c=c: digits_panel(c, seed) for c in (8, 16)},
}
GRID = {"center": ("none", "columns", "both"), "diagonal": ("free", "fit"), "rank": (0, 1, 2, 3, 5, 8, 12)}


def selection_section(_: Path, seeds: int | None) -> Iterator[str]:
    seeds = seeds or 1
    yield "## What is chosen, beside the best that could have been\n"
    grid = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in GRID.items())
    yield paragraph(f"""
        Mixtures have {N:,} rows, {D:,} columns, rank 5 and exactly C entries per row, the noisy one with σ = 1; the
        paper's panel as above; of the digits' 64 pixels C are kept on average. The error is the relative Frobenius
        error of `second_moment_.to_dense()`: with everything chosen, and of the best in the grid of {grid}, each
        without a blend. Median of {seeds} seed(s); the settings are those of the first.""")
    yield from header("panel", "chosen", "best in the grid", "ratio", "setting chosen", "best setting", "seconds")
    for name, case in CASES.items():
        runs = [against_grid(*case(seed), seed) for seed in range(seeds)]
        chosen, best = (float(np.median([run[k] for run in runs])) for k in (0, 1))
        ratio = float(np.median([run[0] / run[1] for run in runs]))
        yield row(name, f"{chosen:.4f}", f"{best:.4f}", f"{ratio:.3f}", *runs[0][2:4], in_seconds(runs[0][4]))


def against_grid(panel: Panel, truth: Array, seed: int) -> tuple[float, float, str, str, float]:
    """The error of what is chosen, the least in the grid, both settings, and the seconds of the choice."""
    (found, model), seconds = timed(lambda: second_moment(panel, seed))
    tried = {}
    for values in itertools.product(*GRID.values()):
        options = dict(zip(GRID, values, strict=True))
        estimate, fixed = second_moment(panel, seed, blend=None, **options)
        tried[chosen_setting(fixed)] = relative_error(estimate, truth)
    best = min(tried, key=tried.__getitem__)
    return relative_error(found, truth), tried[best], chosen_setting(model), best, seconds


# The page


def header(*names: str) -> Iterator[str]:
    yield row(*names)
    yield row(*("---" for _ in names))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False) + "\n"


def head() -> Iterator[str]:
    packages = ("onesided", "numpy", "scipy", "numba", "scikit-learn", "cmfrec", "myfm")
    yield "# Accuracy\n"
    yield paragraph(f"""
        Written by `benchmarks/accuracy.py`, section by section; every number is from a run. `OneSidedCompletion()` has
        nothing set but `random_state`. Seconds are on {CORES} shared cores, so that they vary.""")
    versions = "; ".join(f"{name} {installed(name)}" for name in packages)
    yield paragraph(f"Python {platform.python_version()}; {versions}.").rstrip()


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def bands_section(_: Path, seeds: int | None) -> Iterator[str]:
    import bands

    panels = seeds or 1000
    yield "## How often intervals hold the truth\n"
    yield paragraph(f"""
        The share of nominal {bands.LEVEL:.0%} intervals that hold the truth, over {panels:,} panels of 2,000 rows, 40
        columns and 8 entries per row, each with its own bootstrap of 50 replicates. Eigenvalues are those of the
        covariance's low-rank part, completed entries those of pairs that no row has, both held to the population;
        measured entries off the diagonal to T of the rows drawn. More cases, and other intervals beside these, by
        `benchmarks/bands.py`. Intervals of imputed values are under coverage above.""")
    yield from header("population", "first eigenvalue", "completed entries", "measured entries")
    for population in bands.POPULATIONS[:2]:
        found = bands.shares(population, panels)
        first, completed, measured = (found[name][0] for name in ("λ", "never measured", "measured"))
        yield row(population.name, f"{first:.3f}", f"{completed:.3f}", f"{measured:.3f}")


SECTIONS: dict[str, Callable[[Path, int | None], Iterator[str]]] = {
    "movielens": movielens_section,
    "sparse": sparse_section,
    "ratings": ratings_section,
    "jester": jester_section,
    "genomes": genomes_section,
    "paper": paper_section,
    "selection": selection_section,
    "bands": bands_section,
}


def put(name: str, text: str) -> None:
    """Replace one part of the page, or add it in its place."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = dict(re.findall(r"<!-- begin (\w+) -->\n(.*?)\n<!-- end \1 -->", page, re.DOTALL)) | {name: text}
    ordered = [one for one in dict.fromkeys(("head", *SECTIONS, *parts)) if one in parts]  # units.py has its own
    blocks = [f"<!-- begin {one} -->\n{parts[one]}\n<!-- end {one} -->\n" for one in ordered]
    PAGE.write_text("\n".join(blocks), encoding="utf-8")


def warm_up() -> None:
    """Compile what numba compiles, so that it is in nobody's seconds."""
    panel = synthetic.sample_fixed(synthetic.linear_mixture(200, 20, 2, rng=0), 6, rng=1)
    model = OneSidedCompletion(random_state=0).fit(panel)
    model.impute_at(panel, [0], [0], return_std=True)
    factor_analysis(panel, 2, 0, iterations=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sections", nargs="*", metavar="NAME", help=f"of {', '.join(SECTIONS)}; all where none is named"
    )
    parser.add_argument("--data", type=Path, default=Path(), help="the folder with the data sets")
    parser.add_argument("--seeds", type=int, help="seeds of jester, genomes, paper and selection; panels of bands")
    asked = parser.parse_args()
    unknown = set(asked.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    warm_up()
    put("head", "\n".join(head()))
    for name in asked.sections or SECTIONS:
        lines = []
        for line in SECTIONS[name](asked.data, asked.seeds):
            print(line, flush=True)
            lines.append(line)
        put(name, "\n".join(lines))


if __name__ == "__main__":
    main()
