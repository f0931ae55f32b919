"""Whole fits on a GPU, from arrays in memory of the host.

    python benchmarks/gpu/fits.py movielens-32m
    python benchmarks/gpu/fits.py amazon-2023
    python benchmarks/gpu/fits.py agree ratings.dat        the same on both, MovieLens-1M

Each fit is made twice: the first compiles kernels. A hundredth of the rows is held out of the fit and scored: minus the
mean squared error of predicted products of two entries of a row, beside that of column means alone and of a constant.
"""

from __future__ import annotations

import sys
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import torch
from generated import generated_panel, longest

from onesided import OneSidedCompletion, Panel
from onesided.engines.placement import placed
from onesided.fitting.objective.rows import mean_squared_pair_error


def timed(panel: Panel, label: str, **options: Any) -> OneSidedCompletion:
    """A fit, twice, and what it took."""
    for run in ("first", "again"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        began = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = OneSidedCompletion(device="cuda", random_state=0, **options).fit(panel)
        seconds = perf_counter() - began
        refined = f" + {model.refinement_.passes}" if model.refinement_ else ""
        print(
            f"| {label} | {run} | {seconds:.2f} s | rank {model.rank_} | {model.solve_.passes}{refined} passes, "
            f"{model.solve_.status} | {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB |",
            flush=True,
        )
    return model


def held_out(panel: Panel, model: OneSidedCompletion, share: np.ndarray) -> None:
    """The held-out row score beside trivial predictors."""
    rows = placed(panel.with_row_weights(share.astype(float)).take_rows(np.flatnonzero(share)), "cuda")
    mean = model.mean_
    constant = np.full((panel.n_columns, 1), float(panel.values[: 1 << 24].mean()))
    factors = {"model": model.second_moment_.low_rank.factor, "column means": mean[:, None], "a constant": constant}
    for name, factor in factors.items():
        print(f"held-out row score, {name}: {-mean_squared_pair_error(rows, factor):.5f}", flush=True)


def without_some(panel: Panel) -> tuple[Panel, np.ndarray]:
    held = np.random.default_rng(0).random(panel.n_rows) < 0.01
    return panel.with_row_weights(np.where(held, 0.0, 1.0)), held


def agree(path: str) -> None:
    with open(path, encoding="ascii") as file:
        table = np.array(file.read().replace("::", " ").split(), dtype=np.int64).reshape(-1, 4)
    for dtype in (np.float64, np.float32):
        panel = Panel.from_arrays(table[:, 0], table[:, 1], table[:, 2].astype(dtype))
        for options in ({"rank": 10, "refine": "none"}, {"rank": 10}):
            factors = {}
            for device, in_order in (("cpu", False), ("cuda", False), ("cuda", True), ("cuda", True)):
                began = perf_counter()
                model = OneSidedCompletion(device=device, deterministic=in_order, random_state=0, **options).fit(panel)
                X, key = model.factor_, f"{device} {in_order}"
                if key in factors:
                    print(f"in order, again: {'the same bits' if np.array_equal(factors[key], X) else 'OTHER bits'}")
                factors[key] = X
                both = np.column_stack([factors["cpu False"], X])
                G, r = both.T @ both, X.shape[1]
                size = np.sum(G[:r, :r] ** 2)
                apart = max(size + np.sum(G[r:, r:] ** 2) - 2 * np.sum(G[:r, r:] ** 2), 0.0)
                print(
                    f"{np.dtype(dtype)} {options} {key}: {perf_counter() - began:.2f} s, {model.solve_.passes} passes, "
                    f"{model.center_}, {model.diagonal_}, {model.refinement_}, "
                    f"XXᵀ apart from the processor's by {np.sqrt(apart / size):.1e}",
                    flush=True,
                )


def main() -> None:
    name = sys.argv[1]
    if name == "agree":
        agree(sys.argv[2])
        return
    panel = generated_panel(name)
    print(longest(panel), flush=True)
    panel, held = without_some(panel)
    small = name != "amazon-2023"
    model = timed(panel, "moments", rank=10, center="both", diagonal="free", refine="none")
    held_out(panel, model, held)
    if small:
        model = timed(panel, "refined", rank=10, center="both", diagonal="free")
        held_out(panel, model, held)
        timed(panel, "all chosen")


if __name__ == "__main__":
    main()
