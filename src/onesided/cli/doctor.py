"""``onesided doctor``: what works on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from onesided.cli.console import print_result
from onesided.cli.options import json_option

if TYPE_CHECKING:
    from onesided.panels.panel import Panel

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "safetensors")
EXTRAS = {"matplotlib": "report", "duckdb": "pack", "torch": "gpu", "triton": "gpu", "ray": "cluster"}
WRONG = "WRONG: they differ from the reference; please report"


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Report what is installed and whether it works.

    Versions, threads, optional parts and the GPU; compiled kernels, and those of the GPU, are run and compared with a
    plain reference. Exit code 1 if they do not work.

    \b
    Example:
        onesided doctor
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from onesided import __version__
    from onesided.engines.threads import thread_count

    result: dict[str, Any] = {
        "onesided": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": thread_count(),
    }
    for name in (*LIBRARIES, *EXTRAS):
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            package = f"'onesided[{EXTRAS[name]}]'" if name in EXTRAS else name
            result[name] = f"not installed; pip install {package}"
    try:
        works = _agrees(lambda panel: panel)
        result["kernels"] = "compiled and correct" if works else WRONG
    except Exception as error:  # a broken installation is what this command is for
        works = False
        result["kernels"] = f"BROKEN: {type(error).__name__}: {error}"
    result["gpu"], gpu_works = _gpu()
    print_result(result, as_json)
    ctx.exit(0 if works and gpu_works else 1)


def _gpu() -> tuple[str, bool]:
    """The GPU in words, and whether nothing is wrong with it; that there is none is not wrong."""
    try:
        import torch
    except ImportError:
        return "none: PyTorch is not installed", True
    if not torch.cuda.is_available():
        return "none that PyTorch can use", True
    from onesided.engines.gpu import GpuPlace
    from onesided.kernels import gpu
    from onesided.memory import memory_in_words

    name = f"{torch.cuda.get_device_name()}, {memory_in_words(torch.cuda.mem_get_info()[1])}"
    try:
        fused = "fused kernels" if gpu.fused_for(torch.zeros(1, device="cuda")) else "plain kernels, without Triton"
        works = _agrees(lambda panel: panel.at(GpuPlace(panel, torch.device("cuda"))))
        return f"{name}: {fused}, {'correct' if works else WRONG}", works
    except Exception as error:
        return f"{name}: BROKEN: {type(error).__name__}: {error}", False


def _agrees(placed: Callable[[Panel], Panel]) -> bool:
    """Whether a row pass computes what the reference says, where a small panel is placed."""
    import numpy as np

    from onesided.arrays import host
    from onesided.engines.engine import engine_for
    from onesided.kernels import reference
    from onesided.kernels.bundles import Rows
    from onesided.panels.panel import Panel

    rng = np.random.default_rng(0)
    columns = np.array([0, 2, 5, 1, 2, 0, 1, 3, 5], np.int32)
    rows = (np.array([0, 3, 5, 9]), columns, rng.normal(size=9))
    X, center, scale = rng.normal(size=(6, 3)), rng.normal(size=6), rng.uniform(0.5, 2.0, size=6)
    engine = engine_for(placed(Panel(*rows, 6)))
    loss, gradient = engine.row_pass(engine.array(X), engine.array(center), engine.array(scale), 0.0)
    expected, expected_gradient = reference.row_pass(Rows.of(*rows, np.ones(3)), X, center, scale)
    return bool(np.allclose(loss, expected) and np.allclose(host(gradient), expected_gradient))
