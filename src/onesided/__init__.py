"""The second moment and row space of panels too sparse to complete.

Names are imported when they are first used, so that ``import onesided`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onesided.completion import OneSidedCompletion
    from onesided.errors import InputError
    from onesided.hajek_gd import HajekGD
    from onesided.moments import PairMoments
    from onesided.packed import load_packed
    from onesided.panel import Panel, as_panel
    from onesided.privacy import Privacy
    from onesided.second_moment import SecondMoment

_HOMES = {
    "HajekGD": "hajek_gd",
    "InputError": "errors",
    "OneSidedCompletion": "completion",
    "PairMoments": "moments",
    "Panel": "panel",
    "Privacy": "privacy",
    "SecondMoment": "second_moment",
    "as_panel": "panel",
    "load_packed": "packed",
}
_ROOMS = ("baselines", "datasets", "privacy", "recoverability", "report", "synthetic", "uncertainty")

__all__ = [
    "HajekGD",
    "InputError",
    "OneSidedCompletion",
    "PairMoments",
    "Panel",
    "Privacy",
    "SecondMoment",
    "as_panel",
    "load_packed",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"onesided.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'onesided' has no attribute {name!r}")
    return getattr(import_module(f"onesided.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
