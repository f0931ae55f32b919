"""What every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from onesided.arrays import Array
from onesided.errors import counted

Status = Literal["converged", "completed", "limit", "stalled", "diverged"]
ValueAndGradient = Callable[[Any], tuple[float, Any]]
Progress = Callable[[int, float], None]  # called with the passes made so far and the loss

STEP = "begin"  # what a progress may have beside: told which step begins, its cost, and what may follow at most


def begin(progress: Progress | None, what: str, cost: float, left: float) -> None:
    """Tell a progress that asks for it which step begins, what it costs and what may follow at most, in one unit.

    >>> class Told:
    ...     def __call__(self, passes, loss): ...
    ...     def begin(self, what, cost, left): print(what, cost, left)
    >>> begin(Told(), "rank 2", 1.0, 5.0)
    rank 2 1.0 5.0
    >>> begin(print, "rank 2", 1.0, 5.0)
    """
    told = getattr(progress, STEP, None)
    if told is not None:
        told(what, cost, left)


REMEDIES: dict[Status, str] = {
    "converged": "the expected decrease fell below the tolerance",
    "completed": "all iterations were made; whether they suffice is not known: compare with more",
    "limit": "the limit of passes was reached before convergence; raise max_passes or tol",
    "stalled": "no step lowered the loss although the gradient is not zero; raise tol, or use float64 values and look "
    "for outliers",
    "diverged": "the loss grew beyond its start; lower step_size",
}


@dataclass(frozen=True, eq=False)
class SolveResult:
    """A factor, how the solver ended, and the loss: of the start, then after each iteration.

    ``status`` is "converged", "completed" (a fixed number of iterations), "limit", "stalled" or "diverged";
    ``message`` says in words what happened and, for the last three, what to do. ``passes`` counts evaluations, or the
    iterations of a solver that has those instead; where its limit has another name, ``detail`` says which to raise.
    """

    factor: Array = field(repr=False)
    status: Status
    history: tuple[float, ...] = field(repr=False)
    passes: int
    detail: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the factor can be used without a second thought."""
        return self.status in ("converged", "completed")

    @property
    def message(self) -> str:
        """The status in words, with its remedy."""
        ended = f"{self.status} after {counted(self.passes, 'pass', 'passes')}"
        if self.status == "limit" and self.detail:
            return f"{ended}: {self.detail}"
        return f"{ended}: {REMEDIES[self.status]}" + (f" ({self.detail})" if self.detail else "")
