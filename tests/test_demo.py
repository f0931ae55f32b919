"""The demonstration: digits recovered from eight pixels each, and one picture, without a network."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from onesided.cli import main
from onesided.report.digits import PICTURES, PIXELS_SHOWN, DigitRecovery, draw, recover_digits


@pytest.fixture(scope="module")
def recovery() -> DigitRecovery:
    return recover_digits(rng=0)


def demo(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["demo", *map(str, arguments)])


def test_eight_pixels_of_each_image_are_shown(recovery: DigitRecovery) -> None:
    assert recovery.images.shape == (1797, 64)
    assert (recovery.shown.sum(axis=1) == PIXELS_SHOWN).all()
    assert np.array_equal(recovery.imputed[recovery.shown], recovery.images[recovery.shown])
    panel = recovery.model.second_moment_.panel
    assert panel is not None
    assert panel.n_entries == 1797 * PIXELS_SHOWN  # all that the model was fitted on


def test_what_is_recovered(recovery: DigitRecovery) -> None:
    found = recovery.summary()
    assert found["relative_error_of_second_moment"] < 0.12
    assert found["rmse_hidden_pixels"] < 0.95 * found["rmse_column_means"]
    assert found["coverage_of_90%_intervals"] == pytest.approx(0.9, abs=0.03)
    cosines = np.linalg.norm(recovery.true_components() @ recovery.model.components_.T, axis=1)
    assert cosines[:4].min() > 0.9
    assert len(cosines) == 10


def test_the_seed_chooses_the_pixels(recovery: DigitRecovery) -> None:
    assert not np.array_equal(recover_digits(rng=1).shown, recovery.shown)


@pytest.mark.parametrize("ending", PICTURES)
def test_pictures(recovery: DigitRecovery, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"digits{ending.upper()}"
    assert draw(recovery, path)
    assert {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[ending] == path.read_bytes()[
        : 4 + (ending == ".svg")
    ]
    assert path.stat().st_size > 10_000
    assert list(tmp_path.iterdir()) == [path]


def test_every_image_and_component_is_drawn_and_nothing_overlaps(
    recovery: DigitRecovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: list[Any] = []
    honest = Figure.savefig

    def savefig(self: Any, *arguments: Any, **options: Any) -> None:
        figures.append(self)
        honest(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    draw(recovery, tmp_path / "digits.png")
    (figure,) = figures
    assert len(figure.axes) == 60
    assert all(len(axis.images) == 1 for axis in figure.axes)
    boxes = [axis.get_tightbbox() for axis in figure.axes]
    canvas = figure.bbox
    assert all(canvas.x0 <= box.x0 and box.x1 <= canvas.x1 for box in boxes)
    assert all(canvas.y0 <= box.y0 and box.y1 <= canvas.y1 for box in boxes)
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    titles = [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]
    assert titles == ["8 pixels shown", "the image", "recovered", "column means", "true components", "recovered"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_picture_is_drawn_whole_or_not_at_all(
    recovery: DigitRecovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def savefig(self: Any, path: Path, **_: Any) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    (tmp_path / "digits.png").write_bytes(b"older")
    with pytest.raises(error):
        draw(recovery, tmp_path / "digits.png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_command(recovery: DigitRecovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("the demonstration needs no network")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.chdir(tmp_path)
    again: list[DigitRecovery] = []

    def kept(**settings: Any) -> DigitRecovery:
        again.append(recover_digits(**settings))
        return again[0]

    monkeypatch.setattr("onesided.report.digits.recover_digits", kept)
    result = demo()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "images                           1,797\n" in result.stdout
    assert result.stdout.endswith("onesided-demo.png\n")
    assert [path.name for path in tmp_path.iterdir()] == ["onesided-demo.png"]
    assert np.array_equal(again[0].imputed, recovery.imputed)  # the seed says it all
    monkeypatch.setattr("onesided.report.digits.recover_digits", lambda **_: recovery)
    result = demo("-o", "other.svg", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == recovery.summary() | {"picture": "other.svg"}


def test_without_matplotlib(recovery: DigitRecovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesided.report.digits.recover_digits", lambda **_: recovery)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = demo("-o", tmp_path / "digits.png", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["picture"] is None
    assert "pip install 'onesided[report]'" in result.stderr
    assert not list(tmp_path.iterdir())
