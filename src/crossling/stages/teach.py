"""Teaching: trained models label text in other languages, and a student learns from source labels and that text.

Pseudo-labelling by an ensemble, or knowledge distillation where labels are soft. Self-training where teachers read the
text that the student learns (``text``); teaching through translations where they read its source side (``parallel``).
Labels that the text may have are never read. Several ``teach`` stages in a row are rounds: the students of one are the
teachers of the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from crossling.data.catalogue import open_data
from crossling.data.label_free import collect_keys, find_equal
from crossling.data.records import Question
from crossling.data.rows import Rows
from crossling.data.spec import list_data
from crossling.errors import DataError, RecipeError
from crossling.limits import LARGEST_NUMBER, MOST_COUNTED
from crossling.objectives.aligned_words import AdjustmentSettings
from crossling.recipe.identity import content_hash
from crossling.stages import StageSettings, TrainedStage
from crossling.stages.answer_links import link_contexts
from crossling.stages.ensemble import list_ensemble
from crossling.stages.labelling import Unit, encode_labelled, label_units, read_texts, report_kept
from crossling.stages.parsing import DataSpec
from crossling.stages.pseudo_labels import Decide, Keep
from crossling.stages.task_settings import FollowingStageSettings, TaskStageSettings, follow_stage
from crossling.stages.task_training import TaskData, fit_tasks, identify_task, open_task_data, train_task
from crossling.stages.taught_text import leave_out, name_language, open_parallel, open_text
from crossling.stages.translations import Read, list_linked, list_pairs, list_sentences, read_sides_by
from crossling.stages.word_pairs import PairData, open_pairs
from crossling.tasks import Task, build_task, learn_labels

if TYPE_CHECKING:
    from crossling.aligners.linked_text import Text
    from crossling.data.batching import Examples
    from crossling.progress import Progress
    from crossling.stages.context import StageContext

VERSION = 1
LINKING = ("words", "aligner", "links", "one_to_one")
"""Settings for parallel text whose words are linked."""
LONGEST = 10_000
"""Words that a context may have."""
PAIRING = ("neighbours", "both_orders")
"""Settings for parallel text whose lines make pairs."""


class Settings(FollowingStageSettings):
    """The text to teach on, and how teachers label it. All else is as in the stage before, unless it is named here."""

    kind: Literal["teach"] = "teach"
    text: tuple[DataSpec, ...] = ()
    """Data sets or files of the task's kind in any languages, whose labels are not read. For taggers and classifiers
    also plain text, and parallel text, of which the target side is read."""
    parallel: tuple[Any, ...] = ()
    """Teachers read the source side, the student learns the target side. For all but answers, parallel text as the
    adjust stage takes it, "ntrex:en-hi": tags follow the links between words, and a word without a link is not learnt;
    pairs are made of lines that are close to each other. For classes and answers tables of sets whose row i says the
    same, { source = "xnli:en:dev", target = ["de", "hi"] }. Questions are matched by id; an answer stays in the same
    context, and follows the links between words to a translated one where they cover it."""
    read: Read = "source"
    """The side of parallel text that teachers read: source, target, or both, where the mean of their probabilities
    decides, and they agree where all predict the same on both sides. A word without a link is then read by itself."""
    neighbours: int = Field(default=1, ge=1, le=100)
    """For pairs made of parallel text: each line is paired with this number of the lines nearest to it, by the cosine
    of the encoder's mean vectors of the source sentences."""
    both_orders: bool = True
    """For pairs made of parallel text: learn both orders of two lines, since inference is directed."""
    leave_out: tuple[DataSpec, ...] = ()
    """Data sets whose texts are left out of the text to teach on, such as scored ones that share sentences with it."""
    transductive: bool = False
    """Allow text that is also scored. Without it such text is an error, since scores would no longer show how well
    unseen text is read."""

    teachers: int = Field(default=3, ge=1, le=100)
    """Models of the stage before, each with its own seed: this one's, and seeds that differ from it by multiples of
    1000. Missing ones are trained first."""
    decide: Decide = "vote"
    """vote: the label that most teachers give. mean: the one with the highest mean probability (not for answers).
    agreement: the one that all give; where they differ there is none, and the word or row is not learnt."""
    keep: Keep = "agreement"
    """agreement: rows for which all teachers predict the same (taggers: for every word). confidence: rows whose
    confidence is at least the threshold. all."""
    threshold: float = Field(default=0.7, ge=0, le=1)
    """For keep = "confidence": the mean probability of a row's label; of a sentence's least sure word, for taggers."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Of the rows left, the most confident share of each language and predicted class (taggers: of each language)."""
    most: int | None = Field(default=None, ge=1, le=MOST_COUNTED)
    """At most this number of rows of a language and predicted class, the most confident first: classes are balanced."""
    labels: Literal["hard", "soft"] = "hard"
    """hard: learn the decided label. soft: learn the mean of the teachers' distributions (not for answers)."""
    soft_temperature: float = Field(default=1.0, gt=0, le=100)
    """For soft labels: probabilities to the power of 1 / temperature. Below 1 sharper, above 1 flatter."""
    weight: float = Field(default=1.0, gt=0, le=LARGEST_NUMBER)
    """The weight of taught examples in the loss; labelled ones have 1."""
    start: Literal["base", "teacher"] = "base"
    """The student starts from the encoder that the first teachers started from, or from this seed's teacher. Where the
    teachers have an encoder of their own (``encoder`` of the finetune stage), it starts from the recipe's."""

    sentences: int | None = Field(default=30_000, ge=1, le=MOST_COUNTED)
    """At most this number of sentence pairs of each parallel text, drawn at random by the run's seed; none: all."""
    words: int = Field(default=64, ge=1, le=MOST_COUNTED)
    """For tags over links: longer sentences are left out."""
    aligner: dict[str, Any] = Field(
        default_factory=lambda: {"kind": "neural"}, json_schema_extra={"family": "aligners"}
    )
    """For tags over links: what links words, as in the adjust stage."""
    links: str = ""
    """For tags over links: a file in Pharaoh format instead of an aligner, as in the adjust stage."""
    one_to_one: bool = True
    """For tags over links: only links whose two words have no other link."""

    @field_validator("text", "leave_out", mode="before")
    @classmethod
    def _list_sets(cls, value: Any) -> Any:
        return list_data(value)

    @field_validator("parallel", mode="before")
    @classmethod
    def _list_parallel(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list | tuple) else (value,)

    @field_validator("aligner", mode="before")
    @classmethod
    def _valid_aligner(cls, value: Any) -> Any:
        return AdjustmentSettings(aligner=value).aligner


def complete_settings(settings: Settings, earlier: list[StageSettings]) -> Settings:
    """All that the table does not name is as in the stage before, whose models are the teachers."""
    before = earlier[-1] if earlier else None
    if not isinstance(before, TaskStageSettings) or before.kind == "average":
        raise RecipeError(
            'kind = "teach": the models of the stage before teach; put a finetune stage before this one. An average '
            "stage comes after it."
        )
    completed = follow_stage(settings, before)
    _check(completed, before)
    return completed


def _check(settings: Settings, before: TaskStageSettings) -> None:
    """Refuse what does not go together."""
    kind = settings.task.kind
    if not settings.text and not settings.parallel:
        raise RecipeError('text: missing; name text to teach on, such as text = ["panx:de"], or parallel text')
    if kind != before.task.kind:
        raise RecipeError(f"task: a task of kind {kind!r}, but the teachers learnt one of kind {before.task.kind!r}")
    if kind == "classify" and getattr(settings.task, "overlap", None) is not None:
        raise RecipeError("task.overlap: texts in windows cannot be taught yet; leave it out")
    if settings.start == "teacher" and getattr(before, "encoder", None) is not None:
        raise RecipeError(
            'start = "teacher": the teachers have an encoder of their own, and the student has the recipe\'s; leave '
            "start out, or name one encoder under [encoder] for both"
        )
    if settings.start == "teacher" and settings.fusion != before.fusion:
        raise RecipeError('fusion: start = "teacher" goes on with the teacher\'s fusion; leave it out')
    if kind == "answer":
        refused = {
            "links": bool(settings.links),
            "labels": settings.labels == "soft",
            "decide": settings.decide == "mean",
            "weight": settings.weight != 1,
        }
        wrong = next((name for name, is_wrong in refused.items() if is_wrong), None)
        if wrong:
            raise RecipeError(f"{wrong} = {getattr(settings, wrong)!r}: not supported for answers yet; leave it out")
        if not all(map(_is_table, settings.parallel)):
            raise RecipeError('parallel: write { source = "mlqa:en:dev", target = "mlqa:context=en,question=es:dev" }')
    if kind == "tag" and any(map(_is_table, settings.parallel)):
        raise RecipeError('parallel: a tagger is taught on parallel text, such as "ntrex:en-hi"')
    _check_spans(settings)


def _check_spans(settings: Settings) -> None:
    follows_links = bool(settings.parallel) and settings.read != "target"
    if settings.labels == "soft" and follows_links and getattr(settings.task, "scheme", "none") == "bio":
        raise RecipeError('labels = "soft": spans that follow links begin elsewhere; use hard labels')


def _is_table(entry: Any) -> bool:
    """Whether an entry of ``parallel`` names sets whose rows say the same, and is no parallel text."""
    return isinstance(entry, dict) and set(entry) == {"source", "target"}


def list_earlier(settings: Settings, seed: int) -> tuple[int, ...]:
    """Seeds of the teachers, this one among them."""
    return list_ensemble(settings.teachers, seed)


def find_start(settings: Settings, stages: Sequence[StageSettings], number: int) -> int:
    """The number of the stage whose encoder the student starts from; -1: the recipe's encoder."""
    if settings.start == "teacher":
        return number - 1
    first = number - 1
    while isinstance(stages[first], Settings):
        first -= 1
    return first - 1


@dataclass(frozen=True)
class Data:
    """Labelled rows, and texts without their labels."""

    labelled: TaskData
    text: tuple[Rows, ...] = ()
    pairs: tuple[tuple[Rows, Rows], ...] = ()
    """Rows that say the same: the teachers read the first set, the student learns the second."""
    translations: PairData | None = None
    """Parallel text."""

    def learnt(self) -> list[Rows]:
        """Every set whose text teaches; of pairs both sides, since the student learns what the source side says."""
        return [*self.text, *self._sides(), *(text.rows for text in self._texts())]

    def fingerprints(self) -> dict[str, Any]:
        """What of the text affects the result; labels do not."""
        return {
            "text": [[rows.language, rows.fingerprint] for rows in self.text],
            "pairs": [[[rows.language, rows.fingerprint] for rows in pair] for pair in self.pairs],
            "translations": self.translations.fingerprints() if self.translations else [],
        }

    def reads_per_epoch(self) -> list[tuple[Rows, float]]:
        """Each set that is trained on, and how often it is read in an epoch."""
        taught = [*self.text, *(target for _, target in self.pairs)]
        translated = self.translations.reads_per_epoch() if self.translations else []
        return [*self.labelled.reads_per_epoch(), *((rows, 1.0) for rows in taught), *translated]

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role."""
        return [
            *self.labelled.described(),
            *(("text, labels not read", rows) for rows in self.text),
            *(("parallel text, labels not read", rows) for rows in self._sides()),
            *(("parallel text", text.rows) for text in self._texts()),
        ]

    def _sides(self) -> list[Rows]:
        """The sets of all pairs, each once."""
        return list({(rows.language, rows.fingerprint): rows for pair in self.pairs for rows in pair}.values())

    def _texts(self) -> Sequence[Text]:
        return self.translations.texts if self.translations else ()


def open_stage_data(settings: Settings, *, source: str, store: Path, progress: Progress | None = None) -> Data:
    """Find and open what the stage reads; labels of the text are dropped here."""
    labelled = open_task_data(settings, source=source, store=store, progress=progress)
    _check_spans(fit_tasks(settings, labelled))
    left_out = collect_keys(open_data(spec, split="test", store=store) for spec in settings.leave_out)
    task = build_task(settings.task, ())
    text = tuple(open_text(spec, task, left_out, store) for spec in settings.text)
    tables = [entry for entry in settings.parallel if _is_table(entry)]
    pairs = tuple(pair for entry in tables for pair in open_parallel(entry, task, left_out, store))
    linking = _linking(settings)
    if not linking.parallel:
        return Data(labelled, text, pairs)
    translations = open_pairs(linking, source=source, store=store)
    if left_out and linking.links:
        raise DataError("leave_out: a file of links has a line for every pair, so that none can be left out")
    texts = tuple(replace(one, rows=leave_out(one.rows, left_out)) for one in translations.texts)
    translations = replace(translations, texts=texts)
    if settings.task.kind == "classify_pair":
        times = settings.neighbours * (2 if settings.both_orders else 1)
        lines = sum(share * len(rows) for rows, share in translations.reads_per_epoch())
        translations = replace(translations, pairs_per_epoch=times * lines)
    return Data(labelled, text, pairs, translations)


def _linking(settings: Settings) -> AdjustmentSettings:
    """The settings that draw parallel text and link its words; links between equal strings count, too."""
    names = {"tag": ("sentences", *LINKING), "answer": ("aligner", "one_to_one")}.get(
        settings.task.kind, ("sentences",)
    )
    table = {name: getattr(settings, name) for name in names}
    if settings.task.kind == "answer":
        table |= {"sentences": None, "words": LONGEST}
    texts = tuple(entry for entry in settings.parallel if not _is_table(entry))
    return AdjustmentSettings(parallel=texts, drop_identical=False, **table)


def check_scored(settings: Settings, data: Data, scored: Sequence[Rows]) -> None:
    """Refuse text that is also scored, row by row, unless the stage is meant to be transductive."""
    if settings.transductive:
        return
    known = [(rows.name, collect_keys([rows])) for rows in scored]
    for rows in data.learnt():
        found = {name: int(find_equal(rows, keys).sum()) for name, keys in known}
        if shared := {name: count for name, count in found.items() if count}:
            counts = ", ".join(f"{count:,} in {name}" for name, count in shared.items())
            raise DataError(
                f"{rows.name}: of its {len(rows):,} rows some are also scored ({counts}). Leave them out by naming "
                "these sets under leave_out, or set transductive = true, which every table then says."
            )


def resolve_settings(settings: Settings, data: Data) -> Settings:
    """The settings with what depends on the data filled in."""
    return fit_tasks(settings, data.labelled)


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the identity that is specific to the stage; of the text only what is read, which labels are not."""
    task = identify_task(settings, data.labelled)
    sets = {"text", "parallel", "leave_out", "links"}
    # What is not used does not count, so that a result stays known when a setting is added.
    kind, has_text = settings.task.kind, data.translations is not None
    unused = set() if has_text else {"sentences"}
    follows_links = (has_text and kind == "tag") or (
        kind == "answer" and bool(data.pairs) and settings.read != "target"
    )
    unused |= set() if follows_links else set(LINKING)
    unused |= set() if has_text and kind == "classify_pair" else set(PAIRING)
    unused |= {"read"} if settings.read == "source" or not settings.parallel else set()
    table = {name: value for name, value in task["settings"].items() if name not in sets | unused}
    return {"settings": table, "data": {**task["data"], "taught": content_hash(data.fingerprints())}}


def train(settings: Settings, data: Data, context: StageContext) -> TrainedStage:
    """Let the teachers label the text, then train the student on it and on the labelled data."""
    assert context.load_earlier is not None, "a teach stage comes after another"
    task = learn_labels(settings.task, data.labelled.train)
    examples, facts = _teach(settings, data, task, context)
    initial = context.load_earlier(context.seed)[0] if settings.start == "teacher" else None
    trained = train_task(settings, data.labelled, context, what="teaching", taught=examples, initial=initial)
    return trained._replace(record={**trained.record, "teaching": facts})


def _teach(settings: Settings, data: Data, task: Task, context: StageContext) -> tuple[Examples, dict[str, Any]]:
    """Examples that the teachers labelled, and a record of them; a stage that was killed finds them again."""
    import torch

    from crossling.data.batching import Examples, write_examples
    from crossling.files import is_filled, is_intact, write_atomic

    path, distributed = context.work / "taught.arrow", context.distributed
    seeds = list_earlier(settings, context.seed)
    there = torch.tensor(int(is_intact(path) and is_filled(path.with_suffix(".json"))), device=distributed.device)
    if not int(distributed.broadcast(there)):  # all processes go the same way, whichever is first
        assert context.load_earlier is not None
        for seed in seeds if distributed.size > 1 else ():
            context.load_earlier(seed)  # trained by all processes together
        if distributed.is_main:
            labelled, languages = label_units(
                list(_list_units(settings, data, task, context)), task, settings, seeds, context
            )
            facts = {
                "labels read": "no",
                "transductive": settings.transductive,
                "teachers": list(seeds),
                "languages": languages,
            }
            write_atomic(path.with_suffix(".json"), json.dumps(facts, ensure_ascii=False))
            write_examples(path, encode_labelled(labelled, task, context.encoder, settings))
        distributed.wait()
    facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    report_kept(facts["languages"], context.progress.say)
    return Examples(path), facts


def _list_units(settings: Settings, data: Data, task: Task, context: StageContext) -> Iterator[Unit]:
    """All that is taught, as the teachers and the student read it."""
    for rows in data.text:
        words = read_texts(task, rows, context.encoder)
        yield Unit(name_language(rows), words, words)
    for first, second in data.pairs:
        unit = read_sides_by(name_language(second), first, second, settings.read)
        if second.kind is Question and settings.read != "target":
            unit = replace(unit, contexts=link_contexts(first, second, _linking(settings), context))
        yield unit
    drawn: dict[str, Any] = {"count": settings.sentences, "read": settings.read, "context": context}
    for text in data.translations.texts if data.translations else ():
        if settings.task.kind == "tag":
            yield list_linked(text, _linking(settings), read=settings.read, context=context)
        elif settings.task.kind == "classify":
            yield list_sentences(text, **drawn)
        else:
            yield list_pairs(text, neighbours=settings.neighbours, both_orders=settings.both_orders, **drawn)
