"""Ids of rows and columns: integers or strings, one kind at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted, examples, shown
from onesided.panels.refusals import ID_KINDS, NO_FLOATS, check_ids_present

if TYPE_CHECKING:
    import pyarrow as pa

Coded = tuple[Array | None, Array, int]  # ids (or None), the code of each entry, how many codes there are


def encode_ids(ids: pa.Array | pa.ChunkedArray, name: str) -> Coded:
    """Sorted distinct ids and the code of each line.

    >>> import pyarrow as pa
    >>> encode_ids(pa.array(["tea", "rye", "tea"]), "drink")
    (array(['rye', 'tea'], dtype=object), array([1, 0, 1], dtype=int32), 2)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(ids) == 0:
        return None, np.empty(0, dtype=np.int32), 0
    ids = without_dictionary(ids)
    if ids.null_count:
        first = pc.index(pc.is_null(ids), True).as_py()
        check_ids_present(ids.null_count, f"at position {first}", repr(name))
    ids = plain_ids(ids, name)
    if ids.type == pa.int64():
        least, most = pc.min_max(ids).values()
        if most.as_py() - least.as_py() < 2 * len(ids):
            return _encode_near(ids, least.as_py(), most.as_py())
    coded = pc.dictionary_encode(ids)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int32)  # Arrow's own codes are no wider
    rank[order] = np.arange(len(order), dtype=np.int32)
    distinct = coded.dictionary.to_numpy(zero_copy_only=False)[order]
    return distinct, rank[coded.indices.to_numpy()], len(distinct)


def plain_ids(given: pa.Array | pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
    """Ids as int64 or large strings, with the nulls they have; those of other kinds are refused.

    >>> import pyarrow as pa
    >>> plain_ids(pa.array(["tea", None]).dictionary_encode(), "drink").to_pylist()
    ['tea', None]
    """
    import pyarrow as pa

    ids = without_dictionary(given)
    kind = ids.type
    if len(ids) > ids.null_count and not pa.types.is_integer(kind) and not _is_text(kind):
        expected = NO_FLOATS if pa.types.is_floating(kind) else ID_KINDS
        raise InputError(f"{name!r} holds {kind}, for example {shown(ids.drop_null()[0].as_py())}; {expected}")
    try:
        return ids.cast(pa.int64() if pa.types.is_integer(kind) else pa.large_string())
    except pa.ArrowInvalid as error:
        raise InputError(f"{name!r} has ids beyond 64-bit integers; use strings") from error


def _encode_near(ids: pa.Array | pa.ChunkedArray, least: int, most: int) -> Coded:
    """Sorted distinct ids and codes of integers that lie close together: by a table of all between, without hashing."""
    chunks = [chunk.to_numpy() for chunk in (ids.chunks if hasattr(ids, "chunks") else [ids])]
    seen = np.zeros(most - least + 1, dtype=bool)
    for chunk in chunks:
        seen[chunk - least] = True
    code = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    codes = np.empty(len(ids), dtype=np.int32)
    filled = 0
    for chunk in chunks:
        np.take(code, chunk - least, out=codes[filled : filled + len(chunk)], mode="clip")  # "raise" would copy
        filled += len(chunk)
    distinct = np.flatnonzero(seen) + least
    return distinct, codes, len(distinct)


def without_dictionary(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A categorical array as the plain one it stands for; others as they are."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        return array
    plain = pa.large_string() if _is_text(array.type.value_type) else array.type.value_type
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    # By hand, as Arrow cannot cast a dictionary of string views, which is what polars hands over.
    return pa.chunked_array([chunk.dictionary.cast(plain).take(chunk.indices) for chunk in chunks], type=plain)


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def as_ids(given: Any, name: str) -> Array:
    """A list of ids as int64, or as objects that are all strings."""
    # One by one, as numpy makes a list of strings and integers one of strings.
    ids: Array = np.asarray(given) if hasattr(given, "__array__") else np.fromiter(given, dtype=object)
    if ids.ndim != 1:
        raise InputError(f"{name} must be a list; found an array of shape {ids.shape}")
    if ids.dtype.kind in "UT":
        return ids.astype(object)
    if ids.dtype.kind == "O":
        types = set(map(type, ids))
        if all(issubclass(kind, str) for kind in types):
            return ids
        if not all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in types):
            kinds = " and ".join(sorted(kind.__name__ for kind in types))
            expected = NO_FLOATS if any(issubclass(kind, (float, np.floating)) for kind in types) else ID_KINDS
            raise InputError(f"{name} hold {kinds}; {expected}")
    elif ids.dtype.kind not in "iu":
        raise InputError(f"{name} hold {ids.dtype}; {NO_FLOATS if ids.dtype.kind == 'f' else ID_KINDS}")
    limits = np.iinfo(np.int64)
    if np.any(ids > limits.max) or np.any(ids < limits.min):
        raise InputError(f"{name} reach beyond 64-bit integers; use strings")
    return ids.astype(np.int64, copy=False)


def check_ids(ids: Any | None, expected: int, axis: str) -> Array | None:
    """Ids as int64 or as objects that are strings, read-only: as many as expected, none twice."""
    if ids is None:
        return None
    checked = as_ids(ids, f"{axis}_ids").view()
    checked.flags.writeable = False
    if len(checked) != expected:
        raise InputError(f"{counted(expected, axis)} but {counted(len(checked), f'{axis} id')}; give one for each")
    if checked.dtype.kind == "O":
        distinct = len(set(checked.tolist()))
    else:
        ordered = np.sort(checked)  # mostly in order already, which np.unique does not notice
        distinct = expected - int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if distinct != expected:
        ((repeated, _),) = Counter(checked.tolist()).most_common(1)
        raise InputError(f"{axis}_ids repeat, for example {shown(repeated)}: {expected} ids, {distinct} distinct")
    return checked


def id_kind(ids: Array) -> str:
    """What ids are, in words."""
    return "strings" if ids.dtype.kind in "OUT" else "integers"


class IdIndex:
    """Where ids stand in a list of ids, which is ordered or hashed once, at the first look-up.

    Integers that ascend need no memory beside them, others 8 bytes each; strings are held in a dictionary.

    >>> index = IdIndex(np.array([30, 10, 20]), "column")
    >>> index.positions([10, 30])
    array([1, 0])
    >>> index.find(np.array([20, 25]))
    (array([ 2, -1]), array([ True, False]))
    """

    def __init__(self, ids: Array, axis: str = "") -> None:
        self.ids, self.axis = ids, axis

    @cached_property
    def _position(self) -> dict[str, int]:
        return {text: at for at, text in enumerate(self.ids.tolist())}

    @cached_property
    def _order(self) -> Array | None:
        """The order in which the ids ascend; None where they stand in it."""
        return None if np.all(self.ids[1:] >= self.ids[:-1]) else np.argsort(self.ids, kind="stable")

    def find(self, wanted: Array) -> tuple[Array, Array]:
        """The position of each wanted id, -1 for one that is not in the list, and whether it is."""
        if id_kind(self.ids) != id_kind(wanted):
            return np.full(len(wanted), -1), np.zeros(len(wanted), dtype=bool)
        if id_kind(self.ids) == "strings":
            position = np.array([self._position.get(text, -1) for text in wanted.tolist()], dtype=np.int64)
            return position, position >= 0
        rank = np.minimum(np.searchsorted(self.ids, wanted, sorter=self._order), len(self.ids) - 1)
        position = rank if self._order is None else self._order[rank]
        present = self.ids[position] == wanted
        return np.where(present, position, -1), present

    def positions(self, ids: Iterable[Any]) -> Array:
        """The position of each id; one that is not in the list is named in the error."""
        if isinstance(ids, str):
            raise InputError(f"expected a list of {self.axis} ids; found the string {ids!r}")
        wanted = as_ids(ids, f"{self.axis} ids")
        position, present = self.find(wanted)
        if not present.all():
            strangers, kind = wanted[~present], id_kind(self.ids)
            others = f"; its {self.axis} ids are {kind}" if kind != id_kind(wanted) else ""
            raise InputError(
                f"{counted(len(strangers), f'{self.axis} id')} not in the panel: {examples(strangers)}{others}"
            )
        return position


def plain_id(given: Any) -> Any:
    """An id as Python has it, not as a scalar of numpy.

    >>> plain_id(np.int64(7)), plain_id("tea")
    (7, 'tea')
    """
    return given.item() if isinstance(given, np.generic) else given
