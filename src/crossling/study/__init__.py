"""Runs of recipes, and the store of what they made."""
