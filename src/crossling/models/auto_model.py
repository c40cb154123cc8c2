"""Models of crossling as transformers' classes, for those that transformers has no counterpart of.

Importing this registers them, and ``import crossling`` has it imported (``registration.py``):
``AutoModelForTokenClassification`` and its like then load a folder whose ``config.json`` says ``crossling``.
B texts, S subwords, D width, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from crossling.encoders.structure import find_class, pool_first, takes_pooler
from crossling.fusions import build_fusion
from crossling.models.auto_config import CrosslingConfig
from crossling.models.heads import Head, pool_sentence


class _CrosslingModel(PreTrainedModel):  # type: ignore[misc]
    """An encoder, a fusion and a head."""

    config_class = CrosslingConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        settings = AutoConfig.for_model(**config.encoder)
        chosen = {"add_pooling_layer": bool(config.pooler)} if takes_pooler(find_class(settings)) else {}
        self.encoder = AutoModel.from_config(settings, **chosen)
        self.last = int(settings.num_hidden_layers)
        width = int(settings.hidden_size)
        self.fusion: Any = build_fusion(config.fusion, layers=self.last, width=width)
        self.head = Head(width, config.num_labels, config.dropout)
        self.post_init()

    @property
    def has_pooler(self) -> bool:
        """Whether the encoder's checkpoint has a pooler."""
        return bool(self.config.pooler)

    @property
    def is_causal(self) -> bool:
        """Models that continue text are not exported in this form."""
        return False

    def check_cls(self) -> None:
        """Encoders without a first special token are not exported in this form."""

    def pool_cls(self, hidden_BSD: Tensor) -> Tensor:
        """The first token's vector through the encoder's pooler."""
        return pool_first(self.encoder.pooler, hidden_BSD)

    def represent(self, input_ids: Tensor, attention_mask: Tensor | None, **inputs: Any) -> tuple[Tensor, Tensor]:
        """What the head reads, B x S x D, and the mask."""
        mask_BS = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        given = {name: value for name, value in inputs.items() if value is not None}
        below = any(layer < self.last for layer in self.fusion.reads)
        output = self.encoder(input_ids=input_ids, attention_mask=mask_BS, output_hidden_states=below, **given)
        hidden = {layer: output.hidden_states[layer] for layer in self.fusion.reads if layer < self.last}
        hidden[self.last] = output.last_hidden_state
        fused_BSD: Tensor = self.fusion(hidden, mask_BS)
        return fused_BSD, mask_BS


class CrosslingForTokenClassification(_CrosslingModel):
    """A class for every subword; that of a word is its first subword's."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> TokenClassifierOutput:
        hidden_BSD, _mask = self.represent(input_ids, attention_mask, token_type_ids=token_type_ids)
        logits_BSC = self.head(hidden_BSD)
        loss = None if labels is None else nn.functional.cross_entropy(logits_BSC.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits_BSC)


class CrosslingForSequenceClassification(_CrosslingModel):
    """A class for every text or pair of texts."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        hidden_BSD, mask_BS = self.represent(input_ids, attention_mask, token_type_ids=token_type_ids)
        logits_BC = self.head(pool_sentence(self, hidden_BSD, mask_BS, how=self.config.pooling))
        loss = None if labels is None else nn.functional.cross_entropy(logits_BC, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits_BC)


class CrosslingForQuestionAnswering(_CrosslingModel):
    """For every subword, whether the answer begins and ends there."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **_: Any,
    ) -> QuestionAnsweringModelOutput:
        hidden_BSD, _mask = self.represent(input_ids, attention_mask, token_type_ids=token_type_ids)
        start_BS, end_BS = self.head(hidden_BSD).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            losses = [
                nn.functional.cross_entropy(logits, places)
                for logits, places in ((start_BS, start_positions), (end_BS, end_positions))
            ]
            loss = (losses[0] + losses[1]) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start_BS, end_logits=end_BS)


AutoModelForTokenClassification.register(CrosslingConfig, CrosslingForTokenClassification, exist_ok=True)
AutoModelForSequenceClassification.register(CrosslingConfig, CrosslingForSequenceClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(CrosslingConfig, CrosslingForQuestionAnswering, exist_ok=True)
