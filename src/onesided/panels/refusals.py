"""What is refused of the entries of a table, written once for all readers: in memory, on the disk, on a cluster.

Each reader sees the entries in its own order and in its own pieces, counts what it sees, and refuses at the end, so
that a message has the same counts and the same first example wherever a table is read.

==============================================  ======================================================================
found                                           message
==============================================  ======================================================================
infinite, NaN or missing values                 … has 2 infinite values and 1 NaN or missing value (first at row 7,
                                                column 'tea'); drop them or pass non_finite="drop"
the same in arrays that are in order            … (first at entry 5); drop them
values above 1e75 in magnitude                  … reaches 3e+80 in magnitude, beyond 1e+75, where moments overflow; …
a (row, column) pair that appears twice         3 entries repeat an earlier (row, column) pair, for example row 7,
                                                column 'tea' with values 1 and 2; say how to merge them: duplicates=…
duplicates whose sum float32 does not hold      a sum of duplicates does not fit float32; …
ids that are missing                            … has 2 missing ids (first at position 5); drop them
ids of one kind here, of another kind there     the row ids of a.parquet are integers, those of b.csv are strings; …
ids beyond 64-bit integers                      … has ids beyond 64-bit integers; use strings
ids that are floats, dates, lists, …            … holds double, for example 1.5; ids must be all integers or all
                                                strings; …
a rule that does not exist                      duplicates='first' is not an option; choose one of …
==============================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from onesided.arrays import Array
from onesided.errors import EXPECTED, InputError, check_choice, counted, shown

Duplicates = Literal["refuse", "mean", "sum", "last"]
NonFinite = Literal["refuse", "drop"]

LARGEST_VALUE = 1e75  # the fourth power still fits a double, with room for a sum
ID_KINDS = "ids must be all integers or all strings"
NO_FLOATS = f'{ID_KINDS}; cast floats first, for example with astype("Int64") or astype(str)'


@dataclass(frozen=True)
class ValueRules:
    """What becomes of a pair that appears twice, and of values that are infinite, NaN or missing.

    Parameters
    ----------
    duplicates : "refuse", "mean", "sum" or "last"
    non_finite : "refuse" or "drop"

    Examples
    --------
    >>> ValueRules(duplicates="last")
    ValueRules(duplicates='last', non_finite='refuse')
    """

    duplicates: Duplicates = "refuse"
    non_finite: NonFinite = "refuse"

    def __post_init__(self) -> None:
        check_choice("duplicates", self.duplicates, ("refuse", "mean", "sum", "last"))
        check_choice("non_finite", self.non_finite, ("refuse", "drop"))


def at_pair(ids: Iterable[Any]) -> str:
    """A row and a column by their ids."""
    row, column = map(shown, ids)
    return f"row {row}, column {column}"


def value_column(names: Iterable[str]) -> str:
    """The column of values in words, given what each of several tables calls it."""
    first, *others = dict.fromkeys(names)
    return "the column of values" if others else f"column {first!r}"


@dataclass(frozen=True)
class ValueCounts:
    """Counts over values that are to be refused, which add up over pieces of a table in their order.

    >>> first = ValueCounts.of(np.array([1.0, np.nan]), lambda at: (["ann", "bob"][at], "tea"))
    >>> (first + ValueCounts.of(np.array([np.inf]), lambda at: ("cleo", "rye"))).check("column 'stars'")
    Traceback (most recent call last):
    onesided.errors.InputError: column 'stars' has 1 infinite value and 1 NaN or missing value (first at row 'bob', \
column 'tea'); drop them or pass non_finite="drop"
    """

    infinite: int = 0
    missing: int = 0
    first_non_finite: Any = None  # the ids of its row and column, or what else tells where it is
    largest: float = 0.0  # in magnitude, of the finite values

    @classmethod
    def of(cls, values: Array, locate: Callable[[int], Any]) -> ValueCounts:
        """The counts of an array; ``locate`` tells where the value at a position comes from."""
        largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
        if np.isfinite(largest):  # and so are all
            return cls(largest=largest)
        finite = np.isfinite(values)
        return cls(
            infinite=int(np.isinf(values).sum()),
            missing=int(np.isnan(values).sum()),
            first_non_finite=locate(int(np.argmin(finite))),
            largest=float(np.abs(values[finite]).max(initial=0)),
        )

    def __add__(self, other: ValueCounts) -> ValueCounts:
        return ValueCounts(
            self.infinite + other.infinite,
            self.missing + other.missing,
            other.first_non_finite if self.first_non_finite is None else self.first_non_finite,
            max(self.largest, other.largest),
        )

    @property
    def non_finite(self) -> int:
        """How many values are infinite, NaN or missing."""
        return self.infinite + self.missing

    def check(
        self,
        where: str,
        non_finite: NonFinite = "refuse",
        *,
        location: Callable[[Any], str] = at_pair,
        remedy: str = f"drop them or pass {EXPECTED}",
    ) -> None:
        """Refuse values that are not finite, unless they are dropped, and values that are too large."""
        if non_finite == "refuse" and self.non_finite:
            kinds = [counted(self.infinite, "infinite value")] if self.infinite else []
            kinds += [counted(self.missing, "NaN or missing value")] if self.missing else []
            first = location(self.first_non_finite)
            message = f"{where} has {' and '.join(kinds)} (first at {first}); {remedy}"
            raise InputError(message, option="non_finite", expected=["drop"])
        if self.largest > LARGEST_VALUE:
            raise InputError(
                f"{where} reaches {self.largest:.3g} in magnitude, beyond {LARGEST_VALUE:.0e}, where moments overflow; "
                "rescale the values first"
            )


class Repeats(NamedTuple):
    """Entries that repeat an earlier (row, column) pair: how many, and the first such pair with two of its values."""

    number: int
    pair: tuple[Any, Any]
    values: tuple[float, float]

    def refusal(self, location: Callable[[Any], str] = at_pair) -> InputError:
        """The error that says so."""
        first, second = self.values
        return InputError(
            f"{counted(self.number, 'entry repeats', 'entries repeat')} an earlier (row, column) pair, "
            f"for example {location(self.pair)} with values {first:g} and {second:g}; "
            f"say how to merge them: {EXPECTED}",
            option="duplicates",
            expected=["mean", "sum", "last"],
        )


def check_ids_present(missing: int, first: str, where: str = "") -> None:
    """Refuse missing ids: how many, where the first is and, if they are all of one column, which."""
    if missing:
        column = f"{where} has " if where else ""
        raise InputError(f"{column}{counted(missing, 'missing id')} (first {first}); drop them")


def check_one_kind(axis: str, ids: tuple[str, object], others: tuple[str, object]) -> None:
    """Refuse ids of two sources that are integers in one and strings in the other; each as (kind, source)."""
    if ids[0] != others[0]:
        raise InputError(
            f"the {axis} ids of {ids[1]} are {ids[0]}, those of {others[1]} are {others[0]}; {ID_KINDS}: "
            "write them alike"
        )
