"""Stored predictions, the scores computed from them, and tests of their differences."""
