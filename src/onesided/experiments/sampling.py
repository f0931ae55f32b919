"""Synthetic matrices, and how their entries are observed, by the names that cells carry.

Generators: ``"text"`` is N(1/√d, 1/d) as the paper says, ``"code"`` is N(2/√d, 1/d²), nearly a constant matrix, as in
the code published with it; both are cut to the given rank. ``"common-means"`` and ``"linear-mixture"`` are those of
:mod:`onesided.synthetic`.

Samplers: ``"bernoulli"`` observes each entry with probability p; ``"fixed"`` exactly C = p·d entries of each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from onesided import synthetic
from onesided.arrays import Array
from onesided.experiments.experiment import Axes
from onesided.pairs.moments import PairMoments
from onesided.panels.panel import Panel

HIGHEST_RANK = 50
GENERATORS = {"text": "N(1/√d, 1/d)", "code": "N(2/√d, 1/d²)"}
SAMPLERS = {"bernoulli": "each entry with probability p", "fixed": "exactly C = p·d per row"}


def grid(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells of every generator, seed, sampler and p of the settings, one matrix after another.

    >>> sizes = {"n": 40, "d": 10, "rank": 2, "p": [0.2, 0.5], "seeds": 2}
    >>> cells = grid(sizes)
    >>> len(cells), cells[0]
    (16, {'n': 40, 'd': 10, 'rank': 2, 'generator': 'text', 'seed': 0, 'sampler': 'bernoulli', 'p': 0.2})
    """
    return [
        {name: settings[name] for name in ("n", "d", "rank")}
        | {"generator": generator, "seed": seed, "sampler": sampler, "p": p}
        for generator in GENERATORS
        for seed in range(settings["seeds"])
        for sampler in SAMPLERS
        for p in settings["p"]
    ]


@lru_cache(maxsize=1)
def generated(generator: str, n: int, d: int, rank: int, seed: int) -> synthetic.Truth:
    """A matrix of one of the generators; the last one stays in memory.

    >>> generated("code", 100, 25, 3, 0).second_moment().mean().round(2)  # (2/√25)²
    np.float64(0.16)
    """
    if generator == "common-means":
        return synthetic.common_means(n, d, rank, rng=seed)
    if generator == "linear-mixture":
        return synthetic.linear_mixture(n, d, rank, rng=seed)
    whole = _gaussian(generator, n, d, min(HIGHEST_RANK, n, d), seed)
    return synthetic.Truth(whole.row_factors[:, :rank].copy(), whole.column_factors[:, :rank].copy())


@lru_cache(maxsize=1)
def _gaussian(generator: str, n: int, d: int, rank: int, seed: int) -> synthetic.Truth:
    """Of a rank from which lower ones are cut: finding it takes longer than all else."""
    mean, deviation = {"text": (1 / np.sqrt(d), 1 / np.sqrt(d)), "code": (2 / np.sqrt(d), 1 / d)}[generator]
    return synthetic.low_rank_gaussian(n, d, rank, rng=seed, mean=mean, deviation=deviation)


@lru_cache(maxsize=1)
def second_and_fourth(truth: synthetic.Truth) -> tuple[Array, Array]:
    """T = MᵀM / n and F = (M∘M)ᵀ(M∘M) / n of a matrix without noise, from which variances follow.

    >>> second_and_fourth(synthetic.Truth(np.array([[1.0], [2.0]]), np.array([[1.0]])))
    (array([[2.5]]), array([[8.5]]))
    """
    squares = truth.to_dense() ** 2
    return truth.second_moment(), squares.T @ squares / len(squares)


def observed(truth: synthetic.Truth, sampler: str, p: float, rng: synthetic.Seed) -> Panel:
    """Some entries of a matrix.

    >>> observed(generated("text", 10, 20, 2, 0), "fixed", 0.15, 0)
    Panel(10 rows × 20 columns, 30 entries)
    """
    if sampler == "fixed":
        return synthetic.sample_fixed(truth, round(p * truth.shape[1]), rng=rng)
    return synthetic.sample_bernoulli(truth, p, rng=rng)


def inclusion(sampler: str, p: float, d: int) -> tuple[float, float]:
    """The probabilities that a row has an entry, and that it has both of a pair.

    >>> inclusion("bernoulli", 0.5, 4), inclusion("fixed", 0.5, 4)
    ((0.5, 0.25), (0.5, 0.16666666666666666))
    """
    if sampler == "fixed":
        C = round(p * d)
        return C / d, C * (C - 1) / (d * (d - 1))
    return p, p**2


def logarithmic(axis: Axes, p: list[float]) -> None:
    """Logarithmic axes, that of p marked where it was measured."""
    axis.set(xscale="log", yscale="log", xlabel="p, or C/d")
    axis.set_xticks(p, [f"{one:.3g}" for one in p])
    axis.set_xticks([], minor=True)


def repeated(truth: synthetic.Truth, sampler: str, p: float, repetitions: int, seed: int) -> Iterator[PairMoments]:
    """The pair moments of one matrix sampled again and again."""
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, repetition])
        yield PairMoments.from_panel(observed(truth, sampler, p, rng))
