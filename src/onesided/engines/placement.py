"""Where a panel's passes run: here, on a GPU, on a cluster. Neither torch nor Ray is needed until it is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from onesided.arrays import Array
from onesided.errors import InputError, warn
from onesided.memory import memory_in_words
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

if TYPE_CHECKING:
    from onesided.engines.engine import Engine
    from onesided.engines.ray import RayPanel

PairPass = Callable[[float, Any], tuple[float, Any]]  # of the weight of the diagonal and X: the loss, its gradient

WORTH = 1 << 20  # entries from which rows travel to a GPU ("auto"), or to a cluster to be imputed; fewer are done here


@runtime_checkable
class Place(Protocol):
    """Where the passes over a panel run, if not on this machine's processor: a GPU, or a cluster.

    Beside engines, a place may offer passes over pairs of columns. ``None`` says that it has none, and that the
    processor is to make them.

    >>> from onesided import Panel
    >>> place_of(Panel.from_dense([[1.0, 2.0]])) is None
    True
    """

    def engine(self, panel: PanelLike, weights: Array | None) -> Engine:
        """Passes over the rows of the panel that lies here, with its own weights or others."""

    def for_rows(self, panel: Panel) -> Place | None:
        """The same place for other rows; None where they stay in this process."""
        return None

    def pair_pass(self, indptr: Array, columns: Array, target: Array) -> PairPass | None:
        """The pass over pairs of columns, given once, with a target for each (:mod:`onesided.kernels.gpu_pairs`)."""
        return None

    def pair_moments(self, panel: Panel) -> tuple[Any, ...] | None:
        """What :class:`onesided.pairs.moments.PairMoments` holds of all pairs, from ``indptr`` on."""
        return None


class GpuOptions(NamedTuple):
    """What a GPU is asked for: room for fits up to a rank, and whether sums are added in a fixed order."""

    rank: int = 10
    deterministic: bool = False


DEFAULT_GPU_OPTIONS = GpuOptions()


def place_of(panel: PanelLike) -> Place | None:
    """The place of a panel; None on this machine's processor."""
    if panel.place is None or isinstance(panel.place, Place):
        return panel.place
    raise TypeError(f"the place of a panel must be a Place; found {type(panel.place).__name__}")


def placed_like(rows: Panel, panel: PanelLike) -> Panel:
    """Other rows at the place of a panel, such as those that were taken from it.

    >>> from onesided import Panel
    >>> panel = Panel.from_dense([[1.0, 2.0], [3.0, 4.0]])
    >>> placed_like(panel.take_rows([1]), panel)
    Panel(1 row × 2 columns, 2 entries)
    """
    place = place_of(panel)
    return rows if place is None else rows.at(place.for_rows(rows))


def placed(
    panel: PanelLike, device: str, *, engine: str = "local", rank: int = 10, deterministic: bool = False
) -> PanelLike:
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
        return on_cluster(panel, device, GpuOptions(rank, deterministic))
    if device == "cpu" or (device == "auto" and (panel.n_entries < WORTH or find_spec("torch") is None)):
        return panel.at_home()
    if device == "auto":
        try:
            return placed(panel, "cuda", rank=rank, deterministic=deterministic)
        except InputError:  # there is none, or it has no room
            return panel.at_home()
    try:
        from onesided.engines.gpu import GpuPlace, find_device
    except (ImportError, OSError) as error:
        raise InputError(
            f"device={device!r} needs PyTorch, which cannot be imported ({error}): pip install 'onesided[gpu]', "
            "or pass device='cpu'"
        ) from error
    gpu, here = find_device(device), panel.to_panel()
    place = GpuPlace(here, gpu, rank=rank, deterministic=deterministic)
    if place.streamed:
        warn(
            f"the panel takes {memory_in_words(place.needed)} on the GPU, which has no room for it beside a fit of "
            f"rank {rank}: it is streamed there in each pass, which takes longer"
        )
    return here.at(place)


def on_cluster(panel: PanelLike, device: str = "cpu", gpu: GpuOptions = DEFAULT_GPU_OPTIONS) -> RayPanel:
    """The same panel on the Ray cluster that this process is connected to, or that Ray finds or starts."""
    with explaining_missing_ray():
        from onesided.engines.ray import RayPanel, current, distribute
    if not isinstance(panel, RayPanel):
        return distribute(panel.to_panel(), current(), device, gpu)
    if device == "cuda" and not panel.shards.on_gpus:
        raise InputError("device='cuda': the panel lies with processors of the cluster; read it with device='cuda'")
    return panel.with_gpu_options(gpu)


def read_on_cluster(data: Any, **reading: Any) -> RayPanel:
    """The panel of a path or of a Ray dataset (:func:`onesided.engines.ray.read`)."""
    with explaining_missing_ray():
        from onesided.engines.ray import read
    return read(data, **reading)


@contextmanager
def explaining_missing_ray() -> Iterator[None]:
    """Where Ray cannot be imported, say what to install."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"engine='ray' needs Ray, which cannot be imported ({error}): pip install 'onesided[cluster]', or pass "
            "engine='local'"
        ) from error


@contextmanager
def explaining_gpu_memory() -> Iterator[None]:
    """Where a GPU runs out of memory, say what to do."""
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
