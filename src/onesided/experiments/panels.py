"""The panels experiments run on: real ones of a folder, or stand-ins where no folder is given.

A stand-in has the shape of its kind and is far smaller: ``ratings`` are drawn with the skew of MovieLens, ``digits``
are the 1,797 handwritten digits that come with scikit-learn, complete. Every row of a result names its panel.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from onesided.errors import InputError
from onesided.experiments.standins import skewed_panel
from onesided.panels.panel import Panel

MOVIELENS = tuple(f"movielens-{size}" for size in ("100k", "1m", "10m", "20m", "25m", "32m"))
CODED = "genomes coded 1 and 2"  # as the paper has them: 0 and 1 mapped to 1 and 2
REAL = (*MOVIELENS, "amazon-reviews-2023", "goodbooks", "jester", "book-crossing", "renttherunway", "genomes", CODED)
STAND_INS = ("ratings", "digits")
TENTHS = {"a tenth of 20m": (13_849, 2_674, 190), "a tenth of 25m": (16_254, 5_905, 182)}  # rows, columns, per row
COMPLETE = {"jester": 5 / 72, "genomes": 0.01, CODED: 0.01, "digits": 8 / 64}  # share of entries that is trained on


class Panels:
    """Panels by name.

    >>> Panels(None).names
    ['ratings', 'digits']
    >>> Panels(None).load("digits")
    Panel(1,797 rows × 64 columns, 115,008 entries)
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"{folder} is not a folder; expected one with the files of the real panels")

    @property
    def names(self) -> list[str]:
        """Those at hand."""
        if self.folder is None:
            return list(STAND_INS)
        from onesided.datasets import find

        return [name for name in REAL if find(_dataset(name), self.folder) is not None]

    def load(self, name: str) -> Panel:
        """One of them; the last one stays in memory."""
        return _load(name, self.folder)


@lru_cache(maxsize=1)
def _load(name: str, folder: Path | None) -> Panel:
    if name == "ratings":
        return skewed_panel(3_000, 400, 40)
    if name in TENTHS:
        return skewed_panel(*TENTHS[name])
    if name == "digits":
        from sklearn.datasets import load_digits

        return Panel.from_dense(load_digits().data.astype(np.float64))
    from onesided.datasets import find, load

    path = None if folder is None else find(_dataset(name), folder)
    if path is None:
        raise InputError(f"{name} was not found in {folder}; see `onesided data list` for where to get it")
    return load(name, path) if name != CODED else load("genomes", path, coding="paper")


def _dataset(name: str) -> str:
    return "genomes" if name == CODED else name
