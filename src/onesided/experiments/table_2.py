"""Table 2: the panels."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.experiments.experiment import Expectation, Experiment, Row, Settings
from onesided.experiments.panels import Panels
from onesided.experiments.summaries import markdown, where
from onesided.pairs.size import pair_size

# As printed in the paper: rows, columns, entries.
PRINTED = {
    "genomes": (100_000, 2_504, 250_000_000),
    "amazon-reviews-2023": (100_000, 50_000, 1_300_000),
    "movielens-20m": (138_000, 27_000, 20_000_000),
    "movielens-25m": (162_000, 62_000, 25_000_000),
    "movielens-32m": (200_948, 87_585, 32_000_000),
}
SIZES = ("rows", "columns", "entries")


def cells(settings: Settings, panels: Panels) -> list[Row]:
    printed = [{"panel": name, "source": "printed"} for name in PRINTED]
    measured = [{"panel": name, "source": "measured"} for name in panels.names]
    return printed + measured if measured else []


def measure(cell: Row, panels: Panels) -> Row:
    if cell["source"] == "printed":
        row: Row = dict(zip(SIZES, PRINTED[cell["panel"]], strict=True))
        return row | {"density": row["entries"] / (row["rows"] * row["columns"])}
    panel = panels.load(cell["panel"])
    (n, d), size = panel.shape, pair_size(panel)
    seen = int(np.count_nonzero(panel.column_counts))  # the diagonal of Ω
    return {
        **{"rows": n, "columns": d, "entries": panel.n_entries, "density": panel.n_entries / (n * d)},
        "per_row_median": float(np.median(panel.row_counts)),
        "per_row_most": int(panel.row_counts.max()),
        "omega": 2 * size.pairs - seen,
        "omega_standard_error": 2 * size.standard_error,
        "omega_counted": size.exact,
        "omega_share": (2 * size.pairs - seen) / d**2,
        "least": float(panel.values.min()),
        "greatest": float(panel.values.max()),
    }


def _both(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Panels that are printed and at hand."""
    measured = {row["panel"]: row for row in where(rows, source="measured")}
    return [(row, measured[row["panel"]]) for row in where(rows, source="printed") if row["panel"] in measured]


def _as_printed(printed: Row, measured: Row) -> Expectation:
    off = {name: abs(measured[name] / printed[name] - 1) for name in SIZES}
    worst = max(off, key=off.__getitem__)
    return Expectation(
        f"{printed['panel']} has the printed rows, columns and entries, to 2%",
        off[worst] <= 0.02,
        f"{off[worst]:.1%} off at worst: {printed['panel']} {worst} {measured[worst]:,}, printed {printed[worst]:,}",
    )


def expect(rows: list[Row]) -> list[Expectation]:
    sparse = {row["panel"]: row["density"] for row in where(rows, source="printed") if row["panel"] != "genomes"}
    average = float(np.mean(list(sparse.values())))
    return [
        Expectation(
            "by the printed sizes, every panel but genomes has below 1% of its entries",
            max(sparse.values()) < 0.01,
            ", ".join(f"{panel} {share:.3%}" for panel, share in sparse.items())
            + f"; mean {average:.2%} (paper: about 0.3%)",
        ),
        *(_as_printed(printed, measured) for printed, measured in _both(rows)),
    ]


def verdict(rows: list[Row]) -> str:
    found, both, measured = expect(rows), _both(rows), where(rows, source="measured")
    alike = sum(one.holds for one in found[1:])
    agrees = "Agrees" if both and all(one.holds for one in found) else "Agrees in part"
    densest, sparsest = (choose(measured, key=lambda row: row["density"]) for choose in (max, min))
    return (
        f"{agrees}: of the five printed panels {len(both)} {'is' if len(both) == 1 else 'are'} at hand, {alike} of "
        f"the printed size; the {len(measured)} at hand have from {100 * sparsest['density']:.2g}% "
        f"({sparsest['panel']}) to {100 * densest['density']:.3g}% ({densest['panel']}) of their entries."
    )


def table(rows: list[Row]) -> str:
    header = ["panel", "", "rows", "columns", "entries", "density", "per row, median", "most", "Ω", "of d²", "values"]
    return markdown(header, [_line(row) for row in rows])


def _line(row: Row) -> list[Any]:
    sizes = [row["panel"], row["source"], *(row[name] for name in SIZES), f"{100 * row['density']:.3g}%"]
    if row["source"] == "printed":
        return sizes + ["–"] * 5
    about = f"about {_rounded(row['omega'])} ± {_rounded(2 * row['omega_standard_error'])}"
    omega = f"{row['omega']:,}" if row["omega_counted"] else about
    span = f"{row['least']:g} to {row['greatest']:g}"
    return [*sizes, f"{row['per_row_median']:,g}", row["per_row_most"], omega, f"{row['omega_share']:.1%}", span]


def _rounded(number: float) -> str:
    return f"{float(f'{number:.3g}'):,.0f}"


EXPERIMENT = Experiment(
    name="table-2",
    title="Table 2: the panels",
    claim="Five panels: Genomes, Amazon Reviews and MovieLens-20M, 25M and 32M, with rows, columns and entries as "
    "printed; all but Genomes, which is complete, have about 0.3% of their entries.",
    method="Rows, columns, entries, density, entries per row and range of values of every panel at hand, beside the "
    "printed numbers; |Ω| counts both triangles and the diagonal, and is an estimate, given with two standard errors, "
    "where counting every pair would take long.",
    full={},
    quick={},
    cells=cells,
    measure=measure,
    expect=expect,
    verdict=verdict,
    table=table,
)
