"""Whether systems differ: paired tests and intervals, computed from stored predictions alone."""

from crossling.scores.significance.compare import Comparison, Difference, Result, Settings, compare
from crossling.scores.significance.paired import bootstrap, correct_holm, p_value, permute, t_test

__all__ = [
    "Comparison",
    "Difference",
    "Result",
    "Settings",
    "bootstrap",
    "compare",
    "correct_holm",
    "p_value",
    "permute",
    "t_test",
]
