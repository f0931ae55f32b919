"""The estimators: what they recover, what they hold, what they refuse."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from onesided import HajekGD, InputError, OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.solvers.gradient_descent import random_start
from tests.conftest import random_panel


def relative_error(estimate, T):
    """‖estimate − T‖ / ‖T‖ in Frobenius norm."""
    return np.linalg.norm(estimate - T) / np.linalg.norm(T)


@pytest.fixture(scope="module")
def mixture():
    truth = synthetic.linear_mixture(6000, 40, 3, rng=0)
    return truth, synthetic.sample_fixed(truth, 8, rng=1)


@pytest.fixture(scope="module")
def model(mixture):
    return OneSidedCompletion(rank=3, center="none", diagonal="fit", random_state=0).fit(mixture[1])


PAPER = [(2, 0.052), (5, 0.034), (10, 0.023)]
PAPER_GD = [(5, 0.12), (10, 0.09)]


@pytest.fixture(scope="module")
def paper_truths():
    return [synthetic.low_rank_gaussian(10_000, 1_000, 10, rng=seed) for seed in range(5)]


@pytest.mark.parametrize(("per_row", "bound"), PAPER)
def test_the_papers_panel(paper_truths, per_row, bound):
    errors = []
    for seed, truth in enumerate(paper_truths):
        panel = synthetic.sample_bernoulli(truth, per_row / 1_000, rng=seed)
        X = OneSidedCompletion(rank=1, center="none", diagonal="fit", random_state=0).fit(panel).factor_
        errors.append(relative_error(X @ X.T, truth.second_moment()))
    assert np.mean(errors) <= bound


@pytest.mark.parametrize(("per_row", "bound"), PAPER_GD)
def test_the_papers_algorithm_on_its_panel(paper_truths, per_row, bound):
    errors = []
    for seed, truth in enumerate(paper_truths):
        panel = synthetic.sample_bernoulli(truth, per_row / 1_000, rng=seed)
        X = HajekGD(random_state=seed).fit(panel).factor_  # the defaults are the paper's settings
        errors.append(relative_error(X @ X.T, truth.second_moment()))
    assert np.mean(errors) <= bound


def test_the_paper_settings_are_the_defaults():
    settings = HajekGD().get_params()
    assert (settings["step_size"], settings["penalty"], settings["alpha"]) == (1e4, 1e-4, 1e-3)
    assert (settings["iterations"], settings["rank"]) == (1000, 10)


def test_the_row_space_of_an_exact_mixture_is_recovered(mixture, model):
    truth, _ = mixture
    assert model.solve_.status == "converged"
    assert relative_error(model.second_moment_.to_dense(), truth.second_moment()) < 0.1
    basis = np.linalg.qr(truth.column_factors)[0]
    cosines = np.linalg.svd(basis.T @ model.components_.T, compute_uv=False)
    assert cosines.min() > 0.995


def test_attributes_fit_together(model):
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(model.components_.T * np.sqrt(model.eigenvalues_), model.factor_, atol=1e-12)
    assert np.all(np.diff(model.eigenvalues_) <= 0)
    assert model.n_features_in_ == 40
    assert model.noise_variance_.shape == (40,)
    assert np.all(model.noise_variance_ > 0)
    np.testing.assert_array_equal(model.mean_, np.zeros(40))
    assert list(model.get_feature_names_out()) == [f"onesidedcompletion{k}" for k in range(3)]


def test_transform_and_impute_agree(mixture, model):
    panel = mixture[1].take_rows(np.arange(50))
    filled, deviation = model.impute(panel, return_std=True)
    prediction = model.transform(panel) @ model.components_ + model.mean_
    hidden = np.isnan(panel.to_dense())
    np.testing.assert_allclose(filled[hidden], prediction[hidden], atol=1e-12)
    assert np.all(deviation[hidden] > 0)
    rows, columns = np.nonzero(hidden)
    np.testing.assert_allclose(model.impute_at(panel, rows, columns), filled[hidden], atol=1e-12)


def test_new_rows_are_imputed_without_refitting(mixture, model):
    fresh = synthetic.Truth(np.random.default_rng(9).normal(size=(200, 3)) / np.sqrt(3), mixture[0].column_factors)
    panel = synthetic.sample_fixed(fresh, 12, rng=4)
    filled = model.impute(panel)
    hidden = np.isnan(panel.to_dense())
    error = np.sqrt(np.mean((filled - fresh.to_dense())[hidden] ** 2))
    assert error < 0.2 * np.std(fresh.to_dense())


def test_centring_keeps_the_means_in_the_model():
    rng = np.random.default_rng(0)
    n, d = 8000, 30
    mean, X = rng.normal(3.0, 1.0, size=d), 0.5 * rng.normal(size=(d, 2))
    rows = rng.normal(size=(n, 2))
    M = mean + rows @ X.T + 0.3 * rng.normal(size=(n, d))
    panel = Panel.from_dense(np.where(rng.random((n, d)) < 0.2, M, np.nan))
    model = OneSidedCompletion(rank=2, random_state=0).fit(panel)
    np.testing.assert_allclose(model.mean_, mean, atol=0.06)
    assert relative_error(model.factor_ @ model.factor_.T, X @ X.T) < 0.12
    T = mean[:, None] * mean + X @ X.T
    assert relative_error(model.second_moment_.to_dense(), T) < 0.02
    assert model.noise_variance_.mean() == pytest.approx(0.09, abs=0.05)


def test_the_score_prefers_the_truth(mixture, model):
    truth, _ = mixture
    held_out = synthetic.sample_fixed(truth, 8, rng=77)
    other = OneSidedCompletion(rank=1, center="none", random_state=0).fit(mixture[1])
    assert model.score(held_out) > other.score(held_out)
    assert model.score(held_out) < 0


def test_rank_zero_is_the_means_alone():
    panel = random_panel(0)
    model = OneSidedCompletion(rank=0, center="columns", random_state=0).fit(panel)
    assert model.factor_.shape == (12, 0)
    np.testing.assert_allclose(model.second_moment_.low_rank.to_dense(), np.outer(model.mean_, model.mean_))
    filled = model.impute(panel)
    hidden = np.isnan(panel.to_dense())
    np.testing.assert_allclose(filled[hidden], np.broadcast_to(model.mean_, hidden.shape)[hidden])
    assert model.transform(panel).shape == (60, 0)
    assert np.isfinite(model.score(panel))
    nothing = OneSidedCompletion(rank=0, center="none", random_state=0).fit(panel).second_moment_
    assert not nothing.low_rank.to_dense().any()
    np.testing.assert_allclose(nothing.to_dense(), np.diag(np.nanmean(panel.to_dense() ** 2, axis=0)))


def test_blend_changes_the_output(mixture):
    panel = mixture[1]
    settings = {"rank": 3, "center": "none", "diagonal": "fit", "random_state": 0}
    plain = OneSidedCompletion(**settings).fit(panel)
    blended = OneSidedCompletion(**settings, blend=5.0).fit(panel)
    assert plain.second_moment_[0, 1].value == plain.second_moment_.low_rank[0, 1].value
    assert plain.second_moment_[0, 0].value == pytest.approx(plain.second_moment_.algorithm1[0, 0].value)
    low, high = sorted([plain.second_moment_[0, 1].value, plain.second_moment_.algorithm1[0, 1].value])
    assert low <= blended.second_moment_[0, 1].value <= high


@pytest.mark.parametrize("container", [sp.csr_array, sp.coo_array, sp.csc_matrix])
def test_sparse_input_is_the_same_panel(container):
    panel = random_panel(0, n=200)
    expected = OneSidedCompletion(rank=2, random_state=0).fit(panel)
    actual = OneSidedCompletion(rank=2, random_state=0).fit(container(panel.to_sparse()))
    np.testing.assert_array_equal(actual.factor_, expected.factor_)
    np.testing.assert_array_equal(
        OneSidedCompletion(rank=2, random_state=0).fit(panel.to_dense()).factor_, expected.factor_
    )


def test_stored_zeros_are_observations():
    dense = np.array([[0.0, 1.0, np.nan], [2.0, np.nan, 0.0], [1.0, 1.0, 1.0]])
    seen = ~np.isnan(dense)
    stored = sp.csr_array((dense[seen], np.nonzero(seen)), shape=dense.shape)
    one, other = (HajekGD(rank=1, step_size=0.1, random_state=0).fit(X) for X in (dense, stored))
    np.testing.assert_array_equal(one.factor_, other.factor_)
    assert one.second_moment_.algorithm1[0, 2].value == 0.5


def test_float32_panels_fit_like_float64():
    truth = synthetic.linear_mixture(3000, 30, 2, rng=0)
    double = synthetic.sample_fixed(truth, 6, rng=0)
    single = synthetic.sample_fixed(truth, 6, rng=0, dtype=np.float32)
    one, other = (OneSidedCompletion(rank=2, random_state=0).fit(panel) for panel in (double, single))
    assert other.solve_.status == "converged"
    T = one.second_moment_.to_dense()
    assert relative_error(other.second_moment_.to_dense(), T) < 1e-3


@pytest.mark.parametrize("unit", [1e-30, 1e-6, 1e6, 1e30])
def test_the_model_follows_the_unit(unit):
    panel = random_panel(0, n=300)
    scaled = Panel(panel.indptr, panel.columns, panel.values * unit, panel.n_columns)
    one, other = (OneSidedCompletion(rank=2, random_state=0).fit(p) for p in (panel, scaled))
    np.testing.assert_allclose(other.factor_ / unit, one.factor_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.impute(scaled) / unit, one.impute(panel), rtol=1e-4, atol=1e-4)


def test_a_row_of_weight_two_is_a_row_seen_twice():
    panel = random_panel(0, n=200)
    doubled = panel.take_rows(np.concatenate([np.arange(200), np.arange(100)]))
    weighted = panel.with_row_weights(np.where(np.arange(200) < 100, 2.0, 1.0))
    settings = {"rank": 1, "center": "columns", "diagonal": "fit", "blend": None, "ridge": 0.0, "tol": 1e-12}
    for refine in ("none", "variational"):
        one, other = (OneSidedCompletion(**settings, refine=refine, random_state=0).fit(p) for p in (doubled, weighted))
        np.testing.assert_allclose(other.mean_, one.mean_, rtol=1e-5)
        np.testing.assert_allclose(other.noise_variance_, one.noise_variance_, rtol=1e-5)
        assert relative_error(other.second_moment_.to_dense(), one.second_moment_.to_dense()) < 1e-5


def test_a_column_never_observed_is_unsupported_and_finite():
    dense = random_panel(0, n=100).to_dense()
    dense[:, 4] = np.nan
    for model in (OneSidedCompletion(rank=2), HajekGD(rank=2, step_size=0.5)):
        model.fit(dense)
        assert np.all(model.factor_[4] == 0)
        assert model.second_moment_[4, 4].status == "unsupported"
        assert model.second_moment_[0, 4].status == "unsupported"
        assert np.isfinite(model.impute(dense)).all()
    moments = OneSidedCompletion(rank=2, center="columns", diagonal="free", refine="none").fit(dense)
    assert moments.mean_[4] == pytest.approx(np.nanmean(dense))
    refined = OneSidedCompletion(rank=2, center="columns", diagonal="free", scale="none").fit(dense)
    assert refined.mean_[4] == pytest.approx(np.delete(refined.mean_, 4).mean(), abs=1e-3)
    assert moments.noise_variance_[4] > moments.noise_variance_[0]  # nothing is explained there
    assert refined.noise_variance_[4] > 0.95 * np.delete(refined.noise_variance_, 4).mean()


def test_one_row_is_enough_to_begin_with():
    model = OneSidedCompletion(rank=1, center="none", diagonal="free", refine="none", ridge=0.0)
    model.fit([[1.0, 2.0, np.nan, 3.0]])
    np.testing.assert_allclose(model.second_moment_.block([0], [1, 3]), [[2.0, 3.0]], rtol=1e-3)


@pytest.mark.parametrize("estimator", [OneSidedCompletion(rank=2), HajekGD(rank=2, step_size=0.1)], ids=["row", "gd"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.full((4, 3), np.nan), "nothing was observed: 4 rows and 3 columns, but no entry of positive weight"),
        (np.ones((5, 1)), r"the panel has one column \(n_features = 1\)"),
        (np.where(np.eye(4), 1.0, np.nan), "no row has two observed entries, so no two columns were ever seen"),
        (np.array([[1.0, np.inf, 2.0]]), "infinity"),
    ],
    ids=["all missing", "one column", "single entries", "infinite"],
)
def test_panels_that_cannot_be_fitted(estimator, data, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(data)


def test_rows_of_weight_zero_are_no_evidence():
    panel = random_panel(0).with_row_weights(np.zeros(60))
    with pytest.raises(InputError, match="nothing was observed"):
        OneSidedCompletion(rank=1).fit(panel)


@pytest.mark.parametrize("estimator", [OneSidedCompletion, HajekGD])
def test_ranks_out_of_range(estimator):
    with pytest.raises(InputError, match="rank=13 is larger than the panel's 12 columns; choose at most 12"):
        estimator(rank=13).fit(random_panel(0))
    with pytest.raises(ValueError, match=r"The 'rank' parameter .* Got -1 instead"):
        estimator(rank=-1).fit(random_panel(0))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"center": "rows"}, "center"),
        ({"diagonal": "none"}, "diagonal"),
        ({"ridge": -1.0}, "ridge"),
        ({"blend": -1.0}, "blend"),
        ({"max_passes": 0}, "max_passes"),
        ({"weight_exponent": "a"}, "weight_exponent"),
    ],
)
def test_parameters_out_of_range(parameters, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of OneSidedCompletion must be"):
        OneSidedCompletion(**parameters).fit(random_panel(0))


def test_full_rank_is_allowed():
    model = OneSidedCompletion(rank=12, random_state=0).fit(random_panel(0, n=300))
    assert np.isfinite(model.second_moment_.to_dense()).all()


def test_divergence_is_an_error_with_its_remedy():
    panel = random_panel(0, n=300)
    with pytest.raises(InputError, match=r"diverged after .* lower step_size .*; try step_size=") as refusal:
        HajekGD(rank=2).fit(panel)
    advised = float(str(refusal.value).rpartition("=")[2])
    assert HajekGD(rank=2, step_size=advised, random_state=0).fit(panel).solve_.status == "completed"


def test_the_weight_of_the_diagonal_follows_from_p():
    panel = random_panel(0)
    moments = PairMoments.from_panel(panel)
    q = 1 - (1 - 0.1**2) ** panel.n_rows
    start = random_start(panel.n_columns, 2, np.random.default_rng(3))
    loss, _ = PairObjective(moments, penalty=1e-4, alpha=1e-3, diagonal_weight=q).value_and_gradient(start)
    model = HajekGD(rank=2, p=0.1, step_size=1e-3, iterations=1, random_state=3).fit(panel)
    assert model.solve_.history[0] == pytest.approx(loss, rel=1e-12)


def test_components_have_their_largest_entry_positive(mixture, model):
    paper = HajekGD(rank=3, step_size=10.0, iterations=50, random_state=0).fit(mixture[1])
    for components in (model.components_, paper.components_):
        assert np.all(components[np.arange(3), np.argmax(np.abs(components), axis=1)] > 0)


def test_rows_weigh_by_their_number_of_entries():
    panel = random_panel(1, n=400)
    by_hand = panel.with_row_weights(np.maximum(panel.row_counts, 1) ** 0.7)
    settings = {"rank": 2, "center": "none", "diagonal": "free", "refine": "none", "scale": "none", "random_state": 0}
    model = OneSidedCompletion(**settings, weight_exponent=0.7).fit(panel)
    same = OneSidedCompletion(**settings, weight_exponent=0.0).fit(by_hand)
    np.testing.assert_allclose(model.factor_, same.factor_, rtol=1e-6, atol=1e-9)
    other = OneSidedCompletion(**settings, weight_exponent=0.0).fit(panel)
    assert np.abs(model.factor_ - other.factor_).max() > 1e-3


def test_the_score_is_its_formula():
    panel = random_panel(2, weighted=True)
    model = OneSidedCompletion(rank=2, random_state=0).fit(panel)
    T = np.outer(model.mean_, model.mean_) + model.factor_ @ model.factor_.T
    total = weight = 0.0
    for v, w in zip(panel.to_dense(), panel.row_weights, strict=True):
        E = ((T - np.outer(v, v)) / np.outer(model.scales_, model.scales_)) ** 2
        np.fill_diagonal(E, np.nan)
        total, weight = total + w * np.nansum(E), weight + w * np.sum(~np.isnan(E))
    assert np.ptp(model.scales_) > 0.01
    assert model.score(panel) == pytest.approx(-total / weight, rel=1e-10)


def test_a_fit_that_fails_leaves_the_estimator_unfitted():
    model = HajekGD(rank=2, step_size=1e-2, iterations=20, random_state=0).fit(random_panel(0))
    with pytest.raises(InputError, match="diverged"):
        model.set_params(step_size=1e9).fit(random_panel(0, d=30))
    with pytest.raises(NotFittedError):
        model.transform(random_panel(0))


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [7, 3, 5, 9]], ids=["strings", "integers"])
def test_tables_are_matched_by_their_column_names(names):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 4)).cumsum(axis=1), columns=names)
    expected = OneSidedCompletion(rank=1, random_state=0).fit(Panel.from_dense(table))
    assert list(OneSidedCompletion(rank=1).fit(table).column_ids_) == names
    moved = table[names[::-1]]
    np.testing.assert_allclose(expected.transform(moved), expected.transform(table))
    np.testing.assert_allclose(expected.impute(moved.iloc[:, :2])[:, 2:], table.to_numpy()[:, 2:])
    # A refit forgets the names of the fit before it.
    refitted = OneSidedCompletion(rank=1, random_state=0).fit(table).fit(Panel.from_dense(moved))
    np.testing.assert_allclose(refitted.transform(table), refitted.transform(moved))
    assert not hasattr(refitted, "feature_names_in_")


def test_an_outlier_that_does_not_count_changes_nothing():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.5 * rng.normal(size=(300, 8))
    for huge in (1e9, 1e30):
        with_row = Panel.from_dense(np.vstack([M, np.full((1, 8), huge)])).with_row_weights(np.r_[np.ones(300), 0])
        model = OneSidedCompletion(rank=2, random_state=0).fit(with_row)
        plain = OneSidedCompletion(rank=2, random_state=0).fit(M)
        np.testing.assert_allclose(model.noise_variance_, plain.noise_variance_, rtol=1e-6)
        np.testing.assert_allclose(model.factor_, plain.factor_, rtol=1e-4, atol=1e-6)


def test_a_constant_column_of_any_size_disturbs_no_other():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.5 * rng.normal(size=(300, 8))
    plain = OneSidedCompletion(rank=2, random_state=0).fit(M)
    for constant in (1e8, 1.7e18):
        model = OneSidedCompletion(rank=2, random_state=0).fit(np.column_stack([M, np.full(300, constant)]))
        np.testing.assert_allclose(model.factor_ @ model.factor_.T, _bordered(plain.factor_), atol=0.05)
        assert model.noise_variance_[0] < 2 * plain.noise_variance_[0]


def _bordered(factor):
    T = np.zeros((len(factor) + 1, len(factor) + 1))
    T[:-1, :-1] = factor @ factor.T
    return T


@pytest.mark.parametrize(
    "rows",
    [
        [[3.4e38, 1], [-3.4e38, 2], [-3.4e38, 1], [-3.4e38, 5], [-3.4e38, 7]],
        [[0, 0, 0, 0], [0, 1e-45, 0, 0], [0, 0, 0, 0]],
    ],
    ids=["largest", "smallest"],
)
@pytest.mark.parametrize("center", ["none", "columns"])
def test_the_edges_of_single_precision(rows, center):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = OneSidedCompletion(rank=1, center=center, diagonal="free", random_state=0)
        model.fit(np.array(rows, np.float32))
    assert np.isfinite(model.factor_).all()
    assert np.isfinite(model.impute(np.array([[1.0] + [np.nan] * (len(rows[0]) - 1)]))).all()


def test_a_column_seen_alone_keeps_all_of_its_variance_as_noise():
    M = np.full((40, 4), np.nan)
    rng = np.random.default_rng(0)
    M[:20, :3] = rng.normal(size=(20, 1)) + 0.1 * rng.normal(size=(20, 3))
    M[20:, 3] = rng.normal(size=20)
    settings = {"rank": 1, "center": "none", "diagonal": "free", "random_state": 0}
    model = OneSidedCompletion(**settings, refine="none", scale="none").fit(M)
    assert model.noise_variance_[3] == pytest.approx(np.nanmean(M**2))
    assert model.noise_variance_[0] < 0.3 * model.noise_variance_[3]
    refined = OneSidedCompletion(**settings).fit(M)
    assert not refined.factor_[3].any()
    assert refined.noise_variance_[0] < 0.3 * refined.noise_variance_[3]


def test_impute_at_nothing_is_nothing():
    panel = random_panel(0)
    for model in (OneSidedCompletion(rank=2), HajekGD(rank=2, step_size=1e-3, iterations=5)):
        assert model.fit(panel).impute_at(panel, [], []).shape == (0,)


def test_an_unknown_way_with_unknown_columns_is_refused():
    model = OneSidedCompletion(rank=2).fit(random_panel(0))
    with pytest.raises(InputError, match="unknown"):
        model.impute(random_panel(0), unknown="keep")


def test_options_of_the_panel_are_named_as_such():
    M = sp.csr_array(np.array([[1.0, np.nan], [2.0, 3.0]]))
    with pytest.raises(InputError, match=r"these are options of Panel\.from_sparse: make the panel first"):
        OneSidedCompletion(rank=1).fit(M)


def test_a_solver_stopped_early_warns():
    with pytest.warns(ConvergenceWarning, match="limit after 2 passes: .*raise max_passes or tol"):
        OneSidedCompletion(rank=4, max_passes=2, random_state=0).fit(random_panel(0, n=300))


def test_unfitted_estimators_say_so():
    for estimator in (OneSidedCompletion(), HajekGD()):
        for call in (estimator.transform, estimator.impute, estimator.score):
            with pytest.raises(NotFittedError):
                call(random_panel(0))


def table(rows, columns, values):
    return Panel.from_arrays(rows, columns, values)


def test_columns_are_matched_by_id():
    panel = random_panel(0, n=300)
    names = np.array([f"c{k:02d}" for k in range(12)], dtype=object)
    named = Panel(panel.indptr, panel.columns, panel.values, 12, column_ids=names)
    model = OneSidedCompletion(rank=2, random_state=0).fit(named)
    expected = model.impute(named.take_rows([0]))
    row = slice(named.indptr[0], named.indptr[1])
    fresh = table(["x"] * len(named.values[row]), names[named.columns[row]][::-1], named.values[row][::-1])
    np.testing.assert_allclose(model.impute(fresh), expected)
    assert model.second_moment_["c00", "c01"].value == model.second_moment_.block([0], [1])[0, 0]

    strange = table(["x", "x"], ["c01", "c99"], [1.0, 2.0])
    with pytest.raises(InputError, match="1 column id unknown to the model: 'c99'; pass unknown=\"drop\""):
        model.impute(strange)
    known = table(["x"], ["c01"], [1.0])
    np.testing.assert_array_equal(model.impute(strange, unknown="drop"), model.impute(known))
    np.testing.assert_array_equal(model.transform(strange, unknown="drop"), model.transform(known))


def test_panels_of_another_width_are_refused():
    model = OneSidedCompletion(rank=2).fit(random_panel(0))
    with pytest.raises(
        InputError, match="the rows have 13 columns and the model 12, and they have no ids to match them by"
    ):
        model.impute(random_panel(0, d=13))


def test_random_state_may_be_anything_scikit_learn_takes():
    panel = random_panel(0, n=100)
    for state in (None, 3, np.random.default_rng(3), np.random.RandomState(3)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            OneSidedCompletion(rank=2, refine="none", random_state=state).fit(panel)
    same = [HajekGD(rank=2, step_size=0.5, random_state=3).fit(panel).factor_ for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_algorithm_1_output_and_its_eigenpairs(mixture):
    panel = mixture[1]
    model = HajekGD(rank=3, step_size=50.0, random_state=0).fit(panel)
    Z = model.second_moment_.algorithm1.to_dense()
    values, vectors = np.linalg.eigh(Z)
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:3], rtol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * vectors[:, ::-1][:, :3].T, axis=1)), 1, rtol=1e-8)
    np.testing.assert_allclose(model.second_moment_.to_dense(), model.factor_ @ model.factor_.T, atol=1e-12)


def test_known_sampling_probability_sets_the_weight_of_the_diagonal(mixture):
    panel = mixture[1]
    one = HajekGD(rank=3, step_size=50.0, random_state=0, p=1e-3).fit(panel)
    other = HajekGD(rank=3, step_size=50.0, random_state=0).fit(panel)
    assert relative_error(one.factor_ @ one.factor_.T, other.factor_ @ other.factor_.T) > 1e-3


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, -1e60, 1e-60])
@pytest.mark.parametrize("center", ["columns", "none"])
@pytest.mark.parametrize("diagonal", ["free", "fit"])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_panels_without_variation_give_finite_answers(value, center, diagonal, ridge):
    constant = np.where(random_panel(0).to_dense() > -np.inf, value, np.nan)
    for seed in range(3):
        model = OneSidedCompletion(rank=2, center=center, diagonal=diagonal, ridge=ridge, random_state=seed)
        model.fit(constant)
        assert model.solve_.succeeded
        if center == "columns" or value == 0:
            assert np.all(model.factor_ == 0)
        strange = np.full((1, 12), np.nan)
        strange[0, 0] = 100.0 * (value or 1.0)
        filled, std = model.impute(strange, return_std=True)
        assert np.isfinite(filled).all()
        assert np.isfinite(std).all()
        assert np.isfinite(model.score(constant))


@pytest.fixture(scope="module")
def answers():
    """Rows with an effect of their own, the same in all columns, one factor, and noise of known variance."""
    rng = np.random.default_rng(0)
    mean, x = rng.normal(3.0, 0.5, size=20), rng.normal(size=20)
    clean = mean + 0.8 * rng.normal(size=(3000, 1)) + rng.normal(size=(3000, 1)) * x
    M = clean + 0.5 * rng.normal(size=clean.shape)
    return clean, M, Panel.from_dense(np.where(rng.random(M.shape) < 0.4, M, np.nan))


@pytest.fixture(scope="module")
def both(answers):
    return OneSidedCompletion(rank=1, center="both", diagonal="free", scale="none", random_state=0).fit(answers[2])


def test_effects_and_coordinates_are_solved_jointly(answers, both):
    clean, _, panel = answers
    assert both.row_variance_ > 0
    assert both.components_.shape == (2, 20)
    np.testing.assert_allclose(both.components_ @ both.components_.T, np.eye(2), atol=1e-12)
    L = both.row_variance_ + both.factor_ @ both.factor_.T
    np.testing.assert_allclose((both.components_.T * both.eigenvalues_) @ both.components_, L, atol=1e-10)
    filled, deviation = both.impute(panel, return_std=True)
    hidden = np.isnan(panel.to_dense())
    predicted = both.transform(panel) @ both.components_ + both.mean_
    np.testing.assert_allclose(filled[hidden], predicted[hidden], atol=1e-9)
    assert np.sqrt(np.mean((filled - clean)[hidden] ** 2)) < 0.4
    covered = np.abs(filled - answers[1])[hidden] < 1.6449 * deviation[hidden]
    assert covered.mean() == pytest.approx(0.9, abs=0.02)
    rows, columns = np.nonzero(hidden)
    values, deviations = both.impute_at(panel, rows[:500], columns[:500], return_std=True)
    np.testing.assert_allclose(values, filled[hidden][:500], atol=1e-10)
    np.testing.assert_allclose(deviations, deviation[hidden][:500], rtol=1e-10)


def test_covariance_is_the_second_moment_less_the_means(answers, both):
    T, C = both.second_moment_, both.covariance_
    off = T.to_dense() - np.outer(both.mean_, both.mean_) - C.to_dense()
    assert np.abs(off[~np.eye(20, dtype=bool)]).max() < 1e-10
    assert relative_error(C.to_dense(), np.cov(answers[1].T, bias=True)) < 0.08
    assert C[0, 1].count == T[0, 1].count
    np.testing.assert_allclose(np.diag(C.to_dense()), np.nanvar(answers[2].to_dense(), axis=0), rtol=0.01)


def test_known_noise_is_taken_off_the_diagonal(answers, both):
    clean, _, panel = answers
    settings = {"rank": 1, "center": "both", "diagonal": "free", "scale": "none", "random_state": 0}
    noisy = np.diag(both.second_moment_.to_dense())
    for known in (0.25, np.full(20, 0.25)):
        model = OneSidedCompletion(**settings, noise_variance=known).fit(panel)
        debiased = np.diag(model.second_moment_.to_dense())
        np.testing.assert_allclose(debiased, noisy - 0.25, rtol=1e-9)
        np.testing.assert_allclose(np.diag(model.second_moment_.algorithm1.to_dense()), debiased)
        assert relative_error(np.diag(debiased), np.diag(np.mean(clean**2, axis=0))) < 0.05
    all_of_it = OneSidedCompletion(**settings, noise_variance=100.0).fit(panel).second_moment_
    assert not np.diag(all_of_it.to_dense()).any()
    for wrong in (-1.0, [0.1, 0.2], np.full(20, np.nan)):
        with pytest.raises(ValueError, match="noise_variance"):
            OneSidedCompletion(**settings, noise_variance=wrong).fit(panel)


def test_a_bootstrap_gives_completed_entries_their_standard_error():
    rng = np.random.default_rng(1)
    M = rng.normal(size=(800, 1)) + 0.5 * rng.normal(size=(800, 6))
    M[:400, 0], M[400:, 1] = np.nan, np.nan
    model = OneSidedCompletion(rank=1, center="columns", diagonal="free", random_state=0).fit(M)
    assert model.second_moment_[0, 1].standard_error is None
    bands = model.bootstrap(replicates=20, random_state=0)
    entry = model.second_moment_[0, 1]
    assert entry.status == "completed"
    assert entry.standard_error == bands.entries([0], [1]).standard_error[0]
    assert abs(entry.value - 1.0) < 4 * entry.standard_error
    assert bands.eigenvalues().lower[0] < 6.0 < bands.eigenvalues().upper[0]


def test_models_travel_with_what_was_chosen(both, answers, tmp_path):
    chosen = OneSidedCompletion(random_state=0).fit(random_panel(1, n=300))
    assert np.isinf(chosen.blend_)  # so that T needs no measured pairs
    for model, panel in ((both, answers[2]), (chosen, random_panel(1, n=300))):
        model.save(tmp_path / "model")
        loaded = OneSidedCompletion.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.impute(panel, return_std=True), model.impute(panel, return_std=True))
        assert str(loaded.selection_) == str(model.selection_)
        for name in ("rank_", "center_", "diagonal_", "refinement_", "row_variance_", "blend_", "row_noise_"):
            assert getattr(loaded, name) == getattr(model, name)
        model.save(tmp_path / "small", panel=False)
        small = OneSidedCompletion.load(tmp_path / "small")
        np.testing.assert_allclose(small.second_moment_.to_dense(), model.second_moment_.to_dense(), rtol=1e-12)
        with pytest.raises(InputError, match="this model has no panel: it was saved without"):
            small.bootstrap()


def test_covariance_is_the_same_without_the_panel(answers, tmp_path):
    _, _, panel = answers
    shifted = Panel(panel.indptr, panel.columns, panel.values + 1000, panel.n_columns)
    settings = {"rank": 1, "center": "both", "diagonal": "free", "blend": None, "random_state": 0}
    for known in (None, 0.1, np.full(20, 0.1)):
        model = OneSidedCompletion(**settings, noise_variance=known).fit(shifted)
        model.save(tmp_path / "small", panel=False)
        small = OneSidedCompletion.load(tmp_path / "small")
        np.testing.assert_allclose(small.covariance_.to_dense(), model.covariance_.to_dense(), rtol=1e-6)
        off = np.nanvar(panel.to_dense(), axis=0) - np.diag(model.covariance_.to_dense())
        np.testing.assert_allclose(off, 0.0 if known is None else 0.1, atol=0.02)


def test_weights_below_one_are_relative():
    panel = random_panel(0, n=300)
    settings = {"rank": 1, "center": "columns", "diagonal": "free", "random_state": 0}
    one, other = (OneSidedCompletion(**settings).fit(p) for p in (panel, panel.with_row_weights(np.full(300, 1 / 300))))
    np.testing.assert_allclose(other.factor_, one.factor_, rtol=1e-9)
    np.testing.assert_allclose(other.mean_, one.mean_, rtol=1e-9)


def test_warnings_point_to_the_line_that_fitted(monkeypatch):
    monkeypatch.setattr("onesided.fitting.fit.MEMORY", 10)
    panel = random_panel(0, n=100)
    with pytest.warns(UserWarning, match="not refined") as caught:
        OneSidedCompletion(rank=1, center="columns", diagonal="free").fit(panel)
    with pytest.warns(UserWarning, match="fewer than ten rows") as more:
        OneSidedCompletion(refine="none").fit(random_panel(0, n=5))
    assert {one.filename for one in (*caught, *more)} == {__file__}


def test_progress_is_told_of_steps_and_what_may_follow():
    class Told:
        def __init__(self):
            self.steps, self.passes = [], 0

        def __call__(self, done, loss):
            self.passes += 1

        def begin(self, what, cost, left):
            self.steps.append((what, cost, left))

    told = Told()
    model = OneSidedCompletion(random_state=0).fit(random_panel(0, n=300), progress=told)
    words, costs, left = zip(*told.steps, strict=True)
    assert len(words) == len(model.selection_.trials) + 2
    assert words[-1] == f"rank {model.rank_}, all rows"
    assert left[-1] == 0
    assert all(one > 0 for one in costs)
    assert all(later <= earlier for earlier, later in pairwise(left))
    assert sum(costs) <= costs[0] + left[0] + 1e-9  # no more than was said at first
    assert told.passes > 0


def test_bands_of_a_model_with_a_fitted_diagonal_hold_the_truth():
    """Handwritten digits, eight pixels of each: the eigenvalues of the complete images lie in their bands."""
    images = load_digits().data
    truth = np.linalg.eigvalsh(np.cov(images.T, bias=True))[::-1][:4]
    kept = np.random.default_rng(0).random(images.shape) < 8 / 64
    panel = Panel.from_dense(np.where(kept, images, np.nan))
    model = OneSidedCompletion(16, center="columns", diagonal="fit", blend=None, random_state=0).fit(panel)
    bands = model.bootstrap(replicates=30, random_state=0).eigenvalues()
    assert np.all((bands.lower[:4] < truth) & (truth < bands.upper[:4]))


def test_scikit_learn_splits_a_panel():
    panel = synthetic.sample_fixed(synthetic.linear_mixture(600, 12, 1, rng=0), 5, rng=1)
    estimator = OneSidedCompletion(center="columns", diagonal="free", refine="none", random_state=0)
    search = GridSearchCV(estimator, {"rank": [0, 1]}, cv=3).fit(panel)
    assert search.best_params_ == {"rank": 1}
    by_hand = [clone(estimator).set_params(rank=1).fit(panel[200:]).score(panel[:200])]
    np.testing.assert_allclose(search.cv_results_["split0_test_score"][1], by_hand)


def test_what_memory_cannot_hold_is_refused_before_it_is_formed(monkeypatch):
    panel = synthetic.sample_fixed(synthetic.linear_mixture(300, 12, 1, rng=0), 5, rng=1)
    model = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(panel)
    monkeypatch.setattr("onesided.memory.free_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"300 rows filled in, of 12 columns each, would take .* by impute_at"):
        model.impute(panel)
    with pytest.raises(InputError, match=r"all 12 × 12 entries of T would take .*; ask for \.block or \.at"):
        model.second_moment_.to_dense()
    assert model.impute_at(panel, [0], [1]).shape == (1,)


def test_the_noise_taken_off_is_that_of_the_fit_in_memory_and_on_disk(tmp_path):
    panel = random_panel(0)
    model = OneSidedCompletion(1, random_state=0, noise_variance=0.01).fit(panel).set_params(noise_variance=0.5)
    model.save(tmp_path / "model.onesided")
    again = OneSidedCompletion.load(tmp_path / "model.onesided")
    for one, other in ((model.second_moment_, again.second_moment_), (model.covariance_, again.covariance_)):
        np.testing.assert_array_equal(one.to_dense(), other.to_dense())
    assert again.noise_variance == 0.5


def test_the_covariance_is_made_once_and_does_not_travel():
    model = OneSidedCompletion(1, random_state=0).fit(random_panel(0))
    assert model.covariance_ is model.covariance_
    assert "covariance_" not in model.__getstate__()
    assert model.fit(random_panel(1)).covariance_.panel is not model.second_moment_.panel


def test_warnings_of_a_transform_point_to_the_line_that_asked():
    table = pd.DataFrame({"user": [1.0, 2.0, 3.0], "item": [4.0, 5.0, 7.0], "rating": [3.0, 1.0, 2.0]})
    for call in ("transform", "fit_transform"):
        with pytest.warns(UserWarning, match="if its lines are single entries") as seen:
            getattr(OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(table), call)(table)
        assert {warning.filename for warning in seen} == {__file__}


def test_what_uncertainty_offers():
    from onesided import uncertainty

    assert {"Bands", "Bootstrap", "bootstrap"} <= set(dir(uncertainty))


def test_a_method_without_noise_has_no_best_linear_predictor():
    space = HajekGD(rank=1, step_size=0.1, iterations=5, random_state=0).fit(random_panel(0)).row_space_
    with pytest.raises(InputError, match="no model of the noise"):
        _ = space.predictor


def test_values_whose_squares_vanish_are_refused_with_the_remedy():
    with pytest.raises(InputError, match="their squares vanish; rescale them"):
        OneSidedCompletion(1, random_state=0).fit(random_panel(0).to_dense() * 1e-170)
