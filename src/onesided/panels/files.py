"""Panels on disk: one file, or a part of a model's file."""

from __future__ import annotations

import os

from onesided.errors import InputError
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike
from onesided.storage.archive import Archive, read, write

_ARRAYS = "indptr", "columns", "values", "row_weights"


def add_panel(archive: Archive, panel: PanelLike) -> None:
    """Put a panel into an archive, under names of its own."""
    archive.settings["panel_columns"], entries = panel.n_columns, panel.to_panel()
    for name in _ARRAYS:
        archive.arrays[f"panel.{name}"] = getattr(entries, name)
    if panel.has_row_ids:
        archive.ids["panel_rows"] = panel.row_ids
    if panel.has_column_ids:
        archive.ids["panel_columns"] = panel.column_ids


def stored_panel(archive: Archive) -> Panel | None:
    """The panel in an archive; None where it has none."""
    if "panel.indptr" not in archive.arrays:
        return None
    indptr, columns, values, weights = (archive.arrays[f"panel.{name}"] for name in _ARRAYS)
    row_ids, column_ids = archive.ids.get("panel_rows"), archive.ids.get("panel_columns")
    n_columns = archive.settings["panel_columns"]
    return Panel(indptr, columns, values, n_columns, row_ids=row_ids, column_ids=column_ids, row_weights=weights)


def save_panel(panel: PanelLike, path: str | os.PathLike[str]) -> None:
    """Write a panel to one file.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_panel(Panel.from_dense([[5.0, float("nan")], [3.0, 4.0]]), Path(folder, "ratings.onesided"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['ratings.onesided']
    """
    archive = Archive("panel")
    add_panel(archive, panel)
    write(archive, path)


def load_panel(path: str | os.PathLike[str]) -> Panel:
    """Read a panel back.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> panel = Panel.from_arrays(["ann", "ann", "bob"], ["tea", "rye", "tea"], [5.0, 0.0, 3.0])
    >>> with TemporaryDirectory() as folder:
    ...     save_panel(panel, Path(folder, "drinks.onesided"))
    ...     load_panel(Path(folder, "drinks.onesided")).row_ids.tolist()
    ['ann', 'bob']
    """
    panel = stored_panel(read(path, "panel"))
    if panel is None:
        raise InputError(f"{path} is incomplete: it has no panel")
    return panel
