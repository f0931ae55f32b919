"""The file of a dataset from where it is published: whole, with the checksum its publisher states, or not at all.

Bytes go to ``NAME.part``, which gets its name once everything was checked. A part that was left is gone on with where
the publisher states a checksum, which would show a file that has changed meanwhile; otherwise it is begun again.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from onesided.datasets.catalogue import Specification, specification
from onesided.datasets.sources import where_from
from onesided.errors import InputError, counted
from onesided.panels.table_files import Progress

_CHUNK = 1 << 18
_SECONDS = 60  # without a byte
_UNSATISFIABLE = 416  # there is nothing after the bytes that are there


@dataclass(frozen=True)
class Downloaded:
    """A file that was fetched: where it is, its bytes, and in words what is known of them."""

    path: Path
    bytes: int
    checked: str


def download(
    name: str,
    folder: str | os.PathLike[str] = ".",
    *,
    progress: Progress | None = None,
    note: Callable[[str], object] = lambda sentence: None,
) -> Downloaded:
    """Fetch the file of a dataset to a folder.

    ``note`` is called with the terms before anything is fetched, and where an earlier download is continued. A file
    that is there is kept if it has the checksum of the publisher, or if none is published.

    >>> download("jester")
    Traceback (most recent call last):
    onesided.errors.InputError: jester cannot be fetched by an address; Jester, dataset 1, part 1 is ...
    """
    spec, folder = specification(name), Path(folder)
    if spec.url is None:
        raise InputError(f"{name} cannot be fetched by an address; {where_from(spec)}")
    if not folder.is_dir():
        raise InputError(f"cannot write to {folder}: the folder does not exist; make it first")
    path = folder / spec.file
    if path.exists():
        if spec.md5 and _digest(path, "md5") != spec.md5:
            raise InputError(
                f"{path} exists, and is not the file that is published (its MD5 is not {spec.md5}); remove it first"
            )
        note(f"{path} is there already")
        return _described(spec, path)
    note(f"{spec.title}, {spec.page}")
    note(f"Licence: {spec.licence}")
    part = path.with_name(f"{path.name}.part")
    _fetch(spec, part, progress, note)
    if spec.md5 and (digest := _digest(part, "md5")) != spec.md5:
        part.unlink()
        raise InputError(
            f"what came from {spec.url} has MD5 {digest}, and {spec.md5} is published: it was garbled on the way, or "
            "has changed; nothing was kept, try again"
        )
    os.replace(part, path)
    return _described(spec, path)


def _described(spec: Specification, path: Path) -> Downloaded:
    size, checked = path.stat().st_size, f"MD5 {spec.md5}, as published"
    if not spec.md5:
        checked = f"no checksum is published; {counted(size, 'byte')}, SHA-256 {_digest(path, 'sha256')}; loading it "
        checked += "tells whether it is whole"
    return Downloaded(path, size, checked)


def _fetch(spec: Specification, part: Path, progress: Progress | None, note: Callable[[str], object]) -> None:
    """The bytes of the dataset's file in ``part``, as many as the server said."""
    assert spec.url is not None
    start = part.stat().st_size if spec.md5 and part.exists() else 0
    try:
        with _answer(spec.url, start) as answer:
            if getattr(answer, "status", None) != 206:  # the whole file, asked for or not
                start = 0
            if answer.headers.get_content_type() == "text/html":
                raise InputError(f"{spec.url} is a web page, not the file; see {spec.page}")
            if start:
                note(f"Continuing after {counted(start, 'byte')}")
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length else None
            done = start
            with part.open("ab" if start else "wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    if progress:
                        progress(done, total or spec.size or done)
                file.flush()
                os.fsync(file.fileno())
    except (urllib.error.URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise InputError(f"cannot fetch {spec.url} ({error}); try again, or see {spec.page}") from error
    if total is not None and done != total:
        raise InputError(f"the connection to {spec.url} ended after {done:,} of {total:,} bytes; run it again")


def _answer(url: str, start: int) -> Any:
    headers = {"User-Agent": "onesided"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if start and error.code == _UNSATISFIABLE:
            error.close()
            return _answer(url, 0)
        raise


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
