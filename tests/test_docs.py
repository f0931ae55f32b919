"""What the README and the pages of the site say is run: Python, commands, what both print, links, names and help.

A page is read from top to bottom, in a folder of its own. Python blocks share their names. Of ``sh`` blocks every
``onesided`` command is parsed by the real command, and run where all files that it reads are there. A ``text`` block
that follows a block is what that one prints: words as they are, numbers to the last digit shown or to 2%, a number
after "about" within a half, and a line that is "…" for any lines at all.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from onesided.cli import main
from tests.conftest import NEEDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
WITHOUT_FILES = {"privacy", "data list"}  # commands that are run although they read no file


class Block(NamedTuple):
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*found) for found in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks(*languages: str) -> list[Path]:
    return [page for page in PAGES if any(one.language in languages for one in blocks(page.read_text("utf-8")))]


# Commands


def command_lines(block: str) -> Iterator[list[str]]:
    """The ``onesided`` commands of a block of shell, as lists of words, without comments."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["onesided"]:
            yield words


class Parsed(NamedTuple):
    path: str
    inputs: list[str]


def parsed(words: list[str]) -> Parsed:
    """The command that words call and the files it reads; fails as click would, but for files that are not there."""
    command: click.Command = main
    context = click.Context(main, info_name="onesided", **main.context_settings)
    rest = words[1:]
    path: list[str] = []
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {' '.join([*path, rest[0]])!r}"
        path.append(rest[0])
        command = command.commands[rest[0]]
        context = click.Context(command, context, info_name=rest[0], **command.context_settings)
        rest = rest[1:]
    values, left, _ = command.make_parser(context).parse_args(list(rest))
    assert not left, f"{' '.join(words)}: {left} is one argument too many"
    inputs = []
    for one in command.get_params(context):
        value = values.get(one.name)
        said = value is not None and value != () and type(value).__name__ != "Sentinel"
        assert said or not one.required, f"{' '.join(words)}: {one.name} is missing"
        if not said:
            continue
        if isinstance(one.type, click.Path):
            inputs += [value] if isinstance(value, str) and one.type.exists else []
            inputs += list(value) if isinstance(value, tuple) and one.type.exists else []
        else:
            one.type_cast_value(context, value)
    return Parsed(" ".join(path), inputs)


def runs(command: Parsed) -> bool:
    return all(Path(one).exists() for one in command.inputs) and bool(command.inputs or command.path in WITHOUT_FILES)


def called(words: list[str]) -> Result:
    """As in a terminal of 80 columns, of which click takes 78."""
    return CliRunner().invoke(main, words[1:], prog_name="onesided", terminal_width=78)


# What is printed

NUMBER = re.compile(r"(?<![\w.])[−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?")


def agree(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed."""
    wanted = [" ".join(line.split()) for line in shown.strip().splitlines()]
    found = [" ".join(line.split()) for line in printed.strip().splitlines()]
    return _lines_agree(wanted, found)


def _lines_agree(wanted: list[str], found: list[str]) -> bool:
    if not wanted or not found:
        return not found and all(line == "…" for line in wanted)
    if wanted[0] == "…":
        return any(_lines_agree(wanted[1:], found[skipped:]) for skipped in range(len(found) + 1))
    return _line_agrees(wanted[0], found[0]) and _lines_agree(wanted[1:], found[1:])


def _line_agrees(wanted: str, found: str) -> bool:
    if NUMBER.sub("#", wanted) != NUMBER.sub("#", found):
        return False
    numbers = zip(NUMBER.finditer(wanted), NUMBER.findall(found), strict=True)
    return all(_close(one[0], other, wanted[: one.start()].endswith("about ")) for one, other in numbers)


def _close(shown: str, printed: str, roughly: bool) -> bool:
    one, other = (float(text.replace(",", "").replace("−", "-").rstrip("%")) for text in (shown, printed))
    digits, _, power = shown.rstrip("%").partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(one - other) <= max(1.01 * unit if unit < 1 else 0.0, (0.5 if roughly else 0.02) * abs(one))


# The pages, run


class Page:
    """A page being run, and what its Python blocks have defined."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, dict[str, Any]()

    def run(self) -> Iterator[int]:
        """Runs block after block, and says which."""
        printed = ""
        for number, block in enumerate(blocks(self.path.read_text("utf-8")), start=1):
            where = f"{name(self.path)}, block {number}"
            if block.language == "text" and printed:
                assert agree(block.text, printed), f"{where} shows\n{block.text}\nprinted was\n{printed}"
            printed = self.ran(block, where)
            yield number

    def ran(self, block: Block, where: str) -> str:
        """What a block printed, if it is one to be run."""
        if block.language == "python":
            return self.python(block.text, where)
        return self.shell(block.text, where) if block.language == "sh" else ""

    def python(self, source: str, where: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source, where, "exec"), self.names)
        return out.getvalue()

    def shell(self, source: str, where: str) -> str:
        printed = ""
        for words in command_lines(source):
            if runs(parsed(words)):
                result = called(words)
                assert result.exit_code == 0, f"{where}: {' '.join(words)}\n{result.output}\n{result.exception!r}"
                printed += result.stdout
        return printed


@pytest.mark.parametrize("path", with_blocks("python"), ids=name)
def test_pages_run_and_print_what_they_show(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(path)
    for number in page.run():
        if path == README and number == 1:
            the_first_example_prints_what_it_says(page.names["model"])
    if path == README:
        assert page.names["model"].second_moment_["Alien", "Brazil"].status == "measured"
    if path == DOCS / "privacy.md":
        assert page.names["model"].privacy_.mu == pytest.approx(page.names["plan"].mu)
        assert (tmp_path / "published.onesided").exists()


def the_first_example_prints_what_it_says(model: Any) -> None:
    first = blocks(README.read_text("utf-8"))[0]
    assert first.language == "python"
    said = re.search(r"# Entry\(value=(.*), standard_error=(.*), count=(.*), …", first.text)
    assert said is not None
    value, error, count = said.groups()
    entry = model.second_moment_[20, 21]
    assert entry.value == pytest.approx(float(value), rel=1e-3)
    assert entry.standard_error == pytest.approx(float(error), rel=1e-3)
    assert entry.count == float(count)


@pytest.mark.parametrize("path", with_blocks("sh"), ids=name)
def test_commands_are_those_that_there_are(path: Path) -> None:
    for block in blocks(path.read_text("utf-8")):
        for words in command_lines(block.text) if block.language == "sh" else ():
            parsed(words)


def test_a_command_or_option_that_is_not_there_is_noticed() -> None:
    assert parsed(shlex.split("onesided fit a.csv -o b.onesided --rank 3")) == Parsed("fit", ["a.csv"])
    assert parsed(shlex.split("onesided pack a.csv b.csv -o c.panel")).inputs == ["a.csv", "b.csv"]
    for line in ("fitt a.csv", "fit -o b.onesided", "impute a b c -o d.csv"):
        with pytest.raises(AssertionError):
            parsed(["onesided", *line.split()])
    for line in ("fit a.csv -o b --ranks 3", "fit a.csv -o b --center rows", "inspect a.csv -n"):
        with pytest.raises(click.UsageError):
            parsed(["onesided", *line.split()])


def test_agreement_is_to_the_digits_shown() -> None:
    assert agree("rank 3   0.52\n…\nabout 0.10", "rank 3 0.5249\nseconds 7\nabout 0.07")
    assert not agree("rank 3", "rank 4")
    assert not agree("0.52", "0.54")
    assert not agree("one\ntwo", "one")
    assert not agree("5,000 rows", "50 rows")


# Links


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them; the page of commands is written by its hook."""
    text = page.read_text("utf-8")
    if page == DOCS / "reference" / "commands.md":
        text += hook("commands").sections()
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", outside, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{name(path)} links to {file}, which is not there"
        if anchor:
            assert anchor in anchors(there), f"{name(path)} links to {target}; there is no such heading"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | {"reproduction/index.md"}


# The reference


def hook(module: str) -> ModuleType:
    """A hook of the site, which is not part of the package."""
    spec = importlib.util.spec_from_file_location(f"docs_{module}", DOCS / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_page_of_commands_has_the_help_of_each() -> None:
    commands = hook("commands")
    page = commands.sections()
    for path in commands.commands():
        assert f"## {' '.join(path)}\n\n```text\n{called([*path, '--help']).stdout.rstrip()}\n```" in page
    assert {path[1] for path in commands.commands() if len(path) > 1} == set(main.commands)


def listed_in_reference() -> Iterator[tuple[str, str | None]]:
    """Modules that the reference shows, each by itself and with every name that is shown of it."""
    for page in REFERENCE:
        text = page.read_text("utf-8")
        for module, options in re.findall(r"^::: ([\w.]+)\n(.*?)(?=^:::|^#|\Z)", text, flags=re.MULTILINE | re.DOTALL):
            yield module, None
            members = options.partition("members:")[2]
            for one in [] if members.strip() == "false" else re.findall(r"\w+", members):
                yield module, one


EXPORTED = {
    f"{module}.{one}": (module, one)
    for module in ("onesided", "onesided.privacy", "onesided.baselines", "onesided.datasets")
    for one in importlib.import_module(module).__all__
}
PUBLIC = {f"{module}.{one}": (module, one) for module, one in listed_in_reference() if one} | EXPORTED


def missing_for(module: str) -> str | None:
    """What to install before a module can be imported; None where it can be."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        return NEEDS[error.name]
    return None


def imported(module: str) -> ModuleType:
    if reason := missing_for(module):
        pytest.skip(reason)
    return importlib.import_module(module)


def test_everything_public_is_in_the_reference() -> None:
    """Modules that need an optional package define nothing that the package exports."""
    listed = [(module, one) for module, one in listed_in_reference() if one and not missing_for(module)]
    shown = {id(getattr(importlib.import_module(module), one)) for module, one in listed}
    for full, (module, one) in EXPORTED.items():
        assert id(getattr(importlib.import_module(module), one)) in shown, f"{full} is on no page of the reference"


@pytest.mark.parametrize("module", sorted({module for module, _ in listed_in_reference()}))
def test_modules_say_what_they_are(module: str) -> None:
    assert (imported(module).__doc__ or "").strip()


@pytest.mark.parametrize("full", sorted(PUBLIC))
def test_public_names_have_a_docstring_with_an_example(full: str) -> None:
    module, one = PUBLIC[full]
    found = getattr(imported(module), one)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return
    said = found.__doc__ or ""
    generated = inspect.isclass(found) and said.startswith(f"{one}(")  # what a dataclass without one is given
    assert said.strip(), f"{full} has no docstring"
    assert not generated, f"{full} has no docstring"
    assert ">>>" in said, f"{full} has no example"


def test_docstrings_become_markdown() -> None:
    pytest.importorskip("griffe")
    as_markdown = hook("docstrings").as_markdown
    table = "==  ====\na   b\n==  ====\n1   of |Ω|\n    pairs\n==  ====\n"
    assert "| a | b |\n| --- | --- |\n| 1 | of \\|Ω\\| pairs |" in as_markdown(table)
    assert "|  |  |\n| --- | --- |\n| a | b |" in as_markdown("==  ====\na   b\n==  ====\n")
    assert as_markdown("See.\n\n>>> 1 + 1\n2\n").endswith("```pycon\n>>> 1 + 1\n2\n```")
    assert "<code>onesided.panels.panel</code>" in as_markdown("In :mod:`onesided.panels.panel`.")


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    for page in pages:  # nothing is fetched from elsewhere
        html = page.read_text("utf-8")
        assert not re.search(r"""<(?:script|img|iframe)[^>]+src=["']https?:|<link[^>]+href=["']https?:""", html), page
    assert "Recover what rows have in common" in (tmp_path / "site/reference/commands.html").read_text("utf-8")
