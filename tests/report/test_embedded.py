"""Drawings from files: shapes and texts come in, nothing else does."""

from __future__ import annotations

from hostile_report import EVIL_DRAWING

from crossling.report.dots import draw_dots
from crossling.report.embedded import embed_svg
from crossling.report.heat_maps import HeatMap, draw_maps

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'


def embed(inside: str) -> str:
    drawing = embed_svg(f"{HEAD}{inside}</svg>", prefix="p-", title="t")
    assert drawing is not None
    return str(drawing)


def test_our_own_figures_come_through() -> None:
    rows = [
        {"task": "", "model": f"{name} <b>", "seed": seed, "language": code, "value": value + seed}
        for name in "ab"
        for code, value in (("de", 1.0), ("hi", 3.0))
        for seed in (0, 1)
    ]
    text = draw_dots(rows, "value", title="Dots & more")
    drawing = str(embed_svg(text, prefix="p-", title="t"))
    assert "Dots &amp; more" in drawing and "a &lt;b&gt;" in drawing
    assert drawing.count("<path") == text.count("<path") and drawing.count("<use") == text.count("<use")
    assert "<style" not in drawing, "its rules would be the page's"
    assert drawing.count('href="#p-') == drawing.count("<use") and "url(#p-" in drawing


def test_heat_maps_come_through_with_their_pictures() -> None:
    heat = HeatMap("heads", [[0.1, 0.9], [0.5, None]], rows=["1", "2"], columns=["1", "2"])
    text = draw_maps([heat, heat], title="Updates", columns=2)
    drawing = str(embed_svg(text, prefix="p-", title="t"))
    assert drawing.count('href="data:image/png;base64,') == text.count("data:image/png;base64,") >= 2
    assert "Updates" in drawing


def test_code_and_addresses_stay_out() -> None:
    drawing = str(embed_svg(EVIL_DRAWING, prefix="p-", title="t"))
    for bad in ("<script", "onload", "onclick", "javascript", "evil.example", "iframe", "foreignObject", "<a"):
        assert bad not in drawing, bad
    assert "stroke: red" in drawing and "M0 0h9" in drawing
    assert "&lt;script" in drawing, "a text stays a text"


def test_styles_say_how_things_look_and_no_more() -> None:
    drawing = embed('<path style="fill: #fff; behavior: url(x); stroke: URL(http://x); position: fixed; opacity: .5"/>')
    assert 'style="fill: #fff; opacity: .5"' in drawing
    assert "url(#p-c)" in embed('<path clip-path="url(#c)"/>')
    assert "clip-path" not in embed('<path clip-path="url(http://x#c)"/>')
    assert 'fill="url(#p-g)"' in embed('<path fill="url(#g)"/>')


def test_pictures_come_in_as_data_only() -> None:
    assert "data:image/png;base64,AAAA" in embed('<image xlink:href="data:image/png;base64,AAAA"/>')
    assert "href" not in embed('<image xlink:href="data:image/svg+xml;base64,AAAA"/>')
    assert "href" not in embed('<path xlink:href="data:image/png;base64,AAAA"/>')


def test_what_is_no_drawing_is_refused() -> None:
    bomb = '<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
    for text in ("", "not xml", "<html><svg/></html>", f"{bomb}{HEAD}<text>&b;</text></svg>", HEAD):
        assert embed_svg(text, prefix="p-", title="t") is None, text
    deep = embed("<g>" * 500 + "<path/>" + "</g>" * 500)
    assert "<path" not in deep
