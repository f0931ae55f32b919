"""Pictures, and one self-contained page about a model."""

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
