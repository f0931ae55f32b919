"""Where a panel's passes run: here, on a GPU, on a cluster. Neither torch nor Ray is needed until it is asked for."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from onesided.errors import InputError
from onesided.memory import memory_in_words
from onesided.panels.panel import Panel

WORTH = 1 << 20  # entries from which rows travel to a GPU ("auto"), or to a cluster to be imputed; fewer are done here


def placed(panel: Panel, device: str, *, engine: str = "local", rank: int = 10, deterministic: bool = False) -> Panel:
    """The same panel on a device: "cpu", this machine's processor; "cuda" or "cuda:1", a GPU; or "auto".

    With the engine "ray", on the nodes of the cluster that Ray is connected to.

    "auto" takes a GPU where PyTorch has one with room, and the panel has at least a million entries. ``rank`` is the
    largest that is to be fitted: with it the memory that is needed is known.

    >>> panel = Panel.from_dense([[1.0, 2.0]])
    >>> placed(panel, "auto") is panel, placed(panel, "cpu") is panel
    (True, True)
    """
    if not isinstance(device, str) or re.fullmatch(r"cpu|auto|cuda(:\d+)?", device) is None:
        raise InputError(f"device={device!r}: expected 'cpu', 'auto', 'cuda' or 'cuda:' and a number")
    if engine == "ray":
        return on_cluster(panel, device, rank=rank, deterministic=deterministic)
    if device == "cpu" or (device == "auto" and (panel.n_entries < WORTH or find_spec("torch") is None)):
        return panel.at(None)
    if device == "auto":
        try:
            return placed(panel, "cuda", rank=rank, deterministic=deterministic)
        except InputError:  # there is none, or it has no room
            return panel.at(None)
    try:
        from onesided.engines.gpu import Place, find_device
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


def on_cluster(panel: Panel, device: str = "cpu", **on_gpu: Any) -> Panel:
    """The same panel on the Ray cluster that is connected to, or that Ray finds or starts."""
    with naming_the_package():
        from onesided.engines.ray import ClusterPanel, current, distribute
    if not isinstance(panel, ClusterPanel):
        return distribute(panel, current(), device, **on_gpu)
    if device == "cuda" and all(slot.gpu is None for slot in panel.place.planned):
        raise InputError("device='cuda': the panel lies with processors of the cluster; read it with device='cuda'")
    panel.place.on_gpu.update(on_gpu)
    return panel


def read_on_cluster(data: Any, **reading: Any) -> Panel:
    """The panel of a path or of a Ray dataset (:func:`onesided.engines.ray.read`)."""
    with naming_the_package():
        from onesided.engines.ray import read
    return read(data, **reading)


@contextmanager
def naming_the_package() -> Iterator[None]:
    """Without Ray, what to install is said."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"engine='ray' needs Ray, which cannot be imported ({error}): pip install 'onesided[cluster]', or pass "
            "engine='local'"
        ) from error


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
