"""Panels, moments and models on disk: one file each.

A file is an uncompressed ZIP archive of ``header.json`` (kind, format version, settings, and what else is there),
``arrays.safetensors`` and one Parquet file per list of ids. It is written beside its final name and then renamed,
so a file with that name is always whole. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.errors import InputError
from onesided.moments import PairMoments
from onesided.panel import Panel

Array = npt.NDArray[Any]

FORMAT_VERSION = 1
HEADER, ARRAYS = "header.json", "arrays.safetensors"
KINDS = {"panel": "a panel", "moments": "pair moments", "model": "a model"}


@dataclass
class Archive:
    """What a file holds: a kind, settings that JSON can carry, arrays, and lists of ids."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    ids: dict[str, Array] = field(default_factory=dict)

    def add_panel(self, panel: Panel) -> None:
        """Put a panel in, under names of its own."""
        self.settings["panel_columns"] = panel.n_columns
        for name in ("indptr", "columns", "values", "row_weights"):
            self.arrays[f"panel.{name}"] = getattr(panel, name)
        if panel.has_row_ids:
            self.ids["panel_rows"] = panel.row_ids
        if panel.has_column_ids:
            self.ids["panel_columns"] = panel.column_ids

    @property
    def has_panel(self) -> bool:
        """Whether a panel was put in."""
        return "panel.indptr" in self.arrays

    def panel(self) -> Panel:
        """The panel that was put in."""
        return Panel(
            self.arrays["panel.indptr"],
            self.arrays["panel.columns"],
            self.arrays["panel.values"],
            self.settings["panel_columns"],
            row_ids=self.ids.get("panel_rows"),
            column_ids=self.ids.get("panel_columns"),
            row_weights=self.arrays["panel.row_weights"],
        )


def save_panel(panel: Panel, path: str | os.PathLike[str]) -> None:
    """Write a panel to one file.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_panel(Panel.from_dense([[5.0, np.nan], [3.0, 4.0]]), Path(folder, "ratings.onesided"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['ratings.onesided']
    """
    archive = Archive("panel")
    archive.add_panel(panel)
    write(archive, path)


def load_panel(path: str | os.PathLike[str]) -> Panel:
    """Read a panel back.

    >>> panel = Panel.from_arrays(["ann", "ann", "bob"], ["tea", "rye", "tea"], [5.0, 0.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_panel(panel, Path(folder, "drinks.onesided"))
    ...     load_panel(Path(folder, "drinks.onesided")).row_ids.tolist()
    ['ann', 'bob']
    """
    return read(path, "panel").panel()


MOMENT_ARRAYS = ("indptr", "columns", "rows", "sums", "squares", "weight_sums", "squared_weight_sums")


def save_moments(moments: PairMoments, path: str | os.PathLike[str]) -> None:
    """Write pair moments to one file.

    >>> may, june = Panel.from_dense([[5.0, np.nan], [3.0, 4.0]]), Panel.from_dense([[1.0, 2.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_moments(PairMoments.from_panel(may), Path(folder, "may.moments"))  # its rows are no longer needed
    ...     load_moments(Path(folder, "may.moments")) + PairMoments.from_panel(june)
    PairMoments(2 columns, 3 pairs, 3 rows)
    """
    arrays = {name: getattr(moments, name) for name in MOMENT_ARRAYS if getattr(moments, name) is not None}
    write(Archive("moments", {"n_rows": moments.n_rows}, arrays), path)


def load_moments(path: str | os.PathLike[str]) -> PairMoments:
    """Read pair moments back.

    >>> from onesided.moments import hajek
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     panel = Panel.from_dense([[1.0, 2.0], [3.0, np.nan]])
    ...     save_moments(PairMoments.from_panel(panel), Path(folder, "may.moments"))
    ...     hajek(load_moments(Path(folder, "may.moments")))
    array([5., 2., 4.])
    """
    archive = read(path, "moments")
    return PairMoments(archive.settings["n_rows"], **archive.arrays)


@contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to ``path`` on success and removed otherwise."""
    temporary = _temporary_beside(Path(path))
    try:
        yield temporary
        with open(temporary, "r+b") as finished:
            os.fsync(finished.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files private
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_output(
    path: str | os.PathLike[str], endings: tuple[str, ...] = (), *, inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Refuse, before any work is done, a path that is an input, has none of the endings or cannot be written."""
    path = Path(path)
    for one in map(Path, inputs):
        if path.exists() and one.exists() and path.samefile(one):
            raise InputError(f"the output {path} is the input {one}, which it would replace; name another file")
    if endings and path.suffix.lower() not in endings:
        listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise InputError(f"cannot tell the format of {path} from its name; name it {listed}")
    _temporary_beside(path).unlink()


def _temporary_beside(path: Path) -> Path:
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():  # renaming would replace a device such as /dev/null
        raise InputError(f"cannot write {path}: it is not a regular file")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    return Path(name)


def write(archive: Archive, path: str | os.PathLike[str]) -> None:
    """Write an archive, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save

    header = {
        "format": "onesided",
        "version": FORMAT_VERSION,
        "kind": archive.kind,
        "settings": archive.settings,
        "arrays": sorted(archive.arrays),
        "ids": sorted(archive.ids),
    }
    with written_beside(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:
        file.writestr(HEADER, json.dumps(header, indent=1, default=_plain))
        with file.open(ARRAYS, "w", force_zip64=True) as member:
            member.write(save({name: np.ascontiguousarray(one) for name, one in archive.arrays.items()}))
        for name, ids in archive.ids.items():
            with file.open(f"{name}.parquet", "w", force_zip64=True) as member:
                pq.write_table(pa.table({"id": pa.array(ids)}), member)


def read(path: str | os.PathLike[str], kind: str) -> Archive:
    """Read an archive of the given kind; a foreign, newer or damaged file is refused by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import load

    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as file:
            header = _header(path, file, kind)
            arrays = load(file.read(ARRAYS))
            if sorted(arrays) != header["arrays"]:
                raise InputError(f"{path} is damaged: its arrays are not those that its header lists")
            ids = {
                name: pq.read_table(pa.BufferReader(file.read(f"{name}.parquet")))["id"].to_numpy()
                for name in header["ids"]
            }
            return Archive(kind, header["settings"], arrays, ids)
    except InputError:
        raise
    except zipfile.BadZipFile as error:
        raise InputError(f"{path} is not a onesided file, or is damaged or cut short: {error}") from error
    except Exception as error:  # whatever the readers of damaged members raise
        raise InputError(f"{path} is damaged and cannot be read ({type(error).__name__}: {error})") from error


def _header(path: Path, file: zipfile.ZipFile, kind: str) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(file.read(HEADER)) if HEADER in file.namelist() else {}
    if header.get("format") != "onesided":
        raise InputError(f"{path} is a ZIP archive, but not a onesided file")
    if header["version"] > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {header['version']}; this release reads up to {FORMAT_VERSION}: upgrade"
        )
    if header["kind"] != kind:
        raise InputError(f"{path} holds {KINDS[header['kind']]}; expected {KINDS[kind]}")
    return header


def _plain(one: Any) -> Any:
    if isinstance(one, np.generic):  # a parameter chosen from an array
        return one.item()
    raise InputError(f"cannot save {one!r}: settings are numbers, texts and lists of them")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
