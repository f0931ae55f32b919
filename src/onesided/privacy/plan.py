"""What a person is promised: ``Privacy``, and what it refuses.

=======================================================  ==========================================================
found                                                    message
=======================================================  ==========================================================
``epsilon`` not from 0.001 to 10,000                     epsilon=0: expected a number from 0.001 to 10000 …
``delta`` not from 10⁻¹⁵ to below 1                      delta=0: expected a number from 1e-15 to 1 …
no ``bounds``, or such that do not enclose an interval   bounds are missing: without them one value could be …
no ``max_entries``, or below 2                           max_entries is missing: …
``neighbours`` other than add-remove, with "local"       the local mechanism has its own neighbours …
``delta`` of 1/n or more at fit, without ``any_delta``   delta=0.001 with 500 rows: at 1/500 or more …
values outside the bounds, without ``clip_values``       3 values lie outside the bounds …
rows of unequal weight                                   rows have weights from 0.5 to 2 …
a panel with column ids, without ``columns``             which columns occur was learnt from the rows …
columns of the panel that ``columns`` does not list      2 column ids unknown to the plan …
column ids of another kind than ``columns``              the plan lists strings as column ids, and the rows …
``columns`` of another number than an array has          the plan lists 3 columns, and the rows have 30 …
``clip_values`` or ``any_delta`` not True or False       any_delta='no': expected True or False
2²⁹ rows or more                                         600,000,000 rows: sums are exact below 536,870,912 …
=======================================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np

from onesided.arrays import Array
from onesided.errors import EXPECTED, InputError, check_choice, counted, examples
from onesided.panels.ids import IdIndex, as_ids, id_kind
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike
from onesided.privacy.accounting import DELTAS, EPSILONS, gaussian_mu

Mechanism = Literal["gradient", "central", "local"]
Neighbours = Literal["add-remove", "replace"]

MECHANISMS: tuple[Mechanism, ...] = ("gradient", "central", "local")
PASSES = 5
LARGEST = 1e70  # of a bound: its square and fourth power are numbers
NARROWEST = 1e-9  # of the larger bound: values between narrower ones are hardly told apart
MOST_ROWS = 2**29  # of which sums of numbers up to one, in units of 2⁻²⁴, are exact in double precision


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A promise of (ε, δ)-differential privacy to the person behind each row, and how it is kept.

    Whoever sees all that was released cannot tell, better than ε and δ allow, a panel from one of its neighbours. With
    "gradient" and "central" these are the panels with one row more or less (or with one row replaced): values,
    pattern and even whether somebody took part are protected, from everybody but the one who fits. With "local" they
    have the same pattern and other values in one row: values are protected from the one who fits, too.

    Parameters
    ----------
    epsilon, delta : float
        ε and δ. Below 1/n, δ is a promise to every row; at or above, some row could be published whole.
    bounds : (float, float)
        The least and the largest value that an entry can have: known in advance, not looked up in the data. They hold
        for all columns, and are what all columns are measured by: a private fit estimates no scales, and ``scales_``
        are ones.
    max_entries : int
        k. Of rows with more entries, k drawn at random are used. The noise grows with it.
    mechanism : "gradient", "central" or "local", default "gradient"
        See :mod:`onesided.privacy`.
    neighbours : "add-remove" or "replace", default "add-remove"
        Which panels count as neighbours, with "gradient" and "central". Replacing needs more noise.
    columns : sequence of ids or "public", optional
        All columns there are, known in advance. Needed where column ids come from a table, as then a column that one
        person alone has would show; "public" says that which columns occur is no secret. Of arrays, whose columns have
        no ids, the number is taken as known: where it was learnt from the rows, as by ``scipy.sparse.csr_array`` when
        it is given no shape, pass ``range(d)`` for d columns.
    clip_values : bool, default False
        Whether values outside the bounds are moved to them, rather than refused.
    any_delta : bool, default False
        Whether δ may be 1/n or more.
    passes : int, default 5
        Of "gradient": how many passes the budget is spent on.

    Examples
    --------
    >>> Privacy(epsilon=1.0, delta=1e-6, bounds=(1, 5), max_entries=20).mu.__round__(4)
    0.2367
    """

    epsilon: float
    delta: float
    bounds: tuple[float, float] | None = None
    max_entries: int | None = None
    mechanism: Mechanism = "gradient"
    neighbours: Neighbours = "add-remove"
    columns: Sequence[Any] | Literal["public"] | None = None
    clip_values: bool = False
    any_delta: bool = False
    passes: int = PASSES

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, MECHANISMS)
        check_choice("neighbours", self.neighbours, ("add-remove", "replace"))
        object.__setattr__(self, "epsilon", _checked("epsilon", self.epsilon, *EPSILONS, "usually from 0.1 to 10"))
        object.__setattr__(self, "delta", _checked("delta", self.delta, *DELTAS, "less than one in all rows"))
        if self.delta == 1:
            raise InputError(f"delta={self.delta!r}: expected a number below 1, less than one in all rows")
        if self.bounds is None:
            raise InputError(
                "bounds are missing: without them one value could be anything, and no noise would hide it; "
                "say what an entry can be, for example bounds=(1, 5)"
            )
        if self.max_entries is None:
            raise InputError(
                "max_entries is missing: without it one row could hold anything; say how many of a row's entries are "
                "used at most, for example max_entries=20"
            )
        # As they are looked at again: plain numbers, and columns that can be gone through more than once.
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds))
        object.__setattr__(self, "max_entries", _checked_whole("max_entries", self.max_entries, 2))
        object.__setattr__(self, "passes", _checked_whole("passes", self.passes, 1))
        for name in ("clip_values", "any_delta"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InputError(f"{name}={getattr(self, name)!r}: expected True or False")
        if isinstance(self.columns, str):
            check_choice("columns", self.columns, ("public",))
        elif self.columns is not None:
            object.__setattr__(self, "columns", _checked_columns(self.columns))
        if self.mechanism == "local" and self.neighbours != "add-remove":
            raise InputError(
                "the local mechanism has its own neighbours, panels of the same pattern; leave neighbours out"
            )

    @property
    def mu(self) -> float:
        """μ of all releases together."""
        return gaussian_mu(self.epsilon, self.delta)

    @property
    def middle(self) -> float:
        """Of the bounds."""
        return (self._bounds[0] + self._bounds[1]) / 2

    @property
    def half(self) -> float:
        """Half the width of the bounds."""
        return (self._bounds[1] - self._bounds[0]) / 2

    @property
    def most(self) -> int:
        """k."""
        assert self.max_entries is not None
        return int(self.max_entries)

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.bounds is not None
        return float(self.bounds[0]), float(self.bounds[1])

    def check_rows(self, n: int) -> None:
        """Refuse a δ that promises nothing to so many rows, and more rows than sums are exact for."""
        if self.delta >= 1 / n and not self.any_delta:
            raise InputError(
                f"delta={self.delta:g} with {counted(n, 'row')}: at 1/{n:,} or more, publishing one row whole would "
                f"be allowed; choose a smaller δ, or pass {EXPECTED}",
                option="any_delta",
                expected=[True],
            )
        if n >= MOST_ROWS:
            raise InputError(f"{n:,} rows: sums are exact below {MOST_ROWS:,}; fit to fewer, drawn at random")

    def admit(self, panel: PanelLike) -> PanelLike:
        """The panel over the columns of the plan with values within the bounds, or a refusal."""
        self.check_rows(panel.n_rows)
        weights = panel.row_weights
        if len(weights) and not np.all(weights == 1):
            raise InputError(
                f"rows have weights from {weights.min():g} to {weights.max():g}; a private fit counts every row once"
            )
        panel = self._over_columns(panel)
        low, high = self._bounds
        outside = int(panel.total(partial(_outside, low=low, high=high)))
        if outside and not self.clip_values:
            raise InputError(
                f"{counted(outside, 'value lies', 'values lie')} outside the bounds {low:g} to {high:g}; give bounds "
                f"that hold for all, or pass {EXPECTED} to move such values to the nearer bound",
                option="clip_values",
                expected=[True],
            )
        return panel

    def _over_columns(self, panel: PanelLike) -> PanelLike:
        if self.columns is None and panel.has_column_ids and self.mechanism != "local":
            raise InputError(
                "which columns occur was learnt from the rows, and a column that one row alone has would show it; "
                f"list all columns in advance as {EXPECTED}, or pass {EXPECTED} if that is no secret",
                option="columns",
                expected=[list, "public"],
            )
        if self.columns is None or isinstance(self.columns, str):
            return panel
        listed = as_ids(self.columns, "columns")
        if not panel.has_column_ids:
            return _with_columns(panel, listed)
        if id_kind(listed) != id_kind(panel.column_ids):
            raise InputError(
                f"the plan lists {id_kind(listed)} as column ids, and the rows have {id_kind(panel.column_ids)}: they "
                "cannot be matched; list them as they are in the rows"
            )
        known = IdIndex(listed).find(panel.column_ids)[1] | (panel.column_counts == 0)
        if not known.all():
            strangers = panel.column_ids[~known]
            raise InputError(
                f"{counted(len(strangers), 'column id')} unknown to the plan: {examples(strangers)}; list all columns "
                "that there can be, or leave these entries out before the fit"
            )
        return panel.align_columns(listed)


def _number(one: Any) -> bool:
    return isinstance(one, Real) and not isinstance(one, bool)


def _with_columns(panel: PanelLike, listed: Array) -> PanelLike:
    """Rows of arrays over the columns of a plan, which names all of them or says how many there are."""
    numbered = np.array_equal(listed, np.arange(len(listed)))
    if numbered and len(listed) >= panel.n_columns:
        return panel.each(partial(_over, number=len(listed)))
    if len(listed) != panel.n_columns:
        raise InputError(
            f"the plan lists {len(listed):,} columns, and the rows have {panel.n_columns:,} without ids to match "
            "them by; list as many, or pass columns=range(d) for d columns in all"
        )
    return panel.each(partial(_over, number=len(listed), ids=listed))


def _over(panel: Panel, number: int, ids: Array | None = None) -> Panel:
    return Panel(panel.indptr, panel.columns, panel.values, number, column_ids=ids)


def _outside(panel: Panel, low: float, high: float) -> int:
    return int(np.count_nonzero((panel.values < low) | (panel.values > high)))


def _checked(name: str, given: Any, least: float, most: float, hint: str) -> float:
    if not _number(given) or not least <= float(given) <= most:
        raise InputError(f"{name}={given!r}: expected a number from {least:g} to {most:g}, {hint}")
    return float(given)


def _checked_bounds(bounds: Any) -> tuple[float, float]:
    pair = list(bounds) if np.ndim(bounds) == 1 else []
    if len(pair) != 2 or not all(_number(one) and abs(float(one)) <= LARGEST for one in pair):
        raise InputError(
            f"bounds={bounds!r}: expected two numbers of at most {LARGEST:g}, the least and the largest value"
        )
    low, high = float(pair[0]), float(pair[1])
    if not high - low > NARROWEST * max(abs(low), abs(high), 1 / LARGEST):
        raise InputError(f"bounds={(low, high)!r}: expected the least value first, and well below the largest")
    return low, high


def _checked_whole(name: str, given: Any, least: int) -> int:
    if not _number(given) or not least <= given < 2**31 or given != int(given):
        raise InputError(f"{name}={given!r}: expected a whole number of at least {least}")
    return int(given)


def _checked_columns(columns: Any) -> tuple[Any, ...]:
    if np.ndim(columns) == 0 and not hasattr(columns, "__iter__"):
        raise InputError(f'columns={columns!r}: expected a list of all column ids, or "public"')
    listed = as_ids(list(columns), "columns")
    if len(np.unique(listed)) < len(listed):
        raise InputError("columns lists an id twice; expected every column once")
    return tuple(listed.tolist())
