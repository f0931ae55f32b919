"""Real panels by name: read from the files as published, verified, and kept memory-mapped for the next time.

Here are the catalogue, downloads, and readers of ratings, Jester's table and genotypes. Files of entries in general and
packed folders are read and written by ``panels``; panels drawn from known truth are in ``synthetic``. It may import
panels and errors: no model, and nothing that is fitted.
"""

from onesided.datasets.catalogue import CATALOGUE, Release, Specification
from onesided.datasets.loading import load
from onesided.datasets.sources import find

__all__ = ["CATALOGUE", "Release", "Specification", "find", "load"]
