"""How a result was made: with which versions, and in how many seconds."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib import import_module

from onesided import __version__

MODULES = {"numpy": "numpy", "scipy": "scipy", "numba": "numba", "scikit-learn": "sklearn"}


def versions() -> dict[str, str]:
    """Of Python and of what computes, as they say themselves: a package need not be installed to be run.

    >>> sorted(versions())
    ['numba', 'numpy', 'onesided', 'python', 'scikit-learn', 'scipy']
    """
    found = {name: str(import_module(module).__version__) for name, module in MODULES.items()}
    return {"python": platform.python_version(), "onesided": __version__} | found


@dataclass(frozen=True)
class Provenance:
    """``seconds`` that a fit took, None where that is not told; ``versions`` of what computed it."""

    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=versions)
