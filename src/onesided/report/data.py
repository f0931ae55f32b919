"""What was observed: how much, how it is spread, which pairs of columns were seen together, what cannot be placed.

Rows of weight zero are left out. The share of pairs is that of :func:`onesided.pairs.size.pair_size`: counted, or on a
large panel estimated from a random sample of columns, with its standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onesided.arrays import Array
from onesided.column_names import ColumnNames
from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.pairs.linkage import ALONE
from onesided.pairs.measured import Measured
from onesided.pairs.size import pair_size
from onesided.panels.panel import Panel
from onesided.report.formatting import mentioned, number, share
from onesided.report.page import Section, bullets, definitions, facts, figure, sentence, side_by_side, text
from onesided.report.svg import FIRST, drawn, few_numbers, round_steps
from onesided.report.units import ColumnUnits

NAMED = 5  # columns that cannot be placed are named up to so many
SEPARATE_BARS = 30  # up to so many numbers of entries, each has a bar of its own
ALIKE = 1e-5  # of a column's root mean square: by so much means may differ from the model's, as rounded values do
LOGARITHMIC = 10  # from this ratio of the longest row to the shortest on, bars grow in proportion


@dataclass(frozen=True)
class Pairs:
    """Pairs of different columns that some row has both of."""

    possible: int
    observed: int
    standard_error: float  # of ``observed``; zero where all were counted
    columns_counted: int

    @classmethod
    def of(cls, panel: Panel, rng: int | np.random.Generator) -> Pairs:
        """Counted, or estimated from some columns."""
        size, d = pair_size(panel, rng=rng), panel.n_columns
        possible, seen = d * (d - 1) // 2, int(np.count_nonzero(panel.column_counts))
        counted_columns = d if size.columns_counted is None else size.columns_counted
        return cls(possible, min(max(size.pairs - seen, 0), possible), size.standard_error, counted_columns)

    @property
    def share(self) -> tuple[float, float]:
        """Of all pairs, and its standard error."""
        return self.observed / max(self.possible, 1), self.standard_error / max(self.possible, 1)


@dataclass(frozen=True, eq=False)
class DataSection(Section):
    """What a panel holds, and which of its columns no row space has a place for.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(200, 8, 1, rng=0), 3, rng=1)
    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(panel)
    >>> found = DataSection.of(model, panel, ColumnNames(model.column_ids_, {}))
    >>> found.entries, found.pairs.observed, found.unplaced.size
    (600, 28, 0)
    """

    title: ClassVar[str] = "What was observed"
    anchor: ClassVar[str] = "observed"

    names: ColumnNames
    parts: Array  # of each column; below zero where it cannot be placed
    mechanism: str | None  # of a private model
    weighted: bool  # whether "rows" are a weight in what the model knows
    panel: Panel | None = None  # its rows of positive weight
    weightless: int = 0
    differs: str = ""  # "entries" or "values" where they are not those that the model was fitted to
    pairs: Pairs | None = None
    units: ColumnUnits | None = None  # None of a private model: all columns are measured by its bounds

    @classmethod
    def of(
        cls, model: OneSidedCompletion, panel: Panel | None, names: ColumnNames, rng: int | np.random.Generator = 0
    ) -> DataSection:
        """Of the panel a model was fitted to; without it, what the model knows of its columns."""
        measured, mechanism = model.measured_, None if model.privacy_ is None else model.privacy_.mechanism
        units = None if model.privacy_ is not None else ColumnUnits(model.scales_, names)
        if panel is None:
            weighted = mechanism is None and bool(np.any(measured.counts % 1))
            return cls(names, measured.parts, mechanism, weighted, units=units)
        differs = _difference(Measured.from_panel(panel), measured)
        counting = panel.row_weights > 0
        rows = panel if counting.all() else panel.take_rows(np.flatnonzero(counting))
        weighted, weightless = bool(np.any(rows.row_weights != 1)), panel.n_rows - rows.n_rows
        pairs = Pairs.of(rows, rng)
        return cls(names, measured.parts, mechanism, weighted, rows, weightless, differs, pairs, units)

    @property
    def columns(self) -> int:
        """Of the model."""
        return len(self.parts)

    @property
    def rows(self) -> int:
        """Of positive weight."""
        return 0 if self.panel is None else self.panel.n_rows

    @property
    def entries(self) -> int:
        """Of these rows."""
        return 0 if self.panel is None else self.panel.n_entries

    @property
    def unplaced(self) -> Array:
        """Positions of columns that share no row with another."""
        return np.flatnonzero(self.parts == ALONE)

    @property
    def n_parts(self) -> int:
        """Sets of at least two columns that chains of rows link."""
        return int(self.parts.max(initial=ALONE)) + 1

    @property
    def in_short(self) -> str:
        """The size in a sentence."""
        if self.panel is None:
            return ""
        rows, entries = counted(self.rows, "row"), counted(self.entries, "entry", "entries")
        return f"{rows} × {counted(self.columns, 'column')}, {entries}."

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        private, at_hand = self.mechanism is not None, self.panel is not None
        numbers: dict[str, Any] = {"columns": self.columns, "panel_at_hand": at_hand, "private": private}
        if not private:
            numbers |= {
                "parts": self.n_parts,
                "columns_not_placed": int(self.unplaced.size),
                "not_placed": [mentioned(self.names, int(j)) for j in self.unplaced[:NAMED]],
                "units": None if self.units is None else self.units.to_dict(),
            }
        if self.panel is not None and self.pairs is not None:
            of_pairs, error = self.pairs.share
            numbers |= {
                "differs_from_the_models": self.differs or None,
                "rows": self.rows,
                "entries": self.entries,
                "rows_of_weight_zero": self.weightless,
                "share_observed": self.entries / (self.rows * self.columns),
                "entries_per_row": _distribution(self.panel.row_counts),
                "entries_per_column": _distribution(self.panel.column_counts),
                "share_of_pairs": of_pairs,
                "share_of_pairs_standard_error": error,
                "pairs_seen": self.pairs.observed,
            }
        return numbers

    def body(self) -> str:
        if self.mechanism is not None:
            return sentence(
                f"The model is differentially private and knows {counted(self.columns, 'column')}.",
                "How many rows and entries there were is not told. Values had noise added before anything else was "
                "done. Which entries exist is not protected and not private with this mechanism, and what the model "
                "knows of it has no noise: which columns were seen, which of them rows link, and how many rows a "
                "column has on average."
                if self.mechanism == "local"
                else "How many rows and entries there were, and which columns they had, is not told: the model file "
                "holds only what was released with noise, and so does this page.",
            )
        if self.panel is None:
            return sentence(
                f"The model has {counted(self.columns, 'column')}. It was saved without its panel: to see what was "
                "observed, name the panel (<code>--panel</code>, in Python <code>panel=</code>)."
            ) + bullets([*self._about_units(), *self._unplaced()])
        terms = {
            "observed": "entries over rows × columns.",
            "entries per row, per column": "least, median and most, over all rows and over all columns.",
            "pairs seen together": "pairs of different columns that at least one row has both of, among "
            "all pairs; ± its standard error where it was estimated from a random sample of columns.",
            "parts": "sets of at least two columns that chains of rows link. Between parts nothing is "
            "known but means and row effects.",
            "not placed": "columns never seen in one row with another, or never seen at all: no row space "
            "has a place for them.",
        }
        sentences = bullets([*self._oddities(), *self._about_units(), *self._unplaced()])
        pictures = side_by_side([self._picture(), facts("Sizes", self._facts())])
        return sentence(text(self.in_short)) + sentences + pictures + definitions(terms)

    def _facts(self) -> list[tuple[str, str]]:
        assert self.panel is not None
        assert self.pairs is not None
        of_pairs, error = self.pairs.share
        off = f" ± {number(100 * error, 2)}%" if error else ""
        source = f", estimated from {counted(self.pairs.columns_counted, 'column')}" if error else ""
        seen = f"{share(of_pairs)}{off} of {counted(self.pairs.possible, 'pair')} of columns{source}"
        return [
            ("observed", share(self.entries / (self.rows * self.columns))),
            ("entries per row", _in_words(self.panel.row_counts)),
            ("entries per column", _in_words(self.panel.column_counts)),
            ("pairs seen together", seen),
            ("parts", f"{self.n_parts:,}"),
            ("not placed", counted(int(self.unplaced.size), "column")),
        ]

    def _oddities(self) -> list[str]:
        oddities = []
        if self.differs:
            how = "though it has as many entries in each column: values differ"
            if self.differs == "entries":
                how = "or its rows have other weights"
            oddities.append(
                f"This is not the panel that the model was fitted to, {how}. The numbers here and in <a "
                "href='#quality'>How good it is</a> are those of this panel."
            )
        if self.weightless:
            oddities.append(f"{counted(self.weightless, 'row')} of weight zero left out.")
        assert self.panel is not None
        low, high = float(self.panel.row_weights.min()), float(self.panel.row_weights.max())
        if low != high:
            between = f"{number(low)} and {number(high)}"
            oddities.append(f"Rows weigh between {between}: a row of weight two counts as two rows.")
        elif low != 1:
            oddities.append(f"All rows weigh {number(low)}, and count as {number(low)} rows each.")
        return oddities

    def _about_units(self) -> list[str]:
        return [] if self.units is None else [text(said) for said in self.units.said]

    def _unplaced(self) -> list[str]:
        sentences = []
        if self.n_parts > 1:
            outside = int(np.count_nonzero(self.parts > 0))
            sentences.append(
                f"Columns fall into {self.n_parts:,} parts that no chain of rows links, "
                f"{counted(outside, 'column')} outside the largest: columns of different parts cannot be compared."
            )
        if self.unplaced.size:
            first = ", ".join(text(self.names[int(j)]) for j in self.unplaced[:NAMED])
            more = f" and {self.unplaced.size - NAMED:,} more" if self.unplaced.size > NAMED else ""
            sentences.append(
                f"{counted(int(self.unplaced.size), 'column')} could not be placed, never having been seen beside "
                f"another: {first}{more}."
            )
        elif self.n_parts == 1:
            sentences.append(
                "All columns are linked by chains of rows. To place them that is needed, not enough: two blocks of "
                "columns that no row spans must have at least as many columns in common as the rank, to be placed "
                "relative to each other."
            )
        return sentences

    def _picture(self) -> str:
        assert self.panel is not None
        per_row = self.panel.row_counts
        if per_row.min() == per_row.max():
            return sentence(f"Every row has {counted(int(per_row[0]), 'entry', 'entries')}.")
        counts = per_row[per_row > 0]
        empty = self.rows - len(counts)
        edges, logarithmic = bins(counts)
        heights, _ = np.histogram(counts, edges)

        def draw(axis: Any) -> None:
            axis.bar(edges[:-1], heights, np.diff(edges), align="edge", color=FIRST, linewidth=0)
            axis.set(xlabel="entries in a row", ylabel="rows")
            few_numbers(axis.yaxis, whole=True)
            if logarithmic:
                axis.set_xscale("log")
                round_steps(axis.xaxis, max(float(edges[0]), 1.0), float(edges[-1]))
            else:
                few_numbers(axis.xaxis, whole=True)

        half, most = float(np.median(per_row)), int(np.quantile(per_row, 0.9, method="inverted_cdf"))
        without = f"; {counted(empty, 'row')} without any are not drawn" if empty else ""
        scale = ", the number of entries on a logarithmic scale" if logarithmic else ""
        return figure(
            drawn("entries", draw),
            f"Histogram: how many rows have how many entries{scale}",
            f"Half of the rows have at most {number(half, 4)} of the {self.columns:,} columns, nine in ten at most "
            f"{most:,}{without}.",
        )


def bins(counts: Array) -> tuple[Array, bool]:
    """Edges of a histogram of whole numbers, none of which falls on an edge, and whether they grow in proportion.

    >>> bins(np.array([2, 4]))
    (array([1.5, 2.5, 3.5, 4.5]), False)
    >>> edges, logarithmic = bins(np.array([1, 1000]))
    >>> logarithmic, bool(np.all(edges % 1 == 0.5))
    (True, True)
    """
    low, high = int(counts.min()), int(counts.max())
    if high - low < SEPARATE_BARS:
        return np.arange(low, high + 2) - 0.5, False
    if high >= LOGARITHMIC * low:
        return np.unique(np.round(np.geomspace(low, high + 1, SEPARATE_BARS))) - 0.5, True
    step = -(-(high - low + 1) // SEPARATE_BARS)
    return np.arange(low, high + step + 1, step) - 0.5, False


def _difference(panel: Measured, model: Measured) -> str:
    """In what a panel differs from the one a model knows: "entries", "values" or nothing."""
    if not np.allclose(panel.counts, model.counts):
        return "entries"
    size = np.sqrt(np.maximum(panel.diagonal, model.diagonal))
    means = np.abs(panel.means - model.means) <= ALIKE * size
    squares = np.abs(np.sqrt(panel.diagonal) - np.sqrt(model.diagonal)) <= ALIKE * size
    return "" if np.all(means & squares) else "values"


def _distribution(counts: Array) -> dict[str, float]:
    return {"least": int(counts.min()), "median": float(np.median(counts)), "most": int(counts.max())}


def _in_words(counts: Array) -> str:
    return f"{counts.min():,} to {counts.max():,}, median {number(float(np.median(counts)), 4)}"
