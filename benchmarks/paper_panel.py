"""Relative Frobenius error of the low-rank part of T on the paper's synthetic panel, mean of 5 seeds.

    python benchmarks/paper_panel.py

Minutes on two cores. Prints a Markdown table with the seconds of one fit beside each error.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from onesided import HajekGD, OneSidedCompletion, synthetic

N, D, RANK, SEEDS = 10_000, 1_000, 10, 5
PER_ROW = (2, 5, 10)
ESTIMATORS = {
    "`HajekGD`, the paper's settings": lambda seed: HajekGD(random_state=seed),
    "moments alone, rank 10": lambda seed: OneSidedCompletion(
        rank=10, center="none", diagonal="fit", refine="none", random_state=seed
    ),
    "moments alone, rank 1": lambda seed: OneSidedCompletion(
        rank=1, center="none", diagonal="fit", refine="none", random_state=seed
    ),
    "`OneSidedCompletion()`": lambda seed: OneSidedCompletion(random_state=seed),
}


def main() -> None:
    print(f"| | {' | '.join(f'C = {c}' for c in PER_ROW)} |")
    print("| --- |" + " --- |" * len(PER_ROW))
    truths = [synthetic.low_rank_gaussian(N, D, RANK, rng=seed) for seed in range(SEEDS)]
    for name, make in ESTIMATORS.items():
        cells = []
        for per_row in PER_ROW:
            errors, seconds = [], []
            for seed, truth in enumerate(truths):
                panel = synthetic.sample_bernoulli(truth, per_row / D, rng=seed)
                began = perf_counter()
                model = make(seed).fit(panel)
                seconds.append(perf_counter() - began)
                T = truth.second_moment()
                errors.append(np.linalg.norm(model.second_moment_.low_rank.to_dense() - T) / np.linalg.norm(T))
            cells.append(f"{np.mean(errors):.3f} ({np.median(seconds):.2g} s)")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
