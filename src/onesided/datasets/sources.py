"""Where the bytes of a dataset are: a plain file, a compressed one, or a member of a ZIP archive.

What a file is, is read from its first bytes. A file that is not what its dataset says, or not all of it, is named as
that: a web page saved under its name, an archive without an end, a stream that breaks off.
"""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from onesided.datasets.catalogue import Specification, specification
from onesided.errors import InputError, examples
from onesided.panels.table_files import Progress

_PACKINGS = ("", ".gz", ".xz")
_REPORT_BYTES = 1 << 20  # from one report of progress to the next
_WEB_PAGE = (b"<!doctype", b"<html")
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Source:
    """A file, or one member of an archive; printed as a message names it.

    >>> print(Source(Path("ml-1m.zip"), "ml-1m/ratings.dat"))
    ml-1m/ratings.dat in ml-1m.zip
    """

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.member} in {self.path}"

    @property
    def identity(self) -> list[Any]:
        """What changes when the file does: its path, the member, its size and time of change."""
        state = self.path.stat()
        return [str(self.path.resolve()), self.member, state.st_size, state.st_mtime_ns]

    @contextmanager
    def opened(self, progress: Progress | None = None) -> Iterator[Stream]:
        """Its bytes, decompressed; ``progress`` is called with the bytes of the file read so far and its size."""
        with ExitStack() as stack:
            raw: Any = stack.enter_context(self.path.open("rb"))
            try:
                plain = stack.enter_context(_decompressed(raw) if self.member is None else _member(raw, self.member))
                size = self.path.stat().st_size
                yield Stream(plain, raw, size, progress)
                if progress:
                    progress(size, size)
            except _BROKEN as error:
                reason = str(error) or type(error).__name__
                raise InputError(f"{self} is cut short or corrupt ({reason}); download it again") from error


class Stream(io.RawIOBase):
    """Bytes that are watched as they are read: how far in the file, and whether they end a line."""

    def __init__(self, source: Any, raw: Any, size: int, progress: Progress | None) -> None:
        self._source, self._raw, self._size, self._progress = source, raw, size, progress
        self._last, self._reported = b"\n", 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most so many; none at the end."""
        return self._watched(self._source.read(size))

    def readline(self, size: int | None = -1) -> bytes:
        """The next line, or its first ``size`` bytes."""
        return self._watched(self._source.readline(-1 if size is None else size))

    def _watched(self, data: bytes) -> bytes:
        self._last = data[-1:] or self._last
        if self._progress and (at := self._raw.tell()) >= self._reported + _REPORT_BYTES:
            self._reported = at
            self._progress(at, self._size)
        return data

    def check_end(self, source: Source) -> None:
        """Refuse a file whose last line has no end: all of these files have one."""
        if self._last != b"\n":
            raise InputError(
                f"{source} is cut short: its last line has no end; download it again, or pass verify=False if that is "
                "so on purpose"
            )


def _decompressed(raw: Any) -> Any:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    return lzma.LZMAFile(raw) if magic == b"\xfd7zXZ\0" else raw


@contextmanager
def _member(raw: Any, name: str) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            member = stack.enter_context(stack.enter_context(zipfile.ZipFile(raw)).open(name))
        except (OSError, RuntimeError) as error:  # of offsets, versions and flags that are none
            raise zipfile.BadZipFile(str(error)) from error
        yield member


def find(name: str, folder: str | PathLike[str]) -> Path | None:
    """The file of a dataset in a folder, by its usual names; None if there is none.

    That is the archive as published, the folder it unpacks to, or the bare file of the data, its name prefixed with
    that of the archive, and plain or compressed with gzip or xz: ``ml-1m.zip``, ``ml-1m/ratings.dat`` or
    ``ml-1m.ratings.dat.xz``. In a folder with the name of the one the archive unpacks to, files may go by their bare
    names.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ml-1m.ratings.dat.xz").write_bytes(b"")
    ...     find("movielens-1m", folder).name, find("jester", folder)
    ('ml-1m.ratings.dat.xz', None)
    """
    spec, folder = specification(name), Path(folder)
    if not spec.file:
        return None
    names = [spec.file, *spec.others]
    if spec.member:
        member = PurePosixPath(spec.member)
        unpacked = member.parent.name or spec.file.removesuffix(".zip")
        names.insert(1, f"{unpacked}/{member.name}")
        if folder.absolute().name == unpacked:
            names.append(member.name)
    return _first(folder, names)


def _first(folder: Path, names: list[str]) -> Path | None:
    for name in names:
        for packing in _PACKINGS:
            for path in sorted(folder.glob(name + packing)):
                if path.is_file():
                    return path
    return None


def located(spec: Specification, path: str | PathLike[str]) -> Path:
    """The file of a dataset at ``path``: itself, or in that folder; a missing file is refused with where to get it."""
    path = Path(path)
    if path.is_dir() and spec.file:
        bare = [PurePosixPath(spec.member).name] if spec.member else []
        file = find(spec.name, path) or _first(path, bare)
        if file is None:
            raise InputError(f"there is no file of {spec.title} in {path}; {where_from(spec)}")
        return file
    if not path.is_file():
        raise InputError(f"there is no file {path}; {where_from(spec)}")
    with path.open("rb") as opened:
        start = opened.read(64).lstrip().lower()
    if not start:
        raise InputError(f"{path} is empty; {where_from(spec)}")
    if start.startswith(_WEB_PAGE):
        raise InputError(f"{path} is a web page, saved in the place of {spec.title}; {where_from(spec)}")
    return path


def data_source(spec: Specification, path: Path) -> Source:
    """The data of a dataset in a file: of an archive, the member it is."""
    with path.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if not is_archive:
        if path.suffix.lower() == ".zip":
            raise InputError(f"{path} is not a ZIP archive, despite its name; {where_from(spec)}")
        return Source(path)
    if spec.member is None:
        raise InputError(f"{path} is a ZIP archive, from which {spec.title} is not read; {where_from(spec)}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, RuntimeError) as error:
        raise InputError(f"{path} is a ZIP archive cut short or corrupt ({error}); download it again") from error
    wanted = PurePosixPath(spec.member)
    fitting = [name for name in names if name == spec.member] or [
        name for name in names if PurePosixPath(name).name == wanted.name and not name.startswith("__MACOSX")
    ]
    if len(fitting) != 1:
        raise InputError(
            f"{path} has {len(fitting) or 'no'} files named {wanted.name}, expected one; it holds "
            f"{examples(names, 6)}. This is not the archive of {spec.title}; {where_from(spec)}"
        )
    return Source(path, fitting[0])


def where_from(spec: Specification) -> str:
    """What to download, from where, on which terms, and with which command.

    >>> where_from(specification("goodbooks"))[:60]
    'download goodbooks-10k.zip from https://github.com/zygmuntz/'
    """
    if not spec.file:
        return "give the path of a file of entries"
    size = f" ({spec.size / 1e6:,.1f} MB)" if spec.size else ""
    terms = f"from {spec.page} (licence: {spec.licence})"
    if spec.url is None:
        return f"{spec.title} is {spec.file}{size} {terms}: {spec.how}"
    return f"download {spec.file}{size} {terms}, or have it done: onesided data get {spec.name}"
