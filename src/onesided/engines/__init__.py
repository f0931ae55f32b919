"""Where passes over rows run, behind one interface.

``engine`` declares it; ``cpu`` runs compiled kernels in ``threads`` over blocks of rows, ``gpu`` on a device, and
``ray`` on the nodes of a cluster. ``placement`` says where a panel's passes run. What a pass computes is in
``kernels.reference``; what passes are for, in ``pairs`` and ``fitting``. It may import panels, kernels and what comes
before them. torch and Ray are imported when they are asked for.
"""
