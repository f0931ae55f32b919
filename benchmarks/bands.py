"""How often 90% bands hold the truth: many panels from one population, each with its own bootstrap.

    python benchmarks/bands.py [REPLICATIONS [RIDGE [POPULATION ...]]]

Eigenvalues, angles and completed entries are held to the population, fresh rows of which make every panel; measured
entries to the T of the rows drawn. Columns come in couples, and no row has both of a couple: these pairs are never
measured. Beside the library's interval, 2θ̂ − mean θ* ± t rms(θ* − θ̂), the table has three others for the first
eigenvalue: ± t sd θ* ("narrow"), the basic and the percentile one. With 1,000 replications a share of 0.9 is known to
±0.02. Two to ten minutes for each line on two cores.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import norm, t

from onesided import Panel, uncertainty
from onesided.pairs import lookup
from onesided.pairs.moments import PairMoments, hajek

LEVEL = 0.9
T_QUANTILE = t.ppf((1 + LEVEL) / 2, 49)


@dataclass(frozen=True)
class Population:
    """Rows z Bᵀ + noise: z one of the unit vectors (noisy mixture) or N(0, I) (linear mixture)."""

    name: str
    n: int
    d: int
    per_row: int
    strengths: tuple[float, ...]
    noise: float
    mixture: bool = False
    spare: int = 0  # factors fitted beyond the true rank

    def factors(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        return rng.normal(0, 1 / np.sqrt(self.d), size=(self.d, len(self.strengths))) * np.sqrt(self.strengths)

    def covariance(self) -> np.ndarray:
        B, k = self.factors(), len(self.strengths)
        return B @ (np.eye(k) / k - 1 / k**2) @ B.T if self.mixture else B @ B.T

    def second_moment(self) -> np.ndarray:
        B = self.factors()
        return B @ B.T / (len(self.strengths) if self.mixture else 1)

    @property
    def rank(self) -> int:
        return len(self.strengths) - int(self.mixture) + self.spare

    def rows(self, rng: np.random.Generator) -> np.ndarray:
        k = len(self.strengths)
        z = np.eye(k)[rng.integers(k, size=self.n)] if self.mixture else rng.normal(size=(self.n, k))
        return z @ self.factors().T + rng.normal(0, self.noise, size=(self.n, self.d))

    def observed(self, rng: np.random.Generator) -> np.ndarray:
        couples = np.argsort(rng.random((self.n, self.d // 2)), axis=1)[:, : self.per_row]
        mask = np.zeros((self.n, self.d), dtype=bool)
        np.put_along_axis(mask, 2 * couples + rng.integers(2, size=couples.shape), True, axis=1)
        return mask


POPULATIONS = (
    Population("noisy mixture", 2000, 40, 8, (1.0, 1.0, 1.0), 0.1, mixture=True),
    Population("linear mixture", 2000, 40, 8, (2.0, 1.0, 0.5), 0.1),
    Population("linear, fewer rows", 500, 40, 8, (2.0, 1.0), 0.1),
    Population("linear, a weak factor", 2000, 40, 8, (2.0, 1.0, 0.5, 0.2), 0.3),
    Population("linear, rank too large", 2000, 40, 8, (2.0, 1.0), 0.1, spare=2),
    Population("linear, pairs seldom seen", 300, 150, 4, (2.0, 1.0), 0.1),
)


def inside(bands: uncertainty.Bands, truth: np.ndarray) -> np.ndarray:
    return (bands.lower <= truth) & (truth <= bands.upper)


def replication(population: Population, ridge: float, seed: int) -> dict[str, np.ndarray]:
    os.environ["ONESIDED_NUM_THREADS"] = "1"
    uncertainty.RIDGE = ridge
    rng = np.random.default_rng([seed, 1])
    M = population.rows(rng)
    panel = Panel.from_dense(np.where(population.observed(rng), M, np.nan))
    values, vectors = np.linalg.eigh(population.covariance())
    top, space = np.maximum(values[::-1][: population.rank], 0), vectors[:, ::-1][:, : population.rank]

    began = time.perf_counter()
    found = uncertainty.bootstrap(panel, rank=population.rank, rng=seed)
    seconds = time.perf_counter() - began
    eigenvalues = found.eigenvalues(LEVEL)
    own = np.linalg.svd(found.loadings[:, 2:], full_matrices=False)[0]
    tilt = np.arccos(np.clip(np.linalg.svd(own.T @ space, compute_uv=False), 0, 1))
    low, high = np.quantile(found.spectra, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    first = np.arange(0, population.d, 2)
    i, j = np.triu_indices(population.d, 1)
    apart = (i // 2) != (j // 2)

    moments = PairMoments.from_panel(panel)
    a, b = moments.pairs()
    errors = lookup.PairLookup(panel).at(a, b).standard_error
    wrong = np.abs(hajek(moments) - (M.T @ M / population.n)[a, b])
    return {
        "λ": inside(eigenvalues, top),
        "narrow": (np.abs(eigenvalues.estimate - top) <= T_QUANTILE * eigenvalues.standard_error)[:1],
        "basic": (2 * found.spectrum - high <= top)[:1] & (top <= 2 * found.spectrum - low)[:1],
        "percentile": ((low <= top) & (top <= high))[:1],
        "angles": tilt <= found.angles(LEVEL).upper,
        "never measured": inside(
            found.entries(first, first + 1, LEVEL), population.second_moment()[first, first + 1]
        ).mean(keepdims=True),
        "other entries": inside(
            found.entries(i[apart], j[apart], LEVEL), population.second_moment()[i[apart], j[apart]]
        ).mean(keepdims=True),
        "measured": (wrong <= norm.ppf((1 + LEVEL) / 2) * errors)[a != b].mean(keepdims=True),
        "diagonal": (wrong <= norm.ppf((1 + LEVEL) / 2) * errors)[a == b].mean(keepdims=True),
        "seconds": np.array([seconds]),
    }


def shares(population: Population, replications: int, ridge: float = uncertainty.RIDGE) -> dict[str, np.ndarray]:
    """The share of panels, or of panels and entries, in which each interval holds the truth."""
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(partial(replication, population, ridge), range(replications), chunksize=5))
    return {name: np.mean([result[name] for result in results], axis=0) for name in results[0]}


def main() -> None:
    replications = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    ridge = float(sys.argv[2]) if len(sys.argv) > 2 else uncertainty.RIDGE
    print(f"{replications} replications, ridge {ridge:g}")
    asked = sys.argv[3:] or [population.name for population in POPULATIONS]
    for k, population in enumerate(one for one in POPULATIONS if one.name in asked):
        means = shares(population, replications, ridge)
        if k == 0:
            print("| population | " + " | ".join(means) + " |\n| --- |" + " --- |" * len(means))
        cells = [" ".join(f"{share:.3f}" for share in np.atleast_1d(value)) for value in means.values()]
        print(f"| {population.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
