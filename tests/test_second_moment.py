"""T as an operator: the three outputs agree with their definitions, by entry, by block and by product."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import InputError, PairMoments, Panel, SecondMoment
from onesided.model.second_moment import Entry
from onesided.pairs import lookup
from onesided.pairs.measured import Measured
from onesided.pairs.moments import standard_errors
from tests.conftest import random_panel

KAPPA = 3.0


def build(weighted=False, mean=True, **options):
    panel = random_panel(1, n=30, d=12, low=0, high=5, weighted=weighted)
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(12, 3))
    mu = rng.normal(size=12) if mean else None
    operator = SecondMoment(factor, Measured.from_panel(panel), mean=mu, panel=panel, kappa=KAPPA, **options)
    low_rank = factor @ factor.T + (np.outer(mu, mu) if mean else 0)
    return panel, operator, low_rank


def measured(panel):
    dense = panel.to_dense()
    seen = ~np.isnan(dense)
    filled, w = np.where(seen, dense, 0.0), panel.row_weights[:, None]
    counts = seen.T.astype(float) @ (w * seen)
    sums = filled.T @ (w * filled)
    return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), counts


def expected(name, panel, low_rank):
    T, N = measured(panel)
    if name == "low_rank":
        return low_rank
    if name == "algorithm1":
        return np.where(N > 0, T, low_rank)
    blended = np.where(N > 0, (N * T + KAPPA * low_rank) / (N + KAPPA), low_rank)
    diagonal = np.diag_indices(len(T))
    blended[diagonal] = np.where(N[diagonal] > 0, T[diagonal], low_rank[diagonal])
    return blended


@pytest.mark.parametrize("name", ["low_rank", "algorithm1", "blend"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_outputs(name, weighted, mean, monkeypatch):
    monkeypatch.setattr("onesided.model.second_moment.PAIRS_AT_ONCE", 7)
    panel, operator, low_rank = build(weighted, mean)
    T, truth = getattr(operator, name), expected(name, panel, low_rank)
    assert T.output == name
    np.testing.assert_allclose(T.to_dense(), truth, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(T @ np.eye(12), truth, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(T.T @ np.arange(12.0), truth @ np.arange(12.0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(T.block([3, 3, 0], [1, 3]), truth[np.ix_([3, 3, 0], [1, 3])], rtol=1e-12, atol=1e-12)
    every = np.indices((12, 12)).reshape(2, -1)
    np.testing.assert_allclose(T.at(*every), truth.ravel(), rtol=1e-12, atol=1e-12)
    for i, j in [(0, 1), (5, 5), (11, 2)]:
        assert float(T[i, j]) == pytest.approx(truth[i, j], rel=1e-12)


def test_entries_say_what_they_are():
    dense = np.full((6, 5), np.nan)
    dense[0, :2] = [1.0, 2.0]
    dense[1, 1:3] = [3.0, 4.0]
    dense[2, 3] = 5.0  # alone in its row; column 4 never seen
    ids = np.array(["a", "b", "c", "d", "e"], dtype=object)
    plain = Panel.from_dense(dense)
    panel = Panel(plain.indptr, plain.columns, plain.values, 5, column_ids=ids)
    T = SecondMoment(np.ones((5, 1)), Measured.from_panel(panel), column_ids=ids, panel=panel)
    error = standard_errors(PairMoments.from_panel(panel))[1]
    assert T["a", "b"] == Entry(1.0, pytest.approx(error), 1.0, "measured")
    assert T["b", "b"].count == 2.0
    assert T["a", "c"] == Entry(1.0, None, 0.0, "completed")
    assert T["a", "d"].status == "unsupported"
    assert T["d", "d"].status == "measured"
    assert T["e", "e"].status == "unsupported"
    assert T["a", "e"].status == "unsupported"
    with pytest.raises(InputError, match="1 column id not in the panel: 'zz'"):
        T["a", "zz"]
    with pytest.raises(InputError, match="by two column ids"):
        T["a"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["low_rank", "algorithm1", "blend"])
def test_an_entry_intersects_its_columns_once(name, weighted, monkeypatch):
    panel, operator, _ = build(weighted)
    T, moments = getattr(operator, name), PairMoments.from_panel(panel)
    errors, calls = moments.to_matrix(standard_errors(moments)).toarray(), []
    T[0, 0]  # κ is fitted once, to all pairs
    intersected, block_sums = lookup.intersected, lookup._block_sums
    monkeypatch.setattr(lookup, "intersected", lambda *given: calls.append(given[1]) or intersected(*given))
    monkeypatch.setattr(
        lookup, "_block_sums", lambda *given, **named: calls.append("block") or block_sums(*given, **named)
    )
    seen = set()
    for i, j in np.ndindex(12, 12):
        calls.clear()
        entry = T[i, j]
        assert calls == [i]
        assert entry.value == T.block([i], [j])[0, 0]  # to the last bit
        assert entry.count == pytest.approx(T.shared_rows([i], [j])[0, 0], rel=1e-15)
        assert (entry.standard_error or 0.0) == pytest.approx(errors[i, j], rel=1e-9)
        seen.add(entry.status)
    assert seen == {"measured", "completed"}


def test_outputs_share_what_was_fitted_for_standard_errors(monkeypatch):
    _, operator, _ = build()
    view = operator.algorithm1
    error = operator[0, 1].standard_error
    monkeypatch.setattr(lookup, "_column_sums", None)
    assert view[0, 1].standard_error == operator.blend[0, 1].standard_error == error


def test_zero_weight_rows_measure_nothing():
    panel = Panel.from_dense([[1.0, 2.0], [3.0, 4.0]]).with_row_weights([0.0, 1.0])
    T = SecondMoment(np.zeros((2, 1)), Measured.from_panel(panel), panel=panel)
    assert T.algorithm1[0, 1] == Entry(12.0, 0.0, 1.0, "measured")  # all of the one row that counts


def test_without_its_panel_only_the_model_and_the_diagonal_remain():
    panel, operator, low_rank = build()
    T = SecondMoment(operator.factor, Measured.from_panel(panel))
    np.testing.assert_allclose(T.to_dense(), low_rank)
    assert T[0, 1].count is None
    assert T[0, 0].status == "measured"
    with pytest.raises(InputError, match="'algorithm1' needs measured entries, and this model was saved without"):
        T.algorithm1  # noqa: B018
    with pytest.raises(InputError, match="saved without its panel"):
        T.blend  # noqa: B018


def test_refusals():
    panel, operator, _ = build()
    with pytest.raises(InputError, match="column position 12 is outside 0 to 11"):
        operator.block([12], [0])
    with pytest.raises(InputError, match="position -1 is outside"):
        operator.block([0], [-1])
    with pytest.raises(InputError, match="2 rows and 1 columns; expected as many"):
        operator.at([0, 1], [0])
    with pytest.raises(InputError, match=r"positions, whole numbers; found .*use \[i, j\] for ids"):
        operator.block(["a"], [0])
    with pytest.raises(InputError, match="'blend' needs κ"):
        SecondMoment(operator.factor, Measured.from_panel(panel), panel=panel).blend  # noqa: B018


def test_an_empty_block():
    _, operator, _ = build()
    assert operator.block([], [0, 1]).shape == (0, 2)
    assert operator.algorithm1.block([0], []).shape == (1, 0)


def test_the_operator_forms_nothing_of_size_d_squared():
    d = 200_000
    panel = Panel.from_arrays([0, 0, 1], [5, d - 1, 7], [1.0, 2.0, 3.0])
    wide = Panel(panel.indptr, np.array([5, d - 1, 7]), panel.values, d)
    T = SecondMoment(np.ones((d, 2)), Measured.from_panel(wide), panel=wide)
    assert T.matvec(np.ones(d))[0] == pytest.approx(2 * d)
    assert (T.algorithm1[5, d - 1].value, T[5, d - 1].count) == (2.0, 1.0)
    assert T.algorithm1.matvec(np.ones(d))[5] == pytest.approx(2 * d - 2 - 2 + 1 + 2)


def test_repr():
    assert repr(build()[1]) == "SecondMoment(12 × 12, output='low_rank', rank 4)"


def test_measured_knows_the_diagonal_and_who_can_be_placed():
    panel = Panel.from_dense([[3.0, np.nan, 4.0], [np.nan, 5.0, np.nan], [1.0, 2.0, np.nan]])
    known = Measured.from_panel(panel.with_row_weights([1.0, 2.0, 0.0]))
    np.testing.assert_allclose(known.diagonal, [9.0, 25.0, 16.0])
    np.testing.assert_array_equal(known.counts, [1.0, 2.0, 1.0])
    np.testing.assert_array_equal(known.supported, [True, False, True])  # the row of 1 and 2 does not count


@pytest.mark.parametrize("kappa", [0.0, 1e300])
def test_any_kappa_gives_finite_entries(kappa):
    panel = random_panel(0)
    T = SecondMoment(1e10 * np.ones((12, 1)), Measured.from_panel(panel), panel=panel, kappa=kappa, output="blend")
    assert np.isfinite(T.to_dense()).all()


@pytest.mark.parametrize("ids", [(slice(None), 0), ([0, 1], 2), 3, (0, 1, 2)])
def test_what_is_not_two_ids_is_refused_with_the_way_to_blocks(ids):
    _, T, _ = build()
    with pytest.raises(InputError, match=r"two column ids, for example T\[3, 7\].*block\(rows, columns\)"):
        T[ids]


def test_a_block_takes_positions_in_any_shape():
    _, T, _ = build()
    np.testing.assert_array_equal(T.block(*np.ix_([0, 1], [2, 3])), T.block([0, 1], [2, 3]))
