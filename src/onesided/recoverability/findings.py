"""What an inspection finds, number by number, and in plain words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onesided.errors import counted, examples
from onesided.model.units import Units
from onesided.pairs.size import PairSize

MOST_DIRECTIONS = 20  # that are tried


@dataclass(frozen=True)
class Counts:
    """How a count is distributed: over rows, over columns, or over pairs seen at least once.

    >>> from onesided import Panel, recoverability
    >>> panel = Panel.from_dense([[5.0, 4.0, 1.0], [3.0, 1.0, None], [2.0, None, None]])
    >>> recoverability.recoverability(panel).entries_per_row
    Counts(least=1, median=2.0, mean=2.0, ninety_percent=3.0, most=3)
    """

    least: int
    median: float
    mean: float
    ninety_percent: float
    """Nine in ten are at most this."""
    most: int


@dataclass(frozen=True)
class Coverage:
    """Pairs of different columns that were seen together.

    >>> from onesided import Panel, recoverability
    >>> panel = Panel.from_dense([[5.0, 4.0, None], [3.0, 1.0, None], [None, 2.0, 3.0]])
    >>> coverage = recoverability.recoverability(panel).coverage
    >>> coverage.observed_pairs, coverage.possible_pairs, coverage.seen_once
    (2, 3, 0.5)
    """

    possible_pairs: int
    observed_pairs: int
    """Estimated where not all columns were counted."""
    share: float
    standard_error: float
    """Of the share; zero where all columns were counted."""
    columns_counted: int
    exact: bool
    seen_once: float
    """Share of the observed pairs that a single row has."""
    rows_per_pair: Counts
    """Over observed pairs, in the sample where there is one."""
    pair_moments: PairSize
    """What explicit pair moments would hold, the diagonal included."""


@dataclass(frozen=True)
class Parts:
    """The panel's parts: columns linked by chains of rows.

    >>> from onesided import Panel, recoverability
    >>> rows = [5.0, 4.0, None, None, None], [None, None, 2.0, 4.0, None]  # with no column in common
    >>> recoverability.recoverability(Panel.from_dense(rows)).parts
    Parts(parts=2, largest_share=0.4, columns_never_seen=1, columns_always_alone=0, examples=(4,))
    """

    parts: int
    """With at least two columns each."""
    largest_share: float
    """Columns in the largest part, among all columns."""
    columns_never_seen: int
    columns_always_alone: int
    """Seen, but never beside another."""
    examples: tuple[Any, ...]
    """Ids of a few columns that cannot be placed."""

    @property
    def unplaced(self) -> int:
        """Columns that cannot be placed: never seen, or never beside another."""
        return self.columns_never_seen + self.columns_always_alone


@dataclass(frozen=True)
class Evenness:
    """How evenly columns share the values' size and the entries.

    >>> from onesided import Panel, recoverability
    >>> panel = Panel.from_dense([[3.0, 1.0], [3.0, None], [3.0, None]])
    >>> evenness = recoverability.recoverability(panel).evenness
    >>> round(evenness.coherence, 2), round(evenness.effective_columns, 2)  # 1 and 2, were both columns alike
    (1.8, 1.6)
    """

    coherence: float
    effective_columns: float


@dataclass(frozen=True)
class RankSupport:
    """What the panel says about one rank.

    >>> from onesided import recoverability, synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 30, 2, rng=0), 6, rng=1)
    >>> ranks = recoverability.recoverability(panel).ranks[:3]
    >>> [(support.rank, round(support.strength), support.supported) for support in ranks]
    [(1, 9, True), (2, 6, True), (3, 0, False)]
    """

    rank: int
    strength: float
    """Of the last of so many directions: its eigenvalue over that of chance."""
    supported: bool
    rows_needed: int | None
    """With rows like these; where the rank is not supported, these or more. None where nothing can be said."""
    paper_rows: float | None
    """The paper's bound with its constants set to one."""


@dataclass(frozen=True)
class Recoverability:
    """What a panel can support; ``str()`` of it says so in plain words.

    The docstring of :mod:`onesided.recoverability` defines every number.

    >>> from onesided import Panel, recoverability
    >>> answer = recoverability.recoverability(Panel.from_dense([[5.0, None], [None, 4.0], [None, 2.0]]))
    >>> answer.supported_rank, answer.density
    (0, 0.5)
    >>> print(answer.sentences[0])
    no row has two entries, so no two columns were ever seen together: only column means can be learnt
    """

    rows: int
    columns: int
    entries: int
    density: float
    """Entries over rows × columns."""
    rows_without_pairs: int
    """With fewer than two entries."""
    entries_per_row: Counts
    entries_per_column: Counts
    coverage: Coverage
    parts: Parts
    units: Units
    evenness: Evenness
    supported_rank: int
    strengths: tuple[float, ...]
    """Of the leading directions, 20 at most, descending."""
    ranks: tuple[RankSupport, ...]

    @property
    def sentences(self) -> list[str]:
        """The answer in plain words, the rank first."""
        units = [self.units.sentence()] if self.units.own else []
        return [self._about_rank(), *units, *self._about_parts(), *self._about_coverage()]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, the sentences among them."""
        numbers = asdict(self)
        numbers["strengths"], numbers["ranks"] = list(numbers["strengths"]), list(numbers["ranks"])
        numbers["parts"]["examples"] = list(numbers["parts"]["examples"])
        return {"sentences": self.sentences, **numbers, "units": self.units.to_dict()}

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _about_rank(self) -> str:
        if self.rows_without_pairs == self.rows:
            return "no row has two entries, so no two columns were ever seen together: only column means can be learnt"
        if self.supported_rank == 0:
            supported = "no direction stands out from chance: only rank 0, the column means, is supported"
        else:
            supported = f"rank {self.supported_rank} is supported"
        further = next((support for support in self.ranks if support.rank > self.supported_rank), None)
        if further is None:
            tried_all = len(self.strengths) < MOST_DIRECTIONS
            return supported if tried_all else f"{supported}, and perhaps more: no more directions were tried"
        if further.rows_needed is None:
            return f"{supported}; nothing points to rank {further.rank}"
        times = further.rows_needed / self.rows
        wanted = f"rank {further.rank} needs about {'100' if times > 100 else f'{times:.2g}'} times the rows or more"
        return f"{supported}; {wanted}, if there are so many directions"

    def _about_parts(self) -> list[str]:
        said, parts = [], self.parts
        if parts.parts > 1:
            said.append(
                f"the panel falls into {parts.parts:,} parts that no chain of rows links, the largest with "
                f"{parts.largest_share:.0%} of the columns: columns of different parts can never be compared"
            )
        if parts.unplaced:
            said.append(
                f"{counted(parts.unplaced, 'column')} cannot be placed: {parts.columns_never_seen:,} never seen, "
                f"{parts.columns_always_alone:,} never beside another (first: {examples(parts.examples)})"
            )
        return said

    def _about_coverage(self) -> list[str]:
        said, coverage = [], self.coverage
        if coverage.observed_pairs:
            were = "was" if coverage.possible_pairs == 1 else "were"
            error = "" if coverage.exact else f" (± {100 * coverage.standard_error:.1g})"
            said.append(
                f"{100 * coverage.share:.3g}%{error} of the {counted(coverage.possible_pairs, 'pair')} of columns "
                f"{were} seen together, {coverage.seen_once:.0%} of these in one row only"
            )
        if 0 < self.rows_without_pairs < self.rows:
            said.append(
                f"{self.rows_without_pairs:,} of {self.rows:,} rows have fewer than two entries "
                "and say nothing about pairs of columns"
            )
        return said
