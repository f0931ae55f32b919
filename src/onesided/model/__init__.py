"""The fitted row space and what it answers: predictions, T, similar columns, recommendations and bands.

A model knows nothing of how it was fitted: objectives, solvers, selection and the bootstrap's refits are in
``fitting``. It may import panels, engines, pairs and what comes before them.
"""
