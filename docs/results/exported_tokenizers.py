"""What tokenizers cost an exported tagger: python docs/results/exported_tokenizers.py RUN en hi zh

Span F1 on the first 300 rows of WikiANN's dev set in each language, of one model with three ways to cut text into
subwords: crossling's, the exported tokenizer, and the encoder's own as the hub has it. The table is in
docs/using-models.md. Words are given as words; text is the same words joined as they would be written, and a word's tag
is read at the subword that holds its first letter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from seqeval.metrics import f1_score

from crossling.data.catalogue import open_data
from crossling.encoders.tokenization import SubwordTokenizer, first_pieces
from crossling.encoders.word_marks import carry_words
from crossling.models.counterparts import convert
from crossling.models.model import load_model
from crossling.store.artefacts import find_store
from crossling.study.run_record import find_model

CLOSING, OPENING = set(".,;:!?)]}»%…।،؟"), set("([{«")
UNSPACED = (("\u0e00", "\u0eff"), ("\u3040", "\u30ff"), ("\u3400", "\u9fff"))
"""Thai and Lao, kana, Han: scripts without spaces."""
LIMIT = 512
Encoded = tuple[list[list[int]], list[list[int | None]]]
"""The subwords of each sentence, and for each word the subword that its tag is read at."""


def join_words(words: Sequence[str]) -> tuple[str, list[int]]:
    """Words as running text, and where each begins."""
    text, starts = "", []
    for place, word in enumerate(words):
        before = words[place - 1][-1] if place else ""
        glued = word[0] in CLOSING or before in OPENING or is_unspaced(word[0]) or is_unspaced(before)
        text += "" if not place or glued else " "
        starts.append(len(text))
        text += word
    return text, starts


def is_unspaced(letter: str) -> bool:
    """Whether a letter's script has no spaces."""
    return any(first <= letter <= last for first, last in UNSPACED)


def encode_ours(tokenizer: Any, sentences: list[list[str]]) -> Encoded:
    """As crossling reads words."""
    found = SubwordTokenizer(tokenizer).encode_words(sentences)
    rows, firsts = [], []
    for place in range(len(sentences)):
        pieces = found.pieces[place].tolist()[: LIMIT - 2]
        rows.append([tokenizer.cls_token_id, *pieces, tokenizer.sep_token_id])
        firsts.append([int(p) + 1 if p < len(pieces) else None for p in first_pieces(found.words[place])])
    return rows, firsts


def encode_words(tokenizer: Any, sentences: list[list[str]]) -> Encoded:
    """As ``pipeline`` reads words."""
    rows, firsts = [], []
    for words in sentences:
        one = tokenizer.backend_tokenizer.encode(words, is_pretokenized=True)
        first = {word: place for place, word in reversed(list(enumerate(one.word_ids[:LIMIT]))) if word is not None}
        rows.append(one.ids[:LIMIT])
        firsts.append([first.get(word) for word in range(len(words))])
    return rows, firsts


def encode_text(tokenizer: Any, sentences: list[list[str]], mark: int) -> Encoded:
    """As running text; the lone mark of a space holds no letter."""
    rows, firsts = [], []
    for words in sentences:
        text, starts = join_words(words)
        one = tokenizer.backend_tokenizer.encode(text)
        real = [(n, a, b) for n, (a, b) in enumerate(one.offsets[:LIMIT]) if one.ids[n] != mark and b > a]
        rows.append(one.ids[:LIMIT])
        firsts.append([next((n for n, a, b in real if a <= start < b), None) for start in starts])
    return rows, firsts


@torch.no_grad()
def predict(model: Any, encoded: Encoded, shared: np.ndarray, labels: Sequence[str], pad: int) -> list[list[str]]:
    """The tags of all sentences; ``shared`` maps each subword to the row of its embedding."""
    rows, firsts = encoded
    tags: list[list[str]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    for start in range(0, len(order), 32):
        places = order[start : start + 32]
        ids = torch.full((len(places), max(len(rows[place]) for place in places)), pad)
        mask = torch.zeros_like(ids)
        for number, place in enumerate(places):
            ids[number, : len(rows[place])] = torch.tensor(shared[np.array(rows[place])])
            mask[number, : len(rows[place])] = 1
        best = model(input_ids=ids, attention_mask=mask).logits.argmax(-1).numpy()
        for number, place in enumerate(places):
            tags[place] = ["O" if first is None else labels[best[number][first]] for first in firsts[place]]
    return tags


def main(run: str, languages: Sequence[str]) -> None:
    model, card = load_model(find_model(Path(run)))
    converted, reason = convert(model, card)
    assert not reason, f"transformers has no class for {reason}"
    hub = model.encoder.tokenizer
    exported, twins = carry_words(model.encoder)
    shared = np.array([*range(model.encoder.vocabulary), *twins.tolist()])
    labels = next(iter(card.tasks.values()))["labels"]
    mark = hub.convert_tokens_to_ids("▁")
    means: dict[str, list[float]] = {}
    for language in languages:
        rows = open_data(f"panx:{language}:dev[:300]", store=find_store())
        sentences, gold = (rows.column(name).to_pylist() for name in ("words", "tags"))
        ways = {
            "crossling": encode_ours(hub, sentences),
            "words, exported tokenizer": encode_words(exported, sentences),
            "words, the hub's tokenizer": encode_words(hub, sentences),
            "text, exported tokenizer": encode_text(exported, sentences, mark),
            "text, the hub's tokenizer": encode_text(hub, sentences, mark),
        }
        for name, encoded in ways.items():
            found = 100 * f1_score(gold, predict(converted.eval(), encoded, shared, labels, hub.pad_token_id))
            means.setdefault(name, []).append(found)
    sys.stdout.write(f"| | {' | '.join(languages)} | mean |\n| --- |{' --: |' * (len(languages) + 1)}\n")
    for name, scores in means.items():
        sys.stdout.write(f"| {name} | {' | '.join(f'{score:.1f}' for score in [*scores, fmean(scores)])} |\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
