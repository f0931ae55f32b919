"""The same numbers on a Ray cluster as on this machine, also when workers and nodes die on the way."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import NEEDS

pytest.importorskip("ray", reason=NEEDS["ray"])

import ray
from click.testing import CliRunner
from ray.cluster_utils import Cluster as Nodes
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onesided import HajekGD, OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.cli import main
from onesided.engines.engine import engine_for
from onesided.engines.placement import GpuOptions, on_cluster
from onesided.engines.ray import connect, current, distribute, read
from onesided.engines.ray.cluster import Cluster, Slot, _attempt
from onesided.engines.ray.panel import SeededBytes
from onesided.errors import InputError
from onesided.fitting.bootstrap import bootstrap
from onesided.model.recommendation import best_unseen
from onesided.panels.packed.format import load_packed, write_packed
from onesided.privacy import Privacy
from onesided.privacy.curator import Curator
from onesided.privacy.gradient import release_by_gradient

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # Ray's threads warn of what is theirs

STORE = 300 << 20
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def nodes():
    """Three nodes of one processor and one store each; the first has the driver."""
    made = Nodes(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE, "_system_config": SOON},
    )
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.CRITICAL)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(nodes):
    """The cluster with all its nodes: those that a test before has killed are replaced."""
    for _ in range(3 - len(nodes.list_all_nodes())):
        nodes.add_node(num_cpus=1, object_store_memory=STORE)
    nodes.wait_for_nodes()
    there = [NodeAffinitySchedulingStrategy(node.node_id, soft=False) for node in nodes.list_all_nodes()]
    ray.get([ready.options(scheduling_strategy=one).remote() for one in there])  # known to all who schedule
    return current()


@ray.remote
def ready():
    pass


@pytest.fixture(scope="module")
def panel():
    truth = synthetic.linear_mixture(6000, 40, 2, rng=0)
    made = synthetic.sample_fixed(truth, 7, rng=1)
    noisy = made.values + 0.3 * np.random.default_rng(2).standard_normal(made.n_entries)
    return Panel(made.indptr, made.columns, noisy, made.n_columns)


@pytest.fixture(scope="module")
def packed(panel, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "small.panel"
    ids = np.array([f"row {k:05}" for k in range(panel.n_rows)], dtype=object)
    write_packed(path, np.arange(panel.n_columns), [(ids, panel.indptr, panel.columns, panel.values)])
    return path


@pytest.fixture(scope="module")
def model(packed):
    return OneSidedCompletion(2, center="both", diagonal="free", random_state=0).fit(load_packed(packed))


def low_rank(model):
    return model.factor_ @ model.factor_.T


def assert_same(found, expected, tolerance=1e-9):
    scale = np.linalg.norm(low_rank(expected))
    assert np.linalg.norm(low_rank(found) - low_rank(expected)) <= tolerance * scale
    np.testing.assert_allclose(found.mean_, expected.mean_, atol=tolerance * np.abs(expected.mean_).max())
    np.testing.assert_allclose(found.noise_variance_, expected.noise_variance_, rtol=tolerance)
    assert found.blend_ == expected.blend_
    assert found.row_noise_.level == pytest.approx(expected.row_noise_.level, rel=1e-6)


# Passes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_pass_is_that_of_one_machine(cluster, panel, dtype, weighted):
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 3, panel.n_rows).astype(float) if weighted else None
    here = Panel(panel.indptr, panel.columns, panel.values.astype(dtype), panel.n_columns, row_weights=weights)
    there = distribute(here, cluster)
    assert len(there.shards.blocks) == 3
    one, other = engine_for(there), engine_for(here)
    other.row_pass(np.ones((40, 3)), np.zeros(40), np.ones(40), 0.5)  # compiled once, here, and not by all workers
    X, V, center = rng.standard_normal((40, 3)), rng.standard_normal((40, 2)), rng.standard_normal(40)
    scale = rng.uniform(0.5, 2.0, 40)
    near = {"rtol": 1e-4 if dtype == np.float32 else 1e-9, "atol": 1e-4 if dtype == np.float32 else 1e-9}
    assert one.largest_value() == other.largest_value()
    np.testing.assert_allclose(one.column_means(), other.column_means(), rtol=1e-12, atol=1e-14)
    for found, expected in zip(one.column_sums(center, scale), other.column_sums(center, scale), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    for exact in (False, True):
        found, expected = (each.row_pass(X, center, scale, 0.5, exact) for each in (one, other))
        assert found[0] == pytest.approx(expected[0], rel=near["rtol"])
        np.testing.assert_allclose(found[1], expected[1], rtol=near["rtol"], atol=near["rtol"] * np.abs(found[1]).max())
        assert found[1].flags.writeable
    for method, arguments in {"curvature": (X,), "gram_product": (V, center, scale, 0.5)}.items():
        found, expected = (getattr(each, method)(*arguments) for each in (one, other))
        np.testing.assert_allclose(found, expected, rtol=near["rtol"], atol=near["rtol"] * np.abs(expected).max())
    np.testing.assert_array_equal(one.linked_columns(), other.linked_columns())
    noise, spread_of_columns = np.full(40, 0.5), np.tile(np.eye(4)[np.tril_indices(4)] * 0.01, (40, 1))
    of_rows = rng.standard_normal(3), np.cov(rng.standard_normal((3, 20)))
    sums, scores, halves = [], [], []
    for each in (one, other):
        columns = each.prepare_columns(center, X, noise, spread_of_columns.astype(dtype), scale, *of_rows)
        sums.append(each.posterior_sums(columns))
        scores.append(each.leave_one_out(each.prepare_columns(center, X, noise, None, scale, exact=True)))
        halves.append(np.concatenate(list(each.row_posteriors(columns))))
    for name in ("second", "first", "squares", "total"):
        found, expected = (getattr(each, name) for each in sums)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=near["rtol"] * np.abs(expected).max())
    np.testing.assert_allclose(*scores, rtol=1e-9)
    np.testing.assert_allclose(*halves, **near)


def test_columns_are_linked_across_shards(cluster):
    here = Panel.from_arrays(np.repeat(np.arange(6), 2), [0, 1, 2, 3, 4, 5, 1, 2, 6, 7, 7, 8], np.ones(12))
    there = distribute(here, cluster)
    assert len(there.shards.blocks) == 3
    np.testing.assert_array_equal(engine_for(there).linked_columns(), [0, 0, 0, 0, 4, 4, 6, 6, 6])


def test_shards_have_as_many_entries_and_whole_rows(cluster):
    counts = np.r_[2000, np.full(3000, 2)]  # one row with a quarter of all entries
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([np.arange(one) for one in counts])
    there = distribute(Panel(indptr, columns, np.ones(len(columns)), 2000), cluster)
    entries = [sum(there.row_counts[first:last]) for first, last in there.shards.edges]
    assert sum(entries) == 8000
    assert max(entries) < 4000


def test_sums_do_not_depend_on_where_results_lie(cluster):
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(100) * 10.0**k for k in rng.integers(-8, 8, 40)]
    results, names = [ray.put(one) for one in parts], [node.id for node in cluster.nodes]
    planned = [names[k * 3 // 40] for k in range(40)]
    first = cluster.added(results, planned, planned, np.add)
    second = cluster.added(results, names[:1] * 40, planned, np.add)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.sum(parts, axis=0), rtol=1e-9)


# Panels


def test_rows_and_columns_that_are_asked_for_are_fetched(cluster, packed):
    here, there = load_packed(packed), read(packed)
    assert (there.shape, there.n_entries, there.dtype) == (here.shape, here.n_entries, here.dtype)
    rows = [5999, 3, 2500, 4]
    np.testing.assert_array_equal(there.take_rows(rows).to_dense(), here.take_rows(rows).to_dense())
    assert list(there.take_rows(rows).row_ids) == [f"row {k:05}" for k in rows]
    some = np.array([3, 17, 39])
    np.testing.assert_array_equal(there.take_columns(some).to_dense(), here.take_columns(some).to_dense())
    np.testing.assert_array_equal(there.column_counts, here.column_counts)
    np.testing.assert_array_equal(there.rows_having(7), here.rows_having(7))
    means = np.arange(40.0)
    np.testing.assert_array_equal(there.centred(means).to_panel().values, here.centred(means).values)
    wider = np.arange(45)[::-1]
    np.testing.assert_array_equal(there.align_columns(wider).to_dense(), here.align_columns(wider).to_dense())
    with pytest.raises(InputError, match="unknown to the model"):
        there.align_columns(np.arange(39))
    found, expected = PairMoments.from_panel(there), PairMoments.from_panel(here)
    for name in ("indptr", "columns", "rows"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-12, atol=1e-12)


def test_all_entries_are_fetched_when_they_are_asked_for_and_once(cluster, packed):
    here, there = load_packed(packed), read(packed)
    there.home = None  # as if its rows had never been here
    assert not isinstance(there, Panel)
    assert not hasattr(there, "columns")
    fetched = there.to_panel()
    assert fetched is there.to_panel()
    for name in ("indptr", "columns", "values", "row_weights", "row_ids", "column_ids"):
        np.testing.assert_array_equal(getattr(fetched, name), getattr(here, name))
    weights = np.arange(here.n_rows)
    again = there.with_row_weights(weights)
    assert again.to_panel().values is fetched.values
    np.testing.assert_array_equal(again.to_panel().row_weights, weights)
    np.testing.assert_array_equal(fetched.row_weights, np.ones(here.n_rows))


# Fits


def test_a_fit_with_everything_chosen_is_the_same(cluster, panel):
    few = panel.take_columns(np.arange(12))[:1500]
    found, expected = (
        OneSidedCompletion(center="columns", diagonal="free", random_state=0, engine=engine).fit(few)
        for engine in ("ray", "local")
    )
    assert (found.rank_, found.center_, found.diagonal_) == (expected.rank_, expected.center_, expected.diagonal_)
    for one, other in zip(found.selection_.trials, expected.selection_.trials, strict=True):
        assert (one.rank, one.center, one.diagonal) == (other.rank, other.center, other.diagonal)
        assert one.score == pytest.approx(other.score, rel=1e-9)
    assert_same(found, expected)


def test_what_follows_a_fit_is_the_same(cluster, packed, model):
    there, here = read(packed), load_packed(packed)
    there.home = None  # as if its rows had never been here
    found = OneSidedCompletion(2, center="both", diagonal="free", random_state=0, engine="ray").fit(there)
    assert_same(found, model, 1e-6)
    assert found.second_moment_.panel is there
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(here.n_rows, size=500), rng.integers(40, size=500)
    for one, other in zip(
        found.impute_at(there, rows, columns, return_std=True),
        model.impute_at(here, rows, columns, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.transform(there), model.transform(here), rtol=1e-4, atol=1e-5)
    few = slice(0, 30)
    np.testing.assert_allclose(found.impute(there)[few], model.impute(here[few]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.score(there), model.score(here), rtol=1e-6)
    T, S = found.second_moment_, model.second_moment_
    np.testing.assert_allclose(T.block([0, 5], [5, 7]), S.block([0, 5], [5, 7]), rtol=1e-6)
    assert T[3, 5].count == S[3, 5].count
    assert T[3, 5].standard_error == pytest.approx(S[3, 5].standard_error, rel=1e-6)
    np.testing.assert_allclose(found.covariance_.block([0], [1]), model.covariance_.block([0], [1]), rtol=1e-6)
    assert [one.id for one in found.similar(3, 4)] == [one.id for one in model.similar(3, 4)]
    algorithm1 = [HajekGD(2, step_size=100.0, iterations=30, random_state=0).fit(one).factor_ for one in (there, here)]
    np.testing.assert_allclose(*algorithm1, rtol=1e-6, atol=1e-9)
    bands = [bootstrap(one, rank=2, replicates=2, rng=np.random.default_rng(0)) for one in (there, here)]
    np.testing.assert_allclose(*(one.eigenvalues().estimate for one in bands), rtol=1e-6)


def test_private_passes_ask_the_same_questions(cluster, panel):
    plan = Privacy(
        epsilon=4.0, delta=1e-6, bounds=(-8, 8), max_entries=5, columns=range(40), clip_values=True, passes=4
    )
    draw = np.random.default_rng(0).bytes
    there = Curator.of(plan.admit(distribute(panel, cluster)), plan, draw)
    rows = there.rows.to_panel()
    here = Curator(Panel(rows.indptr, rows.columns, rows.values, 40), plan)
    assert there.rows.row_counts.max() == 5
    answers = []
    for curator in (there, here):
        curator.draw = np.random.default_rng(1).bytes
        answers.append(release_by_gradient(curator, 2, "both", np.random.default_rng(0)).row_space.factor)
    np.testing.assert_array_equal(*answers)  # sums of whole numbers, to the last bit
    private = OneSidedCompletion(2, engine="ray", privacy=plan, random_state=0).fit(panel)
    assert private.privacy_.spent_delta <= 1e-6
    local = OneSidedCompletion(1, engine="ray", privacy=replace(plan, mechanism="local"))
    assert local.fit(panel).privacy_.releases[0].what == "values"


def test_random_bytes_of_a_shard_can_be_made_again():
    secret = bytes(32)
    one, other = SeededBytes(secret), SeededBytes(secret)
    assert [one(5), one(7)] == [other(5), other(7)]
    assert one(16) != one(16)


# Faults


def processes(node):
    """The workers of a node: the children of its raylet that do its tasks."""
    (raylet,) = node.all_processes["raylet"]
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with_name = status.read_text(errors="replace") if status.exists() else ""
        if with_name and int(with_name.rpartition(")")[2].split()[1]) == raylet.process.pid:
            command = (status.parent / "cmdline").read_bytes()
            if command.startswith((b"ray::IDLE", b"ray::_done")):
                found.append(int(status.parent.name))
    return found


def kill_a_worker(nodes):
    for pid in processes(nodes.list_all_nodes()[-1]):
        os.kill(pid, signal.SIGKILL)


def kill_a_node(nodes):
    nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)


@contextmanager
def at_sum(monkeypatch, number, do):
    """Do something while the results of the so-manieth sum are under way."""
    made, added = [], Cluster.added

    def counting(self, *arguments):
        made.append(None)
        if len(made) == number:
            do()
        return added(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "added", counting)
        yield
    assert len(made) >= number


@pytest.mark.parametrize("kill", [kill_a_worker, kill_a_node])
@pytest.mark.parametrize("number", [1, 10])
def test_a_fit_survives(nodes, cluster, packed, model, monkeypatch, kill, number):
    there, before = read(packed), cluster.retries()
    there.total(lambda rows: 1)  # they are there
    with at_sum(monkeypatch, number, lambda: kill(nodes)):
        found = OneSidedCompletion(2, center="both", diagonal="free", random_state=0, engine="ray").fit(there)
    assert_same(found, model, 1e-6)
    if kill is kill_a_node:
        assert cluster.retries() > before  # its rows were read again


@pytest.mark.parametrize("kill", [kill_a_worker, kill_a_node])
def test_imputation_survives(nodes, cluster, packed, model, monkeypatch, kill):
    there, here = read(packed), load_packed(packed)
    rows, columns = np.arange(0, 6000, 7), np.arange(0, 6000, 7) % 40
    calls, fetched = [], Cluster.fetched

    def killing(self, results):
        calls.append(None)
        if len(calls) == 1:
            kill(nodes)
        return fetched(self, results)

    monkeypatch.setattr(Cluster, "fetched", killing)
    found = model.row_space_.predictor.impute_at(there, rows, columns)
    np.testing.assert_allclose(found, model.row_space_.predictor.impute_at(here, rows, columns), rtol=1e-12)


def test_a_fit_that_is_stopped_goes_on_from_its_checkpoint(cluster, packed, model, tmp_path):
    settings = {"center": "both", "diagonal": "free", "random_state": 0, "engine": "ray"}

    def stop(passes, loss):
        if passes == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OneSidedCompletion(2, **settings).fit(read(packed), progress=stop, checkpoint=tmp_path / "kept")
    passes = []
    found = OneSidedCompletion(2, **settings).fit(
        read(packed), progress=lambda done, loss: passes.append(done), checkpoint=tmp_path / "kept"
    )
    assert passes[0] > 1
    assert_same(found, model, 1e-6)


@pytest.mark.parametrize("damage", ["gone", "corrupt"])
def test_rows_whose_file_is_lost_are_named(nodes, cluster, packed, tmp_path, damage):
    path = tmp_path / "lost.panel"
    shutil.copytree(packed, path)
    there = read(path)
    there.total(lambda rows: 1)
    (columns,) = path.glob("data-*/columns.npy")
    if damage == "gone":
        shutil.rmtree(path)
    else:
        with open(columns, "r+b") as file:
            file.seek(-4000, os.SEEK_END)
            file.write(b"\xff" * 4000)
    (with_the_last,) = [node for node in nodes.list_all_nodes() if node.node_id == there.shards.planned[-1].node]
    nodes.remove_node(with_the_last, allow_graceful=False)
    with pytest.raises(InputError, match=r"rows [\d,]+ to [\d,]+ of .*lost\.panel cannot be read on node"):
        there.total(lambda rows: rows.n_entries)


def test_rows_of_a_panel_that_was_replaced_are_not_taken_for_others(nodes, cluster, packed, panel, tmp_path):
    path = tmp_path / "replaced.panel"
    shutil.copytree(packed, path)
    there = read(path)
    there.total(lambda rows: 1)
    ids = np.arange(panel.n_rows)
    write_packed(path, np.arange(panel.n_columns), [(ids, panel.indptr, panel.columns, -3 * panel.values)])
    kill_a_node(nodes)
    with pytest.raises(InputError, match="another panel has taken its place"):
        there.total(lambda rows: rows.n_entries)


def test_ray_still_says_how_often_a_task_was_begun(cluster):
    """By a private interface, of which Ray 2.60 has no public counterpart."""
    try:
        attempt = ray.get(ray.remote(_attempt).remote())
    except ray.exceptions.RayTaskError as error:
        pytest.fail(
            f"Ray {ray.__version__} has another interface than 2.60: mend engines.ray.cluster._attempt ({error})"
        )
    assert attempt == 0


def test_counting_retries_does_not_end_a_fit(cluster):
    before = cluster.retries()
    ray.kill(cluster._again, no_restart=False)
    assert cluster.retries() in (before, cluster.lost)


def test_nodes_of_different_sizes_all_have_slots(nodes, cluster):
    larger = nodes.add_node(num_cpus=2, object_store_memory=STORE)
    nodes.wait_for_nodes()
    cluster.look()
    assert cluster.threads == 1
    assert [slot.node for slot in cluster.slots()].count(larger.node_id) == 2
    nodes.remove_node(larger)


# GPUs


def test_gpus_hold_shards_and_may_die(nodes, cluster, panel, monkeypatch):
    pytest.importorskip("torch", reason=NEEDS["torch"])
    monkeypatch.setattr(cluster, "gpu", "cpu")  # torch's processor stands for a GPU
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # and takes long over kernels that are interpreted
    with_gpus = nodes.add_node(num_cpus=0, num_gpus=2, object_store_memory=STORE)
    nodes.wait_for_nodes()
    cluster.look()
    there = distribute(panel, cluster, "cuda", GpuOptions(rank=3))
    assert [slot.gpu for slot in there.shards.planned] == [0, 1]
    rng = np.random.default_rng(0)
    X, *around = rng.standard_normal((40, 3)), np.zeros(40), rng.uniform(0.5, 2.0, 40)
    expected = engine_for(panel).row_pass(X, *around, 0.0)[1]

    def same():
        found = engine_for(there).row_pass(X, *around, 0.0)[1]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)

    same()
    demanding = on_cluster(there, "cuda", GpuOptions(rank=5, deterministic=True))
    assert there.place.gpu == GpuOptions(rank=3)  # a caller's panel stays as it was
    assert demanding.place.gpu == GpuOptions(rank=5, deterministic=True)
    assert demanding.shards is there.shards
    deterministic = demanding.total(lambda rows: int(rows.place.deterministic))
    assert (deterministic, there.total(lambda rows: int(rows.place.deterministic))) == (2, 0)
    ray.kill(cluster._holders[Slot(with_gpus.node_id, 0)])
    same()
    assert [slot.gpu for slot in there.shards.slots()] == [1, 1]
    nodes.remove_node(with_gpus, allow_graceful=False)
    same()
    assert [slot.gpu for slot in there.shards.slots()] == [None, None]


def test_gpus_that_are_not_there_are_missed(cluster, panel):
    with pytest.raises(InputError, match="no node of the Ray cluster has a GPU"):
        distribute(panel, cluster, "cuda")
    with pytest.raises(InputError, match="'cuda' is all of its GPUs"):
        distribute(panel, cluster, "cuda:1")
    there = distribute(panel, cluster, "auto")
    assert all(slot == Slot(slot.node) for slot in there.shards.planned)
    assert on_cluster(there, "auto", GpuOptions(rank=7)) is there  # demands on GPUs mean nothing to processors
    with pytest.raises(InputError, match="the panel lies with processors of the cluster"):
        OneSidedCompletion(1, engine="ray", device="cuda").fit(there)


# The command line


def test_the_command_fits_a_folder_on_a_cluster(cluster, panel, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "ratings"
    folder.mkdir()
    table = pa.table(
        {"user": np.repeat(np.arange(panel.n_rows), 7), "item": panel.columns, "rating": np.asarray(panel.values)}
    )
    for k in range(4):
        pq.write_table(table.slice(k * len(table) // 4, len(table) // 4), folder / f"part-{k}.parquet")
    target, settings = tmp_path / "model.onesided", ["--rank", "2", "--center", "both", "--diagonal", "free"]
    done = CliRunner().invoke(main, ["fit", str(folder), "-o", str(target), "--engine", "ray", *settings])
    assert done.exit_code == 0, done.output
    with pytest.raises(InputError, match="no node of the Ray cluster has a GPU"):
        OneSidedCompletion(2, engine="ray", device="cuda").fit(folder)
    without = CliRunner().invoke(main, ["fit", str(folder), "-o", str(target)])
    assert "a folder of Parquet files is read by onesided fit" in without.output
    found = OneSidedCompletion.load(target)
    assert found.second_moment_.panel is None
    assert found.engine == "local"
    expected = OneSidedCompletion(2, center="both", diagonal="free", random_state=0).fit(panel)
    assert_same(found, expected, 1e-6)


def test_the_command_refuses_an_address_without_the_engine(tmp_path):
    table = tmp_path / "ratings.csv"
    table.write_text("user,item,rating\n1,1,1\n")
    done = CliRunner().invoke(main, ["fit", str(table), "-o", str(tmp_path / "m"), "--address", "10.0.0.1:6379"])
    assert done.exit_code == 2
    assert "goes with --engine ray" in done.output


def test_a_cluster_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**options):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(InputError, match=r"there is no Ray cluster at 10\.0\.0\.1:6379 \(nobody answers\)"):
        connect("10.0.0.1:6379")


def test_a_path_needs_the_engine(tmp_path):
    with pytest.raises(InputError, match=r"which engine='ray' reads; .* give a panel: Panel.from_table"):
        OneSidedCompletion(1).fit(str(tmp_path))


def test_another_address_than_that_connected_to_is_refused(cluster):
    with pytest.raises(InputError, match=r"is connected to .*, not to 10\.0\.0\.1:6379"):
        connect("10.0.0.1:6379")


def test_unseen_columns_of_rows_on_a_cluster(cluster, packed, model):
    there, here = read(packed), load_packed(packed)
    found, expected = (best_unseen(model.row_space_, one.take_rows(np.arange(5)), 3) for one in (there, here))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_panel_of_a_cluster_that_is_gone_says_so(nodes, cluster, packed, monkeypatch):
    there = read(packed)
    assert there.total(lambda rows: rows.n_entries) == there.n_entries
    monkeypatch.setattr(cluster, "_session", "that of a cluster before")
    with pytest.raises(InputError, match="no longer connected to the cluster that holds the panel; read it again"):
        there.total(lambda rows: rows.n_entries)
