"""Packed panels: a folder of arrays that are memory-mapped, for panels larger than memory.

A packed panel is a folder with ``panel.json`` (format, version, shape, and the files with their types and sizes)
and one folder of files: ``indptr.npy`` (int64), ``columns.npy`` (int32), ``values.npy`` (float32 where that loses
nothing, else float64), and ``row_ids.arrow`` and ``column_ids.arrow`` (int64 or strings, uncompressed) where rows
and columns have ids. The header may have a ``source`` as well: what the panel was made of. The arrays are .npy
files, not Arrow's: one can grow at its end while it is written, without being held in memory, and is still one
contiguous array to whoever maps it, numpy being all that is needed.

Blocks are checked as they are written; loading checks only what is cheap. A panel that replaces another is moved into
its folder under a new name, and counts once ``panel.json`` has been renamed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted
from onesided.panels.csr import check_compressed, check_shape
from onesided.panels.panel import Panel
from onesided.panels.panel_like import frozen

if TYPE_CHECKING:
    import pyarrow as pa

RowBlock = tuple[Array, Array, Array, Array]  # ids of whole rows, and these rows compressed: pointers, columns, values

FORMAT_VERSION = 1
HEADER = "panel.json"
KIND = "packed panel"
IDS = {"row": "row_ids.arrow", "column": "column_ids.arrow"}
_TYPES = {"indptr": ("int64",), "columns": ("int32",), "values": ("float32", "float64")}
_BLOCK = 1 << 20  # items of an array looked at, or copied, at a time


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder with the header of a packed panel at ``path``."""
    return Path(path, HEADER).is_file()


def load_packed(path: str | os.PathLike[str]) -> Panel:
    """Open a packed panel: its arrays stay on the disk, and are read as they are used; row ids when asked for.

    >>> from tempfile import TemporaryDirectory
    >>> block = np.array(["ann", "bob"]), np.array([0, 1, 3]), np.array([1, 0, 1]), np.array([5.0, 3.0, 4.0])
    >>> with TemporaryDirectory() as folder:
    ...     write_packed(Path(folder, "small.panel"), np.array(["rye", "tea"]), [block])
    ...     load_packed(Path(folder, "small.panel")).take_rows([1]).to_dense()  # nothing of ann's row is needed
    array([[3., 4.]], dtype=float32)
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"there is no folder {path}")
    if not is_packed(path):
        raise InputError(f"{path} is not a packed panel: it has no {HEADER}")
    try:
        header = read_header(path)
        _check_files(path, header)
        folder = path / header["folder"]
        arrays = {name: _mapped(path, folder / f"{name}.npy", header["types"][name]) for name in _TYPES}
        _check_arrays(path, header, **arrays)
        ids = {axis: StoredIds(folder / name) for axis, name in IDS.items() if name in header["bytes"]}
        for axis, stored in ids.items():
            if len(stored) != header[f"{axis}s"]:
                raise InputError(f"{path} is damaged: {counted(header[f'{axis}s'], axis)} but {len(stored):,} ids")
        columns = ids["column"].all if "column" in ids else None
        return Panel.from_checked(
            **arrays, n_columns=header["columns"], row_ids=ids.get("row"), column_ids=columns, packed=folder.absolute()
        )
    except InputError:
        raise
    except Exception as error:  # whatever the readers of damaged files raise
        raise InputError(f"{path} is damaged and cannot be read ({type(error).__name__}: {error})") from error


def read_header(path: Path) -> dict[str, Any]:
    """Read ``panel.json``; one of something else, or of a newer format, is refused."""
    try:
        header = json.loads((path / HEADER).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged: its {HEADER} cannot be read ({error})") from error
    if not isinstance(header, dict) or (header.get("format"), header.get("kind")) != ("onesided", KIND):
        raise InputError(f"{path} is not a packed panel: its {HEADER} is of something else")
    if header["version"] > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {header['version']}; this release reads up to {FORMAT_VERSION}: upgrade"
        )
    return header


def _check_files(path: Path, header: dict[str, Any]) -> None:
    if Path(header["folder"]).name != header["folder"]:
        raise InputError(f"{path} is damaged: its files are said to lie outside, in {header['folder']}")
    for name, size in header["bytes"].items():
        file = path / header["folder"] / name
        if not file.is_file():
            raise InputError(f"{path} is damaged: {name} is not there; pack it again")
        if file.stat().st_size != size:
            raise InputError(
                f"{path} is damaged: {name} has {file.stat().st_size:,} bytes, expected {size:,}; pack it again"
            )


def _mapped(path: Path, file: Path, kind: str) -> Array:
    array = np.load(file, mmap_mode="r")
    if array.ndim != 1 or array.dtype != kind or kind not in _TYPES[file.stem]:
        raise InputError(f"{path} is damaged: {file.name} holds {array.dtype} of shape {array.shape}; pack it again")
    return np.asarray(array)


def _check_arrays(path: Path, header: dict[str, Any], indptr: Array, columns: Array, values: Array) -> None:
    rows, entries = header["rows"], header["entries"]
    check_shape(rows, header["columns"])
    if (len(indptr), len(columns), len(values)) != (rows + 1, entries, entries):
        raise InputError(f"{path} is damaged: its arrays do not have the lengths that {HEADER} says; pack it again")
    pieces = (indptr[first : first + _BLOCK + 1] for first in range(0, len(indptr), _BLOCK))
    if indptr[0] != 0 or indptr[-1] != entries or any(np.any(piece[1:] < piece[:-1]) for piece in pieces):
        raise InputError(f"{path} is damaged: its row pointers do not rise from 0 to {entries:,}; pack it again")


class StoredIds:
    """Ids in an Arrow file, which are read when they are indexed; all of them only for an array."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        with pa.memory_map(str(path)) as file:
            self._ids: pa.ChunkedArray = pa.ipc.open_file(file).read_all().column("id")

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, at: Any) -> Any:
        import pyarrow as pa

        if np.ndim(at) == 0:
            return self._ids[int(at)].as_py()
        return self._ids.take(pa.array(np.asarray(at))).to_numpy()

    @cached_property
    def all(self) -> Array:
        """All of them, read-only."""
        return frozen(np.asarray(self._ids.to_numpy()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.all, dtype=dtype, copy=copy)


class PackedWriter:
    """Writes a packed panel to a new folder: blocks of whole rows in their order, and then the header.

    Ids are Arrow arrays.
    """

    def __init__(self, folder: Path, column_ids: pa.Array) -> None:
        self._folder, self.name = folder, f"data-{secrets.token_hex(4)}"
        self.n_rows, self.n_columns, self.n_entries = 0, len(column_ids), 0
        self._data = folder / self.name
        self._data.mkdir(parents=True)
        with closing(_IdFile(self._data / IDS["column"])) as file:
            file.append(column_ids)
        self._row_ids = _IdFile(self._data / IDS["row"])
        self._arrays = {
            name: _GrowingArray(self._data / f"{name}.npy", np.dtype(kinds[0])) for name, kinds in _TYPES.items()
        }
        self._arrays["indptr"].append(np.zeros(1))

    def append(self, row_ids: pa.Array, indptr: Array, columns: Array, values: Array) -> None:
        """Add a block of rows: compressed rows, with pointers from 0."""
        indptr, columns, values = check_compressed(indptr, columns, values, self.n_columns)
        with np.errstate(over="ignore"):
            exact = np.array_equal(values.astype(self._arrays["values"].dtype), values)
        if not exact:
            self._arrays["values"] = self._arrays["values"].widened()
        for name, items in zip(_TYPES, (indptr[1:] + self.n_entries, columns, values), strict=True):
            self._arrays[name].append(items)
        self._row_ids.append(row_ids)
        self.n_rows += len(row_ids)
        self.n_entries += len(values)

    def close(self) -> None:
        """Close the files, whole or not."""
        self._row_ids.close()
        for array in self._arrays.values():
            array.close()

    def finish(self, source: Any = None) -> int:
        """Close the files and write the header, with what the panel was made of; returns the bytes of all files."""
        self.close()
        sizes = {file.name: file.stat().st_size for file in sorted(self._data.iterdir())}
        header = {
            "format": "onesided",
            "version": FORMAT_VERSION,
            "kind": KIND,
            "rows": self.n_rows,
            "columns": self.n_columns,
            "entries": self.n_entries,
            "types": {name: str(array.dtype) for name, array in self._arrays.items()},
            "folder": self.name,
            "bytes": sizes,
        }
        if source is not None:
            header["source"] = source
        with open(self._folder / HEADER, "w", encoding="utf-8") as file:
            json.dump(header, file, indent=1)
            _to_disk(file)
        return sum(sizes.values())


def write_packed(
    path: str | os.PathLike[str],
    column_ids: Array,
    blocks: Iterable[RowBlock],
    *,
    describe: Callable[[PackedWriter], Any] = lambda written: None,
) -> None:
    """Write a packed panel, whole or not at all, from blocks of whole rows in their order.

    A panel in memory is one block: its row ids, pointers, columns and values. ``describe`` is called when all blocks
    are written; what it returns is kept in the header as ``source``, and if it raises nothing is left. A packed panel
    that is there is replaced.

    >>> from tempfile import TemporaryDirectory
    >>> block = np.array([7, 9]), np.array([0, 1, 3]), np.array([1, 0, 1]), np.array([5.0, 3.0, 4.0])
    >>> with TemporaryDirectory() as folder:
    ...     write_packed(Path(folder, "small.panel"), np.array([10, 20]), [block])
    ...     load_packed(Path(folder, "small.panel"))
    Panel(2 rows × 2 columns, 3 entries)
    """
    path = Path(path)
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.", suffix=".part") as folder:
        unfinished = Path(folder, "panel")
        with closing(PackedWriter(unfinished, _arrow_ids(column_ids))) as writer:
            for row_ids, *compressed in blocks:
                writer.append(_arrow_ids(row_ids), *compressed)
        if not writer.n_rows:
            raise InputError("a panel needs at least one row and one column; there are no rows to write")
        writer.finish(describe(writer))
        publish(unfinished, path)


def _arrow_ids(ids: Array) -> pa.Array:
    import pyarrow as pa

    return pa.array(ids, pa.int64() if ids.dtype.kind in "iu" else pa.large_string())


def publish(finished: Path, path: Path) -> None:
    """Rename a finished packed panel to ``path``, replacing the packed panel that is there.

    The old panel is whole until the last rename; so this can be stopped anywhere, and done again.
    """
    if not path.exists():
        os.rename(finished, path)
        return
    name = json.loads((finished / HEADER).read_text(encoding="utf-8"))["folder"]
    if (finished / name).exists():
        os.rename(finished / name, path / name)
    os.replace(finished / HEADER, path / HEADER)
    for other in path.glob("data-*"):
        if other.name != name:
            shutil.rmtree(other)  # what is mapped from it stays until it is let go


class _GrowingArray:
    """A .npy file that is appended to; numpy leaves room in the header for the length to come."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.dtype, self._path, self._length = dtype, path, 0
        self._file = open(path, "w+b")  # noqa: SIM115
        self._write_header()

    def _write_header(self) -> None:
        layout = {"descr": self.dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(self._file, layout)

    def append(self, items: Array) -> None:
        self._file.write(np.ascontiguousarray(items, dtype=self.dtype).data)
        self._length += len(items)

    def widened(self) -> _GrowingArray:
        """The same numbers as float64, under the same name."""
        self.close()
        narrow = np.load(self._path, mmap_mode="r")
        wide = _GrowingArray(self._path.with_suffix(".wide"), np.dtype(np.float64))
        for first in range(0, len(narrow), _BLOCK):
            wide.append(narrow[first : first + _BLOCK])
        os.replace(wide._path, self._path)
        wide._path = self._path
        return wide

    def close(self) -> None:
        if not self._file.closed:
            self._file.seek(0)
            self._write_header()
            _to_disk(self._file)
            self._file.close()


class _IdFile:
    """An Arrow file of ids that is appended to; the first are of the type of all."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115
        self._writer: Any = None

    def append(self, ids: pa.Array) -> None:
        import pyarrow as pa

        batch = pa.record_batch([ids], ["id"])
        self._writer = self._writer or pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if not self._file.closed:
            if self._writer:
                self._writer.close()
            _to_disk(self._file)
            self._file.close()


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())
