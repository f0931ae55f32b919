"""Doctests of modules that import PyTorch, Triton or Ray are skipped where these are not installed, and say so."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import NEEDS

IMPORTED_BY = {
    "torch": ("onesided/engines/gpu*.py", "onesided/kernels/gpu*.py"),
    "triton": ("onesided/kernels/fused*.py",),
    "ray": ("onesided/engines/ray/*.py",),
}
MISSING = [package for package in IMPORTED_BY if find_spec(package) is None]


class NotInstalled(pytest.File):
    """A module that cannot be imported without ``package``."""

    package: str

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip(NEEDS[self.package], allow_module_level=True)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    collectors = yield
    for package in MISSING:
        if any(file_path.match(pattern) for pattern in IMPORTED_BY[package]):
            skipped = NotInstalled.from_parent(parent, path=file_path)
            skipped.package = package
            return [skipped]
    return collectors
