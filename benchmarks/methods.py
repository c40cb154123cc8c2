"""What else trains or predicts: layer fusion, replay, auxiliary tasks, adjustment, adaptation, evaluation.

The first three are compared with plain fine-tuning, turn by turn in one process, by the matrix operations that each
does a second for real subwords: 1 would mean that a method costs nothing beyond the subwords that it reads.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from _rows import VALUE, Row
from _speed import (
    READ,
    Scale,
    alternate,
    batch_of,
    build_run,
    count_operations,
    setup_device,
    take_turns,
    time_epochs,
    workspace,
)
from _synthetic import (
    ANSWERS,
    MASKED,
    PAIRS,
    TEXTS,
    WINDOW,
    WORDS,
    Kind,
    build_encoder,
    make_rows,
    write_rows,
)
from _trainer import prepare_prediction, time_trainer
from finetune import TITLES, build_objective, build_task

COST = 1.15
"""What a method may cost, relative to the subwords that it reads."""
REPLAYED = 16
"""Sentence pairs in every step."""
ADJUSTED = 30_000
PAPER_SECONDS = 15 * 60
"""The time that the paper on adjustment reports for ADJUSTED pairs on a V100."""
CHOICE = 20_000
"""Vocabulary of masked words on a CPU; with all 250,037 subwords, the head alone would be timed."""
LANGUAGES = 4
PLAIN = "plain fine-tuning"
SINGLY, TRAINER = "language by language", "Trainer.predict"
Prepared = tuple[Any, Any, float]
"""A model, a program, and the operations of an epoch."""


def measure_dlfa(scale: Scale, matrix_rate: float) -> Row:
    """Two layers fused before the head."""
    layer = max(1, scale.size.layers * 2 // 3)

    def prepare(examples: Any, folder: Path) -> Prepared:
        model, stream = build_task(TEXTS, scale, examples, fusion={"kind": "dlfa", "layer": layer})
        return model, stream, count_operations(scale.size, examples.lengths)

    return _compare("layer fusion", f"fine-tuning with DLFA of layer {layer}", prepare, scale, matrix_rate, COST)


def measure_auxiliary(scale: Scale, matrix_rate: float) -> Row:
    """A tagging step for each step of the main task."""
    from crossling.training.mixture import AuxiliaryStream, Mixture, Stream

    def prepare(examples: Any, folder: Path) -> Prepared:
        rows = make_rows(WORDS, len(examples), scale.size.vocabulary, batch=scale.batch, seed=2)
        other = write_rows(WORDS, rows, folder / "tags.arrow")
        model, stream = build_task(TEXTS, scale, examples, others=[other])
        objective = build_objective(WORDS, "auxiliary")
        model.heads["auxiliary"] = objective.build_head(model.encoder.width)
        mixture = Mixture(stream, (AuxiliaryStream(Stream(objective, other), 1.0),))
        work = sum(count_operations(scale.size, part.lengths) for part in (examples, other))
        return model, mixture, work

    return _compare("auxiliary task", "fine-tuning with tagging beside it", prepare, scale, matrix_rate)


def measure_replay(scale: Scale, matrix_rate: float, kind: Kind = TEXTS) -> Row:
    """Aligned sentence pairs in every step; of the source, the original encoder reads the subwords once more."""
    from crossling.training.mixture import Mixture, ReplayStream, Stream

    def prepare(examples: Any, folder: Path) -> Prepared:
        pairs = _write_pairs(max(WINDOW, scale.turn) * scale.batch, scale, folder)
        model, stream = build_task(kind, scale, examples, others=[pairs])
        replay = ReplayStream(Stream(_build_pull(model, scale, "replay", pull=0.01), pairs), REPLAYED)
        steps = -(-len(examples) // batch_of(kind, scale))
        work = count_operations(scale.size, examples.lengths) + steps * REPLAYED * _cost(scale, pairs)
        return model, Mixture(stream, replay=replay), work

    title, task = TITLES[kind.name]
    name = "replay" if kind is TEXTS else f"replay, {title}"
    what = f"{task} with {REPLAYED} sentence pairs in every step"
    # On a CPU, whose time is that of its products, what pairs are padded with to one length shows in full.
    return _compare(name, what, prepare, scale, matrix_rate, COST if scale.on_gpu else None, kind=kind)


def measure_replay_words(scale: Scale, matrix_rate: float) -> Row:
    """Beside tagging."""
    return measure_replay(scale, matrix_rate, WORDS)


def measure_replay_answers(scale: Scale, matrix_rate: float) -> Row:
    """Beside answers."""
    return measure_replay(scale, matrix_rate, ANSWERS)


def _compare(
    name: str,
    what: str,
    prepare: Callable[[Any, Path], Prepared],
    scale: Scale,
    matrix_rate: float,
    cost: float | None = None,
    kind: Kind = TEXTS,
) -> Row:
    batch = batch_of(kind, scale)
    with workspace() as folder:
        rows = make_rows(kind, scale.turn * batch, scale.size.drawn, batch=batch)
        examples = write_rows(kind, rows, folder / "examples.arrow")
        plain = (*build_task(kind, scale, examples), count_operations(scale.size, examples.lengths))
        prepared = {PLAIN: plain, "ours": prepare(examples, folder)}
        runs = {
            key: build_run(model, program, scale, folder / key, batch=batch)
            for key, (model, program, _) in prepared.items()
        }
        seconds = take_turns(runs, scale.rounds, scale.device)
        work = {key: operations for key, (_, _, operations) in prepared.items()}
    ratios = [
        (work["ours"] / ours) / (work[PLAIN] / other)
        for ours, other in zip(seconds["ours"], seconds[PLAIN], strict=True)
    ]
    base = work[PLAIN] / statistics.median(seconds[PLAIN]) / 1e12
    ratio = statistics.median(ratios)
    notes: dict[str, Any] = {
        "times what its subwords cost": round(1 / ratio, 3),
        "rounds": f"{1 / max(ratios):.3f} to {1 / min(ratios):.3f}",
        "times an epoch": round(statistics.median(seconds["ours"]) / statistics.median(seconds[PLAIN]), 3),
        "batch": batch,
        "timed steps of the main task": scale.rounds * scale.turn,
    }
    return Row(
        name,
        what,
        "Tflop/s of real subwords",
        ratio * base,
        {PLAIN: base},
        limit=matrix_rate / 1e12,
        targets={PLAIN: 1 / cost} if cost else {},
        notes=notes,
    )


def measure_adjustment(scale: Scale, matrix_rate: float) -> Row:
    """Sentence pairs a second, linked already."""
    from crossling.models.model import build_model
    from crossling.training.mixture import Stream

    steps = max(2, scale.steps // 2)
    with workspace() as folder:
        pairs = _write_pairs(steps * scale.batch, scale, folder)
        model = build_model(build_encoder(PAIRS, scale.size), {"kind": "last"})
        model.trim(pairs.distinct_ids())
        stream = Stream(_build_pull(model, scale, "words", pull=1.0), pairs)
        run = build_run(model, stream, scale, folder / "work", batch=scale.batch)
        rate = len(pairs) / time_epochs(run, scale.epochs, scale.device)
        cost = _cost(scale, pairs)
    return Row(
        "adjustment",
        f"{scale.batch} sentence pairs a step, their words linked before",
        "pairs/s",
        rate,
        {"published, on a V100": ADJUSTED / PAPER_SECONDS} if scale.on_gpu else {},
        limit=matrix_rate / cost,
        targets={VALUE: ADJUSTED / 60} if scale.on_gpu else {},
        notes={f"seconds for {ADJUSTED:,} pairs": round(ADJUSTED / rate, 1), "timed steps": steps * scale.epochs},
    )


def _write_pairs(count: int, scale: Scale, folder: Path) -> Any:
    rows = make_rows(PAIRS, count, scale.size.drawn, batch=scale.batch, seed=3)
    return write_rows(PAIRS, rows, folder / "pairs.arrow")


def _build_pull(model: Any, scale: Scale, name: str, *, pull: float) -> Any:
    """The loss on aligned words, with the encoder's present state as reference."""
    from crossling.objectives.aligned_words import AdjustmentSettings, Objective
    from crossling.stages.word_pairs import copy_encoder, freeze_reference

    reference = freeze_reference(copy_encoder(model.encoder), setup_device(scale.device))
    return Objective(name, AdjustmentSettings(pull=pull), model.encoder, reference=reference)


def _cost(scale: Scale, pairs: Any) -> float:
    """Operations of an average pair: both sides are trained, and the reference reads the source."""
    sides = [pairs.count_values(name) for name in ("ids", "target_ids")]
    work = sum(count_operations(scale.size, lengths) for lengths in sides)
    return (work + count_operations(scale.size, sides[0], passes=READ)) / len(pairs)


def measure_adaptation(scale: Scale, matrix_rate: float) -> Row:
    """Masked words, chosen among the whole vocabulary."""
    from crossling.encoders.masked_word_head import build_head
    from crossling.models.model import build_model
    from crossling.objectives.masked_words import MaskingSettings, Objective
    from crossling.training.mixture import Stream

    if not scale.on_gpu and not scale.quick:
        scale = replace(scale, size=replace(scale.size, vocabulary=CHOICE))
    steps = max(2, scale.steps // 2)
    with workspace() as folder:
        rows = make_rows(MASKED, steps * scale.batch, scale.size.drawn, batch=scale.batch)
        examples = write_rows(MASKED, rows, folder / "texts.arrow")
        encoder = build_encoder(MASKED, scale.size)
        model = build_model(encoder, {"kind": "last"})
        model.heads["words"] = build_head(encoder)
        stream = Stream(Objective("words", MaskingSettings(), encoder, seed=1), examples)
        run = build_run(model, stream, scale, folder / "work", batch=scale.batch)
        rate = len(examples) / time_epochs(run, scale.epochs, scale.device)
        lengths = examples.lengths
    head = 0.15 * lengths.mean() * (scale.size.vocabulary * scale.size.width + scale.size.width**2) * 2 * 3
    peer, peer_steps = time_trainer(MASKED, scale, way="tuned")
    return Row(
        "adaptation",
        f"masked words, batch {scale.batch}, {scale.size.vocabulary:,} subwords to choose from",
        "examples/s",
        rate,
        {"Trainer tuned": peer},
        limit=matrix_rate / (count_operations(scale.size, lengths) / len(lengths) + head),
        notes={"timed steps": {"ours": steps * scale.epochs, "tuned": peer_steps}},
    )


def measure_evaluation(scale: Scale, matrix_rate: float) -> Row:
    """Classes of several languages' pairs of texts: all in one stream of batches alike in length, one language after
    the other, and so by the Trainer. The three take turns, after a round in which each has met its shapes."""
    from crossling.data.batching import JoinedExamples
    from crossling.inference.evaluate import TorchEngine
    from crossling.progress import NoProgress

    each, batch = (8, 4) if scale.quick else (4_000, 128) if scale.on_gpu else (64, 32)
    parts = [make_rows(TEXTS, each, scale.size.drawn, seed=10 + number) for number in range(LANGUAGES)]
    padded: dict[str, list[int]] = {}
    with workspace() as folder:
        written = [write_rows(TEXTS, rows, folder / f"{number}.arrow") for number, rows in enumerate(parts)]
        together = JoinedExamples(written)
        model, stream = build_task(TEXTS, scale, together)
        engine = TorchEngine(model.to(scale.device), setup_device(scale.device))

        def predict(name: str, sets: list[Any]) -> None:
            padded[name] = [
                len(planned.rows) * planned.length
                for examples in sets
                for planned, _ in engine.predict(stream.objective, examples, batch=batch, progress=NoProgress())
            ]

        peer, read = prepare_prediction(TEXTS, scale, parts, folder / "trainer", batch=batch)
        actions = {
            "ours": partial(predict, "ours", [together]),
            SINGLY: partial(predict, SINGLY, written),
            TRAINER: peer,
        }
        seconds = alternate(actions, scale.rounds, scale.device)
        padded[TRAINER] = read
    ratios = [alone / ours for alone, ours in zip(seconds[SINGLY], seconds["ours"], strict=True)]
    rates = {name: len(together) / statistics.median(found) for name, found in seconds.items()}
    lengths = together.lengths
    return Row(
        "evaluation",
        f"prediction for {LANGUAGES} languages of {each:,} pairs of texts in one stream, batches of {batch}",
        "examples/s",
        rates.pop("ours"),
        rates,
        limit=matrix_rate / (count_operations(scale.size, lengths, passes=READ) / len(lengths)),
        notes={
            "rounds": f"{min(ratios):.2f} to {max(ratios):.2f} times {SINGLY}, {len(ratios)} rounds",
            **{
                f"batches, {name}": f"{len(sizes)}, {sum(sizes) / lengths.sum():.2f} places for a subword"
                for name, sizes in padded.items()
            },
        },
    )
