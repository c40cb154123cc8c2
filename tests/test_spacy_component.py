"""The spaCy component sets what the model predicts on spaCy's own tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import spacy

from crossling.errors import UserError
from crossling.inference.predictor import Predictor

Trained = Callable[[str], Path]
TEXT = "the cat  sees\n a dog in London."


def build(folder: Path, language: str = "en") -> spacy.language.Language:
    nlp = spacy.blank(language)
    nlp.add_pipe("crossling", config={"model": str(folder)})
    return nlp


def test_entities_are_those_of_the_model(trained: Trained) -> None:
    folder = trained("ner")
    doc = build(folder)(TEXT)
    tokens = [token for token in doc if not token.is_space]
    [found] = Predictor.load(folder).predict([[token.text for token in tokens]], language="en")
    offsets = [(token.idx, token.idx + len(token)) for token in tokens]
    words = [(word["start"], word["end"]) for word in found["words"]]
    expected = [
        (offsets[words_at(words, span["start"], 0)][0], offsets[words_at(words, span["end"], 1)][1], span["label"])
        for span in found["spans"]
    ]
    assert [(span.start_char, span.end_char, span.label_) for span in doc.ents] == expected
    assert expected, "the model finds something"


def words_at(words: list[tuple[int, int]], character: int, side: int) -> int:
    return [word[side] for word in words].index(character)


def test_tags_are_set_on_tokens(trained: Trained) -> None:
    folder = trained("pos")
    doc = build(folder)(TEXT)
    tokens = [token for token in doc if not token.is_space]
    [found] = Predictor.load(folder).predict([[token.text for token in tokens]], language="en")
    assert [token.tag_ for token in tokens] == [word["tag"] for word in found["words"]]


def test_a_category_is_set_with_its_confidence(trained: Trained) -> None:
    folder = trained("sentiment")
    [found] = Predictor.load(folder).predict([TEXT], language="en")
    assert build(folder)(TEXT).cats == {found["label"]: found["confidence"]}


def test_a_pipe_gives_what_single_documents_give(trained: Trained) -> None:
    nlp = build(trained("ner"), language="xx")
    texts = [TEXT, "", "   ", "我是学生", "the dog"] * 30
    together = [[(e.start, e.end, e.label_) for e in doc.ents] for doc in nlp.pipe(texts, batch_size=7)]
    assert together == [[(e.start, e.end, e.label_) for e in nlp(text).ents] for text in texts]


def test_models_of_two_texts_are_refused(trained: Trained) -> None:
    with pytest.raises(UserError, match="two texts"):
        build(trained("nli"))
    with pytest.raises(UserError, match="name a model"):
        spacy.blank("en").add_pipe("crossling")
