"""Panels, moments and models on disk: one file each.

A file is an uncompressed ZIP archive of ``header.json`` (kind, format version, settings, and what else is there),
``arrays.safetensors`` and one Parquet file per list of ids. It is written beside its final name and then renamed,
so a file with that name is always whole. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.storage.atomic import written_beside

FORMAT_VERSION = 1
HEADER, ARRAYS = "header.json", "arrays.safetensors"
KINDS = {"panel": "a panel", "moments": "pair moments", "model": "a model"}


@dataclass
class Archive:
    """What a file holds: a kind, settings that JSON can carry, arrays, and lists of ids."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    ids: dict[str, Array] = field(default_factory=dict)


def write(archive: Archive, path: str | os.PathLike[str]) -> None:
    """Write an archive, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save

    header = {
        "format": "onesided",
        "version": FORMAT_VERSION,
        "kind": archive.kind,
        "settings": archive.settings,
        "arrays": sorted(archive.arrays),
        "ids": sorted(archive.ids),
    }
    with written_beside(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:
        file.writestr(HEADER, json.dumps(header, indent=1, default=_plain))
        with file.open(ARRAYS, "w", force_zip64=True) as member:
            member.write(save({name: np.ascontiguousarray(array) for name, array in archive.arrays.items()}))
        for name, ids in archive.ids.items():
            with file.open(f"{name}.parquet", "w", force_zip64=True) as member:
                pq.write_table(pa.table({"id": pa.array(ids)}), member)


def read(path: str | os.PathLike[str], kind: str) -> Archive:
    """Read an archive of the given kind; a foreign, newer or damaged file is refused by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import load

    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as file:
            header = _header(path, file, kind)
            arrays = load(file.read(ARRAYS))
            if sorted(arrays) != header["arrays"]:
                raise InputError(f"{path} is damaged: its arrays are not those that its header lists")
            ids = {
                name: pq.read_table(pa.BufferReader(file.read(f"{name}.parquet")))["id"].to_numpy()
                for name in header["ids"]
            }
            return Archive(kind, header["settings"], arrays, ids)
    except InputError:
        raise
    except zipfile.BadZipFile as error:
        raise InputError(f"{path} is not a onesided file, or is damaged or cut short: {error}") from error
    except Exception as error:  # whatever the readers of damaged members raise
        raise InputError(f"{path} is damaged and cannot be read ({type(error).__name__}: {error})") from error


def _header(path: Path, file: zipfile.ZipFile, kind: str) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(file.read(HEADER)) if HEADER in file.namelist() else {}
    if header.get("format") != "onesided":
        raise InputError(f"{path} is a ZIP archive, but not a onesided file")
    if header["version"] > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {header['version']}; this release reads up to {FORMAT_VERSION}: upgrade"
        )
    if header["kind"] != kind:
        raise InputError(f"{path} holds {KINDS[header['kind']]}; expected {KINDS[kind]}")
    return header


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # a parameter chosen from an array
        return value.item()
    raise InputError(f"cannot save {value!r}: settings are numbers, texts and lists of them")
