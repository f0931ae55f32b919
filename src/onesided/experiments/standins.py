"""Panels of any size with the skew of MovieLens, made a part at a time, so that little is held."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from onesided.arrays import Array
from onesided.panels.panel import Panel

RANK = 8
PART = 1 << 20  # entries made at a time
ARRAYS = {"columns": np.int32, "values": np.float32}


def skewed_panel(
    n: int, d: int, per_row: float, folder: Path | None = None, *, equal_rows: bool = False, seed: int = 0
) -> Panel:
    """Ratings in half stars: a mean for each column, an effect of each row, eight factors and noise.

    Columns are popular by a power law, rows long by a log-normal one (or all alike). With a folder the arrays lie in
    files there, mapped into memory; without one they are held.
    """
    rng = np.random.default_rng(seed)
    popularity = (np.arange(d) + 10.0) ** -0.9
    edges = np.cumsum(rng.permutation(popularity))
    edges /= edges[-1]
    mean, factor = rng.normal(3.5, 0.4, size=d), rng.normal(size=(d, RANK)) * 0.35 / np.sqrt(RANK)
    lengths = np.full(n, per_row) if equal_rows else np.maximum(rng.lognormal(0.0, 1.1, size=n), 0.1)
    lengths = np.minimum(lengths * per_row / lengths.mean(), d / 3)
    counts, step = [], max(1, int(PART / per_row))
    files: list[BinaryIO] = [BytesIO() if folder is None else (folder / name).open("wb") for name in ARRAYS]
    for first in range(0, n, step):
        wanted = np.maximum(1, rng.poisson(1.05 * lengths[first : first + step]))
        rows = np.repeat(np.arange(len(wanted)), wanted)
        columns = np.minimum(np.searchsorted(edges, rng.random(len(rows))), d - 1)
        key = np.unique(rows * d + columns)  # a column that a row draws twice it has once
        rows, columns = key // d, key % d
        row_effect, coordinates = 0.4 * rng.normal(size=len(wanted)), rng.normal(size=(len(wanted), RANK))
        signal = mean[columns] + row_effect[rows] + np.einsum("ka,ka->k", coordinates[rows], factor[columns])
        values = np.clip(np.round(2 * (signal + 0.85 * rng.normal(size=len(rows)))) / 2, 0.5, 5.0)
        for file, part, dtype in zip(files, (columns, values), ARRAYS.values(), strict=True):
            file.write(part.astype(dtype).tobytes())
        counts.append(np.bincount(rows, minlength=len(wanted)))
    columns, values = (_array(file, dtype) for file, dtype in zip(files, ARRAYS.values(), strict=True))
    return Panel(np.concatenate([[0], np.cumsum(np.concatenate(counts))]), columns, values, d)


def _array(file: BinaryIO, dtype: type) -> Array:
    if isinstance(file, BytesIO):
        return np.frombuffer(file.getbuffer(), dtype)
    file.close()
    return np.memmap(file.name, dtype, "r")
