"""Classification of a text (sentiment, topic, or the user's own classes)."""

from __future__ import annotations

from typing import Literal

from crossling.data.records import LabelledText
from crossling.tasks.texts import TextSettings, TextTask

VERSION = 1


class Settings(TextSettings):
    """What is classified and how it is scored."""

    kind: Literal["classify"] = "classify"


class Task(TextTask):
    """A class for each text."""

    record = LabelledText
    fields = ("text",)
    columns = ("text", "label")
