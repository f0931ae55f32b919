"""Arrays in, arrays out; no objects and no policy.

Every kernel works on a block of compressed rows: ``indptr[k]`` to ``indptr[k + 1]`` are the positions of the
block's k-th row in ``columns`` and ``values``, which may belong to a larger panel. Results of blocks add up.
``reference`` is written to be read, the other modules to be fast; one test grid holds both to the same numbers. What
kernels are called for is not known here: they import numpy, numba, torch and each other.
"""
