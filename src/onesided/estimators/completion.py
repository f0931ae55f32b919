"""The estimator: ``OneSidedCompletion``, passes over rows.

A scikit-learn estimator and a thin shell: a panel goes in, a fit (:mod:`onesided.fitting.fit`, or with a plan
:mod:`onesided.privacy.fit`) makes a row space of it, and the row space (:mod:`onesided.model.row_space`) answers. What
``fit`` refuses, beside what no panel may hold (:mod:`onesided.panels.panel`) and parameters outside their ranges:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
no entry at all                                        nothing was observed: …
a single column                                        the panel has one column (n_features = 1) …
a path or a dataset of Ray, without ``engine="ray"``   found the path ratings/, which engine='ray' reads …
no row with two entries                                no row has two observed entries …
a rank above the number of columns                     rank=12 is larger than the panel's 5 columns …
a private fit with a checkpoint                        a checkpoint would keep on disk what is not released …
``bootstrap()`` of a private fit                       a bootstrap resamples rows, and this model has no panel …
a private fit with a GPU as ``device``                 a private fit runs on the processor …
=====================================================  ========================================================

With ``privacy``, what :mod:`onesided.privacy.fit` refuses; with a GPU as ``device``, what :mod:`onesided.engines.gpu`
refuses.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from numbers import Integral, Real
from os import PathLike
from time import perf_counter
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from onesided.engines.engine import engine_for
from onesided.engines.placement import explaining_gpu_memory, placed
from onesided.errors import InputError
from onesided.estimators.answers import AnsweringEstimator
from onesided.estimators.base import generator, warn_of_parts
from onesided.estimators.parameters import Interval, StrOptions, check_noise
from onesided.estimators.saving import stored_account, stored_provenance, stored_refinement, stored_selection
from onesided.fitting.fit import Auto, Options, Outcome, fit
from onesided.fitting.objective.rows import Diagonal
from onesided.fitting.refinement import Refine
from onesided.fitting.selection import Rule, Selection
from onesided.fitting.setting import REFINE_PASSES, Center, Setting, check_fittable, with_weights_as_counts
from onesided.fitting.solvers.result import Progress
from onesided.model.row_space import RowSpace
from onesided.panels.fingerprint import fingerprint
from onesided.panels.panel_like import PanelLike
from onesided.privacy.curator import Account
from onesided.privacy.fit import fit_privately
from onesided.privacy.plan import Privacy
from onesided.storage.checkpoint import Checkpoint
from onesided.storage.provenance import Provenance


class OneSidedCompletion(AnsweringEstimator):
    """The second moment and row space of a sparse panel. Nothing needs to be set.

    A moment solution, in which every pair of columns weighs by its count, is found in passes over the rows: it
    minimises ½ Σ_ij N_ij (x_iᵀx_j − T̂_ij)² + ρ Σ_j ‖x_j‖², and the pair matrix is never formed. Variational passes
    (:mod:`onesided.fitting.refinement`) then integrate the rows out and estimate every variance. Rank, center and
    diagonal are chosen by how well held-out entries are predicted (:mod:`onesided.fitting.selection`).

    A row of weight two counts as two rows. Where all weights are below one they are relative: their mean becomes one.

    Parameters
    ----------
    rank : int or "auto", default "auto"
        Columns of the factor; 0 for means and row effects alone.
    center : "auto", "none", "columns" or "both", default "auto"
        What is in the model beside the factor: nothing, column means, or also an effect of each row, of variance τ²s_j²
        in a column of scale s_j. T = μμᵀ + τ²ssᵀ + XXᵀ + diagonal. "auto" chooses between the last two.
    diagonal : "auto", "free" or "fit", default "auto"
        Whether the moment solution must also explain the second moment of each column by itself. "fit" is for
        panels that are exactly of low rank; where columns have a variance of their own, it ruins the low-rank part.
    refine : "auto", "none" or "variational", default "auto"
        Whether the moment solution is refined; "auto": where covariances, columns × rank², take at most half a GiB.
    rule : "two-standard-errors", "one-standard-error" or "best", default "two-standard-errors"
        Of the settings tried, the one of lowest rank among those that score within two standard errors of the best, or
        within one, or the best. With any rule, rank 0 where it is within two.
    weight_exponent : float, default -0.5
        In the moment solution each pair of a row of m entries weighs m to this power, from -10 to 10, times its weight.
    ridge : float, default 1.0
        ρ in units of the sampling noise in the sums of products.
    scale : "auto" or "none", default "auto"
        Whether columns are measured in units of their own (:mod:`onesided.fitting.scales`): where people stand beside
        percentages, every column then counts by what is known of it, not by how large its values are. Where anything is
        chosen on held-out rows, so is whether they share a unit. "none" measures all in one, as private fits do.
    blend : "auto", float or None, default "auto"
        κ, a number of rows: ``second_moment_`` averages measured and completed entries, κ against the rows that
        measured a pair. "auto" takes it from held-out rows, and blends only where that helps; measured column means
        likewise (:mod:`onesided.fitting.blending`). None: only the diagonal is measured.
    noise_variance : float or array of d, optional
        Known variance of the measurement noise: it is taken off the diagonal of T, which does not fall below zero.
    tol : float, default 1e-6
        The moment solution is found when the decrease still expected is this share of the loss; refined, 1e-3 does.
    max_passes : int, default 300
        Passes over the rows for a moment solution at most.
    refine_passes : int, default 35
        Variational passes at most. A fit that has not settled by then says so.
    random_state : int, Generator, RandomState or None
        For the split of the rows and the start of the eigensolver. The same seed gives the same model at any number
        of threads, and but for rounding on any device.
    engine : "local" or "ray", default "local"
        Whether passes run on this machine or on the Ray cluster that Python is connected to, or else that Ray finds or
        starts here (``pip install 'onesided[cluster]'``; :mod:`onesided.engines.ray`). Then ``fit`` also takes a
        ``ray.data.Dataset`` or a path. Rows given later, to impute, travel there from a million entries on.
    device : "cpu", "cuda", "cuda:1", … or "auto", default "cpu"
        Where passes run: on this machine's processor or on a GPU (``pip install 'onesided[gpu]'``), in the precision of
        the values. "auto" takes a GPU if there is one and the panel has at least a million entries. A panel larger
        than the GPU's memory is streamed to it (:mod:`onesided.engines.gpu`). It is not part of a saved model.
    deterministic : bool, default False
        Whether the same seed gives the same bits on a GPU, too, as on the processor in any case, at the price of memory
        for the gradients of all entries, which are then added in one order, and of passes half as long again.
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
        κ': the rows that ``mean_`` counts for beside measured means in ``second_moment_``; infinite where it is alone.
    selection_ : Selection or None
        Every setting tried, with its held-out score; None where none was open, or fewer than ten rows have two entries.
    factor_ : array of d × rank
        X, with orthogonal columns, longest first.
    row_variance_ : float
        τ², the variance of the row effect in a column of scale one; 0 where there is none.
    scales_ : array of d
        s_j, the columns' units: their geometric mean over entries is one. Ones with ``scale="none"``.
    components_ : array
        Orthonormal basis of the row space, the span of X and, with a row effect, of s.
    eigenvalues_ : array
        Of τ²ssᵀ + XXᵀ, descending, one for each component.
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
        How many variational passes were made, and by how much the last one changed means and low-rank part; they
        end below 1e-3, where they have settled. None where the moment solution stands as it is.
    spread_ : array or None
        Posterior covariances of (mean, loadings) of each column, as lower halves; None where not refined.
    measured_ : Measured
        What is known of the panel without the panel: means, diagonal and counts of columns.
    bootstrap_ : Bootstrap
        After :meth:`bootstrap`.
    making_ : Provenance
        With which versions the model was fitted and in how many seconds; of a private fit, not the seconds.
    privacy_ : Account or None
        What a private fit spent on what. Its ``measured_`` holds what was released; "local" has the mean of the counts.
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
        "rule": [StrOptions({"two-standard-errors", "one-standard-error", "best"})],
        "weight_exponent": [Interval(Real, -10, 10, closed="both")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "scale": [StrOptions({"auto", "none"})],
        "blend": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"}), None],
        "noise_variance": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_passes": [Interval(Integral, 1, None, closed="left")],
        "refine_passes": [Interval(Integral, 1, None, closed="left")],
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
        rule: Rule = "two-standard-errors",
        weight_exponent: float = -0.5,
        ridge: float = 1.0,
        scale: Auto | Literal["none"] = "auto",
        blend: float | Auto | None = "auto",
        noise_variance: npt.ArrayLike | None = None,
        tol: float = 1e-6,
        max_passes: int = 300,
        refine_passes: int = REFINE_PASSES,
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
        self.scale = scale
        self.blend = blend
        self.noise_variance = noise_variance
        self.tol = tol
        self.max_passes = max_passes
        self.refine_passes = refine_passes
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
        ``random_state``. ``progress``, if given, is called as work goes on with the passes made of the present step
        and a number that says how it goes: the loss of a moment solution, the mean logarithm of the noise variance
        when refining. If it has a method ``begin``, that is called before each step
        (:func:`onesided.fitting.solvers.result.begin`).
        """
        self._validate_params()
        began = perf_counter()
        panel = self._read_for_fit(X)
        if self.privacy is None:
            self._fit_openly(panel, progress, checkpoint)
        else:
            try:
                self._fit_privately(panel, self.privacy, progress, checkpoint)
            except BaseException:  # what was read of the rows must not stay
                self._forget()
                raise
        self.making_ = Provenance(perf_counter() - began if self.privacy is None else None)
        return self

    @explaining_gpu_memory()
    def _fit_openly(self, panel: PanelLike, progress: Progress | None, folder: str | PathLike[str] | None) -> None:
        rng, options = generator(self.random_state), self._options()
        rank = options.largest_rank(panel.n_columns)
        there = placed(panel, self.device, engine=self.engine, rank=rank, deterministic=self.deterministic)
        there = with_weights_as_counts(there)
        check_fittable(there, options.lowest_rank)
        check_noise(self.noise_variance, panel.n_columns)
        checkpoint = Checkpoint.of(folder, partial(fingerprint, there), self.get_params())
        outcome = fit(there, options, rng, progress=progress, checkpoint=checkpoint)
        self._keep(outcome, there.at_home(), there)

    def _fit_privately(
        self, panel: PanelLike, privacy: Privacy, progress: Progress | None, folder: str | PathLike[str] | None
    ) -> None:
        if self.device not in ("cpu", "auto"):
            raise InputError(f"a private fit runs on the processor; found device={self.device!r}: leave it out")
        if folder is not None:
            raise InputError("a checkpoint would keep on disk what is not released: leave it out of a private fit")
        admitted = privacy.admit(placed(panel, "cpu", engine=self.engine))
        check_noise(self.noise_variance, admitted.n_columns)
        outcome, account = fit_privately(admitted, self._options(), privacy, generator(self.random_state), progress)
        self.n_features_in_ = admitted.n_columns
        if hasattr(self, "feature_names_in_"):  # those that the rows have; ids are those of the plan
            del self.feature_names_in_
        self._keep(outcome, None, None, account)

    def _options(self) -> Options:
        return Options(**{name: getattr(self, name) for name in Options.__dataclass_fields__})

    def _keep(
        self, outcome: Outcome, panel: PanelLike | None, there: PanelLike | None, account: Account | None = None
    ) -> None:
        """Hold what a fit has found; ``there`` is the panel where its passes ran."""
        chosen = outcome.setting
        self.rank_, self.center_, self.diagonal_ = chosen.rank, chosen.center, chosen.diagonal
        self.selection_: Selection | None = outcome.selection
        self.solve_, self.refinement_ = outcome.fit.solve, outcome.fit.refinement
        self.privacy_: Account | None = account
        self._hold(replace(outcome.fit.row_space, measurement_noise=self.noise_variance), panel, there)
        warn_of_parts(self.measured_)

    def _hold(self, space: RowSpace, panel: PanelLike | None, there: PanelLike | None = None) -> None:
        self.row_space_ = space
        self.components_, self.eigenvalues_ = space.components(np.asarray if there is None else engine_for(there).array)
        self.second_moment_ = space.second_moment(panel)

    def fitted_setting(self) -> Setting:
        """What the row space was fitted with, to fit other rows (:func:`onesided.fitting.row_space.fit_row_space`).

        >>> model = OneSidedCompletion(1, center="columns", diagonal="free")
        >>> model.fit([[1.0, 2.0], [2.0, 4.0], [3.0, 1.0]]).fitted_setting().rank
        1
        """
        check_is_fitted(self)
        given = self.selection_.setting if self.selection_ else self._options().setting(self.row_space_.n_columns)
        chosen = {name: getattr(self, f"{name}_") for name in ("rank", "center", "diagonal")}
        return replace(given, **chosen, refined=self.refinement_ is not None)

    def _fitted_settings(self) -> dict[str, Any]:
        if self.privacy is not None and self.privacy_ is None:
            raise InputError(
                "the model was fitted before it was given its privacy plan, and holds the rows as they are: fit it "
                "again, or pass privacy=None to set_params"
            )
        chosen = {name: getattr(self, f"{name}_") for name in ("rank", "center", "diagonal")}
        said = {name: getattr(self, f"{name}_") for name in ("refinement", "selection", "making", "privacy")}
        listed = self.privacy is not None and self.privacy.columns not in (None, "public")
        return chosen | {name: value and asdict(value) for name, value in said.items()} | {"columns_listed": listed}

    def _restore(self, fitted: dict[str, Any]) -> None:
        self.rank_, self.center_, self.diagonal_ = (fitted[name] for name in ("rank", "center", "diagonal"))
        self.refinement_ = stored_refinement(fitted["refinement"])
        self.selection_ = stored_selection(fitted["selection"])
        self.privacy_ = stored_account(fitted.get("privacy"))
        self.making_ = stored_provenance(fitted.get("making"))
