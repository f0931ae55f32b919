"""Every Python block of the README and of the page on private fits runs, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert names["model"].second_moment_["Alien", "Brazil"].status == "measured"


def test_the_private_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(
        r"```python\n(.*?)```", (README.parent / "docs" / "privacy.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    names: dict[str, object] = {}
    exec(compile(block, "privacy.md", "exec"), names)
    assert names["model"].privacy_.mu == pytest.approx(names["plan"].mu)
    assert (tmp_path / "published.onesided").exists()


def test_the_first_example_prints_what_it_says():
    text = README.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1], str(README), "exec"), names)
    value, error, count = re.search(r"# Entry\(value=(.*), standard_error=(.*), count=(.*), …", text).groups()
    entry = names["model"].second_moment_[20, 21]
    assert entry.value == pytest.approx(float(value), rel=1e-3)
    assert entry.standard_error == pytest.approx(float(error), rel=1e-3)
    assert entry.count == float(count)


def test_files_it_links_to_exist():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)h][^)]*)\)", text):
        assert (README.parent / target).exists(), target
