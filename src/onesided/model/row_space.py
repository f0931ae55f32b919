"""The fitted model, held once: means, a factor, the noise around them, and what was measured of the columns.

A fit makes a :class:`RowSpace`, a file stores one, and everything that is asked of a model is answered from it:
predictions by its :attr:`~RowSpace.predictor`, entries of T by its :meth:`~RowSpace.second_moment`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from onesided.arrays import Array, host, namespace
from onesided.errors import InputError
from onesided.model.axes import principal_axes
from onesided.model.blend import NO_BLEND, Blend, blended_means
from onesided.model.imputation import BestLinearPredictor
from onesided.model.row_noise import ALIKE, RowNoise
from onesided.model.second_moment import SecondMoment
from onesided.model.uncertainty import Bootstrap
from onesided.pairs.measured import Measured
from onesided.panels.panel_like import PanelLike

UNLIKE = 10.0  # between the largest and the smallest scale, from which columns are said to have units of their own


def unlike_units(scales: Array) -> bool:
    """Whether the largest scale is ten times the smallest, or more.

    >>> unlike_units(np.array([0.7, 1.5])), unlike_units(np.array([0.01, 1.5]))
    (False, True)
    """
    return bool(scales.max() >= UNLIKE * scales.min())


@dataclass(frozen=True, eq=False)
class RowSpace:
    """``T ≈ μμᵀ + τ²ssᵀ + XXᵀ`` and the noise around it.

    Parameters
    ----------
    mean : array of d
        μ.
    factor : array of d × r
        X.
    noise_variance : array of d
        ψ, the variance of an entry around the row space; zero for a method that has no model of it.
    row_variance : float
        τ², the variance of the row effect in a column of scale one; zero where rows have none.
    spread : array, optional
        Posterior covariances V_j of (μ_j, y_j), with y_j = (τ, x_j) or x_j, as lower halves. None where columns are
        taken as known.
    row_noise : RowNoise
        How rows differ in noise.
    blend : Blend
        How far measured entries and means of T are trusted beside the model's.
    measured : Measured, optional
        What the panel measures of its columns. T needs it; a fit that is only scored does without.
    column_ids : array of d, optional
        None where columns go by position.
    measurement_noise : float or array of d, optional
        Known variance of the measurement noise, subtracted from the diagonal of T.
    scales : array of d, optional
        s_j, the columns' units relative to one another: their geometric mean over entries is one. None where columns
        share a unit: all are one.
    own_scales : array of d, optional
        The scales that columns would have in units of their own, where they were measured in a common one: what errors
        of products are compared in, so that models of the same rows can be. None where they are ``scales``.

    Examples
    --------
    >>> from onesided import Panel
    >>> space = RowSpace(np.zeros(2), np.array([[1.0], [2.0]]), np.full(2, 0.5))
    >>> space.predictor.impute(Panel.from_dense([[1.5, np.nan]])).round(3)
    array([[1.5, 2. ]])
    >>> RowSpace(np.zeros(2), np.ones((3, 1)), np.ones(2))
    Traceback (most recent call last):
    onesided.errors.InputError: a row space of 2 columns has a factor of shape (3, 1); expected (2, 1)
    """

    mean: Array
    factor: Array
    noise_variance: Array
    row_variance: float = 0.0
    spread: Array | None = None
    row_noise: RowNoise = ALIKE
    blend: Blend = NO_BLEND
    measured: Measured | None = None
    column_ids: Array | None = None
    measurement_noise: Any = None
    scales: Array | None = None
    own_scales: Array | None = None

    def __post_init__(self) -> None:
        if self.factor.ndim != 2:
            raise InputError(f"the factor of a row space has shape {self.factor.shape}; expected columns × rank")
        d, k = len(self.mean), self.rank + self.n_common + 1
        shapes = {
            "a mean": (self.mean, (d,)),
            "a factor": (self.factor, (d, self.rank)),
            "a noise variance": (self.noise_variance, (d,)),
            "a spread": (self.spread, (d, k * (k + 1) // 2)),
            "column ids": (self.column_ids, (d,)),
            "scales": (self.scales, (d,)),
            "own scales": (self.own_scales, (d,)),
        }
        if self.measured is not None:
            shapes |= {f"measured {name}": (value, (d,)) for name, value in vars(self.measured).items()}
        for name, (array, shape) in shapes.items():
            if array is not None and array.shape != shape:
                raise InputError(f"a row space of {d} columns has {name} of shape {array.shape}; expected {shape}")
        for scales in (self.scales, self.own_scales):
            if scales is not None and not np.all(good := (scales > 0) & np.isfinite(scales)):
                first = int(np.argmin(good))
                raise InputError(
                    f"a row space has a scale of {scales[first]} in column {first}; expected positive, finite scales"
                )

    @property
    def n_columns(self) -> int:
        """d."""
        return len(self.mean)

    @property
    def rank(self) -> int:
        """r."""
        return int(self.factor.shape[1])

    @property
    def n_common(self) -> int:
        """How many leading loadings hold for columns of every part: one with a row effect, otherwise none."""
        return int(self.row_variance > 0)

    @cached_property
    def loadings(self) -> Array:
        """What a row's coordinates are multiplied with: τ s_j for its effect, if it has one, then X."""
        if self.row_variance == 0:
            return self.factor
        return np.column_stack([np.sqrt(self.row_variance) * self.units, self.factor])

    @property
    def units(self) -> Array:
        """s_j, ones where columns share a unit."""
        return np.ones(self.n_columns) if self.scales is None else self.scales

    @property
    def units_of_errors(self) -> Array | None:
        """What errors of products are measured in; None for ones."""
        return self.scales if self.own_scales is None else self.own_scales

    @property
    def in_own_units(self) -> bool:
        """Whether columns were taken in units of their own: the largest scale is ten times the smallest, or more."""
        return unlike_units(self.units)

    @property
    def spread_traces(self) -> Array:
        """tr V_j of each column, over x_j alone; zero where columns are taken as known."""
        if self.spread is None:
            return np.zeros(self.n_columns)
        on_diagonal = [a * (a + 1) // 2 + a for a in range(1 + self.n_common, 1 + self.n_common + self.rank)]
        return np.asarray(self.spread[:, on_diagonal].sum(axis=1))

    @property
    def blended_mean(self) -> Array:
        """The means of T: the model's, blended with the measured ones."""
        measured = self.known_of_columns
        return blended_means(self.mean, measured.means, measured.counts, self.blend.means)

    @property
    def known_of_columns(self) -> Measured:
        """``measured``, where it is needed."""
        if self.measured is None:
            raise InputError("this row space was fitted only to be scored: nothing was measured of its columns")
        return self.measured

    @property
    def without_factor(self) -> RowSpace:
        """What it says of a row of which nothing is known but its effect: the factor's share of an entry is noise.

        >>> space = RowSpace(np.zeros(2), np.array([[1.0], [2.0]]), np.full(2, 0.5)).without_factor
        >>> space.rank, space.noise_variance
        (0, array([1.5, 4.5]))
        """
        k = 1 + self.n_common
        return replace(
            self,
            factor=self.factor[:, :0],
            noise_variance=self.noise_variance + (self.factor**2).sum(axis=1) + self.spread_traces,
            spread=None if self.spread is None else self.spread[:, : k * (k + 1) // 2],
        )

    def measured_on(self, panel: PanelLike, measured: Measured | None = None) -> RowSpace:
        """The same row space with what a panel measures of its columns, and with their ids."""
        return replace(self, measured=measured or Measured.from_panel(panel), column_ids=panel.given_column_ids)

    @property
    def predictor(self) -> BestLinearPredictor:
        """A best linear predictor of rows, which keeps the columns where passes run for as long as it lives."""
        if not self.noise_variance.any():
            raise InputError(
                "the noise variance is zero in every column, and the best linear predictor divides by it: the method "
                "has no model of the noise, or the values are so small that their squares vanish; rescale them"
            )
        return BestLinearPredictor(self)

    def components(self, array: Callable[[Array], Any] = np.asarray) -> tuple[Array, Array]:
        """An orthonormal basis of the row space, as rows, and the eigenvalues of τ²ssᵀ + XXᵀ, descending.

        ``array`` brings the loadings to where they are turned to their axes.
        """
        vectors = principal_axes(array(self.loadings))
        lengths = (vectors**2).sum(0) ** 0.5
        return host(vectors / namespace(lengths).where(lengths > 0, lengths, 1.0)).T, host(lengths) ** 2

    def second_moment(self, panel: PanelLike | None = None, *, bootstrap: Bootstrap | None = None) -> SecondMoment:
        """T, blended with what is measured where the panel is at hand."""
        mean = self.blended_mean if np.any(self.mean) else None
        return self._operator(panel, self.known_of_columns, mean, bootstrap)

    def covariance(self, panel: PanelLike | None = None) -> SecondMoment:
        """T of values less the means of T."""
        mean = self.blended_mean
        return self._operator(None if panel is None else panel.centred(mean), self.known_of_columns.around(mean))

    def _operator(
        self, panel: PanelLike | None, measured: Measured, mean: Array | None = None, bootstrap: Bootstrap | None = None
    ) -> SecondMoment:
        return SecondMoment(
            self.loadings,
            measured if self.measurement_noise is None else measured.without(self.measurement_noise),
            mean=mean,
            column_ids=self.column_ids,
            panel=panel,
            kappa=np.inf if panel is None else self.blend.pairs,
            output="blend",
            bootstrap=bootstrap,
            common=self.n_common,
        )


def noiseless(factor: Array, mean: Array | None = None) -> RowSpace:
    """The row space of a method that has no model of the noise, and perhaps no means."""
    return RowSpace(np.zeros(len(factor)) if mean is None else mean, factor, np.zeros(len(factor)))
