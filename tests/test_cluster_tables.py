"""Long tables onto a cluster: the rows of ``Panel.from_table``, refusals, and blocks made again after losses."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onesided import InputError, Panel
from tests.conftest import NEEDS

ray = pytest.importorskip("ray", reason=NEEDS["ray"])

from onesided.engines.ray import shuffle, sources  # noqa: E402
from onesided.engines.ray.cluster import fetched  # noqa: E402
from onesided.engines.ray.shuffle import gather  # noqa: E402
from onesided.panels.refusals import ValueRules  # noqa: E402
from onesided.panels.table_files import TableColumns  # noqa: E402

pytestmark = [
    pytest.mark.cluster,
    # Of a process that ends, and of a test cluster whose nodes are killed, Ray leaves sockets and files to Python.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = {"row": "user", "column": "item", "value": "stars"}
COLUMNS = TableColumns(**NAMES)
NODE = {"num_cpus": 1, "object_store_memory": 200 << 20}


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "_system_config": soon})
    for _ in range(2):
        made.add_node(**NODE)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def small_units(monkeypatch):
    """Tasks that read few lines, so that there are many of them."""
    monkeypatch.setattr(shuffle, "LINES", 400)
    monkeypatch.setattr(shuffle, "LINES_APIECE", 1)
    monkeypatch.setattr(shuffle, "AT_A_TIME", 300)


def entries(text=False, lines=3000, seed=0, dtype=np.float32):
    """Lines in no order, without duplicates; some rows have many, one has a third of all."""
    rng = np.random.default_rng(seed)
    row = np.where(rng.random(lines) < 0.3, 41, np.floor(200 * rng.random(lines) ** 3).astype(int) - 30)
    column = rng.integers(0, 5000, lines)
    _, first = np.unique(np.stack([row, column]), axis=1, return_index=True)
    row, column = row[np.sort(first)], column[np.sort(first)]
    if text:
        row, column = [f"é{k}" if k % 3 else f"z{k}" for k in row], [f"c{k}" for k in column]
    return pa.table({"user": row, "item": column, "stars": rng.normal(size=len(row)).astype(dtype), "time": column})


def write(folder, table, files=3, group=300):
    folder.mkdir(exist_ok=True)
    size = -(-table.num_rows // files)
    for k in range(files):
        pq.write_table(table.slice(k * size, size), folder / f"part-{k}.parquet", row_group_size=group)
    return folder


def same(found, panel):
    blocks, ids = fetched(found.blocks), fetched(found.row_ids)
    assert [len(one) for one in ids] == found.block_rows
    assert all(indptr[0] == 0 and len(indptr) == len(one) + 1 for (indptr, _, _), one in zip(blocks, ids, strict=True))
    assert min(found.block_rows) > 0
    for at, kind in enumerate((np.int64, np.int32, panel.values.dtype)):
        assert all(block[at].dtype == kind for block in blocks)
    assert found.dtype == panel.values.dtype
    assert found.row_counts.dtype == np.int32
    np.testing.assert_array_equal(found.row_counts, panel.row_counts)
    np.testing.assert_array_equal(np.concatenate([np.diff(block[0]) for block in blocks]), panel.row_counts)
    np.testing.assert_array_equal(np.concatenate([block[1] for block in blocks]), panel.columns)
    np.testing.assert_array_equal(np.concatenate([block[2] for block in blocks]), panel.values)
    together = np.concatenate([one.to_numpy(zero_copy_only=False) for one in ids])
    for mine, others in ((together, panel.row_ids), (found.column_ids, panel.column_ids)):
        assert mine.dtype == others.dtype
        assert mine.tolist() == others.tolist()


@pytest.mark.parametrize("text", [False, True], ids=["integers", "strings"])
@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_the_rows_of_one_table(cluster, small_units, tmp_path, text, pieces):
    table = entries(text)
    found = gather(write(tmp_path / "t", table), names=COLUMNS, pieces=pieces)
    same(found, Panel.from_table(table, **NAMES))
    assert found.lines == table.num_rows
    assert len(found.blocks) <= pieces
    sizes = [int(part.sum()) for part in np.split(found.row_counts, np.cumsum(found.block_rows)[:-1])]
    if pieces == 7:  # a third of the entries are of one row, which nothing can cut
        assert 1 in found.block_rows
        assert sorted(sizes)[-2] < 2 * table.num_rows / pieces


@pytest.mark.parametrize("duplicates", ["mean", "sum", "last"])
def test_merged_and_dropped(cluster, small_units, tmp_path, duplicates):
    table = entries(dtype=np.float64, lines=900)
    values = table["stars"].to_numpy().copy()
    values[::7] = np.nan
    values[np.asarray(table["user"]) == 3] = np.inf  # a row without entries
    table = pa.concat_tables([table.set_column(2, "stars", pa.array(values)), table.slice(50, 200)])
    options = {"duplicates": duplicates, "non_finite": "drop"}
    panel = Panel.from_table(table, **NAMES, **options)
    found = gather(write(tmp_path / "t", table), pieces=3, rules=ValueRules(**options))  # the names are recognised
    same(found, panel)
    assert found.lines_dropped == (~np.isfinite(values)).sum()
    assert found.lines_merged == found.lines - found.lines_dropped - panel.n_entries > 0


def test_many_kinds_of_columns(cluster, tmp_path):
    table = entries(text=True, lines=300)
    first, second = table.slice(0, 100), table.slice(100, 120)
    kinds = [
        {"user": first["user"], "item": pa.array(range(100), pa.int32()), "stars": first["stars"].cast(pa.float16())},
        {
            "user": second["user"].dictionary_encode(),
            "item": pa.array(range(100, 220), pa.uint8()),
            "stars": second["stars"].cast(pa.float64()),
        },
    ]
    for k, columns in enumerate(kinds):
        pq.write_table(pa.table(columns), tmp_path / f"{k}.parquet")
    pq.write_table(pa.table({name: pa.array([]) for name in ("user", "item", "stars")}), tmp_path / "none.pq")
    whole = {name: [one for part in kinds for one in part[name].to_pylist()] for name in kinds[0]}
    same(gather(tmp_path, pieces=2), Panel.from_table(whole, **NAMES))


def test_where_tables_are_found(cluster, tmp_path):
    table = entries(lines=200)
    folder = write(tmp_path / "t", table, files=2)
    (folder / "below").mkdir()
    (folder / "part-1.parquet").rename(folder / "below" / "part-1.PQ")
    for name in ("_SUCCESS", ".part-0.parquet.crc", "notes.txt", "_half.parquet"):
        (folder / name).write_text("no table")
    panel = Panel.from_table(pa.concat_tables([table.slice(100), table.slice(0, 100)]), **NAMES)
    same(gather(folder, pieces=2), panel)
    same(gather(f"file://{folder}", pieces=2), panel)
    same(gather([folder / "part-0.parquet", str(folder / "below")], pieces=2), panel)


@pytest.mark.filterwarnings("ignore:::ray.data")  # of Ray's own settings, when it makes them
def test_datasets(cluster, small_units, tmp_path, capfd):
    table = entries()
    data = ray.data.from_arrow([table.slice(k * 500, 500) for k in range(6)]).map_batches(lambda batch: batch)
    bars, level = data.context.enable_progress_bars, logging.getLogger("ray.data").level
    same(gather(data, pieces=3), Panel.from_table(table, **NAMES))
    assert (data.context.enable_progress_bars, logging.getLogger("ray.data").level) == (bars, level)
    assert "Dataset" not in "".join(capfd.readouterr())
    with pytest.raises(InputError, match="columns of the dataset are named 'who'"):
        gather(data, names=TableColumns(row="who"), pieces=3)


@pytest.mark.filterwarnings("ignore:::ray.data")
def test_what_is_used_of_ray_data(cluster):
    """``materialize`` and ``to_arrow_refs``, of which the latter may change with a minor release: tried with 2.60."""
    table = entries(lines=300)
    frames = [table.slice(k * 100, 100).to_pandas() for k in range(3)]  # blocks that are not Arrow's
    data = ray.data.from_pandas(frames).map_batches(lambda batch: batch, batch_format="pandas")
    same(gather(data, pieces=2), Panel.from_table(table, **NAMES))
    blocks = list(sources.dataset_blocks(data, dict.fromkeys(NAMES)))
    assert all(isinstance(fetched(ref), pa.Table) for _, (ref,) in blocks)
    assert [source.first_line for source, _ in blocks] == [0, 100, 200]  # in the order of the dataset

    def failing(batch):
        raise OSError("no such bucket")

    with pytest.raises(InputError, match=r"the dataset cannot be made \(.*no such bucket.*see that its source"):
        gather(data.map_batches(failing), pieces=2)


def test_blocks_are_made_where_they_are_scheduled(cluster, tmp_path):
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    nodes = sorted(one["NodeID"] for one in ray.nodes() if one["Alive"])
    folder = write(tmp_path / "t", entries(lines=200_000))
    found = gather(
        folder,
        pieces=3,
        rules=ValueRules("sum"),
        scheduling=lambda k, n: {"scheduling_strategy": On(nodes[k % 3], soft=True)},
    )
    where = ray.experimental.get_object_locations(found.blocks)
    assert [where[block]["node_ids"] for block in found.blocks] == [[nodes[k % 3]] for k in range(len(found.blocks))]


def changed(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


def spoilt(table, name, at, value):
    column = table[name].to_pylist()
    for k in at:
        column[k] = value
    return changed(table, name, pa.array(column, table[name].type))


REFUSED = {
    "missing ids": (
        lambda t: spoilt(t, "user", [5, 250], None),
        "2 missing ids .first in 'user' of .*part-0.parquet, at",
    ),
    "floats": (lambda t: changed(t, "item", t["stars"]), "'item' holds float, for example .*cast floats.*part-0"),
    "text": (
        lambda t: changed(t, "stars", t["item"].cast(pa.string())),
        "'stars' holds string.*must be numbers.*part-0",
    ),
    "large": (lambda t: changed(t, "stars", pa.array([1e80] * len(t))), "'stars' reaches 1e.80 in magnitude"),
    "not finite": (
        lambda t: spoilt(spoilt(t, "stars", [7, 150], np.inf), "stars", [260], None),
        "column 'stars' has 2 infinite values and 1 NaN or missing value .first at row -?[0-9]+, column",
    ),
    "duplicates": (
        lambda t: pa.concat_tables([t, t.slice(10, 20)]),
        "^20 entries repeat an earlier .row, column. pair, for example row .* with values .*duplicates=",
    ),
    "no column": (lambda t: t.drop_columns("user"), "no columns of .*part-0.parquet are named 'user'"),
    "no lines": (lambda t: t.slice(0, 0), "the tables hold no entries"),
    "beyond": (lambda t: changed(t, "user", pa.array([2**63] * len(t), pa.uint64())), "beyond 64-bit.*part-0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(cluster, tmp_path, case):
    spoil, message = REFUSED[case]
    table = spoil(entries(lines=300))
    with pytest.raises(InputError, match=message) as refused:
        gather(write(tmp_path / "t", table, files=2), names=COLUMNS, pieces=3)
    assert type(refused.value) is InputError
    if case in ("not finite", "duplicates", "large"):
        with pytest.raises(InputError) as expected:
            Panel.from_table(table, **NAMES)
        assert str(refused.value) == str(expected.value)
        assert refused.value.option == expected.value.option


def test_refused_paths_and_options(cluster, tmp_path):
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(InputError, match=r"no Parquet files in .*expected some called \*.parquet or \*.pq"):
        gather(tmp_path, pieces=1)
    with pytest.raises(InputError, match=r"there is nothing at .*elsewhere"):
        gather(tmp_path / "elsewhere", pieces=1)
    with pytest.raises(InputError, match=r"expected the path of Parquet files.*found int"):
        gather(7, pieces=1)
    with pytest.raises(InputError, match=r"lines of a dataset have no order.*Parquet files, which have one"):
        gather(ray.data.range(3), pieces=1, rules=ValueRules("last"))
    write(tmp_path, entries(lines=100), files=1)
    pq.write_table(entries(text=True, lines=100), tmp_path / "text.parquet")
    with pytest.raises(
        InputError, match=r"the row ids of .*part-0.parquet are integers, those of .*text.parquet are str"
    ):
        gather(tmp_path, names=COLUMNS, pieces=2)


def damage(path, at):
    bytes_ = bytearray(path.read_bytes())
    bytes_[at : at + 400] = bytes(400)
    path.write_bytes(bytes_)


def test_damaged_files_are_named(cluster, tmp_path):
    folder = write(tmp_path / "t", entries())
    damage(folder / "part-1.parquet", 100)  # its pages; the end, which tells where they are, is whole
    with pytest.raises(InputError, match=r"part-1.parquet is cut short or corrupt \(.*fetch or write it again"):
        gather(folder, names=COLUMNS, pieces=2)
    (folder / "part-1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"part-1.parquet is cut short or corrupt \("):
        gather(folder, names=COLUMNS, pieces=2)


def test_killed_workers(cluster, small_units, tmp_path, monkeypatch):
    """Each task of the second pass whose file has no mark beside it makes one and dies."""
    table = entries()
    folder = write(tmp_path / "t", table)
    split = shuffle._split

    def dying(survey, sources, *blocks):
        mark = f"{sources[0].path}.died"
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return split(survey, sources, *blocks)

    monkeypatch.setattr(shuffle, "_split", dying)
    same(gather(folder, names=COLUMNS, pieces=3), Panel.from_table(table, **NAMES))
    assert len(list(folder.glob("*.died"))) == 3


def test_node_lost_meanwhile(cluster, small_units, tmp_path, monkeypatch):
    table = entries()
    folder = write(tmp_path / "t", table)
    split = shuffle._split

    def slow(survey, sources, *blocks):
        (folder / ray.get_runtime_context().get_node_id()).touch()
        time.sleep(0.5)
        return split(survey, sources, *blocks)

    monkeypatch.setattr(shuffle, "_split", slow)
    node = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    working = folder / node.node_id

    def kill():
        while not working.exists():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = gather(folder, names=COLUMNS, pieces=3)
    killer.join(timeout=30)
    assert not killer.is_alive()  # it was at work on that node, and was killed
    same(found, Panel.from_table(table, **NAMES))


def test_node_lost_afterwards(cluster, tmp_path):
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    table = entries(lines=200_000)
    table = table.group_by(["user", "item"]).aggregate([("stars", "max")]).rename_columns({"stars_max": "stars"})
    folder = write(tmp_path / "t", table, files=5)
    panel = Panel.from_table(table, **NAMES)
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    cluster.wait_for_nodes()
    found = [
        gather(
            folder, pieces=4, scheduling=lambda k, n, node=node: {"scheduling_strategy": On(node.node_id, soft=True)}
        )
        for node in nodes
    ]
    for one, node in zip(found, nodes, strict=True):
        where = ray.experimental.get_object_locations(one.blocks)
        assert all(where[block]["node_ids"] == [node.node_id] for block in one.blocks)
    cluster.remove_node(nodes[0], allow_graceful=False)
    same(found[0], panel)

    (folder / "part-3.parquet").unlink()
    cluster.remove_node(nodes[1], allow_graceful=False)
    with pytest.raises(InputError, match=r"part-3.parquet is gone on node .*; tables must stay") as gone:
        fetched(found[1].blocks)
    assert type(gone.value) is InputError
