"""The passes of packing: their folder, and which of them an earlier run has finished.

Passes work in the folder ``.NAME.part`` beside the panel. What a pass leaves is renamed there and then noted, with a
key made of all that it depends on: the tables (path, size and time of change), the options, the passes before it. A run
does the passes that are not noted with the key they would have now.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from onesided.errors import counted
from onesided.panels.packed.database import FILE, Database
from onesided.panels.table_files import Progress
from onesided.storage.atomic import remove
from onesided.storage.resume import Notes, digest

Bar = Callable[[str], AbstractContextManager[Progress]]  # given a title, shows how much of how much is done

VERSION = 1  # of what passes leave to each other
NOTES = "passes.jsonl"
OLD_NOTES = "passes.json"  # {name: {"key": …, "found": …}}, as runs of the first format left them


class Finished(NamedTuple):
    """A finished pass: its key, and its result."""

    key: str
    result: dict[str, Any]


@dataclass(frozen=True)
class Passes:
    """The passes of a run: the folder they work in, the database that sorts there, and those that are finished."""

    folder: Path
    database: Database
    notes: Notes
    bar: Bar
    say: Callable[[str], object]

    def once(self, name: str, depends: Any, title: str, work: Callable[[Path, Progress], dict[str, Any]]) -> Finished:
        """The pass that makes the file ``name``: done unless it is noted with the same key."""
        key = digest([VERSION, depends])
        if name in self.notes and self.notes[name][0] != key:
            self.say(f"{title}: once more, as tables or options are not those of the earlier run")
            self.forget(name)
        if name not in self.notes:
            with self.bar(title) as report:
                result = work(self.folder / name, report)
            pa.default_memory_pool().release_unused()  # Arrow would keep it, and DuckDB has its own
            self.notes.note(name, [key, result])
        return Finished(*self.notes[name])

    def forget(self, name: str) -> None:
        """Have a pass done once more."""
        self.notes.forget(name)
        remove(self.folder / name)


@contextmanager
def passes_to(path: Path, memory: int, bar: Bar, say: Callable[[str], object]) -> Iterator[Passes]:
    """The passes that pack to ``path``; their folder stays as long as there is something to go on from."""
    folder = path.absolute().with_name(f".{path.absolute().name}.part")
    database = Database.opened(folder, path, memory)
    notes = _notes(folder)
    try:
        if notes:
            say(f"Continuing after {counted(len(notes), 'pass', 'passes')} of an earlier run")
        for other in folder.iterdir():
            if other.name not in {NOTES, *notes} and not other.name.startswith(FILE):
                remove(other)  # it was not finished
        yield Passes(folder, database, notes, bar, say)
    except BaseException:
        if notes:
            say(f"What is finished stays in {folder}; packing to {path} again goes on from there")
        raise
    finally:
        database.connection.close()
        if not notes:
            shutil.rmtree(folder)


def _notes(folder: Path) -> Notes:
    notes, old = Notes(folder / NOTES, {"passes": VERSION}), folder / OLD_NOTES
    if old.exists():
        for name, finished in json.loads(old.read_text(encoding="utf-8")).items():
            notes.note(name, [finished["key"], finished["found"]])
        old.unlink()
    return notes
