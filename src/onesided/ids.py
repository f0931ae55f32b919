"""Ids of rows and columns: integers or strings, one kind at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesided.errors import InputError, counted, examples

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
Coded = tuple[Array | None, Array, int]  # ids (or None), the code of each entry, how many codes there are


def encode_ids(ids: pa.Array | pa.ChunkedArray, name: str) -> Coded:
    """Sorted distinct ids and the code of each line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if ids.null_count:
        first = pc.index(pc.is_null(ids), True).as_py()
        raise InputError(f"{name!r} has {counted(ids.null_count, 'missing id')} (first at line {first}); drop them")
    if pa.types.is_integer(ids.type):
        try:
            ids = ids.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{name!r} has ids beyond 64-bit integers; use strings") from error
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type):
        ids = ids.cast(pa.large_string())
    elif len(ids) or not pa.types.is_null(ids.type):
        raise InputError(f"{name!r} holds {ids.type}; ids must be integers or strings")
    coded = pc.dictionary_encode(ids)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks() if coded.num_chunks != 1 else coded.chunk(0)
    if isinstance(coded, pa.ChunkedArray):  # no chunk at all: an empty table
        return None, np.empty(0, dtype=np.int64), 0
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    distinct = coded.dictionary.to_numpy(zero_copy_only=False)[order]
    return distinct, rank[coded.indices.to_numpy()], len(distinct)


def check_ids(ids: Array | None, expected: int, axis: str) -> Array | None:
    """Ids as int64 or as objects that are strings: as many as expected, none twice."""
    if ids is None:
        return None
    ids = np.asarray(ids)
    if ids.dtype.kind in "UT":
        ids = ids.astype(object)
    if ids.shape != (expected,):
        raise InputError(f"{expected} {axis}s but {axis}_ids of shape {ids.shape}")
    if ids.dtype.kind == "O" and not all(isinstance(one, str) for one in ids):
        if not all(isinstance(one, (int, np.integer)) for one in ids):
            raise InputError(f"{axis}_ids must be all integers or all strings")
        ids = ids.astype(np.int64)
    elif ids.dtype.kind not in "Oiu":
        raise InputError(f"{axis}_ids must be integers or strings; found {ids.dtype}")
    distinct = len(np.unique(ids)) if ids.dtype.kind != "O" else len(set(ids.tolist()))
    if distinct != expected:
        raise InputError(f"{axis}_ids repeat: {expected} ids, {distinct} distinct")
    return ids


def find_ids(known: Array, wanted: Array) -> tuple[Array, Array]:
    """Where each wanted id stands among the known ones (-1 where it does not), and whether it does."""
    same_kind = (known.dtype.kind == "O") == (wanted.dtype.kind == "O")
    if not same_kind:
        return np.full(len(wanted), -1), np.zeros(len(wanted), dtype=bool)
    if known.dtype.kind == "O":
        lookup = {one: at for at, one in enumerate(known.tolist())}
        position = np.array([lookup.get(one, -1) for one in wanted.tolist()], dtype=np.int64)
        return position, position >= 0
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    found = known[order[at]] == wanted
    return np.where(found, order[at], -1), found


def known_positions(known: Array, ids: Iterable[Any], axis: str) -> Array:
    """Where each id stands among the known ones; an unknown one is named in the error."""
    wanted = np.asarray(list(ids))
    if wanted.dtype.kind not in "iu":
        wanted = wanted.astype(object)
    position, found = find_ids(known, wanted)
    if not found.all():
        strangers = wanted[~found]
        raise InputError(f"{counted(len(strangers), f'{axis} id')} not in the panel: {examples(strangers)}")
    return position
