"""Words as vectors: what an encoder's layer makes of words where they stand.

B sentences, S subwords, W words, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Batch, Examples, pad_column, plan_prediction, write_examples
from crossling.encoders.encoder import Encoder, pool_words
from crossling.encoders.special_tokens import assemble, shorten_words, special_layout
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.files import is_intact
from crossling.objectives.inputs import collate_inputs
from crossling.recipe.identity import content_hash
from crossling.training.loop import predict_examples

if TYPE_CHECKING:
    from crossling.aligners.linked_text import Words
    from crossling.analyses import AnalysisContext
    from crossling.analyses.word_pairs import WordPositions
    from crossling.models.model import Model
    from crossling.objectives import Arrays

VERSION = 1
CHUNK = 2_000

Array = np.ndarray[Any, np.dtype[Any]]
Layer = int | Literal["last", "fused"]


@dataclass
class WordVectors:
    """A vector for each word of a batch."""

    layer: Layer
    pooling: str

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        return {
            **collate_inputs(examples, plan, size=size),
            "words": pad_column(examples, "words", plan, size=size, fill=-1),
        }

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden_BSD = self._read(model, batch).float()
        count = int(batch["words"].max()) + 1
        return {"vectors": pool_words(hidden_BSD, batch["words"], words=count, how=self.pooling)}

    def _read(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        if self.layer == "fused":
            return model.represent(batch)
        layer = model.encoder.layers if self.layer == "last" else self.layer
        return model.encoder(batch["ids"], batch["mask"], batch.get("types"), layers=(layer,))[layer]  # type: ignore[no-any-return]


def embed_words(
    model: Model,
    sentences: Sequence[Words],
    places: WordPositions,
    *,
    layer: Layer,
    pooling: str,
    name: str,
    context: AnalysisContext,
) -> tuple[Array, Array]:
    """A vector for each position, and whether the encoder read it: the end of a very long sentence is cut off.

    Only these vectors are held, never those of all words.
    """
    examples = _encode(model.encoder, sentences, context)
    order = np.argsort(places.sentence, kind="stable")
    bounds = np.searchsorted(places.sentence[order], np.arange(len(sentences) + 1))
    vectors = np.zeros((len(places), model.encoder.width), np.float32)
    seen = np.zeros(len(places), bool)
    context.progress.begin(f"reading {name}", len(sentences))
    for batch, arrays in predict_examples(
        model,
        WordVectors(layer, pooling),
        examples,
        distributed=replace(context.distributed, precision=torch.float32),
        plan=plan_prediction(examples.lengths, context.batch),
        progress=context.progress,
    ):
        for found_WD, row in zip(arrays["vectors"], batch.rows.tolist(), strict=True):
            wanted = order[bounds[row] : bounds[row + 1]]
            last = int(examples.get("words", row).max())
            wanted = wanted[places.word[wanted] <= last]
            vectors[wanted] = found_WD[places.word[wanted]]
            seen[wanted] = True
    context.progress.end()
    return vectors, seen


def _encode(encoder: Encoder, sentences: Sequence[Words], context: AnalysisContext) -> Examples:
    """Sentences of words as the encoder reads them, each subword with its word (-1: special ones), kept on disk."""
    identity = content_hash(["word vectors", VERSION, encoder.identity, [list(words) for words in sentences]])
    path = context.encoded / f"{identity}.arrow"
    return Examples(path) if is_intact(path) else write_examples(path, _encode_chunks(encoder, sentences))


def _encode_chunks(encoder: Encoder, sentences: Sequence[Words]) -> Iterator[dict[str, Any]]:
    subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
    room = encoder.max_length - layout.single_extra
    before, after = np.full(len(layout.prefix), -1, np.int32), np.full(len(layout.single_suffix), -1, np.int32)
    for start in range(0, len(sentences), CHUNK):
        encoded = shorten_words(subwords.encode_words(sentences[start : start + CHUNK]), room=room)
        ids, types = assemble(layout, encoded.pieces)
        words = [np.concatenate([before, encoded.words[row], after]) for row in range(len(encoded))]
        yield {"ids": ids, **({"types": types} if encoder.uses_token_types else {}), "words": words}
