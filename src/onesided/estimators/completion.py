"""The estimator: ``OneSidedCompletion``, passes over rows.

A scikit-learn estimator and a thin shell: a panel goes in, what is left open is chosen, an objective is minimised, and
what is known afterwards is held in fitted attributes. What ``fit`` refuses, beside what no panel may
hold (:mod:`onesided.panels.panel`) and parameters outside their ranges:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
no entry at all                                        nothing was observed: …
a single column                                        the panel has one column (n_features = 1) …
a path or a dataset of Ray, without ``engine="ray"``   found the path ratings/, which engine='ray' reads …
no row with two entries                                no row has two observed entries …
a rank above the number of columns                     rank=12 is larger than the panel's 5 columns …
=====================================================  ========================================================

With ``privacy``, what :mod:`onesided.privacy.plan` refuses, and:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
a rank to choose, with "gradient" or "central"         rank="auto" tries many ranks on the same rows …
``refine``, ``blend`` or ``diagonal`` likewise         refine='variational' would go over the rows again …
``center="none"`` likewise                             center="none" is not for a private fit …
a checkpoint                                           a checkpoint would keep on disk what is not released …
``bootstrap()``                                        a bootstrap resamples rows, and this model has no panel …
a GPU as ``device``                                    a private fit runs on the processor …
=====================================================  ========================================================

With a GPU as ``device``, what :mod:`onesided.engines.gpu` refuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from numbers import Integral, Real
from os import PathLike
from time import perf_counter
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from onesided.arrays import host, namespace
from onesided.engines.engine import engine_for
from onesided.engines.placement import WORTH, explaining_gpu_memory, placed, read_on_cluster
from onesided.errors import InputError
from onesided.estimators.base import OneSidedEstimator, Unknown, generator, warn_of_parts, with_weights_as_counts
from onesided.fitting.blending import Blend, blended_means, choose_blend
from onesided.fitting.bootstrap import Replicated, bootstrap
from onesided.fitting.moment_solution import Center, check_fittable
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.refinement import MEMORY, Refine, working_memory
from onesided.fitting.selection import (
    CENTERS,
    DIAGONALS,
    SEARCH_PASSES,
    Rule,
    Selection,
    Setting,
    Trial,
    affordable_ranks,
    cost,
    enough_rows,
    fit_row_space,
    select,
)
from onesided.fitting.solvers.result import Progress, begin
from onesided.memory import check_room
from onesided.model.axes import principal_axes
from onesided.model.imputation import BestLinearPredictor, RowNoise, check_positions
from onesided.model.recommendation import Recommended, best_unseen
from onesided.model.row_space import Refinement, RowSpace
from onesided.model.second_moment import SecondMoment
from onesided.model.similarity import Similar, correlations, standard_errors
from onesided.model.uncertainty import Bootstrap
from onesided.pairs.measured import Measured
from onesided.panels.fingerprint import fingerprint
from onesided.panels.panel_like import PanelLike
from onesided.privacy.central import release_by_pairs
from onesided.privacy.curator import Account, Curator, Release
from onesided.privacy.gradient import release_by_gradient
from onesided.privacy.local import noised_values, without_noise
from onesided.privacy.plan import Privacy
from onesided.privacy.released import Released
from onesided.storage.checkpoint import Checkpoint, Work
from onesided.storage.provenance import Provenance

Array = npt.NDArray[Any]
Auto = Literal["auto"]


class OneSidedCompletion(OneSidedEstimator):
    """The second moment and row space of a sparse panel. Nothing needs to be set.

    A moment solution, in which every pair of columns weighs by its count, is found in passes over the rows: it
    minimises ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² + ρ Σ_j ‖x_j‖², and the pair matrix is never formed. Variational passes
    (:mod:`onesided.fitting.refinement`) then integrate the rows out and estimate every variance. Rank, center and
    diagonal are chosen by how well entries of held-out rows are predicted from the row's others
    (:mod:`onesided.fitting.selection`).

    A row of weight two counts as two rows. Where all weights are below one they are relative: their mean becomes one.

    Parameters
    ----------
    rank : int or "auto", default "auto"
        Columns of the factor; 0 for means and row effects alone.
    center : "auto", "none", "columns" or "both", default "auto"
        What is in the model beside the factor: nothing, a mean for each column, or also an effect of each row, the
        same in all columns, with variance τ². T = μμᵀ + τ²11ᵀ + XXᵀ + diagonal. "auto" chooses between the last two.
    diagonal : "auto", "free" or "fit", default "auto"
        Whether the moment solution must also explain the second moment of each column by itself. "fit" is for
        panels that are exactly of low rank; where columns have a variance of their own, it ruins the low-rank part.
    refine : "auto", "none" or "variational", default "auto"
        Whether the moment solution is refined. "auto" does so where the columns' covariances, columns × rank², take
        at most half a gigabyte.
    rule : "best" or "one-standard-error", default "best"
        Of the settings tried: the one that scores best, or the one of lowest rank among those within one standard
        error of it. With either, rank 0 where it is within two.
    weight_exponent : float, default -0.5
        In the moment solution a row of m entries weighs m to this power, times its own weight. At 0 it counts for
        its m² pairs. Between -10 and 10.
    ridge : float, default 1.0
        ρ in units of the sampling noise in the sums of products.
    blend : "auto", float or None, default "auto"
        κ, a number of rows: ``second_moment_`` averages measured and completed entries, κ against the rows that
        measured a pair. "auto" takes it from held-out rows, and blends only where that helps; measured column means
        likewise (:mod:`onesided.fitting.blending`). None: only the diagonal is measured.
    noise_variance : float or array of d, optional
        The variance of the measurement noise in an entry, where it is known and T is wanted without it: it is taken
        off the diagonal of T, which does not fall below zero.
    tol : float, default 1e-6
        The moment solution is found when the decrease still expected is this share of the loss; a coarser one, 1e-3,
        does where it is refined.
    max_passes : int, default 300
        Passes over the rows for a moment solution at most.
    random_state : int, Generator, RandomState or None
        For the split of the rows and the start of the eigensolver. The same seed gives the same model at any number
        of threads, and but for rounding on any device.
    engine : "local" or "ray", default "local"
        Whether passes run on this machine or on the Ray cluster that Python is connected to (``ray.init(address)``), or
        else that Ray finds, or starts here (``pip install 'onesided[cluster]'``; :mod:`onesided.engines.ray`).
        Then ``fit`` also takes a ``ray.data.Dataset``, or the path of a packed panel or of a folder of Parquet files,
        with one line per entry. Rows given later, to impute, travel there from a million entries on.
    device : "cpu", "cuda", "cuda:1", … or "auto", default "cpu"
        Where passes run: on this machine's processor or on a GPU (``pip install 'onesided[gpu]'``), in the precision of
        the values. "auto" takes a GPU if there is one and the panel has at least a million entries. A panel larger
        than the GPU's memory is streamed to it (:mod:`onesided.engines.gpu`). It is not part of a saved model.
    deterministic : bool, default False
        On a GPU, sums of gradients depend in their last bits on the order in which they happen to be added. With True
        they are added in one order, and the same seed gives the same bits, at the price of memory for the gradients of
        all entries and of passes half as long again. On the processor that is so in any case.
    privacy : Privacy, optional
        A promise of differential privacy to the person behind each row (:mod:`onesided.privacy`). The model then holds
        only what was released. The noise does not come from ``random_state``: no two private fits are alike.

    Attributes
    ----------
    rank_, center_, diagonal_
        What was chosen or given.
    blend_ : float
        κ; infinite where measured entries are not blended in.
    mean_blend_ : float
        κ': in ``second_moment_`` the mean of a column is that of its entries, and ``mean_`` counts for κ' rows beside
        it; infinite where it is ``mean_`` alone.
    selection_ : Selection or None
        Every setting that was tried with its held-out score, as a table; None where nothing was left open, or where
        fewer than ten rows have two entries.
    factor_ : array of d × rank
        X, with orthogonal columns, longest first.
    row_variance_ : float
        τ², the variance of the row effect; 0 where there is none.
    components_ : array
        Orthonormal basis of the row space, the span of X and, with a row effect, of a constant row.
    eigenvalues_ : array
        Of τ²11ᵀ + XXᵀ, descending, one for each component.
    mean_ : array of d
        Column means; zeros when ``center_`` is "none".
    noise_variance_ : array of d
        Variance of an entry around the row space.
    row_noise_ : RowNoise
        How rows differ in noise, for the standard deviations of imputed values (:mod:`onesided.model.imputation`).
    second_moment_, covariance_ : SecondMoment
        T and T − μμᵀ as operators.
    solve_ : SolveResult
        How the solver of the moment solution ended.
    refinement_ : Refinement or None
        How many variational passes were made, 40 at most, and by how much the last one changed means and low-rank
        part; they end below 1e-3. None where the moment solution stands as it is.
    spread_ : array or None
        Posterior covariances of (mean, loadings) of each column, as lower halves; None where not refined.
    measured_ : Measured
        What is known of the panel without the panel: means, diagonal and counts of columns.
    bootstrap_ : Bootstrap
        After :meth:`bootstrap`.
    making_ : Provenance
        With which versions the model was fitted and in how many seconds; of a private fit, not the seconds.
    privacy_ : Account or None
        What was spent on what, of a private fit. Its ``measured_`` holds released means, diagonal and counts; with the
        local mechanism, which releases no counts, their mean.
    column_ids_ : array of d

    Examples
    --------
    >>> import numpy as np
    >>> from onesided import synthetic
    >>> truth = synthetic.linear_mixture(4000, 30, 2, rng=0)
    >>> panel = synthetic.sample_fixed(truth, 6, rng=1)
    >>> model = OneSidedCompletion(random_state=0).fit(panel)
    >>> model.rank_
    2
    >>> T = truth.second_moment()
    >>> bool(np.linalg.norm(model.second_moment_.to_dense() - T) < 0.05 * np.linalg.norm(T))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rank": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "center": [StrOptions({"auto", "none", "columns", "both"})],
        "diagonal": [StrOptions({"auto", "fit", "free"})],
        "refine": [StrOptions({"auto", "none", "variational"})],
        "rule": [StrOptions({"best", "one-standard-error"})],
        "weight_exponent": [Interval(Real, -10, 10, closed="both")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "blend": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"}), None],
        "noise_variance": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_passes": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state", np.random.Generator],
        "engine": [StrOptions({"local", "ray"})],
        "device": [str],
        "deterministic": ["boolean"],
        "privacy": [Privacy, None],
    }

    def __init__(
        self,
        rank: int | Auto = "auto",
        *,
        center: Center | Auto = "auto",
        diagonal: Diagonal | Auto = "auto",
        refine: Refine = "auto",
        rule: Rule = "best",
        weight_exponent: float = -0.5,
        ridge: float = 1.0,
        blend: float | Auto | None = "auto",
        noise_variance: npt.ArrayLike | None = None,
        tol: float = 1e-6,
        max_passes: int = 300,
        random_state: Any = None,
        engine: Literal["local", "ray"] = "local",
        device: str = "cpu",
        deterministic: bool = False,
        privacy: Privacy | None = None,
    ) -> None:
        self.rank = rank
        self.center = center
        self.diagonal = diagonal
        self.refine = refine
        self.rule = rule
        self.weight_exponent = weight_exponent
        self.ridge = ridge
        self.blend = blend
        self.noise_variance = noise_variance
        self.tol = tol
        self.max_passes = max_passes
        self.random_state = random_state
        self.engine = engine
        self.device = device
        self.deterministic = deterministic
        self.privacy = privacy

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        progress: Progress | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Self:
        """Fit to a panel, a scipy sparse matrix (stored zeros are observations) or a dense array with NaN.

        ``checkpoint``, if given, is a folder in which the work is kept after every pass; the same fit with the same
        folder goes on from there and ends alike (:mod:`onesided.storage.checkpoint`). It needs a seed as
        ``random_state``. ``progress``, if given, is called as work goes on with the passes made of the present step and
        a number that tells how it goes: the loss of a moment solution, the mean logarithm of the noise variance when
        refining. If it has a method ``begin``, that is called before each step
        (:func:`onesided.fitting.solvers.result.begin`).
        """
        self._validate_params()
        began = perf_counter()
        panel = self._read_for_fit(X)
        if self.privacy is not None:
            try:
                self._fit_privately(panel, self.privacy, progress, checkpoint)
            except BaseException:  # what was read of the rows must not stay
                self._forget()
                raise
        else:
            rng = generator(self.random_state)
            with explaining_gpu_memory():
                self._fit_openly(with_weights_as_counts(self._placed(panel)), rng, progress, checkpoint)
        self.making_ = Provenance(perf_counter() - began if self.privacy is None else None)
        return self

    def _fit_openly(
        self,
        panel: PanelLike,
        rng: np.random.Generator,
        progress: Progress | None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        check_fittable(panel, 0 if self.rank == "auto" else self.rank)
        check_noise(self.noise_variance, panel.n_columns)
        kept = Checkpoint.of(checkpoint, partial(fingerprint, panel), self.get_params())
        setting, selection = self._choose(panel, rng, progress, kept)
        # One seed for each, drawn whether or not the work was done before.
        seeds = [int(seed) for seed in rng.integers(2**31, size=2)]
        begin(progress, f"rank {setting.rank}, four fifths of the rows", cost(setting.rank), 2 * cost(setting.rank))
        blend = self._choose_blend(panel, setting, seeds[0], progress, kept.work("blends"))
        self.blend_, self.mean_blend_ = blend.pairs, blend.means
        begin(progress, f"rank {setting.rank}, all rows", 2 * cost(setting.rank), 0.0)
        found = fit_row_space(panel, setting, seeds[1], progress=progress, work=kept.work("fit"))
        self.selection_, self.solve_ = selection, found.solve
        self.rank_, self.center_, self.diagonal_ = setting.rank, setting.center, setting.diagonal
        self.refinement_ = found.refinement
        if not found.solve.succeeded:
            warnings.warn(found.solve.message, ConvergenceWarning, stacklevel=3)
        self.mean_, self.noise_variance_ = found.mean, found.noise_variance
        self.row_variance_, self.spread_ = found.row_variance, found.spread
        self.factor_ = found.factor
        self.row_noise_ = BestLinearPredictor.of(found).learn_row_noise(panel)
        self.privacy_: Account | None = None
        self._set_row_space(Measured.from_panel(panel), panel.at_home(), engine_for(panel).array)
        warn_of_parts(self.measured_, stacklevel=4)

    def _fit_privately(
        self,
        panel: PanelLike,
        privacy: Privacy,
        progress: Progress | None,
        checkpoint: str | PathLike[str] | None,
    ) -> None:
        if self.device not in ("cpu", "auto"):
            raise InputError(f"a private fit runs on the processor; found device={self.device!r}: leave it out")
        if checkpoint is not None:
            raise InputError("a checkpoint would keep on disk what is not released: leave it out of a private fit")
        panel = privacy.admit(placed(panel, "cpu", engine=self.engine))
        self.n_features_in_, self.column_ids_, self._has_ids = (
            panel.n_columns,
            panel.column_ids,
            panel.has_column_ids,
        )
        if hasattr(self, "feature_names_in_"):  # those that the rows have; ids are those of the plan
            del self.feature_names_in_
        rng = generator(self.random_state)  # for what is public alone: the start
        curator = Curator.of(panel, privacy)
        if privacy.mechanism == "local":
            self._fit_openly(noised_values(curator), rng, progress)
            found = RowSpace(self.mean_, self.factor_, self.noise_variance_, self.solve_, self.row_variance_)
            self._hold(without_noise(curator, found, self.measured_))
            return
        rank = self._affordable_rank(panel)
        check_noise(self.noise_variance, panel.n_columns)
        release = release_by_gradient if privacy.mechanism == "gradient" else release_by_pairs
        center: Center = "both" if self.center == "auto" else self.center
        self.rank_, self.center_, self.diagonal_ = rank, center, "free"
        self.selection_, self.refinement_ = None, None
        self._hold(release(curator, rank, center, rng, progress))

    def _hold(self, released: Released) -> None:
        """Of a private fit, what was released and nothing else."""
        found = released.row_space
        self.solve_, self.factor_, self.row_variance_ = found.solve, found.factor, found.row_variance
        self.mean_, self.noise_variance_, self.spread_ = found.mean, found.noise_variance, None
        self.row_noise_, self.blend_, self.mean_blend_ = RowNoise(), np.inf, np.inf
        self.privacy_ = released.account
        self._set_row_space(released.measured, None)

    def _affordable_rank(self, panel: PanelLike) -> int:
        """The rank given, where nothing is asked for that the budget does not pay."""
        if self.rank == "auto":
            raise InputError(
                'rank="auto" tries many ranks on the same rows, which no part of the budget pays for: give a rank, '
                "chosen on other data or by what is known of the subject"
            )
        if self.center == "none":
            raise InputError('center="none" is not for a private fit, which counts from the middle of the bounds')
        asked = {"refine": (self.refine, "auto", "none"), "diagonal": (self.diagonal, "auto", "free")}
        for name, (given, *free) in (asked | {"blend": (self.blend, "auto", None)}).items():
            if given not in free:
                raise InputError(
                    f"{name}={given!r} would go over the rows again, which no part of the budget pays for: "
                    f"leave {name} out of a private fit"
                )
        if panel.n_columns == 1:
            raise InputError("the panel has one column (n_features = 1); a row space needs at least two")
        if self.rank > panel.n_columns:
            raise InputError(
                f"rank={self.rank} is larger than the panel's {panel.n_columns} columns; choose at most "
                f"{panel.n_columns}"
            )
        return int(self.rank)

    def _placed(self, panel: PanelLike) -> PanelLike:
        """The panel where its passes are to run."""
        if self.rank != "auto":
            largest = int(self.rank)
        else:
            largest = max(affordable_ranks(panel.n_columns, self._refines(panel.n_columns)), default=0)
        return placed(panel, self.device, engine=self.engine, rank=largest, deterministic=self.deterministic)

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

    def _choose(
        self, panel: PanelLike, rng: np.random.Generator, progress: Progress | None, checkpoint: Checkpoint
    ) -> tuple[Setting, Selection | None]:
        """The setting to fit: what was given, and the rest by held-out rows."""
        refined = self._refines(panel.n_columns)
        if self.refine == "auto" and not refined:
            needed = working_memory(panel.n_columns, 1 if self.rank == "auto" else self.rank)
            warnings.warn(
                f"the moment solution is not refined: for {panel.n_columns:,} columns that would take "
                f'{needed / 2**30:.1f} GiB; pass refine="variational" to do it nevertheless, or "none" to silence this',
                stacklevel=4,
            )
        setting = self._setting(
            0 if self.rank == "auto" else self.rank,
            "columns" if self.center == "auto" else self.center,
            "free" if self.diagonal == "auto" else self.diagonal,
            refined,
        )
        if "auto" not in (self.rank, self.center, self.diagonal):
            return setting, None
        if not enough_rows(panel):
            warnings.warn(
                f"fewer than ten rows have two entries: too few to choose by holding some out; rank={setting.rank}, "
                f"center={setting.center!r} and diagonal={setting.diagonal!r} are taken: name others to change that",
                stacklevel=4,
            )
            return setting, None
        selection = select(
            panel,
            setting,
            ranks=affordable_ranks(panel.n_columns, refined) if self.rank == "auto" else None,
            centers=CENTERS if self.center == "auto" else (),
            diagonals=DIAGONALS if self.diagonal == "auto" else (),
            rule=self.rule,
            rng=rng,
            progress=progress,
            checkpoint=checkpoint,
        )
        return selection.setting, selection

    def _setting(self, rank: int, center: Center, diagonal: Diagonal, refined: bool) -> Setting:
        return Setting(
            rank, center, diagonal, refined, self.weight_exponent, self.ridge, tol=self.tol, max_passes=self.max_passes
        )

    def fitted_setting(self) -> Setting:
        """What the row space was fitted with, to fit it to other rows
        (:func:`onesided.fitting.selection.fit_row_space`).

        >>> model = OneSidedCompletion(1, center="columns", diagonal="free")
        >>> model.fit([[1.0, 2.0], [2.0, 4.0], [3.0, 1.0]]).fitted_setting().rank
        1
        """
        check_is_fitted(self)
        return self._setting(self.rank_, self.center_, self.diagonal_, self.refinement_ is not None)

    def _choose_blend(
        self, panel: PanelLike, setting: Setting, seed: int, progress: Progress | None, work: Work
    ) -> Blend:
        if self.blend is None or self.privacy is not None or (self.blend == "auto" and not enough_rows(panel)):
            return Blend()  # a private model has no panel to measure entries in
        if self.blend != "auto":
            return Blend(float(self.blend))

        def fit(rows: PanelLike) -> RowSpace:
            return fit_row_space(rows, setting, seed, passes=SEARCH_PASSES, progress=progress, work=work)

        return Blend(**work.done(lambda: asdict(choose_blend(panel, fit, seed))))

    def _refines(self, n_columns: int) -> bool:
        if self.refine != "auto":
            return self.refine == "variational"
        return working_memory(n_columns, 1 if self.rank == "auto" else self.rank) <= MEMORY

    @explaining_gpu_memory()
    def transform(self, X: Any, *, unknown: Unknown = "refuse") -> Array:
        """Coordinates of rows on ``components_``: ``transform(X) @ components_ + mean_`` predicts them.

        One for each component: as many as the rank, and one more where there is a row effect.
        A row's coordinates are its posterior mean given its observed entries; they shrink towards zero when it
        has few.
        """
        predictor = self._predictor()
        coordinates = predictor.coordinates(self._read_for_use(X, unknown))
        return np.asarray(coordinates @ (predictor.loadings.T @ self.components_.T))

    @explaining_gpu_memory()
    def impute(self, X: Any, *, return_std: bool = False, unknown: Unknown = "refuse") -> Array | tuple[Array, Array]:
        """Rows filled in, as a dense array; observed entries stay as they are.

        With ``return_std=True`` also the predictive standard deviation of each value, zero where it was
        observed. For many rows and columns use :meth:`impute_at`, which never forms them all.
        """
        panel, predictor = self._read_for_use(X, unknown), self._predictor()
        n, d = panel.shape
        check_room(
            16 * (1 + int(return_std)) * n * d,
            f"{n:,} rows filled in, of {d:,} columns each, would take {{size}}",
            "ask for some rows at a time, or for the values wanted alone, by impute_at",
        )
        filled = predictor.impute(panel)
        return (filled, predictor.deviations(panel)) if return_std else filled

    @explaining_gpu_memory()
    def impute_at(
        self, X: Any, rows: Any, columns: Any, *, return_std: bool = False, unknown: Unknown = "refuse"
    ) -> Array | tuple[Array, Array]:
        """Predictions at positions of X: row positions and column positions of the model, of one length.

        An observed entry is predicted like any other, from all of its row.
        """
        panel = self._read_for_use(X, unknown)
        values, deviation = self._predictor().impute_at(panel, *check_positions(panel, rows, columns))
        return (values, deviation) if return_std else values

    def similar(self, column: Any, n: int = 10) -> list[Similar]:
        """The n columns that are most correlated with one, beyond means and row effects, best first.

        See :mod:`onesided.model.similarity` for what the correlation and its standard error are. Columns of other parts
        of the panel, and columns never seen beside another, are left out: nothing is known of them together.

        >>> from onesided import synthetic
        >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(2000, 20, 2, rng=0), 6, rng=1)
        >>> model = OneSidedCompletion(2, center="columns", random_state=0).fit(panel)
        >>> [(one.id, round(one.correlation, 1)) for one in model.similar(3, n=2)]
        [(17, 0.9), (19, 0.9)]
        """
        predictor = self._predictor()
        check_number(n)
        (position,) = self.second_moment_.column_index.positions([column])
        parts, supported = self.measured_.parts, self.measured_.supported
        linked = supported & (parts == parts[position]) & supported[position]
        linked[position] = False
        rho, others = correlations(predictor, position), np.flatnonzero(linked)
        best = others[np.argsort(-rho[others], kind="stable")[:n]]
        panel = self.second_moment_.panel
        if panel is None:
            return [Similar(_plain(self.column_ids_[j]), float(rho[j]), None, None) for j in best]
        errors = standard_errors(predictor, panel, position, best, np.random.default_rng(0))
        counts = self.second_moment_.shared_rows([position], best)[0] if len(best) else []
        return [
            Similar(_plain(self.column_ids_[j]), float(rho[j]), float(error), float(count))
            for j, error, count in zip(best, errors, counts, strict=True)
        ]

    @explaining_gpu_memory()
    def recommend(self, X: Any, n: int = 10, *, unknown: Unknown = "refuse") -> list[list[Recommended]]:
        """For each row of X, its n unseen columns of the highest predicted values, best first.

        With rank 0 these are the columns of the highest means, the same for every row. Columns never seen beside
        another are left out, as are those that no chain of rows links to any entry of the row.

        >>> model = OneSidedCompletion(1, center="columns", diagonal="free")
        >>> model = model.fit([[5.0, 4.0, 1.0], [4.0, 4.0, 2.0], [1.0, 2.0, 5.0]])
        >>> [one.id for one in model.recommend([[5.0, float("nan"), float("nan")]])[0]]
        [1, 2]
        """
        panel, predictor = self._read_for_use(X, unknown), self._predictor()
        check_number(n)
        best = best_unseen(predictor, panel, self.measured_.supported, n)
        rows = np.repeat(np.arange(panel.n_rows), [len(one) for one in best])
        columns = np.concatenate(best) if best else np.empty(0, dtype=np.int64)
        found = iter(zip(columns, *predictor.impute_at(panel, rows, columns), strict=True))
        return [
            [
                Recommended(_plain(self.column_ids_[j]), float(value), float(deviation))
                for j, value, deviation in islice(found, len(one))
            ]
            for one in best
        ]

    @explaining_gpu_memory()
    def bootstrap(
        self, *, replicates: int = 50, random_state: Any = None, progress: Replicated | None = None
    ) -> Bootstrap:
        """Bands for eigenvalues, angles and entries, by resampling the rows and fitting the moment solution again.

        The diagonal is free in these fits, whatever it was for the model: where columns vary on their own, too, a
        fitted one pushes the eigenvalues up, in each replicate alike, and bands miss the truth (on the digits of the
        README all four of rank 4 do). See :mod:`onesided.model.uncertainty` for what they cover and where they fail.
        Afterwards ``second_moment_[i, j]`` has a standard error for completed entries too. ``progress`` is called with
        the replicates made and their number.
        """
        check_is_fitted(self)
        if self.second_moment_.panel is None:
            raise InputError(
                "a bootstrap resamples rows, and this model has no panel: it was saved without, or fitted with privacy"
            )
        self.bootstrap_ = bootstrap(
            placed(
                self.second_moment_.panel,
                self.device,
                engine=self.engine,
                rank=self.rank_,
                deterministic=self.deterministic,
            ),
            rank=self.rank_,
            center=self.center_,
            diagonal="free",
            weight_exponent=self.weight_exponent,
            replicates=replicates,
            rng=generator(random_state),
            progress=progress,
        )
        self._set_row_space(self.measured_, self.second_moment_.panel)
        return self.bootstrap_

    def _set_row_space(
        self, measured: Measured, panel: PanelLike | None, array: Callable[[Array], Any] = np.asarray
    ) -> None:
        """``array`` brings the loadings to where they are turned to their axes."""
        self.measured_ = measured
        loadings = self._loadings()
        vectors = principal_axes(array(loadings))
        lengths = (vectors**2).sum(0) ** 0.5
        self.eigenvalues_ = host(lengths) ** 2
        self.components_ = host(vectors / namespace(lengths).where(lengths > 0, lengths, 1.0)).T
        if self.noise_variance is not None:
            measured = measured.without(self.noise_variance)
        self.second_moment_ = SecondMoment(
            loadings,
            measured,
            mean=self._blended_mean() if np.any(self.mean_) else None,
            column_ids=self.column_ids_,
            panel=panel,
            kappa=np.inf if panel is None else self.blend_,
            output="blend",
            bootstrap=getattr(self, "bootstrap_", None),
            common=int(self.row_variance_ > 0),
        )

    @property
    def covariance_(self) -> SecondMoment:
        """The second moment of values less the column means of ``second_moment_``: how columns vary together.

        The low-rank part is T's without the means. Measured pairs are of entries less these means, which are those of
        a column, not those of the rows that have both columns.
        """
        check_is_fitted(self)
        T, mean = self.second_moment_, self._blended_mean()
        measured = self.measured_.around(mean)
        return SecondMoment(
            self._loadings(),
            measured if self.noise_variance is None else measured.without(self.noise_variance),
            column_ids=self.column_ids_,
            panel=None if T.panel is None else T.panel.centred(mean),
            kappa=T.kappa,
            output="blend",
            common=int(self.row_variance_ > 0),
        )

    def _blended_mean(self) -> Array:
        return blended_means(self.mean_, self.measured_.means, self.measured_.counts, self.mean_blend_)

    def _loadings(self) -> Array:
        return RowSpace(self.mean_, self.factor_, self.noise_variance_, self.solve_, self.row_variance_).loadings

    def _predictor(self) -> BestLinearPredictor:
        check_is_fitted(self)
        return BestLinearPredictor(
            self.mean_,
            self._loadings(),
            self.noise_variance_,
            self.spread_,
            self.row_noise_,
            self.measured_.parts,
            common=int(self.row_variance_ > 0),
        )

    _saved_arrays: ClassVar[tuple[str, ...]] = (*OneSidedEstimator._saved_arrays, "noise_variance", "spread")
    _optional: ClassVar[tuple[str, ...]] = ("spread",)

    def _plain_parameters(self) -> dict[str, Any]:
        plain = super()._plain_parameters() | {"engine": "local", "device": "cpu"}  # of this machine, not of the model
        if self.privacy is not None:  # its columns are those of the model
            plain["privacy"] = asdict(self.privacy) | {
                "columns": "public" if self.privacy.columns == "public" else None
            }
        return plain

    @classmethod
    def _parameters_of(cls, plain: dict[str, Any]) -> dict[str, Any]:
        plan = plain.get("privacy")
        if plan is None:
            return plain
        return plain | {"privacy": Privacy(**(plan | {"bounds": tuple(plan["bounds"])}))}

    def _fitted_settings(self) -> dict[str, Any]:
        if self.privacy is not None and self.privacy_ is None:
            raise InputError(
                "the model was fitted before it was given its privacy plan, and holds the rows as they are: fit it "
                "again, or pass privacy=None to set_params"
            )
        chosen = {name: getattr(self, f"{name}_") for name in ("rank", "center", "diagonal", "row_variance")}
        chosen["refinement"] = None if self.refinement_ is None else asdict(self.refinement_)
        counts = {"blend": self.blend_, "mean_blend": self.mean_blend_, "row_pull": self.row_noise_.shrinkage}
        chosen |= {name: one if np.isfinite(one) else None for name, one in counts.items()}  # JSON has no infinity
        chosen["row_level"] = self.row_noise_.level
        chosen["making"] = asdict(self.making_)
        chosen["columns_listed"] = self.privacy is not None and self.privacy.columns not in (None, "public")
        chosen["privacy"] = None if self.privacy_ is None else asdict(self.privacy_)
        return chosen | {"selection": None if self.selection_ is None else asdict(self.selection_)}

    def _restore(self, fitted: dict[str, Any]) -> None:
        tried = fitted["selection"]
        for name in ("rank", "center", "diagonal", "row_variance"):
            setattr(self, f"{name}_", fitted[name])
        self.refinement_ = None if fitted["refinement"] is None else Refinement(**fitted["refinement"])
        self.blend_, self.mean_blend_, shrinkage = (
            np.inf if one is None else one for one in (fitted["blend"], fitted.get("mean_blend"), fitted["row_pull"])
        )
        self.row_noise_ = RowNoise(shrinkage, fitted["row_level"])
        self.making_ = Provenance(**fitted.get("making", {"versions": {}}))
        spent = fitted.get("privacy")
        self.privacy_ = None
        if spent is not None:
            if fitted["columns_listed"] and self.privacy is not None:
                self.privacy = replace(self.privacy, columns=tuple(self.column_ids_.tolist()))
            releases = tuple(Release(**one) for one in spent.pop("releases"))
            self.privacy_ = Account(**spent, releases=releases)
        self.selection_ = None
        if tried is not None:
            trials = tuple(Trial(**one) for one in tried["trials"])
            self.selection_ = Selection(Setting(**tried["setting"]), trials)


def check_number(n: Any) -> None:
    """Refuse a number of columns that is not a whole one of at least one."""
    if not isinstance(n, Integral) or int(n) < 1:
        raise InputError(f"n={n!r}: expected a whole number of at least 1")


def _plain(one: Any) -> Any:
    return one.item() if isinstance(one, np.generic) else one


def check_noise(noise_variance: Any, n_columns: int) -> None:
    """Refuse a known noise variance that is not one number, or one for each column, at least zero."""
    if noise_variance is None:
        return
    given = np.asarray(noise_variance)
    right = given.shape in ((), (n_columns,)) and given.dtype.kind in "iuf"
    if not right or not np.all(np.isfinite(given) & (given >= 0)):
        raise InputError(
            f"noise_variance must be a number, or one for each of the {n_columns} columns, finite and at least 0; "
            f"found {given.dtype} of shape {given.shape}"
        )
