"""Other methods behind the same interface, to compare with: matrix completion, nuclear norms, factor analysis, means.

=========================  =======================================================================================
``AlternatingGD``          two factors of the whole matrix, by Adam
``SoftImputeALS``          the same with a penalty on their size, by alternating least squares
``FactoredNuclearNorm``    a factor of T on Ω with a penalty on its nuclear norm, by Adam
``ConvexNuclearNorm``      T itself on Ω with that penalty, the convex program
``FactorAnalysisEM``       means, a factor and noise for each column, by expectation maximisation
``ColumnMeans``            T = μμᵀ
``Constant``               one number for all of T
=========================  =======================================================================================

They share the estimators' base and hold a row space like them. What they are compared by is in ``experiments``. They
may import from every room up to ``estimators``.
"""

from onesided.baselines.alternating_gd import AlternatingGD
from onesided.baselines.convex_nuclear_norm import ConvexNuclearNorm
from onesided.baselines.factor_analysis import FactorAnalysisEM
from onesided.baselines.nuclear_norm import FactoredNuclearNorm
from onesided.baselines.soft_impute import SoftImputeALS
from onesided.baselines.trivial import ColumnMeans, Constant

__all__ = [
    "AlternatingGD",
    "ColumnMeans",
    "Constant",
    "ConvexNuclearNorm",
    "FactorAnalysisEM",
    "FactoredNuclearNorm",
    "SoftImputeALS",
]
