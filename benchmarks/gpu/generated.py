"""Panels as large and as uneven as real ones, with planted structure, drawn on the GPU.

A row's number of entries is lognormal; columns are popular by a power law. Values are ratings, in steps of a half:

    v_uj = 3.5 + c_j + a_u + x_jᵀz_u + ε,   c ~ N(0, 0.4²),  a ~ N(0, 0.4²),  x ~ N(0, 0.3² / 2 I₁₀),  z ~ N(0, I₁₀),  ε ~ N(0, 0.8²)
"""  # noqa: E501

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from onesided import Panel

RANK = 10
PART = 1 << 26  # entries drawn at a time


class Size(NamedTuple):
    rows: int
    columns: int
    entries: int
    least: int  # entries of a row
    most: int
    spread: float  # of the logarithm of a row's entries
    offset: float  # of popularity: column j has (j + offset) ** -power
    power: float


SIZES = {
    "movielens-32m": Size(200_948, 87_585, 32_000_000, 20, 30_000, 1.25, 260.0, 1.35),
    "amazon-2023": Size(54_000_000, 48_000_000, 571_000_000, 1, 20_000, 1.5, 500.0, 1.0),
    "rows of 10": Size(3_000_000, 100_000, 30_000_000, 10, 10, 0.0, 300.0, 1.0),
}


def generated(name: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Size]:
    """Pointers, columns and values on the GPU; columns ascend within a row."""
    size = SIZES[name]
    source = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=source)

    activity = torch.exp(size.spread * normal(size.rows))
    wanted = size.entries
    for _ in range(8):  # what is cut off below and above is made up for
        lengths = (activity * (wanted / activity.sum())).clamp(size.least, size.most).floor().to(torch.int64)
        wanted = int(wanted * size.entries / int(lengths.sum()))
    popularity = (torch.arange(size.columns, device="cuda", dtype=torch.float64) + size.offset) ** -size.power
    popularity = torch.cumsum(popularity / popularity.sum(), 0)
    relabel = torch.randperm(size.columns, device="cuda", generator=source)
    rows = torch.repeat_interleave(torch.arange(size.rows, device="cuda"), lengths)
    keys = []
    for part in rows.split(PART):
        u = torch.rand(len(part), device="cuda", generator=source, dtype=torch.float64)
        column = relabel[torch.searchsorted(popularity, u).clamp(max=size.columns - 1)]
        keys.append(torch.unique(part * size.columns + column))
    del rows
    keys = torch.unique(torch.cat(keys))  # a row may be in two parts
    columns = (keys % size.columns).to(torch.int32)
    rows = keys.div_(size.columns, rounding_mode="floor")
    pointers = torch.searchsorted(rows, torch.arange(size.rows + 1, device="cuda"))
    X, Z = 0.3 / 2**0.5 * normal(size.columns, RANK), normal(size.rows, RANK)
    c, a = 0.4 * normal(size.columns), 0.4 * normal(size.rows)
    values = torch.empty(len(columns), device="cuda")
    for start in range(0, len(columns), PART):
        at = slice(start, start + PART)
        u, j = rows[at], columns[at]
        v = 3.5 + c[j] + a[u] + (X[j] * Z[u]).sum(1) + 0.8 * normal(len(j))
        values[at] = (2 * v).round().clamp(1, 10) / 2
    return pointers, columns, values, size


def generated_panel(name: str, seed: int = 0) -> Panel:
    """The same as a panel in memory of the host."""
    pointers, columns, values, size = generated(name, seed)
    panel = Panel(pointers.cpu().numpy(), columns.cpu().numpy(), values.cpu().numpy(), size.columns)
    del pointers, columns, values
    torch.cuda.empty_cache()
    return panel


def longest(panel: Panel) -> str:
    """What is uneven about it, in words."""
    return (
        f"{panel.n_rows:,} × {panel.n_columns:,}, {panel.n_entries:,} entries; longest row {panel.row_counts.max():,}, "
        f"longest column {int(np.bincount(panel.columns[: 1 << 28]).max()):,}"
    )
