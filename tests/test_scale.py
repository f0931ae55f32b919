"""Threads do not change results, and memory does not grow with the square of the columns."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest

from onesided import HajekGD, InputError, OneSidedCompletion, PairMoments, synthetic
from onesided.engines import threads
from tests.conftest import random_panel


@pytest.fixture(scope="module")
def panel():
    truth = synthetic.linear_mixture(40_000, 300, 4, rng=0)
    return synthetic.sample_fixed(truth, 8, rng=1)  # several blocks of rows, several of pairs


def with_threads(monkeypatch, count, work):
    monkeypatch.setenv(threads.THREADS_VARIABLE, str(count))
    return work()


@pytest.mark.parametrize(
    "estimator",
    [
        OneSidedCompletion(rank=4, random_state=0),
        OneSidedCompletion(rank=12, center="none", diagonal="fit", random_state=0),
        HajekGD(rank=4, step_size=50.0, iterations=50, random_state=0),
    ],
    ids=["short rows through A", "short rows through E", "pairs"],
)
def test_factors_are_bit_identical_with_one_and_two_threads(monkeypatch, panel, estimator):
    factors = [with_threads(monkeypatch, count, lambda: estimator.fit(panel).factor_) for count in (1, 2, 2, 3)]
    for other in factors[1:]:
        np.testing.assert_array_equal(other, factors[0])


def test_moments_and_imputation_are_bit_identical_too(monkeypatch, panel):
    model = OneSidedCompletion(rank=4, random_state=0).fit(panel)
    for work in (lambda: PairMoments.from_panel(panel).sums, lambda: model.transform(panel)):
        np.testing.assert_array_equal(*(with_threads(monkeypatch, count, work) for count in (1, 2)))


def test_the_panel_is_cut_into_several_blocks(panel):
    engine = threads.RowBlocks(panel)
    assert len(engine.blocks) > 2
    assert sum(len(block.weights) for block in engine.blocks) == panel.n_rows


@pytest.mark.parametrize("value", ["0", "two", "-1"])
def test_a_bad_number_of_threads_is_refused(monkeypatch, value):
    monkeypatch.setenv(threads.THREADS_VARIABLE, value)
    with pytest.raises(InputError, match=f"ONESIDED_NUM_THREADS='{value}': expected a whole number of at least 1"):
        threads.thread_count()


@pytest.mark.parametrize("target", [1, 3, 7, 100])
def test_cuts_cover_all_rows_once(target):
    indptr = np.concatenate([[0], np.cumsum([0, 5, 0, 0, 2, 9, 1, 0])])
    pieces = threads.cut(indptr, target)
    assert [row for first, last in pieces for row in range(first, last)] == list(range(8))
    assert threads.cut(np.array([0, 0, 0]), 4) == [(0, 2)]


def test_an_error_in_a_block_is_raised(panel):
    def fail(block):
        raise RuntimeError("broken block")

    engine = threads.RowBlocks(panel)
    with pytest.raises(RuntimeError, match="broken block"):
        engine.sum(fail)


@pytest.mark.parametrize("count", ["1", "3"])
def test_no_block_is_begun_after_one_has_failed(monkeypatch, panel, count):
    monkeypatch.setenv(threads.THREADS_VARIABLE, count)
    monkeypatch.setattr(threads, "SMALLEST_BLOCK", 1)
    engine, begun = threads.RowBlocks(panel), []

    def fail(block):
        begun.append(block)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.sum(fail)
    assert len(begun) <= int(count) < len(engine.blocks)


def test_blocks_are_added_in_order_whoever_is_first(monkeypatch, panel):
    monkeypatch.setenv(threads.THREADS_VARIABLE, "3")
    monkeypatch.setattr(threads, "SMALLEST_BLOCK", 1)
    engine = threads.RowBlocks(panel)
    exact = [np.float64(1e16), 1.0, -1e16, *[1.0] * (len(engine.blocks) - 3)]  # the order of these decides
    expected = sum(exact)
    turn = {id(block): k for k, block in enumerate(engine.blocks)}

    def late(block):
        sleep(0.002 * (turn[id(block)] % 3 == 0))
        return (exact[turn[id(block)]],)

    assert engine.sum(late) == (expected,)


def test_wide_rows_need_no_pair_matrix():
    """2,000 rows of 1,000 entries over 200,000 columns: about a billion pairs, and 600 MB are not used."""
    script = """
        import resource
        import numpy as np
        from onesided import OneSidedCompletion, Panel, synthetic

        n, d, m = 2_000, 200_000, 1_000
        truth = synthetic.linear_mixture(n, d, 10, rng=0)
        panel = synthetic.sample_fixed(truth, m, rng=1)
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        before = peak()
        model = OneSidedCompletion(rank=10, center="columns", diagonal="free", random_state=0).fit(panel)
        assert model.solve_.succeeded and np.isfinite(model.factor_).all()
        print(peak() - before)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 600


def test_fits_side_by_side_leave_blas_as_it_was():
    from threadpoolctl import threadpool_info, threadpool_limits

    panel = random_panel(0)
    with threadpool_limits(2, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        with ThreadPoolExecutor(4) as pool:
            fits = [pool.submit(OneSidedCompletion(rank=2, random_state=0).fit, panel) for _ in range(40)]
            assert len({fit.result().factor_.tobytes() for fit in fits}) == 1
        assert [pool["num_threads"] for pool in threadpool_info()] == before
