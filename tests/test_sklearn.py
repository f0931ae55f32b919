"""Both estimators keep scikit-learn's contract."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from onesided import HajekGD, OneSidedCompletion

# The checks use a handful of columns in all kinds of units: a rank that fits them, and for gradient descent a step
# short enough for the largest. No check is excepted.
ESTIMATORS = [
    OneSidedCompletion(rank=2, random_state=0),
    HajekGD(rank=2, step_size=1e-6, iterations=30, random_state=0),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)
