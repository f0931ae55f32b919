"""What commands share: options, progress on stderr, results on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from onesided.fitting.solvers.result import Progress
    from onesided.panels.panel import Panel
    from onesided.panels.refusals import Duplicates, NonFinite

Command = TypeVar("Command", bound=Callable[..., Any])

EXISTING_FILE = click.Path(exists=True, dir_okay=False)
TABLE_OR_PANEL = click.Path(exists=True)  # a packed panel is a folder


def table_options(command: Command) -> Command:
    """How the columns of a long table are named and its oddities treated."""
    for option in reversed(
        (
            click.option(
                "--row",
                metavar="NAME",
                help="The table's column of row ids. If not given, it is recognised by a usual name (user, ...).",
            ),
            click.option("--column", metavar="NAME", help="Its column of column ids; likewise (item, movie_id, ...)."),
            click.option("--value", metavar="NAME", help="Its column of values; likewise (rating, score, ...)."),
            click.option(
                "--duplicates",
                type=click.Choice(["refuse", "mean", "sum", "last"]),
                default="refuse",
                show_default=True,
                help="When a (row, column) pair appears more than once: refuse the table, or merge its values.",
            ),
            click.option(
                "--non-finite",
                type=click.Choice(["refuse", "drop"]),
                default="refuse",
                show_default=True,
                help="When a value is missing (empty, NA, NULL), NaN or infinite: refuse the table, or drop the entry.",
            ),
        )
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


def read_panel(
    path: str, row: str | None, column: str | None, value: str | None, duplicates: Duplicates, non_finite: NonFinite
) -> tuple[Panel, dict[str, int]]:
    """The panel of a file, and how many lines are not among its entries; with a bar while it is read.

    A packed panel is opened as it is: how its tables were to be read was said when it was packed.
    """
    from onesided.errors import InputError
    from onesided.panels.packed.format import HEADER, is_packed, load_packed
    from onesided.panels.panel import Panel
    from onesided.panels.table_files import open_table

    if Path(path).is_dir():
        asked = {"--row": row, "--column": column, "--value": value}
        asked |= {"--duplicates": duplicates, "--non-finite": non_finite}
        said = [name for name, one in asked.items() if one not in (None, "refuse")]
        if said:
            raise InputError(
                f"{', '.join(said)} cannot be said of {path}, a packed panel: say it to pack, or leave it out"
            )
        if not is_packed(path):
            raise InputError(
                f"{path} is not a packed panel: it has no {HEADER}; a folder of Parquet files is read by onesided fit "
                "--engine ray, or packed first, with onesided pack"
            )
        return load_packed(path), {"lines_dropped": 0, "lines_merged": 0}
    with bar("Reading") as report:
        table = open_table(path, row=row, column=column, value=value, progress=report)
        assert table.value is not None
        tally = _Tally()
        panel = Panel.from_table(
            tally.over(table.reader, table.value),
            row=table.row,
            column=table.column,
            value=table.value,
            duplicates=duplicates,
            non_finite=non_finite,
        )
    return panel, {"lines_dropped": tally.lines - tally.finite, "lines_merged": tally.finite - panel.n_entries}


@dataclass
class _Tally:
    """The lines of a table, and those with a finite value, counted as they pass."""

    lines: int = 0
    finite: int = 0

    def over(self, reader: pa.RecordBatchReader, value: str) -> pa.RecordBatchReader:
        import pyarrow as pa
        import pyarrow.compute as pc

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self.lines += batch.num_rows
                self.finite += pc.sum(pc.is_finite(batch.column(value)), min_count=0).as_py()
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())


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
    for name, one in result.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_in_words(one)}")


def _in_words(one: Any) -> str:
    if isinstance(one, float):
        return f"{one:.4g}"
    if isinstance(one, bool) or one is None:
        return {True: "yes", False: "no", None: "–"}[one]
    if isinstance(one, int):
        return f"{one:,}"
    if isinstance(one, list):
        if not one:
            return "–"
        return ", ".join(_in_words(item) for item in one)
    return str(one)
