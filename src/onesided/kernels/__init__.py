"""Arrays in, arrays out; no objects and no policy.

Kernels take a block of rows, or of pairs in compressed rows, whose entries may lie in arrays of a larger panel; results
of blocks add up. What they take together has names (``bundles``). ``reference`` is written to be read, the other
modules to be fast; one test grid holds both to the same numbers. What kernels are called for is not known here: they
import numpy, numba, torch, ``arrays`` and each other.
"""
