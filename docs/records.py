"""A hook of the site: a page that lists the records of reproduced tables and figures, each with its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

FOLDER = "reproduction"


def listed(folder: Path) -> str:
    """One line for each record."""
    lines = [
        "# Records",
        "",
        "What every run has measured, as JSON: settings, seeds, versions, seconds and numbers.",
        "",
    ]
    for record in sorted(folder.glob("*.json")):
        picture = f", [picture]({record.stem}.svg)" if record.with_suffix(".svg").exists() else ""
        lines.append(f"- [{record.stem}]({record.name}){picture}")
    return "\n".join([*lines, "", "What came of them: [The paper, reproduced](../reproduction.md)."])


def on_files(files: Any, *, config: Any) -> Any:
    """What mkdocs calls when it has listed its files."""
    content = listed(Path(config["docs_dir"]) / FOLDER)
    files.append(File.generated(config, f"{FOLDER}/index.md", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page of results links to the folder; on the site that is the page above."""
    if page.file.src_uri != f"{FOLDER}.md":
        return markdown
    return markdown.replace(f"]({FOLDER}/)", f"]({FOLDER}/index.md)")
