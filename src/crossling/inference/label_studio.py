"""Predictions as Label Studio's tasks: annotators correct them instead of starting from nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FROM_NAME = "label"
"""The name of the control tag in the labelling configuration (``<Labels name="label" …>``)."""
TEXTS = ("text", "first", "second", "question", "context")
"""What of a prediction is a task's data."""


def build_task(found: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """A task with one pre-annotation, from what ``predict`` gives for an input."""
    data = {name: found[name] for name in TEXTS if name in found}
    return {"data": data, "predictions": [build_prediction(found, model=model)]}


def build_prediction(found: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """The labels of one input in Label Studio's form, as sure as the least sure of them."""
    if "label" in found:
        shown = "text" if "text" in found else "first"
        result = [_annotate("choices", shown, {"choices": [found["label"]]}, found["confidence"])]
    elif "answer" in found:
        value = {"start": found["start"], "end": found["end"], "text": found["answer"], "labels": ["answer"]}
        result = [_annotate("labels", "context", value, found["confidence"])] if found["start"] >= 0 else []
    else:
        result = [_annotate_part(part) for part in found.get("spans", found["words"])]
    sure = [part["confidence"] for part in found["words"]] if "words" in found else [found["confidence"]]
    return {"model_version": model, "score": min(sure, default=0.0), "result": result}


def _annotate_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A span, or a word with its tag."""
    text, label = (part["span"], part["label"]) if "span" in part else (part["word"], part["tag"])
    value = {"start": part["start"], "end": part["end"], "text": text, "labels": [label]}
    return _annotate("labels", "text", value, part["confidence"])


def _annotate(kind: str, shown: str, value: dict[str, Any], confidence: float) -> dict[str, Any]:
    return {"from_name": FROM_NAME, "to_name": shown, "type": kind, "value": value, "score": confidence}


def build_config(labels: tuple[str, ...], *, kind: str) -> str:
    """A labelling configuration for a project in Label Studio: ``kind`` is a task's kind, labels are the model's."""
    from xml.sax.saxutils import quoteattr

    def list_tags(tag: str, names: list[str]) -> str:
        return "".join(f"\n    <{tag} value={quoteattr(name)}/>" for name in names)

    if kind in ("classify", "classify_pair"):
        shown = ["text"] if kind == "classify" else ["first", "second"]
        control = f'  <Choices name="{FROM_NAME}" toName="{shown[0]}">{list_tags("Choice", list(labels))}\n  </Choices>'
    else:
        shown = ["question", "context"] if kind == "answer" else ["text"]
        spans = list(dict.fromkeys(label.removeprefix("B-").removeprefix("I-") for label in labels if label != "O"))
        names = ["answer"] if kind == "answer" else spans
        control = f'  <Labels name="{FROM_NAME}" toName="{shown[-1]}">{list_tags("Label", names)}\n  </Labels>'
    texts = "\n".join(f'  <Text name="{name}" value="${name}"/>' for name in shown)
    return f"<View>\n{control}\n{texts}\n</View>\n"
