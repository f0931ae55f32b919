"""What is saved comes back bit for bit, whole or not at all; what was damaged is refused by name."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load, save

from onesided import HajekGD, InputError, OneSidedCompletion, PairMoments, Panel, synthetic
from onesided.pairs.files import MOMENT_ARRAYS, load_moments, save_moments
from onesided.pairs.moments import hajek, standard_errors
from onesided.panels.files import load_panel, save_panel
from onesided.storage import archive
from onesided.storage.atomic import check_output
from onesided.storage.resume import Notes
from tests.conftest import random_panel

WEIGHTS = np.linspace(0.5, 2.0, 200)
TEXTS = np.array([f"column {k} – ü" for k in range(9)], dtype=object)
IDS: dict[str, dict[str, Any]] = {
    "none": {},
    "integers": {"column_ids": np.arange(9) * 7 - 20, "row_ids": np.arange(200)[::-1] + 2**40},
    "texts": {"column_ids": TEXTS, "row_ids": np.array([f"row {u}" for u in range(200)], dtype=object)},
    "columns alone": {"column_ids": TEXTS},
}


def make_panel(dtype: Any = np.float64, weights: Any = None, **ids: Any) -> Panel:
    plain = synthetic.sample_fixed(synthetic.linear_mixture(200, 9, 2, rng=0), 4, rng=1)
    return Panel(plain.indptr, plain.columns, plain.values.astype(dtype), plain.n_columns, row_weights=weights, **ids)


def make_model(kind: type[Any], **options: Any) -> Any:
    if kind is HajekGD:
        return HajekGD(rank=2, step_size=0.01, iterations=20, random_state=0, **options)
    return OneSidedCompletion(rank=2, random_state=0, **options)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)


def same_panel(a: Panel, b: Panel) -> bool:
    names = ("indptr", "columns", "values", "row_weights", "row_ids", "column_ids")
    return all(same(getattr(a, name), getattr(b, name)) for name in names) and (
        (a.n_columns, a.has_row_ids, a.has_column_ids) == (b.n_columns, b.has_row_ids, b.has_column_ids)
    )


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where to save; whatever happens, no temporary file stays beside it."""
    yield tmp_path / "saved.onesided"
    assert not list(tmp_path.glob(".*"))


# Round trips


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_panels(path: Path, dtype: Any, weights: Any, ids: str) -> None:
    panel = make_panel(dtype, weights, **IDS[ids])
    save_panel(panel, path)
    assert same_panel(load_panel(path), panel)


def test_a_panel_with_empty_rows_and_columns(path: Path) -> None:
    panel = Panel.from_dense([[np.nan, 0.0, np.nan], [np.nan] * 3, [np.nan, -0.0, 1e-310]])
    save_panel(panel, path)
    loaded = load_panel(path)
    assert same_panel(loaded, panel)
    assert loaded.values.tobytes() == panel.values.tobytes()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_moments(path: Path, weights: Any) -> None:
    moments = PairMoments.from_panel(make_panel(weights=weights))
    save_moments(moments, path)
    loaded = load_moments(path)
    assert loaded.n_rows == moments.n_rows
    for name in MOMENT_ARRAYS:
        before, after = getattr(moments, name), getattr(loaded, name)
        assert (before is None and after is None) or same(before, after)
    assert (loaded.weight_sums is None) == (weights is None)
    for derived in (hajek, standard_errors):
        assert same(derived(loaded), derived(moments))


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("with_panel", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(OneSidedCompletion, {}), (OneSidedCompletion, {"blend": 2.5, "center": "none"}), (HajekGD, {})],
)
def test_models(path: Path, kind: type[Any], options: dict[str, Any], with_panel: bool, ids: str) -> None:
    panel = make_panel(weights=WEIGHTS, **IDS[ids])
    model = make_model(kind, **options).fit(panel)
    model.save(path, panel=with_panel)
    loaded = kind.load(path)

    assert loaded.get_params() == model.get_params()
    for name in ("factor_", "components_", "eigenvalues_", "mean_", "column_ids_"):
        assert same(getattr(loaded, name), getattr(model, name))
    assert loaded.n_features_in_ == model.n_features_in_
    assert (loaded.solve_.message, loaded.solve_.history) == (model.solve_.message, model.solve_.history)
    new = panel.take_rows(np.arange(0, 200, 7))
    assert same(loaded.transform(new), model.transform(new))
    assert same(loaded.impute(new), model.impute(new))
    assert same(loaded.impute_at(new, [0, 3], [8, 1]), model.impute_at(new, [0, 3], [8, 1]))
    assert loaded.score(new) == model.score(new)
    if kind is OneSidedCompletion:
        assert same(loaded.impute(new, return_std=True)[1], model.impute(new, return_std=True)[1])

    T, again = model.second_moment_, loaded.second_moment_
    outputs = ["low_rank", "algorithm1", *(["blend"] if "blend" in options else [])] if with_panel else ["low_rank"]
    for output in outputs:
        block = getattr(again, output).block([0, 5], range(9))
        assert same(block, getattr(T, output).block([0, 5], range(9)))
    i, j = panel.column_ids[[2, 5]]
    if with_panel:
        assert again[i, j] == T[i, j]
        assert same(again @ np.arange(9.0), T @ np.arange(9.0))
        assert same_panel(again.panel, panel)
    else:
        assert again[i, i].count == T[i, i].count
        assert again[i, j].count is None
        with pytest.raises(InputError, match="saved without its panel"):
            _ = again.algorithm1


@pytest.mark.parametrize("kind", [OneSidedCompletion, HajekGD])
def test_feature_names(path: Path, kind: type[Any]) -> None:
    frame = pd.DataFrame(make_panel().to_dense(), columns=list("abcdefghi"))
    model = make_model(kind).fit(frame)
    model.save(path)
    loaded = kind.load(path)
    assert list(loaded.feature_names_in_) == list("abcdefghi")
    assert list(loaded.get_feature_names_out()) == list(model.get_feature_names_out())
    assert same(loaded.transform(frame), model.transform(frame))
    assert loaded.second_moment_["b", "c"] == model.second_moment_["b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("ids", ["none", "texts"])
def test_rank_zero(path: Path, ids: str) -> None:
    panel = make_panel(**IDS[ids])
    model = OneSidedCompletion(rank=0).fit(panel)
    model.save(path)
    loaded = OneSidedCompletion.load(path)
    assert loaded.transform(panel).shape == (200, 0)
    assert same(loaded.impute(panel), model.impute(panel))


def test_parameters_of_numpy_types(path: Path) -> None:
    OneSidedCompletion(rank=np.int64(2), ridge=np.float32(0.5), blend=np.float64(2)).fit(make_panel()).save(path)
    loaded = OneSidedCompletion.load(path)
    assert (loaded.rank, loaded.ridge, loaded.blend) == (2, 0.5, 2.0)


@pytest.mark.parametrize("random_state", [None, 3, np.random.default_rng(0), np.random.RandomState(0)])
def test_random_state(path: Path, random_state: Any) -> None:
    OneSidedCompletion(rank=1, random_state=random_state).fit(make_panel()).save(path)
    kept = random_state if isinstance(random_state, int) else None  # a generator's state is not part of the model
    assert OneSidedCompletion.load(path).random_state == kept


def test_a_loaded_model_can_be_saved_again(path: Path) -> None:
    panel = make_panel(**IDS["texts"])
    make_model(OneSidedCompletion).fit(panel).save(path)
    first = OneSidedCompletion.load(path)
    first.save(path)
    assert same(OneSidedCompletion.load(path).impute(panel), first.impute(panel))


def mixed_panel() -> Panel:
    """Columns in units of their own."""
    plain = make_panel()
    factors = 10.0 ** np.arange(-4, 5)
    return Panel(plain.indptr, plain.columns, factors[plain.columns] * plain.values, 9)


def test_scales(path: Path) -> None:
    panel = mixed_panel()
    model = make_model(OneSidedCompletion, center="both").fit(panel)
    assert model.row_space_.in_own_units
    model.save(path)
    loaded = OneSidedCompletion.load(path)
    assert loaded.scale == "auto"
    assert same(loaded.scales_, model.scales_)
    assert same(loaded.row_space_.scales, model.row_space_.scales)
    assert loaded.row_variance_ == model.row_variance_
    assert same(loaded.row_space_.loadings, model.row_space_.loadings)
    assert same(loaded.impute(panel), model.impute(panel))


@pytest.mark.parametrize("scale", ["auto", "none"])
def test_a_file_without_scales_is_of_columns_in_one_unit(path: Path, scale: str) -> None:
    make_model(OneSidedCompletion, scale=scale).fit(make_panel()).save(path)
    stored = archive.read(path, "model")
    assert ("scales" in stored.arrays) == (scale == "auto")
    stored.arrays.pop("scales", None)
    archive.write(stored, path)
    loaded = OneSidedCompletion.load(path)
    assert loaded.row_space_.scales is None
    assert same(loaded.scales_, np.ones(9))


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_scales_that_are_not_positive_numbers_are_refused(path: Path, bad: float) -> None:
    make_model(OneSidedCompletion).fit(make_panel()).save(path)
    stored = archive.read(path, "model")
    stored.arrays["scales"] = np.where(np.arange(9) == 4, bad, stored.arrays["scales"])
    archive.write(stored, path)
    message = rf"a row space has a scale of {bad} in column 4; expected positive, finite scales \(found in .*saved"
    with pytest.raises(InputError, match=message):
        OneSidedCompletion.load(path)


# What a file holds


def planted() -> tuple[Panel, list[bytes]]:
    """A panel with a row id and a value unlike all others, and their bytes."""
    panel, value = make_panel(**IDS["texts"]), 0.1234567890123
    values, row_ids = panel.values.copy(), panel.row_ids.copy()
    values[17], row_ids[17] = value, "Zaphod"
    panel = Panel(panel.indptr, panel.columns, values, 9, row_ids=row_ids, column_ids=panel.column_ids)
    return panel, [struct.pack("<d", value), b"Zaphod"]


@pytest.mark.parametrize("kind", [OneSidedCompletion, HajekGD])
def test_without_the_panel_a_file_holds_none_of_its_entries(path: Path, kind: type[Any]) -> None:
    panel, secrets = planted()
    model = make_model(kind).fit(panel)
    model.save(path)
    assert all(secret in path.read_bytes() for secret in secrets)
    model.save(path, panel=False)
    assert not any(secret in path.read_bytes() for secret in secrets)
    assert b"column 0" in path.read_bytes()


def test_a_file_is_an_uncompressed_zip_of_known_members(path: Path) -> None:
    make_model(OneSidedCompletion).fit(make_panel(**IDS["texts"])).save(path)
    with zipfile.ZipFile(path) as file:
        assert sorted(file.namelist()) == [
            "arrays.safetensors",
            "columns.parquet",
            "header.json",
            "panel_columns.parquet",
            "panel_rows.parquet",
        ]
        assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_STORED}
        header = json.loads(file.read("header.json"))
    assert (header["format"], header["version"], header["kind"]) == ("onesided", 1, "model")
    assert "pickle" not in Path(archive.__file__).read_text()


# Damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small model file with all kinds of members."""
    path = tmp_path_factory.mktemp("whole") / "model.onesided"
    make_model(OneSidedCompletion).fit(make_panel(**IDS["texts"]).take_rows(np.arange(20))).save(path)
    return path.read_bytes()


def refused(path: Path, message: str = "") -> None:
    with pytest.raises(InputError, match=f"{re.escape(str(path))} .*{message}"):
        OneSidedCompletion.load(path)


def test_truncated(path: Path, whole: bytes) -> None:
    for length in [*range(0, len(whole), 61), *range(len(whole) - 60, len(whole))]:
        path.write_bytes(whole[:length])
        refused(path, "cut short")


def flip_changes_nothing_or_is_refused(path: Path, whole: bytes, position: int, bit: int) -> None:
    damaged = bytearray(whole)
    damaged[position] ^= 1 << bit
    path.write_bytes(whole)
    before = archive.read(path, "model")
    path.write_bytes(damaged)
    try:
        after = archive.read(path, "model")
    except InputError as error:
        message = str(error)
    else:
        message = f"{path} is as it was"
        assert after.settings == before.settings
        for part in ("arrays", "ids"):
            first, second = getattr(before, part), getattr(after, part)
            assert first.keys() == second.keys()
            assert all(same(first[name], second[name]) for name in first)
    assert str(path) in message


def test_random_flips(path: Path, whole: bytes) -> None:
    rng = np.random.default_rng(0)
    for position, bit in zip(rng.integers(len(whole), size=300), rng.integers(8, size=300), strict=True):
        flip_changes_nothing_or_is_refused(path, whole, position, bit)


def test_flips_in_the_directory(path: Path, whole: bytes) -> None:
    start = whole.index(b"PK\1\2")
    for position in range(start, len(whole)):
        flip_changes_nothing_or_is_refused(path, whole, position, position % 8)


def test_a_flip_anywhere_in_the_arrays_is_refused(path: Path, whole: bytes) -> None:
    start = whole.index(b"arrays.safetensors") + len(b"arrays.safetensors") + 20  # a ZIP64 field follows the name
    size = len(_members(whole)["arrays.safetensors"])
    for position in range(start, start + size, 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        refused(path, "Bad CRC-32")


def _members(whole: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        return {name: file.read(name) for name in file.namelist()}


def change_header(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"])
        header |= {name: value for name, value in changes.items() if value is not None}
        members["header.json"] = json.dumps(
            {name: value for name, value in header.items() if changes.get(name, "") is not None}
        ).encode()

    return change


def without(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.pop(name) and None


def without_array(members: dict[str, bytes]) -> None:
    arrays = load(members["arrays.safetensors"])
    del arrays["mean"]
    members["arrays.safetensors"] = save(arrays)


def replaced(name: str, content: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: content})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_header(version=2), "has format version 2; this release reads up to 1: upgrade"),
        (change_header(version="x"), "damaged"),
        (change_header(version=None), "damaged"),
        (change_header(format="other"), "is a ZIP archive, but not a onesided file"),
        (change_header(kind="moments"), "holds pair moments; expected a model"),
        (change_header(kind="spoon"), "damaged"),
        (change_header(arrays=None), "damaged"),
        (change_header(ids=None), "damaged"),
        (change_header(settings=None), "damaged"),
        (without("header.json"), "is a ZIP archive, but not a onesided file"),
        (without("arrays.safetensors"), "damaged"),
        (without("columns.parquet"), "damaged"),
        (without_array, "damaged: its arrays are not those that its header lists"),
        (replaced("header.json", b"[1]"), "damaged"),
        (replaced("header.json", b"{"), "damaged"),
        (replaced("header.json", b"\xff"), "damaged"),
        (replaced("arrays.safetensors", b""), "damaged"),
        (replaced("arrays.safetensors", b"\xff" * 100), "damaged"),
        (replaced("columns.parquet", b"PAR1"), "damaged"),
    ],
)
def test_rewritten(path: Path, whole: bytes, change: Callable[[dict[str, bytes]], None], message: str) -> None:
    members = _members(whole)
    change(members)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    refused(path, message)


def test_another_kind(path: Path) -> None:
    panel = make_panel()
    save_panel(panel, path)
    refused(path, "holds a panel; expected a model")
    with pytest.raises(InputError, match="holds a panel; expected pair moments"):
        load_moments(path)
    save_moments(PairMoments.from_panel(panel), path)
    with pytest.raises(InputError, match="holds pair moments; expected a panel"):
        load_panel(path)
    make_model(HajekGD).fit(panel).save(path)
    refused(path, "HajekGD")


@pytest.mark.parametrize("content", [b"", b"user,item,rating\n", b"\x80\x04K\x01.", bytes(1000)])
def test_foreign(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, "is not a onesided file")


def test_no_file(path: Path) -> None:
    for missing in (path, path.parent):
        with pytest.raises(InputError, match=f"there is no file {re.escape(str(missing))}"):
            load_panel(missing)


# Writing


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("older", [None, b"older"])
def test_what_fails_while_writing_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], older: bytes | None
) -> None:
    if older is not None:
        path.write_bytes(older)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    model = make_model(OneSidedCompletion).fit(make_panel(**IDS["texts"]))
    for target in ("pyarrow.parquet.write_table", "safetensors.numpy.save", "os.replace", "os.fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(target, fail)
            with pytest.raises(error):
                model.save(path)
        assert list(path.parent.iterdir()) == ([] if older is None else [path])
    assert older is None or path.read_bytes() == older
    model.save(path)
    OneSidedCompletion.load(path)


def test_settings_that_json_cannot_carry_leave_nothing(path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot save .* settings are numbers"):
        archive.write(archive.Archive("panel", {"odd": object()}), path)
    assert not path.exists()


def test_files_have_the_permissions_of_any_other(path: Path) -> None:
    other = path.parent / "other"
    other.touch()
    save_panel(make_panel(), path)
    assert path.stat().st_mode == other.stat().st_mode


def test_output_that_is_an_input(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, link = path.with_name("other"), path.with_name("link")
    check_output(path, inputs=[path, other])  # neither is there
    path.write_bytes(b"input")
    link.symlink_to(path)
    check_output(other, inputs=[path, link])
    monkeypatch.chdir(path.parent)
    for output in (path, link, Path(path.name), path.parent / "." / path.name):
        with pytest.raises(InputError, match=f"the output {output} is the input {path}.*; name another file"):
            check_output(output, (".csv",), inputs=[other, path])
    assert path.read_bytes() == b"input"


def test_output_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_output(path)
    check_output(path.with_suffix(".CSV"), (".csv", ".tsv"))
    assert not list(path.parent.iterdir())
    for bad, message in (
        (path.parent / "absent" / "x", "the folder .*absent does not exist"),
        (path.parent, "not a regular file"),
        (Path(os.devnull), "not a regular file"),
        (path.parent / ("x" * 255), "cannot write .*: File name too long"),
    ):
        for refuse in (check_output, lambda path: save_panel(make_panel(), path)):
            with pytest.raises(InputError, match=message):
                refuse(bad)
    with pytest.raises(InputError, match=r"cannot tell the format of .*; name it .csv, .tsv or .parquet"):
        check_output(path, (".csv", ".tsv", ".parquet"))

    def refuse_all(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse_all)
    with pytest.raises(InputError, match=r"cannot write .*: Permission denied"):
        check_output(path)


# Notes of finished work


def test_notes_are_of_one_work_and_lose_only_what_was_cut(tmp_path: Path) -> None:
    path, done = tmp_path / "work.part", list[str]()

    def piece(name: str) -> list[Any]:
        done.append(name)
        return [name.upper(), {"é": 1.5}]

    notes = Notes(path, {"version": 1})
    assert notes.once("a", lambda: piece("a")) == notes.once("a", lambda: piece("a")) == ["A", {"é": 1.5}]
    notes.once("b", lambda: piece("b"))
    assert list(Notes(path, {"version": 1})) == ["a", "b"]

    path.write_text(path.read_text()[:-1])  # as a power cut leaves it
    again = Notes(path, {"version": 1})
    assert list(again) == ["a"]
    again.once("b", lambda: piece("b"))
    again.forget("a")
    assert list(Notes(path, {"version": 1})) == ["b"]
    assert (done, Notes(path, {"version": 1})["b"]) == (["a", "b", "b"], ["B", {"é": 1.5}])

    assert not Notes(path, {"version": 2})  # other work begins anew
    with pytest.raises(ValueError, match="not JSON compliant"):
        again.note("c", [float("nan")])
    assert "c" not in again
    again.remove()
    assert not again
    assert not list(tmp_path.iterdir())


def test_a_model_whose_shapes_do_not_agree_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onesided"
    OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(random_panel(0)).save(path)
    for factor, found in ((np.ones((9, 2)), r"a factor of shape \(9, 2\)"), (np.ones(12), r"has shape \(12,\)")):
        stored = archive.read(path, "model")
        stored.arrays["factor"] = factor
        archive.write(stored, tmp_path / "other.onesided")
        with pytest.raises(InputError, match=rf"{found}; expected .* \(found in .*other.onesided\)"):
            OneSidedCompletion.load(tmp_path / "other.onesided")
