"""The folder in which passes work, and what makes a later run go on from there.

Passes work in the folder ``.NAME.part`` beside the panel. What one has finished is renamed there and then noted in
``passes.json``, with a key made of all that it depends on: the tables (path, size and time of change), the options,
the passes before it. A run does the passes that are not noted with the key they would have now.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onesided.errors import EXPECTED, InputError, counted
from onesided.panels.table_files import Progress
from onesided.storage.atomic import written_beside

Bar = Callable[[str], AbstractContextManager[Progress]]  # of a title: what is called with how much of how much

VERSION = 1  # of what passes leave to each other
LINES = 1 << 17  # in a group of a Parquet file
THREADS = 2  # of DuckDB: each of them takes memory of its own
NOTED, DATABASE = "passes.json", "sort.duckdb"


@dataclass(frozen=True)
class Finished:
    """A pass that is done: its key, and what it noted."""

    key: str
    found: dict[str, Any]


@dataclass
class Workshop:
    """The folder beside the panel, what was finished in it, and the connection that sorts (and locks it)."""

    folder: Path
    memory: int
    bar: Bar
    note: Callable[[str], object]
    connection: Any
    finished: dict[str, dict[str, Any]]

    @classmethod
    @contextmanager
    def opened(cls, path: Path, memory: int, bar: Bar, note: Callable[[str], object]) -> Iterator[Workshop]:
        """The folder for the panel at ``path``; it stays as long as there is something to go on from."""
        folder = path.absolute().with_name(f".{path.absolute().name}.part")
        connection = _connect(folder, path, memory)
        try:
            work = cls(folder, memory, bar, note, connection, _noted(folder))
            work._tidy()
            yield work
        except BaseException:
            if _noted(folder):
                note(f"What is finished stays in {folder}; packing to {path} again goes on from there")
            raise
        finally:
            connection.close()
            if not _noted(folder):
                shutil.rmtree(folder)

    def _tidy(self) -> None:
        """Remove what was not finished."""
        if self.finished:
            self.note(f"Continuing after {counted(len(self.finished), 'pass', 'passes')} of an earlier run")
        for other in self.folder.iterdir():
            if other.name not in {NOTED, *self.finished} and not other.name.startswith(DATABASE):
                shutil.rmtree(other) if other.is_dir() else other.unlink()

    def once(self, name: str, depends: Any, title: str, do: Callable[[Path, Progress], dict[str, Any]]) -> Finished:
        """What was noted of the pass that makes the file ``name``; it is done unless it was, with the same key."""
        import pyarrow as pa

        key = hashlib.sha256(json.dumps([VERSION, depends], sort_keys=True).encode()).hexdigest()
        before = self.finished.get(name)
        if before is not None and before["key"] == key:
            return Finished(key, before["found"])
        if before is not None:
            self.note(f"{title}: once more, as tables or options are not those of the earlier run")
            self.forget(name)
        with self.bar(title) as report:
            found = do(self.folder / name, report)
        pa.default_memory_pool().release_unused()  # Arrow would keep it, and DuckDB has its own
        self.finished[name] = {"key": key, "found": found}
        self._write()
        return Finished(key, found)

    def forget(self, name: str) -> None:
        """Have a pass done once more."""
        del self.finished[name]
        self._write()
        old = self.folder / name
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)

    def finish(self) -> None:
        """Have nothing left to go on from: the folder is then removed, in whatever order."""
        (self.folder / NOTED).unlink()

    def _write(self) -> None:
        with written_beside(self.folder / NOTED) as temporary:
            temporary.write_text(json.dumps(self.finished, indent=1), encoding="utf-8")

    def sql(self, query: str, *parameters: Any) -> list[Any]:
        """What a query yields; what goes wrong in it as whoever packs would have it said."""
        import duckdb

        try:
            rows: list[Any] = self.connection.execute(query, parameters).fetchall()
        except duckdb.OutOfMemoryException as error:
            raise InputError(
                f"{self.memory} megabytes are too little to sort these entries; allow more with {EXPECTED}",
                option="memory",
                found=self.memory,
            ) from error
        except (duckdb.InterruptException, RuntimeError) as error:
            if "nterrupt" in str(error):  # by Ctrl-C, whichever of the two it is told by
                raise KeyboardInterrupt from error
            raise
        except duckdb.IOException as error:
            raise OSError(str(error)) from error
        return rows

    def copy(self, query: str, target: Path) -> None:
        """Write what a query yields, in its order, to a Parquet file."""
        with written_beside(target) as temporary:
            self.sql(f"COPY ({query}) TO {_text(temporary)} (FORMAT parquet, ROW_GROUP_SIZE {LINES})")


def _noted(folder: Path) -> dict[str, dict[str, Any]]:
    """The passes that were finished, by the name of what each left."""
    noted = folder / NOTED
    passes: dict[str, dict[str, Any]] = json.loads(noted.read_text(encoding="utf-8")) if noted.exists() else {}
    return passes


def _connect(folder: Path, path: Path, memory: int) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError("packing sorts with DuckDB, which is not installed; pip install 'onesided[pack]'") from error
    folder.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "memory_limit": f"{memory}MB",
        "threads": THREADS,
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    try:
        return duckdb.connect(str(folder / DATABASE), config=settings)
    except duckdb.IOException as error:
        if "lock" in str(error):
            raise InputError(f"another run is packing {path}, in {folder}; wait for it or stop it") from error
        raise OSError(str(error)) from error


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def scanned(*paths: Path) -> str:
    """Parquet files as a table of SQL; in their paths *, ? and [ are letters as others."""
    plain = [Path("".join(f"[{one}]" if one in "*?[" else one for one in str(path))) for path in paths]
    return f"read_parquet([{', '.join(map(_text, plain))}])"
