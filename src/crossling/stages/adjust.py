"""Cross-lingual adjustment: words and their translations in parallel text get similar vectors (equation 1 of the
adjustment paper), while a second term pulls words of the source language to where the original encoder has them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from crossling.limits import LARGEST_NUMBER, MOST_COUNTED, MOST_EPOCHS
from crossling.objectives.aligned_words import AdjustmentSettings, identify_pairs
from crossling.stages import StageSettings, TrainedStage
from crossling.stages.source_vectors import compare_source, describe_change, read_source, scale_source
from crossling.stages.word_pairs import PairData, copy_encoder, encode_pairs, freeze_reference, open_pairs
from crossling.training.settings import Beta, drop_unused

if TYPE_CHECKING:
    from crossling.progress import Progress
    from crossling.stages.context import StageContext

VERSION = 1
Data = PairData


class Settings(AdjustmentSettings, StageSettings):
    """Parallel text, and how the encoder is moved by it; defaults are the paper's."""

    kind: Literal["adjust"] = "adjust"
    parallel: tuple[str | dict[str, Any], ...]
    """Sentences with translations, the source language first: ntrex:en-hi, wikimatrix:en-es, opus:en-ru, or a table
    with format, path and languages. Several of them are adjusted to at once."""
    epochs: int = Field(default=1, ge=1, le=MOST_EPOCHS)
    """How often all pairs are seen."""
    schedule: Literal["linear", "constant"] = "constant"
    """After the warm-up: fall to 0 in a straight line, or stay."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """AdamW's: how slowly the means of the gradient and of its square follow."""
    eps: float = Field(default=1e-9, ge=1e-20, le=1)
    """AdamW's: added to what the step is divided by."""
    clip: float = Field(default=0.0, ge=0, le=LARGEST_NUMBER)
    """Largest norm of the gradient; 0: no clipping."""
    rate_for: int | None = Field(default=None, ge=1, le=MOST_COUNTED)
    """The learning rate is for a text of this number of pairs, and inversely proportional to the actual number."""

    keep: Literal["all", "scale", "direction"] = "all"
    """What of the change is kept. all: all of it; scale: the encoder as it was, scaled to the variance that adjusting
    gave to its last layer's source words; direction: the adjusted one, scaled back to the variance before. The latter
    two are controls that separate shrinking from aligning."""

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.parallel:
            raise ValueError('parallel: name sentences with translations, such as "ntrex:en-hi"')
        if not self.pull and not self.stay:
            raise ValueError("pull = 0 and stay = 0: nothing would be learnt; leave the stage out")
        if self.keep != "all" and self.layer is not None:
            raise ValueError(f"keep = {self.keep!r}: the scale is the last layer's; leave layer out")
        return self


def open_stage_data(settings: Settings, *, source: str, store: Path, progress: Progress | None = None) -> Data:
    """Find and open what the stage reads."""
    return open_pairs(settings, source=source, store=store)


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the identity that is specific to the stage; data count by content, not by name."""
    return {"settings": drop_unused(identify_pairs(settings)), "data": data.fingerprints()}


def train(settings: Settings, data: Data, context: StageContext) -> TrainedStage:
    """Adjust the encoder; the reference is the encoder that the stage starts from."""
    import numpy as np

    from crossling.models.model import build_model
    from crossling.objectives.aligned_words import Objective
    from crossling.training.loop import fit
    from crossling.training.mixture import Stream

    examples = encode_pairs(settings, data, context)
    model = build_model(context.encoder, {"kind": "last"})
    if context.should_trim(settings.weight_decay):
        model.trim(np.union1d(examples.distinct_ids(), context.encoder.changed_rows))
    reference = freeze_reference(copy_encoder(model.encoder), context.distributed) if settings.stay else None
    objective = Objective("words", settings, model.encoder, reference=reference)
    scaled = scale_rate(settings, len(examples))
    original = copy_encoder(model.encoder) if settings.keep == "scale" else None
    read = partial(read_source, model, objective, examples, context.distributed)
    before = read()
    position = fit(model, Stream(objective, examples), scaled, context.execution("adjusting"))
    after = read()
    if original is not None:
        model.encoder.load_state_dict(original.state_dict())
        after = scale_source(model.encoder, before, read, variance=after.variance())
    elif settings.keep == "direction":
        after = scale_source(model.encoder, after, read, variance=before.variance())
    change = compare_source(before, after)
    context.progress.say(describe_change(change, context.source))
    record = {
        "steps": position.step,
        "training_seconds": round(position.seconds, 3),
        "history": position.history,
        "pairs": len(examples),
        "links": int(examples.count_values("links").sum()) // 2,
        "source_vectors": change,
    }
    return TrainedStage(model, context.describe_model(), record)


def scale_rate(settings: Settings, pairs: int) -> Settings:
    """The settings with the learning rate for this number of pairs."""
    if settings.rate_for is None:
        return settings
    return settings.model_copy(update={"lr": settings.lr * settings.rate_for / pairs})
