"""The page on the reproduction, made of the records of full runs: nothing in it is typed in by hand.

    python -m onesided.experiments.page docs/reproduction results

copies the finished records of ``results`` to ``docs/reproduction`` and writes ``docs/reproduction.md``; without a
second folder it writes the page anew from what is there.
"""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onesided.errors import InputError, counted
from onesided.experiments import NAMES, NOT_EXPERIMENTS, experiment, metrics
from onesided.experiments.experiment import draw, write_record
from onesided.experiments.summaries import markdown

INTRODUCTION = (
    'Every table and figure of "One-Sided Matrix Completion from Ultra-Sparse Samples", measured again with this '
    "library. Each is run by `onesided reproduce NAME`, in seconds with `--quick`; the numbers below are those of full "
    "runs, from the records in [reproduction/](reproduction/), which hold settings, seeds, versions and seconds. Real "
    "panels are those at hand, not the paper's: the same command runs on its sizes for whoever has the files "
    "(`onesided data list`). What one would ask of the numbers beside what the paper asks, column means as a baseline "
    "and rows never used, stands beside it."
)

MARKS = ("<!-- measured -->", "<!-- end -->")


def page(records: dict[str, dict[str, Any]]) -> str:
    """The page, from records by name; an experiment without a record is named as not run."""
    lines = [
        [f"[`{name}`](#{_anchor(experiment(name).title)})", records[name]["verdict"] if name in records else "not run"]
        for name in NAMES
    ]
    parts = ["# The paper, reproduced\n\n", _wrapped(INTRODUCTION), "\n", markdown(["experiment", "verdict"], lines)]
    parts.append("\n" + "".join(f"{what} {why}. " for what, why in NOT_EXPERIMENTS.items()).rstrip() + "\n")
    parts.append("\n## The numbers, defined\n\n" + _definitions())
    parts += [_section(name, records[name]) for name in NAMES if name in records]
    return "".join(parts)


def _section(name: str, record: dict[str, Any]) -> str:
    one, rows = experiment(name), record["rows"]
    held = "".join(
        f"- {'Holds' if claim['holds'] else '**Does not hold**'}: {claim['claim']}. Found: {claim['found']}.\n"
        for claim in record["expectations"]
    )
    picture = f"![{one.title}](reproduction/{name}.svg)\n\n" if one.draw is not None else ""
    return (
        f"\n## {one.title}\n\n"
        f"{_wrapped('**The paper.** ' + one.claim)}\n{_wrapped('**Measured.** ' + one.method)}\n"
        f"{picture}{one.table(rows)}\n{held}\n"
        f"{_wrapped('**Verdict.** ' + record['verdict'])}\n"
        f"{_wrapped(_circumstances(name, record))}"
    )


def with_measurements(text: str, record: dict[str, Any]) -> str:
    """The page on private fits, with what was measured between its two marks."""
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    one = experiment("privacy")
    measured = (
        f"{_wrapped(one.method)}\n![{one.title}](reproduction/privacy.svg)\n\n{one.table(record['rows'])}\n"
        f"{_wrapped(record['verdict'])}\n[What was expected of these numbers](reproduction.md#{_anchor(one.title)}), "
        "and the [record](reproduction/privacy.json).\n"
    )
    return f"{before}{MARKS[0]}\n\n{measured}\n{MARKS[1]}{after}"


def _circumstances(name: str, record: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    remark = f" {record['remark']}" if "remark" in record else ""  # on how the numbers were taken
    return (
        f"`onesided reproduce {name}{' --data FOLDER' if record['data'] else ''}`: {record['seconds']:,.0f} s on "
        f"{counted(record['machine']['cores'], 'core')}; {versions}; [record](reproduction/{name}.json).{remark}"
    )


def _definitions() -> str:
    """The definitions of :mod:`onesided.experiments.metrics`, as a list."""
    text = (metrics.__doc__ or "").split("\n\n", 1)[1]
    intro, _, terms = text.partition("\n\n")
    found: list[str] = []
    for line in terms.strip().splitlines():
        if line.startswith(" "):
            found[-1] += " " + line.strip()
        else:
            found.append(f"- **{line}**:")
    return _wrapped(" ".join(intro.split())) + "\n" + "".join(textwrap.fill(one, 120) + "\n" for one in found)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def records_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The records in a folder, by name."""
    found = {name: folder / f"{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in found.items() if path.exists()}


def main() -> None:
    """Copy records, draw their pictures and write the page."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for folder in (target, *map(Path, sys.argv[2:])):
        for name, record in records_of(folder).items():
            if record["quick"]:
                raise InputError(f"{folder / name}.json is of a quick run; expected that of a full one")
            one, rows = experiment(name), record["rows"]
            read = {"expectations": [asdict(claim) for claim in one.expect(rows)], "verdict": one.verdict(rows)}
            write_record(record | read, target / f"{name}.json")
            draw(one, rows, target / f"{name}.svg")
    records = records_of(target)
    target.with_suffix(".md").write_text(page(records), encoding="utf-8")
    own = target.parent / "privacy.md"
    if "privacy" in records and own.exists():
        own.write_text(with_measurements(own.read_text(encoding="utf-8"), records["privacy"]), encoding="utf-8")


if __name__ == "__main__":
    main()
