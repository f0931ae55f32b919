"""What columns are called: ids made readable, and found again by what a person types.

A table of names has one line for a column: its id in one field and its name in another, as ``movies.dat`` and
``movies.csv`` of MovieLens have it. Fields are separated by ``::``, tabs, commas, semicolons or bars; the field of ids
is the one that has most of the model's, the name is in the field headed "title" or "name" or, without such a header, in
the first other one. What is refused:

====================================================  ==============================================================
found                                                 message
====================================================  ==============================================================
no line of two fields, or no separator for all lines  movies.txt has no table of ids and names: …
no id of the model                                    none of the ids in movies.csv is a column of the model …
an id with two names                                  movies.csv names column 7 twice: 'Alien' and 'Aliens' …
a column asked for that is not there                  no column is called 'Alein'; nearest: 'Alien' …
a part of a name that several have                    4 columns have 'star' in their names: …; type more of one …
====================================================  ==============================================================
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted, examples, shown
from onesided.panels.ids import plain_id

SEPARATORS = ("::", "\t", ",", ";", "|")
TITLES = ("title", "name", "label", "question", "text")


@dataclass(frozen=True, eq=False)
class ColumnNames:
    """The names of columns, in their order; an id stands for a column without a name.

    >>> names = ColumnNames(np.array([7, 9]), {7: "Alien (1979)"})
    >>> names[0], names[1], names.find("alien")
    ('Alien (1979)', '9', 0)
    """

    column_ids: Array
    given: dict[Any, str]

    def __getitem__(self, position: int) -> str:
        return self.called(self.column_ids[position])

    def called(self, column_id: Any) -> str:
        """The name of a column by its id."""
        return self.given.get(plain_id(column_id), str(column_id))

    @property
    def named(self) -> int:
        """How many columns have a name beside their id."""
        return len(self.given)

    def find(self, typed: str) -> int:
        """The position of the column with this id or name; a part of a name will do if one column alone has it."""
        ids = [str(column_id) for column_id in self.column_ids.tolist()]
        if typed in ids:
            return ids.index(typed)
        names = [self[position] for position in range(len(ids))]
        folded, wanted = [_folded(name) for name in names], _folded(typed)
        whole = [position for position, name in enumerate(folded) if name == wanted]
        if len(whole) == 1:
            return whole[0]
        # Parts are looked for in names, not in ids: 7 is no part of 1977.
        called = [position for position, name in enumerate(names) if name != ids[position]]
        parts = whole or [position for position in called if wanted and wanted in folded[position]]
        if len(parts) == 1:
            return parts[0]
        if parts:
            listed = ", ".join(f"{names[position]!r} (id {ids[position]})" for position in parts[:5])
            more = ", …" if len(parts) > 5 else ""
            raise InputError(f"{len(parts):,} columns have {typed!r} in their names: {listed}{more}; type more of one")
        near = get_close_matches(wanted, folded, n=3, cutoff=0.5)
        nearest = ", ".join(repr(names[folded.index(name)]) for name in near)
        hint = f"nearest: {nearest}" if near else "none is near"
        unnamed = "" if self.given else "; to find columns by name, give a table of names"
        raise InputError(f"no column is called {typed!r}; {hint}; ids are such as {examples(self.column_ids)}{unnamed}")


def _folded(name: str) -> str:
    """Without case and accents."""
    return "".join(letter for letter in normalize("NFKD", name.casefold()) if not combining(letter))


def read_column_names(path: str | os.PathLike[str], column_ids: Array) -> ColumnNames:
    """Names from a table, for a model's columns; lines of other columns are left out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "movies.dat").write_text("7::Alien (1979)::Horror\\n8::Aliens (1986)::Action")
    ...     names = read_column_names(Path(folder, "movies.dat"), np.array([7, 9]))
    >>> names[0], names[1], names.named
    ('Alien (1979)', '9', 1)
    """
    rows = _fields(Path(path))
    ids_by_text = {str(column_id): column_id for column_id in column_ids.tolist()}
    matches = [sum(row[k].strip() in ids_by_text for row in rows) for k in range(len(rows[0]))]
    ids = int(np.argmax(matches))
    if matches[ids] == 0:
        raise InputError(
            f"none of the ids in {path} is a column of the model, whose ids are such as {examples(column_ids)}; "
            "expected a table with a column's id and its name in each line"
        )
    header = [field.strip().casefold() for field in rows[0]] if rows[0][ids].strip() not in ids_by_text else []
    titled = [k for k, field in enumerate(header) if k != ids and any(word in field for word in TITLES)]
    name_field = titled[0] if titled else min(k for k in range(len(rows[0])) if k != ids)
    given: dict[Any, str] = {}
    for row in rows:
        column_id, name = ids_by_text.get(row[ids].strip()), row[name_field].strip()
        if column_id is None or not name:
            continue
        if given.setdefault(column_id, name) != name:
            raise InputError(
                f"{path} names column {shown(column_id)} twice: {given[column_id]!r} and {name!r}; expected once"
            )
    return ColumnNames(column_ids, given)


def _fields(path: Path) -> list[list[str]]:
    """The lines of a table as fields, by the separator that leaves the same number of them in all lines."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")  # as older tables are
    for separator in SEPARATORS:
        try:
            rows = [row for row in _split(text, separator) if any(field.strip() for field in row)]
        except csv.Error:
            continue
        if rows and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows):
            return rows
    lines = counted(text.count("\n"), "line")
    raise InputError(
        f"{path} has no table of ids and names: no separator of '::', tab, ',', ';', '|' leaves the same number of "
        f"fields, two or more, in all of its {lines}"
    )


def _split(text: str, separator: str) -> Iterable[list[str]]:
    if len(separator) > 1:
        return [line.split(separator) for line in text.splitlines()]
    return csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
