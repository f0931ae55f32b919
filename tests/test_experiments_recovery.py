"""The experiments that compare methods, on panels small enough for a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onesided import synthetic
from onesided.experiments import experiment, table_3
from onesided.experiments.experiment import run
from onesided.experiments.methods import COMPARED, METHODS, fit
from onesided.experiments.panels import Panels
from onesided.experiments.recovery import by_method, measure, standing

pytestmark = pytest.mark.filterwarnings("ignore:limit after:sklearn.exceptions.ConvergenceWarning")

RECOVERED = synthetic.sample_fixed(synthetic.noisy_mixture(400, 20, 2, sigma=0.5, rng=0), 6, rng=1)


class Tiny(Panels):
    """One panel, which stands for any."""

    def __init__(self):
        super().__init__(None)

    @property
    def names(self):
        return ["tiny"]

    def load(self, name):
        return RECOVERED


@pytest.fixture(scope="module")
def scores():
    panels = Tiny()
    cells = [{"panel": "tiny", "seed": seed, "method": method} for seed in range(2) for method in COMPARED]
    return [cell | row for cell in cells for row in measure(cell, panels)]


def test_every_method_is_scored(scores):
    assert {row["method"] for row in scores} == set(COMPARED)
    for row in scores:
        assert "refused" not in row, row
        for name in ("published_error", "error_against_all_data", "held_out_squared_error", "rmse", "seconds"):
            assert np.isfinite(row[name]), (row["method"], name)
    assert [row["output"] for row in scores if row["method"] == "Hájek-GD"] == ["XXᵀ", "Algorithm 1"] * 2


@pytest.mark.parametrize("method", METHODS)
def test_predictions_and_pairs_are_those_of_the_fit(method):
    fitted = fit(method, RECOVERED, seed=0, rank=2)
    i, j = np.indices((20, 20)).reshape(2, -1)
    for output in fitted.outputs:
        np.testing.assert_allclose(fitted.at(output)(i, j), fitted.to_dense(output).ravel(), rtol=1e-9, atol=1e-12)
    assert np.all(np.isfinite(fitted.predict(np.array([0, 1]), np.array([3, 4]))))


def test_units_do_not_matter_to_the_papers_algorithm():
    larger = synthetic.Truth(*(7.0 * one for one in _factors()))
    panels = [synthetic.sample_fixed(truth, 6, rng=1) for truth in (synthetic.Truth(*_factors()), larger)]
    small, large = (fit("Hájek-GD", panel, seed=0, rank=2).to_dense("XXᵀ") for panel in panels)
    np.testing.assert_allclose(large, 7.0**4 * small, rtol=1e-6)


def _factors():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 2)), rng.normal(size=(15, 2))


def test_the_best_other_method_and_the_error_of_the_difference(scores):
    own, name, best, error = standing(scores, "held_out_squared_error", "OneSidedCompletion")
    groups = dict(by_method(scores))
    means = {other: np.mean([row["held_out_squared_error"] for row in group]) for other, group in groups.items()}
    assert own == pytest.approx(means.pop("OneSidedCompletion"))
    assert name == min(means, key=means.get)
    assert best == pytest.approx(means[name])
    assert error > 0


SMALL = {
    "table-3": {"seeds": 1},
    "table-4": {"seeds": 1, "stand_ins": ["tiny"]},
    "table-5": {"seeds": 1, "ranks": [1, 2]},
    "figure-6": {"d": [30, 60], "C": [3], "shares": [0.05, 0.9], "iterations": 5, "seeds": 1},
    "figure-7": {"d": 12, "n": [60], "C": [4], "seeds": 1},
    "nuclear-norm": {"d": [20, 40], "seeds": 1},
}


@pytest.mark.parametrize("name", SMALL)
def test_experiments_run_through(name, tmp_path):
    one = experiment(name)
    small = replace(one, full=one.full | SMALL[name])
    record = run(small, tmp_path, Tiny())
    assert record["rows"]
    assert record["expectations"]
    assert "\n" not in record["verdict"]
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8").count("|") > 10
    assert (tmp_path / f"{name}.svg").exists() == (one.draw is not None)


@pytest.mark.parametrize(
    ("panel", "other", "errors", "reason"),
    [
        ("book-crossing", "shrunk column means", (0.1, 0.1), ": readers who share a pair"),
        ("book-crossing", "constant", (0.1, 0.1), ": the reason is not known"),
        ("tiny", "shrunk column means", (0.1, 0.1), ": the reason is not known"),
        ("tiny", "constant", (0.1, 0.29), ": within two standard errors"),
        ("tiny", "constant", (0.3, 0.3), ""),
    ],
)
def test_where_another_method_is_better_the_reason_is_given(panel, other, errors, reason):
    methods = {"OneSidedCompletion": (0.2, 0.2), "alternating GD": (0.4, 0.4), other: errors}
    rows = [
        {"panel": panel, "seed": seed, "method": method, "output": "T", "held_out_squared_error": error}
        for method, both in methods.items()
        for seed, error in enumerate(both)
    ]
    found = table_3.expect(rows)[0]
    assert found.holds == (np.mean(errors) >= 0.2)
    said = found.found.partition(")")[2]
    assert said.startswith(reason) if reason else said == ""
