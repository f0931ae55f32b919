"""``onesided inspect``: what a table can support, before any fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import print_result
from onesided.cli.options import TABLE_OR_PANEL, json_option, taking
from onesided.cli.reading import ReadingOptions, read_panel

if TYPE_CHECKING:
    from onesided.recoverability import Counts, RankSupport, Recoverability


@click.command()
@click.argument("table", type=TABLE_OR_PANEL)
@taking("reading", ReadingOptions)
@json_option
def inspect(table: str, reading: ReadingOptions, as_json: bool) -> None:
    """Say what TABLE can support, before any fit.

    Which rank stands out from chance and how many rows more would take, which pairs of columns were seen together,
    and which columns cannot be placed. TABLE is as for fit.

    \b
    density           entries over rows times columns
    rows without pairs
                      rows with fewer than two entries
    share of pairs    pairs of columns that some row has both of, among all pairs;
                      on a large table estimated from a random sample of columns,
                      with its standard error
    rows per pair     over the pairs seen together
    pair moments      how many pairs of columns a table of all pairs seen would
                      hold, each column's pair with itself included, and the memory
                      it would take (a fit needs none; the paper's algorithm does)
    parts             sets of at least two columns that chains of rows link
    columns always alone
                      columns seen, but never in one row with another
    scales            how large the values of columns are beside each other, as a
                      fit would have it, 1 for a typical entry: the smallest and
                      the largest; columns have units of their own where these
                      differ by ten times or more
    coherence         largest mean square of a column over the mean of all: 1 if
                      columns are alike, the number of columns if one has all; of
                      values over scales where columns have units of their own
    effective columns
                      (sum of n)² / (sum of n²), n the entries of a column: among
                      how many columns the entries are really spread
    strength          of a direction: its eigenvalue in the sums of products, of
                      values over scales, over the largest that random signs
                      yield; supported above 1.1
    rows or more      rows like these at which a rank would reach that: rough, and
                      meaningless if there are fewer directions
    paper's bound     the rows that the theory asks for, all its constants set to
                      one: how they grow with rank, not how many are enough

    \b
    Example:
        onesided inspect ratings.csv
    """
    from onesided.recoverability import recoverability

    panel, left_out = read_panel(table, reading)
    answer = recoverability(panel)
    if as_json:
        print_result(answer.to_dict() | left_out, as_json)
        return
    for sentence in answer.sentences:
        click.echo(f"{sentence[0].upper()}{sentence[1:]}.")
    click.echo()
    print_result(_lines(answer, left_out), as_json)


def _lines(answer: Recoverability, left_out: dict[str, int]) -> dict[str, Any]:
    coverage, parts = answer.coverage, answer.parts
    error = "" if coverage.exact else f" ± {coverage.standard_error:.2g}, from {coverage.columns_counted:,} columns"
    return {
        "rows": answer.rows,
        "columns": answer.columns,
        "entries": answer.entries,
        **left_out,
        "density": answer.density,
        "entries_per_row": _distribution(answer.entries_per_row),
        "rows_without_pairs": answer.rows_without_pairs,
        "entries_per_column": _distribution(answer.entries_per_column),
        "pairs_seen": f"{'' if coverage.exact else 'about '}{coverage.observed_pairs:,}",
        "share_of_pairs": f"{coverage.share:.4g}{error}",
        "seen_in_one_row": f"{coverage.seen_once:.1%} of the pairs seen",
        "rows_per_pair": _distribution(coverage.rows_per_pair),
        "pair_moments": f"Ω would hold {coverage.pair_moments}",
        "parts": f"{parts.parts:,}, the largest with {parts.largest_share:.1%} of the columns",
        "columns_never_seen": parts.columns_never_seen,
        "columns_always_alone": parts.columns_always_alone,
        "scales": f"{answer.units.smallest:.3g} to {answer.units.largest:.3g}",
        "coherence": answer.evenness.coherence,
        "effective_columns": round(answer.evenness.effective_columns),
        "supported_rank": answer.supported_rank,
        **{f"rank_{support.rank}": _support(support) for support in answer.ranks},
    }


def _distribution(counts: Counts) -> str:
    return (
        f"{counts.least:,} to {counts.most:,}, median {counts.median:,g}, mean {counts.mean:.4g}, "
        f"nine in ten at most {counts.ninety_percent:,g}"
    )


def _support(support: RankSupport) -> str:
    verdict = f"strength {support.strength:.3g}, "
    if support.rows_needed is None:
        verdict += "not supported"
    elif support.supported:
        verdict += f"supported; about {support.rows_needed:,} rows would do"
    else:
        verdict += f"not supported; about {support.rows_needed:,} rows or more"
    return verdict if support.paper_rows is None else f"{verdict}; paper's bound {support.paper_rows:,.0f}"
