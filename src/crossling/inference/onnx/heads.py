"""The graph of what follows an encoder: the fusion of its layers, the pooling of a text, and heads.

B sentences, S subwords, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from crossling.errors import ArtefactError
from crossling.fusions.dlfa import DLFA
from crossling.fusions.last import LastLayer
from crossling.fusions.mean import LayerMean
from crossling.fusions.scalar_mix import ScalarMix
from crossling.inference.onnx.encoders import emit_encoder
from crossling.inference.onnx.graph import Graph, to_array
from crossling.models.heads import Head
from crossling.objectives import find_span, label_texts, label_words

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import TaskObjective

FLOAT = 1


def emit_model(graph: Graph, model: Model, objectives: list[TaskObjective]) -> dict[str, tuple[str, int, int]]:
    """Add a model; gives the name, the number of dimensions and the number of classes of each head's logits."""
    visible_BS1 = graph.add(
        "Unsqueeze", graph.add("Cast", "mask", to=FLOAT), graph.add_initializer(np.array([-1], np.int64))
    )
    hidden = emit_encoder(graph, model.encoder, reads=model.fusion.reads)
    fused_BSD = emit_fusion(graph, model.fusion, hidden, visible_BS1)
    found = {}
    for objective in objectives:
        name, value = objective.name, fused_BSD
        head = model.heads[name]
        if isinstance(objective, label_texts.Objective):
            value = emit_pooling(graph, model.encoder, fused_BSD, visible_BS1, how=objective.pooling)
        elif not isinstance(objective, label_words.Objective | find_span.Objective):
            raise ArtefactError(f"task {name!r}: a custom objective, which --to onnx cannot convert")
        assert isinstance(head, Head)
        logits = graph.apply_linear(value, head.linear, f"head.{name}")
        if isinstance(objective, find_span.Objective):
            hidden_BS1 = graph.add("Less", visible_BS1, graph.add_initializer(np.float32(0.5)))
            logits = graph.add("Where", hidden_BS1, graph.add_initializer(np.float32(find_span.NEVER)), logits)
        found[name] = logits, 2 if isinstance(objective, label_texts.Objective) else 3, head.linear.out_features
    return found


def emit_fusion(graph: Graph, fusion: Any, hidden: dict[int, str], visible_BS1: str) -> str:
    """The representation that heads read, B x S x D."""
    if isinstance(fusion, LastLayer):
        return hidden[fusion.reads[0]]
    if isinstance(fusion, LayerMean):
        return _sum(graph, hidden, fusion.shares)
    if isinstance(fusion, ScalarMix):
        weights = to_array(fusion.gamma * fusion.scores.softmax(dim=0))
        return _sum(graph, hidden, dict(zip(fusion.reads, weights.tolist(), strict=True)))
    if isinstance(fusion, DLFA):
        return _emit_dlfa(graph, fusion, hidden, visible_BS1)
    raise ArtefactError("a custom fusion, which --to onnx cannot convert; export the model without --to onnx")


def _sum(graph: Graph, hidden: dict[int, str], shares: dict[int, float]) -> str:
    terms = [
        graph.add("Mul", hidden[layer], graph.add_initializer(np.float32(share))) for layer, share in shares.items()
    ]
    return graph.add("Sum", *terms)


def _emit_dlfa(graph: Graph, fusion: DLFA, hidden: dict[int, str], visible_BS1: str) -> str:
    """Equation 4; see ``fusions/dlfa.py``."""
    first_BSD, second_BSD = hidden[fusion.layer], hidden[fusion.second]
    mean_BSD = _sum(graph, {1: first_BSD, 2: second_BSD}, {1: 0.5, 2: 0.5})
    branches = []
    for place, branch in enumerate(fusion.attention_map.global_branches):
        pooled_B1D = average(graph, mean_BSD, visible_BS1)
        branches.append(_emit_branch(graph, branch, pooled_B1D, f"fusion.global.{place}"))
    for place, branch in enumerate(fusion.attention_map.local_branches):
        branches.append(_emit_branch(graph, branch, mean_BSD, f"fusion.local.{place}"))
    share_BSD = graph.add("Sigmoid", graph.add("Add", *branches))
    if fusion.reading == "weighted":
        share_BSD = graph.add("Mul", mean_BSD, share_BSD)
    if fusion.share_D is not None:
        share_BSD = graph.add("Mul", share_BSD, graph.add_weight(fusion.share_D, "fusion.share"))
    return graph.add("Add", second_BSD, graph.add("Mul", share_BSD, graph.add("Sub", first_BSD, second_BSD)))


def _emit_branch(graph: Graph, branch: Any, value: str, name: str) -> str:
    """Two linear layers, each with the batch normalisation after it folded into weight and bias."""
    narrow = graph.add("Relu", _emit_normalized(graph, branch.narrow, branch.narrow_norm, value, f"{name}.narrow"))
    return _emit_normalized(graph, branch.widen, branch.widen_norm, narrow, f"{name}.widen")


def _emit_normalized(graph: Graph, linear: nn.Linear, norm: Any, value: str, name: str) -> str:
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    product = graph.matmul(value, linear.weight * scale[:, None], name)
    return graph.add("Add", product, graph.add_weight(norm.bias - norm.running_mean * scale, f"{name}.bias"))


def average(graph: Graph, value_BSD: str, visible_BS1: str) -> str:
    """The mean of each sentence's subwords, B x 1 x D."""
    axis = graph.add_initializer(np.array([1], np.int64))
    total = graph.add("ReduceSum", graph.add("Mul", value_BSD, visible_BS1), axis)
    count = graph.add("Max", graph.add("ReduceSum", visible_BS1, axis), graph.add_initializer(np.float32(1)))
    return graph.add("Div", total, count)


def emit_pooling(graph: Graph, encoder: Encoder, hidden_BSD: str, visible_BS1: str, *, how: str) -> str:
    """One vector for each text, B x D; see ``pool_sentence`` in ``models/heads.py``."""
    if how == "last":
        raise ArtefactError(f'{encoder.name}: pooling = "last" has no form for ONNX here. Export with --to crossling.')
    if how == "mean" or (how == "auto" and not encoder.has_pooler):
        return graph.add(
            "Squeeze", average(graph, hidden_BSD, visible_BS1), graph.add_initializer(np.array([1], np.int64))
        )
    first_BD = graph.add("Gather", hidden_BSD, graph.add_initializer(np.int64(0)), axis=1)
    if encoder.pooler is None:
        return first_BD
    dense: nn.Linear = encoder.pooler.dense  # type: ignore[assignment]
    return graph.add("Tanh", graph.apply_linear(first_BD, dense, "pooler"))
