"""What several tests share: panels, and what to say where an optional package is not installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
import pytest

from onesided import Panel

if find_spec("torch") is not None:
    import torch

    if not torch.cuda.is_available():  # fused kernels are then interpreted; to be said before they are imported
        os.environ.setdefault("TRITON_INTERPRET", "1")
        torch.set_num_threads(1)  # tensors are small here, and threads would wait for one another

NEEDS = {
    "torch": "needs PyTorch: make test-all, or pip install '.[gpu]'",
    "triton": "needs Triton: make test-all, or pip install '.[gpu]' on Linux",
    "ray": "needs Ray: make test-all, or pip install '.[cluster]'",
}


def random_panel(seed=0, n=60, d=12, low=1, high=7, weighted=False, dtype=np.float64):
    """A panel with rows of different lengths, some of them empty."""
    rng = np.random.default_rng(seed)
    dense = np.full((n, d), np.nan)
    for u in range(n):
        columns = rng.choice(d, size=rng.integers(low, high), replace=False)
        dense[u, columns] = rng.normal(1.0, 1.0, size=len(columns))
    panel = Panel.from_dense(dense.astype(dtype))
    return panel.with_row_weights(rng.uniform(0.2, 3.0, size=n)) if weighted else panel


@pytest.fixture
def make_panel():
    return random_panel
