"""Does the noise hide what it should? A test that can fail: two neighbours, all releases seen, many runs.

The adversary knows both panels and everything but the noise. It sees all answers of a run, those of every pass, and
decides by the likelihood ratio for which panel they speak; at each question it works out itself what either would have
answered. From the shares α and β of wrong decisions, one for each panel,

    μ ≥ −Φ⁻¹(ᾱ) − Φ⁻¹(β̄)

with confidence 99%, ᾱ and β̄ being upper ends of exact binomial intervals, 99.5% each: for a mechanism that is
μ-Gaussian differentially private no test has α and β with −Φ⁻¹(α) − Φ⁻¹(β) above μ. The threshold of the decision is
fixed in advance, half way, so that nothing is chosen after the fact. What it cannot see is a fit that looks at its rows
without asking: that fits depend on answers alone is tested by replaying the answers of one panel to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from onesided.arrays import Array
from onesided.errors import InputError
from onesided.panels.panel import Panel
from onesided.panels.panel_like import Draw
from onesided.privacy.central import ask_pairs
from onesided.privacy.curator import Curator, Question
from onesided.privacy.gradient import release_by_gradient
from onesided.privacy.local import noised_values
from onesided.privacy.plan import Privacy

CONFIDENCE = 0.99


@dataclass(frozen=True)
class Audit:
    """μ as claimed, and the 99% lower bound that an adversary achieved.

    >>> plan = Privacy(epsilon=4.0, delta=1e-3, bounds=(0, 1), max_entries=2, mechanism="local", any_delta=True)
    >>> neighbours = Panel.from_dense([[0.0, 0.0]]), Panel.from_dense([[1.0, 1.0]])
    >>> found = audit(plan, neighbours, runs=400, draw=np.random.default_rng(0).bytes)
    >>> round(found.claimed, 2), round(found.lower_bound, 2), found.passed
    (1.21, 0.57, True)
    """

    claimed: float
    lower_bound: float
    runs: int

    @property
    def passed(self) -> bool:
        """Whether the adversary did no better than was claimed."""
        return self.lower_bound <= self.claimed


class _Watched(Curator):
    """A curator whose answers an adversary compares with what two panels would have answered."""

    def __init__(self, rows: Panel, privacy: Privacy, panels: tuple[Panel, Panel], noise: float, draw: Draw) -> None:
        super().__init__(rows, privacy, draw, noise=noise)
        self._panels = panels
        self.evidence = 0.0  # log likelihood ratio, for the second panel

    def ask(self, what: str, question: Question, *, length: float, opposed: bool, share: float, unit: float) -> Array:
        answer = super().ask(what, question, length=length, opposed=opposed, share=share, unit=unit)
        self._weigh(answer, *(question(panel) for panel in self._panels))
        return answer

    def noised(self, what: str, *, length: float) -> Panel:
        rows = super().noised(what, length=length).to_panel()
        self._weigh(rows.values, *(panel.values for panel in self._panels))
        return rows

    def _weigh(self, answer: Array, first: Array, second: Array) -> None:
        moved = second - first
        deviation = self.releases[-1].deviation
        self.evidence += float(np.vdot(answer - first - moved / 2, moved)) / deviation**2


def audit(
    privacy: Privacy,
    panels: tuple[Panel, Panel],
    *,
    rank: int = 2,
    runs: int = 2000,
    noise: float = 1.0,
    draw: Draw = os.urandom,
) -> Audit:
    """Run the mechanism of a plan on two neighbours in turn, and see how well they can be told apart.

    ``noise`` multiplies the deviation of all noise that is drawn, against what is claimed: below 1 it breaks the
    mechanism on purpose, to see that the audit notices. The bound is one with 99% confidence: of a hundred audits of a
    mechanism that spends all it claims, one is expected to fail.

    >>> plan = Privacy(epsilon=4.0, delta=1e-3, bounds=(0, 1), max_entries=2, mechanism="local", any_delta=True)
    >>> neighbours = Panel.from_dense([[0.0, 0.0]]), Panel.from_dense([[1.0, 1.0]])
    >>> draw = np.random.default_rng(0).bytes  # instead of the secure source, so that this ends alike each time
    >>> [audit(plan, neighbours, runs=400, noise=noise, draw=draw).passed for noise in (1.0, 0.25)]
    [True, False]
    """
    most_told = _lower_bound([0, 0], runs) if runs >= 2 else 0.0
    if most_told <= privacy.mu:
        raise InputError(
            f"runs={runs}: even if all decisions were right, that would show no more than μ = {most_told:.3g}, and "
            f"{privacy.mu:.3g} is claimed; make more runs, or audit a smaller ε"
        )
    if panels[0].n_columns < 2:
        raise InputError("the panels have one column: a private fit needs two, as pairs are what is learnt from")
    same = all(np.array_equal(getattr(panels[0], name), getattr(panels[1], name)) for name in ("indptr", "columns"))
    if privacy.mechanism == "local" and not same:
        raise InputError(
            "the panels differ in which entries they have, and the local mechanism protects values alone: give panels "
            "of the same pattern"
        )
    if panels[0].n_columns != panels[1].n_columns or any(np.any(one.row_counts > privacy.most) for one in panels):
        raise InputError(
            f"the panels to tell apart must have the same columns and at most {privacy.most} entries in a row: which "
            "entries of longer rows are used is drawn anew in each fit, and is not audited"
        )
    first, second = (Curator.of(privacy.admit(panel), privacy).rows.to_panel() for panel in panels)
    pair = (first, second)
    wrong = [0, 0]
    for run in range(runs):
        which = run % 2
        watched = _Watched(pair[which], privacy, pair, noise, draw)
        RELEASES[privacy.mechanism](watched, rank, np.random.default_rng(run))
        wrong[which] += (watched.evidence > 0) != bool(which)
    return Audit(privacy.mu, _lower_bound(wrong, runs), runs)


def _lower_bound(wrong: list[int], runs: int) -> float:
    """On μ, from the wrong decisions for either panel."""
    tried = (runs - runs // 2, runs // 2)
    quantile = 1 - (1 - CONFIDENCE) / 2
    upper = [
        float(beta.ppf(quantile, errors + 1, number - errors)) if errors < number else 1.0
        for errors, number in zip(wrong, tried, strict=True)
    ]
    return max(-float(ndtri(upper[0])) - float(ndtri(upper[1])), 0.0)


RELEASES: dict[str, Callable[[Curator, int, np.random.Generator], Any]] = {
    "gradient": lambda curator, rank, rng: release_by_gradient(curator, rank, "both", rng),
    "central": lambda curator, rank, rng: ask_pairs(curator),  # what follows sees nothing else
    "local": lambda curator, rank, rng: noised_values(curator),
}
