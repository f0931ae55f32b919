"""What an experiment is, and how one is run: cell after cell, kept as it goes, written as one JSON file.

An experiment is cut into cells: one seed of one panel at one setting, say. A cell is a dictionary of plain values and
says all that its measurement needs, so that a run that was stopped goes on with the cells that are missing. What is
measured in a cell are rows, flat dictionaries; the rows of all cells are the result, and from them alone come the
table, the picture, the expectations and the verdict.
"""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from onesided.errors import InputError
from onesided.experiments.panels import Panels
from onesided.storage.atomic import write_text, written_beside
from onesided.storage.provenance import versions
from onesided.storage.resume import Notes, digest

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"  # experiments run without matplotlib, and then draw nothing
Figure: TypeAlias = "matplotlib.figure.Figure"
Row = dict[str, Any]
Settings = dict[str, Any]
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Expectation:
    """A claim, whether the numbers bear it out, and these numbers in words."""

    claim: str
    holds: bool
    found: str


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table, figure or claim of the paper.

    ``cells`` lists the cells for given settings; ``measure`` makes the rows of one, in which the cell's own values
    need not be repeated; ``expect``, ``verdict``, ``table`` and ``draw`` read the rows of all cells.
    """

    name: str
    title: str
    claim: str  # what the paper says
    method: str  # what is measured here, and how it is defined
    full: Settings
    quick: Settings  # what differs from ``full`` in a quick run
    cells: Callable[[Settings, Panels], Iterable[Row]]
    measure: Callable[[Row, Panels], Row | list[Row]]
    expect: Callable[[list[Row]], list[Expectation]]
    verdict: Callable[[list[Row]], str]
    table: Callable[[list[Row]], str]
    draw: Callable[[list[Row], Figure], None] | None = None

    def settings(self, quick: bool) -> Settings:
        """Those of a full or a quick run."""
        return self.full | self.quick if quick else self.full


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    panels: Panels,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run an experiment, or what is missing of it, and write ``NAME.json``, ``NAME.md`` and ``NAME.svg`` to a folder.

    Returns what is in the JSON file. Rows are kept in a file ``NAME.….part`` until the last cell is done; a run with
    the same settings, versions and data goes on from there. A quick run does not take the place of a full one.
    """
    settings = experiment.settings(quick)
    cells = list(experiment.cells(settings, panels))
    if not cells:
        advice = "see `onesided data list` for where to get them, and name their folder with --data"
        raise InputError(f"{experiment.name} needs real panels, and none was found; {advice}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.json"
    if quick and path.exists() and not json.loads(path.read_text(encoding="utf-8")).get("quick"):
        raise InputError(f"{path} is of a full run, which a quick one would replace: choose another folder")
    depends = {"settings": settings, "versions": versions(), "data": str(panels.folder and panels.folder.resolve())}
    notes = Notes(folder / f"{experiment.name}.{digest(depends)[:8]}.part", depends)
    rows: list[Row] = []
    total = 0.0
    for done, cell in enumerate(cells):
        if progress is not None:
            progress(done, len(cells))
        measure = partial(_measured, experiment, cell, panels)
        measured, seconds = notes.once(json.dumps(cell, sort_keys=True), measure)
        rows, total = rows + measured, total + seconds
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    record = {
        "experiment": experiment.name,
        "title": experiment.title,
        "quick": quick,
        "data": panels.folder is not None,
        "settings": settings,
        "versions": versions(),
        "machine": {"processor": platform.machine(), "cores": cores},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(total, 1),
        "expectations": [asdict(expectation) for expectation in experiment.expect(rows)],
        "verdict": experiment.verdict(rows),
        "rows": rows,
    }
    write_record(record, path)
    write_text(path.with_suffix(".md"), experiment.table(rows))
    if not draw(experiment, rows, path.with_suffix(".svg")):
        path.with_suffix(".svg").unlink(missing_ok=True)  # of an earlier run, whose numbers were others
    notes.remove()
    return record


def _measured(experiment: Experiment, cell: Row, panels: Panels) -> list[Any]:
    """The rows of a cell, and the seconds that measuring them took."""
    start = perf_counter()
    with warnings.catch_warnings():
        # A panel in parts, or a solver that ran out of iterations: what came of it is what is measured.
        warnings.simplefilter("ignore")
        measured = experiment.measure(cell, panels)
    rows = [cell | row for row in ([measured] if isinstance(measured, dict) else measured)]
    return [rows, perf_counter() - start]


def draw(experiment: Experiment, rows: list[Row], path: Path) -> bool:
    """Draw the picture of an experiment; False where matplotlib is not installed or there is no picture."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if experiment.draw is None:
        return False
    # The same numbers give the same file: no date, and names in it that do not change from run to run.
    with matplotlib.rc_context({"svg.hashsalt": experiment.name, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(facecolor="white", layout="constrained")
        FigureCanvasSVG(figure)
        experiment.draw(rows, figure)
        with written_beside(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})
    return True


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record as JSON, one row to a line; NaN and infinity are refused."""
    head = {name: item for name, item in record.items() if name != "rows"}
    lines = ",\n".join("    " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in record["rows"])
    text = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=2).removesuffix("\n}")
    write_text(path, f'{text},\n  "rows": [\n{lines}\n  ]\n}}\n')
