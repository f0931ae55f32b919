"""Bands: what a bootstrap over rows leaves, and the intervals that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.errors import InputError, counted
from onesided.pairs.lookup import pair_positions


@dataclass(frozen=True, eq=False)
class Bands:
    """Estimates, each with its standard error and an interval.

    >>> from onesided import synthetic, uncertainty
    >>> truth = synthetic.linear_mixture(2000, 20, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 6, rng=1)
    >>> bands = uncertainty.bootstrap(panel, rank=2, replicates=20).entries([0, 3], [1, 5])
    >>> T = truth.second_moment()[[0, 3], [1, 5]]
    >>> (bands.lower < T) & (T < bands.upper)
    array([ True,  True])
    """

    estimate: Array
    standard_error: Array
    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Fits of the moment estimator to resampled rows, and what follows from them about the rows' population.

    ``unsettled`` counts the fits, that to all rows among them, that reached the limit of passes or could not be
    improved although they had not converged; where it is not small, bands are not to be trusted.

    >>> from onesided import synthetic, uncertainty
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 20, 2, rng=0), 6, rng=1)
    >>> resampled = uncertainty.bootstrap(panel, rank=2, replicates=20)
    >>> resampled.unsettled, bool(resampled.angles().upper[0] < 0.4)  # no reason to distrust its bands
    (0, True)
    """

    n_columns: int  # of the panel
    columns: Array  # whose loadings are kept, ascending
    loadings: Array  # (μ, τ, X) of these columns, fitted to all rows
    shifts: Array  # by how much each replicate's differ: single precision suffices for differences
    spectrum: Array  # eigenvalues of XXᵀ, fitted to all rows
    spectra: Array  # of each replicate
    tilts: Array  # principal angles between each replicate's row space and that of all rows
    unsettled: int

    def eigenvalues(self, level: float = 0.9) -> Bands:
        """The eigenvalues of XXᵀ, largest first: those of the covariance's low-rank part."""
        bands = _bands(self.spectrum, self.spectra, level)
        estimate, lower, upper = (np.maximum(part, 0.0) for part in (bands.estimate, bands.lower, bands.upper))
        return Bands(estimate, bands.standard_error, lower, upper)

    def angles(self, level: float = 0.9) -> Bands:
        """Principal angles between the estimated row space and the population's, in radians, smallest first.

        They are at least zero, so a band begins there and ends at the quantile of the replicates' angles;
        the estimate is their mean.
        """
        _check_level(level)
        upper = np.quantile(self.tilts, level, axis=0, method="higher")
        return Bands(self.tilts.mean(axis=0), self.tilts.std(axis=0, ddof=1), np.zeros_like(upper), upper)

    def entries(self, rows: Any, columns: Any, level: float = 0.9) -> Bands:
        """L at pairs of columns by position, measured together or not.

        On the diagonal this is the model's part of T_jj, without the column's noise.
        """
        i, j = (self._kept(part) for part in pair_positions(rows, columns, self.n_columns))
        replicates = (np.vecdot(x[i], x[j]) for x in (self.loadings + shift for shift in self.shifts))
        return _bands(np.vecdot(self.loadings[i], self.loadings[j]), replicates, level)

    def _kept(self, positions: Array) -> Array:
        lost = positions[~np.isin(positions, self.columns)]
        if len(lost):
            raise InputError(
                f"column {lost[0]} is not among the {counted(len(self.columns), 'column')} that this "
                "bootstrap kept; name it in columns= when the bootstrap is made"
            )
        return np.searchsorted(self.columns, positions)


def _bands(whole: Array, replicates: Iterable[Array], level: float) -> Bands:
    """2θ̂ − mean θ* ± t rms(θ* − θ̂), with t Student's for the number of replicates.

    The root mean square holds the variance of θ* and the correction, which is uncertain by about its size.
    """
    from scipy.stats import t

    _check_level(level)
    count, total, squares = 0, np.zeros_like(whole), np.zeros_like(whole)
    for value in replicates:
        shift = value - whole
        count, total, squares = count + 1, total + shift, squares + shift**2
    bias = total / count
    variance = np.maximum(squares - count * bias**2, 0.0) / (count - 1)
    estimate, reach = whole - bias, float(t.ppf((1 + level) / 2, count - 1)) * np.sqrt(variance + bias**2)
    return Bands(estimate, np.sqrt(variance), estimate - reach, estimate + reach)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level={level}; expected a share between 0 and 1, such as 0.9")
