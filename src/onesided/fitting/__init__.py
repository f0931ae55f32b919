"""From a panel to a row space: what is minimised, how, and how everything left open is chosen on held-out rows.

``fit`` makes a whole fit; ``selection`` chooses its setting, ``moment_solution`` and ``refinement`` find the row space,
``blending`` and ``row_noise`` learn what surrounds it, ``bootstrap`` resamples it. ``objective`` and ``solvers`` know
nothing of one another. What a fitted row space answers is in ``model``; what privacy adds, in ``privacy``; parameters
as scikit-learn has them, in ``estimators``. It may import model, pairs, engines, panels and what comes before them.
"""
