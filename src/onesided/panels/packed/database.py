"""DuckDB, which sorts entries in as much memory as it is given and on the disk for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onesided.errors import EXPECTED, InputError
from onesided.storage.atomic import written_beside

GROUP_LINES = 1 << 17  # in a row group of a Parquet file
THREADS = 2  # each takes memory of its own
FILE = "sort.duckdb"


@dataclass(frozen=True)
class Database:
    """A connection, and the megabytes that it may take."""

    connection: Any
    memory: int

    @classmethod
    def opened(cls, folder: Path, path: Path, memory: int) -> Database:
        """A database in the folder of those who pack to ``path``, which is locked until it is closed."""
        try:
            import duckdb
        except ImportError as error:
            raise InputError(
                "packing sorts with DuckDB, which is not installed; pip install 'onesided[pack]'"
            ) from error
        folder.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "memory_limit": f"{memory}MB",
            "threads": THREADS,
            "temp_directory": str(folder / "spill"),
            "preserve_insertion_order": False,
        }
        try:
            return cls(duckdb.connect(str(folder / FILE), config=settings), memory)
        except duckdb.IOException as error:
            if "lock" in str(error):
                raise InputError(f"another run is packing {path}, in {folder}; wait for it or stop it") from error
            raise OSError(str(error)) from error

    def run(self, query: str, *parameters: Any) -> list[Any]:
        """Run a query, translating DuckDB's errors."""
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
            if "nterrupt" in str(error):  # Ctrl-C comes as either of the two
                raise KeyboardInterrupt from error
            raise
        except duckdb.IOException as error:
            raise OSError(str(error)) from error
        return rows

    def copy(self, query: str, target: Path) -> None:
        """Write the rows of a query, in its order, to a Parquet file."""
        with written_beside(target) as temporary:
            self.run(f"COPY ({query}) TO {_quoted(temporary)} (FORMAT parquet, ROW_GROUP_SIZE {GROUP_LINES})")


def parquet_scan(*paths: Path) -> str:
    """Parquet files as a table of SQL; *, ? and [ in their paths are taken literally."""
    plain = [Path("".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))) for path in paths]
    return f"read_parquet([{', '.join(map(_quoted, plain))}])"


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
