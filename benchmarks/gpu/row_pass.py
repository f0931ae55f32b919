"""One row pass on a GPU: milliseconds, entries a second, and the share of what the card can do.

    python benchmarks/gpu/row_pass.py

Counted for an entry at a factor of R columns (single precision): 8 bytes of column and value and, twice, the 4R bytes of
its line of the factor, of which the second reading and often the first are from cache; 4R bytes added to its line of the
gradient. Operations are 4R² + 4R, those of the two products, whatever the kernel spends; in bfloat16 each counts three
times. The limits are measured in the same run: bytes a second copied, and operations a second of a large product in
bfloat16.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from generated import generated

from onesided.kernels import gpu

REPEATS = 30


def milliseconds(run: Callable[[], object]) -> float:
    """The median of several runs, by the device's clock."""
    for _ in range(3):
        run()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def limits() -> tuple[float, float]:
    """Bytes a second copied, read and written, and operations a second in bfloat16."""
    a = torch.empty(1 << 30, device="cuda")
    b = torch.empty_like(a)
    copied = 2 * a.nbytes / milliseconds(lambda: b.copy_(a)) * 1e3
    del a, b
    m = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return copied, 2 * 8192**3 / milliseconds(lambda: m @ m) * 1e3


def main() -> None:
    copied, multiplied = limits()
    print(f"{torch.cuda.get_device_name()}: copies {copied / 1e12:.2f} TB/s, bfloat16 {multiplied / 1e12:.0f} TFlop/s")
    print(
        "| rows | entries | R | in order | ms | G entries/s | TB/s counted | of copying | TFlop/s, useful | of bfloat16 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in ("movielens-32m", "rows of 10"):
        pointers, columns, values, size = generated(name)
        rows = gpu.Rows.of(pointers, columns, values, size.columns)
        e, weights = values - 3.5, torch.ones(size.rows, device="cuda")
        e = gpu.centred(rows, torch.full((size.columns,), 3.5, device="cuda", dtype=torch.float64), 1.0, torch.float32)
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
                print(
                    f"| {name} | {n:,} | {R} | {'yes' if in_order else 'no'} | {ms:.2f} | {n / ms / 1e6:.1f} | "
                    f"{moved / 1e12:.1f} | {moved / copied:.0%} | {done / 1e12:.1f} | {3 * done / multiplied:.0%} | "
                    f"(first {first:.1f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
