"""Refusals name options as whoever reads them has to write them: ``non_finite="drop"``, or ``--non-finite drop``."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import onesided
from onesided.cli import main
from onesided.errors import EXPECTED, FOUND, InputError

SOURCE = Path(onesided.__file__).parent
PLAN = ["--epsilon", "1", "--delta", "1e-5", "--bounds", "-9", "9", "--max-entries", "4", "--rank", "1"]
PUBLIC = ["--columns", "public"]
SIZE = ["--rows", "100", "--columns", "9000"]


def test_an_error_carries_what_its_message_says() -> None:
    error = InputError(f"{FOUND} is not here; pass {EXPECTED}", option="at", found="a", expected=["b", "c"])
    assert (error.option, error.found, error.expected) == ("at", "a", ("b", "c"))
    assert str(error) == 'at="a" is not here; pass at="b" or "c"'
    assert str(InputError("no")) == "no"
    two = InputError(f"list them as {EXPECTED}, or pass {EXPECTED}", option="at", expected=[list, "b", "c"])
    assert str(two) == 'list them as at=[…], or pass at="b" or "c"'


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_sent(copied: Any) -> None:
    """As processes of a cluster send it."""
    error = InputError(f"pass {EXPECTED}", option="rank", found="auto", expected=[3])
    again = copied(error)
    assert type(again) is InputError
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    longer = again.followed_by(" (found in a.csv)")
    assert (str(longer), longer.option) == ("pass rank=3 (found in a.csv)", "rank")


# Every option that an error names


def options() -> dict[str, list[click.Option]]:
    """All options of all commands, by their names in Python."""
    named: dict[str, list[click.Option]] = {}
    for command in main.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                named.setdefault(str(parameter.name), []).append(parameter)
    return named


def errors() -> list[tuple[str, ast.Call]]:
    """Where the library makes an error, and the call that does."""
    return [
        (f"{path.relative_to(SOURCE)}:{node.lineno}", node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InputError"
    ]


def given(call: ast.Call, name: str) -> Any:
    """The value of a keyword, where it is written out."""
    value = next((one.value for one in call.keywords if one.arg == name), ast.Constant(None))
    if isinstance(value, ast.List):
        return [one.value for one in value.elts if isinstance(one, ast.Constant)]
    return value.value if isinstance(value, ast.Constant) else None


NAMED = [(where, call) for where, call in errors() if given(call, "option")]


@pytest.mark.parametrize(("where", "call"), NAMED, ids=[where for where, _ in NAMED])
def test_options_and_values_named_exist(where: str, call: ast.Call) -> None:
    """A value of a choice is one of some command's choices; True is for flags."""
    named = options().get(given(call, "option"))
    assert named, f"{where} names an option that no command has"
    for value in given(call, "expected") or []:
        assert any(
            option.is_flag
            if value is True
            else not isinstance(option.type, click.Choice) or value in option.type.choices
            for option in named
        )


def test_options_are_not_spelled_in_messages() -> None:
    """What a command line is to spell has a mark in its place; datasets are loaded with options that no command has."""
    for where, call in errors():
        message = "".join(
            str(node.value) if isinstance(node, ast.Constant) else ""
            for part in call.args
            for node in ([part] if isinstance(part, ast.Constant) else getattr(part, "values", []))
        )
        spelled = set(re.findall(r'\b([a-z_]+)=(?:"|True|$)', message)) & set(options())
        assert not spelled or where.startswith("datasets"), f"{where} spells {spelled}"


# What is refused on the command line


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that are refused, a model and one that is as good as any."""
    folder = tmp_path_factory.mktemp("home")
    values = np.random.default_rng(0).normal(size=(30, 4)).tolist()
    lines = [f"u{u},c{j},{value}" for u, row in enumerate(values) for j, value in enumerate(row)]
    tables = {
        "good": [],
        "nan": ["v,c0,nan"],
        "twice": ["v,c0,1", "v,c0,2"],
        "text": ["v,c0,good"],
        "stranger": ["v,other,1"],
    }
    for name, more in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(["user,item,rating", *lines, *more]) + "\n")
    (folder / "nameless.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    (folder / "pairs.csv").write_text("user,item\nnobody,c0\n")
    main(
        ["fit", str(folder / "good.csv"), "-o", str(folder / "m"), "--rank", "1", "--without-panel"],
        standalone_mode=False,
    )
    return folder


READING = {
    "fit": "fit {} -o out",
    "impute": "impute m {} -o out.csv",
    "inspect": "inspect {}",
    "pack": "pack {} -o out.panel",
    "project": "project m {}",
    "recommend": "recommend m {} --row-id u0",
    "report": "report m --panel {} -o out.html",
}
TABLES = {
    "nan.csv": "--non-finite drop",
    "twice.csv": "--duplicates mean, sum or last",
    "text.csv": "name another column with --value NAME",
    "nameless.csv": "Say which one is the row with --row NAME",
}
OTHERS = [
    ("impute m stranger.csv -o out.csv", [], "pass --unknown drop to leave their entries out"),
    ("recommend m stranger.csv --row-id u0", [], "pass --unknown drop to leave their entries out"),
    ("impute m good.csv --at pairs.csv -o out.csv", [], "pass --unknown drop to leave them out"),
    ("fit good.csv -o out", PLAN, "as --columns FILE, or pass --columns public if that"),
    ("fit good.csv -o out", [*PLAN, *PUBLIC, "--rank", "auto"], "--rank auto tries many ranks"),
    ("fit good.csv -o out", [*PLAN, *PUBLIC, "--center", "none"], "--center none is not for a private fit"),
    ("fit good.csv -o out", [*PLAN, *PUBLIC, "--delta", "0.5"], "or pass --any-delta"),
    ("fit good.csv -o out", [*PLAN, *PUBLIC, "--bounds", "1", "2"], "or pass --clip-values to move"),
    ("privacy", [*PLAN, *SIZE, "--mechanism", "central"], "use --mechanism gradient"),
]


def refusal(*arguments: str) -> str:
    """The message of a command that refuses; the option that the error names is one of the command's."""
    with pytest.raises(click.ClickException) as caught:
        main(list(arguments), standalone_mode=False)
    error = caught.value.__cause__
    assert isinstance(error, InputError)
    if error.option is not None:
        assert error.option in [parameter.name for parameter in main.commands[arguments[0]].params]
    assert caught.value.exit_code == 2
    return caught.value.message


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("table", TABLES)
def test_refusals_of_tables_name_options(home: Path, monkeypatch: pytest.MonkeyPatch, command: str, table: str) -> None:
    monkeypatch.chdir(home)
    assert TABLES[table] in refusal(*READING[command].format(table).split())


@pytest.mark.parametrize(("command", "arguments", "message"), OTHERS)
def test_other_refusals_name_options(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(home)
    assert message in refusal(*command.split(), *arguments)


def test_an_option_that_a_command_has_not_is_spelled_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError(f"pass {EXPECTED}", option="columns", expected=["individuals"])

    monkeypatch.setattr("onesided.experiments.experiment", refuse)
    with pytest.raises(click.ClickException, match=r'^pass columns="individuals"$'):
        main(["reproduce", "figure-1"], standalone_mode=False)
