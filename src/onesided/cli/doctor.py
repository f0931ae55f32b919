"""``onesided doctor``: what works on this machine."""

from __future__ import annotations

from typing import Any

import click

from onesided.cli.console import json_option, print_result

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "safetensors")
EXTRAS = {"matplotlib": "report", "duckdb": "pack"}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Report what is installed and whether it works.

    Versions, threads and optional parts; the compiled kernels are run and compared with a plain reference. Exit
    code 1 if they do not work.

    \b
    Example:
        onesided doctor
    """
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
    for name in (*LIBRARIES, *EXTRAS):
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            package = f"'onesided[{EXTRAS[name]}]'" if name in EXTRAS else name
            result[name] = f"not installed; pip install {package}"
    try:
        works = _kernels_agree()
        result["kernels"] = "compiled and correct" if works else "WRONG: they differ from the reference; please report"
    except Exception as error:  # a broken installation is what this command is for
        works = False
        result["kernels"] = f"BROKEN: {type(error).__name__}: {error}"
    print_result(result, as_json)
    ctx.exit(0 if works else 1)


def _kernels_agree() -> bool:
    """Whether the compiled row pass computes what the reference says."""
    import numpy as np

    from onesided.kernels import cpu, reference

    rng = np.random.default_rng(0)
    columns = np.array([0, 2, 5, 1, 2, 0, 1, 3, 5], np.int32)
    rows = (np.array([0, 3, 5, 9]), columns, rng.normal(size=9), np.ones(3), 1.0)
    X, center = rng.normal(size=(6, 3)), rng.normal(size=6)
    loss, gradient = cpu.row_pass(*rows, cpu.lines(X, center, np.float64))
    expected, expected_gradient = reference.row_pass(*rows, X, center)
    return bool(np.allclose(loss, expected) and np.allclose(gradient, expected_gradient))
