"""How it was made: settings, seed, versions and seconds, how the passes ended; of a private fit, what was spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from onesided import __version__
from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.blending import FEWEST_ROWS, HELD_OUT, MOST_PRODUCTS
from onesided.fitting.refinement import TOLERANCE
from onesided.panels.panel import Panel
from onesided.privacy.curator import Account
from onesided.report.formatting import number, share
from onesided.report.page import Section, definitions, facts, sentence, table, text

NEIGHBOURS = {
    "add-remove": "one row more or less",
    "replace": "one row replaced by another",
    None: "other values in one row, in the same columns",
}


@dataclass(frozen=True, eq=False)
class ProvenanceSection(Section):
    """What is needed to make the model again.

    >>> model = OneSidedCompletion(1, center="columns", diagonal="free", refine="none", random_state=3)
    >>> model = model.fit([[1.0, 2.0], [2.0, 4.0]])
    >>> ProvenanceSection(model).to_dict()["settings"]["random_state"]
    3
    """

    title: ClassVar[str] = "How it was made"
    anchor: ClassVar[str] = "made"

    model: OneSidedCompletion
    panel: Panel | None = None  # tells more of the blend
    seed: int = 0  # of the report's own draws
    weighted: bool = False  # whether "rows" are a weight

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: _plain(name, value) for name, value in sorted(self.model.get_params(deep=False).items())}

    @property
    def _fitted(self) -> dict[str, Any]:
        return {"rank": self.model.rank_, "center": self.model.center_, "diagonal": self.model.diagonal_}

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        model, ended = self.model, self.model.refinement_
        return {
            "settings": self._settings,
            "fitted": self._fitted,
            "seconds": model.making_.seconds,
            "versions": dict(model.making_.versions),
            "solver": model.solve_.status,
            "refinement": None if ended is None else {"passes": ended.passes, "change": ended.change},
            "blend": float(model.blend_) if np.isfinite(model.blend_) else None,
            "mean_blend": float(model.mean_blend_) if np.isfinite(model.mean_blend_) else None,
            "privacy": None if model.privacy_ is None else _account(model.privacy_),
            "report": {"version": __version__, "seed": self.seed},
        }

    def body(self) -> str:
        return "".join([*self._privacy(), facts("The fit", self._fit()), self._given(), self._defined()])

    def _fit(self) -> list[tuple[str, str]]:
        model, seconds, private = self.model, self.model.making_.seconds, self.model.privacy_ is not None
        why = ": how long a private fit takes depends on its rows" if private else ""
        versions = ", ".join(f"{name} {version}" for name, version in model.making_.versions.items())
        measured = [
            ("measured pairs in T", self._blended(model.blend_, _why_not_pairs(model, self.panel))),
            ("measured means in T", self._blended(model.mean_blend_, _why_not_means(model, self.panel))),
        ]
        return [
            ("moment solution", text(model.solve_.message)),
            ("refinement", self._refinement()),
            *([] if private else measured),
            ("time to fit", f"not told{why}" if seconds is None else f"{number(seconds)} s"),
            ("fitted with", text(versions or "not recorded")),
            ("this page", f"onesided {text(__version__)}, seed {self.seed}"),
        ]

    def _blended(self, kappa: float, why_not: str) -> str:
        if not np.isfinite(kappa):
            return f"not averaged in: {why_not}"
        if kappa == 0:
            return "they stand alone wherever there are any; the model counts for nothing beside them"
        rows = f"a weight of {number(kappa)}" if self.weighted else f"{number(kappa)} {'row' if kappa == 1 else 'rows'}"
        return f"averaged in; the model counts for {rows}"

    def _refinement(self) -> str:
        ended = self.model.refinement_
        if ended is None:
            return "none: the moment solution stands as it is"
        made = counted(ended.passes, "variational pass", "variational passes")
        how = f"stopped at the limit of {made}, not quite settled"
        if ended.settled:
            how = f"converged after {made}"
        elif ended.passes < self.model.refine_passes:
            how = f"ended after {made}, as more predict held-out entries no better"
        moved = f"{number(ended.change)} of their size (settled below {number(TOLERANCE)})"
        return f"{how}; the last moved means and components by {moved}"

    def _given(self) -> str:
        rows = [
            [f"<code>{text(name)}</code>", text(_in_words(value)), text(_in_words(self._fitted.get(name, value)))]
            for name, value in self._settings.items()
            if name != "privacy" or value is not None
        ]
        return table("Settings of the fit", ["setting", "given", "used"], rows)

    def _privacy(self) -> list[str]:
        account = self.model.privacy_
        if account is None:
            return []
        local = account.mechanism == "local"
        head = ["released", "numbers", "sensitivity", "noise", "share of μ²"]
        rows = [
            [
                text(release.what),
                "one for each entry" if local else f"{release.numbers:,}",
                number(release.sensitivity),
                number(release.deviation),
                share(release.mu**2 / account.mu**2),
            ]
            for release in account.releases
        ]
        return [
            "<h3>The account of privacy</h3>",
            sentence(
                f"The fit is ({number(account.epsilon)}, {number(account.delta)})-differentially private with the "
                f"{text(account.mechanism)} mechanism; neighbouring panels differ by {NEIGHBOURS[account.neighbours]}.",
                "All that the model and this page know of the rows' values was made from values with noise on them, "
                "added before anything else was done. Which entries exist is not protected and not private with this "
                "mechanism: the model knows which columns were seen, which of them rows link, how many rows a column "
                "has on average and how many entries the longest row has, without noise."
                if local
                else "All that the model and this page know of the rows was released with noise: means, variances and "
                "counts of columns have noise on them, and so has everything made of them. No exact number about the "
                "rows is on this page.",
            ),
            table("What was released, and what it cost", head, rows, numbers=[1, 2, 3, 4]),
            sentence(
                f"Together μ = {number(account.mu)}; at ε = {number(account.epsilon)} that spends "
                f"δ = {number(account.spent_delta)} of {number(account.delta)}."
            ),
        ]

    def _defined(self) -> str:
        terms = {
            "moment solution": "the factor that fits the mean products of pairs of columns, each pair by its count.",
            "refinement": "passes that integrate the rows out and estimate every variance.",
            "measured pairs, means in T": f"{'which weight of' if self.weighted else 'how many'} rows the model counts "
            "for beside a measured product of two columns, or a measured mean, when both are averaged in T.",
            "time to fit": "in seconds on a clock, choosing included.",
        }
        if self.model.privacy_ is not None:
            terms |= {
                "sensitivity": "by how much one person can move a released vector, in units of half the width of the "
                "bounds.",
                "noise": "the standard deviation added to each released number, in the same units.",
                "μ": "sensitivity over noise, the parameter of Gaussian differential privacy; its squares add up.",
            }
        return definitions(terms)


def _why_not_pairs(model: OneSidedCompletion, panel: Panel | None) -> str:
    """Why measured pairs are not averaged in, where they are not."""
    if model.blend is None:
        return "it was not asked for, blend being none"
    if panel is None:
        return "held-out rows did not say that it helps, or were too few to say; without the panel it cannot be told"
    if np.sum(panel.row_counts.astype(np.float64) ** 2) > MOST_PRODUCTS:
        return "the panel has too many pairs for that"
    pairs = int(np.count_nonzero((panel.row_weights > 0) & (panel.row_counts > 1)))
    if -(-pairs // HELD_OUT) < FEWEST_ROWS:
        return f"too few rows have two entries to hold {FEWEST_ROWS} of them out and see whether it helps"
    return "on held-out rows the model alone does as well"


def _why_not_means(model: OneSidedCompletion, panel: Panel | None) -> str:
    if model.center_ == "none":
        return "the model has no means"
    if model.blend not in (None, "auto"):
        return "blend was given as a number, which is about pairs alone"
    return _why_not_pairs(model, panel)


def _account(account: Account) -> dict[str, Any]:
    """The account, as JSON takes it; how many values the local mechanism released is how many entries there were."""
    releases = [
        asdict(release) | ({"numbers": None} if account.mechanism == "local" else {}) for release in account.releases
    ]
    return asdict(account) | {"releases": releases, "mu": account.mu}


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON and a table take it."""
    if name == "privacy":
        return None if value is None else "see the account"
    if name == "random_state":
        return int(value) if isinstance(value, Integral) else None if value is None else "a generator"
    if isinstance(value, np.ndarray | list | tuple):
        return f"{np.size(value):,} numbers"
    return value.item() if isinstance(value, np.generic) else value


def _in_words(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return number(float(value), 4) if isinstance(value, int | float) else str(value)
