"""Packed panels: a folder of memory-mapped arrays, and the external sort that makes one of tables larger than memory.

``format`` writes and opens the folder. ``sort`` packs tables, in passes: ``scan`` is the first of them, ``resume``
knows which are finished, ``database`` is DuckDB. What a panel can do once it is open is in ``panels.panel``. These
modules may import what ``panels`` may.
"""
