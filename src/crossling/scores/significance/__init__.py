"""Whether systems differ: paired tests and intervals, computed from stored predictions alone.

``compare`` is the way in. ``t_test``, ``permutation`` and ``bootstrap`` hold one method each, ``holm`` the correction
for several languages.
"""

from crossling.scores.significance.compare import compare
from crossling.scores.significance.results import Comparison, Difference, Result, Settings

__all__ = ["Comparison", "Difference", "Result", "Settings", "compare"]
