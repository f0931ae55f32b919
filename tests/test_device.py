"""Fits on a device: torch's own processor stands in for a GPU where there is none, with plain kernels."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from onesided import HajekGD, InputError, OneSidedCompletion, Panel, synthetic
from onesided.arrays import host
from onesided.cli import main
from onesided.engines.engine import engine_for
from onesided.fitting.moment_solution import moment_objective, moment_solution
from onesided.fitting.refinement import refine
from onesided.fitting.scales import Scaling
from onesided.fitting.setting import Setting
from onesided.pairs.measured import Measured
from onesided.pairs.moments import PairMoments
from onesided.privacy import Privacy
from tests.conftest import NEEDS, random_panel
from tests.test_kernels import scales_of

torch = pytest.importorskip("torch", reason=NEEDS["torch"])

from onesided.engines import gpu as device  # noqa: E402
from onesided.engines import placement  # noqa: E402  torch may not be there
from onesided.kernels import gpu  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """What only works because a tensor happens to lie in the host's memory must fail."""

    def refused(*_):
        raise TypeError("a tensor was taken for an array")

    monkeypatch.setattr(torch.Tensor, "__array__", refused)
    if DEVICE.type == "cpu":
        monkeypatch.setattr(gpu, "fused_for", lambda tensor: None)
        monkeypatch.setattr(device, "find_device", lambda name: DEVICE)


def mixture(n=800, d=30, seed=0, dtype=np.float64, weighted=True):
    panel = synthetic.sample_fixed(synthetic.noisy_mixture(n, d, 3, sigma=0.5, rng=seed), 8, rng=1)
    weights = np.random.default_rng(seed).poisson(1.0, size=n).astype(float) if weighted else None
    return Panel(panel.indptr, panel.columns, panel.values.astype(dtype), d, row_weights=weights)


def there(panel, **options):
    return panel.at(device.GpuPlace(panel, DEVICE, **options))


def apart(X, Y):
    """‖XXᵀ − YYᵀ‖ / ‖XXᵀ‖."""
    T = X @ X.T
    return np.linalg.norm(T - Y @ Y.T) / np.linalg.norm(T)


@pytest.mark.parametrize("diagonal", ["free", "fit"])
@pytest.mark.parametrize("center", ["none", "columns", "both"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_same_row_space(center, diagonal, dtype, scaled):
    panel = mixture(dtype=dtype)
    scales = scales_of(panel.n_columns, "near one") if scaled else None
    placed, tolerance = there(panel), 1e-4 if dtype == np.float32 else 1e-6
    setting = Setting(3, center=center, diagonal=diagonal)
    one, other = (moment_solution(p, setting, scales=scales) for p in (panel, placed))
    assert one.solve.passes == other.solve.passes
    assert apart(one.row_space.factor, other.row_space.factor) < tolerance
    np.testing.assert_allclose(other.row_space.mean, one.row_space.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(other.row_space.noise_variance, one.row_space.noise_variance, rtol=tolerance)
    one, other = (
        refine(p, start, center=center, scaling=Scaling(scales)) for p, start in ((panel, one), (placed, other))
    )
    assert apart(one.row_space.factor, other.row_space.factor) < tolerance
    np.testing.assert_allclose(
        other.row_space.spread, one.row_space.spread, atol=tolerance * np.abs(one.row_space.spread).max()
    )
    assert all(
        isinstance(array, np.ndarray)
        for array in (other.row_space.mean, other.row_space.factor, other.row_space.noise_variance)
    )


def test_values_are_centred_once_for_all_passes_of_a_fit(monkeypatch):
    computed, centred = [], gpu.centred

    def counted(*arguments):
        computed.append(arguments[-1])
        return centred(*arguments)

    panel = mixture(weighted=False)
    scales = scales_of(panel.n_columns, "near one")
    _, objective = moment_objective(there(panel), Setting(3, center="both"), scales)
    monkeypatch.setattr(gpu, "centred", counted)
    X = objective.engine.array(np.random.default_rng(0).normal(size=(panel.n_columns, 3)))
    objective.products(X)
    for _ in range(3):
        objective.value_and_gradient(X)
    assert computed in ([], [torch.float64])  # none where the objective was made with a pass


@pytest.mark.parametrize("deterministic", [False, True])
def test_streamed_blocks_are_those_that_stay(deterministic, monkeypatch):
    panel = mixture()
    resident = there(panel, deterministic=deterministic)
    monkeypatch.setattr(device, "bytes_of_state", lambda *_: 0)
    monkeypatch.setattr(device, "STREAMED_ENTRIES", 1000)
    streamed = there(panel, deterministic=deterministic, memory=1000)
    assert streamed.place.streamed
    assert len(streamed.place.edges) > 5
    one, other = (moment_solution(p, Setting(2, center="both")) for p in (resident, streamed))
    assert apart(one.row_space.factor, other.row_space.factor) < 1e-6
    assert apart(*(refine(p, one, center="both").row_space.factor for p in (resident, streamed))) < 1e-6
    moments = [Measured.from_panel(p) for p in (panel, resident, streamed)]
    for name in ("means", "diagonal", "counts", "parts"):
        for other in moments[1:]:
            np.testing.assert_allclose(getattr(other, name), getattr(moments[0], name), rtol=1e-12, atol=1e-12)


def test_the_same_bits_in_order():
    panel = mixture(dtype=np.float32)
    found = [moment_solution(there(panel, deterministic=True), Setting(3)).row_space.factor for _ in range(2)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("options", [{}, {"rank": 0}, {"rank": 3, "refine": "none"}, {"rank": 2, "blend": 10.0}])
def test_estimators_agree(options):
    panel = mixture(weighted=False)
    here, away = (OneSidedCompletion(random_state=0, device=name, **options).fit(panel) for name in ("cpu", "cuda"))
    assert (here.rank_, here.center_, here.diagonal_) == (away.rank_, away.center_, away.diagonal_)
    T, other = here.second_moment_.to_dense(), away.second_moment_.to_dense()
    np.testing.assert_allclose(other, T, atol=1e-6 * np.abs(T).max())
    np.testing.assert_allclose(away.eigenvalues_, here.eigenvalues_, rtol=1e-5)
    assert away.row_noise_.level == pytest.approx(here.row_noise_.level)
    assert away.second_moment_.panel.place is None  # nothing stays on the device
    new = mixture(60, seed=3, weighted=False)
    np.testing.assert_allclose(away.transform(new), here.transform(new), atol=1e-5)
    rows, columns = np.arange(60), np.arange(60) % 30
    for one, two in zip(
        here.impute_at(new, rows, columns, return_std=True),
        away.impute_at(new, rows, columns, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(two, one, rtol=1e-5)
    np.testing.assert_allclose(away.impute(new, return_std=True)[1], here.impute(new, return_std=True)[1], rtol=1e-5)
    assert away.score(new) == pytest.approx(here.score(new), rel=1e-6)


def test_rows_that_are_taken_follow_their_panel_when_told_to():
    panel = there(mixture(300, weighted=False), rank=4, deterministic=True)
    some = panel.take_rows([5, 3, 8])
    assert some.place is None
    place = placement.place_of(placement.placed_like(some, panel))
    assert (place.rank, place.deterministic, place.device) == (4, True, DEVICE)
    assert placement.placed_like(some, panel.at_home()) is some
    with pytest.raises(TypeError, match="must be a Place; found str"):
        engine_for(panel.at("cuda"))


def test_bootstraps_agree():
    panel = mixture(dtype=np.float32, weighted=False)
    found = []
    for name in ("cpu", "cuda"):
        model = OneSidedCompletion(2, center="columns", diagonal="free", random_state=0, device=name).fit(panel)
        found.append(model.bootstrap(replicates=3, random_state=0))
    np.testing.assert_allclose(found[1].spectra, found[0].spectra, rtol=1e-4)
    np.testing.assert_allclose(found[1].tilts, found[0].tilts, atol=1e-3)


def test_parts_of_a_panel():
    rows, columns = [0, 0, 1, 1, 2, 2, 3, 4, 4], [0, 2, 1, 3, 0, 4, 5, 1, 6]
    panel = Panel.from_arrays(rows, columns, np.arange(9.0))
    for weights in (np.ones(5), np.array([1.0, 0.0, 1.0, 1.0, 1.0])):
        weighed = panel.with_row_weights(weights)
        np.testing.assert_array_equal(Measured.from_panel(there(weighed)).parts, Measured.from_panel(weighed).parts)


@pytest.mark.parametrize("weights", ["ones", "some zero", "any"])
def test_pair_moments(weights):
    panel = random_panel(4)
    panel = panel.with_row_weights(
        {"ones": np.ones(60), "some zero": np.arange(60) % 3 > 0, "any": np.arange(60) % 4 * 0.7}[weights]
    )
    one, other = PairMoments.from_panel(panel), PairMoments.from_panel(there(panel))
    assert one.n_rows == other.n_rows
    for name in ("indptr", "columns", "rows", "sums", "squares", "weight_sums", "squared_weight_sums"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None:
            np.testing.assert_allclose(second, first, rtol=1e-12, atol=1e-12)
            assert second.dtype == first.dtype


def test_hajek_gd():
    panel = mixture(weighted=False)
    options = {"step_size": 20.0, "iterations": 50, "random_state": 0}
    here, away = (HajekGD(3, device=name, **options).fit(panel) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(away.factor_, here.factor_, atol=1e-9)
    with pytest.raises(InputError, match="diverged"):
        HajekGD(3, device="cuda", step_size=1e9, iterations=50, random_state=0).fit(panel)


def test_constant_columns_have_exact_means():
    panel = Panel.from_dense(np.tile([0.1, 1e6 / 3, -7.7], (50, 1)))
    np.testing.assert_array_equal(host(engine_for(there(panel)).column_means()), [0.1, 1e6 / 3, -7.7])


@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, 0.5], "float16"), ([1.0, 0.1], "float64"), ([1.0, 4097.0], "float32")]
)
def test_values_are_held_in_the_smallest_type_that_holds_them(values, expected):
    panel = Panel.from_dense([values])
    (rows,) = there(panel).place.blocks()
    assert str(rows.values.dtype) == f"torch.{expected}"


def test_a_block_method_starts_as_well(monkeypatch):
    monkeypatch.setattr("onesided.fitting.solvers.spectral.LONG", 10)
    panel = mixture()
    one, other = (moment_solution(p, Setting(3, center="both", tol=1e-10)) for p in (panel, there(panel)))
    assert apart(one.row_space.factor, other.row_space.factor) < 1e-3


def test_large_factors_are_minimised_with_less_memory(monkeypatch):
    monkeypatch.setattr("onesided.fitting.solvers.lbfgs.LARGE", 10)
    panel = mixture()
    one, other = (moment_solution(p, Setting(3, center="both", tol=1e-10)) for p in (panel, there(panel)))
    assert apart(one.row_space.factor, other.row_space.factor) < 1e-3


def test_a_fit_on_a_device_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    panel, options = mixture(weighted=False), {"random_state": 0, "device": "cuda"}
    whole = OneSidedCompletion(2, **options).fit(panel)
    seen = []

    def stop(passes, loss):
        seen.append(passes)
        if len(seen) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OneSidedCompletion(2, **options).fit(panel, progress=stop, checkpoint=tmp_path / "kept")
    again = OneSidedCompletion(2, **options).fit(panel, checkpoint=tmp_path / "kept")
    np.testing.assert_allclose(again.factor_, whole.factor_, atol=1e-7)


def test_the_device_is_not_part_of_a_saved_model(tmp_path):
    panel = mixture(300, weighted=False)
    for estimator in (OneSidedCompletion(1, device="cuda"), HajekGD(1, step_size=1.0, iterations=2, device="cuda")):
        estimator.fit(panel).save(tmp_path / "model")
        assert type(estimator).load(tmp_path / "model").device == "cpu"


def test_auto_takes_a_gpu_for_large_panels_only(monkeypatch):
    panel = mixture(300)
    assert placement.placed(panel, "auto") is panel
    monkeypatch.setattr(placement, "WORTH", 100)
    assert placement.placed(panel, "auto").place is not None
    monkeypatch.setattr(device, "_free", lambda _: 10)  # no room
    assert placement.placed(panel, "auto") is panel
    monkeypatch.setattr(placement, "find_spec", lambda name: None)
    assert placement.placed(panel, "auto") is panel


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", ""])
def test_names_that_are_no_device(name):
    with pytest.raises(InputError, match="expected 'cpu', 'auto', 'cuda' or 'cuda:' and a number"):
        OneSidedCompletion(1, device=name).fit(mixture(100))


def test_no_gpu_no_pytorch(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(placement, "WORTH", 100)
    assert placement.placed(mixture(100), "auto").place is None
    with pytest.raises(InputError, match="finds no GPU; install a build of PyTorch for CUDA"):
        OneSidedCompletion(1, device="cuda").fit(mixture(100))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match=r"device='cuda:5': there are 2 GPUs, cuda:0, cuda:1; name one that is there"):
        OneSidedCompletion(1, device="cuda:5").fit(mixture(100))
    monkeypatch.setitem(sys.modules, "onesided.engines.gpu", None)
    with pytest.raises(InputError, match=r"needs PyTorch, which cannot be imported .*pip install 'onesided\[gpu\]'"):
        OneSidedCompletion(1, device="cuda").fit(mixture(100))


def test_what_does_not_fit_is_said_beforehand():
    panel = mixture(100)
    with pytest.raises(
        InputError, match=r"a fit of rank 7 to 30 columns needs .* on the device .* choose a lower rank"
    ):
        device.GpuPlace(panel, DEVICE, rank=7, memory=1000)


def test_memory_that_runs_out_names_the_way_out(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(gpu, "row_pass", full)
    model = OneSidedCompletion(1, device="cuda")
    with pytest.raises(InputError, match=r"the GPU ran out of memory \(CUDA out of memory.*pass device='cpu'"):
        model.fit(mixture(100))


def test_a_panel_in_several_blocks(monkeypatch):
    """Its pair moments are those that the processor finds, and blends are chosen by them."""
    monkeypatch.setattr(device, "BLOCK_ENTRIES", 700)
    panel = mixture(weighted=False)
    assert len(there(panel).place.edges) > 5
    assert there(panel).place.pair_moments(panel) is None
    assert PairMoments.from_panel(there(panel)).n_pairs == PairMoments.from_panel(panel).n_pairs
    here, away = (OneSidedCompletion(1, random_state=0, device=name).fit(panel) for name in ("cpu", "cuda"))
    assert away.blend_ == here.blend_
    assert apart(here.factor_, away.factor_) < 1e-6


def test_rows_without_entries_tell_nothing():
    panel = mixture(300, weighted=False)
    indptr = np.concatenate([panel.indptr, np.full(400, panel.n_entries)])
    longer = Panel(indptr, panel.columns, panel.values, panel.n_columns)
    start = moment_solution(panel, Setting(2))
    one, other = (refine(p, start, center="columns") for p in (panel, there(longer)))
    assert one.refinement.passes == other.refinement.passes
    assert apart(one.row_space.factor, other.row_space.factor) < 1e-6


def test_ranks_beyond_what_a_pass_holds():
    with pytest.raises(InputError, match=r"rank=128: on a device at most 127; choose a lower one"):
        device.GpuPlace(mixture(100), DEVICE, rank=128)


def test_a_model_that_was_fitted_can_be_used(monkeypatch):
    panel = mixture(200, weighted=False)
    monkeypatch.setattr(device, "_free", lambda _: device.bytes_of_state(30, 1, 8) + 100)
    streamed = r"the panel takes .* on the GPU, which has no room for it beside a fit of rank 1: it is streamed"
    with pytest.warns(UserWarning, match=streamed):
        model = OneSidedCompletion(1, device="cuda", random_state=0, refine="none").fit(panel)
    with pytest.warns(UserWarning, match=streamed):
        assert model.transform(panel).shape[0] == 200
    with pytest.warns(UserWarning, match=streamed):
        assert model.bootstrap(replicates=2, random_state=0).unsettled == 0
    assert placement.placed(panel, "auto", rank=9).place is None


def test_private_fits_are_refused():
    plan = Privacy(epsilon=1.0, delta=1e-6, bounds=(0.0, 1.0), max_entries=8, columns="public")
    with pytest.raises(InputError, match=r"a private fit runs on the processor; found device='cuda'"):
        OneSidedCompletion(1, device="cuda", privacy=plan).fit(mixture(100))


def test_the_command_line(tmp_path):
    lines = ["row,column,value"]
    panel = mixture(300, weighted=False)
    for u in range(300):
        part = slice(panel.indptr[u], panel.indptr[u + 1])
        lines += [f"{u},{j},{v}" for j, v in zip(panel.columns[part], panel.values[part], strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    shared = ["fit", str(tmp_path / "table.csv"), "--rank", "2", "--json"]
    found = []
    for name in ("cpu", "cuda"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = CliRunner().invoke(main, [*shared, "-o", str(tmp_path / name), "--device", name])
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout)["eigenvalues"])
    np.testing.assert_allclose(*found, rtol=1e-5)
    result = CliRunner().invoke(main, [*shared, "-o", str(tmp_path / "other"), "--device", "tpu"])
    assert result.exit_code != 0
    assert "expected 'cpu', 'auto', 'cuda'" in result.stderr


def test_doctor_reports_the_gpu(monkeypatch):
    found = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    assert torch.__version__.startswith(found["torch"].partition("+")[0])
    if DEVICE.type == "cpu":
        assert found["gpu"] == "none that PyTorch can use"
    else:
        assert found["gpu"].endswith("correct")
    monkeypatch.setitem(sys.modules, "torch", None)
    found = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    assert found["gpu"] == "none: PyTorch is not installed"
