"""The scikit-learn estimators: shells that read what users bring, call a fit and hand out what the row space answers.

``completion`` is ``OneSidedCompletion``, ``answers`` what it is asked once it is fitted, ``hajek_gd`` the paper's
algorithms; ``base`` is what they and the baselines share, ``saving`` the file of a model, ``parameters`` how parameters
are checked. No mathematics lives here. It may import every room but baselines, datasets, experiments, report and cli.
"""
