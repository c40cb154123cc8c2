"""The choice of a masked-word head for perplexities: how it is named, what it is trained on, which figures it compares.

Nothing here imports torch; the heads themselves are in ``masked_word_heads.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from crossling.analyses.models import AnalysedModel, ModelLocation, Pretrained, name_model
from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.data.spec import list_data
from crossling.errors import ArtefactError, DataError, UserError
from crossling.limits import LARGEST_SEED, MOST_COUNTED
from crossling.training.settings import HeadSettings

ADAPTED = "adapted "
"""How the name of a head begins that was adapted with its encoder."""
KEYWORDS = ("auto", "checkpoint", "trained")
"""Values of the setting head that are no models."""


class HeadTraining(HeadSettings):
    """How a head is trained for an encoder that came without one: on the frozen pretrained encoder."""

    train: tuple[str | dict[str, Any], ...] = ()
    """The text; default: the training split of ``on`` in all the languages."""
    rows: int = Field(default=5_000, ge=1, le=MOST_COUNTED)
    """Of each default set, the first rows."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of an example; longer texts are read in parts."""
    share: float = Field(default=0.15, gt=0, lt=1)
    """Share of a text's subwords that are masked."""
    held_out: float = Field(default=0.05, gt=0, le=0.5)
    """Share of every language's texts on which its accuracy is measured; not trained on."""
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)
    """Draws first weights, masks and order."""

    @field_validator("train", mode="before")
    @classmethod
    def _valid_train(cls, value: Any) -> Any:
        return list_data(value)


NO_HEAD = (
    "no masked-word head is stored beside this model. Name the encoder after a stage adapt, such as runs/da@0. Stages "
    "of earlier versions kept no head: run them again in another store."
)


def has_own_head(location: ModelLocation) -> bool:
    """Whether a head is stored beside a model."""
    from crossling.models.model import HEAD_FILE

    return isinstance(location, Path) and (location / HEAD_FILE).is_file()


def name_place(text: str, found: Sequence[AnalysedModel]) -> str:
    """The one place that a named head is in."""
    if len(found) > 1:
        places = ", ".join(f"{model.location} (seed {model.seed})" for model in found)
        raise UserError(
            f"head = {text!r}: several models; name a seed, such as RUN/seed-1@0, or the folder of one: {places}"
        )
    location = found[0].location
    if isinstance(location, Pretrained):
        return "@".join(filter(None, (location.name, location.revision)))
    if (location / "model.json").is_file() and not has_own_head(location):
        raise ArtefactError(f"head = {text!r}: {NO_HEAD}")
    return str(location)


def refuse_different_encoders(encoders: Sequence[Pretrained]) -> None:
    """Models of different encoders have no head in common, and their perplexities cannot be compared."""
    from crossling.encoders.loading import load_encoder
    from crossling.encoders.offline import OFFLINE_ALIASES

    names = {}
    for one in encoders:
        folder = Path(one.name).expanduser()
        name = str(folder.resolve()) if folder.is_dir() else one.name
        names[OFFLINE_ALIASES[0] if name in OFFLINE_ALIASES else name, one.revision] = one
    if len(names) == 1:
        return
    found = {load_encoder(one.name, revision=one.revision).identity: one.name for one in names.values()}
    if len(found) > 1:
        raise ArtefactError(
            f"models of different encoders ({', '.join(sorted(found.values()))}): perplexities can be compared within "
            "one head and one vocabulary only. Name models of one encoder at a time."
        )


def list_default_text(on: str | dict[str, Any], languages: Sequence[str], *, rows: int) -> tuple[dict[str, Any], ...]:
    """The text that a head is trained on where the settings name none."""
    if isinstance(on, dict):
        raise DataError(
            "the encoder came without a head for masked words, and a custom file has no training split: name "
            "the text to train one on: --set 'training.train=[\"ud:de\"]'"
        )
    return tuple({"data": f"{on}:{code}:train", "limit": rows} for code in languages)


def open_training_text(spec: str | dict[str, Any], *, store: Path) -> Rows:
    """A set that a head is trained on."""
    try:
        return open_data(spec, split="train", store=store)
    except DataError as error:
        raise DataError(
            f"text to train a head for masked words on: {error}\nName other text: --set 'training.train=[\"ud:de\"]'"
        ) from None


def describe_heads(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on the heads that figures are of.

    Figures of different heads are refused, but for heads that were adapted with their encoders.
    """
    heads = sorted({row["head"] for row in rows if not row["head"].startswith(ADAPTED)})
    if len(heads) > 1:
        raise ArtefactError(
            f"the models were scored with different heads ({', '.join(heads)}), whose perplexities cannot be compared. "
            "Score them in one store, or one at a time."
        )
    adapted = list(dict.fromkeys(name_model(row) for row in rows if row["head"].startswith(ADAPTED)))
    notes = [f"All figures are of one head ({heads[0]}) and are comparable with no others."] if heads else []
    if adapted:
        notes = [f"Figures are of one head ({heads[0]})."] if heads else []
        notes.append(
            f"Scored with the head that was adapted with the encoder: {', '.join(adapted)}. Such a figure is that of "
            "encoder and head together; it is comparable within one vocabulary."
        )
    accuracy = {row["language"]: row["head_accuracy"] for row in rows if row["head_accuracy"] is not None}
    if accuracy:
        shares = ", ".join(f"{code} {100 * value:.1f}" for code, value in accuracy.items())
        notes.append(f"The head was trained on the frozen encoder; of held-out subwords it predicts, in %: {shares}.")
    return notes
