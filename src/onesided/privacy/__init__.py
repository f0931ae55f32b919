"""Private fits, with a proof: what is protected, from whom, and at which price.

A row belongs to a person. :class:`Privacy` is what that person is promised; ``OneSidedCompletion(privacy=…)`` keeps it
by one of three mechanisms. The module of each has its threat model, its neighbour relation and its proof.

==========  =====================================================  ===========================================
mechanism   noise is added to                                      use it
==========  =====================================================  ===========================================
gradient    clipped contributions of rows to a few passes          by default: noise grows with columns × rank
central     all pair sums and counts, once                         up to some hundred columns, or to fit several
                                                                   ranks to one release
local       every value, before it leaves its owner                where the one who fits must not see values
==========  =====================================================  ===========================================

All columns are measured by the plan's bounds, never by scales estimated from the rows.

Measured accuracy, and from how many rows each begins to be useful: ``docs/privacy.md``. ``fit`` makes a private fit;
only ``curator`` sees rows, and what is not one of its answers does not leave it. The room may import fitting, model,
pairs and what comes before them.
"""

from onesided.privacy.accounting import gaussian_delta, gaussian_mu
from onesided.privacy.curator import Account, Release
from onesided.privacy.empirical import NoGuarantee, empirical_sensitivity, paper_noise
from onesided.privacy.plan import Privacy

__all__ = [
    "Account",
    "NoGuarantee",
    "Privacy",
    "Release",
    "empirical_sensitivity",
    "gaussian_delta",
    "gaussian_mu",
    "paper_noise",
]
