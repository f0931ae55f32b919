"""Files of long tables as streams of Arrow batches.

A long table has one line per observed entry: a row id, a column id and a value. It is a Parquet file, recognised by its
first bytes, or text, of which :mod:`onesided.panels.text_format` knows the dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesided.errors import EXPECTED, InputError

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int, int], object]  # how much of how much
Roles = dict[str, str | None]  # row, column and mostly value, each with the name the caller gave

# Names by which a column is recognised: lower case, without "_", "-" and spaces.
_USUAL_NAMES = {
    "row": "row rowid user userid customer customerid reviewer reviewerid rater raterid person personid "
    "respondent respondentid participant participantid student studentid subject subjectid sample sampleid",
    "column": "column columnid item itemid movie movieid film filmid book bookid isbn product productid asin "
    "business businessid artist artistid song songid anime animeid joke jokeid question questionid",
    "value": "value rating score stars overall answer response bookrating",
}
MOST_FIELDS = 4  # of a line without header: row, column, value and, often, a time


@dataclass(frozen=True)
class TableColumns:
    """The names of a long table's columns; those that are None are recognised by a usual name (userId, item, ...)."""

    row: str | None = None
    column: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class TableStream:
    """The entries of a file: ``reader`` yields batches of the columns ``row``, ``column``, ``value``.

    The names are those of the file, or "row", "column" and "value" where it has no header; ``value`` is None
    where only positions were asked for. Ids are int64 or string, values float64; an empty field is null, and
    so is a value written as NA, N/A, NULL, null or None, which may be ids.
    """

    reader: pa.RecordBatchReader
    row: str
    column: str
    value: str | None = None


def open_table(
    path: str | PathLike[str],
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    values: bool = True,
    whole: bool = True,
    progress: Progress | None = None,
) -> TableStream:
    """Open the long table at ``path``.

    ``row``, ``column`` and ``value`` name columns of the file; those not given are recognised if they have a
    well known name (userId, movie_id, Book-Rating, ...). ``values=False`` asks for the positions only, and
    ``value`` is then ignored. ``progress`` is called with the bytes of the file read so far and its size.

    Text is UTF-8. Its separator is the first of ``::``, tab, ``;`` and ``,`` that occurs in the first line;
    fields may be quoted, except between ``::``. Where no names were given and the third field of the first
    line (the last, if there are fewer) is a number, there is no header: the columns are row, column, value and at
    most one more.

    Ids of text are int64 if the whole file writes them as plain integers ("7", not "007"), else strings: so
    "007" and "7" stay different ids. As the last line may decide this, the needed columns of text are read
    into memory, never the text itself, before this function returns; ``reader`` lets go of what it hands on. Parquet
    is read as it is consumed.

    ``whole=False`` holds no more of text than a few batches at a time. Its ids are therefore strings, as they are
    written: what has seen them all can say, with ``plain_integers``, whether the whole file wrote integers. What is
    wrong in a line of text is raised when that line is reached.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.csv")
    ...     _ = path.write_text("userId,movieId,rating,timestamp\\n7,031,2.5,1260759144\\n8,31,4,1260759179")
    ...     stream, batches = open_table(path), list(open_table(path, whole=False).reader)
    >>> stream.row, stream.column, stream.value
    ('userId', 'movieId', 'rating')
    >>> stream.reader.read_all().to_pydict()
    {'userId': [7, 8], 'movieId': ['031', '31'], 'rating': [2.5, 4.0]}
    >>> batches[0].to_pydict()
    {'userId': ['7', '8'], 'movieId': ['031', '31'], 'rating': [2.5, 4.0]}
    """
    path = Path(path)
    roles: Roles = {"row": row, "column": column} | ({"value": value} if values else {})
    if is_parquet(path):
        names, reader = _open_parquet(path, roles, progress)
    else:
        from onesided.panels.text_format import open_text, stream_text  # which import pyarrow

        names, reader = (open_text if whole else stream_text)(path, roles, progress)
    return TableStream(reader, *names)


def is_parquet(path: Path) -> bool:
    """Whether the file is Parquet, by its first bytes; refuse what is neither that nor text."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; give the path of a text or Parquet file of entries")
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    if not parquet and path.suffix.lower() == ".parquet":
        raise InputError(f"{path} is not a Parquet file, despite its name; write it again, or rename it")
    return parquet


def is_long(names: Sequence[Any]) -> bool:
    """Whether columns of a table are called what those of a table with one line per entry usually are.

    >>> is_long(["userId", "movieId", "rating", "timestamp"]), is_long(["user", "tea", "rye"])
    (True, False)
    """
    plain = [_plain(str(name)) for name in names]
    matches = [sum(name in usual.split() for name in plain) for usual in _USUAL_NAMES.values()]
    return len(plain) <= MOST_FIELDS and min(matches) > 0


def _plain(name: str) -> str:
    return re.sub("[_ -]", "", name.lower())


def choose_columns(path: Path, present: list[str], roles: Roles) -> list[str]:
    """The column for each role: the one named, or the one recognised."""
    chosen = []
    for role, name in roles.items():
        if name is not None:
            fitting = [each for each in present if each == name]
            fits = f"named {name!r}"
        else:
            usual = _USUAL_NAMES[role].split()
            fitting = [each for each in present if _plain(each) in usual]
            fits = f"recognised as the {role}"
        if len(fitting) != 1:
            listed = ", ".join(map(repr, present[:30])) + (", ..." if len(present) > 30 else "")
            raise InputError(
                f"{len(fitting) or 'no'} columns of {path} are {fits}, expected one; the file has {listed}. "
                f"Say which one is the {role} with {EXPECTED}",
                option=role,
                found=name,
            )
        chosen += fitting
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{', '.join(roles)} must be different columns of {path}; got {', '.join(chosen)}")
    return chosen


def _open_parquet(path: Path, roles: Roles, progress: Progress | None) -> tuple[list[str], Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is cut short or corrupt ({error}); fetch or write it again") from error
    rows, size = file.metadata.num_rows, path.stat().st_size
    if rows == 0:
        raise InputError(f"{path} holds no entries")
    names = choose_columns(path, file.schema_arrow.names, roles)
    types = map(partial(_parquet_type, path), map(file.schema_arrow.field, names), roles)
    schema = pa.schema(list(zip(names, types, strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            with file:
                for batch in file.iter_batches(columns=names):
                    # A value may lose digits that float64 does not hold; an id beyond int64 is an error.
                    arrays = [batch.column(f.name).cast(f.type, safe=f.type != pa.float64()) for f in schema]
                    yield pa.record_batch(arrays, schema=schema)
                    done += batch.num_rows
                    if progress:  # bytes of columns not needed are skipped, so lines tell how far we are
                        progress(size * done // rows, size)
        except (pa.ArrowException, OSError) as error:
            remedy = "write it again, with ids as text if they exceed int64"
            raise InputError(f"{path} cannot be read ({error}); {remedy}") from error

    return names, pa.RecordBatchReader.from_batches(schema, batches())


def _parquet_type(path: Path, field: pa.Field, role: str) -> pa.DataType:
    """The type in which a Parquet column is handed on."""
    from pyarrow import float64, int64, string, types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if role == "value":
        if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            return float64()
        raise InputError(f"column {field.name!r} of {path} holds {kind}; values must be numbers: cast it")
    if types.is_integer(kind):
        return int64()
    if types.is_string(kind) or types.is_large_string(kind):
        return string()
    raise InputError(f"column {field.name!r} of {path} holds {kind}; ids must be integers or text: cast it")
