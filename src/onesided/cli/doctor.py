"""``onesided doctor``: what works on this machine."""

from __future__ import annotations

from typing import Any

import click

from onesided.cli.console import json_option, print_result

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "safetensors")
EXTRAS = {"matplotlib": "report"}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Report versions, threads and optional parts, and check the compiled kernels against the reference."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from onesided import __version__
    from onesided.engines.local import thread_count

    result: dict[str, Any] = {
        "onesided": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": thread_count(),
    }
    for name in LIBRARIES:
        result[name] = version(name)
    for name, extra in EXTRAS.items():
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            result[name] = f"not installed; pip install 'onesided[{extra}]'"
    result["kernels"] = _kernels()
    print_result(result, as_json)


def _kernels() -> str:
    """Whether the compiled row pass computes what the reference says."""
    import numpy as np

    from onesided.kernels import cpu, reference

    rng = np.random.default_rng(0)
    arguments = (
        np.array([0, 3, 5, 9]),
        np.array([0, 2, 5, 1, 2, 0, 1, 3, 5], np.int32),
        rng.normal(size=9),
        np.ones(3),
        rng.normal(size=(6, 3)),
    )
    loss, gradient = cpu.row_pass(*arguments)
    expected, expected_gradient = reference.row_pass(*arguments)
    agree = np.allclose(loss, expected) and np.allclose(gradient, expected_gradient)
    return "compiled and correct" if agree else "WRONG: compiled and reference results differ; please report this"
