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
from onesided.report.formatting import listed, mentioned, number, rows_and_columns, share
from onesided.report.page import Section, bullets, definitions, facts, figure, sentence, side_by_side, text
from onesided.report.svg import FIRST, drawn, plain_numbers, round_steps, whole_numbers

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
    def of(cls, panel: Panel, seen: int, rng: int | np.random.Generator) -> Pairs:
        """Counted, or estimated from some columns; ``seen`` is how many columns have entries."""
        size, d = pair_size(panel, rng=rng), panel.n_columns
        possible = d * (d - 1) // 2
        counted_columns = d if size.columns_counted is None else size.columns_counted
        return cls(possible, min(max(size.pairs - seen, 0), possible), size.standard_error, counted_columns)

    @property
    def share(self) -> float:
        """Among all pairs."""
        return self.observed / max(self.possible, 1)

    @property
    def exact(self) -> bool:
        """Whether all were counted."""
        return self.standard_error == 0


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

    columns: int
    names: ColumnNames
    parts: Array  # of each column; below zero where it cannot be placed
    mechanism: str | None  # of a private model
    panel: bool
    differs: str = ""  # "entries" or "values" where they are not those that the model was fitted to
    weighted: bool = False  # whether "rows" are a weight in what the model knows
    weightless: int = 0
    weights: tuple[float, float] = (1.0, 1.0)
    per_row: Array | None = None
    per_column: Array | None = None
    pairs: Pairs | None = None

    @classmethod
    def of(
        cls, model: OneSidedCompletion, panel: Panel | None, names: ColumnNames, rng: int | np.random.Generator = 0
    ) -> DataSection:
        """Of the panel a model was fitted to; without it, what the model knows of its columns."""
        measured, mechanism = model.measured_, None if model.privacy_ is None else model.privacy_.mechanism
        if panel is None:
            weighted = mechanism is None and bool(np.any(measured.counts % 1))
            return cls(len(measured.parts), names, measured.parts, mechanism, False, weighted=weighted)
        counting = panel.row_weights > 0
        weights = panel.row_weights[counting]
        per_column = np.bincount(
            panel.columns[np.repeat(counting, panel.row_counts)] if not counting.all() else panel.columns,
            minlength=panel.n_columns,
        )
        return cls(
            panel.n_columns,
            names,
            measured.parts,
            mechanism,
            True,
            _difference(Measured.from_panel(panel), measured),
            bool(np.any(weights != 1)),
            int(np.count_nonzero(~counting)),
            (float(weights.min()), float(weights.max())),
            panel.row_counts[counting],
            per_column,
            Pairs.of(panel, int(np.count_nonzero(per_column)), rng),
        )

    @property
    def private(self) -> bool:
        """Whether the model is."""
        return self.mechanism is not None

    @property
    def rows(self) -> int:
        """Of positive weight."""
        return 0 if self.per_row is None else len(self.per_row)

    @property
    def entries(self) -> int:
        """Of these rows."""
        return 0 if self.per_row is None else int(self.per_row.sum())

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
        return f"{rows_and_columns(self.rows, self.columns, self.entries)}." if self.panel else ""

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        numbers: dict[str, Any] = {
            "columns": self.columns,
            "panel_at_hand": self.panel,
            "private": self.private,
        }
        if not self.private:
            numbers |= {
                "parts": self.n_parts,
                "columns_not_placed": int(self.unplaced.size),
                "not_placed": [mentioned(self.names, int(j)) for j in self.unplaced[:NAMED]],
            }
        if self.per_row is not None and self.per_column is not None and self.pairs is not None:
            numbers |= {
                "differs_from_the_models": self.differs or None,
                "rows": self.rows,
                "entries": self.entries,
                "rows_of_weight_zero": self.weightless,
                "share_observed": self.entries / (self.rows * self.columns),
                "entries_per_row": _distribution(self.per_row),
                "entries_per_column": _distribution(self.per_column),
                "share_of_pairs": self.pairs.share,
                "share_of_pairs_standard_error": self.pairs.standard_error / max(self.pairs.possible, 1),
                "pairs_seen": self.pairs.observed,
            }
        return numbers

    def body(self) -> str:
        if self.private:
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
        if self.per_row is None:
            return sentence(
                f"The model has {counted(self.columns, 'column')}. It was saved without its panel: to see what was "
                "observed, name the panel (<code>--panel</code>, in Python <code>panel=</code>)."
            ) + bullets(self._unplaced())
        return "".join(
            [
                sentence(text(self.in_short)),
                bullets([*self._oddities(), *self._unplaced()]),
                side_by_side([self._picture(), facts("Sizes", self._facts())]),
                definitions(
                    {
                        "observed": "entries over rows × columns.",
                        "entries per row, per column": "least, median and most, over all rows and over all columns.",
                        "pairs seen together": "pairs of different columns that at least one row has both of, among "
                        "all pairs; ± its standard error where it was estimated from a random sample of columns.",
                        "parts": "sets of at least two columns that chains of rows link. Between parts nothing is "
                        "known but means and row effects.",
                        "not placed": "columns never seen in one row with another, or never seen at all: no row space "
                        "has a place for them.",
                    }
                ),
            ]
        )

    def _facts(self) -> list[tuple[str, str]]:
        assert self.per_row is not None
        assert self.per_column is not None
        assert self.pairs is not None
        pairs = self.pairs
        error = "" if pairs.exact else f" ± {number(100 * pairs.standard_error / max(pairs.possible, 1), 2)}%"
        source = "" if pairs.exact else f", estimated from {counted(pairs.columns_counted, 'column')}"
        return [
            ("observed", share(self.entries / (self.rows * self.columns))),
            ("entries per row", _in_words(self.per_row)),
            ("entries per column", _in_words(self.per_column)),
            (
                "pairs seen together",
                f"{share(pairs.share)}{error} of {counted(pairs.possible, 'pair')} of columns{source}",
            ),
            ("parts", f"{self.n_parts:,}"),
            ("not placed", counted(int(self.unplaced.size), "column")),
        ]

    def _oddities(self) -> list[str]:
        oddities = []
        if self.differs:
            how = (
                "or its rows have other weights"
                if self.differs == "entries"
                else "though it has as many entries in each column: values differ"
            )
            oddities.append(
                f"This is not the panel that the model was fitted to, {how}. The numbers here and in <a "
                "href='#quality'>How good it is</a> are those of this panel."
            )
        if self.weightless:
            oddities.append(f"{counted(self.weightless, 'row')} of weight zero left out.")
        low, high = self.weights
        if low != high:
            oddities.append(
                f"Rows weigh between {number(low)} and {number(high)}: a row of weight two counts as two rows."
            )
        elif low != 1:
            oddities.append(f"All rows weigh {number(low)}, and count as {number(low)} rows each.")
        return oddities

    def _unplaced(self) -> list[str]:
        sentences = []
        if self.n_parts > 1:
            outside = int(np.count_nonzero(self.parts > 0))
            sentences.append(
                f"Columns fall into {self.n_parts:,} parts that no chain of rows links, "
                f"{counted(outside, 'column')} outside the largest: columns of different parts cannot be compared."
            )
        if self.unplaced.size:
            first = [text(self.names[int(j)]) for j in self.unplaced[:NAMED]]
            sentences.append(
                f"{counted(int(self.unplaced.size), 'column')} could not be placed, never having been seen beside "
                f"another: {listed(first, int(self.unplaced.size))}."
            )
        elif self.n_parts == 1:
            sentences.append(
                "All columns are linked by chains of rows. To place them that is needed, not enough: two blocks of "
                "columns that no row spans must have at least as many columns in common as the rank, to be placed "
                "relative to each other."
            )
        return sentences

    def _picture(self) -> str:
        assert self.per_row is not None
        if self.per_row.min() == self.per_row.max():
            return sentence(f"Every row has {counted(int(self.per_row[0]), 'entry', 'entries')}.")
        counts = self.per_row[self.per_row > 0]
        empty = self.rows - len(counts)
        edges, logarithmic = bins(counts)
        heights, _ = np.histogram(counts, edges)

        def draw(axis: Any) -> None:
            axis.bar(edges[:-1], heights, np.diff(edges), align="edge", color=FIRST, linewidth=0)
            axis.set_xlabel("entries in a row")
            axis.set_ylabel("rows")
            whole_numbers(axis.yaxis)
            if logarithmic:
                axis.set_xscale("log")
                round_steps(axis.xaxis, max(float(edges[0]), 1.0), float(edges[-1]))
            else:
                whole_numbers(axis.xaxis)
                plain_numbers(axis.xaxis)

        half, most = float(np.median(self.per_row)), int(np.quantile(self.per_row, 0.9, method="inverted_cdf"))
        without = f"; {counted(empty, 'row')} without any are not drawn" if empty else ""
        return figure(
            drawn("entries", draw),
            "Histogram: how many rows have how many entries"
            + (", the number of entries on a logarithmic scale" if logarithmic else ""),
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
    numbers = _distribution(counts)
    return f"{numbers['least']:,} to {numbers['most']:,}, median {number(numbers['median'], 4)}"
