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

import numpy as np

from onesided.panel import Panel
from onesided.privacy.curator import GRID, Curator


def noised_values(curator: Curator) -> Panel:
    """The panel with noise on its values, in the units of the data."""
    rows, plan = curator.rows, curator.privacy
    longest = max(1, int(rows.row_counts.max(initial=0)))  # k or less: the pattern is known
    noisy = curator.ask(
        "values",
        lambda panel: panel.values,
        length=2 * float(np.sqrt(longest)),
        opposed=False,
        share=1.0,
        unit=GRID,
    )
    ids = rows.column_ids if rows.has_column_ids else None
    return Panel(rows.indptr, rows.columns, plan.middle + plan.half * noisy, rows.n_columns, column_ids=ids)


def noise_deviation(curator: Curator) -> float:
    """σ, in the units of the data."""
    return curator.privacy.half * curator.releases[0].deviation
