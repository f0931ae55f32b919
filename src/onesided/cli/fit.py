"""``onesided fit``: a table in, a model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import TABLE_OR_PANEL, json_option, passes, print_result, read_panel, table_options
from onesided.cli.privacy_options import made_plan, mechanism_option, plan_options
from onesided.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from onesided.estimators.completion import OneSidedCompletion
    from onesided.panels.panel_like import PanelLike
    from onesided.privacy import Privacy

READING = ("row", "column", "value", "duplicates", "non_finite")


def _rank(context: click.Context, parameter: click.Parameter, given: Any) -> int | str:
    """A whole number that is not negative, or "auto"."""
    return "auto" if given == "auto" else int(click.IntRange(min=0).convert(given, parameter, context))


@click.command()
@click.argument("table", type=TABLE_OR_PANEL)
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write the model.")
@click.option(
    "--rank",
    metavar="NUMBER|auto",
    callback=_rank,
    default="auto",
    show_default=True,
    help="Dimensions of the row space; 0 for means and row effects alone.",
)
@click.option(
    "--center",
    type=click.Choice(["auto", "none", "columns", "both"]),
    default="auto",
    show_default=True,
    help="What is in the model beside the row space: nothing, column means, or row effects too.",
)
@click.option(
    "--diagonal",
    type=click.Choice(["auto", "free", "fit"]),
    default="auto",
    show_default=True,
    help="Whether columns vary on their own, too (free), or rows lie all but exactly in the row space (fit).",
)
@click.option(
    "--refine",
    type=click.Choice(["auto", "none", "variational"]),
    default="auto",
    show_default=True,
    help="Whether the first solution, from pairs of columns, is refined by a model of whole rows; auto: where memory "
    "allows.",
)
@click.option(
    "--max-passes",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Passes over the rows for the first solution, at most.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all that is random, but for the noise of a private fit.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Whether passes run on this machine, or on a Ray cluster, which also reads folders of Parquet files.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The Ray cluster. If not given: that of RAY_ADDRESS, or one that runs on this machine, or a new one here.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda|auto",
    help="Where passes run: the processor, a GPU (cuda, or cuda:1 for the second), or auto: a GPU if there is one and "
    "the table has a million entries.",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="On a GPU, give the same bits each time, at the price of memory and longer passes.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    help="A folder in which the work is kept after every pass: the same command goes on from there if it was stopped.",
)
@click.option(
    "--without-panel",
    is_flag=True,
    help="Leave the observed entries and row ids out of the model file, as is always done for a packed panel.",
)
@plan_options
@mechanism_option
@click.option(
    "--columns",
    type=click.Path(),
    metavar="FILE|public",
    help="All columns there can be, one id to a line of a file; or the word public, if which occur is no secret.",
)
@click.option("--clip-values", is_flag=True, help="Move values outside the bounds to them, rather than refuse them.")
@table_options
@json_option
def fit(
    table: str,
    output: str,
    rank: Any,
    center: Any,
    diagonal: Any,
    refine: Any,
    max_passes: int,
    seed: int,
    engine: Any,
    address: str | None,
    device: str,
    deterministic: bool,
    checkpoint: str | None,
    without_panel: bool,
    mechanism: str | None,
    columns: str | None,
    as_json: bool,
    **others: Any,
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
    import warnings

    from onesided.estimators.completion import OneSidedCompletion
    from onesided.storage.atomic import check_output
    from onesided.storage.checkpoint import Checkpoint

    if address is not None and engine != "ray":
        raise click.UsageError("--address is that of a Ray cluster, and goes with --engine ray")

    check_output(output, inputs=[table])
    reading = {name: others.pop(name) for name in READING}
    plan = made_plan(mechanism, columns=_listed(columns), **others)
    if plan is None and (columns or others["clip_values"] or others["any_delta"]):
        raise click.UsageError("--columns, --clip-values and --any-delta are for private fits, with --epsilon")
    with_panel = not (without_panel or Path(table).is_dir())
    if engine == "ray":
        panel, left_out, told = _on_cluster(table, reading, address, device)
    else:
        panel, left_out, told = *read_panel(table, **reading), None
    if plan is not None:
        plan = _as_in(plan, panel.column_ids)
    began = perf_counter()
    model = OneSidedCompletion(
        rank,
        center=center,
        diagonal=diagonal,
        refine=refine,
        max_passes=max_passes,
        random_state=seed,
        engine=engine,
        device=device,
        deterministic=deterministic,
        privacy=plan,
    )
    if checkpoint is not None and Checkpoint(checkpoint).begun:
        click.echo(f"Going on from {checkpoint}.", err=True)
    try:
        with passes("Fitting", told) as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(panel, progress=progress, checkpoint=checkpoint)
    except (KeyboardInterrupt, SystemExit):
        if checkpoint is not None and Checkpoint(checkpoint).begun:
            click.echo(f"What was done is kept in {checkpoint}: the same command goes on from there.", err=True)
        raise
    for warning in caught:
        click.echo(f"Warning: {warning.message}", err=True)
    seconds = perf_counter() - began
    model.save(output, panel=with_panel)
    Checkpoint(checkpoint).remove()
    if plan is not None:
        print_result(_released(model, output), as_json)
        if model.rank_ and not model.factor_.any():
            click.echo(
                "No direction stood out from the noise: the model has no factor. "
                "onesided privacy tells from how many rows one is to be expected.",
                err=True,
            )
        return
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
            **_refinement(model),
            **_held_out(model),
            "solver": model.solve_.message if not as_json else model.solve_.status,
            "passes": model.solve_.passes,
            "seconds": seconds,
            "eigenvalues": _eigenvalues(model),
            "row_variance": model.row_variance_,
            "noise_variance": float(model.noise_variance_.mean()),
        },
        as_json,
    )


def _on_cluster(
    table: str, reading: dict[str, Any], address: str | None, device: str
) -> tuple[PanelLike, dict[str, int], Callable[[], str]]:
    """The panel of a table on a Ray cluster, lines that are not among its entries, and what tells how it goes there."""
    from onesided.engines.placement import explaining_missing_ray, on_cluster
    from onesided.panels.packed.format import is_packed

    with explaining_missing_ray():
        from onesided.engines.ray import connect, current, read
    connect(address)
    path = Path(table)
    if not is_packed(path) and (path.is_dir() or path.suffix in (".parquet", ".pq")):
        with passes("Reading"):
            panel = read(path, **reading, device=device)
        return panel, panel.left_out, current().throughput
    here, left_out = read_panel(table, **reading)
    return on_cluster(here, device), left_out, current().throughput


def _listed(columns: str | None) -> Any:
    """The ids of a file, one to a line; "public" and nothing stay as they are."""
    if columns is None or columns == "public":
        return columns
    try:
        ids = [line.strip() for line in Path(columns).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the columns from {columns}: {error}; expected one id to a line") from error
    return ids


def _as_in(plan: Privacy, ids: npt.NDArray[Any]) -> Privacy:
    """The plan with its list of columns as whole numbers, where the table's ids are such."""
    listed = plan.columns
    if not isinstance(listed, tuple) or ids.dtype.kind not in "iu":
        return plan
    whole = all(one.removeprefix("-").isdecimal() and str(int(one)) == one for one in listed)
    return replace(plan, columns=[int(one) for one in listed]) if whole else plan


def _eigenvalues(model: OneSidedCompletion) -> list[float]:
    """Of XXᵀ, as in the report; the row effect has a line of its own."""
    return [float(one) for one in sorted((model.factor_**2).sum(axis=0), reverse=True)]


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
        "eigenvalues": _eigenvalues(model),
        "row_variance": model.row_variance_,
        "noise_variance": float(model.noise_variance_.mean()),
    }


def _refinement(model: OneSidedCompletion) -> dict[str, Any]:
    """How the variational passes ended, if there were any."""
    ended = model.refinement_
    return {"refinement_passes": ended.passes if ended else 0, "refinement_change": ended.change if ended else None}


def _held_out(model: OneSidedCompletion) -> dict[str, Any]:
    """How the chosen setting did on held-out rows, if there was a choice."""
    if model.selection_ is None:
        return {}
    chosen = next(trial for trial in model.selection_.trials if trial.chosen)
    return {
        "settings_tried": len(model.selection_.trials),
        "held_out_log_score": chosen.score,
        "held_out_rmse": chosen.rmse,
    }
