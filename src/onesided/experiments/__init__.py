"""Every experiment of the paper, one small file each, by name.

An experiment states its cells, what is measured in each, what the paper printed and what is expected; ``experiment``
runs them and goes on where it was stopped, ``page`` writes the records down. Methods live in ``estimators`` and
``baselines``. The room may import from every other but ``report`` and ``cli``. ``NOT_EXPERIMENTS`` are the tables,
figures and statements of the paper that measure nothing.
"""

from __future__ import annotations

from importlib import import_module

from onesided.errors import InputError
from onesided.experiments.experiment import Experiment

# In the order of the paper; loaded when asked for.
NAMES = (
    "claim-2-1",
    "figure-1",
    "theorem-3-4",
    "figure-2",
    "table-2",
    "figure-4",
    "figure-5",
    "table-3",
    "penalty",
    "figure-6",
    "figure-7",
    "nuclear-norm",
    "table-4",
    "table-5",
    "target-rank",
    "row-recovery",
    "figure-8",
    "privacy",
)

NOT_EXPERIMENTS = {
    "Table 1": "compares results of other papers",
    "Figure 3": "illustrates the algorithm",
    "Lemmas 4.1 and 4.2": "are proved, not measured: Lemma 4.1 bounds what figures 1 and 2 measure",
}


def experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> experiment("claim-2-1").title
    'Claim 2.1: the probability that a pair is in Ω'
    """
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}; choose one of {', '.join(NAMES)}, or all")
    found: Experiment = import_module(f"onesided.experiments.{name.replace('-', '_')}").EXPERIMENT
    return found
