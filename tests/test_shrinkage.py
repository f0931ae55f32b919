"""How far groups are pulled together: the analysis of variance against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from onesided.model.shrinkage import GroupVariances, shrinkage, shrunk, shrunk_means, variance_between


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


def variance_within(sums, squares, counts):
    """The mean variance within groups, from sums of values and of their squares."""
    return max(np.sum(squares - sums**2 / np.maximum(counts, 1)), 0.0) / np.sum(np.maximum(counts - 1, 0))


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
    assert GroupVariances.of(np.array([3.0]), np.array([9.0]), np.array([1.0])).within == 0.0


def test_means_are_shrunk_as_far_as_they_are_alike():
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, size=20_000)
    truth = 5 + 0.7 * rng.normal(size=20_000)
    means = truth + rng.normal(size=20_000) / np.sqrt(counts)
    found, own, between = shrunk_means(means, counts.astype(float), 1.0)
    assert between == pytest.approx(0.49, rel=0.05)
    np.testing.assert_allclose(own, counts * between / (counts * between + 1.0))
    assert np.mean((found - truth) ** 2) == pytest.approx(np.mean(between * (1 - own)), rel=0.05)
    assert np.mean((found - truth) ** 2) < 0.7 * np.mean((means - truth) ** 2)


@pytest.mark.parametrize("within", [0.0, 1.0])
def test_means_of_columns_never_seen_are_the_level(within):
    found, own, between = shrunk_means(np.array([1.0, 3.0, 9.0]), np.array([50.0, 50.0, 0.0]), within)
    assert between == pytest.approx(2.0, abs=0.05)
    assert (found[2], own[2]) == (2.0, 0.0)


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
