"""Whether systems differ: paired tests and intervals, computed from stored predictions alone.

``compare`` is the way in. ``hierarchical`` holds the default interval and its test; ``resampling`` those of older
results, by ``t_test``, ``permutation`` and ``bootstrap``; ``holm`` the correction for several tests.
"""

from crossling.scores.significance.compare import compare
from crossling.scores.significance.results import Comparison, Difference, Result, Settings

__all__ = ["Comparison", "Difference", "Result", "Settings", "compare"]
