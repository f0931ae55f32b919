"""Data flows one way: a room imports from rooms above it, never from below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import onesided

SOURCE = Path(onesided.__file__).parent

ROOMS = [
    "errors",
    "memory",
    "arrays",
    "kernels",
    "pooling",
    "ids",
    "compressed",
    "intake",
    "tables",
    "panel",
    "checkpoint",
    "packed",
    "synthetic",
    "engines",
    "parts",
    "tallies",
    "omega",
    "moments",
    "measurement",
    "objective",
    "solvers",
    "row_space",
    "imputation",
    "similarity",
    "recommendation",
    "refinement",
    "selection",
    "recoverability",
    "uncertainty",
    "blending",
    "second_moment",
    "storage",
    "packing",
    "privacy",
    "making",
    "names",
    "estimator",
    "completion",
    "hajek_gd",
    "baselines",
    "datasets",
    "experiments",
    "report",
    "cli",
]


def room(path):
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def imports(path):
    """Modules of the package that a file imports, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("onesided."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("onesided."):
                    yield name.name.split(".")[1]


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def test_every_file_has_a_room():
    assert {room(path) for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_upwards(path):
    own = ROOMS.index(room(path))
    below = {other for other in imports(path) if ROOMS.index(other) > own}
    assert not below, f"{path.name} imports from below: {sorted(below)}"


def test_no_room_without_a_purpose():
    forbidden = {"utils", "helpers", "common", "misc"}
    assert not {path.stem for path in FILES} & forbidden


def test_nothing_is_pickled():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "pickle" not in text, path
