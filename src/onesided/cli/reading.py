"""How a table is read: the options that every command with a table has, and its panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from onesided.cli.console import bar
from onesided.cli.options import one_of, option

if TYPE_CHECKING:
    from onesided.panels.panel import Panel
    from onesided.panels.refusals import Duplicates, NonFinite


@dataclass(frozen=True)
class ReadingOptions:
    """How the columns of a long table are named and its oddities treated."""

    row: str | None = option(
        "--row",
        metavar="NAME",
        help="The table's column of row ids. If not given, it is recognised by a usual name (user, ...).",
    )
    column: str | None = option(
        "--column", metavar="NAME", help="Its column of column ids; likewise (item, movie_id, ...)."
    )
    value: str | None = option("--value", metavar="NAME", help="Its column of values; likewise (rating, score, ...).")
    duplicates: Duplicates = option(
        "--duplicates",
        **one_of("refuse", "mean", "sum", "last"),
        help="When a (row, column) pair appears more than once: refuse the table, or merge its values.",
    )
    non_finite: NonFinite = option(
        "--non-finite",
        **one_of("refuse", "drop"),
        help="When a value is missing (empty, NA, NULL), NaN or infinite: refuse the table, or drop the entry.",
    )

    @property
    def given(self) -> str:
        """The options that differ from their defaults, as they are typed.

        >>> ReadingOptions(row="user", non_finite="drop").given
        '--row, --non-finite'
        """
        names = [item.name for item in fields(self) if getattr(self, item.name) != item.default]
        return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def read_panel(path: str, reading: ReadingOptions) -> tuple[Panel, dict[str, int]]:
    """The panel of a file, and how many lines are not among its entries; with a bar while it is read.

    A packed panel is opened as it is: how its tables were to be read was said when it was packed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from onesided.errors import InputError
    from onesided.panels.packed.format import HEADER, is_packed, load_packed
    from onesided.panels.panel import Panel
    from onesided.panels.table_files import open_table

    if Path(path).is_dir():
        if given := reading.given:
            raise InputError(f"{given} cannot be said of {path}, a packed panel: say it to pack, or leave it out")
        if not is_packed(path):
            raise InputError(
                f"{path} is not a packed panel: it has no {HEADER}; a folder of Parquet files is read by onesided fit "
                "--engine ray, or packed first, with onesided pack"
            )
        return load_packed(path), {"lines_dropped": 0, "lines_merged": 0}
    with bar("Reading") as report:
        table = open_table(path, row=reading.row, column=reading.column, value=reading.value, progress=report)
        assert table.value is not None
        lines = finite = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal lines, finite
            for batch in table.reader:
                lines += batch.num_rows
                finite += pc.sum(pc.is_finite(batch.column(table.value)), min_count=0).as_py()
                yield batch

        panel = Panel.from_table(
            pa.RecordBatchReader.from_batches(table.reader.schema, counted()),
            row=table.row,
            column=table.column,
            value=table.value,
            duplicates=reading.duplicates,
            non_finite=reading.non_finite,
        )
    return panel, {"lines_dropped": lines - finite, "lines_merged": finite - panel.n_entries}
