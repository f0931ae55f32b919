"""Experiments on synthetic panels of known truth, at sizes of seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from onesided.estimators.completion import OneSidedCompletion
from onesided.estimators.hajek_gd import HajekGD
from onesided.experiments import experiment, synthetic_recovery, theorem_3_4
from onesided.experiments.experiment import run
from onesided.experiments.panels import Panels
from onesided.experiments.sampling import generated
from onesided.fitting.solvers.gradient_descent import stable_step
from onesided.pairs.moments import PairMoments
from onesided.synthetic import common_means

pytest.importorskip("matplotlib")

TINY = {
    "theorem-3-4": {
        "base": {"n": 300, "d": 20, "C": 5},
        "n": [300, 900],
        "C": [3, 5],
        "d": [20, 30],
        "rank": 2,
        "seeds": 1,
    },
    "figure-5": {
        "d": [20, 40],
        "C": [5, 10],
        "rank": 3,
        "ranks": [2],
        "variances": [1.0, 5.0],
        "seeds": 1,
    },
    "penalty": {
        "n": 300,
        "d": 20,
        "rank": 2,
        "C": 5,
        "penalties": [1e-4],
        "alphas": [1e-3],
        "iterations": 20,
        "long": 100,
        "seeds": 1,
    },
    "target-rank": {"n": 200, "d": 20, "C": 5, "ranks": [1, 3], "seeds": 1},
    "row-recovery": {"n": 200, "d": 40, "rank": 2, "rows": 20, "C": [2, 12], "seeds": 1},
    "figure-8": {
        "d": 20,
        "kinds": [[5, 10], [10, 10], [10, 5]],
        "C": [5],
        "sigmas": [0.0, 0.05, 0.1],
        "seeds": 1,
    },
}


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    own = partial(OneSidedCompletion, rank=1, center="columns", diagonal="free", refine="none", blend=None)
    monkeypatch.setattr(synthetic_recovery, "OneSidedCompletion", own)
    monkeypatch.setattr(synthetic_recovery, "HajekGD", partial(HajekGD, iterations=20))


@pytest.mark.parametrize("name", TINY)
def test_runs_and_writes_what_it_found(name, tmp_path):
    one = experiment(name)
    assert set(TINY[name]) <= set(one.full)
    record = run(replace(one, full=TINY[name]), tmp_path, Panels(None))
    assert record == json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert len(record["expectations"]) >= 3
    assert all(found["claim"] and found["found"] for found in record["expectations"])
    assert all(isinstance(found["holds"], bool) for found in record["expectations"])
    assert record["verdict"].startswith(("Agrees", "Does not agree"))
    assert "\n" not in record["verdict"]
    lines = (tmp_path / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert len({line.count(" | ") for line in lines}) == 1
    assert len(lines) > 3
    assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").count("</svg>") == 1


@pytest.mark.parametrize("name", TINY)
def test_a_cell_gives_the_same_numbers_again(name):
    one = experiment(name)
    cell = next(iter(one.cells(TINY[name], Panels(None))))
    assert one.measure(cell, Panels(None)) == one.measure(cell, Panels(None))


def test_a_matrix_of_lower_rank_is_cut_from_the_same():
    whole, part = (generated("text", 80, 30, rank, 0) for rank in (5, 2))
    left, values, right = np.linalg.svd(whole.to_dense(), full_matrices=False)
    np.testing.assert_allclose(part.to_dense(), left[:, :2] * values[:2] @ right[:2], atol=1e-12)


def test_generators_have_the_second_moment_they_promise():
    d, n = 50, 4000
    T = {name: generated(name, n, d, 4, 0).second_moment() for name in ("text", "code")}
    assert np.mean(T["text"]) == pytest.approx(1 / d, rel=0.05)
    assert np.mean(T["code"]) == pytest.approx(4 / d, rel=0.05)
    for name in ("common-means", "linear-mixture"):
        assert np.trace(generated(name, n, d, 4, 0).second_moment()) == pytest.approx(1, rel=0.3)


def test_noise_is_on_the_entries_and_not_in_the_truth():
    truth = generated("text", 500, 30, 3, 0)
    quiet, noisy = (synthetic_recovery.observed(truth, 10, 0, noise=noise) for noise in (0.0, 0.1))
    np.testing.assert_array_equal(quiet.columns, noisy.columns)
    assert np.std(noisy.values - quiet.values) == pytest.approx(0.1, rel=0.05)
    assert truth.noise == 0


def test_condition_of_means_follows_its_definition():
    truth = common_means(100, 40, 3, rng=0)
    U = truth.column_factors / np.sqrt(3)
    kappa, mu = theorem_3_4.condition(truth)
    assert kappa == pytest.approx(np.linalg.cond(U))
    assert mu == pytest.approx(max(1.0, 40 / 3 * (U**2).sum(axis=1).max() / (U**2).sum()))


def test_the_bound_goes_with_the_powers_it_claims():
    at = {"n": 10_000, "d": 1000, "C": 5, "rank": 5, "kappa": 1.2, "mu": 1.5}
    base = theorem_3_4.bound(**at)
    assert theorem_3_4.bound(**at | {"n": 20_000}) == pytest.approx(base / 2)
    assert theorem_3_4.bound(**at | {"C": 10}) == pytest.approx(base / 4)
    assert theorem_3_4.bound(**at | {"kappa": 2.4}) == pytest.approx(base * 64)
    assert theorem_3_4.bound(**at | {"mu": 3.0}) == pytest.approx(base * 4)
    assert theorem_3_4.bound(**at | {"rank": 10}) == pytest.approx(base * 32)


def test_the_longest_step_known_to_be_stable_is():
    truth = generated("code", 400, 30, 3, 0)
    panel = synthetic_recovery.observed(truth, 10, 0)
    step = stable_step(PairMoments.from_panel(panel), np.random.default_rng(0))
    history = synthetic_recovery.hajek_gd(panel, 3, 0, step_size=step, iterations=50).solve_.history
    assert history[-1] < history[0]
