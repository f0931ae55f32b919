"""Text files of long tables: separators and headers, compression, and pyarrow's failures in plain words.

A text file is UTF-8, plain or compressed with gzip or xz. What it is, is read from its first bytes and its first line,
not from its name; :func:`onesided.panels.table_files.open_table` says how.
"""

from __future__ import annotations

import io
import lzma
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv

from onesided.arrays import Array
from onesided.errors import EXPECTED, InputError, counted
from onesided.kernels.integers import read_integers
from onesided.panels.table_files import MOST_FIELDS, Progress, Roles, choose_columns

_SEPARATORS = ("::", "\t", ";", ",")
_MISSING = ("", "NA", "N/A", "NULL", "null", "None")  # as values; pyarrow itself reads nan as a number
_NARROW = "\x1f"  # the one byte that stands in for "::": ASCII's own unit separator
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Layout:
    """How the lines of a text file are parsed, and the columns wanted of them, in the order of roles."""

    dialect: Any
    header: list[str] | None  # None where the file has one, which pyarrow reads
    names: list[str]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """In which each is read: ids as strings, values as float64."""
        return dict(zip(self.names, (pa.string(), pa.string(), pa.float64()), strict=False))

    def options(self) -> tuple[Any, Any, Any]:
        """What pyarrow is told: how to read, to parse and to convert."""
        # Only without threads does pyarrow tell the line of an error; reading block after block gains nothing by them.
        reading = csv.ReadOptions(column_names=self.header, block_size=_BLOCK_BYTES, use_threads=False)
        # No string is null, as "NA" may be an id; empty ids are found later.
        converting = csv.ConvertOptions(
            include_columns=self.names, column_types=self.types, null_values=_MISSING, strings_can_be_null=False
        )
        return reading, self.dialect, converting


def open_text(path: Path, roles: Roles, progress: Progress | None) -> tuple[list[str], Any]:
    """Names of the columns, and a reader of their batches; ids are int64 if the whole file writes plain integers."""
    layout = _layout(path, roles)
    with ThreadPoolExecutor(1) as pool:  # settles the ids of a block while the next is read
        settled = list(pool.map(settle_ids, text_blocks(path, layout, progress)))
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


def stream_text(path: Path, roles: Roles, progress: Progress | None) -> tuple[list[str], Any]:
    """The same, some blocks at a time; ids are strings, as they are written."""
    layout = _layout(path, roles)
    schema = pa.schema(layout.types)
    batches = (
        pa.record_batch([*map(null_where_empty, block.columns[:2]), *block.columns[2:]], schema)
        for block in text_blocks(path, layout, progress)
    )
    return layout.names, pa.RecordBatchReader.from_batches(schema, batches)


def _layout(path: Path, roles: Roles) -> Layout:
    dialect, fields = first_line(path)
    if any(roles.values()) or not _is_number(fields[:3][-1]):
        return Layout(dialect, None, choose_columns(path, fields, roles))
    _check_fields(path, len(fields), roles)
    names = list(roles)
    return Layout(dialect, names + [f"field {k + 1}" for k in range(len(names), len(fields))], names)


def _check_fields(path: Path, fields: int, roles: Roles) -> None:
    """Refuse a file without header whose lines cannot be entries."""
    where, expected = f"{path} has no header and {fields} fields in its first line", ", ".join(roles)
    if fields < len(roles):
        raise InputError(f"{where}; expected {expected}")
    if fields > MOST_FIELDS:
        dense = ", or, if it is a dense matrix with one row per line, read it in Python with Panel.from_dense()"
        raise InputError(
            f"{where}; expected {expected} and at most {counted(MOST_FIELDS - len(roles), 'other')}. "
            f"Add a header line that names them{dense if 'value' in roles else ''}"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def text_blocks(path: Path, layout: Layout, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """The columns wanted as they are read: ids as strings, an empty one as such, and values as float64."""
    lines, size = 0, path.stat().st_size
    try:
        with _opened(path) as (raw, stream):
            source = Narrowed(stream) if layout.dialect.delimiter == _NARROW else stream
            with csv.open_csv(source, *layout.options()) as blocks:
                for block in blocks:
                    lines += block.num_rows
                    yield block
                    if progress:
                        progress(raw.tell(), size)
    except pa.ArrowInvalid as error:
        raise _explained(path, layout.names, str(error)) from error
    if not lines:
        raise InputError(f"{path} holds no entries, only a header")
    if progress:
        progress(size, size)


def first_line(path: Path) -> tuple[Any, list[str]]:
    """How the lines of a text file are parsed, and the fields of its first line."""
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
        raise _explained(path, [], "Row #1: invalid UTF8") from None
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


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """The file as it lies on the disk, and the stream of its text: the same unless it is compressed."""
    with pa.OSFile(str(path)) as raw:
        stream = _decompressed(raw)
        try:
            yield raw, stream
        except (OSError, EOFError, lzma.LZMAError) as error:
            if stream is raw:
                raise
            raise InputError(f"{path} is cut short or corrupt ({error}); fetch it again") from error


def _decompressed(raw: Any) -> Any:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return pa.CompressedInputStream(raw, "gzip")
    return lzma.LZMAFile(raw) if magic == b"\xfd7zXZ\0" else raw


def _native(text: bytes) -> Any:
    """A stream over a copy in pyarrow's memory.

    A thread of pyarrow may be the last to let go of what it read, after the table was returned. If that were an
    object of Python's, and the interpreter about to end, the process would abort.
    """
    memory = pa.BufferOutputStream()
    memory.write(text)
    return pa.BufferReader(memory.getvalue())


class Narrowed(io.RawIOBase):
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


def _explained(path: Path, names: list[str], failure: str) -> InputError:
    """Translate pyarrow's error about a text file: which line, what is wrong with it, what to do."""
    row = re.search(r"Row #(\d+)", failure)
    where = f"line {row[1]} of {path}" if row else str(path)
    if match := re.search(r"error to double: invalid value '(.*)'", failure, re.DOTALL):
        return InputError(
            f"{where} has {match[1]!r} in column {names[-1]!r}; expected a number such as 3.5. "
            f"Correct or remove the line, or name another column with {EXPECTED}",
            option="value",
        )
    if match := re.search(r"Expected (\d+) columns, got (\d+): (.*)", failure, re.DOTALL):
        text = match[3].replace(_NARROW, "::")[:80]
        return InputError(
            f"{where} has {match[2]} fields where the first line has {match[1]}: {text!r}. "
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


def plain_integers(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Whether each id, a string, is an int64 written as that number is printed; null is neither here nor there.

    >>> import pyarrow as pa
    >>> plain_integers(pa.array(["7", None, "-31"])), plain_integers(pa.array(["7", "031"]))
    (True, False)
    """
    present = [chunk.drop_null() for chunk in (ids.chunks if hasattr(ids, "chunks") else [ids])]
    return not any(_any_empty(chunk) or _integers(chunk) is None for chunk in present)


def settle_ids(block: pa.RecordBatch) -> pa.RecordBatch:
    """A block with its ids as int64 if each is written as that number is printed, else as text; empty ones are null."""
    ids = []
    for text in block.columns[:2]:
        numbers = _integers(text)
        ids.append(null_where_empty(text) if numbers is None else numbers)
    return pa.record_batch([*ids, *block.columns[2:]], block.schema.names)


def _integers(text: pa.Array) -> pa.Array | None:
    """Strings as int64, the empty ones null, if each is written as its number is printed; otherwise None."""
    numbers = np.empty(len(text), dtype=np.int64)
    starts, characters = _layout_of_strings(text)
    if not read_integers(starts, characters, numbers):
        return None
    return pa.array(numbers, mask=starts[1:] == starts[:-1] if _any_empty(text) else None)


def null_where_empty(text: pa.Array) -> pa.Array:
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
