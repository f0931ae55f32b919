"""One row pass on a GPU: milliseconds, entries a second, and the share of what the card can do.

    python benchmarks/gpu/row_pass.py

Counted for an entry at a factor of R columns in single precision: 8 bytes of column and value; twice the 4R bytes of
its line of the factor, once for A and once for the gradient; and 4R bytes added to its line of the gradient. Factors
here fit the card's cache, so that more than the copying of memory can be reached. Operations are 4R² + 4R, those of
the two products; the tensor cores do 2.5 times as many, in half precision. Both limits are measured in the
same run: bytes a second copied, read and written, and operations a second of a large product in half precision. Times
are those of ten passes one after the other, a tenth of it, medians of 20.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from generated import generated

from onesided.kernels import gpu

REPEATS, TOGETHER = 20, 10


def milliseconds(run: Callable[[], object]) -> float:
    """The median of several runs, by the device's clock."""
    run()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(TOGETHER):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / TOGETHER)
    return statistics.median(times)


def limits() -> tuple[float, float]:
    """Bytes a second copied, read and written, and operations a second in half precision."""
    numbers, room = torch.empty(1 << 30, device="cuda"), torch.empty(1 << 30, device="cuda")
    copied = 2 * numbers.nbytes / milliseconds(lambda: room.copy_(numbers)) * 1e3
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    return copied, 2 * 8192**3 / milliseconds(lambda: square @ square) * 1e3


def main() -> None:
    copied, multiplied = limits()
    print(f"{torch.cuda.get_device_name()}: copies {copied / 1e12:.2f} TB/s, half {multiplied / 1e12:.0f} TFlop/s")
    titles = ("rows", "entries", "R", "in order", "ms", "G entries/s", "TB/s", "of copying", "TFlop/s", "of half")
    print("| " + " | ".join(titles) + " |\n" + "| --- " * len(titles) + "|")
    for name in ("movielens-32m", "rows of 10"):
        pointers, columns, values, size = generated(name)
        rows = gpu.Rows.of(pointers, columns, values, size.columns)
        center = torch.full((size.columns,), 3.5, device="cuda", dtype=torch.float64)
        e, weights = gpu.centred(rows, center, center / 3.5, torch.float32), torch.ones(size.rows, device="cuda")
        n = len(e)
        for R in (16, 32):
            X = 0.1 * torch.randn(size.columns, R, device="cuda")
            for in_order in (False, True):
                began = perf_counter()
                gpu.row_pass(rows, e, weights, X, in_order)
                torch.cuda.synchronize()
                first = perf_counter() - began
                ms = milliseconds(lambda: gpu.row_pass(rows, e, weights, X, in_order))  # noqa: B023
                moved, done = n * (8 + 12 * R) / ms * 1e3, n * (4 * R * R + 4 * R) / ms * 1e3
                line = (name, f"{n:,}", R, "yes" if in_order else "no", f"{ms:.2f}", f"{n / ms / 1e6:.1f}")
                line += (f"{moved / 1e12:.1f}", f"{moved / copied:.0%}", f"{done / 1e12:.1f}")
                print(*("", *line, f"{2.5 * done / multiplied:.0%}", f"(first {first:.1f} s)"), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
