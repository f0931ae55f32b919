"""Limited-memory BFGS in the metric of an approximate curvature: no step size, no tuning.

Chosen by ``benchmarks/solvers.py``: passes until L − L* is a thousandth of what it was at the start and, in brackets,
how many times sooner than this solver in processor time, the start included; rank 10, diagonal free.

============================  =============  =============  ===============  =============
solver                        MovieLens-1M   goodbooks-10k  RentTheRunway    paper, C = 5
============================  =============  =============  ===============  =============
this one                      23             76             204              37
memory 16                     23 (1.02)      76 (0.90)      210 (1.02)       36 (0.83)
metric of r × r per column    26 (0.95)      79 (0.64)      160 (1.35)       34 (0.93)
exact minima along lines      34 (0.60)      132 (0.33)     –                68 (0.47)
nonlinear conjugate gradient  27 (1.00)      111 (0.61)     –                50 (0.93)
truncated Newton              44 (0.69)      241 (0.33)     329 (0.88)       160 (0.34)
Anderson mixing               24 (1.01)      –              –                46 (0.74)
a stochastic pass first       15 (1.18)      diverged       205 (1.10)       28 (1.08)
a tenth of the rows first     20 (1.46)      130 (0.61)     186 (1.22)       48 (0.89)
a rougher spectral start      16 (2.12)      98 (0.80)      205 (1.07)       34 (1.33)
============================  =============  =============  ===============  =============

Nothing is faster everywhere. On 9 million entries of 138,000 × 27,000, where ten passes suffice, most of the time goes
into the start, and a tenth of the rows first is 4 times as fast. RentTheRunway is with a row effect: without, minima
differ by more than that. When the diagonal is fitted the blocks are indefinite, and the metric of r × r per column does
not get there in 300 passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from onesided.arrays import add_scaled, host, inner, like, namespace
from onesided.fitting.solvers.result import Progress, SolveResult, Status, ValueAndGradient
from onesided.storage.checkpoint import NOWHERE, State, Work

Metric = Callable[[Any], Any]
Pairs = deque[tuple[Any, Any, Any]]  # changes of X and of the gradient, and one over their inner product

MEMORY = 8  # pairs of differences kept, in single precision: they only shape the direction
LARGE = 1 << 27  # numbers on a device, beyond which memory is short: directions in single precision,
FEW = 4  # and so few pairs
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
SHORTEST = 1e-9


def lbfgs(
    value_and_gradient: ValueAndGradient,
    start: Any,
    metric: Metric,
    *,
    tol: float = 1e-6,
    max_passes: int = 300,
    resolution: float = 1e-15,
    progress: Progress | None = None,
    work: Work = NOWHERE,
) -> SolveResult:
    """Minimise from ``start`` until the decrease still to be had is below ``tol`` of the loss.

    Parameters
    ----------
    value_and_gradient : callable
    start : array
        Of numpy or torch; all that is kept lies where it does.
    metric : callable
        Applies an approximate inverse Hessian, symmetric and positive definite.
    tol : float
        Stop when the decrease that the quadratic model predicts is at most ``tol * abs(loss)``.
    max_passes : int
        Evaluations at most.
    resolution : float
        Relative rounding error of the loss; rises below it do not count.
    progress : callable, optional
        Called with the passes made and the loss after each iteration.
    work : Work, optional
        Where the state is kept after each iteration, and found again.

    Examples
    --------
    >>> result = lbfgs(lambda x: (float(x @ x) - 1, 2 * x), np.array([3.0, 4.0]), lambda g: g / 4)
    >>> result.status, np.abs(result.factor).max() < 1e-3
    ('converged', np.True_)
    """
    large = not isinstance(start, np.ndarray) and start.shape[0] * start.shape[-1] > LARGE
    pairs: Pairs = deque(maxlen=FEW if large else MEMORY)
    if (before := work.load("solve")) is not None:
        X, loss, gradient = like(start, before["X"]), before["loss"], like(start, before["gradient"])
        passes, history = before["passes"], before["history"]
        changes = (like(start, before[name]) for name in ("s", "y"))
        pairs.extend(zip(*changes, before["inverses"], strict=True))
    else:
        X = namespace(start).asarray(start, dtype=namespace(start).float64)
        loss, gradient = value_and_gradient(X)
        passes, history = 1, [loss]
    status: Status = "limit"
    while passes < max_passes:
        step = -_direction(gradient, pairs, metric, large)
        slope = float(inner(gradient, step))
        if -slope / 2 <= tol * abs(loss):
            status = "converged"
            break
        length, accepted = 1.0, False
        while not accepted and length > SHORTEST and passes < max_passes:
            trial = X + length * step
            with np.errstate(over="ignore", invalid="ignore"):  # a step too far is taken back, not reported
                trial_loss, trial_gradient = value_and_gradient(trial)
            passes += 1
            allowed = loss + SUFFICIENT * length * slope + resolution * abs(loss)
            accepted = trial_loss <= allowed
            if not accepted:
                bend = 2 * (trial_loss - loss - length * slope)
                length *= min(0.5, max(0.1, -slope * length / bend)) if np.isfinite(bend) else 0.1
        if not accepted:
            status = "stalled" if passes < max_passes else "limit"
            break
        _remember(pairs, trial - X, trial_gradient - gradient)
        X, loss, gradient = trial, trial_loss, trial_gradient
        history.append(loss)
        if work.kept:
            work.save("solve", _state(X, loss, gradient, passes, history, pairs))
        if progress is not None:
            progress(passes, loss)
    return SolveResult(X, status, tuple(history), passes)


def _state(X: Any, loss: float, gradient: Any, passes: int, history: list[float], pairs: Pairs) -> State:
    empty = np.zeros((0, *X.shape), np.float32)
    s, y = (np.stack([host(pair[k]) for pair in pairs]) if pairs else empty for k in (0, 1))
    inverses = [float(inverse) for _, _, inverse in pairs]
    known = {"X": host(X), "loss": loss, "gradient": host(gradient), "passes": passes, "history": history}
    return known | {"s": s, "y": y, "inverses": inverses}


def _direction(gradient: Any, pairs: Pairs, metric: Metric, large: bool) -> Any:
    """The two-loop recursion: the inverse Hessian implied by ``pairs``, begun from ``metric``."""
    xp = namespace(gradient)
    q = xp.asarray(gradient, dtype=xp.float32) if large else xp.asarray(gradient, copy=True)
    shares = []
    for s, y, inverse in reversed(pairs):
        share = inverse * inner(s, q)
        shares.append(share)
        add_scaled(q, -share, y)
    q = metric(q)
    if pairs:
        s, y, inverse = pairs[-1]
        q /= inverse * inner(y, metric(xp.asarray(y, dtype=q.dtype)))
    for (s, y, inverse), share in zip(pairs, reversed(shares), strict=True):
        add_scaled(q, share - inverse * inner(y, q), s)
    return q


def _remember(pairs: Pairs, s: Any, y: Any) -> None:
    s, y = (namespace(one).asarray(one, dtype=namespace(one).float32) for one in (s, y))
    curvature = inner(s, y)
    if curvature > 1e-10 * (inner(s, s) * inner(y, y)) ** 0.5:  # otherwise the metric would not stay positive
        pairs.append((s, y, 1 / curvature))
