"""A model on one page: what was observed, what was found, how good it is, how it was made.

What is refused, beside what no panel may hold (:mod:`onesided.panels.panel`) and what :mod:`onesided.column_names`
refuses:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
not a fitted ``OneSidedCompletion``                    a report is of a OneSidedCompletion; found HajekGD …
a panel with other columns than the model              the panel has 3 columns that the model does not: …
a panel without some of the model's columns            the panel lacks 3 columns of the model: …
a panel for a private model                            the model is private: a report on its rows …
matplotlib not installed                               a report has pictures, and matplotlib is missing: …
an output that cannot be written                       cannot write report.html: …
=====================================================  ========================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onesided import __version__
from onesided.column_names import ColumnNames, read_column_names
from onesided.errors import InputError, counted, examples
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.setting import with_weights_as_counts
from onesided.panels.alignment import align_as_written, as_written
from onesided.panels.ids import plain_id
from onesided.panels.panel import Panel, as_panel
from onesided.report.components import Components
from onesided.report.data import DataSection
from onesided.report.page import Section, bullets, framed, text, whole
from onesided.report.provenance import ProvenanceSection
from onesided.report.quality import QualitySection
from onesided.report.row_space import RowSpaceSection
from onesided.report.spectrum import SpectrumBands
from onesided.storage.atomic import written_beside

Progress = Callable[[int, int], object]

STEPS = 100
AFTER = {"data": 10, "quality": 55, "bands": 95}  # steps done, of so many


@dataclass(frozen=True, eq=False)
class Report:
    """A report on a fitted model; a notebook shows it, or any of its sections, as it is.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(300, 10, 1, rng=0), 4, rng=1)
    >>> model = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(panel)
    >>> report = Report.of(model)
    >>> [section.title for section in report.sections]
    ['What was observed', 'What was found', 'How good it is', 'How it was made']
    >>> report.html().startswith("<!DOCTYPE html>")
    True
    """

    title: str
    data: DataSection
    row_space: RowSpaceSection
    quality: QualitySection
    provenance: ProvenanceSection

    @classmethod
    def of(
        cls,
        model: OneSidedCompletion,
        panel: Any = None,
        names: ColumnNames | Mapping[Any, str] | str | os.PathLike[str] | None = None,
        *,
        title: str = "A report on a panel and its model",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Report:
        """Make the report of a model.

        Parameters
        ----------
        model : OneSidedCompletion
            Fitted, or loaded from its file.
        panel : optional
            The panel it was fitted to, in whatever form :func:`onesided.as_panel` takes; not needed where the model
            holds it. Without it the report has neither what was observed nor how good the model is.
        names : optional
            What columns are called: a mapping of ids to names, or a table of them (:mod:`onesided.column_names`).
        seed : int
            Of the rows held out, the rows resampled and all other draws: the same model and seed give the same page.
        progress : callable, optional
            Called with the steps done and their number in all.
        """
        if not isinstance(model, OneSidedCompletion):
            raise InputError(
                f"a report is of a OneSidedCompletion; found {type(model).__name__}: fit one to the same panel"
            )
        check_is_fitted(model)
        model = copy(model)  # another fit of it changes nothing here

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, STEPS)

        rows = _panel_of(model, panel)
        called = _names_of(model, names)
        tell(1)
        data = DataSection.of(model, rows, called, seed)
        tell(AFTER["data"])
        quality = QualitySection.of(model, rows, seed)
        tell(AFTER["quality"])
        components = Components.of(model.row_space_)

        def resampled(done: int, total: int) -> None:
            tell(AFTER["quality"] + (AFTER["bands"] - AFTER["quality"]) * done // total)

        bands = SpectrumBands.of(model, rows, components.number, seed, resampled, earned=quality.earned)
        row_space = RowSpaceSection(model, called, components, bands, data.weighted)
        tell(AFTER["bands"])
        provenance = ProvenanceSection(model, rows, seed, data.weighted)
        return cls(title, data, row_space, quality, provenance)

    @property
    def sections(self) -> tuple[Section, ...]:
        """In the order of the page."""
        return self.data, self.row_space, self.quality, self.provenance

    def html(self) -> str:
        """The page: one file that needs no other."""
        return whole(self.title, self._content())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all."""
        page = self.html().encode("utf-8")
        with written_beside(path) as temporary:
            temporary.write_bytes(page)

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the page, as JSON takes them: columns with id and name, nothing infinite or NaN."""
        numbers = {section.anchor: section.to_dict() for section in self.sections}
        return dict(_finite({"title": self.title, **numbers}))

    def _repr_html_(self) -> str:
        return framed(self._content())

    def _content(self) -> str:
        short = [text(section.in_short) for section in self.sections if section.in_short]
        links = "".join(f'<a href="#{section.anchor}">{text(section.title)}</a>' for section in self.sections)
        sections = "".join(section.html() for section in self.sections)
        return (
            f'<header><h1>{text(self.title)}</h1>{bullets(short)}</header><nav aria-label="Sections">{links}</nav>'
            f"<main>{sections}</main><footer><p>Made by onesided {text(__version__)}. Every number on this page is "
            "defined at the end of its section.</p></footer>"
        )


def _names_of(model: OneSidedCompletion, names: Any) -> ColumnNames:
    if isinstance(names, ColumnNames):
        return names
    if isinstance(names, str | os.PathLike):
        return read_column_names(names, model.column_ids_)
    return ColumnNames(model.column_ids_, dict(names or {}))


def _panel_of(model: OneSidedCompletion, panel: Any) -> Panel | None:
    """The panel given, over the model's columns (ids compared as they are written), or else the model's own."""
    if panel is None:
        return None if model.second_moment_.panel is None else model.second_moment_.panel.to_panel()
    if model.privacy_ is not None:
        raise InputError(
            "the model is private: a report on its rows would tell exact numbers that no part of the budget has paid "
            "for; leave the panel out"
        )
    rows = as_panel(panel)
    wanted, present = as_written(model.column_ids_), as_written(rows.column_ids)
    strangers, lost = present[~np.isin(present, wanted)], np.sort(wanted[~np.isin(wanted, present)])
    expected = "expected the panel that the model was fitted to: give that, or fit a model to this one"
    if len(strangers):
        raise InputError(
            f"the panel has {counted(len(strangers), 'column')} that the model does not: {examples(strangers)}; "
            f"{expected}"
        )
    if len(lost):
        raise InputError(f"the panel lacks {counted(len(lost), 'column')} of the model: {examples(lost)}; {expected}")
    return with_weights_as_counts(align_as_written(rows, model.column_ids_))


def _finite(value: Any) -> Any:
    """Plain values, with None for what is infinite or NaN."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    value = plain_id(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value
