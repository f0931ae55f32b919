"""What a panel can support, before any fit: coverage of Ω, its parts, and how large a rank stands out from chance.

Rows of weight zero are left out throughout. With n_u entries in row u, the numbers are:

**Coverage.** The share of the d(d−1)/2 pairs of columns that some row has both of, and how often. The pairs, and
what explicit pair moments on them would take, are those of :func:`onesided.pairs.size.pair_size`: on a large panel
estimated from a random sample of columns, with a standard error. How often is counted for a sample of columns, too,
where Σ n_u² is above 2²³ (as large as so many steps allow, at least 64). Ω itself is never formed when it is large.

**Parts.** Columns are joined when a row has both. Columns of different parts are linked by no chain of rows, so
nothing observed says how they vary together. A column that is never seen, or never beside another, is in no
row space.

**Units.** Columns may be in units of their own (people beside percentages). Their scales s_j are those of a fit
(:mod:`onesided.fitting.scales`), with a geometric mean over entries of one. Where the largest is ten times the smallest
or more, the answer says so.

**Coherence.** d · max_j T̂_jj / Σ_j T̂_jj over the d columns that were seen, T̂_jj the mean square of a column's
values (of v / s_j, where columns have units of their own): 1 when all columns are alike, d when one has everything.
Where rows lie in the row space exactly it is r·μ, with μ the coherence of Assumption 3.3 in the paper. The effective
number of columns, (Σn_j)² / Σn_j² with n_j entries in column j, says among how many columns the entries are really
distributed.

**Supported rank.** K = D^−½ P D^−½ Σc, with P_ij = Σ_u w_u v_ui v_uj off the diagonal and nothing on it, v the values
less their column means in units of their columns' scales, w_u the row's weight over √n_u, c_j = Σ_{i≠j} N_ij the weight
that column j shares with others, and D_jj = c_j plus a tenth of their mean (:mod:`onesided.fitting.solvers.spectral`).
If entries had random signs, all structure would be gone and only sampling noise left: the largest eigenvalue of K then
is what chance yields. A direction's strength is its eigenvalue over that of chance (the mean of 3 to 19 draws of signs,
or their largest over 1.1 if that is more), and it is supported when its strength is above 1.1. The supported rank
counts directions beyond the column means; an effect that a row has on all its entries is one of them.

**Rows needed.** Noise lifts a real direction of h times chance to the strength s = h + 1/(4h) when h is above one half;
a weaker one is lost. So h = (s + √(s² − 1))/2, and at most s/2 for a strength below one. It grows with √n: to reach the
margin of 1.1, where h = 0.78, takes (0.78/h)² times the rows. Nor can r directions have more than tr K̄ / r each, where
K̄ has all of the columns' variance on its diagonal. So a rank that is not supported needs about
max((0.78/h_r)², (0.78 r · chance / tr K̄)²) times the rows, and no number of rows if there are fewer directions.

**The paper's bound.** Theorem 3.4 asks for n ≥ c d r⁵ κ⁶ μ² log d / (C² ε²) rows, each entry observed with probability
C/d. The constant c is not known; ``paper_rows`` sets c = κ = ε = 1, μ to the coherence over r but at least 1, and C to
the mean number of entries in a row. It says how n grows with r and d, not how many rows are enough; it is not given
for C below 2, for which the theorem makes no statement.

How well it does: 459 synthetic panels not used in choosing the 1.1 (mixtures with and without noise, equal and falling
strengths, even and uneven columns; 500 to 20,000 rows, 50 to 1,000 columns, 2 to 20 entries per row, ranks 1 to 10)
were fitted at ranks from 1 upwards. The supported rank was the largest at which ``OneSidedCompletion`` found a space
with all principal cosines to the true one above 0.7 for 78% of them, and within one of it for 94%; it was higher for 3%
and lower for 19%, mostly where many directions of equal strength begin to show together. Answering zero every time is
right for 39%, and so is the best rule that counts rows, columns and entries alone. ``rows_needed`` of an unsupported
rank is rougher: rows were doubled until the rank was found, which took 0.4 to 3.1 times that figure (80% of the
196 panels by which the formula was chosen; 0.9 at the median); for 136 more, 16 times the rows were not enough. All
columns were taken to have one scale then; on 42 other such panels their own scales changed the supported rank of five,
each towards the truth.

A supported direction is one that the sums of products show by themselves. A larger rank may still predict better, as
weaker directions are found in part: choose a rank for prediction on held-out rows (``fitting.selection``).

``inspection`` measures, ``chance`` is the spectrum of random signs, ``findings`` what is reported. The room may import
fitting, pairs and what comes before them.
"""

from __future__ import annotations

from onesided.recoverability.findings import Counts, Coverage, Evenness, Parts, RankSupport, Recoverability
from onesided.recoverability.inspection import paper_rows, recoverability

__all__ = ["Counts", "Coverage", "Evenness", "Parts", "RankSupport", "Recoverability", "paper_rows", "recoverability"]
