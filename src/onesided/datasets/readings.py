"""What a reader of files hands on: column ids, blocks of whole rows, and an account of what it read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from onesided.arrays import Array
from onesided.panels.packed.format import RowBlock
from onesided.panels.panel import Panel


@dataclass
class Account:
    """What was read, known when all blocks have passed: lines of the data, and in sentences what was left out.

    >>> Account(lines=3, notes=["1 line without a value was left out"]).lines
    3
    """

    lines: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reading:
    """A file as a panel to be: blocks of whole rows in their order, over columns that are known from the start."""

    column_ids: Array
    blocks: Iterable[RowBlock]
    account: Account

    @classmethod
    def of_panel(cls, panel: Panel, account: Account) -> Reading:
        """A panel in memory: one block.

        >>> reading = Reading.of_panel(Panel.from_arrays([1, 2], [7, 8], [5.0, 3.0]), Account(2))
        >>> reading.column_ids
        array([7, 8])
        """
        return cls(panel.column_ids, [(panel.row_ids, panel.indptr, panel.columns, panel.values)], account)
