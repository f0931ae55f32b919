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
    "storage",
    "panels",
    "synthetic",
    "engines",
    "pairs",
    "model",
    "fitting",
    "recoverability",
    "privacy",
    "column_names",
    "estimators",
    "baselines",
    "datasets",
    "experiments",
    "report",
    "cli",
]
LARGEST_HALL = 22  # entries of the package, __init__.py included
LONGEST_MODULE, LONGEST_ESTIMATOR = 450, 350  # lines; kernels have no such limit
MOST_ARGUMENTS = 8  # of a function outside kernels, beside self; constructors aside


def room(path):
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def imports(path):
    """Rooms that a file imports from, at the top or inside functions, by path or through the package itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "onesided":
            for name in node.names:
                home = onesided._HOMES.get(name.name, onesided._MODULES.get(name.name, name.name))
                if not home.startswith("__"):  # the version
                    yield home.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("onesided."):
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


def test_the_hall_is_small():
    entries = {path.name for path in SOURCE.iterdir()} - {"__pycache__", "py.typed"}
    assert len(entries) <= LARGEST_HALL


@pytest.mark.parametrize("name", [name for name in ROOMS if (SOURCE / name).is_dir()])
def test_every_room_says_what_lives_there_and_what_it_may_import(name):
    said = ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert len(said.splitlines()) >= 3
    assert "import" in said


def arguments(function):
    every = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    named = [argument.arg for argument in every if argument.arg not in ("self", "cls")]
    return named + [argument.arg for argument in (function.args.vararg, function.args.kwarg) if argument]


@pytest.mark.parametrize(
    "path", [path for path in FILES if room(path) != "kernels"], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_modules_and_signatures_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= (LONGEST_ESTIMATOR if room(path) == "estimators" else LONGEST_MODULE)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            assert len(arguments(node)) <= MOST_ARGUMENTS, f"{node.name} takes {arguments(node)}"


def test_no_room_without_a_purpose():
    forbidden = {"utils", "helpers", "common", "misc"}
    assert not {path.stem for path in FILES} & forbidden


def test_nothing_is_pickled():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "pickle" not in text, path
