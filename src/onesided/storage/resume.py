"""Work that goes on where it was stopped: the pieces that are finished, noted by name in a file of JSON lines.

The first line tells what all pieces depend on; each line after it has the name of a piece and what came of it. A line
is written when its piece is finished. One that was cut while it was written has no end: it is left out, and its piece
is done again. So a process may be killed at any time, and loses the piece that was under way.

Packing and experiments keep their notes here. A fit keeps its own (:mod:`onesided.storage.checkpoint`): its pieces
leave arrays, one can be taken up in the middle, and a folder of another fit is refused rather than begun anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onesided.storage.atomic import write_text


def digest(depends: Any) -> str:
    """A key of what work depends on, anything that JSON can carry."""
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


class Notes:
    """The finished pieces of work, by name, in a file, which is begun anew if it is of work with other dependencies.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     notes = Notes(Path(folder, "squares.part"), {"version": 1})
    ...     notes.once("three", lambda: [9])
    ...     Notes(Path(folder, "squares.part"), {"version": 1})["three"]
    [9]
    [9]
    """

    def __init__(self, path: Path, depends: Any) -> None:
        self._path, self._first = path, json.dumps(depends, sort_keys=True) + "\n"
        self._pieces: dict[str, list[Any]] = {}
        first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True) or [""] if path.exists() else [""]
        whole = [line for line in lines if line.endswith("\n")] if first == self._first else []
        for name, *result in map(json.loads, whole):
            self._pieces[name] = result
        if first != self._first or len(whole) < len(lines):
            self._write()

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, name: str) -> list[Any]:
        return self._pieces[name]

    def once(self, name: str, work: Callable[[], list[Any]]) -> list[Any]:
        """What came of a piece: at once if it is noted, else by doing it."""
        if name not in self._pieces:
            self.note(name, work())
        return self._pieces[name]

    def note(self, name: str, result: list[Any]) -> None:
        """Note a piece that is finished."""
        line = json.dumps([name, *result], allow_nan=False) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._pieces[name] = result

    def forget(self, name: str) -> None:
        """Have a piece done again."""
        del self._pieces[name]
        self._write()

    def remove(self) -> None:
        """Have nothing left to go on from."""
        self._pieces.clear()
        self._path.unlink()

    def _write(self) -> None:
        lines = [json.dumps([name, *result]) + "\n" for name, result in self._pieces.items()]
        write_text(self._path, "".join([self._first, *lines]))
