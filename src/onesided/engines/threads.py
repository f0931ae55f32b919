"""Threads over blocks of rows on this machine.

Blocks are cut from the data alone and their results are added in the order of the blocks, so a result does
not depend on how many threads there are. BLAS is held to one thread meanwhile: the threads are ours.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from threading import Condition, Lock
from typing import Any, TypeVar

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.kernels import cpu
from onesided.kernels.bundles import Rows
from onesided.panels.panel import Panel

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS_VARIABLE = "ONESIDED_NUM_THREADS"
SMALLEST_BLOCK = 1 << 17  # entries: below this, starting a block costs more than it saves
MOST_BLOCKS = 64


def thread_count() -> int:
    """Threads in use: the environment variable ``ONESIDED_NUM_THREADS``, or every core this process may use."""
    setting = os.environ.get(THREADS_VARIABLE, "")
    if not setting:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not setting.isdigit() or int(setting) < 1:
        raise InputError(f"{THREADS_VARIABLE}={setting!r}: expected a whole number of at least 1")
    return int(setting)


class _BlasLimit:
    """BLAS at one thread for as long as anyone holds it, in whatever thread; then as it was before."""

    def __init__(self) -> None:
        self._lock, self._holders = Lock(), 0
        self._limit: Any = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold BLAS to one thread: for repeatable sums, and because our threads fill the cores."""
        with self._lock:
            if self._holders == 0:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._limit.restore_original_limits()


single_blas_thread = _BlasLimit().hold


@lru_cache(maxsize=1)
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  numba's dot goes through scipy's BLAS: it must be loaded to be held
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def cut(indptr: Array, block_entries: int) -> list[tuple[int, int]]:
    """Ranges of rows with about ``block_entries`` entries each, whole rows only.

    >>> cut(np.array([0, 3, 4, 9, 10]), 4)
    [(0, 2), (2, 3), (3, 4)]
    """
    n, entries = len(indptr) - 1, int(indptr[-1] - indptr[0])
    pieces = max(1, -(-entries // max(1, block_entries)))
    marks = indptr[0] + np.arange(1, pieces) * (entries / pieces)
    edges = np.unique(np.concatenate([[0], np.searchsorted(indptr, marks), [n]]))
    return [(int(a), int(b)) for a, b in pairwise(edges)]


def in_order(task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The results of ``task`` in the order of ``items``, computed by threads, few at a time."""
    threads = min(thread_count(), len(items))
    with single_blas_thread():
        if threads <= 1:
            yield from map(task, items)
            return
        with ThreadPoolExecutor(threads) as pool:
            running: deque[Future[Result]] = deque()
            for item in items:
                if len(running) > threads:  # one waits, so that no thread does
                    yield running.popleft().result()
                running.append(pool.submit(task, item))
            while running:
                yield running.popleft().result()


Run = Callable[[Sequence[Callable[[], Any]]], list[Any]]


@contextmanager
def workers() -> Iterator[Run]:
    """A function that makes calls in threads and returns their results in order: for work of many small steps."""
    threads = thread_count()
    with single_blas_thread():
        if threads == 1:
            yield lambda calls: [call() for call in calls]
            return
        with ThreadPoolExecutor(threads) as pool:
            yield lambda calls: [future.result() for future in [pool.submit(call) for call in calls]]


class RowBlocks:
    """Holds the rows of a panel in blocks, with the panel's weights or others, and runs passes over them.

    >>> engine = RowBlocks(Panel.from_dense([[1.0, 1.0], [np.nan, 1.0]]))
    >>> engine.sum(lambda block: (block.weights.sum(),))
    (2.0,)
    """

    def __init__(self, panel: Panel, weights: Array | None = None) -> None:
        weights = (panel.row_weights if weights is None else weights).view()
        weights.flags.writeable = False  # as those of panels are: kernels are compiled once for both
        self.rows = Rows.of(panel.indptr, panel.columns, panel.values, weights)
        # A block's result is as large as the factor: blocks much smaller than it would only move memory. Still, there
        # are four for threads to share where they are not smaller than the factor itself.
        few = max(2 * panel.n_columns, min(16 * panel.n_columns, -(-panel.n_entries // 4)))
        size = max(SMALLEST_BLOCK, few, -(-panel.n_entries // MOST_BLOCKS))
        self.blocks = [self.rows.taken(slice(*block)) for block in cut(panel.indptr, size)]

    def map(self, task: Callable[[Rows], Result]) -> Iterator[Result]:
        """What ``task`` returns for each block, in order."""
        return in_order(task, self.blocks)

    def sum(self, task: Callable[[Rows], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The element-wise sum over blocks of what ``task`` returns, in double precision."""
        threads = min(thread_count(), len(self.blocks))
        total = _Total(task, self.blocks, held=threads + 1)
        with single_blas_thread():
            if threads == 1:
                total.work()
            else:  # this thread is one of them
                with ThreadPoolExecutor(threads - 1) as pool, total.stopping():
                    others = [pool.submit(total.work) for _ in range(threads - 1)]
                    total.work()
                    for other in others:
                        other.result()
        return tuple(part if part.ndim else float(part) for part in total.parts)


class _Total:
    """A sum over blocks that threads work on together, each added in its turn by the thread that comes to it."""

    def __init__(self, task: Callable[[Rows], tuple[Any, ...]], blocks: Sequence[Rows], held: int) -> None:
        self.parts: list[Array] = []
        self._task, self._blocks, self._held = task, blocks, held
        self._begun, self._added, self._waiting = 0, 0, dict[int, tuple[Any, ...]]()
        self._adding, self._failed, self._state = False, False, Condition()

    def work(self) -> None:
        """Take blocks until there are none left."""
        with self.stopping():
            while (k := self._next()) is not None:
                result = self._task(self._blocks[k])
                with self._state:
                    self._waiting[k] = result
                self._add()

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Where something fails or is interrupted, no thread takes another block."""
        try:
            yield
        except BaseException:
            with self._state:
                self._failed = True
                self._state.notify_all()
            raise

    def _next(self) -> int | None:
        """The next block, once few enough results are held; None if there is none, or another thread has failed."""
        with self._state:
            self._state.wait_for(lambda: self._failed or self._begun - self._added < self._held)
            if self._failed or self._begun == len(self._blocks):
                return None
            self._begun += 1
            return self._begun - 1

    def _add(self) -> None:
        """Add all results whose turn it is, unless another thread is at it."""
        while True:
            with self._state:
                if self._adding or self._added not in self._waiting:
                    return
                self._adding, result = True, self._waiting.pop(self._added)
            if not self.parts:
                self.parts = [np.asarray(part, dtype=np.float64) for part in result]
            else:
                for k, part in enumerate(result):
                    if np.ndim(part) == 2:
                        cpu.add(self.parts[k], part)
                    else:
                        self.parts[k] += part
            with self._state:
                self._adding, self._added = False, self._added + 1
                self._state.notify_all()
