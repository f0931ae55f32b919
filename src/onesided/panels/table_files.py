"""Files of long tables as streams of Arrow batches.

A long table has one line per observed entry: a row id, a column id and a value. It may be a Parquet file or
text with one of four separators; text may be compressed with gzip or xz. What a file is, is read from its
first bytes and its first line, not from its name.
"""

from __future__ import annotations

import io
import lzma
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesided.errors import EXPECTED, InputError, counted
from onesided.kernels.integers import read_integers

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
Progress = Callable[[int, int], object]
_Asked = dict[str, str | None]  # the roles wanted, each with the name the caller gave

# Names by which a column is recognised: lower case, without "_", "-" and spaces.
_KNOWN_NAMES = {
    "row": "row rowid user userid customer customerid reviewer reviewerid rater raterid person personid "
    "respondent respondentid participant participantid student studentid subject subjectid sample sampleid",
    "column": "column columnid item itemid movie movieid film filmid book bookid isbn product productid asin "
    "business businessid artist artistid song songid anime animeid joke jokeid question questionid",
    "value": "value rating score stars overall answer response bookrating",
}
_SEPARATORS = ("::", "\t", ";", ",")
_MOST_FIELDS = 4  # of a line without header: row, column, value and, often, a time
_MISSING = ("", "NA", "N/A", "NULL", "null", "None")  # as values; pyarrow itself reads nan as a number
_NARROW = "\x1f"  # the one byte that stands in for "::": ASCII's own unit separator
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class TableStream:
    """The entries of a file: ``reader`` yields batches of the columns ``row``, ``column``, ``value``.

    The names are those of the file, or "row", "column" and "value" where it has no header; ``value`` is None
    where only positions were asked for. Ids are int64 or string, values float64; an empty field is null, and
    so is a value written as NA, N/A, NULL, null or None, which may be ids.

    >>> import pyarrow as pa
    >>> entries = pa.table({"user": [1, 2], "movie": [5, 5]})
    >>> TableStream(entries.to_reader(), "user", "movie").reader.schema.names
    ['user', 'movie']
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

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.csv")
    ...     _ = path.write_text("userId,movieId,rating,timestamp\\n7,031,2.5,1260759144\\n8,31,4,1260759179")
    ...     stream = open_table(path)
    >>> stream.row, stream.column, stream.value
    ('userId', 'movieId', 'rating')
    >>> stream.reader.read_all().to_pydict()
    {'userId': [7, 8], 'movieId': ['031', '31'], 'rating': [2.5, 4.0]}
    """
    path = Path(path)
    asked: _Asked = {"row": row, "column": column} | ({"value": value} if values else {})
    names, reader = (_open_parquet if _is_parquet(path) else _open_text)(path, asked, progress)
    return TableStream(reader, *names)


def stream_table(
    path: str | PathLike[str],
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    progress: Progress | None = None,
) -> TableStream:
    """Open the long table at ``path`` as ``open_table`` does, yet hold no more of it than a few batches at a time.

    Ids of text are therefore strings, as they are written: what has seen them all can say, with ``plain_integers``,
    whether the whole file wrote integers. What is wrong in a line of text is raised when that line is reached.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.csv")
    ...     _ = path.write_text("userId,movieId,rating\\n7,031,2.5\\n8,31,4")
    ...     [batch.to_pydict() for batch in stream_table(path).reader]
    [{'userId': ['7', '8'], 'movieId': ['031', '31'], 'rating': [2.5, 4.0]}]
    """
    path = Path(path)
    asked: _Asked = {"row": row, "column": column, "value": value}
    names, reader = (_open_parquet if _is_parquet(path) else _stream_text)(path, asked, progress)
    return TableStream(reader, *names)


def plain_integers(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Whether each id, a string, is an int64 written as that number is printed; null is neither here nor there.

    >>> import pyarrow as pa
    >>> plain_integers(pa.array(["7", None, "-31"])), plain_integers(pa.array(["7", "031"]))
    (True, False)
    """
    chunks = ids.chunks if hasattr(ids, "chunks") else [ids]
    present = [chunk.drop_null() for chunk in chunks]
    return not any(_any_empty(chunk) or _integers(chunk) is None for chunk in present)


def _is_parquet(path: Path) -> bool:
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
    plain = [_plain(str(one)) for one in names]
    roles = [sum(one in known.split() for one in plain) for known in _KNOWN_NAMES.values()]
    return len(plain) <= _MOST_FIELDS and min(roles) > 0


def _plain(name: str) -> str:
    return re.sub("[_ -]", "", name.lower())


def choose_columns(path: Path, found: list[str], asked: _Asked) -> list[str]:
    """The column for each role: the one named, or the one recognised."""
    chosen = []
    for role, name in asked.items():
        if name is not None:
            fitting = [each for each in found if each == name]
            fits = f"named {name!r}"
        else:
            known = _KNOWN_NAMES[role].split()
            fitting = [each for each in found if _plain(each) in known]
            fits = f"recognised as the {role}"
        if len(fitting) != 1:
            listed = ", ".join(map(repr, found[:30])) + (", ..." if len(found) > 30 else "")
            raise InputError(
                f"{len(fitting) or 'no'} columns of {path} are {fits}, expected one; the file has {listed}. "
                f"Say which one is the {role} with {EXPECTED}",
                option=role,
                found=name,
            )
        chosen += fitting
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{', '.join(asked)} must be different columns of {path}; got {', '.join(chosen)}")
    return chosen


def _open_parquet(path: Path, asked: _Asked, progress: Progress | None) -> tuple[list[str], Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is cut short or corrupt ({error}); fetch or write it again") from error
    rows, size = file.metadata.num_rows, path.stat().st_size
    if rows == 0:
        raise InputError(f"{path} holds no entries")
    names = choose_columns(path, file.schema_arrow.names, asked)
    types = map(partial(_parquet_type, path), map(file.schema_arrow.field, names), asked)
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


def _open_text(path: Path, asked: _Asked, progress: Progress | None) -> tuple[list[str], Any]:
    import pyarrow as pa

    layout = _layout(path, asked)
    with ThreadPoolExecutor(1) as pool:  # settles the ids of a block while the next is read
        settled = list(pool.map(_settle_ids, _text_blocks(path, layout, progress)))
    # Ids that were integers so far are printed as they were written.
    types = [
        pa.string() if any(block.schema.types[k] == pa.string() for block in settled) else kind
        for k, kind in enumerate((pa.int64(), pa.int64(), pa.float64())[: len(layout.names)])
    ]
    schema = pa.schema(list(zip(layout.names, types, strict=True)))
    settled.reverse()

    def batches() -> Iterator[pa.RecordBatch]:
        while settled:  # nothing is kept of what was handed on
            yield settled.pop().cast(schema)

    return layout.names, pa.RecordBatchReader.from_batches(schema, batches())


def _stream_text(path: Path, asked: _Asked, progress: Progress | None) -> tuple[list[str], Any]:
    import pyarrow as pa

    layout = _layout(path, asked)
    schema = pa.schema(layout.types)
    blocks = _text_blocks(path, layout, progress)
    batches = (
        pa.record_batch([*map(_null_where_empty, block.columns[:2]), *block.columns[2:]], schema) for block in blocks
    )
    return layout.names, pa.RecordBatchReader.from_batches(schema, batches)


def _text_blocks(path: Path, layout: _Layout, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """The columns wanted as they are read: ids as strings, an empty one as such, and values as float64."""
    import pyarrow as pa
    from pyarrow import csv

    lines, size = 0, path.stat().st_size
    try:
        with _opened(path) as (raw, stream), csv.open_csv(layout.source(stream), *layout.options()) as blocks:
            for block in blocks:
                lines += block.num_rows
                yield block
                if progress:
                    progress(raw.tell(), size)
    except pa.ArrowInvalid as error:
        raise _explain(path, layout.names, str(error)) from error
    if not lines:
        raise InputError(f"{path} holds no entries, only a header")
    if progress:
        progress(size, size)


@dataclass(frozen=True)
class _Layout:
    """How the lines of a text file are parsed, and the columns wanted of them, in the order of roles."""

    dialect: Any
    header: list[str] | None  # None where the file has one, which pyarrow reads
    names: list[str]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """In which each is read: ids as strings, values as float64."""
        import pyarrow as pa

        return dict(zip(self.names, (pa.string(), pa.string(), pa.float64()), strict=False))

    def options(self) -> tuple[Any, Any, Any]:
        """What pyarrow is told: how to read, to parse and to convert."""
        from pyarrow import csv

        # Only without threads does pyarrow tell the line of an error; reading block after block gains nothing by them.
        reading = csv.ReadOptions(column_names=self.header, block_size=_BLOCK_BYTES, use_threads=False)
        # No string is null, as "NA" may be an id; empty ids are found later.
        converting = csv.ConvertOptions(
            include_columns=self.names, column_types=self.types, null_values=_MISSING, strings_can_be_null=False
        )
        return reading, self.dialect, converting

    def source(self, stream: Any) -> Any:
        """The stream as pyarrow can split it."""
        return _Narrowed(stream) if self.dialect.delimiter == _NARROW else stream


def _layout(path: Path, asked: _Asked) -> _Layout:
    dialect, fields = _first_line(path)
    if any(asked.values()) or not _is_number(fields[:3][-1]):
        return _Layout(dialect, None, choose_columns(path, fields, asked))
    _check_fields(path, len(fields), asked)
    names = list(asked)
    return _Layout(dialect, names + [f"field {k + 1}" for k in range(len(names), len(fields))], names)


def _check_fields(path: Path, found: int, asked: _Asked) -> None:
    """Refuse a file without header whose lines cannot be entries."""
    where, expected = f"{path} has no header and {found} fields in its first line", ", ".join(asked)
    if found < len(asked):
        raise InputError(f"{where}; expected {expected}")
    if found > _MOST_FIELDS:
        dense = ", or, if it is a dense matrix with one row per line, read it in Python with Panel.from_dense()"
        raise InputError(
            f"{where}; expected {expected} and at most {counted(_MOST_FIELDS - len(asked), 'other')}. "
            f"Add a header line that names them{dense if 'value' in asked else ''}"
        )


def _first_line(path: Path) -> tuple[Any, list[str]]:
    """How the lines of a text file are parsed, and the fields of its first line."""
    import pyarrow as pa
    from pyarrow import csv

    with _opened(path) as (_, stream):
        head = stream.read(_BLOCK_BYTES)
    if head.startswith(b"PK\3\4"):  # and not a header that begins with these letters
        raise InputError(f"{path} is a zip archive or a model, not a table; unpack it, or name the table in its place")
    if b"\0" in head:
        raise InputError(f"{path} is binary; convert it to Parquet or UTF-8 text, plain or in gzip or xz")
    line = next(filter(None, head.removeprefix(b"\xef\xbb\xbf").splitlines()), b"")
    if not line:
        raise InputError(f"{path} holds no entries: it is empty")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise _explain(path, [], "Row #1: invalid UTF8") from None
    separator = next((each for each in _SEPARATORS if each in text), None)
    if separator is None:
        raise InputError(f"line 1 of {path} is {text[:80]!r}; expected fields between '::', tab, ';' or ','")
    if separator == "::":
        dialect = csv.ParseOptions(delimiter=_NARROW, quote_char=False)
        line = line.replace(b"::", _NARROW.encode())
    else:  # without newlines_in_values, pyarrow's threads silently drop lines after a quote left open
        dialect = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:  # by pyarrow, as the lines below it, so that both agree on quotes
        header = csv.read_csv(_native(line + b"\n"), parse_options=dialect)
    except pa.ArrowInvalid:
        raise InputError(f"line 1 of {path} has a quote that is not closed: {text[:80]!r}") from None
    return dialect, header.column_names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """The file as it lies on the disk, and the stream of its text: the same unless it is compressed."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as raw:
        stream = _decompressed(raw)
        try:
            yield raw, stream
        except (OSError, EOFError, lzma.LZMAError) as error:
            if stream is raw:
                raise
            raise InputError(f"{path} is cut short or corrupt ({error}); fetch it again") from error


def _decompressed(raw: Any) -> Any:
    import pyarrow as pa

    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return pa.CompressedInputStream(raw, "gzip")
    if magic == b"\xfd7zXZ\0":
        return lzma.LZMAFile(raw)
    return raw


def _native(text: bytes) -> Any:
    """A stream over a copy in pyarrow's memory.

    A thread of pyarrow may be the last to let go of what it read, after the table was returned. If that were an
    object of Python's, and the interpreter about to end, the process would abort.
    """
    import pyarrow as pa

    memory = pa.BufferOutputStream()
    memory.write(text)
    return pa.BufferReader(memory.getvalue())


class _Narrowed(io.RawIOBase):
    """A stream of bytes in which one byte stands for each ``::``, as pyarrow takes no longer separator."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        text: bytes = self._source.read(max(size - 1, 1))
        # The last of an odd run of colons may be half a separator: the next byte tells.
        if (len(text) - len(text.rstrip(b":"))) % 2:
            text += self._source.read(1)
        return text.replace(b"::", _NARROW.encode())


def _explain(path: Path, names: list[str], failure: str) -> InputError:
    """What pyarrow's words about a text file mean to whoever has the file."""
    row = re.search(r"Row #(\d+)", failure)
    where = f"line {row[1]} of {path}" if row else str(path)
    if found := re.search(r"error to double: invalid value '(.*)'", failure, re.DOTALL):
        return InputError(
            f"{where} has {found[1]!r} in column {names[-1]!r}; expected a number such as 3.5. "
            f"Correct or remove the line, or name another column with {EXPECTED}",
            option="value",
        )
    if found := re.search(r"Expected (\d+) columns, got (\d+): (.*)", failure, re.DOTALL):
        text = found[3].replace(_NARROW, "::")[:80]
        return InputError(
            f"{where} has {found[2]} fields where the first line has {found[1]}: {text!r}. "
            "Correct or remove the line; a field with the separator in it must be quoted"
        )
    if "Empty CSV" in failure:
        return InputError(f"{path} holds no entries")
    if "invalid UTF8" in failure:
        name = shlex.quote(str(path))
        unpack = {".gz": f"gzip -dc {name} | ", ".xz": f"xz -dc {name} | "}.get(path.suffix.lower(), "")
        convert = f"{unpack}iconv -f latin1 -t utf8" + ("" if unpack else f" {name}")
        return InputError(f"{where} is not UTF-8; convert it, for example with: {convert} > utf8.txt")
    if "straddl" in failure:
        return InputError(f"{path} has a line of more than {_BLOCK_BYTES} bytes, or a quote that is not closed")
    return InputError(f"{path} cannot be read as a table with one entry per line: {failure}")


def _settle_ids(block: pa.RecordBatch) -> pa.RecordBatch:
    """A block with its ids as int64 if each is written as that number is printed, else as text; empty ones are null."""
    import pyarrow as pa

    ids = []
    for text in block.columns[:2]:
        numbers = _integers(text)
        ids.append(_null_where_empty(text) if numbers is None else numbers)
    return pa.record_batch([*ids, *block.columns[2:]], block.schema.names)


def _integers(text: pa.Array) -> pa.Array | None:
    """Strings as int64, the empty ones null, if each is written as its number is printed; otherwise None."""
    import pyarrow as pa

    numbers = np.empty(len(text), dtype=np.int64)
    starts, characters = _layout_of_strings(text)
    if not read_integers(starts, characters, numbers):
        return None
    return pa.array(numbers, mask=starts[1:] == starts[:-1] if _any_empty(text) else None)


def _null_where_empty(text: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text) if _any_empty(text) else text


def _any_empty(text: pa.Array) -> bool:
    starts, _ = _layout_of_strings(text)
    return bool(np.any(starts[1:] == starts[:-1]))


def _layout_of_strings(text: pa.Array) -> tuple[Array, Array]:
    """Where each string begins, and where the last ends, in the array of all characters; and that array."""
    _, starts, characters = text.buffers()
    width = np.dtype(np.int64 if str(text.type) == "large_string" else np.int32)
    if len(text) == 0 or not characters:  # Arrow may then have no array at all
        return np.frombuffer(bytes((len(text) + 1) * width.itemsize), width), np.frombuffer(b"-", np.uint8)
    return np.frombuffer(starts, width)[text.offset : text.offset + len(text) + 1], np.frombuffer(characters, np.uint8)
