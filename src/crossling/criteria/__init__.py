"""Criteria: how a study picks one value of an axis, and which labels that takes."""
