"""The default mechanism: noise on clipped contributions to every pass over the rows.

**Who is trusted.** The one who fits, with the rows. What leaves is protected: the model, and all noisy sums on the way.

**Neighbours.** Panels with one row more or less; or one row replaced.

**What is asked**, with v ∈ [−1, 1] the values (in units of half the bounds' width) of a row of m ≤ k entries, and
shares of μ² that are fixed in advance (without a factor there is no 3, and 1 and 2 have all of it):

1. Columns, 25%: Σ_u (v, v², 1) in each column. A row's vector has length at most √(3k).
2. All together, 5%: with e the residuals around the means that follow from 1, within [−2, 2],
   Σ_u (mean e²/4, (m − 1)/(k − 1) · mean eᵢeⱼ/4, 1, (m − 1)/(k − 1)), of length at most 2. That gives the mean square
   ψ, the variance τ² of the row effect and the number of pairs.
3. Passes, 70% in equal parts: Σ_u G_u with G_u the row's contribution to the gradient of the count-weighted loss,

       G_u = (1/m) (B_X B_Xᵀ + τ² − eeᵀ, without its diagonal) B_Z,

   clipped to Frobenius norm c. X = Z Λ^½ is the present factor in coordinates in which it is white, so that G_u Λ^½ is
   the gradient in X; with G_u itself a direction of no strength can gain some.

**Proof.** Every answer is a sum over rows, plus Gaussian noise. Adding or removing a row moves it by that row's vector,
whose length is bounded above whatever the row holds: in 1 and 2 as every coordinate is, in 3 by clipping. (Rounding is
towards zero; what is computed is shortened by 2⁻⁴⁰ against rounding errors.) Replacing a row moves it by at most twice
that, and in 1 and 2 by √2 times, since two rows' vectors have inner product Σ (vv' + v²v'² + 1) ≥ 0 over shared columns
(in 2 likewise). So each answer is μ_t-Gaussian differentially private with μ_t the bound over the noise's deviation;
means, ψ, τ², Z, Λ and c in later questions are computed from earlier answers alone, and adaptive composition adds up
μ² = Σ μ_t². The start is random and knows nothing of the rows; there is no line search, no curvature but what follows
from 1 and 2, and the number of passes is fixed. Drawing k entries of long rows is done row by row, so that a row still
has one vector, and by a secure source. No sampling is counted on. ∎

**How a pass is used.** If pairs had their expected counts, N_ij = p_i p_j/Σp with p_j the pairs of column j, then
Y = ZΛ − G/p would be the covariance applied to Z, with noise σ/p_j; columns with few pairs are shrunk by what that
leaves of them. Its Rayleigh–Ritz values give Λ, Y + sZ the next Z, with s the most negative value met: without the
diagonal there are such, and a direction must not settle on one. Of r values from noise alone, each with standard error
e, the largest is about √(2r) e: those below (2 + √(2r)) e are zero in Λ, all are where that exceeds ψ, and together
they have at most the variance there is, ψ − τ². The clip is
c = 0.23 ψ √(r/a), a = r √passes / (μ₃ p̄): half way, on a logarithmic scale, between noise and the bias of clipping;
chosen on synthetic panels of 2,000 to 200,000 rows, ε from 0.5 to 10.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onesided.arrays import Array
from onesided.engines.threads import RowBlocks
from onesided.fitting.setting import Center, Fit
from onesided.fitting.solvers.result import Progress, SolveResult
from onesided.kernels import clipped
from onesided.panels.panel import Panel
from onesided.privacy.curator import UNIT, Curator
from onesided.privacy.plan import Privacy
from onesided.privacy.released import EARNED, Columns, assembled, likely, row_effect

SHARES = {"columns": 0.25, "all together": 0.05, "passes": 0.7}
FINE = 2.0**-24  # of the largest length: the unit of contributions that are not multiples of UNIT
CLIP, LEAST_CLIP, MOST_CLIP = 0.23, 0.5, 8.0


def release_by_gradient(
    curator: Curator, rank: int, center: Center, rng: np.random.Generator, progress: Progress | None = None
) -> Fit:
    """Fit by noisy passes; ``rng`` is for the start, which is public."""
    spent = sum(SHARES.values()) - (0.0 if rank else SHARES["passes"])  # without a factor there are no passes
    columns = ask_columns(curator, SHARES["columns"] / spent)
    overall = _Overall(curator, columns, SHARES["all together"] / spent)
    means = overall.means
    row_variance = overall.row_variance if center == "both" else 0.0
    factor, passes, detail = np.zeros((len(means), rank)), 0, "no pairs stood out from the noise" if rank else ""
    if rank and overall.pairs.sum() > 0:
        factor = _passes(curator, overall, row_variance, rank, rng, progress)
        passes, detail = curator.privacy.passes, ""
    solve = SolveResult(factor, "completed", (), passes, detail)
    return assembled(curator, columns, means, overall.mean_square, row_variance, solve)


def ask_columns(curator: Curator, share: float) -> Columns:
    """Question 1, for a share of μ²."""

    def question(rows: Panel) -> Array:
        v, d = rows.values, rows.n_columns
        return np.array([np.bincount(rows.columns, weights, d) for weights in (v, v * v, np.ones(len(v)))])

    length = float(np.sqrt(3 * curator.most))
    answer = curator.ask("columns", question, length=length, opposed=False, share=share, unit=UNIT)
    noise = curator.releases[-1].deviation
    return Columns(answer[0], answer[1], answer[2], sum_noise=noise, noise=noise)


class _Overall:
    """Question 2, and what follows from it."""

    def __init__(self, curator: Curator, columns: Columns, share: float) -> None:
        self.means = means = columns.means()
        most = curator.most

        def question(rows: Panel) -> Array:
            m = rows.row_counts
            e = rows.values - means[rows.columns]
            row = np.repeat(np.arange(rows.n_rows), m)
            sums, squares = (np.bincount(row, one, rows.n_rows) for one in (e, e * e))
            some, pairs = np.maximum(m, 1), np.maximum(m - 1, 0) / (most - 1)
            products = (sums**2 - squares) / np.maximum(m * (m - 1), 1)
            each = np.array([squares / some / 4, pairs * products / 4, m > 0, pairs])
            return np.asarray(np.trunc(np.clip(each, -1.0, 1.0) / FINE).sum(axis=1) * FINE)

        answer = curator.ask("all together", question, length=2.0, opposed=False, share=share, unit=FINE)
        square, product, rows, pairs = answer
        noise = curator.releases[-1].deviation
        rows, some = max(rows, noise), max(pairs, noise)
        self.mean_square = max(likely(4 * square / rows, 4 * noise / rows, 1.0), UNIT)
        self.row_variance = row_effect(4 * product / some, 4 * noise / some, self.mean_square)
        # How many pairs each column is in, weighed 1/m, if all rows were of one length; no column with less than noise.
        counts = np.maximum(columns.counts, columns.noise)
        self.pairs = counts * (max(pairs, 0.0) * (most - 1) / max(float(columns.counts.sum()), 1.0))


def _passes(
    curator: Curator, overall: _Overall, effect: float, rank: int, rng: np.random.Generator, progress: Progress | None
) -> Array:
    """Question 3, as often as planned: the factor."""
    p, passes = overall.pairs, curator.privacy.passes
    share = SHARES["passes"] / passes
    clip = clip_length(overall.mean_square, rank, curator.privacy, float(p.mean()))
    unit = clip * FINE
    Z, strengths, shift = _white(rng.standard_normal((len(p), rank)), p), np.zeros(rank), 0.0
    for made in range(passes):
        X = Z * np.sqrt(strengths)
        question = partial(_contributions, means=overall.means, Z=Z, X=X, effect=effect, clip=clip, unit=unit)
        G = curator.ask(f"pass {made + 1}", question, length=clip, opposed=True, share=share, unit=unit)
        noise = curator.releases[-1].deviation
        Y = Z * strengths - G / p[:, None]
        M = (Z * p[:, None]).T @ Y / p.sum()
        values, axes = np.linalg.eigh((M + M.T) / 2)
        values, Y = values[::-1], Y @ axes[:, ::-1]
        error = noise * np.sqrt(np.sum(Z**2) / rank) / p.sum()  # of a Ritz value, from noise
        edge = (EARNED + np.sqrt(2 * rank)) * error
        strengths = np.where(values > edge, values, 0.0) if edge < overall.mean_square else np.zeros(rank)
        strengths *= min(1.0, (overall.mean_square - effect) / max(float(strengths.sum()), 1e-300))
        shift = max(shift, -float(values[-1]))
        size = np.maximum(values, max(error, shift))
        kept = size**2 / (size**2 + (noise / p[:, None]) ** 2)
        Y = Y * kept
        Z = _white((Y + shift * (Z @ axes[:, ::-1]) * kept) / (size + shift), p)
        if progress is not None:
            progress(made + 1, float(strengths.sum()))
    # Of the length that the strengths say: dividing by their roots instead would blow up a weak direction that has not
    # settled yet.
    length = np.sqrt(np.sum(p[:, None] * Y**2, axis=0) / p.sum())
    return np.asarray(Y * np.sqrt(strengths) / np.where(length > 0, length, 1.0))


def clip_length(mean_square: float, rank: int, privacy: Privacy, pairs: float) -> float:
    """c, from the mean square ψ and the mean p̄ of pairs of a column."""
    spread = rank * np.sqrt(privacy.passes) / (privacy.mu * np.sqrt(SHARES["passes"]) * pairs)
    return float(mean_square * np.sqrt(rank) * np.clip(CLIP / np.sqrt(spread), LEAST_CLIP, MOST_CLIP))


def _contributions(rows: Panel, means: Array, Z: Array, X: Array, effect: float, clip: float, unit: float) -> Array:
    (total,) = RowBlocks(rows).sum(lambda block: (clipped.clipped_pass(block, means, Z, X, effect, clip, unit),))
    return np.asarray(unit * total)


def _white(Y: Array, p: Array) -> Array:
    """The basis of the same span nearest to Y with Σ p_j z_j z_jᵀ = Σ p_j I."""
    squares, axes = np.linalg.eigh((Y * p[:, None]).T @ Y / p.sum())
    least = 1e-12 * max(float(squares[-1]), 1e-300)
    return np.asarray(Y @ ((axes / np.sqrt(np.maximum(squares, least))) @ axes.T))
