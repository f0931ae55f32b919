"""Noise on every value before it leaves its owner: the paper's mechanism, made honest.

**Who is trusted.** Nobody with values. Which entries a row has is known to the one who fits and is not protected.

**Neighbours.** Panels of the same pattern that differ in the values of one row.

**What is released.** Every observed value, of at most k in a row, plus N(0, σ²).

**Proof.** Two rows of the same m ≤ k entries with values in [a, b] differ by at most b − a in each: by (b − a)√k in
Euclidean norm. With σ = (b − a)√k/μ the noisy values are μ-Gaussian differentially private, and what is fitted depends
on them and the pattern alone, selection of the rank and all. ∎

The noise has mean zero and is independent of everything else, so that the means and off-diagonal products of a panel
keep their expectation; its known variance σ² is taken off the diagonal of T and off the noise variance of columns. The
price is high, as nothing averages the noise out before it is added: at ε = 1, δ = 10⁻⁶ and 20 entries in a row it is 19
times the width of the bounds.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from onesided.panel import Panel
from onesided.privacy.curator import Account, Release, cut_rows
from onesided.privacy.noise import Draw, whole_gaussian
from onesided.privacy.plan import Privacy

Array = npt.NDArray[Any]

FINE = 2.0**-30  # of the bounds' width: what values are rounded to


def noised_values(
    panel: Panel, privacy: Privacy, rng: np.random.Generator, draw: Draw = os.urandom
) -> tuple[Panel, Account]:
    """An admitted panel with noise on its values, and what that has cost."""
    kept = cut_rows(panel, privacy.most, rng)
    width = 2 * privacy.half
    sensitivity = width * float(np.sqrt(privacy.most))
    deviation = sensitivity / privacy.mu
    unit = width * FINE
    low = privacy.middle - privacy.half
    places = np.rint((np.clip(kept.values.astype(np.float64), low, low + width) - low) / unit)
    noisy = low + unit * (places + whole_gaussian(kept.n_entries, deviation / unit, draw))
    ids = kept.column_ids if kept.has_column_ids else None
    release = Release("values", kept.n_entries, sensitivity, deviation)
    return (
        Panel(kept.indptr, kept.columns, noisy, kept.n_columns, column_ids=ids),
        Account("local", None, privacy.epsilon, privacy.delta, (release,)),
    )
