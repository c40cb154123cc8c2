"""Domain adaptation (continued pretraining): an encoder learns to predict masked words of unlabelled text.

Text may be in any languages. The paper on multilingual knowledge adapts to the main task's own training text in all of
its languages, and then fine-tunes on English alone: an ``adapt`` stage before a ``finetune`` one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.objectives.masked_words import MaskingSettings
from crossling.stages import StageSettings, TrainedStage
from crossling.stages.parsing import DataSpecs
from crossling.training.settings import HeadSettings, drop_unused

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.data.batching import Examples
    from crossling.encoders.masked_word_head import MaskedWordHead
    from crossling.encoders.unlabelled import TextExamples
    from crossling.models.model import Model
    from crossling.objectives.masked_words import Objective
    from crossling.progress import Progress
    from crossling.stages.context import StageContext

VERSION = 1


class Settings(MaskingSettings, StageSettings):
    """The text to learn from, and how it is masked."""

    kind: Literal["adapt"] = "adapt"
    train: DataSpecs
    """One data set or a list of them, of any kind and language; labels are not looked at."""
    lr: float = Field(default=1e-5, gt=0, le=10)
    """The highest learning rate."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of an example; longer texts are read in parts, cut between words."""
    pairs: Literal["apart", "together"] = "apart"
    """Two texts of a row (of pairs, questions, translations): an example each, or one example of both."""
    temperature: float = Field(default=1.0, ge=1, le=1000)
    """Languages are seen in proportion to their number of texts to the power of 1 / temperature: 1 as they are, 1000
    all alike. Texts of smaller ones are repeated; none is left out."""
    held_out: float = Field(default=0.02, ge=0, le=0.5)
    """Share of every language's texts on which prediction is measured; not trained on."""
    select: Literal["last", "best"] = "last"
    """Keep the last epoch, or the one that predicts held-out words best."""
    vocabulary: Literal["whole", "seen"] = "whole"
    """Choose among all subwords, or only among those of the texts: an approximation, faster and smaller."""
    head: HeadSettings = HeadSettings()
    """How the head learns, with the encoder frozen, where the encoder came without one."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.select == "best" and not self.held_out:
            raise ValueError('select = "best" takes held-out text; set held_out to more than 0')
        return self


@dataclass(frozen=True)
class Data:
    """The rows whose text is read."""

    train: tuple[Rows, ...]

    def fingerprints(self) -> dict[str, Any]:
        """What of the data affects the result."""
        return {"train": [[rows.language, rows.fingerprint] for rows in self.train]}

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role."""
        return [("train", rows) for rows in self.train]

    def reads_per_epoch(self) -> list[tuple[Rows, float]]:
        """Each set, read once in an epoch."""
        return [(rows, 1.0) for rows in self.train]


def open_stage_data(settings: Settings, *, source: str, store: Path, progress: Progress | None = None) -> Data:
    """Find and open what the stage reads."""
    return Data(tuple(open_data(spec, split="train", store=store) for spec in settings.train))


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the identity that is specific to the stage; data count by content, not by name."""
    table = drop_unused(settings.model_dump(mode="json", exclude={"train"}))
    return {"settings": table, "data": data.fingerprints()}


def train(settings: Settings, data: Data, context: StageContext) -> TrainedStage:
    """Train a head where the encoder has none, then encoder and head; held-out text is measured before and after."""
    from crossling.data.batching import ExampleSubset
    from crossling.stages.masked_training import NAME, repeat_rows
    from crossling.training.loop import fit
    from crossling.training.mixture import Stream

    work = _prepare(settings, data, context)
    record: dict[str, Any] = {"head": work.learn_head(), "held_out": {}}
    record["held_out"]["before"] = work.measure()
    rows = repeat_rows(work.learnt.scalars("language"), settings.temperature, context.seed)
    position = fit(
        work.model,
        Stream(work.build_objective(frozen=False), ExampleSubset(work.learnt, rows)),
        settings,
        context.execution("adapting: masked words", folder="masked-words"),
        evaluate=work.score_epoch if settings.select == "best" else None,
    )
    record["held_out"]["after"] = work.measure()
    work.report(record["held_out"])
    work.model.kept[NAME] = work.restore_head()
    work.model.heads.clear()  # later stages use the encoder alone
    record |= {
        "steps": position.step,
        "best_step": position.best_step,
        "training_seconds": round(position.seconds + record["head"].get("training_seconds", 0.0), 3),
        "history": position.history,
    }
    return TrainedStage(work.model, context.describe_model(), record)


@dataclass
class _Work:
    """What one adaptation works with."""

    settings: Settings
    context: StageContext
    model: Model
    texts: TextExamples
    learnt: Examples
    held_out: Examples
    has_head: bool
    bias: Tensor
    """The first bias of every subword, of which training changes those in use."""

    def build_objective(self, *, frozen: bool) -> Objective:
        from crossling.objectives.masked_words import Objective
        from crossling.stages.masked_training import NAME

        to_rows = self.model.trimmed.to_rows if self.model.trimmed is not None else None
        seed = self.context.seed
        return Objective(NAME, self.settings, self.model.encoder, seed=seed, to_rows=to_rows, frozen=frozen)

    def learn_head(self) -> dict[str, Any]:
        """Where the encoder came without a head, train one while the encoder stays as it is."""
        from crossling.stages.masked_training import train_head

        if self.has_head:
            return {"from": "checkpoint"}
        objective = self.build_objective(frozen=True)
        execution = self.context.execution("adapting: head", folder="head")
        position = train_head(self.model, objective, self.learnt, self.settings.head, execution)
        return {
            "from": "trained",
            "steps": position.step,
            "training_seconds": round(position.seconds, 3),
            "history": position.history,
        }

    def restore_head(self) -> MaskedWordHead:
        """The trained head, with a bias for every subword of the encoder again."""
        from crossling.encoders.masked_word_head import MaskedWordHead
        from crossling.stages.masked_training import NAME

        head = self.model.heads[NAME]
        assert isinstance(head, MaskedWordHead)
        if self.model.trimmed is not None:
            head.restore_rows(self.model.trimmed.rows, self.bias)
        return head

    def measure(self) -> dict[str, Any] | None:
        """How well held-out words are predicted now, by the main process alone."""
        from crossling.stages.masked_training import describe_scores, score_masked_words

        if not len(self.held_out) or not self.context.distributed.is_main:
            return None
        self.model.to(self.context.distributed.device)
        found = score_masked_words(
            self.model,
            self.build_objective(frozen=False),
            self.held_out,
            distributed=self.context.distributed,
            progress=self.context.progress,
        )
        return describe_scores(found, self.texts.languages)

    def score_epoch(self) -> float:
        """The score that selects an epoch: the share of held-out words that are predicted."""
        return float((self.measure() or {"accuracy": 0.0})["accuracy"])

    def report(self, held_out: dict[str, Any]) -> None:
        """One line of what was gained."""
        before, after = held_out["before"], held_out["after"]
        if before and after:
            self.context.progress.say(
                f"held-out words predicted: {100 * before['accuracy']:.2f} % before, {100 * after['accuracy']:.2f} % "
                f"after; loss {before['loss']:.3f}, {after['loss']:.3f}"
            )


def _prepare(settings: Settings, data: Data, context: StageContext) -> _Work:
    """Encode the texts, and put a head on the encoder: its checkpoint's own, or a new one."""
    import numpy as np
    import torch

    from crossling.encoders.masked_word_head import build_head, check_masking, load_head
    from crossling.encoders.unlabelled import Chunking, encode_unlabelled
    from crossling.models.model import build_model
    from crossling.stages.masked_training import NAME, count_words, hold_out

    encoder = context.encoder
    check_masking(encoder)
    reading = Chunking(settings.length, settings.pairs, settings.whole_words)
    texts = encode_unlabelled(data.train, encoder, reading, cache=context.encoded)
    if len(texts.examples) < 2:
        raise DataError(f"{', '.join(rows.name for rows in data.train)}: no text to learn from")
    torch.manual_seed(context.seed)
    stored = load_head(encoder)
    learnt, held_out = hold_out(texts, settings.held_out)
    head = stored or build_head(encoder, count_words(learnt, encoder))
    bias = head.bias.detach().clone()
    model = build_model(encoder, {"kind": "last"})
    if settings.vocabulary == "seen":
        model.trim(np.unique(np.concatenate([texts.examples.distinct_ids(), encoder.changed_rows])))
        assert model.trimmed is not None
        head.keep_rows(model.trimmed.rows)
    model.heads[NAME] = head
    return _Work(settings, context, model, texts, learnt, held_out, stored is not None, bias)
