"""Standard errors against all of Ω; bands against the truth they are meant to hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from onesided import InputError, PairMoments, Panel, uncertainty
from onesided.fitting.bootstrap import bootstrap
from onesided.pairs import lookup
from onesided.pairs.lookup import PairLookup
from onesided.pairs.moments import hajek, standard_errors
from tests.conftest import random_panel

LEVEL, REPEATS = 0.9, 120


def upper_pairs(panel):
    moments = PairMoments.from_panel(panel)
    return moments, *moments.pairs()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_on_demand_are_those_of_all_pairs(weighted, dtype):
    panel = random_panel(3, n=200, d=30, low=0, weighted=weighted, dtype=dtype)
    moments, i, j = upper_pairs(panel)
    lookup = PairLookup(panel)
    np.testing.assert_allclose(lookup.at(i, j).standard_error, standard_errors(moments), rtol=1e-9)
    some = np.random.default_rng(0).permutation(len(i))[:50]
    np.testing.assert_allclose(lookup.at(j[some], i[some]).standard_error, standard_errors(moments)[some], rtol=1e-9)


def test_the_cutting_of_columns_does_not_change_the_errors(monkeypatch):
    panel = random_panel(4, n=100, d=10)
    _, i, j = upper_pairs(panel)
    whole = PairLookup(panel).at(i, j).standard_error
    monkeypatch.setattr(lookup, "BLOCK_ENTRIES", 7)
    np.testing.assert_array_equal(PairLookup(panel).at(i, j).standard_error, whole)


def test_rows_of_weight_zero_do_not_count():
    panel = random_panel(5, n=80)
    fold = np.arange(80) % 3 > 0
    _, i, j = upper_pairs(panel)
    weighted, taken = panel.with_row_weights(fold.astype(float)), panel.take_rows(fold)
    errors = [PairLookup(rows).at(i, j).standard_error for rows in (weighted, taken)]
    np.testing.assert_allclose(*errors, rtol=1e-12)


def test_a_pair_never_seen_has_no_finite_error():
    panel = Panel.from_dense([[1.0, 2.0, np.nan, np.nan], [2.0, 1.0, 3.0, np.nan], [np.nan, 1.0, 1.0, np.nan]])
    pairs = PairLookup(panel.with_row_weights([1.0, 0.0, 1.0])).at([0, 0, 3, 1], [1, 2, 3, 3])
    assert np.isfinite(pairs.standard_error[0])
    np.testing.assert_array_equal(pairs.standard_error[1:], np.inf)
    np.testing.assert_array_equal(pairs.mean, [2.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(pairs.count, [1.0, 0.0, 0.0, 0.0])
    assert len(PairLookup(panel).at([], []).standard_error) == 0


@pytest.mark.parametrize(
    "dense",
    [np.zeros((4, 3)), np.ones((4, 3)), [[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 3.0, 4.0]], [[5.0, np.nan]]],
    ids=["zeros", "ones", "no pair twice", "one entry"],
)
def test_errors_are_never_undefined(dense):
    panel = Panel.from_dense(dense)
    moments, i, j = upper_pairs(panel)
    lookup = PairLookup(panel)
    np.testing.assert_allclose(lookup.at(i, j).standard_error, standard_errors(moments), rtol=1e-9)
    everything = np.divmod(np.arange(panel.n_columns**2), panel.n_columns)
    assert not np.isnan(lookup.at(*everything).standard_error).any()


def test_kappa_from_some_columns_is_near_that_from_all(monkeypatch):
    panel = random_panel(6, n=2000, d=60, high=12)
    _, i, j = upper_pairs(panel)
    exact = PairLookup(panel)
    errors = exact.at(i, j).standard_error
    monkeypatch.setattr(lookup, "SAMPLED_PRODUCTS", 30_000)
    sampled = PairLookup(panel)
    assert sampled.ratios[0] == exact.ratios[0]
    assert sampled.ratios[1] != exact.ratios[1]
    np.testing.assert_allclose(sampled.ratios, exact.ratios, rtol=0.1)
    np.testing.assert_allclose(sampled.at(i, j).standard_error, errors, rtol=0.05)
    assert PairLookup(panel).ratios == sampled.ratios


D, FACTORS = 24, np.random.default_rng(0).normal(size=(24, 2)) * [1.4, 1.0]
COVARIANCE, NOISE = FACTORS @ FACTORS.T, 0.5


def population_panel(seed, n=800, per_row=6):
    """Fresh rows from a fixed population; columns 2k and 2k + 1 are never seen together."""
    rng = np.random.default_rng([seed, 1])
    M = rng.normal(size=(n, 2)) @ FACTORS.T + rng.normal(0, NOISE, size=(n, D))
    couples = np.argsort(rng.random((n, D // 2)), axis=1)[:, :per_row]
    dense = np.full((n, D), np.nan)
    seen = 2 * couples + rng.integers(2, size=couples.shape)
    np.put_along_axis(dense, seen, np.take_along_axis(M, seen, axis=1), axis=1)
    return Panel.from_dense(dense), M


def inside(bands, truth):
    return (bands.lower <= truth) & (truth <= bands.upper)


@pytest.fixture(scope="module")
def one_thread():
    """These panels are too small to share among threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONESIDED_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def coverage(one_thread):
    """Shares of 90% bands that hold the truth, over independent panels."""
    top = np.linalg.eigvalsh(COVARIANCE)[::-1][:2]
    space = np.linalg.svd(FACTORS, full_matrices=False)[0]
    apart = np.arange(0, D, 2)
    held = {"eigenvalues": [], "never measured": [], "measured": [], "angles": []}
    for seed in range(REPEATS):
        panel, M = population_panel(seed)
        found = bootstrap(panel, rank=2, rng=seed)
        held["eigenvalues"].append(inside(found.eigenvalues(LEVEL), top))
        held["never measured"].append(inside(found.entries(apart, apart + 1, LEVEL), COVARIANCE[apart, apart + 1]))
        fitted = np.linalg.svd(found.loadings[:, 2:], full_matrices=False)[0]
        tilt = np.arccos(np.clip(np.linalg.svd(fitted.T @ space, compute_uv=False), 0, 1))
        held["angles"].append(tilt <= found.angles(LEVEL).upper)
        moments, i, j = upper_pairs(panel)
        wrong = np.abs(hajek(moments) - (M.T @ M / len(M))[i, j])
        held["measured"].append(wrong <= norm.ppf((1 + LEVEL) / 2) * PairLookup(panel).at(i, j).standard_error)
    return {name: np.array(rows, dtype=float) for name, rows in held.items()}


def allowed(held):
    """Between 86 and 94%, give or take three standard errors of a mean over panels."""
    slack = 3 * held.std(ddof=1) / np.sqrt(len(held))
    return 0.86 - slack <= held.mean() <= 0.94 + slack


def test_bands_hold_the_eigenvalues_of_the_population(coverage):
    assert allowed(coverage["eigenvalues"][:, 0])
    assert allowed(coverage["eigenvalues"][:, 1])


def test_bands_hold_entries_never_measured(coverage):
    assert allowed(coverage["never measured"].mean(axis=1))


def test_standard_errors_hold_the_measured_entries_of_these_rows(coverage):
    assert allowed(coverage["measured"].mean(axis=1))


def test_the_true_row_space_is_within_the_angles(coverage):
    assert coverage["angles"].mean(axis=0).min() > 0.86 - 3 * np.sqrt(0.1 * 0.9 / REPEATS)


def results(found):
    return found.spectrum, found.spectra, found.tilts, found.loadings, found.shifts


def test_the_same_seed_gives_the_same_bits_at_any_number_of_threads(monkeypatch):
    import onesided.engines.threads as local

    monkeypatch.setattr(local, "SMALLEST_BLOCK", 500)
    panel = population_panel(0)[0]
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("ONESIDED_NUM_THREADS", threads)
        found.append(bootstrap(panel, rank=2, replicates=3, rng=7))
    for one, three in zip(*map(results, found), strict=True):
        np.testing.assert_array_equal(one, three)
    other = bootstrap(panel, rank=2, replicates=3, rng=8)
    np.testing.assert_allclose(other.spectrum, found[0].spectrum, rtol=1e-4)
    assert np.all(other.spectra != found[0].spectra)


def test_replicates_are_fits_to_resampled_rows():
    """Warm starts and tolerances aside, a replicate is the estimator at twice the ridge."""
    from onesided.fitting.moment_solution import moment_solution
    from onesided.fitting.setting import Setting

    panel = population_panel(1)[0]
    found = bootstrap(panel, rank=2, replicates=2, rng=3)
    rng = np.random.default_rng(3)
    moment_solution(panel, Setting(2, ridge=0.1), rng=rng)
    for k in range(2):
        resampled = panel.with_row_weights(rng.poisson(1.0, size=panel.n_rows).astype(float))
        fresh = moment_solution(resampled, Setting(2, ridge=0.1 * np.sqrt(2), tol=1e-10)).row_space
        loadings = found.loadings + found.shifts[k]
        np.testing.assert_allclose(loadings[:, 2:] @ loadings[:, 2:].T, fresh.factor @ fresh.factor.T, atol=0.02)
        np.testing.assert_allclose(loadings[:, 0], fresh.mean, atol=1e-6)
        np.testing.assert_allclose(found.spectra[k], np.sum(fresh.factor**2, axis=0), rtol=5e-3)


def test_bands_are_their_formula():
    from scipy.stats import t

    found = bootstrap(population_panel(2)[0], rank=2, replicates=8)
    center, replicates = found.spectrum, found.spectra
    bands = found.eigenvalues(0.8)
    error = replicates.std(axis=0, ddof=1)
    np.testing.assert_allclose(bands.standard_error, error, rtol=1e-9)
    np.testing.assert_allclose(bands.estimate, 2 * center - replicates.mean(axis=0), rtol=1e-12)
    reach = t.ppf(0.9, 7) * np.hypot(error, replicates.mean(axis=0) - center)
    np.testing.assert_allclose(bands.upper - bands.estimate, reach, rtol=1e-9)
    Y = found.loadings + found.shifts
    entries = np.einsum("ka,ka->k", Y[:, 3], Y[:, 5])
    np.testing.assert_allclose(found.entries([3], [5]).standard_error, entries.std(ddof=1), rtol=1e-6)
    one, two = found.entries([3], [5]), found.entries(5, 3)
    np.testing.assert_array_equal(one.lower, two.lower)


def test_only_the_columns_asked_for_need_be_kept():
    panel = population_panel(3)[0]
    whole, some = (bootstrap(panel, rank=2, replicates=3, columns=kept) for kept in (None, [9, 2, 9]))
    for name in ("estimate", "standard_error", "lower", "upper"):
        np.testing.assert_array_equal(
            getattr(some.entries([2, 9], [9, 9]), name), getattr(whole.entries([2, 9], [9, 9]), name)
        )
    assert some.shifts.shape[1] == 2
    with pytest.raises(InputError, match="column 3 is not among the 2 columns that this bootstrap kept"):
        some.entries([2], [3])
    none = bootstrap(panel, rank=2, replicates=3, columns=[])
    np.testing.assert_array_equal(none.spectra, whole.spectra)
    with pytest.raises(InputError, match="column 2 is not among the 0 columns"):
        none.entries([2], [3])


@pytest.mark.parametrize("center", ["none", "columns", "both"])
@pytest.mark.parametrize("diagonal", ["free", "fit"])
def test_every_kind_of_model_has_bands(center, diagonal):
    panel = random_panel(0, n=300, weighted=True, dtype=np.float32)
    found = bootstrap(panel, rank=1, center=center, diagonal=diagonal, replicates=4)
    entries = found.entries([0, 1], [1, 2])
    assert np.all(np.isfinite([entries.lower, entries.upper]))
    assert np.all(entries.standard_error > 0)
    assert np.all(found.eigenvalues().lower >= 0)
    assert (found.loadings[0, 0] == 0) == (center == "none")
    assert (found.loadings[0, 1] > 0) == (center == "both")


def test_rank_zero_leaves_the_means():
    panel = random_panel(1, n=300)
    found = bootstrap(panel, rank=0)
    assert found.eigenvalues().estimate.shape == found.angles().upper.shape == (0,)
    entries = found.entries([0], [1])
    assert entries.lower < found.loadings[0, 0] * found.loadings[1, 0] < entries.upper


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_panels_have_finite_bands(value):
    panel = random_panel(2)
    panel = Panel(panel.indptr, panel.columns, np.full(panel.n_entries, value), panel.n_columns)
    found = bootstrap(panel, rank=2, replicates=5)
    entries, angles = found.entries([0, 1], [1, 1]), found.angles()
    np.testing.assert_allclose(entries.estimate, value**2)
    np.testing.assert_array_equal(entries.standard_error, 0)
    np.testing.assert_array_equal(found.eigenvalues().upper, 0)
    np.testing.assert_allclose(angles.upper, np.pi / 2)  # nothing is known of a space that is not there


def test_weights_of_zero_leave_rows_out():
    panel = population_panel(4)[0]
    kept = np.arange(panel.n_rows) < 400
    found = bootstrap(panel.with_row_weights(kept.astype(float)), rank=2, replicates=2)
    half = bootstrap(panel.take_rows(kept), rank=2, replicates=2)
    np.testing.assert_allclose(found.spectrum, half.spectrum, rtol=1e-6)


def test_columns_lost_in_a_resample_keep_bands_finite_and_wide():
    panel = random_panel(3, n=40)
    dense = np.column_stack([panel.to_dense(), np.full(40, np.nan)])
    dense[0, 12] = 2.0
    found = bootstrap(Panel.from_dense(dense), rank=1, replicates=20)
    entry = found.entries([12], [0])
    assert np.isfinite(entry.upper)
    assert entry.standard_error > 0


def test_progress_is_reported():
    seen = []
    bootstrap(random_panel(0), rank=1, replicates=3, progress=lambda made, of: seen.append((made, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_what_cannot_be_resampled_is_refused(monkeypatch):
    panel = random_panel(0)
    with pytest.raises(InputError, match="9 rows with two entries and a positive weight; a bootstrap over rows needs"):
        bootstrap(Panel.from_dense(np.random.default_rng(0).normal(size=(9, 3))), rank=1)
    with pytest.raises(InputError, match="0 rows with two entries"):
        bootstrap(panel.with_row_weights(np.zeros(60)), rank=1)
    with pytest.raises(InputError, match=r"replicates=1; expected at least 2"):
        bootstrap(panel, rank=1, replicates=1)
    with pytest.raises(InputError, match="rank=13 is larger than the panel's 12 columns"):
        bootstrap(panel, rank=13)
    with pytest.raises(InputError, match="center='rows' is not an option"):
        bootstrap(panel, rank=1, center="rows")
    with pytest.raises(TypeError, match="ridge"):  # bands are for what is not shrunk
        bootstrap(panel, rank=1, ridge=0.5)
    monkeypatch.setattr(uncertainty, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"50 replicates of 12 columns at rank 1 take .* pass columns="):
        bootstrap(panel, rank=1)
    assert bootstrap(panel, rank=1, replicates=2, columns=[3]).columns.tolist() == [3]


def test_pairs_and_levels_that_do_not_exist_are_refused():
    panel = random_panel(0)
    found = bootstrap(panel, rank=1, replicates=2)
    for at in (PairLookup(panel).at, found.entries):
        with pytest.raises(InputError, match="column position 12 is outside 0 to 11"):
            at([0], [12])
        with pytest.raises(InputError, match="2 row positions and 1 column position; give pairs"):
            at([0, 1], [2])
        with pytest.raises(InputError, match="columns must be positions, whole numbers; found float64 of shape"):
            at([0.5], [1])
    for bands in (found.eigenvalues, found.angles, lambda level: found.entries([0], [1], level)):
        with pytest.raises(InputError, match="level=1; expected a share between 0 and 1"):
            bands(1)
