"""T as an operator: measured, completed or unsupported, entry by entry; d × d on demand only.

Three outputs, by name, with L = μμᵀ + XXᵀ the model's entry, T̂ the measured one and N its count:

==============  ================================================================================
``low_rank``    L everywhere
``algorithm1``  T̂ on Ω and L elsewhere, which is what the paper's Algorithm 1 returns
``blend``       (N T̂ + κ L) / (N + κ) off the diagonal, L itself where κ is infinite; T̂ on the diagonal
==============  ================================================================================

Between parts of the panel that no chain of rows links, L is μμᵀ and, where rows have an effect, τ²: what the factor has
there would be an accident of its rotation. (``HajekGD`` keeps XXᵀ there, as the paper has it.)

Measured entries are computed from the panel on demand (:mod:`onesided.pairs.lookup`): a single one, with its count and
standard error, from one intersection of its two columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.memory import check_room
from onesided.model.uncertainty import Bootstrap
from onesided.pairs.lookup import PairLookup
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments, hajek, hajek_at
from onesided.panels.ids import IdIndex
from onesided.panels.panel_like import PanelLike
from onesided.panels.positions import checked_positions

Output = Literal["low_rank", "algorithm1", "blend"]
EntryStatus = Literal["measured", "completed", "unsupported"]

PAIRS_AT_ONCE = 1 << 18  # each takes two lines of the factor


@dataclass(frozen=True, repr=False)
class Entry:
    """One entry of T.

    ``status`` is "measured" when a row has both columns, "completed" when a chain of rows links them, and
    "unsupported" otherwise: a column was never seen together with another, or the two belong to parts of the panel
    that share no row, and nothing is known of them together but the means. ``count`` is the weight of the rows that
    have both columns; None without the panel. ``standard_error`` is, for a measured entry, that of
    the measurement T̂_ij as an estimate of these rows' own T_ij; for a completed one that of the model's value, which
    takes a bootstrap (:meth:`onesided.OneSidedCompletion.bootstrap`); otherwise None.

    >>> from onesided import Panel
    >>> panel = Panel.from_arrays([0, 0, 1, 1, 2], ["rye", "tea", "tea", "gin", "ale"], [1.0, 2.0, 1.0, 1.0, 3.0])
    >>> ids = panel.column_ids
    >>> T = SecondMoment(np.ones((4, 1)), Measured.from_panel(panel), panel=panel, column_ids=ids).algorithm1
    >>> T["rye", "tea"]
    Entry(value=2, standard_error=1.29099, count=1, status='measured')
    >>> T["rye", "gin"].status, T["rye", "ale"].status
    ('completed', 'unsupported')
    """

    value: float
    standard_error: float | None
    count: float | None
    status: EntryStatus

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        error, count = (None if number is None else f"{number:.6g}" for number in (self.standard_error, self.count))
        return f"Entry(value={self.value:.6g}, standard_error={error}, count={count}, status={self.status!r})"


class SecondMoment(LinearOperator):
    """The estimated second moment of the rows, d × d, in one of three outputs.

    Index it by column ids for one entry (``T["Alien", "Blade Runner"]``), take ``block`` by position, multiply
    it (``T @ v``), or ask for ``to_dense()``. ``T.low_rank``, ``T.algorithm1`` and ``T.blend`` are the three
    outputs. Multiplying the last two needs all measured pairs, which are computed once, when first needed.

    Examples
    --------
    >>> from onesided import Panel
    >>> panel = Panel.from_dense([[1.0, 2.0, np.nan], [np.nan, 1.0, 1.0]])
    >>> T = SecondMoment(np.ones((3, 1)), Measured.from_panel(panel), panel=panel)
    >>> T[0, 1]
    Entry(value=1, standard_error=1.11803, count=1, status='measured')
    >>> T.algorithm1[0, 1].value
    2.0
    >>> T[0, 2].status
    'completed'
    >>> T.algorithm1.to_dense()
    array([[1. , 2. , 1. ],
           [2. , 2.5, 1. ],
           [1. , 1. , 1. ]])
    """

    def __init__(
        self,
        factor: Array,
        measured: Measured,
        *,
        mean: Array | None = None,
        column_ids: Array | None = None,
        panel: PanelLike | None = None,
        moments: PairMoments | None = None,
        kappa: float | None = None,
        output: Output = "low_rank",
        bootstrap: Bootstrap | None = None,
        common: int = 0,
    ) -> None:
        d = len(factor)
        super().__init__(np.dtype(np.float64), (d, d))
        self.factor = factor if mean is None else np.column_stack([mean, factor])
        self.common = common + (mean is not None)  # leading columns of the factor that hold between parts, too
        self.measured, self.panel, self.kappa, self.output = measured, panel, kappa, output
        self._given_moments, self._bootstrap = moments, bootstrap
        self._lookup = None if panel is None else PairLookup(panel)
        self.column_ids = np.arange(d) if column_ids is None else column_ids
        self.column_index = IdIndex(self.column_ids, "column")
        if output != "low_rank" and panel is None and not (output == "blend" and kappa == np.inf):
            raise InputError(
                f"the output {output!r} needs measured entries, and this model was saved without its panel; "
                "use the low_rank output, or save the model together with its panel"
            )
        if output == "blend" and kappa is None:
            raise InputError("the output 'blend' needs κ, a number of rows: fit with blend=κ")

    @property
    def low_rank(self) -> SecondMoment:
        """μμᵀ + XXᵀ everywhere."""
        return self._as("low_rank")

    @property
    def algorithm1(self) -> SecondMoment:
        """T̂ on the observed pairs, μμᵀ + XXᵀ elsewhere."""
        return self._as("algorithm1")

    @property
    def blend(self) -> SecondMoment:
        """Measured and completed entries averaged by their evidence; the measured diagonal."""
        return self._as("blend")

    def _as(self, output: Output) -> SecondMoment:
        if output == self.output:
            return self
        view = SecondMoment(
            self.factor,
            self.measured,
            column_ids=self.column_ids,
            panel=self.panel,
            moments=self.__dict__.get("_moments", self._given_moments),
            kappa=self.kappa,
            output=output,
            bootstrap=self._bootstrap,
            common=self.common,
        )
        view._lookup, view.column_index = self._lookup, self.column_index  # with what they have fitted or sorted
        return view

    def __getitem__(self, ids: tuple[Any, Any]) -> Entry:
        if not isinstance(ids, tuple) or len(ids) != 2 or not all(isinstance(name, (str, Integral)) for name in ids):
            raise InputError(
                f"index the second moment by two column ids, for example T[3, 7]; found {ids!r}. "
                "For several entries use block(rows, columns), for all to_dense()"
            )
        i, j = self.column_index.positions(ids)
        pair = None if self._lookup is None else self._lookup.at([i], [j])
        rows, columns = np.array([i]), np.array([j])
        measured = None if pair is None else (pair.mean, pair.count)
        value = self._combined(self._low_rank_block(rows, columns), rows[:, None], columns, measured).item()
        counts = self.measured.counts[i : i + 1] if i == j else None if pair is None else pair.count
        count = None if counts is None else float(counts[0])
        if count is not None and count > 0:
            return Entry(value, None if pair is None else float(pair.standard_error[0]), count, "measured")
        if i == j or not self.measured.linked(i, j):
            return Entry(value, None, count, "unsupported")
        bands = None if self._bootstrap is None else self._bootstrap.entries([i], [j])
        return Entry(value, None if bands is None else float(bands.standard_error[0]), count, "completed")

    def block(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The entries at the given positions, as a dense array."""
        rows, columns = self._positions(rows), self._positions(columns)
        measured = None if self._lookup is None or self._kappa == np.inf else self._lookup.block(rows, columns)
        return self._combined(self._low_rank_block(rows, columns), rows[:, None], columns, measured)

    def _low_rank_block(self, rows: Array, columns: Array) -> Array:
        low_rank: Array = self.factor[rows] @ self.factor[columns].T
        if not self.measured.in_parts:
            return low_rank
        apart = self.measured.parts[rows][:, None] != self.measured.parts[columns]
        return np.where(apart, self.factor[rows, : self.common] @ self.factor[columns, : self.common].T, low_rank)

    def at(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The entries at pairs of positions, the first row with the first column and so on: one value for each pair.

        Where the output has measured entries, all of them are computed when first needed, and kept with this object.
        """
        rows, columns = self._positions(rows), self._positions(columns)
        if len(rows) != len(columns):
            raise InputError(f"{len(rows)} rows and {len(columns)} columns; expected as many of one as of the other")
        values = _inner_products(self.factor, rows, columns)
        if self.measured.in_parts:
            apart = self.measured.parts[rows] != self.measured.parts[columns]
            values = np.where(apart, _inner_products(self.factor[:, : self.common], rows, columns), values)
        measured = hajek_at(self._moments, rows, columns) if self._kappa < np.inf else None
        return self._combined(values, rows, columns, measured)

    def shared_rows(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The weight of the rows that have both columns, at the given positions; the panel must be at hand."""
        if self._lookup is None:
            raise InputError("rows are counted in the panel, and this model has none: give the panel, or fit again")
        return self._lookup.block(self._positions(rows), self._positions(columns))[1]

    def to_dense(self) -> Array:
        """All of T, d × d."""
        d = self.shape[0]
        check_room(3 * 8 * d * d, f"all {d:,} × {d:,} entries of T would take {{size}}", "ask for .block or .at")
        everything = np.arange(d)
        return self.block(everything, everything)

    def _combined(self, low_rank: Array, rows: Array, columns: Array, measured: tuple[Array, Array] | None) -> Array:
        """The output's entries at positions: L, with T̂ and N where the output has them, and the measured diagonal."""
        if self.output == "low_rank":
            return low_rank
        values = low_rank
        if measured is not None and self._kappa < np.inf:
            mean, count = measured
            values = low_rank + (mean - low_rank) * count / np.where(count > 0, count + self._kappa, 1.0)
        on_diagonal = (rows == columns) & (self.measured.counts[rows] > 0)
        return np.where(on_diagonal, self.measured.diagonal[rows], values)

    @property
    def _kappa(self) -> float:
        """How many rows the model's entry counts for beside a measured one."""
        if self.output == "blend" and self.kappa is not None:
            return float(self.kappa)
        return 0.0 if self.output == "algorithm1" else np.inf

    def _positions(self, positions: Iterable[int]) -> Array:
        return checked_positions(np.asarray(positions).ravel(), self.shape[0], "column", instead="use [i, j] for ids")

    @cached_property
    def _moments(self) -> PairMoments:
        assert self.panel is not None
        return self._given_moments or PairMoments.from_panel(self.panel)

    @cached_property
    def _correction(self) -> sp.csr_array:
        """What the output adds to the low-rank part, on Ω."""
        diagonal = np.where(self.measured.counts > 0, self.measured.diagonal - np.sum(self.factor**2, axis=1), 0.0)
        if self._kappa == np.inf:
            return sp.csr_array(sp.diags_array(diagonal))
        moments = self._moments
        i, j = moments.pairs()
        residual, counts = hajek(moments) - _inner_products(self.factor, i, j), moments.counts
        return moments.to_matrix(np.where(i == j, diagonal[i], residual * counts / (counts + self._kappa)))

    def _matmat(self, V: Array) -> Array:
        if self.measured.in_parts:
            everywhere, within = np.hsplit(self.factor, [self.common])
            product: Array = everywhere @ (everywhere.T @ V)
            sums = np.zeros((int(self.measured.parts.max()) + 2, within.shape[1], V.shape[1]))  # the last: alone
            np.add.at(sums, self.measured.parts, within[:, :, None] * V[:, None, :])
            product += np.einsum("ja,jav->jv", within, sums[self.measured.parts])
        else:
            product = self.factor @ (self.factor.T @ V)
        if self.output != "low_rank":
            product += self._correction @ V
        return product

    def _matvec(self, v: Array) -> Array:
        return self._matmat(v.reshape(-1, 1))

    def _adjoint(self) -> SecondMoment:
        return self

    def __repr__(self) -> str:
        d = self.shape[0]
        return f"SecondMoment({d:,} × {d:,}, output={self.output!r}, rank {self.factor.shape[1]})"


def _inner_products(factor: Array, i: Array, j: Array) -> Array:
    """x_i · x_j for each pair."""
    products = np.empty(len(i))
    for first in range(0, len(i), PAIRS_AT_ONCE):
        here = slice(first, first + PAIRS_AT_ONCE)
        products[here] = np.vecdot(factor[i[here]], factor[j[here]])
    return products
