"""Recipes: settings read from TOML, overrides, and the identity of what they describe."""
