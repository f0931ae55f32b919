"""Numbers that tell whether two panels hold the same entries, whatever holds them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onesided.arrays import Array
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

CHECKED = 1 << 20  # items of an array summed at a time


def fingerprint(panel: PanelLike) -> dict[str, Any]:
    """Shape, precision and checksums of a panel, as JSON takes them.

    >>> panel, other = Panel.from_dense([[1.0, 2.0]]), Panel.from_dense([[1.0, 3.0]])
    >>> fingerprint(panel) == fingerprint(other)
    False
    """
    entries = Checksum(), Checksum()
    for _, _, (columns, values) in panel.by_shards(_checked_entries):
        entries = entries[0] + columns, entries[1] + values
    sums = [Checksum.of(panel.row_counts), *entries, Checksum.of(panel.row_weights)]
    shape = {"rows": panel.n_rows, "columns": panel.n_columns, "entries": panel.n_entries}
    return shape | {"checksums": [checksum.weighed for checksum in sums], "precision": str(panel.dtype)}


class Checksum(NamedTuple):
    """Of a list of numbers, hashed to a_k of 64 bits each: how many, Σ a_k and Σ (2k + 1) a_k, modulo 2⁶⁴.

    Those of two lists give that of the one followed by the other.

    >>> Checksum.of(np.arange(5)) == Checksum.of(np.arange(2)) + Checksum.of(np.arange(2, 5))
    True
    """

    number: int = 0
    sum: int = 0
    weighed: int = 0

    @classmethod
    def of(cls, array: Array) -> Checksum:
        """Of an array, some of it at a time."""
        total = cls()
        for first in range(0, len(array), CHECKED):
            part = np.asarray(array[first : first + CHECKED], np.float64 if array.dtype.kind == "f" else np.int64)
            bits = _hashed(np.ascontiguousarray(part).view(np.uint64))
            odd = 2 * np.arange(len(bits), dtype=np.uint64) + np.uint64(1)
            total += cls(len(bits), int(bits.sum(dtype=np.uint64)), int((odd * bits).sum(dtype=np.uint64)))
        return total

    def __add__(self, other: Checksum) -> Checksum:  # type: ignore[override]
        weighed = self.weighed + other.weighed + 2 * self.number * other.sum
        return Checksum(self.number + other.number, (self.sum + other.sum) % 2**64, weighed % 2**64)


def _hashed(words: Array) -> Array:
    """Hash as SplitMix64 does: doubles of small whole numbers are nearly all zero bits, whose sums would collide."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(words ^ (words >> np.uint64(31)))


def _checked_entries(rows: Panel) -> tuple[Checksum, Checksum]:
    return Checksum.of(rows.columns), Checksum.of(rows.values)
