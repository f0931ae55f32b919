"""``onesided fit``: a table in, a model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import passes, print_result
from onesided.cli.options import NATURAL, POSITIVE, TABLE_OR_PANEL, json_option, one_of, option, taking
from onesided.cli.privacy_options import PrivacyOptions
from onesided.cli.reading import ReadingOptions, read_panel
from onesided.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from onesided.estimators.completion import OneSidedCompletion
    from onesided.panels.panel_like import PanelLike
    from onesided.privacy import Privacy


def _rank(context: click.Context, parameter: click.Parameter, given: Any) -> int | str:
    """A whole number that is not negative, or "auto"."""
    return "auto" if given == "auto" else int(NATURAL.convert(given, parameter, context))


@dataclass(frozen=True)
class ModelOptions:
    """What is fitted, and how."""

    rank: Any = option(
        "--rank",
        metavar="NUMBER|auto",
        callback=_rank,
        default="auto",
        help="Dimensions of the row space; 0 for means and row effects alone.",
    )
    center: Any = option(
        "--center",
        **one_of("auto", "none", "columns", "both"),
        help="What is in the model beside the row space: nothing, column means, or row effects too.",
    )
    diagonal: Any = option(
        "--diagonal",
        **one_of("auto", "free", "fit"),
        help="Whether columns vary on their own, too (free), or rows lie all but exactly in the row space (fit).",
    )
    refine: Any = option(
        "--refine",
        **one_of("auto", "none", "variational"),
        help="Whether the first solution, from pairs of columns, is refined by a model of whole rows; auto: where "
        "memory allows.",
    )
    scale: Any = option(
        "--scale",
        **one_of("auto", "none"),
        help="Whether columns are measured in units of their own, estimated from all rows, or in a common one if they "
        "vary alike and held-out rows say so (auto), or all in one unit (none). A private fit measures all by its "
        "bounds.",
    )
    max_passes: int = option(
        "--max-passes", type=POSITIVE, default=300, help="Passes over the rows for the first solution, at most."
    )
    refine_passes: int = option(
        "--refine-passes",
        type=POSITIVE,
        default=35,
        help="Passes over the rows that refine it, at most; a warning says if they end before it has settled.",
    )
    random_state: int = option(
        "--seed",
        "random_state",
        type=NATURAL,
        default=0,
        help="Seed of all that is random, but for the noise of a private fit.",
    )


@dataclass(frozen=True)
class MachineOptions:
    """Where passes run."""

    engine: Any = option(
        "--engine",
        **one_of("local", "ray"),
        help="Whether passes run on this machine, or on a Ray cluster, which also reads folders of Parquet files.",
    )
    address: str | None = option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster. If not given: that of RAY_ADDRESS, or one that runs on this machine, or a new one here.",
    )
    device: str = option(
        "--device",
        default="cpu",
        metavar="cpu|cuda|auto",
        help="Where passes run: the processor, a GPU (cuda, or cuda:1 for the second), or auto: a GPU if there is one "
        "and the table has a million entries.",
    )
    deterministic: bool = option(
        "--deterministic",
        is_flag=True,
        help="On a GPU, give the same bits each time, at the price of memory and longer passes.",
    )


@dataclass(frozen=True)
class KeepingOptions:
    """What is kept of the work and of the rows."""

    checkpoint: str | None = option(
        "--checkpoint",
        type=click.Path(file_okay=False),
        help="A folder in which the work is kept after every pass: the same command goes on from there if it was "
        "stopped.",
    )
    without_panel: bool = option(
        "--without-panel",
        is_flag=True,
        help="Leave the observed entries and row ids out of the model file, as is always done for a packed panel.",
    )


@dataclass(frozen=True)
class FitPrivacyOptions(PrivacyOptions):
    """The privacy, and what a fit has to know of the table to keep it."""

    columns: str | None = option(
        "--columns",
        type=click.Path(),
        metavar="FILE|public",
        help="All columns there can be, one id to a line of a file; or the word public, if which occur is no secret.",
    )
    clip_values: bool = option(
        "--clip-values", is_flag=True, help="Move values outside the bounds to them, rather than refuse them."
    )

    def fit_plan(self) -> Privacy | None:
        """The plan with the columns of the file; None for a fit that is not private."""
        plan = self.plan(columns=_listed(self.columns), clip_values=self.clip_values)
        if plan is None and (self.columns or self.clip_values or self.any_delta):
            raise click.UsageError("--columns, --clip-values and --any-delta are for private fits, with --epsilon")
        return plan


@click.command()
@click.argument("table", type=TABLE_OR_PANEL)
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write the model.")
@taking("setting", ModelOptions)
@taking("machine", MachineOptions)
@taking("keeping", KeepingOptions)
@taking("privacy", FitPrivacyOptions)
@taking("reading", ReadingOptions)
@json_option
def fit(
    table: str,
    output: str,
    setting: ModelOptions,
    machine: MachineOptions,
    keeping: KeepingOptions,
    privacy: FitPrivacyOptions,
    reading: ReadingOptions,
    as_json: bool,
) -> None:
    """Fit the row space of TABLE and write it to a model file.

    Rank, center and diagonal are chosen by how well entries of held-out rows are predicted from the row's others,
    unless they are given.

    TABLE has one line per observed entry: a row id, a column id and a value; other columns are ignored. It is a
    Parquet file, or UTF-8 text separated by commas, tabs, semicolons or "::", plain or in gzip or xz. Text whose
    first line is already an entry has no header: its fields are row, column, value and at most one more. Or it is a
    packed panel (onesided pack), of which only a part at a time is held in memory. With --engine ray it may also be a
    folder of Parquet files; that or a packed panel must be there under the same path on all nodes.

    With --epsilon and --delta the fit is differentially private for the person behind each row, and the model file
    holds only what was released; onesided privacy tells what that costs.

    \b
    Example:
        onesided fit ratings.csv -o movies.onesided
        onesided fit ratings.csv -o movies.onesided --rank 20 --center both
        onesided fit ratings.csv -o movies.onesided --device cuda
        onesided fit ratings/ -o movies.onesided --engine ray --address 10.0.0.1:6379
        onesided fit ratings.csv -o public.onesided --rank 5 \\
            --epsilon 1 --delta 1e-7 --bounds 1 5 --max-entries 20 --columns films.txt
    """
    from onesided.estimators.completion import OneSidedCompletion
    from onesided.storage.atomic import check_output
    from onesided.storage.checkpoint import Checkpoint

    if machine.address is not None and machine.engine != "ray":
        raise click.UsageError("--address is that of a Ray cluster, and goes with --engine ray")
    check_output(output, inputs=[table])
    plan = privacy.fit_plan()
    if machine.engine == "ray":
        panel, left_out, state = _on_cluster(table, reading, machine)
    else:
        panel, left_out, state = *read_panel(table, reading), None
    if plan is not None:
        plan = _as_in(plan, panel.column_ids)
    began = perf_counter()
    placed = {name: value for name, value in asdict(machine).items() if name != "address"}
    model = OneSidedCompletion(**asdict(setting), **placed, privacy=plan)
    _fit(model, panel, keeping.checkpoint, state)
    seconds = perf_counter() - began
    model.save(output, panel=not (keeping.without_panel or Path(table).is_dir()))
    Checkpoint(keeping.checkpoint).remove()
    if plan is not None:
        print_result(_released(model, output), as_json)
        if model.rank_ and not model.factor_.any():
            click.echo(
                "No direction stood out from the noise: the model has no factor. "
                "onesided privacy tells from how many rows one is to be expected.",
                err=True,
            )
        return
    ended = model.refinement_
    print_result(
        {
            "model": output,
            "rows": panel.n_rows,
            "columns": panel.n_columns,
            "entries": panel.n_entries,
            **left_out,
            "columns_unsupported": int((~model.measured_.supported).sum()),
            "parts": int(model.measured_.parts.max()) + 1,
            "rank": model.rank_,
            "center": model.center_,
            "diagonal": model.diagonal_,
            **_units(model, as_json),
            "refinement_passes": ended.passes if ended else 0,
            "refinement_change": ended.change if ended else None,
            **_held_out(model, as_json),
            "solver": model.solve_.message if not as_json else model.solve_.status,
            "passes": model.solve_.passes,
            "seconds": seconds,
            **_variances(model),
        },
        as_json,
    )


def _fit(model: OneSidedCompletion, panel: PanelLike, checkpoint: str | None, state: Callable[[], str] | None) -> None:
    """Fit with progress on stderr, where warnings and what becomes of a checkpoint are said, too."""
    import warnings

    from onesided.storage.checkpoint import Checkpoint

    if checkpoint is not None and Checkpoint(checkpoint).begun:
        click.echo(f"Going on from {checkpoint}.", err=True)
    try:
        with passes("Fitting", state) as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(panel, progress=progress, checkpoint=checkpoint)
    except (KeyboardInterrupt, SystemExit):
        if checkpoint is not None and Checkpoint(checkpoint).begun:
            click.echo(f"What was done is kept in {checkpoint}: the same command goes on from there.", err=True)
        raise
    for warning in caught:
        click.echo(f"Warning: {warning.message}", err=True)


def _on_cluster(
    table: str, reading: ReadingOptions, machine: MachineOptions
) -> tuple[PanelLike, dict[str, int], Callable[[], str]]:
    """The panel of a table on a Ray cluster, the lines left out of it, and what describes the cluster's state."""
    from onesided.engines.placement import explaining_missing_ray, on_cluster
    from onesided.panels.packed.format import is_packed

    with explaining_missing_ray():
        from onesided.engines.ray import connect, current, read
    connect(machine.address)
    path = Path(table)
    if not is_packed(path) and (path.is_dir() or path.suffix in (".parquet", ".pq")):
        with passes("Reading"):
            panel = read(path, **asdict(reading), device=machine.device)
        return panel, panel.left_out, current().throughput
    here, left_out = read_panel(table, reading)
    return on_cluster(here, machine.device), left_out, current().throughput


def _listed(columns: str | None) -> Any:
    """The ids of a file, one to a line; "public" and nothing stay as they are."""
    if columns is None or columns == "public":
        return columns
    try:
        return [line.strip() for line in Path(columns).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the columns from {columns}: {error}; expected one id to a line") from error


def _as_in(plan: Privacy, ids: npt.NDArray[Any]) -> Privacy:
    """The plan with its list of columns as whole numbers, where the table's ids are such."""
    listed = plan.columns
    if not isinstance(listed, tuple) or ids.dtype.kind not in "iu":
        return plan
    whole = all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in listed)
    return replace(plan, columns=[int(name) for name in listed]) if whole else plan


def _units(model: OneSidedCompletion, as_json: bool) -> dict[str, Any]:
    """Between which scales the columns lie, and what is in units of them; a sentence where these are their own."""
    from onesided.model.units import Units

    units = Units.of(model.scales_, model.column_ids_)
    if as_json:
        held_out = None if model.selection_ is None else model.selection_.units
        in_units = {"held_out": held_out, "variances": "scales" if units.own else "values"}
        return {"units": units.to_dict() | in_units}
    return {"units": f"{units.sentence()}; variances below are in squares of them"} if units.own else {}


def _variances(model: OneSidedCompletion) -> dict[str, Any]:
    """Eigenvalues of XXᵀ, as in the report; the row effect has a line of its own.

    In squares of the columns' scales where columns have units of their own.
    """
    from onesided.model.axes import principal_axes
    from onesided.model.units import in_scales

    space, factor = model.row_space_, model.factor_
    if space.in_own_units:
        space = in_scales(space)
        factor = principal_axes(space.factor)
    return {
        "eigenvalues": sorted((factor**2).sum(axis=0).tolist(), reverse=True),
        "row_variance": space.row_variance,
        "noise_variance": float(space.noise_variance.mean()),
    }


def _released(model: OneSidedCompletion, output: str) -> dict[str, Any]:
    """What may be told of a private fit: nothing that was not released."""
    account = model.privacy_
    assert account is not None
    return {
        "model": output,
        "columns": len(model.column_ids_),
        "mechanism": account.mechanism,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "mu_spent": account.mu,
        "releases": len(account.releases),
        "rank": model.rank_,
        "center": model.center_,
        **_variances(model),
    }


def _held_out(model: OneSidedCompletion, as_json: bool) -> dict[str, Any]:
    """How the chosen setting did on held-out rows, if there was a choice, and in which units."""
    if model.selection_ is None:
        return {}
    chosen = next(trial for trial in model.selection_.trials if trial.chosen)
    scaled = model.selection_.units == "scales" and not as_json
    return {
        "settings_tried": len(model.selection_.trials),
        "held_out_log_score": chosen.score,
        "held_out_rmse": f"{chosen.rmse:.4g}, in units of the columns' scales" if scaled else chosen.rmse,
    }
