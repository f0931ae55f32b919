"""The panel's parts, and what a model says of columns in different ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from onesided import HajekGD, OneSidedCompletion, Panel
from onesided.pairs.linkage import ALONE, linked_parts


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_connected_components(seed):
    rng = np.random.default_rng(seed)
    n, d, entries = 60, 50, int(rng.integers(20, 150))
    matrix = sp.coo_array((np.ones(entries), (rng.integers(n, size=entries), rng.integers(d, size=entries)))).tocsr()
    matrix.resize((n, d))
    part = linked_parts(Panel.from_sparse(matrix))
    _, expected = connected_components(sp.block_array([[None, matrix], [matrix.T, None]]), directed=False)
    sizes = np.bincount(expected[n:])
    np.testing.assert_array_equal(part == ALONE, sizes[expected[n:]] == 1)
    linked = part != ALONE
    same = expected[n:][linked]
    np.testing.assert_array_equal(part[linked][:, None] == part[linked], same[:, None] == same)
    ordered = np.bincount(part[linked])
    assert np.all(np.diff(ordered) <= 0)


def test_rows_of_weight_zero_link_nothing():
    panel = Panel.from_dense([[1.0, 2.0, np.nan], [np.nan, 3.0, 4.0]])
    np.testing.assert_array_equal(linked_parts(panel), [0, 0, 0])
    np.testing.assert_array_equal(linked_parts(panel.with_row_weights([1.0, 0.0])), [0, 0, ALONE])


def two_parts(seed=0, n=2000, d=20):
    """Rows of three factors that show either the first or the second half of the columns."""
    rng = np.random.default_rng(seed)
    M = 2 + rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(n, d))
    first = np.arange(d) < d // 2
    kept = (rng.random((n, d)) < 0.5) & np.where(np.arange(n)[:, None] < n // 2, first, ~first)
    return Panel.from_dense(np.where(kept, M, np.nan))


@pytest.mark.parametrize("settings", [{}, {"rank": 3, "center": "columns"}, {"rank": 2, "center": "both"}])
def test_a_panel_in_parts_is_named_as_such_and_nothing_is_invented(settings, tmp_path):
    panel = two_parts()
    with pytest.warns(UserWarning, match="falls into 2 parts .* 10 columns are outside the largest"):
        model = OneSidedCompletion(random_state=0, **settings).fit(panel)
    T, covariance = model.second_moment_, model.covariance_
    assert [T[0, 1].status, T[0, 15].status, T[12, 15].status] == ["measured", "unsupported", "measured"]
    np.testing.assert_allclose(covariance.block(range(10), range(10, 20)), model.row_variance_, atol=1e-12)
    V = np.random.default_rng(0).normal(size=(20, 3))
    for operator in (T, covariance, T.low_rank):
        np.testing.assert_allclose(operator @ V, operator.to_dense() @ V, rtol=1e-9)
        every = np.indices((20, 20)).reshape(2, -1)
        np.testing.assert_allclose(operator.at(*every), operator.to_dense().ravel(), rtol=1e-9)
    model.save(tmp_path / "model", panel=False)
    assert OneSidedCompletion.load(tmp_path / "model").second_moment_[0, 15].status == "unsupported"


@pytest.mark.parametrize("center", ["columns", "both"])
def test_a_row_tells_nothing_of_columns_in_another_part(center):
    panel = two_parts()
    with pytest.warns(UserWarning, match="2 parts"):
        model = OneSidedCompletion(rank=3, center=center, diagonal="free").fit(panel)
    filled, deviation = model.impute(panel, return_std=True)
    rows, columns = np.nonzero(np.isnan(panel.to_dense()))
    values, at = model.impute_at(panel, rows, columns, return_std=True)
    np.testing.assert_allclose(values, filled[rows, columns], rtol=1e-10)
    np.testing.assert_allclose(at, deviation[rows, columns], rtol=1e-10)
    across = np.s_[:1000, 10:]
    effect = filled[across] - model.mean_[10:]
    if center == "columns":
        np.testing.assert_allclose(effect, 0.0, atol=1e-12)
    np.testing.assert_allclose(effect, effect[:, :1] * np.ones(10), atol=1e-12)
    whole = np.sqrt(np.diag(model.covariance_.to_dense()))[10:]
    np.testing.assert_allclose(np.median(deviation[across], axis=0), whole, rtol=0.15)


def test_the_papers_algorithm_keeps_its_output_between_parts_and_says_so():
    panel = two_parts()
    with pytest.warns(UserWarning, match="2 parts"):
        model = HajekGD(rank=2, step_size=1.0, iterations=5, random_state=0).fit(panel)
    np.testing.assert_allclose(model.second_moment_.low_rank.to_dense(), model.factor_ @ model.factor_.T)
    V = np.ones((20, 2))
    np.testing.assert_allclose(model.second_moment_ @ V, model.factor_ @ (model.factor_.T @ V))
    assert model.second_moment_[0, 15].status == "unsupported"


def test_a_panel_of_one_part_is_not_warned_about():
    rng = np.random.default_rng(0)
    M = np.outer(rng.normal(size=300), rng.normal(size=12)) + 0.5 * rng.normal(size=(300, 12))
    M = np.where(rng.random((300, 12)) < 0.5, M, np.nan)
    M[:, 11] = np.nan  # a column never seen is no part
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OneSidedCompletion(rank=1, center="columns", diagonal="free").fit(M)
