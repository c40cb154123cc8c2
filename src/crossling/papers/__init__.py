"""The papers' tables again: figures as printed, the studies and analyses that make them, and ours beside them.

``<paper>-published.toml`` holds what was printed, and ``<paper>.toml`` how each table is made, at full scale and at
small scale. Recipes and study files are written from the second when a table is asked for.
"""
