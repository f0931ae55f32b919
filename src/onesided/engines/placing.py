"""Which device a panel's passes run on. Nothing here needs torch until a device is asked for."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from onesided.errors import InputError
from onesided.memory import memory_in_words
from onesided.panel import Panel

WORTH = 1 << 20  # entries from which "auto" takes a GPU: below, the processor is done before the panel is there


def placed(panel: Panel, device: str, *, rank: int = 10, deterministic: bool = False) -> Panel:
    """The same panel on a device: "cpu", this machine's processor; "cuda" or "cuda:1", a GPU; or "auto".

    "auto" takes a GPU where PyTorch has one with room, and the panel has at least a million entries. ``rank`` is the
    largest that is to be fitted: with it the memory that is needed is known.

    >>> panel = Panel.from_dense([[1.0, 2.0]])
    >>> placed(panel, "auto") is panel, placed(panel, "cpu") is panel
    (True, True)
    """
    if not isinstance(device, str) or re.fullmatch(r"cpu|auto|cuda(:\d+)?", device) is None:
        raise InputError(f"device={device!r}: expected 'cpu', 'auto', 'cuda' or 'cuda:' and a number")
    if device == "cpu" or (device == "auto" and (panel.n_entries < WORTH or find_spec("torch") is None)):
        return panel.at(None)
    if device == "auto":
        try:
            return placed(panel, "cuda", rank=rank, deterministic=deterministic)
        except InputError:  # there is none, or it has no room
            return panel.at(None)
    try:
        from onesided.engines.device import Place, find_device
    except (ImportError, OSError) as error:
        raise InputError(
            f"device={device!r} needs PyTorch, which cannot be imported ({error}): pip install 'onesided[gpu]', "
            "or pass device='cpu'"
        ) from error
    place = Place(panel, find_device(device), rank=rank, deterministic=deterministic)
    if place.streamed:
        warnings.warn(
            f"the panel takes {memory_in_words(place.needed)} on the GPU, which has no room for it beside a fit of "
            f"rank {rank}: it is streamed there in each pass, which takes longer",
            stacklevel=4,
        )
    return panel.at(place)


@contextmanager
def naming_the_way_out() -> Iterator[None]:
    """Memory that runs out on a device says what to do."""
    try:
        yield
    except Exception as error:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        torch.cuda.empty_cache()
        raise InputError(
            f"the GPU ran out of memory ({str(error).splitlines()[0]}); close what else uses it, choose a lower rank, "
            "give the values as float32, or pass device='cpu'"
        ) from error
