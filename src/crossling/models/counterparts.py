"""A model as one of transformers' own classes, where there is one that computes the same.

    task           with a pooler                     without one       ModernBERT
    tags, answers  a linear layer: the same          the same          the same, see below
    classes, [CLS] through the checkpoint's pooler: the same   none    where [CLS] is read without a pooler
    classes, mean  none                              none              none

Fusions of layers have none. RoBERTa's and XLM-R's classifiers have two layers: the first is the pooler. Some families
lack a class for some tasks.
ModernBERT's heads pass every vector through a dense layer, an activation and a normalisation before the linear one. The
vectors come from a normalisation themselves, so that a diagonal dense layer that undoes its scale, no activation, and
the same normalisation again leave them as they are.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crossling.data.ragged import IntArray
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import quiet_transformers
from crossling.encoders.word_marks import carry_words
from crossling.errors import ArtefactError
from crossling.models.auto_config import CrosslingConfig
from crossling.models.auto_model import (
    CrosslingForQuestionAnswering,
    CrosslingForSequenceClassification,
    CrosslingForTokenClassification,
)
from crossling.models.heads import Head, Pooling
from crossling.models.model import Model, ModelCard

TOLERANCE = 1e-5
"""How far logits may be apart, relative to the largest one where it is above 1."""
_HEADS = {
    "tag": "ForTokenClassification",
    "classify": "ForSequenceClassification",
    "classify_pair": "ForSequenceClassification",
    "answer": "ForQuestionAnswering",
}
_OWN = {
    "tag": CrosslingForTokenClassification,
    "classify": CrosslingForSequenceClassification,
    "classify_pair": CrosslingForSequenceClassification,
    "answer": CrosslingForQuestionAnswering,
}
_LOCAL = ("_name_or_path", "transformers_version", "architectures")
"""Settings of an encoder that say where it came from."""
_UNDONE = 2.0**8
"""A factor before the second normalisation, so that its epsilon does not count."""


def convert(model: Model, card: ModelCard) -> tuple[Any, str]:
    """A model of transformers that computes the logits of the first head; and why it is crossling's own class, else "".

    Whatever the reason to believe that two classes compute the same, it is tried out on random input before.
    """
    name, stored = next(iter(card.tasks.items()))
    kind, labels = str(stored["settings"]["kind"]), stored["labels"]
    head = model.heads[name]
    assert isinstance(head, Head)
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    pooling: Pooling = stored["settings"].get("pooling", "auto")
    reason = find_obstacle(model.encoder, card, kind, pooling)
    if not reason:
        counterpart = _build_counterpart(model.encoder, head, kind, {} if kind == "answer" else names)
        difference = measure_difference(model, counterpart, name, kind, pooling) if counterpart else math.inf
        if difference <= TOLERANCE:
            return counterpart, ""
        reason = f"{_find_class(model.encoder, kind).__name__} computes other logits"
        reason += f" (a difference of {difference:.0e})" if counterpart else ""
    return _build_own(model, head, card, kind, pooling, {} if kind == "answer" else names), reason


def write_transformers(model: Model, card: ModelCard, folder: Path) -> str:
    """Write a folder that transformers reads; returns why it needs crossling's classes, empty where it does not."""
    structure = model.encoder.structure
    if structure.family.half or structure.is_decoder:
        raise ArtefactError(
            f"{model.encoder.name}: a model of type {model.encoder.model.config.model_type!r} reads text as an encoder "
            "here, which no class of transformers does for a task. Export it with --to crossling."
        )
    converted, reason = convert(model, card)
    stored = next(iter(card.tasks.values()))
    is_tagger = stored["settings"]["kind"] == "tag"
    tokenizer = copy.copy(model.encoder.tokenizer)
    if is_tagger and (carried := carry_words(model.encoder)) is not None:
        tokenizer, shared = carried
        _append_rows(converted, shared)
    # A longer text is cut off where training cut it off; sentences to tag are not, as far as the encoder can read.
    longest = model.encoder.max_length
    tokenizer.model_max_length = longest if is_tagger else min(int(stored["settings"]["length"]), longest)
    with quiet_transformers():
        converted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner can read
    return reason


def _append_rows(converted: Any, ids: IntArray) -> None:
    """Repeat some rows of the embedding table at its end."""
    table = converted.get_input_embeddings()
    rows = torch.cat([table.weight.detach(), table.weight.detach()[torch.from_numpy(ids)]])
    converted.set_input_embeddings(nn.Embedding(len(rows), rows.shape[1], padding_idx=table.padding_idx, _weight=rows))
    config = converted.config
    if isinstance(config, CrosslingConfig):
        config.encoder = {**config.encoder, "vocab_size": len(rows)}
    else:
        config.vocab_size = len(rows)


def find_obstacle(encoder: Encoder, card: ModelCard, kind: str, pooling: str) -> str:
    """Why transformers has no class that computes the same; empty where it has one."""
    family = encoder.model.config.model_type
    if kind not in _HEADS:
        return f"a task of kind {kind!r}"
    if card.fusion.get("kind") != "last":
        return f"the fusion {card.fusion.get('kind')!r}"
    if _find_class(encoder, kind) is None:
        return f"a task of kind {kind!r} with a model of type {family!r}"
    if _HEADS[kind] == "ForSequenceClassification":
        if pooling in ("mean", "last") or (pooling == "auto" and not encoder.has_pooler):
            return f"{'last-token' if pooling == 'last' else 'mean'} pooling"
        if not encoder.has_pooler and family != "modernbert":
            return "[CLS] without a pooler"
    return ""


def _find_class(encoder: Encoder, kind: str) -> Any:
    """The class of transformers for a family and a task, if there is one."""
    from transformers.models.auto import modeling_auto

    mappings = {
        "ForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
        "ForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        "ForQuestionAnswering": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    }
    return mappings[_HEADS[kind]].get(type(encoder.model.config), None)


def _build_counterpart(encoder: Encoder, head: Head, kind: str, names: dict[str, Any]) -> Any:
    """The class of transformers with a model's weights; none where its head is of another form."""
    family = encoder.model.config.model_type
    config = copy.deepcopy(encoder.model.config)
    config.update({"num_labels": head.linear.out_features, **names})
    if family == "modernbert":
        biased = encoder.model.final_norm.bias is not None
        config.update({"classifier_activation": "linear", "classifier_bias": biased, "classifier_pooling": "cls"})
    built = _find_class(encoder, kind)(config).eval()
    weights = dict(encoder.model.state_dict())
    pooler = encoder.pooler
    if pooler is not None and getattr(built.base_model, "pooler", None) is not None:
        weights |= {f"pooler.{name}": weight for name, weight in pooler.state_dict().items()}
    built.base_model.load_state_dict(weights)
    linear: Any = getattr(built, "qa_outputs", None) or getattr(built, "classifier", None)
    if isinstance(pooler, nn.Module) and hasattr(pooler, "dense") and hasattr(linear, "out_proj"):
        linear.dense.load_state_dict(pooler.get_submodule("dense").state_dict())
        linear = linear.out_proj
    if not isinstance(linear, nn.Linear) or linear.weight.shape != head.linear.weight.shape:
        return None
    linear.load_state_dict(head.linear.state_dict())
    if family == "modernbert":
        _undo_normalisation(built.head, encoder.model.final_norm)
    return built


def _undo_normalisation(head: Any, norm: nn.LayerNorm) -> None:
    """Weights with which ModernBERT's extra layers leave normalised vectors as they are."""
    with torch.no_grad():
        head.dense.weight.copy_(torch.diag(_UNDONE / norm.weight))
        head.norm.weight.copy_(norm.weight)
        if norm.bias is not None:
            head.dense.bias.copy_(-_UNDONE * norm.bias / norm.weight)
            head.norm.bias.copy_(norm.bias)


def _build_own(model: Model, head: Head, card: ModelCard, kind: str, pooling: Pooling, names: dict[str, Any]) -> Any:
    encoder = model.encoder
    config = CrosslingConfig(
        encoder={name: value for name, value in encoder.model.config.to_dict().items() if name not in _LOCAL},
        fusion=card.fusion,
        pooling=pooling,
        pooler=encoder.has_pooler,
        dropout=head.dropout.p,
        num_labels=head.linear.out_features,
        **names,
    )
    built = _OWN[kind](config).eval()
    built.encoder.load_state_dict(
        {
            **encoder.model.state_dict(),
            **({f"pooler.{name}": w for name, w in encoder.pooler.state_dict().items()} if encoder.pooler else {}),
        }
    )
    built.fusion.load_state_dict(model.get_submodule("fusion").state_dict())
    built.head.load_state_dict(head.state_dict())
    return built


def measure_difference(model: Model, other: Any, name: str, kind: str, pooling: Pooling) -> float:
    """The largest difference of logits on random subwords, some of them padding, relative to the largest logit."""
    from crossling.objectives.label_texts import Objective

    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(0, model.encoder.vocabulary, (4, 24), generator=generator)
    pad = int(model.encoder.tokenizer.pad_token_id)
    ids_BS = torch.where(ids_BS == pad, (pad + 1) % model.encoder.vocabulary, ids_BS)
    mask_BS = torch.ones_like(ids_BS)
    ids_BS[1, 12:], mask_BS[1, 12:] = pad, 0
    batch = {"ids": ids_BS, "mask": mask_BS}
    with torch.no_grad():
        found = other(input_ids=ids_BS, attention_mask=mask_BS)
        if _HEADS[kind] == "ForSequenceClassification":
            objective = Objective(name, classes=0, pooling=pooling)
            return _compare(objective.logits(model, batch), found.logits)
        logits_BSC = model.heads[name](model.represent(batch))
        logits = found.logits if kind == "tag" else torch.stack([found.start_logits, found.end_logits], dim=-1)
        return _compare(logits_BSC[mask_BS == 1], logits[mask_BS == 1])


def _compare(own: Tensor, other: Tensor) -> float:
    return float((own - other).abs().max() / max(1.0, float(own.abs().max())))
