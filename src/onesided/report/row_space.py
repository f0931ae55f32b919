"""What was found: the spectrum, the rank and how it was chosen, the components with their columns, a map."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from onesided.column_names import ColumnNames
from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.report.components import LONG, ColumnMap, Component, Components
from onesided.report.formatting import decimals, fixed, number, share, width
from onesided.report.page import Section, definitions, sentence, side_by_side, text
from onesided.report.selection import CENTERS, DIAGONALS, held_out_curve, settings_tried
from onesided.report.spectrum import SpectrumBands, eigenvalues, spectrum
from onesided.report.units import ColumnUnits

CARDS = 6


@dataclass(frozen=True, eq=False)
class RowSpaceSection(Section):
    """The row space of a model, in words and pictures.

    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit([[1.0, 2.0], [2.0, 4.0], [3.0, 5.0]])
    >>> names = ColumnNames(model.column_ids_, {})
    >>> RowSpaceSection(model, names, Components.of(model.row_space_), SpectrumBands()).to_dict()["rank"]
    1
    """

    title: ClassVar[str] = "What was found"
    anchor: ClassVar[str] = "found"

    model: OneSidedCompletion
    names: ColumnNames
    components: Components
    bands: SpectrumBands
    weighted: bool = False  # whether "rows" are a weight

    @property
    def in_short(self) -> str:
        """Rank and shares in a sentence."""
        components = self.components
        if components.number == 0:
            rows = components.row_share
            effects = f", and effects of rows with {share(rows)} of the variance" if rows > 0 else ""
            means = "means of their own" if self.model.center_ != "none" else "no means in this model"
            if self.model.rank_ == 0 and not self._chosen:
                given = self.model.rank != "auto"
                why = "was given" if given else "was taken, as too few rows can be held out to choose"
                return f"Rank 0 {why}: columns have {means}{effects}, and no component was looked for."
            return f"No component was found: columns have {means}{effects}, and nothing more in common that shows."
        others = {"row effects": components.row_share, "what is not known of the loadings": components.spread_share}
        parts = [
            f"{share(components.factor_share)} of the columns' variance is in the components",
            f"{share(components.noise_share)} belongs to single entries",
            *(f"{share(part)} to {what}" for what, part in others.items() if part > 0),
        ]
        chosen = "chosen on held-out rows" if self._chosen else "as given"
        return f"Rank {self.model.rank_}, {chosen}: {', '.join(parts[:-1])} and {parts[-1]}."

    @property
    def _units(self) -> ColumnUnits:
        return ColumnUnits(self.model.scales_, self.names)

    @property
    def _mechanism(self) -> str | None:
        return None if self.model.privacy_ is None else self.model.privacy_.mechanism

    @property
    def _chosen(self) -> bool:
        return self.model.rank == "auto" and self.model.selection_ is not None

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
        components, bands, selection = self.components, self.bands, self.model.selection_
        listed = components.to_dict(self.names)
        if bands.bands is not None:
            for k, component in enumerate(listed[: bands.number]):
                component["band"] = [float(bands.bands.lower[k]), float(bands.bands.upper[k])]
        return {
            "rank": self.model.rank_,
            "rank_chosen": self._chosen,
            "center": self.model.center_,
            "diagonal": self.model.diagonal_,
            "share_of_components": components.factor_share,
            "share_of_row_effects": components.row_share,
            "share_of_single_entries": components.noise_share,
            "share_of_unknown_loadings": components.spread_share,
            "units": self._units.to_dict(),
            "components_in": "scales" if components.scaled else "values",
            "components": listed,
            "map": self._map.to_dict(),
            "without_bands": bands.why_not or None,
            "trials_in": None if selection is None else selection.units,
            "trials": [] if selection is None else [asdict(trial) for trial in selection.trials],
        }

    def body(self) -> str:
        scaled, of_scales = self.components.scaled, "the columns' scales"
        terms = {
            "variance": f"{f'in squares of {of_scales}, ' if scaled else ''}of all columns that were seen, each "
            "counting alike, as the model has it: components, row effects, what belongs to single entries and, after "
            "refinement, what is not known of the loadings (the sum of their variances) add up to it.",
            "means, row effects, diagonal": "what is in the model beside components (center: columns has their means, "
            "both also an effect of each row), and whether the start takes columns to vary on their own (diagonal "
            "free) or not (fit).",
        }
        if self.model.selection_ is not None:
            terms |= {
                "held-out log score": "the mean over entries of held-out rows of −½ (log 2πs² + e²/s²), in nats: e is "
                "what an entry is off when it is predicted from the others of its row, s² the variance predicted for "
                "that. Larger is better.",
                "± to best": "one standard error of the difference to the best score, rows being independent.",
                "RMSE": "the root of the mean of e². It and the log score are "
                + (
                    "in the units of the values."
                    if self.model.selection_.units == "values"
                    else f"in units of {of_scales}."
                ),
            }
        if self.components.number:
            terms |= {
                "eigenvalue": "of a component: the variance it stands for, in "
                f"{f'squares of {of_scales}' if scaled else 'squared units of the values'}, added up over columns.",
                "loading": "by how much the value in a column moves, in "
                f"{'units of its scale' if scaled else 'its own units'}, when a row moves one standard deviation along "
                "the component. Which end is called high is arbitrary.",
            }
        if self._units.own:
            terms["scale"] = (
                "of a column: how large its values are beside those of others, estimated from all rows; the geometric "
                "mean over entries is one. What is in units of scales is the same whatever units a column came in."
            )
        if self.bands.bands is not None:
            terms["band"] = (
                "a 90% bootstrap band, from 30 resamplings of the rows, for the eigenvalue in the population the rows "
                "come from. The model shrinks eigenvalues, and may have one below its band."
            )
        said = sentence(*map(text, [self.in_short, *self._units.said]))
        return "".join([said, self._choice(), *self._scales(), *self._components(), definitions(terms)])

    def _scales(self) -> list[str]:
        return ["<h3>The columns' units</h3>", self._units.html()] if self._units.own else []

    def _choice(self) -> str:
        head = f"<h3>The rank{' and how it was chosen' if self._chosen else ''}</h3>"
        kind = f"Fitted with {CENTERS[self.model.center_]}, {DIAGONALS[self.model.diagonal_]}."
        selection, how, pictures = self.model.selection_, "", ""
        if self._mechanism not in (None, "local"):
            how = "was given: with this mechanism a private fit cannot choose."
        elif selection is not None:
            how = "" if self._chosen else "was given, not chosen; the rest was chosen on held-out rows."
            several = len({trial.rank for trial in selection.trials}) > 1
            curve = [held_out_curve(selection.trials)] if several else []
            pictures = side_by_side([*curve, settings_tried(selection)])
        elif self.model.rank == "auto":
            how = "was taken: fewer than ten rows have two entries, too few to hold some out and choose by them."
        else:
            how = "was given, not chosen; nothing was left to choose on held-out rows."
        return head + sentence(how and f"Rank {self.model.rank_} {how}", kind) + pictures

    def _components(self) -> list[str]:
        components = self.components
        if components.number == 0:
            why = "The rank is 0" if self.model.rank_ == 0 else "The factor is zero in every column"
            return [
                "<h3>Components</h3>",
                sentence(f"{why}: there is no spectrum, no component and no map of columns to show."),
            ]
        faint, left = self.model.rank_ - components.number, ""
        if faint:
            have, are = ("1 has", ", and is") if faint == 1 else (f"{faint} have", " each, and are")
            left = (
                f"Of {counted(self.model.rank_, 'component')}, {have} less than 0.1% of the components' variance{are} "
                "left out here and below."
            )
        curve = [spectrum(components, self.bands)] if components.number > 1 else []
        return [
            "<h3>The spectrum</h3>",
            sentence(left, self.bands.why_not),
            side_by_side([*curve, eigenvalues(components, self.bands)]),
            "<h3>The components, by their columns</h3>",
            sentence(self._naming()),
            f'<div class="cards">{"".join(map(self._card, range(CARDS), components.leading))}</div>',
            "<h3>A map of the columns</h3>",
            self._map.html(),
        ]

    def _naming(self) -> str:
        components = self.components
        out = len(components.factor) - len(components.named)
        fewest = number(components.fewest)
        few = f"rows that weigh less than {fewest} together" if self.weighted else f"fewer than {fewest} rows"
        if self._mechanism == "local":  # it keeps no count of a single column
            seen = "never seen, or never beside another"
        elif self._mechanism is not None:
            seen = f"seen in {few} by the counts released, which have noise"
        else:
            seen = f"seen in {few} or never beside another"
        of = f"{counted(out, 'column')} of {len(components.factor):,}"
        left = f"Left out: {of}, {seen}." if out else "No column is left out."
        more = components.number - CARDS
        rest = counted(more, "component of smaller eigenvalue is", "components of smaller eigenvalues are")
        return f"The columns with the largest loadings at either end. {left} {f'{rest} not shown.' if more > 0 else ''}"

    def _card(self, k: int, component: Component) -> str:
        def end(title: str, positions: Any) -> str:
            lines = []
            for j in positions:
                loading = self.components.factor[j, k]
                signed = f"{'+' if loading > 0 else ''}{fixed(loading, places)}"
                lines.append(f'<li><span>{text(self.names[int(j)])}</span><span class="v">{signed}</span></li>')
            return f"<div><p>{title}</p><ul>{''.join(lines) or '<li>no column</li>'}</ul></div>"

        largest = np.abs(self.components.factor[[*component.high, *component.low], k]).max(initial=0.0)
        places = decimals(float(largest), 3)
        head = f'Component {k + 1} <span class="muted">{share(component.share)} of variance</span>'
        ends = end("high end", component.high) + end("low end", component.low)
        stacked = " stacked" if self._long else ""
        return f'<div class="card"><h4>{head}</h4><div class="ends{stacked}">{ends}</div></div>'
