"""Classification of a pair of texts (inference, paraphrase, or the user's own classes)."""

from __future__ import annotations

from typing import Literal

from crossling.data.records import LabelledPair
from crossling.tasks.texts import TextSettings, TextTask

VERSION = 1
ENCODING_SETTINGS = ("length",)


class Settings(TextSettings):
    """Which pairs are classified and how they are scored."""

    kind: Literal["classify_pair"] = "classify_pair"


class Task(TextTask):
    """A class for each pair."""

    record = LabelledPair
    fields = ("first", "second")
    columns = ("first", "second", "label")
