"""ReadingOptions a long table as text into a panel, beside pyarrow's reading of the same text alone.

    python benchmarks/reading.py ratings.csv

Writes the table where the path holds none: 20 million ratings in half stars of 138,000 users and 27,000 films with a
time each, in the manner of MovieLens, users in order and a user's films in the order of their ids; or, with
``--shuffled``, in no order at all. ``pyarrow.csv.read_csv`` makes its four columns numbers; ours chooses three columns,
checks that ids are plain integers, codes them, sorts the entries into rows, refuses duplicates and what is not finite,
and ends with a ``Panel``, as ``onesided fit`` does before it fits. Each runs in a process of its own with everything
imported, in turn, seven times, the file in the page cache; medians are printed. Peak memory is that of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numba
import numpy as np
import pyarrow as pa
from pyarrow import csv

from onesided.cli.reading import ReadingOptions, read_panel
from onesided.panels.panel import Panel

ENTRIES, USERS, FILMS, LARGEST_FILM = 20_000_000, 138_000, 27_000, 131_262
TURNS = 7


def write_ratings(path: Path, rng: np.random.Generator, shuffled: bool) -> None:
    """About 145 ratings for a user, from very few to thousands, of films of very different popularity."""
    lengths = rng.lognormal(4.3, 1.1, USERS) + 20
    users = np.repeat(np.arange(USERS), (lengths * 1.4 * ENTRIES / lengths.sum()).astype(int) + 1)
    popularity = np.cumsum(1 / np.arange(1, FILMS + 1) ** 0.8)
    films = np.searchsorted(popularity, rng.random(len(users)) * popularity[-1])
    places = np.unique(users * FILMS + rng.permutation(FILMS)[films])
    first = np.flatnonzero(np.diff(places // FILMS, prepend=-1))  # one of each user, who is to have some
    others = np.setdiff1d(np.arange(len(places)), first, assume_unique=True)
    chosen = np.concatenate([first, rng.choice(others, ENTRIES - len(first), replace=False)])
    places = places[rng.permutation(chosen) if shuffled else np.sort(chosen)]
    ids = np.sort(rng.choice(LARGEST_FILM, FILMS, replace=False)) + 1
    stars = pa.array([f"{half / 2:.1f}" for half in range(1, 11)]).take(pa.array(rng.integers(10, size=ENTRIES)))
    times = rng.integers(789_652_009, 1_427_784_002, ENTRIES)
    table = {"userId": places // FILMS + 1, "movieId": ids[places % FILMS], "rating": stars, "timestamp": times}
    with path.open("wb") as file:
        file.write(",".join(table).encode() + b"\n")
        csv.write_csv(pa.table(table), file, csv.WriteOptions(include_header=False, quoting_style="none"))


def with_pyarrow(path: str) -> pa.Table:
    return csv.read_csv(path)


def with_onesided(path: str) -> Panel:
    panel, _ = read_panel(path, ReadingOptions())
    return panel


READERS: dict[str, Callable[[str], object]] = {"pyarrow.csv.read_csv": with_pyarrow, "onesided": with_onesided}


def measure(name: str, path: str) -> dict[str, float]:
    """Seconds, and peak memory in MiB."""
    began = perf_counter()
    result = READERS[name](path)
    seconds = perf_counter() - began
    assert result is not None
    return {"seconds": seconds, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_turn(path: Path) -> dict[str, dict[str, float]]:
    """Medians of what is measured of each reader, one after the other in every turn, after a turn to warm up."""
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
    for turn in range(TURNS + 1):
        for name in READERS:
            command = [sys.executable, __file__, str(path), "--measure", name]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            turns[name] += [found] if turn else []
    return {
        name: {what: statistics.median(one[what] for one in measured) for what in measured[0]}
        for name, measured in turns.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--shuffled", action="store_true", help="write the lines in no order")
    parser.add_argument("--measure", choices=READERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, str(arguments.path))))
        return
    if not arguments.path.exists():
        write_ratings(arguments.path, np.random.default_rng(0), arguments.shuffled)
    size = arguments.path.stat().st_size / 2**20
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; pyarrow {pa.__version__}; "
        f"numpy {np.__version__}; numba {numba.__version__}; a file of {size:.0f} MiB\n"
    )
    medians = in_turn(arguments.path)
    alone = medians["pyarrow.csv.read_csv"]["seconds"]
    print("| | seconds | of pyarrow's | peak memory, MiB |")
    print("| --- | --- | --- | --- |")
    for name, one in medians.items():
        print(f"| {name} | {one['seconds']:.2f} | {one['seconds'] / alone:.2f} | {one['MiB']:,.0f} |")


if __name__ == "__main__":
    main()
