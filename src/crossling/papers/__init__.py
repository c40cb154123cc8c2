"""The papers' tables reproduced: each paper is a study, and our figures are shown beside those that were printed.

``PAPER.toml`` is the study, with a small scale; ``recipe-PAPER*.toml`` are its recipes; ``PAPER-tables.toml`` says
which of its systems the cells of a table are; ``PAPER-published.toml`` holds what was printed.
"""
