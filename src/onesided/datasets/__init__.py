"""Real panels by name: read from the files as published, verified, and kept memory-mapped for the next time."""

from onesided.datasets.catalogue import CATALOGUE, Release, Specification
from onesided.datasets.loading import load
from onesided.datasets.sources import find

__all__ = ["CATALOGUE", "Release", "Specification", "find", "load"]
