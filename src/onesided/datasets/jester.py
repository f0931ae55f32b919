"""Jester's dense table: a line per row, the count of its ratings first and 99 where there is none."""

from __future__ import annotations

import numpy as np

from onesided.arrays import Array
from onesided.datasets.readings import Account, Reading
from onesided.datasets.sources import Source
from onesided.errors import InputError
from onesided.panels.table_files import Progress

MISSING = 99.0
LARGEST = 10.0
_JOKES = 100


def read_jester(source: Source, *, verify: bool, progress: Progress | None) -> Reading:
    """The ratings of all lines; rows and columns are numbered from 1. The count must agree with its line.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "jester-1.csv")
    ...     _ = path.write_text(",".join(["1", "-7.82", *["99"] * 99]) + "\\n")
    ...     ((ids, indptr, columns, values),) = read_jester(Source(path), verify=True, progress=None).blocks
    >>> ids, columns, values
    (array([1]), array([0]), array([-7.82]))
    """
    numbers = _numbers(source, verify, progress)
    counts, ratings = numbers[:, 0], numbers[:, 1:]
    observed = ratings != MISSING
    ratings_of_line = observed.sum(axis=1)
    wrong = np.flatnonzero(ratings_of_line != counts)
    if len(wrong):
        u = wrong[0]
        raise InputError(
            f"line {u + 1} of {source} says {counts[u]:g} ratings and has {ratings_of_line[u]}; the file was cut "
            "or edited: export it again"
        )
    beyond = observed & ~(np.abs(ratings) <= LARGEST)
    if beyond.any():
        u, j = np.argwhere(beyond)[0]
        raise InputError(
            f"line {u + 1} of {source} has {ratings[u, j]:g}; expected a rating of -10 to 10, or 99 for none: "
            "export it again"
        )
    indptr = np.concatenate([[0], np.cumsum(ratings_of_line)])
    block = np.arange(1, len(numbers) + 1), indptr, np.nonzero(observed)[1], ratings[observed]
    return Reading(np.arange(1, _JOKES + 1), [block], Account(lines=len(numbers)))


def _numbers(source: Source, verify: bool, progress: Progress | None) -> Array:
    rows = []
    with source.opened(progress) as stream:
        for number, line in enumerate(iter(stream.readline, b""), 1):
            try:
                row = np.array(line.split(b","), dtype=np.float64)
            except ValueError:
                row = np.empty(0)
            if len(row) != _JOKES + 1:
                shown = line[:60].decode("latin1")
                raise InputError(
                    f"line {number} of {source} is {shown!r}…; expected {_JOKES + 1} numbers between ',': the count of "
                    "ratings and a rating for each joke. The file is another, or was cut: export it again"
                )
            rows.append(row)
        if verify:
            stream.check_end(source)
    if not rows:
        raise InputError(f"{source} holds no ratings: it is empty; export it again")
    return np.array(rows)
