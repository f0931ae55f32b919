"""How far groups are pulled together: the analysis of variance against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from onesided.model.shrinkage import GroupVariances, shrinkage, shrunk, variance_between, variance_within


def grouped(between, draw, groups=40_000, seed=0):
    """Sums, sums of squares and counts of groups whose means have a given variance around one."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 12, size=groups)
    means = rng.gamma(1 / between, between, size=groups) if between else np.ones(groups)
    group = np.repeat(np.arange(groups), counts)
    values = means[group] * draw(rng, len(group))
    return np.bincount(group, values, groups), np.bincount(group, values**2, groups), counts


NORMAL = (lambda rng, n: rng.normal(size=n) ** 2, 2.0)
HEAVY = (lambda rng, n: rng.gamma(0.2, 5.0, size=n), 5.0)


@pytest.mark.parametrize(("draw", "variance"), [NORMAL, HEAVY], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("between", [0.0, 0.05, 0.3])
def test_variances_are_found_whatever_the_tails(draw, variance, between):
    sums, squares, counts = grouped(between, draw)
    within = variance_within(sums, squares, counts)
    assert within == pytest.approx(variance * (1 + between), rel=0.1)
    assert variance_between(sums, counts, within) == pytest.approx(between, rel=0.15, abs=0.015)


def test_a_group_of_weight_two_is_two_groups():
    sums, squares, counts = grouped(0.3, NORMAL[0], groups=50)
    weights = np.where(np.arange(50) < 20, 2.0, 1.0)
    twice = np.concatenate([np.arange(50), np.arange(20)])
    weighed = GroupVariances.of(sums, squares, counts, weights=weights)
    assert weighed.within == pytest.approx(variance_within(sums[twice], squares[twice], counts[twice]))
    assert weighed.between == pytest.approx(variance_between(sums[twice], counts[twice], weighed.within))


def test_no_difference_is_an_infinite_pull():
    assert shrinkage(2.0, -0.1, least=5.0) == np.inf
    np.testing.assert_array_equal(shrunk(np.array([9.0, 0.0]), np.array([2, 0]), np.inf), 1.0)


def test_one_group_differs_from_no_other():
    assert variance_between(np.array([3.0]), np.array([2.0]), 1.0) == 0.0
    assert variance_within(np.array([3.0]), np.array([9.0]), np.array([1.0])) == 0.0


def test_squares_that_correlate_are_not_taken_for_groups_that_differ():
    rng = np.random.default_rng(0)
    groups, n, rho = 300_000, 6, 0.7
    e = np.sqrt(1 - rho) * rng.normal(size=(groups, n)) + np.sqrt(rho) * rng.normal(size=(groups, 1))
    sums, squares, counts = np.sum(e**2, axis=1), np.sum(e**4, axis=1), np.full(groups, n)
    overlap = np.full(groups, n + n * (n - 1) * rho**2)
    spread = GroupVariances.of(sums, squares, counts, overlap=overlap)
    within = spread.within
    assert within == pytest.approx(2.0, rel=0.05)
    assert spread.between == pytest.approx(0.0, abs=0.03)
    assert variance_between(sums, counts, variance_within(sums, squares, counts)) > 0.5
