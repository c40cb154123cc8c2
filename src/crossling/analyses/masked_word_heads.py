"""The head for masked words that models of an encoder are scored with: its checkpoint's, one trained once, or one that
was adapted with the encoder.

A trained head learns on the frozen pretrained encoder over all the languages. It is kept in the store under all that
affects it, with its accuracy on held-out words.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from crossling.analyses.masked_word_head_choice import ADAPTED, NO_HEAD, HeadTraining
from crossling.data.rows import Rows
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.encoders.masked_word_head import MaskedWordHead, build_head, load_head
from crossling.encoders.unlabelled import Chunking, encode_unlabelled
from crossling.errors import ArtefactError, DataError
from crossling.files import is_intact, replacing
from crossling.models.model import Model, build_model, load_model
from crossling.objectives.masked_words import MaskingSettings, Objective
from crossling.recipe.identity import content_hash
from crossling.stages.masked_training import (
    NAME,
    count_words,
    describe_scores,
    hold_out,
    score_masked_words,
    train_head,
)
from crossling.training.loop import VERSION as LOOP_VERSION
from crossling.training.loop import Execution

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext

VERSION = 1


@dataclass(frozen=True)
class KnownHead:
    """A head, the subword table of the encoder that it is for, and what is known of it."""

    head: MaskedWordHead
    table: Tensor
    label: str
    """What it is called in tables: a hash of its weights and of the table."""
    accuracy: dict[str, float]
    """By language, the share of held-out words that it predicts; not known of a checkpoint's own head."""


_known: dict[str, KnownHead] = {}
"""The last head used: models in one call have the same one, whatever stores they are in."""


def find_head(
    name: str, revision: str | None, *, training: HeadTraining | None, rows: tuple[Rows, ...], context: AnalysisContext
) -> KnownHead:
    """The head for an encoder; ``training`` says how to make one, where it is not the checkpoint's own."""
    key = content_hash([name, revision, training.model_dump(mode="json") if training else None, *_facts(rows)])
    if key not in _known:
        encoder = load_encoder(name, revision=revision)
        head, accuracy = _own_head(encoder) if training is None else _trained(encoder, training, rows, context)
        table = encoder.model.get_input_embeddings().weight.detach()
        _known.clear()
        _known[key] = KnownHead(head.eval(), table, _label(head, table), accuracy)
    return _known[key]


def find_own_head(model: Model) -> KnownHead | None:
    """The head that was adapted with a model's encoder, if it was stored beside it, with the encoder's own table."""
    head = model.kept.get(NAME)
    if not isinstance(head, MaskedWordHead):
        return None
    table = model.encoder.model.get_input_embeddings().weight.detach()
    return KnownHead(head.eval(), table, ADAPTED + _label(head, table), {})


def read_named_head(place: str) -> KnownHead:
    """The head of a saved model or of an encoder, with its table of subwords."""
    folder = Path(place).expanduser()
    if (folder / "model.json").is_file():
        own = find_own_head(load_model(folder)[0])
        if own is None:
            raise ArtefactError(f"head = {place!r}: {NO_HEAD}")
        return replace(own, label=own.label.split()[-1])
    name, _, revision = place.partition("@") if not folder.is_dir() else (place, "", "")
    encoder = load_encoder(name, revision=revision or None)
    head, _ = _own_head(encoder)
    table = encoder.model.get_input_embeddings().weight.detach()
    return KnownHead(head.eval(), table, _label(head, table), {})


def _facts(rows: tuple[Rows, ...]) -> list[list[str]]:
    return [[part.language, part.fingerprint] for part in rows]


def _own_head(encoder: Encoder) -> tuple[MaskedWordHead, dict[str, float]]:
    head = load_head(encoder)
    if head is None:
        raise ArtefactError(
            f"{encoder.name}: its checkpoint holds no head for masked words of the form that is read here (a dense "
            "layer, a normalisation, the encoder's own table of subwords), as those of discriminators (ELECTRA, "
            'DeBERTa-v3) and sentence encoders do not; set head = "trained", and training.train to the text that one '
            "is to learn from"
        )
    return head, {}


def _trained(
    encoder: Encoder, training: HeadTraining, rows: tuple[Rows, ...], context: AnalysisContext
) -> tuple[MaskedWordHead, dict[str, float]]:
    """The head from the store, or made now."""
    settings = training.model_dump(mode="json", exclude={"train", "rows"})
    identity = content_hash([VERSION, LOOP_VERSION, encoder.identity, settings, _facts(rows)])
    path = context.store / "heads" / f"{identity}.safetensors"
    stored = _read(path, encoder)
    if stored is None:
        head, record = _train(encoder, training, rows, context, context.store / "work" / f"head-{identity}")
        _write(path, head, record)
        stored = head, record
    languages = stored[1]["languages"]
    return stored[0], {code: float(part["accuracy"]) for code, part in languages.items()}


def _train(
    encoder: Encoder, training: HeadTraining, rows: tuple[Rows, ...], context: AnalysisContext, work: Path
) -> tuple[MaskedWordHead, dict[str, Any]]:
    texts = encode_unlabelled(rows, encoder, Chunking(training.length), cache=context.encoded)
    learnt, held_out = hold_out(texts, training.held_out)
    if not len(learnt) or not len(held_out):
        raise DataError(f"{', '.join(part.name for part in rows)}: too little text to train a head on and to test it")
    torch.manual_seed(training.seed)
    model = build_model(encoder, {"kind": "last"})
    model.heads[NAME] = head = build_head(encoder, count_words(learnt, encoder))
    objective = Objective(NAME, MaskingSettings(share=training.share), encoder, seed=training.seed, frozen=True)
    what = f"head of {encoder.name} for masked words"
    execution = Execution(context.distributed, training.seed, work, progress=context.progress, what=what)
    train_head(model, objective, learnt, training, execution)
    found = score_masked_words(model, objective, held_out, distributed=context.distributed, progress=context.progress)
    record = {**describe_scores(found, texts.languages), "encoder": encoder.name, "texts": len(learnt)}
    context.progress.say(
        f"{what}: trained on {len(learnt):,} texts; predicts {100 * record['accuracy']:.2f} % of {record['masked']:,} "
        f"held-out words, loss {record['loss']:.3f}"
    )
    shutil.rmtree(work, ignore_errors=True)
    return head.cpu(), record


def _read(path: Path, encoder: Encoder) -> tuple[MaskedWordHead, dict[str, Any]] | None:
    """A stored head; a damaged one is made again."""
    if not is_intact(path, needs_seal=False):
        return None
    head = build_head(encoder)
    try:
        with safe_open(path, framework="pt") as file:
            record: dict[str, Any] = json.loads(file.metadata()["record"])
            head.load_state_dict({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        return None
    return head, record


def _write(path: Path, head: MaskedWordHead, record: dict[str, Any]) -> None:
    """Write a head so that whoever finds it finds it whole."""
    weights = {name: tensor.detach().contiguous() for name, tensor in head.state_dict().items()}
    with replacing(path, seal=True) as partial:
        save_file(weights, partial, metadata={"record": json.dumps(record, ensure_ascii=False)})


def _label(head: MaskedWordHead, table: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in (*(t for _, t in sorted(head.state_dict().items())), table):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
