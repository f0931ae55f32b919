"""A fit that is stopped goes on where it stood, and ends where it would have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from onesided import OneSidedCompletion, Panel, synthetic
from onesided.errors import InputError
from onesided.fitting import refinement
from onesided.fitting.solvers.lbfgs import lbfgs
from onesided.panels.fingerprint import Checksum
from onesided.storage.checkpoint import Checkpoint


class StoppedError(Exception):
    pass


def panel() -> Panel:
    return synthetic.sample_fixed(synthetic.linear_mixture(1500, 30, 2, rng=0), 6, rng=1)


def fit(folder: Path | None, stop_after: int | None = None, **parameters) -> tuple[OneSidedCompletion, int]:
    """A model, and how many times progress was reported."""
    calls = 0

    def progress(done: int, loss: float) -> None:
        nonlocal calls
        calls += 1
        if calls == stop_after:
            raise StoppedError

    model = OneSidedCompletion(random_state=0, **parameters)
    return model.fit(panel(), progress=progress, checkpoint=folder), calls


def the_same(one: OneSidedCompletion, other: OneSidedCompletion) -> None:
    for name in ("factor_", "mean_", "noise_variance_", "spread_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.blend_ == other.blend_
    assert one.selection_.trials == other.selection_.trials
    assert one.solve_.history == other.solve_.history


@pytest.mark.parametrize("stops", [(1,), (3, 10), (40, 100, 150)])
def test_a_fit_that_was_stopped_ends_as_if_it_had_not_been(tmp_path, stops):
    whole, passes = fit(None)
    for stop in stops:
        with pytest.raises(StoppedError):
            fit(tmp_path / "kept", stop_after=stop)
    resumed, left = fit(tmp_path / "kept")
    the_same(resumed, whole)
    assert left == passes - sum(stops)  # progress is reported after a pass is kept: nothing is made twice


@pytest.mark.parametrize("refine", ["none", "variational"])
def test_the_solver_goes_on_with_its_history(tmp_path, refine):
    setting = {"rank": 3, "center": "both", "diagonal": "free", "refine": refine, "blend": None}
    whole, passes = fit(None, **setting)
    for stop in (2, 3):
        with pytest.raises(StoppedError):
            fit(tmp_path / "kept", stop_after=stop, **setting)
    resumed, left = fit(tmp_path / "kept", **setting)
    np.testing.assert_array_equal(resumed.factor_, whole.factor_)
    assert left == passes - 5
    assert fit(tmp_path / "kept", **setting)[1] == 0  # all of it was done before


def test_passes_for_the_noise_alone_are_kept_too(tmp_path, monkeypatch):
    setting = {"rank": 0, "center": "both", "diagonal": "free", "refine": "variational", "blend": None}
    whole, made = fit(None, **setting)[0], []
    one_pass = refinement._Columns.with_own_noise

    def stopped(columns, rows):
        made.append(columns)
        if len(made) == 3:
            raise StoppedError
        return one_pass(columns, rows)

    monkeypatch.setattr(refinement._Columns, "with_own_noise", stopped)
    with pytest.raises(StoppedError):
        fit(tmp_path / "kept", **setting)
    resumed, left = fit(tmp_path / "kept", **setting)
    assert (left, len(made)) == (0, refinement.NOISE_PASSES + 1)  # the third twice
    np.testing.assert_array_equal(resumed.noise_variance_, whole.noise_variance_)


def test_killed_in_the_middle(tmp_path):
    child = tmp_path / "child.py"
    child.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from tests.test_checkpoint import OneSidedCompletion, panel

            calls = 0

            def progress(done, loss):
                global calls
                calls += 1
                if calls == 25:
                    os.kill(os.getpid(), signal.SIGKILL)

            OneSidedCompletion(random_state=0).fit(panel(), progress=progress, checkpoint=sys.argv[1])
            """
        )
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    ended = subprocess.run([sys.executable, str(child), str(tmp_path / "kept")], env=environment)
    assert ended.returncode == -signal.SIGKILL
    whole, passes = fit(None)
    resumed, left = fit(tmp_path / "kept")
    the_same(resumed, whole)
    assert left == passes - 25


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    kept = tmp_path / "kept"
    with pytest.raises(StoppedError):
        fit(kept, stop_after=4, rank=2, center="both", diagonal="free", blend=None)
    for kind in ("solve", "refine"):
        (kept / f"fit.{kind}.part").mkdir()
        (kept / f"fit.{kind}.part" / ".tmp").write_text("half")
    fit(kept, rank=2, center="both", diagonal="free", blend=None)
    Checkpoint(kept).remove()
    assert not kept.exists()


def test_what_is_done_leaves_only_what_it_found(tmp_path):
    fit(tmp_path / "kept", rank=2)
    kinds = {path.name.split(".")[1] for path in (tmp_path / "kept").iterdir() if path.name.startswith("rank")}
    assert kinds == {"found"}
    (tmp_path / "kept" / "mine.txt").write_text("")
    Checkpoint(tmp_path / "kept").remove()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.txt"]


def test_killed_before_the_first_file_was_whole(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "fit.part").write_text("{")
    fit(tmp_path / "kept", rank=2)
    Checkpoint(tmp_path / "kept").remove()
    assert not (tmp_path / "kept").exists()


def test_lbfgs_ends_at_its_limit_when_it_is_taken_up_there(tmp_path):
    work = Checkpoint(tmp_path).work("one")
    target = np.arange(6.0).reshape(3, 2)

    def quartic(X):
        return float(np.sum((X - target) ** 4)), 4 * (X - target) ** 3

    first = lbfgs(quartic, np.zeros((3, 2)), lambda g: g, tol=0, max_passes=7, work=work)
    again = lbfgs(quartic, np.zeros((3, 2)), lambda g: g, tol=0, max_passes=7, work=work)
    assert first.status == again.status == "limit"
    assert first.history == again.history


def refused(message, *arguments, **parameters):
    with pytest.raises(InputError, match=message):
        fit(*arguments, **parameters)


def test_the_work_of_another_fit_is_refused(tmp_path):
    with pytest.raises(StoppedError):
        fit(tmp_path / "kept", stop_after=2)
    refused("checkpoint of another fit: rank was auto, is 3; name another", tmp_path / "kept", rank=3)
    other = panel().with_row_weights(np.linspace(1, 2, 1500))
    with pytest.raises(InputError, match="checksums was"):
        OneSidedCompletion(random_state=0).fit(other, checkpoint=tmp_path / "kept")
    with pytest.raises(InputError, match="has a seed; pass a whole number as random_state, not None"):
        OneSidedCompletion().fit(panel(), checkpoint=tmp_path / "kept")


def test_folders_that_are_not_checkpoints_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    refused("file is a file; name a folder", tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    refused("full holds other files than a checkpoint's; name a new folder$", tmp_path / "full")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "fit.json").write_text("{")
    refused("fit.json is damaged", tmp_path / "damaged")


def test_a_damaged_state_is_refused(tmp_path):
    with pytest.raises(StoppedError):
        fit(tmp_path / "kept", stop_after=5)
    for path in (tmp_path / "kept").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:20])
    refused("is damaged .*; remove the folder .* to begin anew", tmp_path / "kept")


def test_checksums_tell_lists_of_small_numbers_apart():
    rng = np.random.default_rng(0)
    ratings = rng.integers(1, 6, 1000).astype(float)
    found = {Checksum.of(rng.permutation(ratings)).weighed for _ in range(300)}
    assert len(found) == 300
