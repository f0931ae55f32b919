"""Pair moments on disk: one file, without the rows they were made of."""

from __future__ import annotations

import os

from onesided.pairs.moments import PairMoments
from onesided.storage.archive import Archive, read, write

MOMENT_ARRAYS = ("indptr", "columns", "rows", "sums", "squares", "weight_sums", "squared_weight_sums")


def save_moments(moments: PairMoments, path: str | os.PathLike[str]) -> None:
    """Write pair moments to one file.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from onesided.panels.panel import Panel
    >>> may, june = Panel.from_dense([[5.0, float("nan")], [3.0, 4.0]]), Panel.from_dense([[1.0, 2.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_moments(PairMoments.from_panel(may), Path(folder, "may.moments"))  # its rows are no longer needed
    ...     load_moments(Path(folder, "may.moments")) + PairMoments.from_panel(june)
    PairMoments(2 columns, 3 pairs, 3 rows)
    """
    arrays = {name: getattr(moments, name) for name in MOMENT_ARRAYS if getattr(moments, name) is not None}
    write(Archive("moments", {"n_rows": moments.n_rows}, arrays), path)


def load_moments(path: str | os.PathLike[str]) -> PairMoments:
    """Read pair moments back.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from onesided.pairs.moments import hajek
    >>> from onesided.panels.panel import Panel
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     panel = Panel.from_dense([[1.0, 2.0], [3.0, float("nan")]])
    ...     save_moments(PairMoments.from_panel(panel), Path(folder, "may.moments"))
    ...     hajek(load_moments(Path(folder, "may.moments")))
    array([5., 2., 4.])
    """
    archive = read(path, "moments")
    return PairMoments(archive.settings["n_rows"], **archive.arrays)
