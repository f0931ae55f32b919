"""Where long tables are read from on a cluster: row groups of Parquet files, blocks of a dataset of Ray's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from pyarrow import fs
from ray.exceptions import RayTaskError

from onesided.arrays import Array
from onesided.engines.ray.cluster import Ref, current, fetched
from onesided.errors import InputError
from onesided.panels.convert import entry_values
from onesided.panels.ids import plain_ids
from onesided.panels.table_files import Roles, choose_columns


class Source(NamedTuple):
    """Some lines: row groups of a Parquet file of a known size, or a block of a dataset, which is an Arrow table."""

    path: str
    names: list[str]
    lines: int
    first_line: int
    groups: tuple[int, ...] = ()
    size: int = 0

    def read(self, blocks: Iterator[Any]) -> Any:
        if not self.groups:
            return next(blocks)
        with _opened(self.path, self.size) as (file, _):
            return file.read_row_groups(list(self.groups), columns=self.names, use_threads=False)


Unit = tuple[list[Source], list[Ref]]  # what one task reads, and the blocks of a dataset that Ray is to fetch for it


@contextmanager
def _opened(path: str, expected: int | None = None) -> Iterator[tuple[Any, int]]:
    """A Parquet file, and its size; one that was read before is expected to have the size that it had."""
    system, inner = _located(path)
    try:
        about = system.get_file_info(inner)
        if expected is not None and not about.is_file:
            raise InputError(
                f"{path} is gone on node {ray.util.get_node_ip_address()}; tables must stay, under the same path on "
                "all nodes, for as long as their panel is in use"
            )
        if expected not in (None, about.size):
            raise InputError(f"{path} has changed since it was first read; begin again when it is finished")
        with pq.ParquetFile(inner, filesystem=system) as file:
            yield file, about.size
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is cut short or corrupt ({error}); fetch or write it again") from error


def _located(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path in it."""
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        system, inner = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be reached ({error}); give the path of Parquet files") from error
    return system, inner


def parquet_groups(data: Any, roles: Roles) -> Iterator[tuple[Source, list[Ref]]]:
    """The Parquet files at one or several paths, a row group at a time."""
    paths = [data] if isinstance(data, (str, PathLike)) else data if isinstance(data, (list, tuple)) else []
    if not paths or not all(isinstance(path, (str, PathLike)) for path in paths):
        raise InputError(
            f"expected the path of Parquet files, a list of such, or a ray.data.Dataset; found {type(data).__name__}"
        )
    for path in chain.from_iterable(map(_parquet_files, map(fspath, paths))):
        with _opened(path) as (file, size):
            about, present = file.metadata, file.schema_arrow.names
        names = choose_columns(Path(path), present, roles)
        first = 0
        for group in range(about.num_row_groups):
            lines = about.row_group(group).num_rows
            yield Source(path, names, lines, first, (group,), size), []
            first += lines


def _parquet_files(path: str) -> list[str]:
    if "://" not in path:
        path = str(Path(path).absolute())
    system, inner = _located(path)
    about = system.get_file_info(inner)
    if about.type == fs.FileType.NotFound:
        raise InputError(f"there is nothing at {path}; give the path of Parquet files or of a directory of them")
    if about.is_file:
        return [path]
    files = []
    for entry in system.get_file_info(fs.FileSelector(inner, recursive=True)):
        below = PurePosixPath(entry.path).relative_to(PurePosixPath(inner))
        hidden = any(name.startswith((".", "_")) for name in below.parts)
        if entry.is_file and not hidden and below.suffix.lower() in (".parquet", ".pq"):
            files.append(f"{path.rstrip('/')}/{below}")
    if not files:
        raise InputError(f"no Parquet files in {path}; expected some called *.parquet or *.pq, in it or below")
    return sorted(files)


def dataset_blocks(data: Any, roles: Roles) -> Iterator[tuple[Source, list[Ref]]]:
    """The blocks of a dataset, which Ray Data makes now if it has not yet, as Arrow tables in Ray's store."""
    with _quiet(data.context):
        try:
            made = data.materialize()  # a copy: blocks are let go of with it and with the references
            tables, schema = made.to_arrow_refs(), made.schema()
        except RayTaskError as error:
            # Ray keeps what was raised first only in its traceback, and follows it with advice on retries.
            reason = str(error).partition("\n\nThe above exception was")[0].splitlines()[-1].strip()
            raise InputError(f"the dataset cannot be made ({reason}); see that its source can be read") from error
    names = choose_columns(Path("the dataset"), [] if schema is None else list(schema.names), roles)
    count = current().spread_out(len)
    first = 0
    for table, lines in zip(tables, fetched([count(table) for table in tables]), strict=True):
        yield Source("the dataset", names, lines, first), [table]
        first += lines


@contextmanager
def _quiet(context: Any) -> Iterator[None]:
    """Have Ray Data print nothing on the terminal and keep blocks in order; afterwards its settings are as before."""
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


def units_of(sources: Iterable[tuple[Source, list[Ref]]], most: int) -> Iterator[Unit]:
    """Group sources that follow each other into units of at most so many lines, or of one source."""
    unit: list[Source] = []
    fetched_for_it: list[Ref] = []
    for source, refs in sources:
        if not source.lines:
            continue
        if unit and sum(other.lines for other in unit) + source.lines > most:
            yield unit, fetched_for_it
            unit, fetched_for_it = [], []
        if unit and source.groups and unit[-1].path == source.path:
            last = unit.pop()
            source = last._replace(lines=last.lines + source.lines, groups=last.groups + source.groups)
        unit.append(source)
        fetched_for_it += refs
    if unit:
        yield unit, fetched_for_it


def tables_of(sources: list[Source], blocks: Iterable[Any]) -> Iterator[tuple[Source, Any, Any, Array]]:
    """Read each source: its row ids and column ids, int64 or large strings, and its values."""
    ahead = iter(blocks)
    for source in sources:
        table = source.read(ahead)
        row, column, value = source.names
        try:
            ids = (plain_ids(table.column(name), name).combine_chunks() for name in (row, column))
            yield source, *ids, entry_values(table.column(value), value)
        except InputError as error:
            raise error.followed_by(f" (found in {source.path})") from error
