"""The one who holds the rows: answers questions about them with noise, and keeps the account.

All that a private fit learns of its rows goes through :meth:`Curator.ask`. A question is a sum over rows of vectors
that are whole numbers of a unit; what it costs follows from the largest length of a row's vector alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from onesided.arrays import Array
from onesided.panels.panel import Panel
from onesided.panels.panel_like import Draw, PanelLike
from onesided.privacy.accounting import gaussian_delta
from onesided.privacy.noise import coarsened, whole_gaussian
from onesided.privacy.plan import Mechanism, Neighbours, Privacy

Question = Callable[[Panel], Array]

GRID = 2.0**-12  # values, in units of half the width of the bounds, are rounded to multiples of this
UNIT = GRID**2  # and so are their products: to multiples of this


@dataclass(frozen=True)
class Release:
    """One answer: what was asked, by how much neighbours can differ in it, and the noise on each of its numbers.

    ``sensitivity`` and ``deviation`` are in units of half the bounds' width; μ is their ratio.

    >>> from onesided import OneSidedCompletion, synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(500, 10, 1, rng=0), 4, rng=1)
    >>> plan = Privacy(epsilon=1.0, delta=1e-6, bounds=(-2, 2), max_entries=4, mechanism="central")
    >>> releases = OneSidedCompletion(1, privacy=plan).fit(panel).privacy_.releases
    >>> [(one.what, one.numbers, round(one.mu, 2)) for one in releases]
    [('pairs', 110, 0.23), ('first moments', 10, 0.05)]
    """

    what: str
    numbers: int
    sensitivity: float
    deviation: float

    @property
    def mu(self) -> float:
        """μ of this release alone."""
        return self.sensitivity / self.deviation


@dataclass(frozen=True)
class Account:
    """What was spent on what. ``print`` it for a table.

    >>> account = Account("gradient", "add-remove", 1.0, 0.01, (Release("columns", 30, 2.0, 8.0),))
    >>> account.mu
    0.25
    """

    mechanism: Mechanism
    neighbours: Neighbours | None  # None: panels of the same pattern
    epsilon: float
    delta: float
    releases: tuple[Release, ...]

    @property
    def mu(self) -> float:
        """μ of all releases together."""
        return float(np.sqrt(sum(one.mu**2 for one in self.releases)))

    @property
    def spent_delta(self) -> float:
        """δ at the promised ε, of what was released; at most the promised δ."""
        return gaussian_delta(self.mu, self.epsilon)

    def __str__(self) -> str:
        kind = {
            "add-remove": "one row more or less",
            "replace": "one row replaced",
            None: "other values in one row, the same pattern",
        }[self.neighbours]
        lines = [
            f"({self.epsilon:g}, {self.delta:g})-differentially private, neighbours: {kind}",
            f"{'released':<28}{'numbers':>12}{'sensitivity':>13}{'noise':>11}{'share of μ²':>13}",
        ]
        lines += [
            f"{one.what:<28}{one.numbers:>12,}{one.sensitivity:>13.4g}{one.deviation:>11.4g}"
            f"{one.mu**2 / self.mu**2:>13.1%}"
            for one in self.releases
        ]
        return "\n".join([*lines, f"μ = {self.mu:.4g}; δ spent at ε: {self.spent_delta:.3g}"])


@dataclass
class Curator:
    """Holds rows whose values lie in [−1, 1], at most k in a row, and answers with noise.

    ``draw`` is where the noise comes from. What is not an answer of :meth:`ask` must not leave.
    """

    rows: PanelLike
    privacy: Privacy
    draw: Draw = os.urandom
    releases: list[Release] = field(default_factory=list)
    noise: float = 1.0  # of what is claimed; an audit may break the promise on purpose

    @classmethod
    def of(cls, panel: PanelLike, privacy: Privacy, draw: Draw = os.urandom) -> Curator:
        """The curator of an admitted panel: of long rows k entries are drawn, values are scaled and rounded."""
        return cls(panel.each(partial(_held, privacy=privacy), draw), privacy, draw)

    def ask(self, what: str, question: Question, *, length: float, opposed: bool, share: float, unit: float) -> Array:
        """The answer to a question, with noise worth ``share`` of μ².

        ``length`` is the largest Euclidean length of a row's contribution. Where one row replaces another the answer
        moves by at most twice that; by √2 of it where two contributions never point apart (``opposed`` is False), as
        ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩. Contributions are whole numbers of ``unit``.
        """
        exact = self.rows.total(question)
        deviation = self._charged(what, exact.size, length, opposed, share)
        return _noisy(exact, deviation, unit, self.draw, self.noise)

    def noised(self, what: str, *, length: float) -> PanelLike:
        """The rows with noise on every value, for all of μ²; ``length`` is that of a row's values at most, as above."""
        deviation = self._charged(what, self.rows.n_entries, length, False, 1.0)
        return self.rows.each(partial(_noised, deviation=deviation, factor=self.noise), self.draw)

    def _charged(self, what: str, size: int, length: float, opposed: bool, share: float) -> float:
        """The deviation of the noise on an answer, which is put down in the account."""
        apart = 1.0 if self.privacy.neighbours == "add-remove" else 2.0 if opposed else float(np.sqrt(2.0))
        sensitivity = length * apart
        deviation = float(sensitivity / (self.privacy.mu * np.sqrt(share)))
        self.releases.append(Release(what, size, sensitivity, deviation))
        return deviation

    @property
    def most(self) -> int:
        """How many entries a row can have: k, or all columns where there are fewer."""
        return min(self.privacy.most, self.rows.n_columns)

    def account(self) -> Account:
        """What was spent until now."""
        plan = self.privacy
        neighbours = None if plan.mechanism == "local" else plan.neighbours
        return Account(plan.mechanism, neighbours, plan.epsilon, plan.delta, tuple(self.releases))


def _noisy(exact: Array, deviation: float, unit: float, draw: Draw, factor: float) -> Array:
    noise = whole_gaussian(exact.size, factor * deviation / unit, draw).reshape(exact.shape)
    return np.asarray(coarsened(np.rint(exact / unit) + noise, deviation / unit) * unit)


def _noised(rows: Panel, draw: Draw, deviation: float, factor: float) -> Panel:
    return with_values(rows, _noisy(rows.values, deviation, GRID, draw, factor))


def _held(panel: Panel, draw: Draw, privacy: Privacy) -> Panel:
    """Rows as a curator holds them."""
    kept = cut_rows(panel, privacy.most, draw)
    scaled = np.clip((kept.values.astype(np.float64) - privacy.middle) / privacy.half, -1.0, 1.0)
    return with_values(kept, np.rint(scaled / GRID) * GRID)


def with_values(panel: Panel, values: Array) -> Panel:
    """The same rows with other values, and without ids of their own."""
    return Panel(panel.indptr, panel.columns, values, panel.n_columns, column_ids=panel.given_column_ids)


def cut_rows(panel: Panel, most: int, draw: Draw = os.urandom) -> Panel:
    """The panel with at most so many entries in a row, drawn at random from those of longer rows.

    Every entry draws for itself, from a secure source: which are kept of one row says nothing of another, and is not
    known to anybody. A mechanism is then a mixture over cuts, in each of which neighbours differ by one row of at most
    so many entries.

    >>> cut_rows(Panel.from_dense([[1.0, 2.0, 3.0], [4.0, np.nan, np.nan]]), 2).row_counts
    array([2, 1])
    """
    counts = panel.row_counts
    if not np.any(counts > most):
        return panel
    row = np.repeat(np.arange(panel.n_rows), counts)
    order = np.lexsort((np.frombuffer(draw(8 * panel.n_entries), dtype=np.uint64), row))
    place = np.empty(panel.n_entries, dtype=np.int64)
    place[order] = np.arange(panel.n_entries) - np.repeat(panel.indptr[:-1], counts)
    kept = place < most
    indptr = np.concatenate([[0], np.cumsum(np.minimum(counts, most))])
    entries = panel.columns[kept], panel.values[kept]
    return Panel(indptr, *entries, panel.n_columns, column_ids=panel.given_column_ids)
