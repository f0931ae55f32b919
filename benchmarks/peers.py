"""Time to a model of MovieLens-1M beside cmfrec and myFM, and the RMSE on the held-out fifth that it buys.

    python benchmarks/peers.py --data DIR

The split, cmfrec's penalties and myFM's settings are those of ``accuracy.py``; every fit is timed in turn, five times,
on all cores that a package uses (myFM uses one). Ratings are whole numbers: our panel holds them in single precision.
"""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import accuracy
import numpy as np

from onesided import OneSidedCompletion, Panel

TURNS = 5
PENALTIES = (5.0, 10.0)  # those that accuracy.py chooses


def ours(train: accuracy.Entries, test: accuracy.Entries, **settings: object) -> tuple[float, np.ndarray]:
    whole = train.to_panel()
    panel = Panel(whole.indptr, whole.columns, whole.values.astype(np.float32), whole.n_columns)
    began = perf_counter()
    model = OneSidedCompletion(random_state=0, **settings).fit(panel)
    seconds = perf_counter() - began
    return seconds, model.impute_at(panel, test.rows, test.columns)


def theirs(predict: object, *arguments: object) -> tuple[float, np.ndarray]:
    began = perf_counter()
    found = predict(*arguments)
    if isinstance(found, accuracy.Prediction):
        return found.seconds, found.values
    return perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    entries = accuracy.movielens(parser.parse_args().data)
    held_out = np.random.default_rng(0).random(len(entries)) < accuracy.TEST_SHARE
    train, test = entries[~held_out], entries[held_out]
    fixed = {"center": "both", "diagonal": "free"}
    methods = {
        "`OneSidedCompletion()`: all chosen": lambda: ours(train, test),
        "rank 10, refined": lambda: ours(train, test, rank=10, **fixed),
        "rank 10, moments alone": lambda: ours(train, test, rank=10, refine="none", **fixed),
        "cmfrec, k=10, one fit": lambda: theirs(accuracy.collective, train, test, PENALTIES),
        "myFM, rank 10, 100 draws": lambda: theirs(accuracy.by_myfm, train, test),
    }
    ours(train, test, rank=2)  # compiles
    seconds, errors = {name: [] for name in methods}, {}
    for _ in range(TURNS):
        for name, method in methods.items():
            time, values = method()
            seconds[name].append(time)
            errors[name] = float(np.sqrt(np.mean((np.clip(values, 1, 5) - test.values) ** 2)))
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "cmfrec", "myfm"))
    print(f"{platform.processor() or platform.machine()}; {packages}\n")
    print("| fit | seconds | RMSE |\n| --- | --- | --- |")
    for name in methods:
        print(f"| {name} | {np.median(seconds[name]):.1f} | {errors[name]:.4f} |")


if __name__ == "__main__":
    main()
