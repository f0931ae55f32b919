"""What numpy and torch have in common: algorithms are written once, for arrays wherever they lie.

Arrays of numpy lie in the machine's memory, tensors of torch on a device. Both know most operations by the same names;
here is what they do not. torch is never imported here: whoever has a tensor has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def namespace(array: Any) -> Any:
    """numpy or torch, whichever an array belongs to.

    >>> namespace(np.ones(3)).__name__
    'numpy'
    """
    return np if isinstance(array, (np.ndarray, np.generic, float, int)) else sys.modules["torch"]


def host(array: Any) -> Array:
    """An array as one of numpy; itself if it is one."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu().numpy())


def like(array: Any, values: Any) -> Any:
    """Values of the host where an array lies; as they are where that is the host, too."""
    if isinstance(array, np.ndarray):
        return values
    return sys.modules["torch"].as_tensor(np.array(values, order="C"), device=array.device)


def inner(a: Any, b: Any) -> Any:
    """The sum of products of two arrays, in double precision: a number, or a tensor of one.

    >>> inner(np.ones((2, 2), np.float32), np.full((2, 2), 0.5))
    2.0
    """
    if isinstance(a, np.ndarray):
        return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))
    torch = sys.modules["torch"]
    return (a * b).sum(dtype=torch.float64)


def add_scaled(total: Any, scale: Any, part: Any) -> Any:
    """total + scale · part, in place."""
    if isinstance(total, np.ndarray):
        total += scale * part
        return total
    return total.addcmul_(part, sys.modules["torch"].as_tensor(scale, device=part.device).to(part.dtype))
