"""Synthetic panels of known truth, and how far the T that is recovered from them is off.

Algorithm 1 takes the paper's settings, which are for d = 10³, at every d: 1,000 iterations with the step
η = 10⁴ (d / 10³)². The loss is a mean over Ω, of which the gradient is near 2 (XXᵀ − T) X / d²: with η ∝ d² the
descent is the same one at every d, n and C, and a fixed η would be a shorter one at larger d.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onesided import synthetic
from onesided.arrays import Array
from onesided.estimators.completion import OneSidedCompletion
from onesided.estimators.hajek_gd import HajekGD
from onesided.experiments.metrics import relative_error
from onesided.pairs.measured import Measured
from onesided.panels.panel import Panel
from onesided.synthetic import Truth

METHODS = {
    "hajek": "HajekGD, XXᵀ",
    "algorithm1": "HajekGD, T̂ on Ω",
    "onesided": "OneSidedCompletion",
    "means": "column means, μμᵀ",
}


def observed(truth: Truth, C: float, seed: int, *, noise: float = 0.0) -> Panel:
    """Each entry with probability C/d and with noise of the given standard deviation.

    >>> observed(synthetic.linear_mixture(50, 20, 2, rng=0), 20, 0)
    Panel(50 rows × 20 columns, 1,000 entries)
    """
    return synthetic.sample_bernoulli(replace(truth, noise=noise), C / truth.shape[1], rng=seed)


def step_size(d: int) -> float:
    """η of the paper, carried from d = 10³ to other d.

    >>> step_size(2000)
    40000.0
    """
    return 1e4 * (d / 1000) ** 2


def hajek_gd(panel: Panel, rank: int, seed: int, **settings: Any) -> HajekGD:
    """Algorithm 1 with the paper's settings, unless others are given."""
    settings = {"step_size": step_size(panel.n_columns)} | settings
    return HajekGD(rank, random_state=seed, **settings).fit(panel)


def one_sided(panel: Panel, seed: int, *, noise_variance: float | None = None) -> OneSidedCompletion:
    """``OneSidedCompletion`` as it comes; the noise variance, if given, is known to it."""
    return OneSidedCompletion(noise_variance=noise_variance, random_state=seed).fit(panel)


def recovered(
    panel: Panel, T: Array, rank: int, seed: int, *, noise_variance: float | None = None, **settings: Any
) -> dict[str, Any]:
    """The relative error of T by each of ``METHODS``, and ‖T‖_F; ``settings`` are those of ``HajekGD``.

    ``OneSidedCompletion`` chooses its rank, which is told beside.

    >>> truth = synthetic.linear_mixture(2000, 30, 2, rng=0)
    >>> row = recovered(observed(truth, 8, 0), truth.second_moment(), 2, 0)
    >>> row["onesided"] < row["hajek"] < row["means"]
    True
    """
    published = hajek_gd(panel, rank, seed, **settings).second_moment_
    own = one_sided(panel, seed, noise_variance=noise_variance)
    means = Measured.from_panel(panel).means
    return {
        "hajek": relative_error(published.low_rank.to_dense(), T),
        "algorithm1": relative_error(published.algorithm1.to_dense(), T),
        "onesided": relative_error(own.second_moment_.to_dense(), T),
        "means": relative_error(np.outer(means, means), T),
        "onesided_rank": int(own.rank_),
        "norm": float(np.linalg.norm(T)),
    }
