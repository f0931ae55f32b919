"""What a fitted row space is asked: coordinates, imputed values, similar columns, recommendations, bands."""

from __future__ import annotations

from functools import cached_property
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onesided.arrays import Array
from onesided.engines.placement import WORTH, explaining_gpu_memory, placed, read_on_cluster
from onesided.errors import InputError
from onesided.estimators.base import OneSidedEstimator, Unknown, generator
from onesided.fitting.bootstrap import Replicated, bootstrap
from onesided.fitting.setting import Center
from onesided.memory import check_room
from onesided.model.imputation import check_positions
from onesided.model.recommendation import Recommended, recommend
from onesided.model.row_noise import RowNoise
from onesided.model.second_moment import SecondMoment
from onesided.model.similarity import Similar, most_similar
from onesided.model.uncertainty import Bootstrap
from onesided.panels.panel_like import PanelLike


class AnsweringEstimator(OneSidedEstimator):
    """An estimator whose row space has noise, and so can say how sure its predictions are.

    Every answer is that of ``row_space_``; what is added here is reading the rows and where their passes run.
    """

    engine: str
    device: str
    deterministic: bool
    weight_exponent: float
    rank_: int
    center_: Center

    @property
    def row_variance_(self) -> float:
        """τ²."""
        return self.row_space_.row_variance

    @property
    def noise_variance_(self) -> Array:
        """ψ."""
        return self.row_space_.noise_variance

    @property
    def scales_(self) -> Array:
        """s_j."""
        return self.row_space_.units

    @property
    def row_noise_(self) -> RowNoise:
        """How rows differ in noise."""
        return self.row_space_.row_noise

    @property
    def spread_(self) -> Array | None:
        """Posterior covariances of the columns."""
        return self.row_space_.spread

    @property
    def blend_(self) -> float:
        """κ of pairs."""
        return self.row_space_.blend.pairs

    @property
    def mean_blend_(self) -> float:
        """κ' of means."""
        return self.row_space_.blend.means

    @cached_property
    def covariance_(self) -> SecondMoment:
        """The second moment of values less the column means of ``second_moment_``: how columns vary together.

        The low-rank part is T's without the means. Measured pairs are of entries less these means, which are those of
        a column, not those of the rows that have both columns.
        """
        check_is_fitted(self)
        return self.row_space_.covariance(self.second_moment_.panel)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("covariance_", None)  # it holds the panel again, less the means
        return state

    def _read(self, X: Any, *, reset: bool) -> PanelLike:
        is_path, is_dataset = isinstance(X, (str, PathLike)), type(X).__module__.startswith("ray.data")
        if (is_path or is_dataset) and self.engine == "ray":
            return read_on_cluster(X, device=self.device)
        if is_path or is_dataset:
            raise InputError(
                f"found {'the path ' + str(X) if is_path else 'a dataset of Ray'}, which engine='ray' reads; with "
                "engine='local' give a panel: Panel.from_table of a table, load_packed of a packed panel"
            )
        return super()._read(X, reset=reset)

    def _read_for_use(self, X: Any, unknown: Unknown = "refuse") -> PanelLike:
        panel = super()._read_for_use(X, unknown)
        here = self.engine == "ray" and panel.n_entries < WORTH  # too few to travel
        where = {"engine": "local", "device": "cpu"} if here else {"engine": self.engine, "device": self.device}
        return placed(panel, **where, rank=self.rank_, deterministic=self.deterministic)

    @explaining_gpu_memory()
    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``: ``transform(X) @ components_ + mean_`` predicts them.

        One for each component: as many as the rank, and one more where there is a row effect.
        A row's coordinates are its posterior mean given its observed entries; they shrink towards zero when it
        has few.
        """
        panel, space = self._read_for_use(X, unknown), self.row_space_
        return np.asarray(space.predictor.coordinates(panel) @ (space.loadings.T @ self.components_.T))

    @explaining_gpu_memory()
    def impute(self, X: Any, *, return_std: bool = False, unknown: Unknown = "refuse") -> Array | tuple[Array, Array]:
        """Rows filled in, as a dense array; observed entries stay as they are.

        With ``return_std=True`` also the predictive standard deviation of each value, zero where it was
        observed. For many rows and columns use :meth:`impute_at`, which never forms them all.
        """
        panel = self._read_for_use(X, unknown)
        n, d = panel.shape
        check_room(
            16 * (1 + int(return_std)) * n * d,
            f"{n:,} rows filled in, of {d:,} columns each, would take {{size}}",
            "ask for some rows at a time, or for the values wanted alone, by impute_at",
        )
        predictor = self.row_space_.predictor
        return predictor.impute_with_deviations(panel) if return_std else predictor.impute(panel)

    @explaining_gpu_memory()
    def impute_at(
        self, X: Any, rows: Any, columns: Any, *, return_std: bool = False, unknown: Unknown = "refuse"
    ) -> Array | tuple[Array, Array]:
        """Predictions at positions of X: row positions and column positions of the model, of one length.

        An observed entry is predicted like any other, from all of its row.
        """
        panel = self._read_for_use(X, unknown)
        values, deviation = self.row_space_.predictor.impute_at(panel, *check_positions(panel, rows, columns))
        return (values, deviation) if return_std else values

    def similar(self, column: Any, n: int = 10) -> list[Similar]:
        """The n columns that are most correlated with one, beyond means and row effects, best first.

        See :mod:`onesided.model.similarity` for what the correlation and its standard error are. Columns of other
        parts of the panel, and columns never seen beside another, are left out: nothing is known of them together.

        >>> from onesided import OneSidedCompletion, synthetic
        >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 20, 2, rng=0), 6, rng=1)
        >>> model = OneSidedCompletion(2, center="columns", random_state=0).fit(panel)
        >>> [(similar.id, round(similar.correlation, 1)) for similar in model.similar(3, n=2)]
        [(17, 0.9), (19, 0.9)]
        """
        check_is_fitted(self)
        check_number(n)
        (position,) = self.second_moment_.column_index.positions([column])
        return most_similar(self.row_space_, self.second_moment_, position, n)

    @explaining_gpu_memory()
    def recommend(self, X: Any, n: int = 10, *, unknown: Unknown = "refuse") -> list[list[Recommended]]:
        """For each row of X, its n unseen columns of the highest predicted values, best first.

        With rank 0 these are the columns of the highest means, the same for every row. Columns never seen beside
        another are left out, as are those that no chain of rows links to any entry of the row.

        >>> from onesided import OneSidedCompletion
        >>> model = OneSidedCompletion(1, center="columns", diagonal="free")
        >>> model = model.fit([[5.0, 4.0, 1.0], [4.0, 4.0, 2.0], [1.0, 2.0, 5.0]])
        >>> [best.id for best in model.recommend([[5.0, float("nan"), float("nan")]])[0]]
        [1, 2]
        """
        panel = self._read_for_use(X, unknown)
        check_number(n)
        return recommend(self.row_space_, panel, n)

    @explaining_gpu_memory()
    def bootstrap(
        self, *, replicates: int = 50, random_state: Any = None, progress: Replicated | None = None
    ) -> Bootstrap:
        """Bands for eigenvalues, angles and entries, by resampling the rows and fitting the moment solution again.

        The diagonal is free in these fits, whatever it was for the model: where columns vary on their own, too, a
        fitted one pushes the eigenvalues up, in each replicate alike, and bands miss the truth (on the digits of the
        README all four of rank 4 do). See :mod:`onesided.fitting.bootstrap` for what they cover and where they fail.
        Afterwards ``second_moment_[i, j]`` has a standard error for completed entries too. ``progress`` is called with
        the replicates made and their number.
        """
        check_is_fitted(self)
        panel = self.second_moment_.panel
        if panel is None:
            raise InputError(
                "a bootstrap resamples rows, and this model has no panel: it was saved without, or fitted with privacy"
            )
        there = placed(panel, self.device, engine=self.engine, rank=self.rank_, deterministic=self.deterministic)
        self.bootstrap_ = bootstrap(
            there,
            rank=self.rank_,
            center=self.center_,
            diagonal="free",
            weight_exponent=self.weight_exponent,
            scales=self.row_space_.scales,
            replicates=replicates,
            rng=generator(random_state),
            progress=progress,
        )
        self.second_moment_ = self.row_space_.second_moment(panel, bootstrap=self.bootstrap_)
        return self.bootstrap_


def check_number(n: Any) -> None:
    """Refuse a number of columns that is not a whole one of at least one."""
    if not isinstance(n, Integral) or int(n) < 1:
        raise InputError(f"n={n!r}: expected a whole number of at least 1")
