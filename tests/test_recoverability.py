"""What a panel can support: against brute force on small panels, and on panels whose answer is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from onesided import InputError, PairMoments, Panel, recoverability, synthetic
from onesided.fitting.scales import column_scales
from onesided.pairs import size as omega
from onesided.recoverability import paper_rows


def mixture(rank=3, n=3000, d=40, per_row=8, seed=0):
    return synthetic.sample_fixed(synthetic.linear_mixture(n, d, rank, rng=seed), per_row, rng=seed + 1)


def pure_noise(seed, n=1000, d=60, per_row=6):
    truth = synthetic.Truth(np.zeros((n, 1)), np.zeros((d, 1)), noise=2.0)
    return synthetic.sample_fixed(truth, per_row, rng=seed)


def blocks(*widths, n=40, seed=0):
    """A panel whose columns fall into blocks that share no row."""
    rng = np.random.default_rng(seed)
    dense = np.full((n * len(widths), sum(widths)), np.nan)
    first = 0
    for k, width in enumerate(widths):
        dense[n * k : n * (k + 1), first : first + width] = rng.normal(size=(n, width))
        first += width
    return Panel.from_dense(dense)


def inspect(panel, **options):
    found = recoverability.recoverability(panel, **options)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert str(found) == "\n".join(found.sentences)
    return found


# Counts


@pytest.mark.parametrize("weighted", [False, True])
def test_coverage_against_pair_moments(make_panel, weighted):
    panel = make_panel(3, n=30, d=20, low=0, high=5, weighted=weighted)
    found, formed = inspect(panel), PairMoments.from_panel(panel)
    i, j = formed.pairs()
    rows = formed.rows[i != j]
    coverage = found.coverage
    assert (coverage.exact, coverage.standard_error, coverage.columns_counted) == (True, 0.0, 20)
    assert (coverage.possible_pairs, coverage.observed_pairs) == (190, len(rows))
    assert coverage.share == pytest.approx(len(rows) / 190)
    assert coverage.seen_once == pytest.approx(np.mean(rows == 1))
    counted = coverage.rows_per_pair
    assert (counted.least, counted.median, counted.most) == (rows.min(), np.median(rows), rows.max())
    assert counted.mean == pytest.approx(rows.mean())
    arrays = [formed.indptr, formed.columns, formed.rows, formed.sums, formed.squares]
    if weighted:
        arrays += [formed.weight_sums, formed.squared_weight_sums]
    assert coverage.pair_moments.bytes == sum(array.nbytes for array in arrays)
    assert coverage.pair_moments.pairs == formed.n_pairs


def test_entries_per_row_and_column(make_panel):
    panel = make_panel(1, low=0)
    observed = ~np.isnan(panel.to_dense())
    found = inspect(panel)
    assert (found.rows, found.columns, found.entries) == (60, 12, observed.sum())
    assert found.density == pytest.approx(observed.mean())
    assert found.rows_without_pairs == np.count_nonzero(observed.sum(axis=1) < 2)
    for counted, counts in (
        (found.entries_per_row, observed.sum(axis=1)),
        (found.entries_per_column, observed.sum(axis=0)),
    ):
        assert (counted.least, counted.median, counted.most) == (counts.min(), np.median(counts), counts.max())
        assert np.mean(counts <= counted.ninety_percent) >= 0.9
        assert np.mean(counts < counted.ninety_percent) < 0.9


def test_coverage_of_many_pairs_is_estimated(monkeypatch):
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    monkeypatch.setattr(omega, "LEAST_SAMPLE", 50)
    deviations = []
    for seed in range(8):
        panel = mixture(n=600, d=150, per_row=4, seed=seed)
        i, j = PairMoments.from_panel(panel).pairs()
        truth = np.count_nonzero(i != j) / (150 * 149 / 2)
        coverage = inspect(panel).coverage
        assert not coverage.exact
        assert 25 < coverage.columns_counted <= 50
        assert coverage.observed_pairs == pytest.approx(coverage.share * coverage.possible_pairs, abs=1)
        deviations.append((coverage.share - truth) / coverage.standard_error)
    assert np.max(np.abs(deviations)) < 4
    assert 0.4 < np.sqrt(np.mean(np.square(deviations))) < 2


def test_estimates_say_how_sure_they_are(monkeypatch):
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    assert "(± 0." in str(inspect(mixture(n=500, d=200, per_row=4)))


# Parts


def test_parts_against_walking(make_panel):
    for seed in range(5):
        panel = make_panel(seed, n=9, d=14, low=0, high=4)
        seen = (~np.isnan(panel.to_dense())).astype(int)
        reach = np.linalg.matrix_power(seen.T @ seen + np.eye(14, dtype=int), 14) > 0
        sizes = reach.sum(axis=1)
        parts = inspect(panel).parts
        assert parts.parts == len({tuple(row) for row in reach[sizes > 1].tolist()})
        assert parts.largest_share == pytest.approx(sizes.max() / 14)
        assert parts.columns_never_seen == np.count_nonzero(seen.sum(axis=0) == 0)
        assert parts.unplaced == np.count_nonzero(sizes == 1)
        assert list(parts.examples) == np.flatnonzero(sizes == 1)[:5].tolist()


def test_a_panel_in_parts():
    found = inspect(blocks(6, 3, 3))
    assert (found.parts.parts, found.parts.largest_share, found.parts.unplaced) == (3, 0.5, 0)
    expected = "the panel falls into 3 parts that no chain of rows links, the largest with 50% of the columns: "
    assert f"{expected}columns of different parts can never be compared" in found.sentences


def test_a_panel_in_one_piece_says_nothing_of_parts():
    found = inspect(mixture())
    assert (found.parts.parts, found.parts.largest_share, found.parts.examples) == (1, 1.0, ())
    rank, units, pairs = found.sentences
    assert rank.startswith("rank 3 is supported; ")
    assert units.startswith("columns are measured in units of their own: ")
    assert pairs.startswith("100% of the 780 pairs of columns were seen together, ")


def test_columns_that_cannot_be_placed():
    dense = np.full((6, 5), np.nan)
    dense[:4, :2] = np.arange(8.0).reshape(4, 2) ** 2
    dense[4, 3], dense[5, 3], dense[5, 4] = 1.0, np.nan, 2.0
    found = inspect(Panel.from_dense(dense))
    assert (found.parts.columns_never_seen, found.parts.columns_always_alone) == (1, 2)
    assert "3 columns cannot be placed: 1 never seen, 2 never beside another (first: 2, 3, 4)" in found.sentences
    assert "2 of 6 rows have fewer than two entries and say nothing about pairs of columns" in found.sentences


def test_ids_are_those_of_the_panel():
    panel = Panel.from_arrays(["ann", "ann", "bob"], ["tea", "rye", "gin"], [1.0, 2.0, 3.0])
    assert inspect(panel).parts.examples == ("gin",)


# Evenness


def test_coherence_and_effective_columns():
    dense = np.array([[3.0, 1.0, np.nan, np.nan], [3.0, np.nan, 1.0, np.nan], [-3.0, 1.0, 1.0, np.nan]])
    found = inspect(Panel.from_dense(dense)).evenness
    assert found.coherence == pytest.approx(3 * 9 / 11)
    assert found.effective_columns == pytest.approx(7**2 / (9 + 4 + 4))


def test_alike_columns_have_coherence_one():
    assert inspect(Panel.from_dense(np.full((3, 4), -2.0))).evenness.coherence == pytest.approx(1.0)
    assert inspect(Panel.from_dense(np.zeros((3, 4)))).evenness.coherence == 1.0


# Ranks


def test_strengths_against_the_formula(make_panel):
    panel = make_panel(7, n=80, d=9, low=1, high=6, weighted=True)
    dense, weights = panel.to_dense(), panel.row_weights / np.sqrt(panel.row_counts)
    seen = ~np.isnan(dense)
    means = np.nansum(dense * panel.row_weights[:, None], axis=0) / (seen * panel.row_weights[:, None]).sum(axis=0)
    scales = column_scales(panel.with_row_weights(panel.row_weights / panel.row_weights.mean()))
    values = np.where(seen, (dense - means) / scales, 0.0)
    products = (values.T * weights) @ values
    counts = (seen.T * weights) @ seen
    for matrix in (products, counts):
        np.fill_diagonal(matrix, 0.0)
    shared = counts.sum(axis=1)
    root = np.sqrt(shared + shared.mean() / 10)
    expected = np.linalg.eigvalsh(products / np.outer(root, root) * shared.sum())[::-1][:8]
    strengths = np.array(inspect(panel).strengths)
    assert strengths / strengths[0] == pytest.approx(expected / expected[0])


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_rank_of_a_clear_mixture_is_supported(rank):
    found = inspect(mixture(rank=rank, n=6000))
    assert found.supported_rank == rank
    assert [one.supported for one in found.ranks] == [one.rank <= rank for one in found.ranks]
    further = next(one for one in found.ranks if one.rank > rank)
    assert found.sentences[0].startswith(f"rank {rank} is supported; ")
    if further.rows_needed is None:
        assert found.sentences[0].endswith(f"; nothing points to rank {further.rank}")
    else:
        assert f"; rank {further.rank} needs about " in found.sentences[0]


@pytest.mark.parametrize("seed", range(8))
def test_units_of_columns_do_not_change_what_noise_supports(seed):
    panel = pure_noise(seed)
    powers = np.random.default_rng(seed).permutation(np.resize(np.arange(-6, 7), 60))
    mixed = Panel(panel.indptr, panel.columns, 10.0 ** powers[panel.columns] * panel.values, 60)
    found, expected = inspect(mixed), inspect(panel)
    assert found.strengths == pytest.approx(expected.strengths, rel=0.01)
    assert (found.supported_rank, found.ranks[0].supported) == (expected.supported_rank, expected.ranks[0].supported)
    assert found.evenness.coherence < 1.2
    assert (found.units.own, expected.units.own) == (True, False)
    assert powers[found.units.smallest_column] == -6
    assert powers[found.units.largest_column] == 6
    assert found.units.largest / found.units.smallest == pytest.approx(1e12, rel=0.3)
    assert found.sentences[1] == found.units.sentence()
    assert not any("units" in sentence for sentence in expected.sentences)
    assert found.to_dict()["units"] == {
        "own": True,
        "smallest": found.units.smallest,
        "smallest_column": found.units.smallest_column,
        "largest": found.units.largest,
        "largest_column": found.units.largest_column,
    }


def test_units_of_columns_do_not_change_what_a_mixture_supports():
    panel = mixture(n=6000)
    factors = 10.0 ** np.random.default_rng(0).integers(-6, 7, 40)
    mixed = inspect(Panel(panel.indptr, panel.columns, factors[panel.columns] * panel.values, 40))
    assert mixed.supported_rank == 3
    assert mixed.strengths[:3] == pytest.approx(inspect(panel).strengths[:3], rel=0.01)


def test_noise_supports_no_rank():
    found = [inspect(pure_noise(seed)) for seed in range(8)]
    assert [one.supported_rank for one in found].count(0) >= 7
    assert "only rank 0, the column means, is supported" in str(next(one for one in found if not one.supported_rank))


def test_rows_needed_grow_with_rank_and_tell_enough_from_too_few():
    found = inspect(mixture(rank=5, n=1000, d=60, per_row=5))
    needed = [one.rows_needed for one in found.ranks if one.rows_needed is not None]
    assert needed == sorted(needed)
    for one in found.ranks:
        assert one.rows_needed is None or (one.rows_needed <= found.rows) == one.supported


def test_rows_needed_hold_when_the_rows_come():
    """What is said from too few rows about a rank holds, within a factor, when there are more."""
    whole = mixture(rank=5, n=16_000, d=100, per_row=4)
    few = inspect(whole.take_rows(np.arange(1000)))
    assert few.supported_rank < 5
    needed = next(one.rows_needed for one in few.ranks if one.rank == 5)
    assert inspect(whole.take_rows(np.arange(min(4 * needed, 16_000)))).supported_rank == 5


def test_more_directions_than_were_tried():
    panel = Panel.from_dense(np.random.default_rng(0).normal(size=(4000, 30)) @ np.eye(30, 60))
    dense = panel.to_dense()
    dense[:, 30:] = dense[:, :30]
    found = inspect(Panel.from_dense(dense))
    assert found.supported_rank == 20
    assert found.sentences[0] == "rank 20 is supported, and perhaps more: no more directions were tried"


def test_the_paper_bound():
    assert paper_rows(3, 50, 5.0, 6.0) == pytest.approx(50 * 3**5 * 2**2 * np.log(50) / 25)
    assert paper_rows(3, 50, 5.0, 1.5) == pytest.approx(50 * 3**5 * np.log(50) / 25)
    assert paper_rows(1, 50, 1.9, 1.0) is None
    found = inspect(mixture())
    assert [one.paper_rows for one in found.ranks] == [
        paper_rows(one.rank, 40, 8.0, found.evenness.coherence) for one in found.ranks
    ]


# Weights and randomness


def test_rows_of_weight_zero_are_left_out(make_panel):
    panel = make_panel(2, weighted=True)
    weights = panel.row_weights.copy()
    weights[::3] = 0.0
    assert inspect(panel.with_row_weights(weights)) == inspect(panel.take_rows(weights > 0))


@pytest.mark.parametrize("unit", [1e-200, 1e6, 1e70])
def test_the_unit_of_weights_and_values_does_not_matter(make_panel, unit):
    panel = make_panel(4, weighted=True)
    other = Panel(panel.indptr, panel.columns, unit * panel.values, 12, row_weights=1e-3 * panel.row_weights)
    assert inspect(other).strengths == pytest.approx(inspect(panel).strengths, rel=1e-6)
    assert inspect(other).evenness.coherence == pytest.approx(inspect(panel).evenness.coherence)


def test_the_same_seed_gives_the_same_answer(monkeypatch):
    panel = mixture(n=2000, d=300, per_row=5)
    monkeypatch.setattr(omega, "COUNTED_PRODUCTS", 1)
    first = inspect(panel, rng=3)
    monkeypatch.setenv("ONESIDED_NUM_THREADS", "1")
    assert inspect(panel, rng=np.random.default_rng(3)) == first
    assert inspect(panel, rng=4) != first


def test_single_precision():
    panel = mixture()
    single = Panel(panel.indptr, panel.columns, panel.values.astype(np.float32), 40)
    assert inspect(single).strengths == pytest.approx(inspect(panel).strengths, rel=1e-4)


# Panels with little in them


def test_single_entry_rows_only():
    found = inspect(Panel.from_arrays([1, 2, 3], ["a", "b", "a"], [1.0, 2.0, 3.0]))
    assert (found.supported_rank, found.coverage.observed_pairs, found.parts.parts) == (0, 0, 0)
    assert found.rows_without_pairs == found.rows == 3
    expected = "no row has two entries, so no two columns were ever seen together: only column means can be learnt"
    assert found.sentences[0] == expected
    assert "2 columns cannot be placed" in found.sentences[1]


def test_one_row():
    found = inspect(Panel.from_dense([[1.0, 2.0, 4.0]]))
    assert (found.supported_rank, found.coverage.share, found.parts.parts) == (0, 1.0, 1)
    assert [one.rows_needed for one in found.ranks] == [None, None]


def test_one_column():
    found = inspect(Panel.from_dense([[1.0], [2.0]]))
    assert (found.supported_rank, found.strengths, found.ranks) == (0, (), ())
    assert found.coverage.possible_pairs == 0


def test_two_columns():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 200))
    joined = inspect(Panel.from_dense(np.column_stack([first, first + 0.1 * second])))
    assert (joined.supported_rank, joined.sentences[0]) == (1, "rank 1 is supported")
    assert joined.sentences[1] == "100% of the 1 pair of columns was seen together, 0% of these in one row only"
    assert inspect(Panel.from_dense(np.column_stack([first, second]))).supported_rank == 0


@pytest.mark.parametrize("d", [5, 300])
def test_constant_values(d):
    dense = np.full((20, d), 3.7)
    dense[np.random.default_rng(0).random(dense.shape) < 0.5] = np.nan
    found = inspect(Panel.from_dense(dense))
    assert (found.supported_rank, set(found.strengths)) == (0, {0.0})
    assert {one.rows_needed for one in found.ranks} == {None}


def test_many_columns_that_share_nothing():
    """Every pair has a constant column in it: K is zero although values vary."""
    n, d = 300, 250
    rows, columns = np.repeat(np.arange(n), 2), np.column_stack([np.zeros(n, int), 1 + np.arange(n) % (d - 1)]).ravel()
    values = np.column_stack([np.full(n, 2.0), np.random.default_rng(0).normal(size=n)]).ravel()
    assert inspect(Panel.from_arrays(rows, columns, values)).supported_rank == 0


def test_many_columns_never_seen():
    panel = mixture(n=500, d=30, per_row=5)
    wide = Panel(panel.indptr, panel.columns, panel.values, 1_000_000)
    found = inspect(wide)
    assert (found.coverage.exact, found.parts.columns_never_seen) == (True, 1_000_000 - 30)
    assert found.strengths == pytest.approx(inspect(panel).strengths)


@pytest.mark.parametrize(
    "panel",
    [Panel.from_dense([[np.nan, np.nan]]), Panel.from_dense([[1.0, 2.0]]).with_row_weights([0.0])],
    ids=["no entries", "no weight"],
)
def test_nothing_observed_is_refused(panel):
    with pytest.raises(InputError, match="nothing was observed: 1 row and 2 columns, but no entry of positive weight"):
        recoverability.recoverability(panel)


def test_rounding_errors_are_no_direction_and_no_chance():
    """K is zero but for rounding: the eigensolver must neither fail on it nor find something else each time."""
    n, d = 300, 250
    rows, columns = np.repeat(np.arange(n), 2), np.column_stack([np.zeros(n, int), 1 + np.arange(n) % (d - 1)]).ravel()
    for seed in range(10):
        values = np.column_stack([np.full(n, 2.0), np.random.default_rng(seed).normal(size=n)]).ravel()
        panel = Panel.from_arrays(rows, columns, values)
        found = [inspect(panel) for _ in range(3)]
        assert found[0].supported_rank == 0
        assert found[0].strengths == found[1].strengths == found[2].strengths
