"""Drawings of others put into a page: an SVG file rebuilt from the shapes and texts in it, and from nothing else.

What is not on the lists below is left out, so that neither a script nor an address can come in with a drawing. Names
inside a drawing get a prefix, for two drawings in one page must not share them.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from markupsafe import Markup, escape

DEEPEST = 64
_ELEMENTS = (
    "svg g defs path text tspan rect circle ellipse line polyline polygon use clipPath image title desc "
    "linearGradient radialGradient stop symbol marker"
)
_ATTRIBUTES = (
    "d x y x1 y1 x2 y2 dx dy r rx ry cx cy fx fy width height points offset transform viewBox preserveAspectRatio fill "
    "stroke stroke-width stroke-linecap stroke-linejoin stroke-dasharray stroke-opacity fill-opacity fill-rule "
    "clip-rule opacity text-anchor font-size font-family font-weight font-style dominant-baseline stop-color "
    "stop-opacity gradientUnits gradientTransform clipPathUnits markerWidth markerHeight refX refY orient "
    "textLength"
)
_PROPERTIES = (
    "fill stroke stroke-width stroke-linecap stroke-linejoin stroke-dasharray stroke-dashoffset stroke-miterlimit "
    "stroke-opacity fill-opacity fill-rule clip-rule opacity text-anchor font font-size font-family font-weight "
    "font-style dominant-baseline stop-color stop-opacity white-space image-rendering"
)
ELEMENTS, ATTRIBUTES, PROPERTIES = (frozenset(names.split()) for names in (_ELEMENTS, _ATTRIBUTES, _PROPERTIES))
_HARMLESS = re.compile(r"[\w\s#.,%()'\"+/-]*")
_LOCAL = re.compile(r"url\(#([\w:.-]+)\)")
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")


def embed_svg(text: str, *, prefix: str, title: str) -> Markup | None:
    """The drawing as part of a page; none where the text is no SVG that can be trusted to be one."""
    if "<!ENTITY" in text:
        return None
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    if _local(root.tag) != "svg":
        return None
    size = Markup("").join(
        Markup(' {}="{}"').format(name, root.attrib[name])
        for name in ("viewBox", "width", "height")
        if _HARMLESS.fullmatch(root.attrib.get(name, "?"))
    )
    inside = Markup("").join(_rebuild(child, prefix, 1) for child in root)
    return Markup('<svg class="drawn"{} role="img" aria-label="{}">{}</svg>').format(size, title, inside)


def _rebuild(element: ElementTree.Element, prefix: str, depth: int) -> Markup:
    name = _local(element.tag)
    if name not in ELEMENTS or depth > DEEPEST:
        return Markup("")
    inside = [escape(element.text or "")] if name in ("text", "tspan", "title", "desc") else []
    for child in element:
        inside.append(_rebuild(child, prefix, depth + 1))
        if name in ("text", "tspan"):
            inside.append(escape(child.tail or ""))
    attributes = Markup("").join(
        Markup(' {}="{}"').format(key, value) for key, value in _keep_attributes(element, name, prefix)
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, attributes, Markup("").join(inside))


def _keep_attributes(element: ElementTree.Element, name: str, prefix: str) -> list[tuple[str, str]]:
    kept = []
    for full, value in element.attrib.items():
        key = _local(full)
        if key == "id":
            kept.append((key, f"{prefix}{value}"))
        elif key == "href":
            if value.startswith("#"):
                kept.append((key, f"#{prefix}{value[1:]}"))
            elif name == "image" and _PICTURE.fullmatch(value):
                kept.append((key, value))
        elif key == "clip-path" and (local := _LOCAL.fullmatch(value)):
            kept.append((key, f"url(#{prefix}{local[1]})"))
        elif key == "style":
            kept.append((key, _keep_style(value, prefix)))
        elif key in ATTRIBUTES and (safe := _keep_value(value, prefix)) is not None:
            kept.append((key, safe))
    return kept


def _keep_style(text: str, prefix: str) -> str:
    """The declarations that only say how something looks."""
    kept = []
    for declaration in text.split(";"):
        name, _, value = declaration.partition(":")
        safe = _keep_value(value.strip(), prefix)
        if name.strip() in PROPERTIES and safe is not None:
            kept.append(f"{name.strip()}: {safe}")
    return "; ".join(kept)


def _keep_value(value: str, prefix: str) -> str | None:
    """A value without an address, but for one within the drawing."""
    if local := _LOCAL.fullmatch(value):
        return f"url(#{prefix}{local[1]})"
    return value if _HARMLESS.fullmatch(value) and "url" not in value.lower() else None


def _local(name: object) -> str:
    """A name without its name space; comments have none at all."""
    return name.rpartition("}")[2] if isinstance(name, str) else ""
