"""Passes on a device, a GPU: rows are brought there once, and everything as large as a factor stays there.

Rows lie on the device in blocks. Where they do not fit beside what a fit needs, they stay in memory of the host from
which the device can read, and each pass brings one block while it works on the one before. Values are held in half or
single precision where that loses nothing; passes work in the precision of the panel's values.

Bytes on the device at most, for n rows of N entries in all, d columns and rank r; p is the size of a value (4 or 8) and
R the least power of two above r, at least 16:

    rows       N (12 + 2p) + 32 n + 16 d     columns, values as they are and centred, their order by column, pointers
    a pass     64 min(N, 2²⁸)                what is on the way of a block of rows
    state      d (120 r + 2Rp + 300)         solver: X, gradients, direction in doubles, eight pairs of changes
    in order   N R p                         with ``deterministic=True``: the gradient of every entry

What is refused:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
PyTorch is not installed                               device='cuda' needs PyTorch …: pip install 'onesided[gpu]'
no GPU that PyTorch can use                            device='cuda': PyTorch 2.13 finds no GPU …
a GPU that is not there                                device='cuda:3': there is 1 GPU, cuda:0 …
a rank of 128 or more                                  rank=300: on a device at most 127 …
a factor that does not fit                             a fit of rank 10 to 48,000,000 columns needs …
memory that runs out nevertheless                      the GPU ran out of memory …
=====================================================  ========================================================
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from onesided.arrays import Array, host
from onesided.engines.cpu import SAMPLED_ENTRIES, drawn_weights
from onesided.engines.engine import Engine, means_from, row_prior
from onesided.engines.placement import PairPass, Place
from onesided.engines.threads import cut
from onesided.errors import InputError, counted
from onesided.kernels import gpu, gpu_pairs
from onesided.kernels.bundles import Columns, Prior, Sums
from onesided.kernels.reference import to_half
from onesided.memory import memory_in_words
from onesided.panels.panel import Panel
from onesided.panels.panel_like import PanelLike

BLOCK_ENTRIES = 1 << 28  # of rows that lie together: places in them are 32-bit numbers
BLOCK_ROWS = 1 << 25
STREAMED_ENTRIES = 1 << 25  # of a block that is brought again in each pass
SPARE = 0.9  # of the memory that is free: the rest is for what torch holds back
DRAWN_ON_HOST = 1 << 24
WEIGHTS_KEPT = 2  # sets of row weights that stay on the device


def find_device(name: str) -> torch.device:
    """The device of a name, "cuda" or "cuda:1", if it is there."""
    if not torch.cuda.is_available():
        raise InputError(
            f"device={name!r}: PyTorch {torch.__version__} finds no GPU; install a build of PyTorch for CUDA and a "
            "driver, or pass device='cpu'"
        )
    index = int(name.partition(":")[2] or torch.cuda.current_device())
    there = torch.cuda.device_count()
    if index >= there:
        listed = ", ".join(f"cuda:{k}" for k in range(there))
        found = f"there {'is' if there == 1 else 'are'} {counted(there, 'GPU')}, {listed}"
        raise InputError(f"device={name!r}: {found}; name one that is there")
    return torch.device("cuda", index)


def bytes_of_rows(n_rows: int, n_columns: int, n_entries: int, precision: int) -> int:
    """What a panel takes on a device.

    >>> bytes_of_rows(54_000_000, 48_000_000, 571_000_000, precision=4) // 2**30
    28
    """
    kept = n_entries * (12 + 2 * precision) + 32 * n_rows + 16 * n_columns
    return kept + 64 * min(n_entries, BLOCK_ENTRIES)


def bytes_of_state(n_columns: int, rank: int, precision: int) -> int:
    """What a fit takes there beside the panel.

    >>> bytes_of_state(48_000_000, 10, precision=4) // 2**30
    72
    """
    return n_columns * (120 * rank + 2 * gpu.width_for(rank + 1) * precision + 300)


def _free(device: torch.device) -> int | None:
    """Bytes that can be had on a device, those that torch holds back for itself included; None where it is no GPU."""
    if device.type != "cuda":
        return None
    held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(SPARE * (torch.cuda.mem_get_info(device)[0] + held_back))


class GpuPlace(Place):
    """A GPU with the rows of a panel: in blocks on the device, or streamed to it."""

    def __init__(
        self,
        panel: Panel,
        device: torch.device,
        *,
        rank: int = 10,
        deterministic: bool = False,
        memory: int | None = None,
    ) -> None:
        self.device, self.rank, self.deterministic = device, rank, deterministic
        self.dtype = torch.float32 if panel.values.dtype == np.float32 else torch.float64
        precision = panel.values.dtype.itemsize
        if rank >= gpu.WIDEST:
            raise InputError(f"rank={rank}: on a device at most {gpu.WIDEST - 1}; choose a lower one, or device='cpu'")
        free = _free(device) if memory is None else memory
        self.needed = bytes_of_rows(*panel.shape, panel.n_entries, precision)
        state = bytes_of_state(panel.n_columns, rank, precision)
        if deterministic:
            self.needed += panel.n_entries * gpu.width_for(rank + 1) * precision
        if free is not None and state > free:
            raise InputError(
                f"a fit of rank {rank} to {panel.n_columns:,} columns needs {memory_in_words(state)} on the device "
                f"beside the panel, and {memory_in_words(free)} are free; choose a lower rank, or device='cpu'"
            )
        self.streamed = free is not None and self.needed + state > free
        entries = STREAMED_ENTRIES if self.streamed else BLOCK_ENTRIES
        pieces = max(-(-panel.n_entries // entries), -(-panel.n_rows // BLOCK_ROWS), 1)
        self.edges = cut(panel.indptr + np.arange(panel.n_rows + 1), -(-(panel.n_entries + panel.n_rows) // pieces))
        self.largest_value = 0.0
        self._blocks = [self._brought(panel, first, last) for first, last in self.edges]
        self._kept: dict[int, tuple[Array, list[Tensor]]] = {}

    def _brought(self, panel: Panel, first: int, last: int) -> gpu.Rows:
        start, stop = int(panel.indptr[first]), int(panel.indptr[last])
        indptr = self.tensor(panel.indptr[first : last + 1]) - start
        columns, values = self.tensor(panel.columns[start:stop]), self.tensor(panel.values[start:stop])
        if len(values):
            self.largest_value = max(self.largest_value, float(values.abs().max()))
        rows = gpu.Rows.of(indptr, columns, _exact(values), panel.n_columns)
        return rows.prepared().moved(_pinned) if self.streamed else rows

    def tensor(self, array: Array) -> Tensor:
        """An array of the host on the device."""
        with warnings.catch_warnings():  # panels cannot be written to, and nothing is
            warnings.filterwarnings("ignore", message=".*not writable")
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def for_rows(self, panel: Panel) -> GpuPlace:
        return GpuPlace(panel, self.device, rank=self.rank, deterministic=self.deterministic)

    def pair_pass(self, indptr: Array, columns: Array, target: Array) -> PairPass:
        pairs = gpu_pairs.Pairs.of(self.tensor(indptr), self.tensor(columns), self.tensor(target))

        def run(diagonal_weight: float, X: Tensor) -> tuple[float, Tensor]:
            loss, gradient = gpu_pairs.pair_pass(pairs, diagonal_weight, X)
            return float(loss), gradient

        return run

    def pair_moments(self, panel: Panel) -> tuple[Tensor, ...] | None:
        """Those of all pairs, on the device, where all rows lie together."""
        return self.engine(panel, None).pair_moments() if len(self.edges) == 1 else None

    def engine(self, panel: PanelLike, weights: Array | None) -> GpuEngine:
        return GpuEngine(self, panel.to_panel(), panel.row_weights if weights is None else weights)

    def weights(self, weights: Array) -> list[Tensor]:
        """Row weights on the device, block by block in the order of its rows; the last few are kept."""
        if id(weights) not in self._kept:
            while len(self._kept) >= WEIGHTS_KEPT:
                self._kept.pop(next(iter(self._kept)))
            blocks = [
                self.tensor(weights[first:last])[rows.order.to(self.device)]
                for (first, last), rows in zip(self.edges, self._blocks, strict=True)
            ]
            self._kept[id(weights)] = weights, blocks
        return self._kept[id(weights)][1]

    def blocks(self) -> Iterator[gpu.Rows]:
        """The blocks on the device; of streamed ones, the next is brought while one is worked on."""
        if not self.streamed or self.device.type != "cuda":
            for rows in self._blocks:
                yield rows.moved(lambda one: one.to(self.device)) if self.streamed else rows
            return
        beside, present = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        coming, worked = deque([self._coming(self._blocks[0], beside)]), deque[torch.cuda.Event]()
        for k in range(len(self._blocks)):
            present.wait_stream(beside)
            rows = coming.popleft()
            if len(worked) > 1:
                worked.popleft().synchronize()  # no more than three blocks are on the device
            if k + 1 < len(self._blocks):
                coming.append(self._coming(self._blocks[k + 1], beside))
            yield rows
            worked.append(present.record_event())

    def _coming(self, rows: gpu.Rows, beside: torch.cuda.Stream) -> gpu.Rows:
        present = torch.cuda.current_stream(self.device)

        def bring(one: Tensor) -> Tensor:
            there = one.to(self.device, non_blocking=True)
            there.record_stream(present)  # its memory is not given away while that one works on it
            return there

        with torch.cuda.stream(beside):
            return rows.moved(bring)


def _exact(values: Tensor) -> Tensor:
    """Values in the smallest type that holds them as they are."""
    for dtype in (torch.float16, torch.float32):
        small = values.to(dtype)
        if torch.equal(small.to(values.dtype), values):
            return small
    return values


def _pinned(one: Tensor) -> Tensor:
    there = one.cpu()
    return there.pin_memory() if one.is_cuda else there


class GpuEngine(Engine):
    """The engine of a panel on a device; what its passes compute is said in :class:`Engine`."""

    xp: ClassVar[Any] = torch
    chunk: ClassVar[int] = gpu.CHUNK

    def __init__(self, place: GpuPlace, panel: Panel, weights: Array, only_weighed: bool = False) -> None:
        self.place, self.device_key, self.n_columns, self.n_rows = place, place.device, panel.n_columns, panel.n_rows
        self.dtype = panel.values.dtype
        self._panel, self._all_weights, self._some = panel, weights, None
        self._weights = place.weights(weights)
        if only_weighed and not place.streamed:
            counted = [block > 0 for block in self._weights]
            self._some = [rows.taken(mask) for rows, mask in zip(place.blocks(), counted, strict=True)]
            self._weights = [block[mask] for block, mask in zip(self._weights, counted, strict=True)]
        self._centred: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor, Tensor]] = {}

    def array(self, values: Any) -> Tensor:
        if isinstance(values, Tensor):
            return values
        return self.place.tensor(np.asarray(values)).to(torch.float64)

    def normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        if np.prod(shape) <= DRAWN_ON_HOST:  # the numbers that any other engine has
            return self.array(rng.standard_normal(shape))
        source = torch.Generator(self.place.device).manual_seed(int(rng.integers(2**31)))
        return torch.randn(shape, dtype=torch.float64, device=self.place.device, generator=source)

    def largest_value(self) -> float:
        return self.place.largest_value

    def _blocks(self) -> Iterator[tuple[int, gpu.Rows, Tensor]]:
        blocks = self.place.blocks() if self._some is None else self._some
        for k, (rows, weights) in enumerate(zip(blocks, self._weights, strict=True)):
            yield k, rows, weights

    def _around(self, k: int, rows: gpu.Rows, center: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        """Centred values of a block, kept until others are needed."""
        before = self._centred.get((k, dtype))
        if before is not None and before[0] is center and before[1] is scale:
            return before[2]
        self._centred.pop((k, dtype), None)
        e = gpu.centred(rows, center, scale, dtype)
        if not self.place.streamed:
            self._centred[k, dtype] = center, scale, e
        return e

    def column_means(self) -> Tensor:
        """From zero, in two passes."""
        return means_from(self, torch.zeros(self.n_columns, dtype=torch.float64, device=self.place.device), passes=2)

    def column_sums(self, center: Tensor, scale: Tensor) -> tuple[Tensor, Array]:
        sums = torch.zeros((7, self.n_columns), dtype=torch.float64, device=self.place.device)
        products = np.zeros(3)
        for _, rows, weights in self._blocks():
            e = gpu.centred(rows, center, scale, torch.float64)
            of_columns, of_rows = gpu.column_sums(rows, e, weights)
            sums += of_columns
            products += host(of_rows)
        return sums, products

    def row_pass(
        self, X: Tensor, center: Tensor, scale: Tensor, effect: float, exact: bool = False
    ) -> tuple[float, Tensor]:
        dtype, first = torch.float64 if exact else self.place.dtype, int(effect != 0)
        rank = first + X.shape[1]
        wide = torch.zeros((len(X), gpu.width_for(rank)), dtype=dtype, device=X.device)
        wide[:, :first], wide[:, first:rank] = effect, X
        loss, gradient = 0.0, None
        for k, rows, weights in self._blocks():
            e = self._around(k, rows, center, scale, dtype)
            part, slope = gpu.row_pass(rows, e, weights.to(dtype), wide, self.place.deterministic)
            loss, slope = loss + part, slope[:, first:rank].to(torch.float64)
            gradient = slope if gradient is None else gradient.add_(slope)
        return float(loss), gradient

    def diagonal_terms(
        self, X: Tensor, counts: Tensor, squares: Tensor, effect: float, ridge: float, gradient: Tensor
    ) -> float:
        return float(gpu.diagonal_terms(X, counts, squares, effect, ridge, gradient))

    def curvature(self, X: Tensor) -> Tensor:
        parts = (gpu.curvature(rows, weights, X.to(self.place.dtype)) for _, rows, weights in self._blocks())
        return sum(part.to(torch.float64) for part in parts)

    def gram_product(self, V: Tensor, center: Tensor, scale: Tensor, effect: float) -> Tensor:
        V = V.to(self.place.dtype)
        parts = (
            gpu.gram_product(rows, self._around(k, rows, center, scale, self.place.dtype), weights, effect, V)
            for k, rows, weights in self._blocks()
        )
        return sum(part.to(torch.float64) for part in parts)

    def drawn(self) -> tuple[Engine, float]:
        """Those that the processor would draw."""
        weights, share = drawn_weights(self._panel, self._all_weights, SAMPLED_ENTRIES)
        if weights is None:
            return self, 1.0
        return GpuEngine(self.place, self._panel, weights, only_weighed=True), share

    def linked_columns(self) -> Array:
        """For each column, the smallest of those that chains of rows link it to: until nothing moves."""
        above = torch.arange(self.n_columns, dtype=torch.int32, device=self.place.device)
        while True:
            before = above
            for _, rows, weights in self._blocks():
                above = gpu.linked(rows, weights, above)
            if torch.equal(above, before):
                return host(above).astype(np.int64)

    def prepare_columns(
        self,
        mean: Tensor,
        loadings: Tensor,
        noise: Tensor,
        spread: Tensor | None,
        unit: Tensor | None = None,
        row_mean: Array | None = None,
        row_covariance: Array | None = None,
        exact: bool = False,
    ) -> Columns:
        k, dtype = loadings.shape[1], torch.float64 if exact else self.place.dtype
        prior, floor = row_prior(k, row_mean, row_covariance)
        information = torch.zeros((0, 0), dtype=dtype, device=loadings.device)
        if spread is not None:
            information = gpu.column_information(loadings, noise, spread).to(dtype)
        halves = self.array(to_half(prior)).to(dtype)
        unit = torch.ones_like(mean) if unit is None else unit
        return Columns(unit, mean, loadings.to(dtype), 1 / noise, information, halves, floor, k)

    def posterior_sums(self, columns: Columns) -> Sums:
        sums: Sums | None = None
        for k, rows, weights in self._blocks():
            e = self._around(k, rows, columns.center, columns.unit, columns.loadings.dtype)
            block = gpu.posterior_sums(rows, e, weights, columns)
            sums = block if sums is None else Sums(*(a + b for a, b in zip(sums, block, strict=True)))
        assert sums is not None  # there is a block, if an empty one
        return sums._replace(total=host(sums.total))

    def column_posterior(
        self, sums: Sums, fixed: Tensor, free: Array, precision: Tensor, prior: Prior
    ) -> tuple[Tensor, Tensor, Tensor]:
        freed, prior = self.place.tensor(free), prior._replace(precision=self.array(prior.precision))
        spread, residual = torch.empty_like(sums.second), torch.empty_like(sums.squares)
        step = max(1, gpu.CHUNK // (8 * (len(free) + 1) ** 2))
        for start in range(0, len(fixed), step):
            at = slice(start, start + step)
            fixed[at], spread[at], residual[at] = gpu.column_posterior(
                sums.taken(at), fixed[at], freed, precision[at], prior.taken(at)
            )
        return fixed, spread, residual

    def row_posteriors(self, columns: Columns) -> Iterator[Array]:
        """Halves of (S, z) of all rows, on the host: a block at a time."""
        for _, rows, _ in self._blocks():
            e = gpu.centred(rows, columns.center, columns.unit, columns.loadings.dtype)
            halves = gpu.row_posterior(rows, e, columns)
            in_order = torch.empty_like(halves)
            in_order[rows.order] = halves
            yield host(in_order)

    def pair_moments(self) -> tuple[Tensor, ...]:
        """As :class:`onesided.pairs.moments.PairMoments` has them, from the pointers on, of rows in one block."""
        ((_, rows, weights),) = self._blocks()
        alike = bool(((weights == 0) | (weights == 1)).all())
        some = rows.taken(weights > 0) if alike else rows
        weighed = None if alike else weights
        sums = gpu_pairs.pair_moments(some.indptr, some.columns, some.values, weighed, self.n_columns)
        return tuple(field for field in sums if field is not None)

    def leave_one_out(self, columns: Columns) -> Tensor:
        scores = torch.zeros((self.n_rows, 5), dtype=torch.float64, device=self.place.device)
        for k, rows, weights in self._blocks():
            counted = weights > 0
            some = rows if bool(counted.all()) else rows.taken(counted)
            e = gpu.centred(some, columns.center, columns.unit, columns.loadings.dtype)
            scores[self.place.edges[k][0] + some.order] = gpu.leave_one_out(some, e, columns)
        return scores[self.place.tensor(self._all_weights > 0)]
