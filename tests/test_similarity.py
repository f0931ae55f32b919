"""Columns that go together, and columns that a row would have most of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onesided import InputError, OneSidedCompletion, Panel, synthetic
from onesided.model.similarity import correlations, deviations, standard_errors


def mixture(n=2000, d=60, rank=3, entries=8, noise=0.7, seed=0):
    """A panel, and the correlations of the population its rows come from."""
    truth = replace(synthetic.linear_mixture(n, d, rank, rng=seed), noise=noise / np.sqrt(d))
    covariance = truth.column_factors @ truth.column_factors.T / rank
    size = np.sqrt(np.diag(covariance) + truth.noise**2)
    return synthetic.sample_fixed(truth, entries, rng=seed), covariance / np.outer(size, size)


@pytest.fixture(scope="module")
def fitted():
    panel, truth = mixture()
    return OneSidedCompletion(3, center="both", diagonal="free", blend=None, random_state=0).fit(panel), panel, truth


def test_correlations_are_those_of_entries_beyond_the_row_effect(fitted):
    model, _, truth = fitted
    space = model.row_space_
    spread = model.spread_  # lower halves of (mean, [effect,] loadings)
    width = 1 + space.loadings.shape[1]
    first = 1 + (model.row_variance_ > 0)
    traces = np.zeros(60)
    for a in range(first, width):
        traces += spread[:, a * (a + 1) // 2 + a]
    size = np.sqrt(np.sum(model.factor_**2, axis=1) + traces + model.noise_variance_)
    np.testing.assert_allclose(deviations(space), size)
    rho = correlations(space, 5)
    np.testing.assert_allclose(rho, model.factor_ @ model.factor_[5] / (size * size[5]))
    assert np.corrcoef(rho, truth[5])[0, 1] > 0.95


def test_the_nearest_are_listed_best_first_with_their_counts(fitted):
    model, panel, _ = fitted
    found = model.similar(5, n=7)
    rho = correlations(model.row_space_, 5)
    others = [j for j in np.argsort(-rho) if j != 5][:7]
    assert [one.id for one in found] == others
    assert [one.correlation for one in found] == [float(rho[j]) for j in others]
    seen = ~np.isnan(panel.to_dense())
    assert [one.count for one in found] == [np.sum(seen[:, 5] & seen[:, j]) for j in others]
    assert all(one.standard_error > 0 for one in found)
    assert model.similar(5, n=7) == found  # the same every time


def test_standard_errors_cover():
    """Of 90% intervals, about so many hold the true correlation (the table of the module has more)."""
    off = []
    for seed in range(3):
        panel, truth = mixture(500, seed=seed)
        model = OneSidedCompletion(3, center="columns", diagonal="free", blend=None, random_state=0).fit(panel)
        rng, space = np.random.default_rng(seed), model.row_space_
        for i in range(0, 60, 6):
            others = np.delete(np.arange(60), i)[rng.permutation(59)[:10]]
            errors = standard_errors(space, panel, i, others, rng)
            off += list((correlations(space, i)[others] - truth[i, others]) / errors)
    assert 0.84 < np.mean(np.abs(off) < 1.645) < 0.97


def test_without_the_panel_nothing_is_counted(fitted, tmp_path):
    model, _, _ = fitted
    model.save(tmp_path / "model.onesided", panel=False)
    found = OneSidedCompletion.load(tmp_path / "model.onesided").similar(5, n=3)
    assert [one.id for one in found] == [one.id for one in model.similar(5, n=3)]
    assert all(one.standard_error is None and one.count is None for one in found)


def in_parts():
    """Two parts that share no row, and a column that is never seen beside another."""
    rng = np.random.default_rng(0)
    dense = np.full((401, 9), np.nan)
    for u in range(400):
        columns = rng.choice(4, 3, replace=False) + (4 if u % 2 else 0)
        dense[u, columns] = rng.normal() + rng.normal(0, 0.3, 3) + columns
    dense[400, 8] = 9.0
    with pytest.warns(UserWarning, match="2 parts"):
        return OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(Panel.from_dense(dense))


def test_parts_are_not_compared():
    model = in_parts()
    assert {one.id for one in model.similar(1)} == {0, 2, 3}
    assert {one.id for one in model.similar(6)} == {4, 5, 7}
    assert model.similar(8) == []


def test_recommended_are_the_highest_unseen(fitted):
    model, panel, _ = fitted
    rows = panel.take_rows([3, 10, 700])
    values, deviations_ = model.impute(rows, return_std=True)
    for at, best in enumerate(model.recommend(rows, n=5)):
        unseen = np.setdiff1d(np.arange(60), rows.columns[rows.indptr[at] : rows.indptr[at + 1]])
        order = unseen[np.argsort(-values[at, unseen])][:5]
        assert [one.id for one in best] == list(order)
        np.testing.assert_allclose([one.value for one in best], values[at, order])
        np.testing.assert_allclose([one.standard_deviation for one in best], deviations_[at, order])


def test_parts_are_not_recommended_across():
    model = in_parts()
    row = np.full((1, 9), np.nan)
    row[0, 0] = 1.0
    assert {one.id for one in model.recommend(row)[0]} == {1, 2, 3}
    row[0, :4] = 1.0
    assert model.recommend(row) == [[]]


def test_rank_zero_recommends_by_means():
    panel, _ = mixture(300)
    model = OneSidedCompletion(0, center="columns", random_state=0).fit(panel)
    best = model.recommend(Panel.from_dense(np.full((2, 60), np.nan)), n=4)
    assert [one.id for one in best[0]] == list(np.argsort(-model.mean_)[:4])
    assert best[0] == best[1]
    assert all(one.correlation == 0 for one in model.similar(0))


def test_more_are_asked_for_than_there_are(fitted):
    model, panel, _ = fitted
    assert len(model.similar(0, n=1000)) == 59
    assert len(model.recommend(panel.take_rows([0]), n=1000)[0]) == 52


def test_refusals(fitted):
    model, panel, _ = fitted
    with pytest.raises(InputError, match="1 column id not in the panel: 99"):
        model.similar(99)
    for bad in (0, -1, 2.5, "many"):
        with pytest.raises(InputError, match="expected a whole number of at least 1"):
            model.similar(3, n=bad)
        with pytest.raises(InputError, match="expected a whole number of at least 1"):
            model.recommend(panel, n=bad)


def test_weighted_rows_count_by_their_weights():
    panel, _ = mixture(400)
    weights = np.where(np.arange(400) < 200, 2.0, 1.0)
    model = OneSidedCompletion(2, center="columns", diagonal="free", blend=None, random_state=0).fit(
        panel.with_row_weights(weights)
    )
    seen = ~np.isnan(panel.to_dense())
    one = model.similar(5, n=1)[0]
    assert one.count == pytest.approx(weights @ (seen[:, 5] & seen[:, one.id]))
