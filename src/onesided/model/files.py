"""Row spaces on disk: the part of a model's file that every estimator shares."""

from __future__ import annotations

import numpy as np

from onesided.model.blend import Blend
from onesided.model.row_noise import RowNoise
from onesided.model.row_space import RowSpace
from onesided.pairs.measured import Measured
from onesided.storage.archive import Archive

MEASURED = ("diagonal", "means", "counts", "parts")
OPTIONAL = ("spread", "scales", "own_scales")


def add_row_space(archive: Archive, space: RowSpace) -> None:
    """Put a row space into an archive: arrays, ids, and numbers among the ``fitted`` settings."""
    archive.arrays |= {name: getattr(space, name) for name in ("factor", "mean", "noise_variance")}
    archive.arrays |= {name: array for name in OPTIONAL if (array := getattr(space, name)) is not None}
    archive.arrays |= {f"measured.{name}": getattr(space.known_of_columns, name) for name in MEASURED}
    if space.column_ids is not None:
        archive.ids["columns"] = space.column_ids
    counts = {"blend": space.blend.pairs, "mean_blend": space.blend.means, "row_pull": space.row_noise.shrinkage}
    fitted = {name: count if np.isfinite(count) else None for name, count in counts.items()}  # JSON has no infinity
    archive.settings.setdefault("fitted", {}).update(
        fitted,
        row_level=space.row_noise.level,
        row_variance=space.row_variance,
        measurement_noise=None if space.measurement_noise is None else np.asarray(space.measurement_noise).tolist(),
    )


def stored_row_space(archive: Archive) -> RowSpace:
    """The row space in an archive."""
    arrays, fitted = archive.arrays, archive.settings["fitted"]

    def count(name: str) -> float:
        stored = fitted.get(name)
        return np.inf if stored is None else float(stored)

    return RowSpace(
        arrays["mean"],
        arrays["factor"],
        arrays.get("noise_variance", np.zeros(len(arrays["mean"]))),
        fitted.get("row_variance", 0.0),
        arrays.get("spread"),
        RowNoise(count("row_pull"), fitted.get("row_level", 1.0)),
        Blend(count("blend"), count("mean_blend")),
        Measured(*(arrays[f"measured.{name}"] for name in MEASURED)),
        archive.ids.get("columns"),
        fitted.get("measurement_noise", archive.settings.get("parameters", {}).get("noise_variance")),
        arrays.get("scales"),
        arrays.get("own_scales"),
    )
