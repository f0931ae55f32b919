"""What was found: the spectrum, the rank and how it was chosen, the components with their columns, a map."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from onesided.column_names import ColumnNames
from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.selection import Selection
from onesided.report.bands import SpectrumBands
from onesided.report.column_map import LONG, ColumnMap
from onesided.report.components import Component, Components
from onesided.report.formatting import decimals, fixed, number, share, width
from onesided.report.page import Section, definitions, sentence, side_by_side, text
from onesided.report.selection import CENTERS, DIAGONALS, held_out_curve, settings_tried
from onesided.report.spectrum import eigenvalues, spectrum

CARDS = 6


@dataclass(frozen=True, eq=False)
class RowSpaceSection(Section):
    """The row space of a model, in words and pictures.

    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit([[1.0, 2.0], [2.0, 4.0], [3.0, 5.0]])
    >>> names = ColumnNames(model.column_ids_, {})
    >>> RowSpaceSection.of(model, names, Components.of(model.row_space_), SpectrumBands()).to_dict()["rank"]
    1
    """

    title: ClassVar[str] = "What was found"
    anchor: ClassVar[str] = "found"

    names: ColumnNames
    rank: int
    center: str
    diagonal: str
    rank_given: Any  # the parameter rank: a number or "auto"
    mechanism: str | None  # of a private model
    selection: Selection | None
    components: Components
    bands: SpectrumBands
    weighted: bool = False  # whether "rows" are a weight

    @classmethod
    def of(
        cls,
        model: OneSidedCompletion,
        names: ColumnNames,
        components: Components,
        bands: SpectrumBands,
        *,
        weighted: bool = False,
    ) -> RowSpaceSection:
        """Of a fitted model, with its components and bands around their eigenvalues."""
        return cls(
            names,
            model.rank_,
            model.center_,
            model.diagonal_,
            model.rank,
            None if model.privacy_ is None else model.privacy_.mechanism,
            model.selection_,
            components,
            bands,
            weighted,
        )

    @property
    def in_short(self) -> str:
        """Rank and shares in a sentence."""
        components = self.components
        if components.number == 0:
            effects = (
                f", and effects of rows with {share(components.row_share)} of the variance"
                if components.row_share > 0
                else ""
            )
            means = "means of their own" if self.center != "none" else "no means in this model"
            if self.rank == 0 and not self._chosen:
                why = (
                    "was taken, as too few rows can be held out to choose" if self.rank_given == "auto" else "was given"
                )
                return f"Rank 0 {why}: columns have {means}{effects}, and no component was looked for."
            return f"No component was found: columns have {means}{effects}, and nothing more in common that shows."
        others = {"row effects": components.row_share, "what is not known of the loadings": components.spread_share}
        rest = [f"{share(part)} to {what}" for what, part in others.items() if part > 0]
        parts = [
            f"{share(components.factor_share)} of the columns' variance is in the components",
            f"{share(components.noise_share)} belongs to single entries",
            *rest,
        ]
        chosen = "chosen on held-out rows" if self._chosen else "as given"
        return f"Rank {self.rank}, {chosen}: {', '.join(parts[:-1])} and {parts[-1]}."

    @property
    def _chosen(self) -> bool:
        return self.rank_given == "auto" and self.selection is not None

    @cached_property
    def _map(self) -> ColumnMap:
        return ColumnMap.of(self.components, self.names)

    @property
    def _long(self) -> bool:
        """Whether names of columns need more room than ids."""
        shown = {int(j) for component in self.components.leading[:CARDS] for j in (*component.high, *component.low)}
        return max((width(self.names[j]) for j in shown), default=0) > LONG

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        components, bands = self.components, self.bands
        listed = components.to_dict(self.names)
        if bands.bands is not None:
            for k, component in enumerate(listed[: bands.number]):
                component["band"] = [float(bands.bands.lower[k]), float(bands.bands.upper[k])]
        return {
            "rank": self.rank,
            "rank_chosen": self._chosen,
            "center": self.center,
            "diagonal": self.diagonal,
            "share_of_components": components.factor_share,
            "share_of_row_effects": components.row_share,
            "share_of_single_entries": components.noise_share,
            "share_of_unknown_loadings": components.spread_share,
            "components": listed,
            "map": self._map.to_dict(),
            "without_bands": bands.why_not or None,
            "trials": [] if self.selection is None else [asdict(trial) for trial in self.selection.trials],
        }

    def body(self) -> str:
        terms = {
            "variance": "of all columns that were seen, each counting alike, as the model has it: components, row "
            "effects, what belongs to single entries and, after refinement, what is not known of the loadings (the sum "
            "of their variances) add up to it.",
            "means, row effects, diagonal": "what is in the model beside components (center: columns has their means, "
            "both also an effect of each row), and whether the start takes columns to vary on their own (diagonal "
            "free) or not (fit).",
        }
        if self.selection is not None:
            terms |= {
                "held-out log score": "the mean over entries of held-out rows of −½ (log 2πs² + e²/s²), in nats: e is "
                "what an entry is off when it is predicted from the others of its row, s² the variance predicted for "
                "that. Larger is better.",
                "± to best": "one standard error of the difference to the best score, rows being independent.",
                "RMSE": "the root of the mean of e², in the units of the values.",
            }
        if self.components.number:
            terms |= {
                "eigenvalue": "of a component: the variance it stands for, in squared units of the values, added up "
                "over columns.",
                "loading": "by how much the value in a column moves, in its own units, when a row moves one standard "
                "deviation along the component. Which end is called high is arbitrary.",
            }
        if self.bands.bands is not None:
            terms["band"] = (
                "a 90% bootstrap band, from 30 resamplings of the rows, for the eigenvalue in the population the rows "
                "come from. The model shrinks eigenvalues, and may have one below its band."
            )
        return "".join([sentence(text(self.in_short)), self._choice(), *self._components(), definitions(terms)])

    def _choice(self) -> str:
        head = f"<h3>The rank{' and how it was chosen' if self._chosen else ''}</h3>"
        kind = f"Fitted with {CENTERS[self.center]}, {DIAGONALS[self.diagonal]}."
        if self.mechanism not in (None, "local"):
            return head + sentence(
                f"Rank {self.rank} was given: with this mechanism a private fit cannot choose.", kind
            )
        if self.selection is None:
            why = (
                "was taken: fewer than ten rows have two entries, too few to hold some out and choose by them."
                if self.rank_given == "auto"
                else "was given, not chosen; nothing was left to choose on held-out rows."
            )
            return head + sentence(f"Rank {self.rank} {why}", kind)
        given = "" if self._chosen else f"Rank {self.rank} was given, not chosen; the rest was chosen on held-out rows."
        ranks = {trial.rank for trial in self.selection.trials}
        curve = [held_out_curve(self.selection.trials)] if len(ranks) > 1 else []
        picture = side_by_side([*curve, settings_tried(self.selection)])
        return head + sentence(given, kind) + picture

    def _components(self) -> list[str]:
        components = self.components
        if components.number == 0:
            why = "The rank is 0" if self.rank == 0 else "The factor is zero in every column"
            return [
                "<h3>Components</h3>",
                sentence(f"{why}: there is no spectrum, no component and no map of columns to show."),
            ]
        faint = self.rank - components.number
        left = (
            f"Of {counted(self.rank, 'component')}, "
            + ("1 has" if faint == 1 else f"{faint} have")
            + " less than 0.1% of the components' variance"
            + (", and is left out here and below." if faint == 1 else " each, and are left out here and below.")
            if faint
            else ""
        )
        return [
            "<h3>The spectrum</h3>",
            sentence(left, self.bands.why_not),
            side_by_side(
                [
                    *([spectrum(components, self.bands)] if components.number > 1 else []),
                    eigenvalues(components, self.bands),
                ]
            ),
            "<h3>The components, by their columns</h3>",
            sentence(self._naming()),
            f'<div class="cards">{"".join(map(self._card, range(CARDS), components.leading))}</div>',
            "<h3>A map of the columns</h3>",
            self._map.html(),
        ]

    def _naming(self) -> str:
        components = self.components
        out = len(components.factor) - len(components.named)
        few = (
            f"rows that weigh less than {number(components.fewest)} together"
            if self.weighted
            else f"fewer than {number(components.fewest)} rows"
        )
        if self.mechanism == "local":  # it keeps no count of a single column
            seen = "never seen, or never beside another"
        elif self.mechanism is not None:
            seen = f"seen in {few} by the counts released, which have noise"
        else:
            seen = f"seen in {few} or never beside another"
        left = (
            f"Left out: {counted(out, 'column')} of {len(components.factor):,}, {seen}."
            if out
            else "No column is left out."
        )
        more = components.number - CARDS
        rest = (
            f"{counted(more, 'component of smaller eigenvalue is', 'components of smaller eigenvalues are')} not shown."
            if more > 0
            else ""
        )
        return f"The columns with the largest loadings at either end. {left} {rest}"

    def _card(self, k: int, component: Component) -> str:
        def end(title: str, positions: Any) -> str:
            if len(positions) == 0:
                return f"<div><p>{title}</p><ul><li>no column</li></ul></div>"
            lines = "".join(
                f'<li><span>{text(self.names[int(j)])}</span><span class="v">'
                f"{_signed(self.components.factor[j, k], places)}</span></li>"
                for j in positions
            )
            return f"<div><p>{title}</p><ul>{lines}</ul></div>"

        largest = np.abs(self.components.factor[[*component.high, *component.low], k]).max(initial=0.0)
        places = decimals(float(largest), 3)
        head = f'Component {k + 1} <span class="muted">{share(component.share)} of variance</span>'
        ends = end("high end", component.high) + end("low end", component.low)
        return (
            f'<div class="card"><h4>{head}</h4><div class="ends{" stacked" if self._long else ""}">{ends}</div></div>'
        )


def _signed(value: float, places: int) -> str:
    return f"{'+' if value > 0 else ''}{fixed(value, places)}"
