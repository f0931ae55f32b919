"""T as an operator: measured, completed or unsupported, entry by entry; d × d only when asked.

Three outputs, by name, with L = μμᵀ + XXᵀ the model's entry, T̂ the measured one and N its count:

==============  ================================================================================
``low_rank``    L everywhere
``algorithm1``  T̂ on Ω and L elsewhere, which is what the paper's Algorithm 1 returns
``blend``       (N T̂ + κ L) / (N + κ) off the diagonal, L itself where κ is infinite; T̂ on the diagonal
==============  ================================================================================

Between parts of the panel that no chain of rows links, L is μμᵀ and, where rows have an effect, τ²: what the factor has
there would be an accident of its rotation. (``HajekGD`` keeps XXᵀ there, as the paper has it.)

Measured entries are computed from the panel when they are asked for, by intersecting two columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from onesided.errors import InputError
from onesided.memory import check_room
from onesided.model.uncertainty import Bootstrap
from onesided.pairs.lookup import MeasuredErrors, measured_errors
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments, hajek, hajek_at
from onesided.panels.ids import known_positions
from onesided.panels.panel import Panel
from onesided.panels.positions import checked_positions

Array = npt.NDArray[Any]
Output = Literal["low_rank", "algorithm1", "blend"]
EntryStatus = Literal["measured", "completed", "unsupported"]

PAIRS_AT_ONCE = 1 << 18  # each takes two lines of the factor


@dataclass(frozen=True, repr=False)
class Entry:
    """One entry of T.

    ``status`` is "measured" when a row has both columns, "completed" when a chain of rows links them, and
    "unsupported" otherwise: a column was never seen together with another, or the two belong to parts of the panel
    that share no row, and nothing is known of them together but the means. ``count`` is the weight of the rows that
    have both columns; None when the panel is not at hand to tell. ``standard_error`` is, for a measured entry, that of
    the measurement T̂_ij as an estimate of these rows' own T_ij; for a completed one that of the model's value, which
    only a bootstrap can tell (:meth:`onesided.OneSidedCompletion.bootstrap`); otherwise None.

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
        error, count = (one if one is None else f"{one:.6g}" for one in (self.standard_error, self.count))
        return f"Entry(value={self.value:.6g}, standard_error={error}, count={count}, status={self.status!r})"


class SecondMoment(LinearOperator):
    """The estimated second moment of the rows, d × d, in one of three outputs.

    Index it by column ids for one entry (``T["Alien", "Blade Runner"]``), take ``block`` by position, multiply
    it (``T @ v``), or ask for ``to_dense()``. ``T.low_rank``, ``T.algorithm1`` and ``T.blend`` are the three
    outputs. Multiplying the last two needs all measured pairs, which are computed once, when first needed.

    Examples
    --------
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
        panel: Panel | None = None,
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
        self._known_moments, self._bootstrap = moments, bootstrap
        self.column_ids = np.arange(d) if column_ids is None else column_ids
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
            moments=self._known_moments,
            kappa=self.kappa,
            output=output,
            bootstrap=self._bootstrap,
            common=self.common,
        )
        for name in ("_errors", "_moments"):
            if name in self.__dict__:
                view.__dict__[name] = self.__dict__[name]
        return view

    def __getitem__(self, ids: tuple[Any, Any]) -> Entry:
        if not isinstance(ids, tuple) or len(ids) != 2 or not all(isinstance(one, (str, Integral)) for one in ids):
            raise InputError(
                f"index the second moment by two column ids, for example T[3, 7]; found {ids!r}. "
                "For several entries use block(rows, columns), for all to_dense()"
            )
        i, j = known_positions(self.column_ids, ids, "column")
        count: float | None
        if i == j:
            count = float(self.measured.counts[i])
        else:
            count = None if self.panel is None else float(self._measure([i], [j])[1][0, 0])
        if count is not None and count > 0:
            status: EntryStatus = "measured"
        elif i != j and self.measured.linked(i, j):
            status = "completed"
        else:
            status = "unsupported"
        return Entry(float(self.block([i], [j])[0, 0]), self._standard_error(i, j, status), count, status)

    def _standard_error(self, i: int, j: int, status: EntryStatus) -> float | None:
        if status == "measured" and self.panel is not None:
            return float(self._errors.at([i], [j])[0])
        if status == "completed" and self._bootstrap is not None:
            return float(self._bootstrap.entries([i], [j]).standard_error[0])
        return None

    @cached_property
    def _errors(self) -> MeasuredErrors:
        assert self.panel is not None
        return measured_errors(self.panel)

    def block(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The entries at the given positions, as a dense array."""
        rows, columns = self._positions(rows), self._positions(columns)
        low_rank: Array = self.factor[rows] @ self.factor[columns].T
        if self._in_parts:
            apart = self.measured.parts[rows][:, None] != self.measured.parts[columns]
            low_rank = np.where(
                apart, self.factor[rows, : self.common] @ self.factor[columns, : self.common].T, low_rank
            )
        if self.output == "low_rank":
            return low_rank
        blended = low_rank
        if self._kappa < np.inf:
            sums, counts = self._measure(rows, columns)
            blended = self._blended(low_rank, sums / np.where(counts > 0, counts, 1.0), counts)
        same = (rows[:, None] == columns[None, :]) & (self.measured.counts[rows] > 0)[:, None]
        return np.where(same, self.measured.diagonal[rows][:, None], blended)

    def at(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The entries at pairs of positions, the first row with the first column and so on: one value for each pair.

        Where the output has measured entries, all of them are computed when first needed, and kept with this object.
        """
        rows, columns = self._positions(rows), self._positions(columns)
        if len(rows) != len(columns):
            raise InputError(f"{len(rows)} rows and {len(columns)} columns; expected as many of one as of the other")
        values = _inner_products(self.factor, rows, columns)
        if self._in_parts:
            apart = self.measured.parts[rows] != self.measured.parts[columns]
            values = np.where(apart, _inner_products(self.factor[:, : self.common], rows, columns), values)
        if self.output == "low_rank":
            return values
        if self._kappa < np.inf:
            measured, counts = hajek_at(self._moments, rows, columns)
            values = self._blended(values, measured, counts)
        own = (rows == columns) & (self.measured.counts[rows] > 0)
        return np.where(own, self.measured.diagonal[rows], values)

    def shared_rows(self, rows: Iterable[int], columns: Iterable[int]) -> Array:
        """The weight of the rows that have both columns, at the given positions; the panel must be at hand."""
        if self.panel is None:
            raise InputError("rows are counted in the panel, and this model has none: give the panel, or fit again")
        return self._measure(self._positions(rows), self._positions(columns))[1]

    def to_dense(self) -> Array:
        """All of T, d × d."""
        d = self.shape[0]
        check_room(3 * 8 * d * d, f"all {d:,} × {d:,} entries of T would take {{size}}", "ask for .block or .at")
        everything = np.arange(d)
        return self.block(everything, everything)

    def _blended(self, low_rank: Array, measured: Array, counts: Array) -> Array:
        return low_rank + (measured - low_rank) * counts / np.where(counts > 0, counts + self._kappa, 1.0)

    @property
    def _kappa(self) -> float:
        return float(self.kappa) if self.output == "blend" and self.kappa is not None else 0.0

    def _positions(self, positions: Iterable[int]) -> Array:
        return checked_positions(positions, self.shape[0], "column", instead="use [i, j] for ids")

    def _measure(self, rows: Any, columns: Any) -> tuple[Array, Array]:
        """Σ w v_i v_j and Σ w over the rows that have both, for a block of pairs."""
        assert self.panel is not None
        sums, counts = self.panel.total(partial(_measured, some=rows, others=columns))
        return sums, counts

    @cached_property
    def _moments(self) -> PairMoments:
        assert self.panel is not None
        return self._known_moments or PairMoments.from_panel(self.panel)

    @cached_property
    def _correction(self) -> sp.csr_array:
        """What the output adds to the low-rank part, on Ω."""
        own = np.where(self.measured.counts > 0, self.measured.diagonal - np.sum(self.factor**2, axis=1), 0.0)
        if self._kappa == np.inf:
            return sp.csr_array(sp.diags_array(own))
        moments = self._moments
        i, j = moments.pairs()
        residual = hajek(moments) - _inner_products(self.factor, i, j)
        return moments.to_matrix(np.where(i == j, own[i], residual * moments.counts / (moments.counts + self._kappa)))

    @property
    def _in_parts(self) -> bool:
        return bool(self.measured.parts.max(initial=0) > 0)

    def _matmat(self, V: Array) -> Array:
        if self._in_parts:
            everywhere, own = np.hsplit(self.factor, [self.common])
            product: Array = everywhere @ (everywhere.T @ V)
            sums = np.zeros((int(self.measured.parts.max()) + 2, own.shape[1], V.shape[1]))  # the last: alone
            np.add.at(sums, self.measured.parts, own[:, :, None] * V[:, None, :])
            product += np.einsum("ja,jav->jv", own, sums[self.measured.parts])
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


def _measured(panel: Panel, some: Any, others: Any) -> Array:
    """Σ w v_i v_j and Σ w over the rows that have both, for some columns and others."""
    weights = sp.dia_array((panel.row_weights[None, :], [0]), shape=(panel.n_rows,) * 2)
    (values, present), (other_values, other_present) = _columns(panel, some), _columns(panel, others)
    sums, counts = values.T @ (weights @ other_values), present.T @ (weights @ other_present)
    return np.stack([sums.toarray(), counts.toarray()])


def _columns(panel: Panel, positions: Any) -> tuple[sp.csc_array, sp.csc_array]:
    """Some columns of a panel: their values, and ones where there are any."""
    indptr, rows, values = panel.by_column
    positions = np.asarray(positions)
    starts, lengths = indptr[positions], indptr[positions + 1] - indptr[positions]
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.arange(pointers[-1]) + np.repeat(starts - pointers[:-1], lengths)
    shape = (panel.n_rows, len(positions))
    kept = values[entries].astype(np.float64)
    return (
        sp.csc_array((kept, rows[entries], pointers), shape=shape),
        sp.csc_array((np.ones_like(kept), rows[entries], pointers), shape=shape),
    )
