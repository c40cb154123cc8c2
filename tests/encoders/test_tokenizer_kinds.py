"""Vocabularies of every kind of tokenizer: trimmed, extended, sampled from, and carried to other programs."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossling.encoders import word_marks
from crossling.encoders.coverage import measure_lines
from crossling.encoders.new_subwords import count_words, extend_tokenizer
from crossling.encoders.subword_sampling import SubwordSampler
from crossling.encoders.tokenization import SubwordTokenizer, find_mark
from crossling.encoders.trimming import _add_parts, _copy_tokenizer, _needed_pieces, rebuild_tokenizer
from crossling.encoders.word_marks import carry_words
from tiny_tokenizers import KINDS, SCRIPTS, build_tokenizer

USABLE = [kind for kind in KINDS if kind != "plain"]
TEXTS = [*SCRIPTS.values(), "walking cats, ½ 1990!", "été\u0301  Кошки"]
NEW = ["Zugspitze qvy", "Zugspitze Zugvogel qvy zebra", "Zugspitze Zugvogel qvy"] * 3


def fake_encoder(tokenizer: Any) -> Any:
    return SimpleNamespace(tokenizer=tokenizer, vocabulary=len(tokenizer), identity="abc", name="tiny")


def tokens_of(tokenizer: Any, texts: list[str]) -> list[list[str]]:
    encoded = SubwordTokenizer(tokenizer, warns=False)
    running = [encoded.encode_pieces([text])[0] for text in texts]
    words = [encoded.encode_words([text.split()]).pieces[0] for text in texts]
    return [tokenizer.convert_ids_to_tokens(pieces) for pieces in running + words]


@pytest.mark.parametrize("kind", USABLE)
def test_trimmed_tokenizer_cuts_kept_text_as_before(kind: str) -> None:
    tokenizer = build_tokenizer(kind)
    subwords = SubwordTokenizer(tokenizer)
    kept = TEXTS[::2]
    ids = [subwords.encode_pieces(kept).values, subwords.encode_words([text.split() for text in kept]).pieces.values]
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    rows = np.unique(np.concatenate([*ids, _needed_pieces(settings)]).astype(np.int64))
    rows = np.unique(_add_parts(settings, rows))
    smaller = _copy_tokenizer(fake_encoder(tokenizer), settings, rows)
    assert len(smaller) == len(rows) < len(tokenizer)
    assert tokens_of(smaller, kept) == tokens_of(tokenizer, kept)
    assert smaller.all_special_tokens == tokenizer.all_special_tokens
    whole, less = tokenizer("The cat", "house")["input_ids"], smaller("The cat", "house")["input_ids"]
    assert smaller.convert_ids_to_tokens(less) == tokenizer.convert_ids_to_tokens(whole)


@pytest.mark.parametrize("kind", USABLE)
def test_extended_tokenizer_needs_fewer_subwords_and_cuts_other_text_as_before(kind: str) -> None:
    tokenizer = build_tokenizer(kind)
    extension, new = extend_tokenizer(tokenizer, count_words(tokenizer, NEW), count=12)
    larger = rebuild_tokenizer(tokenizer, extension.settings, {})
    assert new and extension.first == len(tokenizer) and len(larger) == extension.rows
    assert larger.get_vocab().items() >= tokenizer.get_vocab().items()
    before, after = (measure_lines(one, NEW, name="new", references={}) for one in (tokenizer, larger))
    assert after.fertility < before.fertility
    assert tokens_of(larger, TEXTS) == tokens_of(tokenizer, TEXTS)


@pytest.mark.parametrize("kind", USABLE)
def test_sampled_segmentations_spell_the_same_word(kind: str) -> None:
    tokenizer = build_tokenizer(kind)
    sampler, subwords = SubwordSampler(tokenizer, dropout=0.5), SubwordTokenizer(tokenizer)
    words = ["walking", "Кошка", "بيت", "घर", "house"]
    pieces = [subwords.encode_words([[word]]).pieces[0].tolist() for word in words]
    spelled = [sampler.spell(ids) for ids in pieces if tokenizer.unk_token_id not in ids]
    rows = sampler.sample(spelled, 8, np.random.default_rng(0))
    sampled = [rows[row].tolist() for row in range(len(rows))]
    assert all(not ids or sampler.spell(ids) == spelled[row // 8] for row, ids in enumerate(sampled))
    assert len({tuple(ids) for ids in sampled[:8]}) > 1  # walking


@pytest.mark.parametrize("kind", [kind for kind in USABLE if find_mark(build_tokenizer(kind).backend_tokenizer)])
def test_words_are_marked_alike_in_other_programs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_marks, "LAST", 0x1000)  # enough for these words
    tokenizer = build_tokenizer(kind)
    carried = carry_words(fake_encoder(tokenizer))
    assert carried is not None
    other, shared = carried
    same = [*range(len(tokenizer)), *shared.tolist()]
    words = ["The", "cat", "猫", "1990", "Кошка", "🙂", "walking", "zebra", "家里", "в", "घर"]
    expected = SubwordTokenizer(tokenizer).encode_words([words]).pieces[0].tolist()
    for given in (words, " ".join(words)):
        found = other(given, is_split_into_words=isinstance(given, list), add_special_tokens=False)["input_ids"]
        assert [same[index] for index in found] == expected
