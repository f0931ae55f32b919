"""One self-contained page about a fitted model, and the picture of the demonstration.

A section of the page is a frozen value that a model and its panel make (``data``, ``row_space``, ``quality``,
``provenance``); ``page``, ``svg``, ``style`` and ``formatting`` turn what it knows into HTML and pictures. Nothing is
fitted here but to check a model on held-out rows, and nothing is read from files: that is the command line's. The room
may import from all rooms but ``cli``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onesided.report.report import Report

__all__ = ["Report"]


def __getattr__(name: str) -> Any:  # so that a picture of digits does not load what a page needs
    if name != "Report":
        raise AttributeError(f"module 'onesided.report' has no attribute {name!r}")
    from onesided.report.report import Report

    return Report
