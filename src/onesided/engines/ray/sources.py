"""What long tables are read from on a cluster: row groups of Parquet files, blocks of a dataset of Ray's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy.typing as npt
import ray
import ray.data
from ray.exceptions import RayTaskError

from onesided.engines.ray.cluster import Ref
from onesided.errors import InputError
from onesided.panels.convert import entry_values
from onesided.panels.ids import encode_ids, without_dictionary
from onesided.panels.table_files import choose_columns

Array = npt.NDArray[Any]


class File(NamedTuple):
    """Some row groups of a Parquet file."""

    path: str
    names: list[str]
    lines: int
    first_line: int
    groups: list[int]
    size: int

    def read(self, _: Iterator[Any]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        system, inner = _located(self.path)
        try:
            found = system.get_file_info(inner)
            if not found.is_file:
                raise InputError(
                    f"{self.path} is gone on node {ray.util.get_node_ip_address()}; tables must stay, under the same "
                    "path on all nodes, for as long as their panel is in use"
                )
            if found.size != self.size:
                raise InputError(f"{self.path} has changed since it was first read; begin again when it is finished")
            with pq.ParquetFile(inner, filesystem=system) as file:
                return file.read_row_groups(self.groups, columns=self.names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise InputError(_corrupt(self.path, error)) from error


class Block(NamedTuple):
    """A block of a dataset."""

    path: str
    names: list[str]
    lines: int
    first_line: int

    def read(self, blocks: Iterator[Any]) -> Any:
        return ray.data.block.BlockAccessor.for_block(next(blocks)).to_arrow()


Source = File | Block


class Unit(NamedTuple):
    """What one task reads, and the blocks of a dataset that Ray is to fetch for it."""

    sources: list[Source]
    refs: list[Ref]

    @property
    def lines(self) -> int:
        return sum(source.lines for source in self.sources)


def _corrupt(path: str, error: Exception) -> str:
    return f"{path} is cut short or corrupt ({error}); fetch or write it again"


def _located(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path in it."""
    from pyarrow import ArrowException, fs

    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        system, inner = fs.FileSystem.from_uri(path)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be reached ({error}); give the path of Parquet files") from error
    return system, inner


def files(data: Any, asked: dict[str, str | None]) -> Iterator[tuple[File, list[Ref]]]:
    """The Parquet files at one or several paths, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [data] if isinstance(data, (str, PathLike)) else data if isinstance(data, (list, tuple)) else []
    if not paths or not all(isinstance(one, (str, PathLike)) for one in paths):
        raise InputError(
            f"expected the path of Parquet files, a list of such, or a ray.data.Dataset; found {type(data).__name__}"
        )
    for path in chain.from_iterable(map(_parquet_files, map(fspath, paths))):
        system, inner = _located(path)
        try:
            size = system.get_file_info(inner).size
            with pq.ParquetFile(inner, filesystem=system) as file:
                about, present = file.metadata, file.schema_arrow.names
        except (pa.ArrowException, OSError) as error:
            raise InputError(_corrupt(path, error)) from error
        names = choose_columns(Path(path), present, asked)
        first = 0
        for group in range(about.num_row_groups):
            lines = about.row_group(group).num_rows
            yield File(path, names, lines, first, [group], size), []
            first += lines


def _parquet_files(path: str) -> list[str]:
    from pyarrow import fs

    if "://" not in path:
        path = str(Path(path).absolute())
    system, inner = _located(path)
    found = system.get_file_info(inner)
    if found.type == fs.FileType.NotFound:
        raise InputError(f"there is nothing at {path}; give the path of Parquet files or of a directory of them")
    if found.is_file:
        return [path]
    files = []
    for one in system.get_file_info(fs.FileSelector(inner, recursive=True)):
        below = PurePosixPath(one.path).relative_to(PurePosixPath(inner))
        hidden = any(part.startswith((".", "_")) for part in below.parts)
        if one.is_file and not hidden and below.suffix.lower() in (".parquet", ".pq"):
            files.append(f"{path.rstrip('/')}/{below}")
    if not files:
        raise InputError(f"no Parquet files in {path}; expected some called *.parquet or *.pq, in it or below")
    return sorted(files)


def blocks_of(data: Any, asked: dict[str, str | None]) -> Iterator[tuple[Block, list[Ref]]]:
    """The blocks of a dataset, which Ray Data makes now if it has not yet."""
    with _quiet(data.context):
        try:
            bundles = list(data.iter_internal_ref_bundles())
        except RayTaskError as error:
            told = [line.strip() for line in str(error.cause or error).splitlines() if line.strip()]
            raise InputError(f"the dataset cannot be made ({told[-1]}); see that its source can be read") from error
        schema = data.schema()
    names = choose_columns(Path("the dataset"), [] if schema is None else list(schema.names), asked)
    first = 0
    for bundle in bundles:
        for ref, about in zip(bundle.block_refs, bundle.metadata, strict=True):
            yield Block("the dataset", names, about.num_rows, first), [ref]
            first += about.num_rows


@contextmanager
def _quiet(context: Any) -> Iterator[None]:
    """Ray Data without bars and news on the terminal, and with blocks in their order; then as it was before."""
    options, bars = context.execution_options, context.enable_progress_bars
    log = logging.getLogger("ray.data")
    ordered, level = options.preserve_order, log.level
    options.preserve_order, context.enable_progress_bars = True, False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        options.preserve_order, context.enable_progress_bars = ordered, bars
        log.setLevel(level)


def units_of(found: Iterable[tuple[Source, list[Ref]]], most: int) -> Iterator[Unit]:
    """Sources one after the other, as many as have about so many lines."""
    unit = Unit([], [])
    for source, refs in found:
        if not source.lines:
            continue
        if unit.sources and unit.lines + source.lines > most:
            yield unit
            unit = Unit([], [])
        last = unit.sources[-1] if unit.sources else None
        if isinstance(source, File) and isinstance(last, File) and last.path == source.path:
            unit.sources[-1] = last._replace(lines=last.lines + source.lines, groups=last.groups + source.groups)
        else:
            unit.sources.append(source)
            unit.refs.extend(refs)
    if unit.sources:
        yield unit


def tables_of(sources: list[Source], blocks: Iterable[Any]) -> Iterator[tuple[Source, Any, Any, Array]]:
    """Of each source its row ids and column ids, int64 or large strings, and its values."""
    ahead = iter(blocks)
    for source in sources:
        table = source.read(ahead)
        row, column, value = source.names
        try:
            ids = _plain_ids(table.column(row), row), _plain_ids(table.column(column), column)
            yield source, *ids, entry_values(table.column(value), value)
        except InputError as error:
            raise error.followed_by(f" (found in {source.path})") from error


def _plain_ids(given: Any, name: str) -> Any:
    """Ids as one Arrow array of int64 or large strings, and nulls."""
    import pyarrow as pa

    ids = without_dictionary(given)
    encode_ids(ids.drop_null()[:1], name)  # refuses other kinds
    try:
        ids = ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.large_string())
    except pa.ArrowInvalid as error:
        raise InputError(f"{name!r} has ids beyond 64-bit integers; use strings") from error
    return pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
