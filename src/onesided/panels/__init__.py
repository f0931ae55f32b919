"""Panels: what was observed, from whatever holds it to compressed rows that are checked once.

``panel`` is the matrix of observed entries, ``csr`` its rows and ``ids`` the names of its rows and columns;
``positions`` and ``alignment`` find rows and columns in it. ``table_files`` and ``text_format`` read files, ``convert``
what libraries hold in memory, and ``packed`` is the folder of a panel larger than memory. ``refusals`` says what of all
that is refused. Nothing here computes moments or runs on a device. It may import ``errors``, ``memory``, ``arrays``,
``kernels`` and ``storage``.
"""
