"""Packed panels: a folder of memory-mapped arrays, and the external sort that makes one of tables larger than memory.

``format`` writes and opens the folder. ``sort`` packs tables, in passes: ``scan`` is the first of them, ``resume`` knows
which are finished, ``database`` is DuckDB. Datasets and the command line call ``pack`` and ``write_packed``; what a
panel can do once it is open is in ``panels.panel``. It may import what ``panels`` may.
"""
