"""Private fits: bounds, noise, the account, what is released and what is refused."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.sparse import coo_array
from scipy.stats import kstest, norm
from sklearn.base import clone

from onesided import InputError, OneSidedCompletion, Panel, Privacy, synthetic
from onesided.privacy import NoGuarantee, empirical_sensitivity, gaussian_delta, gaussian_mu, paper_noise
from onesided.privacy.audit import audit
from onesided.privacy.central import MOST_COLUMNS, ask_pairs, check_columns, release_by_pairs
from onesided.privacy.curator import Curator, cut_rows
from onesided.privacy.forecast import ASSUMED, forecast
from onesided.privacy.gradient import release_by_gradient
from onesided.privacy.local import noised_values
from onesided.privacy.noise import coarsened, whole_gaussian
from onesided.storage import archive

# With noise on every value a rank that was given may predict worse than means do, or not settle: the fit says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:rank .* predicts held-out entries worse"),
    pytest.mark.filterwarnings("ignore:refinement stopped at its limit"),
]

PLAN = Privacy(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0), max_entries=6)
K, D = 6, 12


def made_panel(n=20_000, d=30, rank=2, entries=6, seed=0):
    """Values within [−1, 1] around means of their own, and the covariance they come from."""
    rng = np.random.default_rng(seed)
    truth = synthetic.linear_mixture(n, d, rank, rng=seed)
    panel = synthetic.sample_fixed(truth, entries, rng=seed)
    means = rng.uniform(-0.3, 0.3, d)
    values = 0.25 * np.sqrt(d) * panel.values + means[panel.columns] + rng.normal(0, 0.1, panel.n_entries)
    T = truth.second_moment() * d * 0.25**2
    return Panel(panel.indptr, panel.columns, np.clip(values, -1, 1), d), T, means


def off_diagonal_error(found, T):
    off = ~np.eye(len(T), dtype=bool)
    return np.linalg.norm((found - T)[off]) / np.linalg.norm(T[off])


def small_rows(n=30, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.full((n, D), np.nan)
    for u in range(n):
        columns = rng.choice(D, rng.integers(0, K + 1), replace=False)
        rows[u, columns] = rng.uniform(-1, 1, len(columns))
    return rows


def row_of(columns, values):
    row = np.full((1, D), np.nan)
    row[0, columns] = values
    return row


class Seen(Curator):
    """A curator that notes what another panel would have answered, and how far that is."""

    def __init__(self, rows, privacy, other):
        super().__init__(rows, privacy, np.random.default_rng(0).bytes)
        self.other, self.moved = other, []

    def ask(self, what, question, **bounds):
        answer = super().ask(what, question, **bounds)
        first, second = question(self.rows), question(self.other)
        self.moved.append((what, float(np.linalg.norm(first - second)), self.releases[-1].sensitivity))
        return answer


def moved(mechanism, first, second, neighbours="add-remove", seed=0, epsilon=1.0):
    """How far each answer is moved between two panels, with its sensitivity."""
    plan = replace(PLAN, mechanism=mechanism, neighbours=neighbours, epsilon=epsilon)
    scaled = [Curator.of(Panel.from_dense(one), plan, np.random.default_rng(0).bytes).rows for one in (first, second)]
    seen = Seen(scaled[0], plan, scaled[1])
    if mechanism == "gradient":
        release_by_gradient(seen, 3, "both", np.random.default_rng(seed))
    else:
        ask_pairs(seen)
    return seen.moved


# --- the account -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compositions", [1, 7, 500])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_noise_is_that_of_an_independent_accountant(epsilon, delta, compositions):
    """Within 1%: by that much less noise it finds ε exceeded, by that much more it does not."""
    deviation = np.sqrt(compositions) / gaussian_mu(epsilon, delta)
    for factor, holds in ((0.99, False), (1.01, True)):
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            factor * deviation, value_discretization_interval=min(1e-3, 1e-3 * epsilon)
        )
        spent = loss.self_compose(compositions).get_epsilon_for_delta(delta)
        assert (spent <= epsilon) == holds


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_mu_and_delta_are_inverse(epsilon, delta):
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-6)
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) <= delta


@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_what_is_spent_adds_up_to_the_promise(mechanism, neighbours):
    if mechanism == "local" and neighbours == "replace":
        pytest.skip("the local mechanism has its own neighbours")
    panel, _, _ = made_panel(2000)
    plan = replace(PLAN, mechanism=mechanism, neighbours=neighbours)
    account = OneSidedCompletion(1, center="columns", privacy=plan).fit(panel).privacy_
    assert account.mu == pytest.approx(plan.mu)
    assert account.spent_delta <= plan.delta
    assert f"({plan.epsilon:g}, {plan.delta:g})-differentially private" in str(account)
    without = OneSidedCompletion(0, center="columns", privacy=plan).fit(panel).privacy_
    assert without.mu == pytest.approx(plan.mu)


# --- noise -----------------------------------------------------------------------------------------------------------


def test_noise_is_gaussian_and_whole():
    noise = whole_gaussian(200_000, 1000.0)
    np.testing.assert_array_equal(noise, np.rint(noise))
    assert kstest(noise + np.random.default_rng(0).uniform(-0.5, 0.5, len(noise)), norm(0, 1000).cdf).pvalue > 1e-6
    assert abs(np.mean(noise < 0) - 0.5) < 0.01


def test_the_furthest_draws_are_finite():
    high, low = (0, 1, 2**64 - 1, 2**64 - 2), (0, 0, 2**64 - 1, 0)
    noise = whole_gaussian(4, 1e6, lambda size: struct.pack("<8Q", *high, *low))
    assert np.all(np.isfinite(noise))
    assert noise[0] == -noise[1]
    assert 12.9e6 < abs(noise[0]) < 13.2e6


def test_no_whole_number_is_out_of_reach_far_out():
    """Neighbouring draws are less than a unit apart where noise is seven deviations large."""
    deviation = 2.0**30
    high = np.full(1000, 2 * int(norm.cdf(-7.0) * 2**64), dtype=np.uint64)
    low = (np.arange(1000) * 2**54).astype(np.uint64)
    noise = whole_gaussian(1000, deviation, lambda size: high.tobytes() + low.tobytes())
    assert np.max(np.abs(np.diff(noise))) <= 1
    released = coarsened(np.arange(10_000.0), deviation)
    assert set(np.diff(released)) == {0.0, 2.0**14}


def test_noise_comes_from_the_operating_system(monkeypatch):
    asked = []

    def watched(size):
        asked.append(size)
        return b"\x07" * size

    assert Curator(Panel.from_dense([[1.0]]), PLAN).draw is os.urandom
    curator = Curator.of(Panel.from_dense(small_rows()), PLAN, watched)
    release_by_gradient(curator, 2, "both", np.random.default_rng(0))
    assert sum(asked) == 16 * sum(one.numbers for one in curator.releases)


def test_the_same_seed_draws_other_noise():
    panel, _, _ = made_panel(2000)
    plan = replace(PLAN, epsilon=5.0)
    first, second = (OneSidedCompletion(1, random_state=0, privacy=plan).fit(panel).mean_ for _ in range(2))
    assert not np.any(first == second)


# --- sensitivity -----------------------------------------------------------------------------------------------------

ALL = row_of(range(K), np.ones(K))


@pytest.mark.parametrize("mechanism", ["gradient", "central"])
@pytest.mark.parametrize("seed", range(8))
def test_one_row_moves_no_answer_further_than_is_claimed(mechanism, seed):
    rng = np.random.default_rng(seed)
    base = small_rows(seed=seed)
    size = int(rng.integers(0, D + 1))  # longer than k, too
    extreme = row_of(rng.choice(D, size, replace=False), rng.choice([-1.0, 1.0], size))
    other = row_of(rng.choice(D, K, replace=False), rng.choice([-1.0, 1.0], K))
    for what, distance, sensitivity in moved(mechanism, base, np.vstack([base, extreme]), seed=seed):
        assert distance <= sensitivity * (1 + 1e-12), what
    replaced = np.vstack([base, extreme]), np.vstack([base, other])
    for what, distance, sensitivity in moved(mechanism, *replaced, neighbours="replace", seed=seed):
        assert distance <= sensitivity * (1 + 1e-12), what


def test_the_bounds_are_reached():
    base = small_rows()
    pairs, first = moved("central", base, np.vstack([base, ALL]))
    assert pairs[1:] == pytest.approx((np.sqrt(K * (K + 1)),) * 2)
    assert first[1:] == pytest.approx((np.sqrt(K),) * 2)
    columns = moved("gradient", base, np.vstack([base, ALL]))[0]
    assert columns[1:] == pytest.approx((np.sqrt(3 * K),) * 2)
    clipped = moved("gradient", base, np.vstack([base, ALL]), epsilon=20.0)[2:]
    assert max(distance / sensitivity for _, distance, sensitivity in clipped) == pytest.approx(1.0, rel=1e-4)
    apart = row_of(range(K, 2 * K), np.ones(K))
    pairs, _ = moved("central", np.vstack([base, ALL]), np.vstack([base, apart]), neighbours="replace")
    assert pairs[1:] == pytest.approx((np.sqrt(2 * K * (K + 1)),) * 2)


def test_two_rows_never_point_apart_in_pairs():
    """Why replacing costs √2 and not 2: all products of contributions are at least zero."""
    opposite = row_of(range(K), np.where(np.arange(K) % 2, 1.0, -1.0))
    pairs, _ = moved("central", np.vstack([small_rows(), ALL]), np.vstack([small_rows(), opposite]), "replace")
    assert pairs[1] <= np.sqrt(2) * np.sqrt(K * (K + 1))


def test_long_rows_are_cut_at_random():
    panel = Panel.from_dense(np.arange(3000.0).reshape(300, 10) / 3000)
    kept = cut_rows(panel, 4, np.random.default_rng(0).bytes)
    np.testing.assert_array_equal(kept.row_counts, np.full(300, 4))
    rows = np.repeat(np.arange(300), 4)
    np.testing.assert_array_equal(kept.values, panel.to_dense()[rows, kept.columns])
    assert np.all(np.abs(kept.column_counts - 120) < 50)


NEIGHBOURS = {
    "gradient": ("add-remove", small_rows(), np.vstack([small_rows(), ALL])),
    "gradient, replace": ("replace", np.vstack([small_rows(), row_of(range(K, 2 * K), np.ones(K))]), None),
    "central": ("add-remove", small_rows(), np.vstack([small_rows(), ALL])),
    "central, replace": ("replace", np.vstack([small_rows(), row_of(range(K, 2 * K), np.ones(K))]), None),
    "local": ("add-remove", np.vstack([small_rows(), -ALL]), None),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_an_adversary_does_no_better_than_is_claimed_and_the_audit_can_fail(case):
    neighbours, first, second = NEIGHBOURS[case]
    second = np.vstack([small_rows(), ALL]) if second is None else second
    mechanism = case.split(",")[0]
    plan = replace(PLAN, epsilon=6.0, delta=1e-3, mechanism=mechanism, neighbours=neighbours)
    pair = Panel.from_dense(first), Panel.from_dense(second)
    # Seeded, as a bound with 99% confidence is exceeded once in a hundred runs of a mechanism that spends all it may.
    honest, halved = (
        audit(plan, pair, runs=2000, noise=noise, draw=np.random.default_rng(0).bytes) for noise in (1.0, 0.5)
    )
    assert honest.lower_bound <= honest.claimed
    assert honest.lower_bound > 0.5 * honest.claimed  # the adversary is no straw man
    assert halved.lower_bound > halved.claimed


class Replaying(Curator):
    """A curator that gives the answers of another, whatever its own rows are."""

    def __init__(self, rows, privacy, answers):
        super().__init__(rows, privacy)
        self.answers = iter(answers)

    def ask(self, what, question, **bounds):
        super().ask(what, question, **bounds)
        return next(self.answers)


class Recording(Curator):
    def __init__(self, rows, privacy):
        super().__init__(rows, privacy)
        self.answers = []

    def ask(self, what, question, **bounds):
        self.answers.append(super().ask(what, question, **bounds))
        return self.answers[-1]


@pytest.mark.parametrize("release", [release_by_gradient, release_by_pairs])
def test_a_fit_sees_nothing_but_the_answers(release):
    """The answers for one panel, replayed to a curator of another one, give the same model."""
    first, second = (made_panel(n, seed=n)[0] for n in (3000, 500))
    plan = replace(PLAN, epsilon=5.0)
    recording = Recording(Curator.of(first, plan).rows, plan)
    found = release(recording, 2, "both", np.random.default_rng(0))
    replaying = Replaying(Curator.of(second, plan).rows, plan, recording.answers)
    again = release(replaying, 2, "both", np.random.default_rng(0))
    for name in ("mean", "factor", "noise_variance", "row_variance"):
        np.testing.assert_array_equal(getattr(found.row_space, name), getattr(again.row_space, name))
    for name in ("diagonal", "means", "counts", "parts"):
        np.testing.assert_array_equal(getattr(found.row_space.measured, name), getattr(again.row_space.measured, name))
    assert recording.account() == replaying.account()
    assert found.solve.history == again.solve.history


def test_which_entries_are_kept_of_a_row_does_not_depend_on_others(monkeypatch):
    """Nor on a seed: long rows are cut by a secure source, each entry for itself."""
    rows = np.random.default_rng(0).uniform(-1, 1, (50, D))
    kept = [cut_rows(Panel.from_dense(rows), 3).columns for _ in range(2)]
    assert not np.array_equal(*kept)
    asked = []
    monkeypatch.setattr("onesided.privacy.curator.np.random", None)

    def draw(size):
        asked.append(size)
        return os.urandom(size)

    cut_rows(Panel.from_dense(rows), 3, draw)
    assert asked == [8 * rows.size]


def test_the_state_of_a_generator_tells_nothing_of_the_rows():
    panels = [made_panel(n)[0] for n in (2000, 1000)]
    states = []
    for panel in panels:
        generator = np.random.default_rng(0)
        OneSidedCompletion(1, random_state=generator, privacy=replace(PLAN, max_entries=3)).fit(panel)
        states.append(generator.bit_generator.state)
    assert states[0] == states[1]


def test_names_of_a_frame_that_is_refused_or_fitted_do_not_stay():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (500, 6)), columns=list("abcdef"))
    plan = replace(PLAN, columns=list("abcdefgh"))
    model = OneSidedCompletion(1, random_state=0, privacy=plan).fit(frame)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 8
    assert model.impute(frame.iloc[:3]).shape == (3, 8)
    refused = OneSidedCompletion(1, privacy=replace(plan, columns=list("abc")))
    with pytest.raises(InputError, match="unknown to the plan"):
        refused.fit(frame)
    assert not [name for name in vars(refused) if name.endswith("_")]


# --- accuracy --------------------------------------------------------------------------------------------------------


@pytest.fixture
def seeded_noise(monkeypatch):
    """Noise from a seed instead of the secure source: a bound on what it does to a fit must not fail by chance."""
    monkeypatch.setattr(Curator, "of", partial(Curator.of, draw=np.random.default_rng(0).bytes))


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "most"), [("gradient", 1.0, 0.3), ("central", 5.0, 0.4), ("local", 400.0, 0.3)]
)
@pytest.mark.usefixtures("seeded_noise")
def test_enough_rows_bring_the_covariance(mechanism, epsilon, most):
    panel, T, means = made_panel()
    plan = replace(PLAN, epsilon=epsilon, mechanism=mechanism)
    model = OneSidedCompletion(2, center="columns", random_state=0, privacy=plan).fit(panel)
    assert off_diagonal_error(model.factor_ @ model.factor_.T, T) < most
    assert np.sqrt(np.mean((model.mean_ - means) ** 2)) < 0.03
    dense = model.second_moment_.to_dense()
    assert np.all(np.isfinite(dense))
    variance = np.diag(T) + 0.01 + means**2
    np.testing.assert_allclose(np.diag(dense), variance, atol=0.1)
    rows = Panel(panel.indptr[:101], panel.columns[: panel.indptr[100]], panel.values[: panel.indptr[100]], 30)
    values, deviations = model.impute(rows, return_std=True)
    assert np.all(np.isfinite(values))
    assert np.all(deviations >= 0)


@pytest.mark.usefixtures("seeded_noise")
def test_noise_of_values_is_taken_off_the_diagonal():
    panel, T, means = made_panel(50_000)
    plan = replace(PLAN, epsilon=20.0, mechanism="local")
    model = OneSidedCompletion(0, center="columns", random_state=0, privacy=plan).fit(panel)
    assert model.privacy_.releases[0].deviation ** 2 > 1.0  # far above the variance of values
    assert np.mean(np.diag(model.second_moment_.to_dense())) == pytest.approx(
        np.mean(np.diag(T) + 0.01 + means**2), abs=0.03
    )
    assert model.noise_variance_.mean() < 0.3


@pytest.mark.parametrize("epsilon", [5.0, 1000.0])
@pytest.mark.usefixtures("seeded_noise")
def test_columns_of_unequal_popularity(epsilon):
    """Where counts are far from what independent choice would give, no direction is lost for good."""
    n, d, rank = 20_000, 40, 3
    rng = np.random.default_rng(0)
    chance = np.arange(1, d + 1) ** -0.8
    keys = rng.random((n, d)) ** (1 / chance)
    observed = keys >= np.sort(keys, axis=1)[:, -8][:, None]
    loadings = rng.normal(0, 0.2, (d, rank))
    values = rng.normal(size=(n, rank)) @ loadings.T + rng.normal(0, 0.1, (n, d))
    panel = Panel.from_dense(np.where(observed, np.clip(values, -1, 1), np.nan))
    plan = replace(PLAN, epsilon=epsilon, max_entries=8)
    errors = [
        off_diagonal_error(model.factor_ @ model.factor_.T, loadings @ loadings.T)
        for model in (
            OneSidedCompletion(rank, center="columns", random_state=seed, privacy=plan).fit(panel) for seed in range(4)
        )
    ]
    assert np.mean(errors) < 0.2


@pytest.mark.parametrize("mechanism", ["gradient", "central"])
@pytest.mark.usefixtures("seeded_noise")
def test_noise_does_not_make_a_model_sure_of_itself(mechanism):
    """Where the mean square is lost in noise, predicted deviations are not near zero."""
    rng = np.random.default_rng(0)
    dense = np.full((3000, 50), np.nan)
    for row in dense:
        row[rng.choice(50, 4, replace=False)] = rng.normal(0, 0.3, 4)
    panel = Panel.from_dense(np.clip(dense, -1, 1))
    for _ in range(50):
        plan = replace(PLAN, epsilon=0.3, max_entries=20, mechanism=mechanism)
        model = OneSidedCompletion(2, random_state=0, privacy=plan).fit(panel)
        _, deviations = model.impute(panel.take_rows([0]), return_std=True)
        assert np.all(deviations[deviations > 0] > 0.05)


def test_more_entries_than_columns_cost_nothing():
    plans = [replace(PLAN, max_entries=k) for k in (D, 10 * D)]
    lengths = []
    for plan in plans:
        curator = Curator.of(Panel.from_dense(small_rows()), plan)
        ask_pairs(curator)
        lengths.append(curator.releases[0].sensitivity)
    assert lengths[0] == lengths[1] == pytest.approx(np.sqrt(D * (D + 1)))


@pytest.mark.usefixtures("seeded_noise")
def test_too_little_data_gives_means_and_no_nonsense():
    """Where noise outweighs everything no direction is found, and predictions stay near the mean of all."""
    panel, _, _ = made_panel(300)
    for mechanism in ("gradient", "central", "local"):
        plan = replace(PLAN, epsilon=0.1, mechanism=mechanism)
        model = OneSidedCompletion(3, random_state=0, privacy=plan).fit(panel)
        assert np.all(np.abs(model.mean_) <= 1.0)
        assert np.all(np.isfinite(model.second_moment_.to_dense()))
        assert np.sqrt(np.mean((model.impute(panel)) ** 2)) < 1.0


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("rank", [1, 5, 10, 20])
def test_noise_is_not_taken_for_directions(rank):
    """Of many directions the largest that noise makes is far above what one alone would be."""
    rng = np.random.default_rng(0)
    dense = np.full((2000, 60), np.nan)
    for row in dense:
        row[rng.choice(60, 6, replace=False)] = rng.uniform(-1, 1, 6)
    claimed = [
        np.sum(
            OneSidedCompletion(rank, center="columns", random_state=seed, privacy=replace(PLAN, epsilon=epsilon))
            .fit(dense)
            .factor_
            ** 2
        )
        for epsilon in (0.1, 0.3, 1.0)
        for seed in range(10)
    ]
    assert np.mean(claimed) < 0.02 * 60 / 3  # of the variance of all columns


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
@pytest.mark.parametrize(("n", "d", "rank", "epsilon"), [(300, 30, 5, 0.1), (1000, 50, 10, 1.0), (30, 80, 3, 5.0)])
def test_no_variance_is_beyond_what_the_bounds_allow(mechanism, n, d, rank, epsilon):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((n, d)) < 6 / d, rng.uniform(1, 5, (n, d)), np.nan)
    plan = replace(PLAN, epsilon=epsilon, bounds=(1.0, 5.0), max_entries=20, mechanism=mechanism)
    for _ in range(5):
        model = OneSidedCompletion(rank, refine="none", random_state=0, privacy=plan).fit(dense)
        assert np.all(np.diag(model.covariance_.to_dense()) <= 4.0 + 1e-9)
        _, deviations = model.impute(dense[:5], return_std=True)
        assert np.all(deviations <= 2.0 * np.sqrt(2.0))  # the variance, and that of noise


@pytest.mark.usefixtures("seeded_noise")
def test_values_with_noise_have_the_variance_they_had_without():
    """Where the noise on values is far above it, what is left is what is likely, and not the noise's own spread."""
    rng = np.random.default_rng(0)
    dense = np.full((10_000, 50), np.nan)
    for row in dense:
        row[rng.choice(50, 10, replace=False)] = rng.uniform(1, 5, 10)
    plan = replace(PLAN, bounds=(1.0, 5.0), max_entries=10, mechanism="local")
    noisy, less = (
        OneSidedCompletion(0, center="columns", random_state=0, privacy=replace(plan, epsilon=epsilon))
        .fit(dense)
        .noise_variance_
        for epsilon in (1.0, 20.0)
    )
    assert np.mean(noisy) < 4.0  # of which no more is known than that
    assert np.mean(less) == pytest.approx(16 / 12, rel=0.2)


@pytest.mark.parametrize("mechanism", ["gradient", "central"])
@pytest.mark.usefixtures("seeded_noise")
def test_rank_zero_is_means_alone(mechanism):
    panel, _, means = made_panel()
    model = OneSidedCompletion(0, random_state=0, privacy=replace(PLAN, mechanism=mechanism, epsilon=5.0)).fit(panel)
    assert model.factor_.shape == (30, 0)
    assert model.center_ == "both"
    np.testing.assert_allclose(model.mean_, means, atol=0.1)


@pytest.mark.parametrize("mechanism", ["gradient", "central"])
@pytest.mark.usefixtures("seeded_noise")
def test_the_forecast_is_of_the_right_size(mechanism):
    """Where noise is to be between 0.05 and 0.5 of a covariance, it is, within a factor of three."""
    checked = 0
    for n, epsilon in ((20_000, 0.5), (20_000, 2.0), (100_000, 1.0), (100_000, 5.0), (200_000, 5.0)):
        panel, T, _ = made_panel(n, 60, 3, 8)
        plan = replace(PLAN, epsilon=epsilon, max_entries=8, mechanism=mechanism, clip_values=True)
        expected = forecast(plan, n, 60, rank=3).covariance_noise
        if mechanism == "central":  # whose noise does not go by the variance that values have
            expected *= ASSUMED / (0.25**2 + 0.01)
        if not 0.05 <= expected <= 0.5:
            continue
        checked += 1
        model = OneSidedCompletion(3, center="columns", random_state=0, privacy=plan).fit(panel)
        found = off_diagonal_error(model.factor_ @ model.factor_.T, T)
        assert expected / 3 < found < 3 * expected
    assert checked >= 2


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
def test_a_model_file_holds_no_value_and_no_row_id(mechanism, tmp_path):
    panel, _, _ = made_panel(400)
    rng = np.random.default_rng(5)
    values = np.clip(panel.values + rng.normal(0, 1e-3, panel.n_entries), -1, 1)
    ids = np.array([f"PERSON-{k:06d}-{rng.integers(10**9)}" for k in range(400)], dtype=object)
    columns = np.array([f"column {j}" for j in range(30)], dtype=object)
    planted = Panel(panel.indptr, panel.columns, values, 30, row_ids=ids, column_ids=columns)
    plan = replace(PLAN, mechanism=mechanism, columns=list(columns), epsilon=5.0)
    model = OneSidedCompletion(1, center="columns", random_state=0, privacy=plan).fit(planted)
    path = tmp_path / "model.onesided"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    assert set(members) == {"header.json", "arrays.safetensors", "columns.parquet"}
    ids_kept = pq.read_table(pa.BufferReader(members["columns.parquet"]))  # compressed, unlike the others
    assert ids_kept.column_names == ["id"]
    assert ids_kept["id"].to_pylist() == list(columns)
    written = path.read_bytes() + members["header.json"] + members["arrays.safetensors"]
    assert b"PERSON" not in written
    for value in values[::7]:
        if abs(value) == 1:
            continue
        assert struct.pack("<d", value) not in written
        assert struct.pack("<f", value) not in written
        assert repr(float(value)).encode() not in written
    exact = planted.column_counts.astype(float)
    assert np.mean(model.measured_.counts == exact) < 0.5
    assert struct.pack("<30d", *exact) not in written
    assert model.second_moment_.panel is None
    assert not [name for name, one in vars(model).items() if isinstance(one, Panel)]


@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
def test_a_private_model_comes_back_as_it_was(mechanism, tmp_path):
    panel, _, _ = made_panel(2000)
    plan = replace(PLAN, mechanism=mechanism, columns=list(range(30)))
    model = OneSidedCompletion(1, center="both", random_state=0, privacy=plan).fit(panel)
    model.save(tmp_path / "model.onesided")
    again = OneSidedCompletion.load(tmp_path / "model.onesided")
    assert again.privacy_ == model.privacy_
    assert again.privacy == plan
    np.testing.assert_array_equal(again.second_moment_.to_dense(), model.second_moment_.to_dense())
    np.testing.assert_array_equal(again.impute(panel.take_rows([3])), model.impute(panel.take_rows([3])))


@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
def test_no_scale_is_estimated_from_private_rows(mechanism, monkeypatch):
    panel, _, _ = made_panel(2000)
    mixed = Panel(panel.indptr, panel.columns, np.where(panel.columns % 2, 0.01, 1.0) * panel.values, 30)
    opened = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(mixed)
    assert opened.row_space_.in_own_units

    def refused(rows):
        raise AssertionError("scales were estimated from private rows")

    monkeypatch.setattr("onesided.fitting.scales.Deviations.of", refused)  # of which all scales are made
    found = {}
    for scale in ("auto", "none"):
        with monkeypatch.context() as patched:
            patched.setattr(Curator, "of", partial(Curator.of, draw=np.random.default_rng(0).bytes))
            plan = replace(PLAN, mechanism=mechanism, epsilon=100.0)
            found[scale] = fit_with(mixed, plan, center="columns", diagonal="free", scale=scale)
    for model in found.values():
        assert model.row_space_.scales is None
        np.testing.assert_array_equal(model.scales_, np.ones(30))
    np.testing.assert_array_equal(found["auto"].factor_, found["none"].factor_)
    np.testing.assert_array_equal(found["auto"].mean_, found["none"].mean_)


@pytest.mark.parametrize("mechanism", ["gradient", "central", "local"])
def test_a_file_of_a_private_model_holds_no_scales(mechanism, tmp_path):
    panel, _, _ = made_panel(2000)
    fit_with(panel, replace(PLAN, mechanism=mechanism), center="columns").save(tmp_path / "model.onesided")
    assert "scales" not in archive.read(tmp_path / "model.onesided", "model").arrays
    np.testing.assert_array_equal(OneSidedCompletion.load(tmp_path / "model.onesided").scales_, np.ones(30))


def test_a_plan_can_be_cloned():
    model = OneSidedCompletion(2, privacy=PLAN)
    assert clone(model).privacy == PLAN
    assert model.get_params()["privacy"] is PLAN


def test_the_local_mechanism_may_choose():
    panel, _, _ = made_panel(500, d=10)
    plan = replace(PLAN, mechanism="local", epsilon=500.0)
    model = OneSidedCompletion(random_state=0, privacy=plan).fit(panel)
    assert model.selection_ is not None


def test_how_many_columns_there_are_is_not_learnt_from_sparse_rows():
    """A matrix without a shape has as many columns as its rows need; a plan may say how many there are."""
    panel, _, _ = made_panel(2000)
    rows = np.repeat(np.arange(2000), panel.row_counts)
    wide = coo_array((panel.values, (rows, panel.columns))).tocsr()
    narrow = wide[:, :20]
    shapes = [fit_with(one, replace(PLAN, columns=range(40))).factor_.shape for one in (wide, narrow)]
    assert shapes == [(40, 1), (40, 1)]
    with pytest.raises(InputError, match=re.escape("pass columns=range(d) for d columns in all")):
        fit_with(wide, replace(PLAN, columns=range(20)))


def test_columns_of_the_plan_need_not_occur():
    panel, _, _ = made_panel(5000)
    listed = [f"c{j}" for j in range(33)]
    named = Panel(panel.indptr, panel.columns, panel.values, 30, column_ids=np.array(listed[:30], dtype=object))
    model = OneSidedCompletion(1, random_state=0, privacy=replace(PLAN, columns=listed)).fit(named)
    assert list(model.column_ids_) == listed
    assert np.all(np.isfinite(model.second_moment_.to_dense()))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0: expected a number from 0.001 to 10000"),
        ({"epsilon": np.nan}, "epsilon=nan"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"epsilon": np.inf}, "epsilon=inf"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"delta": 0.0}, "delta=0.0: expected a number from 1e-15 to 1"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"bounds": None}, "bounds are missing"),
        ({"bounds": (1.0, 1.0)}, "expected the least value first"),
        ({"bounds": (5.0, 1.0)}, "expected the least value first"),
        ({"bounds": (0.0, np.inf)}, "expected two numbers of at most 1e+70"),
        ({"bounds": (0.0, 1.0, 2.0)}, "expected two numbers"),
        ({"bounds": 5}, "expected two numbers"),
        ({"bounds": (1.0, 1.0 + 1e-12)}, "well below the largest"),
        ({"bounds": (-1e-200, 1e-200)}, "well below the largest"),
        ({"max_entries": None}, "max_entries is missing"),
        ({"max_entries": 1}, "max_entries=1: expected a whole number of at least 2"),
        ({"max_entries": 2.5}, "max_entries=2.5"),
        ({"max_entries": np.inf}, "max_entries=inf"),
        ({"max_entries": np.nan}, "max_entries=nan"),
        ({"max_entries": 10**400}, "expected a whole number of at least 2"),
        ({"columns": 5}, "columns=5: expected a list of all column ids"),
        ({"columns": "secret"}, "columns='secret' is not an option"),
        ({"columns": ["a", "b", "a"]}, "columns lists an id twice"),
        ({"any_delta": "no"}, "any_delta='no': expected True or False"),
        ({"clip_values": None}, "clip_values=None: expected True or False"),
        ({"passes": 0}, "passes=0: expected a whole number of at least 1"),
        ({"mechanism": "exact"}, "mechanism='exact' is not an option"),
        ({"neighbours": "all"}, "neighbours='all' is not an option"),
        ({"mechanism": "local", "neighbours": "replace"}, "the local mechanism has its own neighbours"),
    ],
)
def test_bad_plans_are_refused(changed, message):
    with pytest.raises(InputError, match=re.escape(message)):
        replace(PLAN, **changed)


def test_numbers_of_any_kind_make_a_plan():
    plan = replace(PLAN, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), bounds=np.array([-1, 1], np.float16))
    assert plan == replace(PLAN, epsilon=0.5)


def fit_with(panel, plan=PLAN, **settings):
    return OneSidedCompletion(**({"rank": 1, "random_state": 0} | settings), privacy=plan).fit(panel)


@pytest.mark.parametrize(
    ("plan", "settings", "message"),
    [
        (replace(PLAN, delta=1e-3), {}, "delta=0.001 with 1,000 rows: at 1/1,000 or more"),
        (replace(PLAN, bounds=(-0.5, 0.5)), {}, "outside the bounds -0.5 to 0.5; give bounds that hold for all"),
        (PLAN, {"rank": "auto"}, 'rank="auto" tries many ranks'),
        (PLAN, {"rank": 31}, "rank=31 is larger than the panel's 30 columns"),
        (PLAN, {"refine": "variational"}, "refine='variational' would go over the rows again"),
        (PLAN, {"diagonal": "fit"}, "diagonal='fit' would go over the rows again"),
        (PLAN, {"blend": 5.0}, "blend=5.0 would go over the rows again"),
        (PLAN, {"center": "none"}, 'center="none" is not for a private fit'),
        (replace(PLAN, columns=[0, 1]), {}, "the plan lists 2 columns, and the rows have 30 without ids"),
    ],
)
def test_bad_fits_are_refused(plan, settings, message):
    panel, _, _ = made_panel(1000)
    with pytest.raises(InputError, match=re.escape(message)):
        fit_with(panel, plan, **settings)


def test_what_is_refused_can_be_allowed():
    panel, _, _ = made_panel(1000)
    fit_with(panel, replace(PLAN, delta=1e-3, any_delta=True))
    fit_with(panel, replace(PLAN, bounds=(-0.5, 0.5), clip_values=True))


def test_other_refusals(tmp_path):
    panel, _, _ = made_panel(1000)
    with pytest.raises(InputError, match=r"rows have weights from 0\.5 to 2"):
        fit_with(panel.with_row_weights(np.where(np.arange(1000) % 2, 0.5, 2.0)))
    named = Panel(
        panel.indptr, panel.columns, panel.values, 30, column_ids=np.array([f"c{j}" for j in range(30)], dtype=object)
    )
    with pytest.raises(InputError, match="which columns occur was learnt from the rows"):
        fit_with(named)
    fit_with(named, replace(PLAN, columns="public"))
    with pytest.raises(InputError, match="a checkpoint would keep on disk what is not released"):
        OneSidedCompletion(1, random_state=0, privacy=PLAN).fit(panel, checkpoint=tmp_path / "kept")
    with pytest.raises(InputError, match="has no panel: it was saved without, or fitted with privacy"):
        fit_with(panel).bootstrap()
    with pytest.raises(InputError, match="at most 5,000 columns"):
        check_columns(MOST_COLUMNS + 1)
    many = Panel(panel.indptr, panel.columns, panel.values, 200_000)  # whose pairs no memory would hold
    with pytest.raises(InputError, match="200,000 columns have 20,000,100,000; it takes at most 5,000 columns"):
        fit_with(many, replace(PLAN, mechanism="central"))
    with pytest.raises(InputError, match="the plan lists integers as column ids, and the rows have strings"):
        fit_with(named, replace(PLAN, columns=range(30)))
    with pytest.raises(InputError, match="600,000,000 rows: sums are exact below 536,870,912"):
        replace(PLAN, delta=1e-10).check_rows(600_000_000)
    opened = OneSidedCompletion(1, random_state=0).fit(panel).set_params(privacy=PLAN)
    with pytest.raises(InputError, match="fitted before it was given its privacy plan"):
        opened.save(tmp_path / "open.onesided")
    with pytest.raises(InputError, match="rows=1: expected at least 2"):
        forecast(PLAN, 1, 10)
    with pytest.raises(InputError, match="rows=nan: expected at least 2"):
        forecast(PLAN, np.nan, 10)
    with pytest.raises(InputError, match="at 1/10,000,000 or more"):
        forecast(PLAN, 10_000_000, 10)
    with pytest.raises(InputError, match="expected at least two in a row"):
        forecast(PLAN, 10, 10, entries=1)
    with pytest.raises(InputError, match=r"expected ε from 0\.001 to 10000"):
        gaussian_mu(0.0, 0.1)
    with pytest.raises(InputError, match="2 column ids unknown to the plan: 'c28', 'c29'"):
        fit_with(named, replace(PLAN, columns=[f"c{j}" for j in range(28)]))
    with pytest.raises(InputError, match="the panel has one column"):
        fit_with(Panel.from_dense(np.zeros((2000, 1))))
    for few in (1, 2, 4):
        with pytest.raises(InputError, match=f"runs={few}: even if all decisions were right"):
            audit(replace(PLAN, epsilon=6.0, delta=1e-3), (panel, panel), runs=few)
    with pytest.raises(InputError, match="must have the same columns and at most 2 entries in a row"):
        audit(replace(PLAN, max_entries=2), (panel, panel))
    with pytest.raises(InputError, match="the panels have one column"):
        audit(PLAN, (Panel.from_dense([[0.5]]), Panel.from_dense([[-0.5]])))
    with pytest.raises(InputError, match="protects values alone: give panels of the same pattern"):
        audit(replace(PLAN, mechanism="local"), (Panel.from_dense([[0.5, np.nan]]), Panel.from_dense([[0.5, 0.5]])))


# --- the paper's calibration -----------------------------------------------------------------------------------------


def test_an_empirical_sensitivity_warns_that_it_is_no_guarantee():
    panel = Panel.from_dense([[1.0, 0.0], [0.0, 3.0], [2.0, 2.0]])
    with pytest.warns(NoGuarantee, match="is not differentially private; use Privacy"):
        found = empirical_sensitivity(lambda rows: rows.to_dense().sum(axis=0), panel, replacements=50)
    assert found == pytest.approx(np.sqrt(10))
    assert paper_noise(found, 2.0, 1e-6) == pytest.approx(np.sqrt(np.log(1.25e6)) * found)
    with pytest.raises(InputError, match="at least two rows"):
        empirical_sensitivity(lambda rows: rows.to_dense(), Panel.from_dense([[1.0]]))


def test_noised_values_keep_their_places():
    panel, _, _ = made_panel(500)
    curator = Curator.of(panel, replace(PLAN, mechanism="local", epsilon=100.0))
    noisy = noised_values(curator)
    np.testing.assert_array_equal(noisy.columns, panel.columns)
    assert np.std(noisy.values - panel.values) == pytest.approx(curator.releases[0].deviation, rel=0.1)
