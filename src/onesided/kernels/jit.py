"""How every kernel for a processor is compiled."""

from __future__ import annotations

import numba

# Serial, and without the interpreter's lock. Reductions may be reassociated; NaN and infinities keep their meaning.
jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
