"""Other methods behind the same interface: one contract for all, then the mathematics of each."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

from onesided import InputError, OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.baselines import proximal, soft_impute
from onesided.baselines.alternating_gd import AlternatingGD, EntryObjective
from onesided.baselines.convex_nuclear_norm import ConvexNuclearNorm
from onesided.baselines.factor_analysis import FactorAnalysisEM
from onesided.baselines.nuclear_norm import FactoredNuclearNorm, penalised
from onesided.baselines.soft_impute import SoftImputeALS
from onesided.baselines.trivial import ColumnMeans, Constant
from onesided.engines.threads import THREADS_VARIABLE
from onesided.fitting.objective.pairs import PairObjective
from onesided.fitting.objective.penalties import nuclear_norm
from onesided.fitting.solvers.adam import adam
from onesided.fitting.solvers.eigenpairs import leading_eigenpairs
from onesided.pairs.moments import hajek
from tests.conftest import random_panel

BASELINES = [
    AlternatingGD(rank=2, epochs=40, random_state=0),
    SoftImputeALS(rank=2, penalty=1.0, tol=1e-4, random_state=0),
    FactoredNuclearNorm(rank=2, iterations=60, random_state=0),
    ConvexNuclearNorm(rank=2, penalty=2.0, random_state=0),
    FactorAnalysisEM(rank=2, iterations=20, random_state=0),
    ColumnMeans(),
    ColumnMeans(shrink=True),
    Constant(),
]
MATRIX = [one for one in BASELINES if hasattr(one, "fitted_at")]
FACTORED = [one for one in BASELINES if "rank" in one.get_params()]
DESCENTS = [one for one in BASELINES if "learning_rate" in one.get_params()]


def named(one):
    return repr(one).split("(")[0] + ("Shrunk" if "shrink=True" in repr(one) else "")


@pytest.fixture(params=BASELINES, ids=named)
def baseline(request):
    return request.param


@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_fitted_fits_together(baseline, weighted):
    panel = random_panel(3, weighted=weighted, low=0)
    model = baseline.fit(panel)
    d, k = model.factor_.shape
    assert d == len(model.mean_) == panel.n_columns
    assert model.components_.shape[1] == d
    assert len(model.components_) == len(model.eigenvalues_) <= k
    T = model.second_moment_.to_dense()
    np.testing.assert_array_equal(T, T.T)
    np.testing.assert_allclose(model.second_moment_ @ np.eye(d), T, atol=1e-10)
    low_rank = model.second_moment_.low_rank.to_dense()
    assert np.linalg.eigvalsh(low_rank)[0] > -1e-10 * np.linalg.norm(low_rank)
    gram = model.components_ @ model.components_.T
    kept = model.eigenvalues_ > 1e-12 * model.eigenvalues_.max(initial=0.0)
    np.testing.assert_allclose(gram, np.diag(kept.astype(float)), atol=1e-7)
    assert np.all(np.diff(model.eigenvalues_) <= 1e-12)
    assert model.solve_.succeeded
    assert np.isfinite(model.score(panel))


def test_rows_are_filled_in(baseline):
    panel = random_panel(3, low=0)
    model = baseline.fit(panel)
    filled = model.impute(panel)
    observed = ~np.isnan(panel.to_dense())
    np.testing.assert_array_equal(filled[observed], panel.to_dense()[observed])
    assert np.isfinite(filled).all()
    rows, columns = np.nonzero(~observed)
    np.testing.assert_allclose(model.impute_at(panel, rows, columns), filled[~observed], atol=1e-10)
    predicted = model.transform(panel) @ model.components_ + model.mean_
    np.testing.assert_allclose(predicted[~observed], filled[~observed], atol=1e-8)
    assert model.impute_at(panel, [], []).shape == (0,)
    with pytest.raises(InputError, match="column position 12 is outside 0 to 11"):
        model.impute_at(panel, [0], [12])


def test_the_same_seed_gives_the_same_model_at_any_number_of_threads(baseline, monkeypatch):
    panel = random_panel(1, n=300)
    for size in ("baselines.alternating_gd.BLOCK_ENTRIES", "fitting.objective.pairs.BLOCK_PAIRS"):
        monkeypatch.setattr(f"onesided.{size}", 50)
    monkeypatch.setattr("onesided.fitting.objective.pairs.PAIRS_OF_A_COLUMN", 1)
    monkeypatch.setattr("onesided.engines.threads.SMALLEST_BLOCK", 50)
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv(THREADS_VARIABLE, threads)
        model = baseline.fit(panel)
        found.append((model.factor_, model.mean_, model.transform(panel)))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_models_travel(baseline, tmp_path):
    panel = random_panel(2, n=80)
    model = baseline.fit(panel)
    for with_panel in (True, False):
        model.save(tmp_path / "model", panel=with_panel)
        loaded = type(baseline).load(tmp_path / "model")
        assert repr(loaded) == repr(model)
        np.testing.assert_array_equal(loaded.impute(panel), model.impute(panel))
        np.testing.assert_array_equal(loaded.second_moment_.to_dense(), model.second_moment_.to_dense())
        np.testing.assert_array_equal(loaded.eigenvalues_, model.eigenvalues_)
        assert loaded.solve_.message == model.solve_.message


def test_what_was_never_seen_is_finite(baseline):
    dense = random_panel(4, n=40).to_dense()
    dense[:, 5], dense[7] = np.nan, np.nan
    dense[:, 6] = np.nan
    dense[8], dense[8, 6] = np.nan, 2.0  # a column that stands beside no other
    model = baseline.fit(dense)
    assert np.isfinite(model.second_moment_.to_dense()).all()
    assert np.isfinite(model.impute(dense)).all()


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_panels_without_variation_give_finite_answers(baseline, value):
    panel = random_panel(0)
    model = baseline.fit(Panel(panel.indptr, panel.columns, np.full(panel.n_entries, value), panel.n_columns))
    assert np.isfinite(model.second_moment_.to_dense()).all()
    assert np.isfinite(model.impute(panel)).all()


def test_rows_of_weight_zero_are_no_evidence(baseline):
    panel = random_panel(5, n=40)
    weights = np.repeat([1.0, 0.0], 20)
    spoilt = Panel(
        panel.indptr,
        panel.columns,
        np.where(np.arange(panel.n_entries) < panel.indptr[20], panel.values, 1e3),
        panel.n_columns,
        row_weights=weights,
    )
    one, other = (baseline.fit(p).second_moment_.low_rank.to_dense() for p in (spoilt, panel.with_row_weights(weights)))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.full((3, 4), np.nan), "nothing was observed: 3 rows and 4 columns"),
        ([[1.0], [2.0]], r"one column \(n_features = 1\)"),
        ([[1.0, np.nan], [np.nan, 2.0]], "no row has two observed entries"),
    ],
)
def test_panels_that_cannot_be_fitted(baseline, data, message):
    with pytest.raises(InputError, match=message):
        baseline.fit(data)


@pytest.mark.parametrize("baseline", FACTORED, ids=named)
def test_a_rank_above_the_number_of_columns(baseline):
    with pytest.raises(InputError, match="rank=13 is larger than the panel's 12 columns; choose at most 12"):
        type(baseline)(rank=13).fit(random_panel(0))


@pytest.mark.parametrize("baseline", FACTORED, ids=named)
def test_progress_is_told(baseline):
    told = []
    baseline.fit(random_panel(0), progress=lambda done, value: told.append((done, value)))
    assert told[0][0] == 1
    assert np.isfinite(told).all()


@pytest.mark.parametrize("baseline", DESCENTS, ids=named)
def test_divergence_is_an_error_with_its_remedy(baseline):
    settings = baseline.get_params() | {"learning_rate": 1e200}
    with pytest.raises(
        InputError, match=r"diverged: with learning_rate=1e.200 the loss went from .*; try learning_rate"
    ):
        type(baseline)(**settings).fit(random_panel(0))


def test_parts_are_told_of():
    dense = np.full((40, 4), np.nan)
    rng = np.random.default_rng(0)
    dense[:20, :2], dense[20:, 2:] = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    for baseline in FACTORED:
        with pytest.warns(UserWarning, match="the panel falls into 2 parts") as caught:
            baseline.fit(dense)
        assert caught[0].filename == __file__


# Completions of the whole matrix


@pytest.mark.parametrize("baseline", MATRIX, ids=named)
def test_the_second_moment_is_that_of_the_completed_matrix(baseline):
    panel = random_panel(3, weighted=True)
    model = baseline.fit(panel)
    rows, columns = (index.ravel() for index in np.indices(panel.shape))
    M = model.fitted_at(rows, columns).reshape(panel.shape)
    np.testing.assert_allclose(M, model.row_factors_ @ model.column_factors_.T, atol=1e-12)
    T = M.T @ (panel.row_weights[:, None] * M) / panel.row_weights.sum()
    np.testing.assert_allclose(model.second_moment_.to_dense(), T, atol=1e-10 * np.abs(T).max())


@pytest.mark.parametrize("baseline", MATRIX, ids=named)
def test_positions_of_the_completed_matrix(baseline, tmp_path):
    model = baseline.fit(random_panel(0))
    with pytest.raises(InputError, match="row position 60 is outside 0 to 59"):
        model.fitted_at([60], [0])
    model.save(tmp_path / "model", panel=False)
    with pytest.raises(InputError, match="saved without its panel; use impute_at, or save the model together"):
        type(baseline).load(tmp_path / "model").fitted_at([0], [0])
    model.save(tmp_path / "model")
    loaded = type(baseline).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.fitted_at([3], [4]), model.fitted_at([3], [4]))


def test_gradient_of_the_squared_errors():
    panel = random_panel(2, weighted=True)
    objective, rng = EntryObjective(panel, panel.row_weights), np.random.default_rng(0)
    A, B, da, db = (rng.normal(size=(size, 3)) for size in (60, 12, 60, 12))
    _, GA, GB = objective(A, B)
    step = 1e-5
    difference = objective(A + step * da, B + step * db)[0] - objective(A - step * da, B - step * db)[0]
    assert difference / (2 * step) == pytest.approx(np.vdot(GA, da) + np.vdot(GB, db), rel=1e-7)
    hidden = panel.to_dense() - A @ B.T
    assert objective(A, B)[0] == pytest.approx(np.nansum(panel.row_weights[:, None] * hidden**2), rel=1e-12)


def test_alternating_descent_recovers_a_matrix_of_low_rank():
    truth = synthetic.linear_mixture(400, 20, 2, rng=0)
    panel = synthetic.sample_fixed(truth, 12, rng=1)
    model = AlternatingGD(rank=2, epochs=600, random_state=0).fit(panel)
    M = truth.to_dense()
    found = model.row_factors_ @ model.column_factors_.T
    assert np.linalg.norm(found - M) < 1e-2 * np.linalg.norm(M)
    np.testing.assert_allclose(model.impute(panel), M, atol=0.05)


def test_steps_of_adam_are_its_formula():
    visited = []

    def value_and_gradient(x):
        visited.append(x.copy())
        return float(np.sum(x**4)), 4 * x**3

    result = adam(value_and_gradient, np.array([1.0, -3.0]), learning_rate=0.2, iterations=4)
    x, m, s = np.array([1.0, -3.0]), np.zeros(2), np.zeros(2)
    for t in range(1, 5):
        g = 4 * x**3
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
        x = x - 0.2 * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(visited[t], x, rtol=1e-12)
    np.testing.assert_array_equal(result.factor, visited[-1])
    assert result.passes == len(result.history) == 5


# Means


def test_the_constant_is_its_formula():
    panel = random_panel(1, weighted=True)
    dense, total, weight = panel.to_dense(), 0.0, 0.0
    for row, w in zip(dense, panel.row_weights, strict=True):
        v = row[~np.isnan(row)]
        total += w * (v.sum() ** 2 - v @ v)
        weight += w * len(v) * (len(v) - 1)
    model = Constant().fit(panel)
    np.testing.assert_allclose(model.second_moment_.to_dense(), total / weight, rtol=1e-12)
    counts = np.repeat(panel.row_weights, panel.row_counts)
    np.testing.assert_allclose(model.mean_, np.average(panel.values, weights=counts), rtol=1e-12)


def test_a_constant_below_zero_is_none():
    model = Constant().fit([[1.0, -1.0], [2.0, -2.0]])
    np.testing.assert_array_equal(model.second_moment_.to_dense(), 0.0)


def test_shrunk_means_are_those_of_rank_zero():
    panel = random_panel(1, n=300)
    plain, shrunk = ColumnMeans().fit(panel), ColumnMeans(shrink=True).fit(panel)
    np.testing.assert_allclose(plain.mean_, np.nanmean(panel.to_dense(), axis=0), rtol=1e-12)
    settings = {"rank": 0, "center": "columns", "diagonal": "free", "refine": "variational", "scale": "none"}
    library = OneSidedCompletion(**settings).fit(panel)
    np.testing.assert_array_equal(shrunk.mean_, library.mean_)
    assert np.ptp(shrunk.mean_) < np.ptp(plain.mean_)
    relative = panel.with_row_weights(np.full(300, 0.01))
    np.testing.assert_allclose(ColumnMeans(shrink=True).fit(relative).mean_, shrunk.mean_, rtol=1e-9)
    np.testing.assert_allclose(shrunk.second_moment_.to_dense(), np.outer(shrunk.mean_, shrunk.mean_))


# Soft-Impute


def thresholded(matrix, penalty):
    U, values, V = np.linalg.svd(matrix, full_matrices=False)
    return (U * np.maximum(values - penalty, 0)) @ V


def soft_impute_by_definition(dense, penalty):
    """Missing entries filled in, singular values of the whole less the penalty, again and again."""
    Z, last = np.zeros_like(dense), np.inf
    while np.max(np.abs(Z - last)) > 1e-10:
        Z, last = thresholded(np.where(np.isnan(dense), Z, dense), penalty), Z
    return Z


@pytest.mark.parametrize("penalty", [3.0, 5.0])
def test_soft_impute_solves_the_convex_program(penalty):
    dense = random_panel(2, n=30, d=10, low=4, high=10).to_dense()
    model = SoftImputeALS(rank=10, penalty=penalty, tol=1e-12, max_iterations=20_000, random_state=0).fit(dense)
    Z = model.row_factors_ @ model.column_factors_.T
    np.testing.assert_allclose(Z, soft_impute_by_definition(dense, penalty), atol=1e-5)
    # The residual S is λ U Vᵀ on the singular vectors of Z, and at most λ elsewhere.
    S = np.where(np.isnan(dense), 0.0, dense - Z)
    U, values, V = np.linalg.svd(Z)
    rank = int(np.sum(values > 1e-8))
    assert 0 < rank < 10
    np.testing.assert_allclose(U[:, :rank].T @ S, penalty * V[:rank], atol=1e-5)
    assert np.linalg.norm(S, 2) < penalty * (1 + 1e-6)
    np.testing.assert_allclose(model.impute(dense), np.where(np.isnan(dense), Z, dense), atol=1e-6)
    hidden = np.isnan(dense)
    np.testing.assert_allclose((model.transform(dense) @ model.components_)[hidden], Z[hidden], atol=1e-6)


def test_the_objective_of_soft_impute_falls():
    panel = random_panel(4, weighted=True)
    solve = SoftImputeALS(rank=3, penalty=1.0, tol=1e-9, max_iterations=3000, random_state=0).fit(panel).solve_
    assert solve.status == "converged"
    assert np.all(np.diff(solve.history[1:]) <= 1e-12 * solve.history[1])


def test_directions_stay_orthonormal_where_their_values_vanish():
    panel = synthetic.sample_fixed(synthetic.linear_mixture(200, 20, 1, rng=0), 8, rng=1)
    program, rng = soft_impute._Program(panel), np.random.default_rng(0)
    start, penalty = program.random_start(6, rng), 0.5 * program.largest_singular_value(rng)
    limits = {"tol": 0.0, "max_iterations": 200, "progress": lambda value: None}
    factors, solve = soft_impute.soft_impute(program, start, penalty, **limits)
    assert np.sum(factors.D > 1e-6) == 1
    for side in (factors.U, factors.V):
        np.testing.assert_allclose(side.T @ side, np.eye(6), atol=1e-12)
    _, next_one = soft_impute.soft_impute(program, factors.lifted(0.05 * penalty), 0.5 * penalty, **limits)
    assert next_one.history[-1] < solve.history[-1]


def test_a_row_of_weight_two_is_two_rows_to_soft_impute():
    panel = random_panel(4, n=30, low=2)
    weighted = panel.with_row_weights(np.repeat([2.0, 1.0], 15))
    twice = panel.take_rows(np.concatenate([np.arange(15), np.arange(30)]))
    settings = {"rank": 12, "penalty": 1.0, "tol": 1e-12, "max_iterations": 5000, "random_state": 0}
    one, two = (SoftImputeALS(**settings).fit(p) for p in (weighted, twice))
    np.testing.assert_allclose(one.second_moment_.to_dense(), two.second_moment_.to_dense(), atol=1e-6)


def test_the_penalty_is_chosen_on_held_out_entries():
    truth = synthetic.linear_mixture(300, 20, 2, rng=0)
    rng = np.random.default_rng(1)
    noisy = truth.to_dense() + 0.3 * rng.normal(size=truth.shape)
    dense = np.where(rng.random(noisy.shape) < 0.4, noisy, np.nan)
    hidden = np.isnan(dense)
    settings = {"rank": 5, "max_iterations": 5000, "random_state": 0}
    chosen = SoftImputeALS(**settings).fit(dense)

    def error(penalty):
        model = SoftImputeALS(penalty=penalty, **settings).fit(dense)
        return np.linalg.norm((model.impute(dense) - truth.to_dense())[hidden])

    assert error(chosen.penalty_) < min(error(chosen.penalty_ / 10), error(chosen.penalty_ * 10))
    np.testing.assert_allclose(
        np.linalg.norm((chosen.impute(dense) - truth.to_dense())[hidden]), error(chosen.penalty_), rtol=0.02
    )


def test_soft_impute_stopped_early_warns():
    with pytest.warns(
        ConvergenceWarning, match=r"limit after 2 passes: the last changed .*; raise max_iterations or tol"
    ):
        SoftImputeALS(rank=2, penalty=0.1, max_iterations=2, random_state=0).fit(random_panel(0))


# Factor analysis


def log_likelihood(model, panel):
    total = 0.0
    for row, weight in zip(panel.to_dense(), panel.row_weights, strict=True):
        j = np.flatnonzero(~np.isnan(row))
        if len(j):
            C = model.factor_[j] @ model.factor_[j].T + np.diag(model.noise_variance_[j])
            total += weight * multivariate_normal.logpdf(row[j], model.mean_[j], C)
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_the_likelihood_rises_with_every_iteration(weighted):
    panel = random_panel(3, weighted=weighted, low=0)
    found = [
        log_likelihood(FactorAnalysisEM(rank=2, iterations=k, random_state=0).fit(panel), panel)
        for k in range(1, 25, 2)
    ]
    assert np.all(np.diff(found) > 0)


def test_factor_analysis_of_complete_rows_is_scikit_learns():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 10)) + rng.normal(size=(500, 10)) + 3.0
    ours = FactorAnalysisEM(rank=2, iterations=500, random_state=0).fit(V)
    theirs = FactorAnalysis(2, tol=1e-6, max_iter=5000, svd_method="lapack").fit(V)
    C = ours.factor_ @ ours.factor_.T + np.diag(ours.noise_variance_)
    np.testing.assert_allclose(C, theirs.get_covariance(), atol=2e-3)
    np.testing.assert_allclose(ours.mean_, V.mean(axis=0), atol=1e-6)
    T = ours.second_moment_.to_dense()
    np.testing.assert_allclose(np.diag(T), np.mean(V**2, axis=0))
    off = ~np.eye(10, dtype=bool)
    np.testing.assert_allclose(T[off], (np.outer(ours.mean_, ours.mean_) + ours.factor_ @ ours.factor_.T)[off])


# Nuclear norms


def test_gradient_of_the_factored_loss():
    moments = PairMoments.from_panel(random_panel(4, weighted=True))
    objective = PairObjective(moments, penalty=0.02, alpha=0.5, diagonal_weight=1.0)
    rng = np.random.default_rng(1)
    X, move = rng.normal(size=(12, 3)), rng.normal(size=(12, 3))
    value, gradient = penalised(objective, 0.7, X)
    difference = penalised(objective, 0.7, X + 1e-5 * move)[0] - penalised(objective, 0.7, X - 1e-5 * move)[0]
    assert difference / 2e-5 == pytest.approx(np.vdot(gradient, move), rel=1e-6)
    T = moments.to_matrix(hajek(moments)).toarray()
    on = moments.to_matrix(np.ones(moments.n_pairs)).toarray()
    norms = np.linalg.norm(X, axis=1)
    expected = np.sum((on * (X @ X.T - T)) ** 2) + 0.7 * np.linalg.norm(X, "nuc")
    expected += 2 * on.sum() * 0.02 / 12 * np.sum(np.maximum(norms - 0.5, 0) ** 4)
    assert value == pytest.approx(expected, rel=1e-10)


def test_the_nuclear_norm_and_its_subgradient_where_directions_are_missing():
    X = np.random.default_rng(0).normal(size=(8, 2)) @ np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    value, gradient = nuclear_norm(X)
    U, values, V = np.linalg.svd(X, full_matrices=False)
    assert value == pytest.approx(values.sum())
    np.testing.assert_allclose(gradient, U[:, :2] @ V[:2], atol=1e-7)
    assert nuclear_norm(np.zeros((4, 2)))[0] == 0.0


def covariance_with(values, d, seed=0):
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, len(values))))[0]
    return (vectors * values) @ vectors.T


@pytest.mark.parametrize("above", [3.3, 2.6, 2.05])
def test_eigenpairs_that_nobody_guessed_are_found(above):
    """Two or three that stand out of a bulk, from eight random directions."""
    rng, d = np.random.default_rng(0), 600
    noise = rng.normal(size=(d, d)) / np.sqrt(d)
    axes = np.linalg.qr(rng.normal(size=(d, 3)))[0]
    G = (noise + noise.T) / np.sqrt(2) + axes @ np.diag([3.0, 4.0, -3.5]) @ axes.T
    values = np.linalg.eigvalsh(G)
    found, _, _ = leading_eigenpairs(
        lambda V: G @ V, np.empty((d, 0)), above=above, most=99, tol=1e-6, rng=rng, least_steps=10
    )
    np.testing.assert_allclose(np.sort(found), values[np.abs(values) > above], rtol=1e-6)


@pytest.mark.parametrize("guessed", [0, 5, 40])
def test_leading_eigenpairs_are_those_of_the_whole(guessed):
    rng = np.random.default_rng(0)
    G = covariance_with(
        np.concatenate([np.linspace(20, 5, 30), np.linspace(-15, -5.2, 10), np.linspace(-1, 1, 110)]), 150
    )
    values, vectors = np.linalg.eigh(G)
    order = np.argsort(-np.abs(values))[:40]
    guess = vectors[:, order[:guessed]] + 0.01 * rng.normal(size=(150, guessed))
    found, at, further = leading_eigenpairs(lambda V: G @ V, guess, above=3.0, most=100, tol=1e-9, rng=rng)
    np.testing.assert_allclose(found, values[order], rtol=1e-8)
    np.testing.assert_allclose(G @ at, at * found, atol=1e-7)
    assert further.shape[1] > 40
    fewer, _, _ = leading_eigenpairs(lambda V: G @ V, guess, above=3.0, most=7, tol=1e-9, rng=rng)
    np.testing.assert_allclose(fewer, values[order[:7]], rtol=1e-8)


def convex_by_definition(T, on, penalty):
    """Plain proximal gradient steps on a dense matrix."""
    Z, last = np.zeros_like(T), np.inf
    while np.max(np.abs(Z - last)) > 1e-10:
        values, vectors = np.linalg.eigh(Z + on * (T - Z))
        Z, last = (vectors * (np.sign(values) * np.maximum(np.abs(values) - penalty, 0))) @ vectors.T, Z
    return Z


@pytest.mark.parametrize(("d", "penalty", "dense"), [(12, 1.0, True), (12, 3.0, True), (40, 8.0, False)])
def test_the_convex_program_is_solved(monkeypatch, d, penalty, dense):
    if not dense:
        monkeypatch.setattr(proximal, "DENSE", 0)
        monkeypatch.setattr(proximal, "MANY", 1)
    moments = PairMoments.from_panel(random_panel(1, n=60, d=d, low=3, high=10))
    T, on = (moments.to_matrix(one).toarray() for one in (hajek(moments), np.ones(moments.n_pairs)))
    limits, rng = proximal.Limits(tol=1e-11, max_iterations=20_000, max_rank=d), np.random.default_rng(0)
    expected = convex_by_definition(T, on, penalty)
    for full in (20, 0):  # as a dense matrix, and pair by pair
        monkeypatch.setattr(proximal, "FULL", full)
        found = proximal.solve(proximal.PairTarget.of(moments), penalty, proximal.Solution.nothing(d), limits, rng)
        Z = found.Z.to_dense()
        np.testing.assert_allclose(Z, expected, atol=1e-5)
        assert found.history[-1] == pytest.approx(
            np.sum((on * (Z - T)) ** 2) / 2 + penalty * np.linalg.norm(Z, "nuc"), rel=1e-9
        )
        # The residual is ±λ on the eigenvectors of Z, and at most λ elsewhere.
        S = on * (T - Z)
        V, signs = found.Z.vectors, np.sign(found.Z.values)
        assert 0 < found.Z.rank < d
        np.testing.assert_allclose(S @ V, penalty * V * signs, atol=1e-5)
        assert np.abs(np.linalg.eigvalsh(S)).max() < penalty * (1 + 1e-6)


def test_changes_of_low_rank_matrices():
    rng = np.random.default_rng(0)
    one, two = (proximal.LowRank(rng.normal(size=k), np.linalg.qr(rng.normal(size=(9, k)))[0]) for k in (3, 4))
    expected = np.linalg.norm(one.to_dense() - two.to_dense()) / np.linalg.norm(two.to_dense())
    assert one.change_from(two) == pytest.approx(expected, rel=1e-10)
    assert one.change_from(one) < 1e-14
    assert proximal.LowRank.zero(9).change_from(proximal.LowRank.zero(9)) == 0.0


def test_the_second_moment_is_the_positive_part_of_the_solution():
    panel = random_panel(1, n=40)
    model = ConvexNuclearNorm(rank=2, penalty=0.5, random_state=0).fit(panel)
    assert model.spectrum_.min() < 0 < model.spectrum_.max()
    positive = np.sort(model.spectrum_[model.spectrum_ > 0])[::-1]
    np.testing.assert_allclose(np.linalg.norm(model.factor_, axis=0) ** 2, positive, rtol=1e-8)
    np.testing.assert_allclose(model.eigenvalues_, positive[:2])
    assert model.components_.shape == (2, 12)


def test_the_penalty_is_chosen_on_held_out_pairs():
    truth = synthetic.noisy_mixture(1000, 30, 2, sigma=1.0, rng=0)
    panel, T = synthetic.sample_fixed(truth, 6, rng=1), truth.second_moment()
    chosen = ConvexNuclearNorm(random_state=0).fit(panel)

    def error(penalty):
        model = ConvexNuclearNorm(penalty=penalty, random_state=0).fit(panel)
        return np.linalg.norm(model.second_moment_.to_dense() - T)

    assert error(chosen.penalty_) < min(error(chosen.penalty_ / 8), error(chosen.penalty_ * 8))


def test_a_convex_program_cut_short_warns():
    panel = random_panel(1, n=40)
    with pytest.warns(
        ConvergenceWarning, match=r"limit after 2 passes: the last changed .*; raise max_iterations or tol"
    ):
        ConvexNuclearNorm(rank=2, penalty=0.1, max_iterations=2).fit(panel)
    with pytest.warns(ConvergenceWarning, match="cut off at max_rank=2 eigenpairs; raise max_rank or the penalty"):
        ConvexNuclearNorm(rank=2, penalty=0.1, max_iterations=5000, max_rank=2).fit(panel)


@pytest.mark.parametrize("estimator", [AlternatingGD(rank=2, random_state=0), SoftImputeALS(rank=2, random_state=0)])
def test_rows_without_entries_change_nothing_in_t(estimator):
    truth = synthetic.linear_mixture(500, 20, 2, rng=0)
    panel = synthetic.sample_fixed(truth, 10, rng=1)
    longer = Panel(np.append(panel.indptr, [panel.indptr[-1]] * 500), panel.columns, panel.values, 20)
    T = truth.second_moment()
    for one in (panel, longer):
        found = clone(estimator).fit(one).second_moment_.to_dense()
        assert np.linalg.norm(found - T) < 0.1 * np.linalg.norm(T)


def test_little_noise_does_not_slow_factor_analysis_down():
    truth = synthetic.linear_mixture(500, 20, 2, rng=0)
    panel, T = synthetic.sample_fixed(truth, 10, rng=1), truth.second_moment()
    found = FactorAnalysisEM(rank=2, iterations=30, random_state=0).fit(panel).second_moment_.to_dense()
    assert np.linalg.norm(found - T) < 0.03 * np.linalg.norm(T)


def test_the_size_of_weights_does_not_matter_to_factor_analysis():
    panel = random_panel(1, n=200)
    fits = [
        FactorAnalysisEM(rank=2, random_state=0).fit(panel.with_row_weights(np.full(200, w))).eigenvalues_
        for w in (1.0, 1e-12)
    ]
    np.testing.assert_allclose(*fits, rtol=1e-6)


def test_a_search_for_a_penalty_cut_off_says_so():
    panel = synthetic.sample_fixed(synthetic.linear_mixture(500, 20, 2, rng=0), 10, rng=1)
    with pytest.warns(ConvergenceWarning, match="search for a penalty ended at max_rank=2 .*; raise max_rank"):
        ConvexNuclearNorm(rank=2, max_rank=2, random_state=0).fit(panel)
