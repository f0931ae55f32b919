"""How a result was made: with which versions, and in how many seconds."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib import import_module

from onesided import __version__

MODULES = {"numpy": "numpy", "scipy": "scipy", "numba": "numba", "scikit-learn": "sklearn"}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute, from the modules: a package may run uninstalled.

    >>> sorted(versions())
    ['numba', 'numpy', 'onesided', 'python', 'scikit-learn', 'scipy']
    """
    packages = {name: str(import_module(module).__version__) for name, module in MODULES.items()}
    return {"python": platform.python_version(), "onesided": __version__} | packages


@dataclass(frozen=True)
class Provenance:
    """``seconds`` that a fit took, None where that is not recorded; ``versions`` of what computed it."""

    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=versions)
