"""Every Python block of the README runs, in order."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert names["model"].second_moment_["Alien", "Brazil"].status == "measured"


def test_files_it_links_to_exist():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)h][^)]*)\)", text):
        assert (README.parent / target).exists(), target
