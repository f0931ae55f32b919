"""Panels onto a cluster: packed ones, folders of Parquet files, datasets of Ray."""

from __future__ import annotations

from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np

from onesided.engines.ray.cluster import current
from onesided.engines.ray.panel import LARGEST_SHARD, RayPanel, RemoteIds, distribute
from onesided.engines.ray.shards import Shards
from onesided.engines.ray.shuffle import gather
from onesided.errors import InputError
from onesided.panels.packed.format import is_packed, load_packed
from onesided.panels.refusals import Duplicates, NonFinite, ValueRules
from onesided.panels.table_files import TableColumns


def read(
    data: Any,
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    duplicates: Duplicates = "refuse",
    non_finite: NonFinite = "refuse",
    device: str = "cpu",
) -> RayPanel:
    """Read a panel onto the Ray cluster that this process is connected to, or else one that Ray finds or starts.

    Parameters
    ----------
    data : path or ray.data.Dataset
        A packed panel, a Parquet file or a folder of such, with a line for each entry; under the same path on all
        nodes. Or a dataset of Ray with such lines.
    row, column, value, duplicates, non_finite
        As for ``Panel.from_table``; names that are not given are found as by the command line. Duplicates of a dataset
        cannot be settled by their order, "last", as its lines have none.
    device : "cpu", "cuda" or "auto"
        Whether passes over it run on processors or on the GPUs of the cluster; "auto": on these if there are any.

    Examples
    --------
    A folder of Parquet files whose columns have names that are not recognised:

    >>> from onesided.engines import ray as cluster
    >>> panel = cluster.read("ratings/", row="who", column="what", value="much")  # doctest: +SKIP
    >>> model = OneSidedCompletion(engine="ray", random_state=0).fit(panel)  # doctest: +SKIP
    """
    cluster, names, rules = current(), TableColumns(row, column, value), ValueRules(duplicates, non_finite)
    if isinstance(data, (str, PathLike)) and is_packed(data):
        if (names, rules) != (TableColumns(), ValueRules()):
            raise InputError(f"{data} is a packed panel: how its tables are read was said when it was packed")
        return distribute(load_packed(data), cluster, device)
    slots = cluster.slots(device)
    gathered = gather(
        data,
        names=names,
        rules=rules,
        pieces=len(slots),
        most=LARGEST_SHARD,
        scheduling=lambda k, n: cluster.options(slots[k * len(slots) // n].node),
    )
    edges, number = np.concatenate([[0], np.cumsum(gathered.block_rows)]), len(gathered.blocks)
    planned = [slots[k * len(slots) // number] for k in range(number)]
    shards = Shards(cluster, gathered.blocks, list(pairwise(edges.tolist())), planned)
    row_ids, column_ids = RemoteIds(cluster, gathered.row_ids, edges), gathered.column_ids
    found = gathered.row_counts, len(column_ids), gathered.dtype
    left_out = {"lines_dropped": gathered.lines_dropped, "lines_merged": gathered.lines_merged}
    return RayPanel(shards, *found, row_ids=row_ids, column_ids=column_ids, left_out=left_out)
