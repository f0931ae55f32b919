"""Datasets by name: read once from the files as published, verified, and kept as packed panels.

What was read is written to a folder of the cache under a name made of the file's path and the options. Its header notes
the file's size and time of change as well: as long as they are the same the panel is opened, memory-mapped, and the
file is not read again. What does not open, or is of another state of the file, is made anew and replaces it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onesided.datasets.catalogue import Release, Specification, chosen_options, specification
from onesided.datasets.genotype_files import genotype_files, read_genotypes
from onesided.datasets.jester import read_jester
from onesided.datasets.ratings import read_ratings, read_reviews
from onesided.datasets.readings import Account, Reading
from onesided.datasets.sources import Source, data_source, located, where_from
from onesided.errors import InputError, counted, warn
from onesided.panels.packed.format import PackedWriter, load_packed, read_header, write_packed
from onesided.panels.panel import Panel
from onesided.panels.table_files import Progress, open_table

VERSION = 1  # of what readers make of files
CACHE = "ONESIDED_CACHE"


def load(
    name: str,
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    note: Callable[[str], object] | None = None,
    **options: Any,
) -> Panel:
    """The panel of a dataset, from its files as they are downloaded.

    Parameters
    ----------
    name : str
        One of ``CATALOGUE``: movielens-100k to movielens-32m, amazon-reviews-2023, genomes, jester, goodbooks,
        book-crossing, renttherunway, or ``table`` for any long table.
    path : path
        The archive, a folder that it was unpacked to or that ``find`` finds it in, or the bare file of the data, plain
        or compressed with gzip or xz.
    verify : bool
        Refuse a file that does not amount to what the dataset has; False for files that were cut or filtered on
        purpose. Of amazon-reviews-2023, genomes and table no counts are known.
    cache : path, optional
        The folder of packed panels; otherwise that of the environment variable ``ONESIDED_CACHE``, otherwise
        ``onesided`` in ``XDG_CACHE_HOME`` or ``~/.cache``.
    progress : function, optional
        Called with the bytes of the file read so far and its size.
    note : function, optional
        Called with a sentence for whatever was left out or merged. Otherwise a warning says it, unless counts were
        verified: then it is what the dataset is known for.
    **options
        ``implicit`` of book-crossing: "drop" ratings of zero, or "keep" them. ``cut`` of amazon-reviews-2023: so many
        rows and columns, or None for all; as for the paper, 100,000 and 50,000, those with most ratings.
        ``columns``, ``sites`` and ``coding`` of genomes: "haplotypes" or "individuals", the first so many sites, and
        "paper" for values that begin at 1. ``row``, ``column``, ``value``, ``duplicates`` and ``non_finite`` of table:
        as for ``tables.open_table`` and ``Panel.from_table``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "u.data").write_text("1\\t7\\t5\\t881250949\\n2\\t7\\t3\\t891717742\\n")
    ...     load("movielens-100k", Path(folder, "u.data"), verify=False, cache=folder)
    Panel(2 rows × 1 column, 2 entries)
    """
    spec = specification(name)
    chosen, sources = chosen_options(spec, options), _sources(spec, path)
    state = [VERSION, [source.identity for source in sources]]
    key = [name, verify, [[source.path.resolve().as_posix(), source.member] for source in sources], chosen]
    digest = hashlib.sha256(json.dumps(key, default=repr).encode()).hexdigest()
    folder = _cache_folder(cache) / f"{name}-{digest[:16]}"
    cached = _opened(folder, state)
    if cached is None:
        reading = _read(spec, sources, chosen, verify, progress)

        def describe(written: PackedWriter) -> dict[str, Any]:
            release = _verified(spec, chosen, sources[0], reading.account, written) if verify else None
            return {"state": state, "notes": reading.account.notes, "verified": release is not None}

        if folder.exists() and not folder.is_dir():
            folder.unlink()
        try:
            write_packed(folder, reading.column_ids, reading.blocks, describe=describe)
        except OSError as error:
            raise _cannot_keep(folder.parent, error) from error
        cached = load_packed(folder), read_header(folder)["source"]
    panel, account = cached
    for sentence in account["notes"]:
        if note:
            note(sentence)
        elif not account["verified"]:
            warn(f"{spec.title}: {sentence}")
    return panel


def _sources(spec: Specification, path: str | os.PathLike[str]) -> list[Source]:
    file = located(spec, path)
    if spec.kind == "genotypes":
        return [Source(part) for part in genotype_files(file)]
    return [Source(file) if spec.kind == "table" else data_source(spec, file)]


def _cache_folder(given: str | os.PathLike[str] | None) -> Path:
    named = given if given is not None else os.environ.get(CACHE)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(home, "onesided")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_keep(folder, error) from error
    return folder


def _cannot_keep(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot keep panels in {folder} ({error.strerror}); name another folder with the environment variable "
        f"{CACHE}, or with cache="
    )


def _opened(folder: Path, state: list[Any]) -> tuple[Panel, dict[str, Any]] | None:
    """What is in the cache, if it is whole and of this state of the files."""
    try:
        panel, source = load_packed(folder), read_header(folder)["source"]
        return (panel, source) if source["state"] == state and {"notes", "verified"} <= set(source) else None
    except (InputError, KeyError, TypeError):
        return None


def _read(
    spec: Specification, sources: list[Source], options: dict[str, Any], verify: bool, progress: Progress | None
) -> Reading:
    how: dict[str, Any] = {"verify": verify, "progress": progress}
    if spec.kind == "genotypes":
        return read_genotypes(sources[0].path, **how, **options)
    if spec.kind == "jester":
        return read_jester(sources[0], **how)
    if spec.kind == "reviews":
        return read_reviews(spec, sources[0], **how)
    if spec.kind == "table":
        return _read_table(sources[0].path, progress, **options)
    return read_ratings(spec, sources[0], **how, **options)


def _read_table(path: Path, progress: Progress | None, **options: Any) -> Reading:
    names = {role: options.pop(role) for role in ("row", "column", "value")}
    stream = open_table(path, **names, progress=progress)
    assert stream.value is not None
    table = stream.reader.read_all()
    panel = Panel.from_table(table, row=stream.row, column=stream.column, value=stream.value, **options)
    left_out = table.num_rows - panel.n_entries
    notes = [f"{counted(left_out, 'line')} left out or merged, as asked"] if left_out else []
    return Reading.of_panel(panel, Account(table.num_rows, notes))


def _verified(
    spec: Specification, options: Mapping[str, Any], source: Source, account: Account, written: PackedWriter
) -> Release | None:
    """The release that a file is, whole; None where no counts are known. What is of none is refused."""
    fitting = [release for release in spec.releases if release.options.items() <= options.items()]
    if not fitting:
        return None
    release = min(fitting, key=lambda release: abs(release.lines - account.lines))
    named = f"{spec.title}{f', {release.called},' if release.called else ''}"
    remedy = f"{where_from(spec)}; or pass verify=False if it was changed on purpose"
    if account.lines != release.lines:
        short = "it is cut short, or filtered" if account.lines < release.lines else "it is of something else"
        raise InputError(
            f"{source} has {counted(account.lines, 'line')}, {named} has {release.lines:,}: {short}; {remedy}"
        )
    shape = written.n_rows, written.n_columns, written.n_entries
    if shape != (release.rows, release.columns, release.entries):
        raise InputError(
            f"{source} makes {_shape(*shape)}, {named} makes {_shape(release.rows, release.columns, release.entries)}: "
            f"it was changed; {remedy}"
        )
    return release


def _shape(rows: int, columns: int, entries: int) -> str:
    return f"{rows:,} rows × {columns:,} columns with {entries:,} entries"
