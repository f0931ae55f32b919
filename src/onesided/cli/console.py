"""What commands print: progress on stderr, results on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from onesided.fitting.solvers.result import Progress


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, nothing when it is not a terminal; call it with how much of how much."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def passes(title: str, beside: Callable[[], str] | None = None) -> Iterator[Progress]:
    """What is being done on stderr, for work whose end is not known in advance, and how long it may take at most.

    What ``beside`` tells at each pass is shown with it.
    """
    if not sys.stderr.isatty():
        yield lambda done, loss: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, left="")
        yield Steps(title, lambda text, left: progress.update(task, description=text, left=left), beside=beside)


class Steps:
    """Passes of steps that each have a cost: from what those done have taken follows how long is left, at most.

    >>> clock = iter([0.0, 0.0, 10.0])
    >>> steps = Steps("Fitting", lambda text, left: print([text, left]), lambda: next(clock))
    >>> steps.begin("trying rank 0", 1.0, 9.0)
    ['Fitting: trying rank 0', '']
    >>> steps.begin("trying rank 1", 2.0, 7.0)
    ['Fitting: trying rank 1', 'at most 1:30 left']
    """

    def __init__(
        self,
        title: str,
        show: Callable[[str, str], object],
        clock: Callable[[], float] = perf_counter,
        beside: Callable[[], str] | None = None,
    ) -> None:
        self._title, self._show, self._clock, self._beside = title, show, clock, beside
        self._began, self._spent, self._own = clock(), 0.0, 0.0
        self._doing, self._left = title, ""

    def begin(self, what: str, cost: float, left: float) -> None:
        """A step that costs so much, after which so much may be left at most."""
        taken = self._clock() - self._began
        self._spent, self._own = self._spent + self._own, cost
        self._doing = f"{self._title}: {what}"
        if self._spent > 0:
            seconds = round(taken / self._spent * (cost + left))
            self._left = f"at most {seconds // 60}:{seconds % 60:02} left"
        self._show(self._doing, self._left)

    def __call__(self, done: int, loss: float) -> None:
        beside = f", {self._beside()}" if self._beside else ""
        self._show(f"{self._doing}, pass {done}{beside}", self._left)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """A result on stdout: as JSON, or one line per item."""
    if as_json:
        click.echo(json.dumps(result))
        return
    width = max(len(name) for name in result)
    for name, value in result.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_in_words(value)}")


def _in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value)) or "–"
    return str(value)
