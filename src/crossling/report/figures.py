"""Figures as SVG files: the one place that sets up matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Drawing:
    """A figure being drawn: its axes, and its SVG once it is done."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self.figure, self.axes = figure, axes
        self.svg = ""


@contextmanager
def draw_figure(*, rows: int = 1, columns: int = 1, size: tuple[float, float], **options: Any) -> Iterator[Drawing]:
    """A figure whose SVG is the same text for the same numbers; options are those of ``pyplot.subplots``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", **options)
        drawing = Drawing(figure, axes)
        try:
            yield drawing
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            drawing.svg = text.getvalue()
        finally:
            pyplot.close(figure)
