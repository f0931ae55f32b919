"""How a result was made: with which versions, and in how many seconds."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import version

PACKAGES = ("onesided", "numpy", "scipy", "numba", "scikit-learn")


def versions() -> dict[str, str]:
    """Of Python and of what computes.

    >>> sorted(versions())
    ['numba', 'numpy', 'onesided', 'python', 'scikit-learn', 'scipy']
    """
    return {"python": platform.python_version()} | {package: version(package) for package in PACKAGES}


@dataclass(frozen=True)
class Making:
    """``seconds`` that a fit took, None where that is not told; ``versions`` of what computed it."""

    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=versions)
