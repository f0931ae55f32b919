"""The demonstration: handwritten digits, eight random pixels of each, recovered.

The 1,797 images of 8 × 8 pixels ship with scikit-learn. No image is ever seen whole, and no two pixels are seen
together in more than a few dozen images.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onesided.arrays import Array
from onesided.estimators.completion import OneSidedCompletion
from onesided.fitting.solvers.result import Progress
from onesided.panels.panel import Panel
from onesided.storage.atomic import written_beside

SIDE = 8
PIXELS_SHOWN = 8
COMPONENTS_DRAWN = 10  # one below each of the ten digits
PICTURES = (".png", ".svg", ".pdf")
NORMAL_90 = 1.6449  # half-width of a 90% normal interval, in standard deviations


@dataclass(frozen=True, eq=False)
class DigitRecovery:
    """The images, what was shown of them, and what was made of that."""

    images: Array  # n × 64, the truth
    labels: Array
    shown: Array  # n × 64, which pixels were kept
    imputed: Array
    deviation: Array
    means: Array  # column means of the shown pixels
    model: OneSidedCompletion

    def summary(self) -> dict[str, Any]:
        """The numbers of the demonstration, each named for what it is."""
        hidden = ~self.shown
        T = self.images.T @ self.images / len(self.images)
        recovered = self.model.second_moment_.to_dense()
        miss = np.abs(self.imputed - self.images)[hidden] / self.deviation[hidden]
        return {
            "images": len(self.images),
            "pixels_shown_of_64": PIXELS_SHOWN,
            "rank_chosen": self.model.rank_,
            "relative_error_of_second_moment": float(np.linalg.norm(recovered - T) / np.linalg.norm(T)),
            "rmse_hidden_pixels": self._rmse(self.imputed),
            "rmse_column_means": self._rmse(np.broadcast_to(self.means, self.images.shape)),
            "coverage_of_90%_intervals": float(np.mean(miss < NORMAL_90)),
        }

    def _rmse(self, guess: Array) -> float:
        return float(np.sqrt(np.mean((guess - self.images)[~self.shown] ** 2)))

    def true_components(self) -> Array:
        """The leading principal components of the whole images."""
        centred = self.images - self.images.mean(axis=0)
        return np.linalg.svd(centred, full_matrices=False)[2][:COMPONENTS_DRAWN]


def recover_digits(rng: int | np.random.Generator = 0, progress: Progress | None = None) -> DigitRecovery:
    """Keep eight random pixels of each digit, fit, and fill the images in."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(rng)
    digits = load_digits()
    images = digits.data
    shown = np.argsort(rng.random(images.shape), axis=1) < PIXELS_SHOWN
    panel = Panel.from_dense(np.where(shown, images, np.nan))
    model = OneSidedCompletion(random_state=0).fit(panel, progress=progress)
    imputed, deviation = model.impute(panel, return_std=True)
    return DigitRecovery(images, digits.target, shown, imputed, deviation, model.mean_, model)


def draw(recovery: DigitRecovery, path: str | os.PathLike[str]) -> bool:
    """Draw the picture to ``path``, named as one of ``PICTURES``; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9.6, 5.3), dpi=120, facecolor="white")
    FigureCanvasAgg(figure)
    margins = {"left": 0.15, "right": 0.995, "top": 0.99, "bottom": 0.045, "wspace": 0.12, "hspace": 0.12}
    grid: Any = figure.subplots(6, COMPONENTS_DRAWN, gridspec_kw=margins)
    _draw_images(grid[:4], recovery)
    _draw_components(grid[4:], recovery)
    with written_beside(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower())
    return True


def _draw_images(grid: Any, recovery: DigitRecovery) -> None:
    chosen = [int(np.flatnonzero(recovery.labels == digit)[3]) for digit in range(10)]
    rows = [
        (f"{PIXELS_SHOWN} pixels shown", np.where(recovery.shown, recovery.images, np.nan)),
        ("the image", recovery.images),
        ("recovered", recovery.imputed),
        ("column means", np.where(recovery.shown, recovery.images, recovery.means)),
    ]
    for axes, (title, images) in zip(grid, rows, strict=True):
        _draw_row(axes, title, images[chosen], "gray_r", (0, 16))


def _draw_components(grid: Any, recovery: DigitRecovery) -> None:
    truth = recovery.true_components()
    # Components of nearly equal strength mix: turn the recovered ones onto the true ones within their span.
    overlap = truth @ recovery.model.components_.T
    rows = [("true components", truth), ("recovered", overlap @ recovery.model.components_)]
    for axes, (title, components) in zip(grid, rows, strict=True):
        unit = np.stack([component / np.linalg.norm(component) for component in components])
        _draw_row(axes, title, unit, "RdBu_r", (-0.35, 0.35))
    for axis, cosine in zip(grid[1], np.linalg.norm(overlap, axis=1), strict=True):
        axis.set_xlabel(f"cosine {cosine:.2f}", fontsize=8)


def _draw_row(axes: Any, title: str, images: Array, colours: str, limits: tuple[float, float]) -> None:
    axes[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=11)
    for axis, image in zip(axes, images, strict=True):
        axis.imshow(image.reshape(SIDE, SIDE), cmap=colours, vmin=limits[0], vmax=limits[1])
        axis.set(xticks=[], yticks=[], facecolor="#dce6f2")
        for side in axis.spines.values():
            side.set_color("#b0b8c0")
