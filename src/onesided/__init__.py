"""The second moment and row space of panels too sparse to complete.

Names are imported when they are first used, so that ``import onesided`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onesided.errors import InputError
    from onesided.estimators.completion import OneSidedCompletion
    from onesided.estimators.hajek_gd import HajekGD
    from onesided.model.second_moment import SecondMoment
    from onesided.pairs.moments import PairMoments
    from onesided.panels.packed.format import load_packed
    from onesided.panels.panel import Panel, as_panel
    from onesided.privacy import Privacy

_HOMES = {
    "HajekGD": "estimators.hajek_gd",
    "InputError": "errors",
    "OneSidedCompletion": "estimators.completion",
    "PairMoments": "pairs.moments",
    "Panel": "panels.panel",
    "Privacy": "privacy",
    "SecondMoment": "model.second_moment",
    "as_panel": "panels.panel",
    "load_packed": "panels.packed.format",
}
_MODULES = {
    "baselines": "baselines",
    "datasets": "datasets",
    "privacy": "privacy",
    "recoverability": "recoverability",
    "report": "report",
    "synthetic": "synthetic",
    "uncertainty": "fitting.bootstrap",
}

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
    if name in _MODULES:
        return import_module(f"onesided.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'onesided' has no attribute {name!r}")
    return getattr(import_module(f"onesided.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
