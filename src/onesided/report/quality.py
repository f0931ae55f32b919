"""How good it is, told by rows that were held out: predictions, their intervals, and T itself."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar

import numpy as np

from onesided.errors import counted
from onesided.estimators.completion import OneSidedCompletion
from onesided.panels.panel import Panel
from onesided.report.formatting import number, percent_with_error, places_for, share, with_error
from onesided.report.held_out import Coverage, Refit, Score, coverage, earned, scores
from onesided.report.page import Section, definitions, figure, sentence, side_by_side, table, text
from onesided.report.pair_chart import pair_chart, pair_table
from onesided.report.pair_errors import PairErrors
from onesided.report.svg import FIRST, MUTED, drawn, plain_numbers

TELLING = 0.05  # an interval of a coverage wider than this to either side does not tell much
CALLED = {"constant": "one number for all", "column means": "column means", "model": "the model"}


@dataclass(frozen=True, eq=False)
class QualitySection(Section):
    """Scores on held-out rows; ``why_not`` is a sentence where there are none.

    >>> from onesided import synthetic
    >>> panel = synthetic.sample_fixed(synthetic.linear_mixture(500, 12, 1, rng=0), 5, rng=1)
    >>> model = OneSidedCompletion(1, center="columns", diagonal="free").fit(panel)
    >>> found = QualitySection.of(model, panel)
    >>> found.scores["model"].explained > 0.5
    True
    """

    title: ClassVar[str] = "How good it is"
    anchor: ClassVar[str] = "quality"

    scores: dict[str, Score] = field(default_factory=dict)
    coverage: tuple[Coverage, ...] = ()
    pair_errors: PairErrors | None = None
    rows_fitted: int = 0
    rows_scored: int = 0
    entries_scored: int = 0
    entries_taken_out: int = 0
    sampled: bool = False
    weighted: bool = False  # whether rows have weights other than one
    earned: bool | None = None  # whether components do better than a model without
    scaled: bool = False  # whether scores and errors of T are of values in units of their columns' scales
    rmse_of_values: dict[str, float] = field(default_factory=dict)  # in the units of the values in any case
    why_not: str = ""

    @classmethod
    def of(cls, model: OneSidedCompletion, panel: Panel | None, seed: int = 0) -> QualitySection:
        """Fit the setting of a model again to four fifths of the rows, and score the others."""
        if model.privacy_ is not None:
            return cls(
                why_not="The model is differentially private. Scores on its rows would be exact numbers about them, "
                "which no part of the budget has paid for: none are given. With rows that took no part in the fit, if "
                "there are any, it can be checked: leave an entry out of its row, predict it with model.impute_at(), "
                "and compare."
            )
        if panel is None:
            return cls(
                why_not="The model was saved without its panel. To see how it does on rows held out, name the panel "
                "(--panel, in Python panel=)."
            )
        rng = np.random.default_rng(seed)
        refit = Refit.of(model, panel, rng)
        if refit is None:
            return cls(why_not="Fewer than ten rows have two entries: too few to hold some out.")
        scored, of_values, scaled = refit.scored(), scores(refit), model.row_space_.in_own_units
        in_units = refit.in_scales() if scaled else refit
        by_predictor = scores(in_units) if scaled else of_values
        covered, taken_out = coverage(refit, rng)
        return cls(
            by_predictor,
            covered,
            PairErrors.of(in_units, rng),
            int(np.count_nonzero(refit.train.row_weights[refit.train.row_counts > 0])),
            scored.n_rows,
            scored.n_entries,
            taken_out,
            refit.sampled,
            bool(np.any(scored.row_weights != 1)),
            earned(refit, by_predictor),
            scaled,
            {name: score.rmse for name, score in of_values.items()},
        )

    @property
    def in_short(self) -> str:
        """What an entry is off, and how intervals do, in a sentence."""
        if not self.scores:
            return ""
        model, means = self.scores["model"], self.scores["column means"]
        return (
            f"On held-out rows an entry is predicted with an RMSE of {number(model.rmse)} {self._in_units} (column "
            f"means: {number(means.rmse)}); {share(self._ninety.share)} of entries lie in their 90% intervals."
        )

    @property
    def _in_units(self) -> str:
        return "in units of the columns' scales" if self.scaled else "in the units of the values"

    @property
    def _ninety(self) -> Coverage:
        return next(covered for covered in self.coverage if covered.level == 0.9)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        if not self.scores:
            return {"scored": False, "why_not": self.why_not}
        return {
            "scored": True,
            "rows_fitted": self.rows_fitted,
            "rows_scored": self.rows_scored,
            "entries_scored": self.entries_scored,
            "rows_sampled": self.sampled,
            "units": "scales" if self.scaled else "values",
            "rmse_in_units_of_values": {name.replace(" ", "_"): rmse for name, rmse in self.rmse_of_values.items()},
            "scores": {name.replace(" ", "_"): asdict(score) for name, score in self.scores.items()},
            "entries_taken_out": self.entries_taken_out,
            "coverage": [asdict(score) for score in self.coverage],
            "pair_errors": None if self.pair_errors is None else asdict(self.pair_errors),
        }

    def body(self) -> str:
        if not self.scores:
            return sentence(text(self.why_not))
        sampled = "The model itself, fitted to all rows,"
        if self.sampled:
            sampled = "The panel is large: these are rows drawn from it at random, and the model, fitted to all,"
        tried = f"{counted(self.rows_scored, 'row')} with {counted(self.entries_scored, 'entry', 'entries')}"
        terms = {
            "RMSE": "the root of the mean squared difference between an entry of a held-out row and its prediction "
            f"from the others of the row, {self._in_units}. ± is one standard error, rows being independent.",
            "explained": "1 − Σe² / Σ(v − m)², m the mean of the entry's column in the rows fitted (of a "
            "column that none of them has, the mean of all their entries): of the variance around column "
            "means, the share that is predicted. Below zero, column means alone do better.",
            "log score": f"the mean of −½ (log 2πs² + e²/s²), in nats, e and s {self._in_units}; the trivial "
            "predictors take as s² their mean squared error in the rows fitted.",
            "held, of intervals": "an entry is taken out of its row and predicted from the rest; the "
            "interval is the prediction ± 0.674, 1.282, 1.645 or 1.960 predicted standard deviations.",
            "relative error of T": "√(Σ N (L − T)² / Σ N T²) over pairs of different columns, L the estimate from the "
            "rows fitted, T the mean product in held-out rows, whose own sampling noise has been taken off both sums, "
            f"N {'the weight of the' if self.weighted else 'how many'} held-out rows "
            f"{'that ' if self.weighted else ''}have the pair (two or more); for column means, L is the product of "
            "the two in the rows fitted. In brackets a 90% interval, by a jackknife over groups of held-out rows. “At "
            "most”: the error cannot be told from zero. Better or worse than means: by more than such an interval of "
            "the difference of the two squared errors."
            + (" T is that of values in units of the columns' scales." if self.scaled else ""),
        }
        how = sentence(
            f"The model's setting was fitted again to {counted(self.rows_fitted, 'row')} and tried on {tried} that "
            "took no part in it.",
            "Rows count by their weights." if self.weighted else "",
            f"{sampled} can be a little better than the numbers here.",
            self._about_units(),
        )
        pictures = side_by_side([self._calibration(), pair_chart(self.pair_errors)])
        return how + self._table() + pictures + pair_table(self.pair_errors) + definitions(terms)

    def _about_units(self) -> str:
        if not self.scaled:
            return ""
        model, means = (number(self.rmse_of_values[name]) for name in ("model", "column means"))
        return (
            "Scores and errors of T are of values in units of the columns' scales, so that all columns count. In the "
            f"units of the values the RMSE is {model} (column means: {means}), which columns of large scales make up."
        )

    def _table(self) -> str:
        places = places_for(self.scores["model"].rmse_error)
        rows = []
        for name, score in self.scores.items():
            rmse, log_score = (score.rmse, score.rmse_error, places), (score.log_score, score.log_error)
            explained = percent_with_error(score.explained, score.explained_error)
            explained = "0, by definition" if name == "column means" else explained
            rows.append([CALLED[name], with_error(*rmse), explained, with_error(*log_score)])
        head = ["predictor", "RMSE, in scales" if self.scaled else "RMSE", "explained", "log score"]
        return table("Entries of held-out rows, each predicted from its row", head, rows, numbers=[1, 2, 3], chosen=2)

    def _calibration(self) -> str:
        levels, held, errors = 100 * np.array([astuple(covered) for covered in self.coverage]).T

        def draw(axis: Any) -> None:
            low = min(45.0, float(np.floor(held.min() / 5) * 5) - 5)
            axis.plot([low, 100], [low, 100], color=MUTED, linewidth=0.9, linestyle="--", label="as promised")
            axis.errorbar(levels, held, errors, fmt="o", color=FIRST, markersize=5, label="held (± 1 se)")
            axis.set(xlabel="promised (% of entries)", ylabel="held (% of entries)", xticks=levels)
            axis.set(xlim=(44, 101), ylim=(max(low, -2), 101))
            plain_numbers(axis.xaxis)
            plain_numbers(axis.yaxis)
            axis.legend(loc="lower right")

        all_four = ", ".join(f"{share(covered.share)} at {covered.level:.0%}" for covered in self.coverage)
        return figure(
            drawn("calibration", draw, height=3.1),
            "Chart: the share of entries that intervals hold against the share they promise, at four levels",
            f"Intervals that promise 90% hold {share(self._ninety.share)} ± {number(100 * self._ninety.error, 2)}% of "
            f"{counted(self.entries_taken_out, 'entry', 'entries')}: {_verdict(self._ninety)}. All four: {all_four}.",
        )


def _verdict(covered: Coverage) -> str:
    gap = covered.share - covered.level
    if abs(gap) > max(0.01, 2 * covered.error):
        return "wider than need be" if gap > 0 else "too narrow"
    doubtful = f"no contradiction to {covered.level:.0%}, but too few to tell"
    return "as promised" if 2 * covered.error <= TELLING else doubtful
