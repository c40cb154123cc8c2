"""The configuration of crossling's models as transformers' classes (``auto_model.py``); importing it registers it."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PreTrainedConfig


class CrosslingConfig(PreTrainedConfig):  # type: ignore[misc]
    """The encoder's configuration, the fusion, and how a text becomes one vector."""

    model_type = "crossling"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        fusion: dict[str, Any] | None = None,
        pooling: str = "auto",
        pooler: bool = False,
        dropout: float = 0.1,
        **more: Any,
    ) -> None:
        self.encoder = encoder or {}
        self.fusion = fusion or {"kind": "last"}
        self.pooling = pooling
        self.pooler = pooler
        self.dropout = dropout
        super().__init__(**more)


AutoConfig.register(CrosslingConfig.model_type, CrosslingConfig, exist_ok=True)
