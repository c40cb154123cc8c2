"""Predictions of new text: offsets that index what the user gave, and input that cannot be read."""

from __future__ import annotations

import io
import random
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities

from crossling.data.records import LabelledText
from crossling.errors import ArtefactError, DataError, UserError
from crossling.inference import predictor as prediction
from crossling.inference.evaluate import predict_with
from crossling.inference.predictor import Predictor, predict_file, read_text
from crossling.tasks.tag import join_spans
from examples import make_rows
from trained import list_inputs, train_tiny, wrap

Trained = Callable[[str], Path]

TRICKY = [
    "the  cat\tsees a dog",
    unicodedata.normalize("NFD", "Çà et là, Zürich; Việt Nam"),
    "👩‍👩‍👧 cat 🇮🇳 dog ☃️!",
    "Ｔｈｅ　ｃａｔ　２０，ﬁsh ①",
    "क्‍या बिल्ली मछली खाती है।",
    "我们看书。ｶﾞｷﾞ 猫",
    "สวัสดีครับ cat ກຳ",
    "\u200bcat\u200b \u00a0dog\ufeff",
    " \x0b leading and trailing \x0c ",
    "a\u2028b\u0085c\rd",
    "it's don't l'homme www.example.org/x?y=1, @cat #dog 3,14 U.S.A.",
]
"""Text in which characters are easily miscounted: what is composed, joined, folded, invisible or not ASCII."""


@pytest.fixture(scope="module")
def tagger(trained: Trained) -> Predictor:
    return Predictor.load(trained("ner"))


@pytest.mark.parametrize("text", TRICKY)
@pytest.mark.parametrize("language", ["en", "fr", "hi", "th", "zh"])
def test_word_offsets_match_text(tagger: Predictor, text: str, language: str) -> None:
    [found] = tagger.predict([text], language=language)
    assert found["text"] == text
    end, kept = 0, ""
    for word in found["words"]:
        assert text[word["start"] : word["end"]] == word["word"] != ""
        assert not text[end : word["start"]].strip().strip("\u200b\ufeff"), "characters between words were lost"
        assert 0 <= word["confidence"] <= 1
        end, kept = word["end"], kept + word["word"]
    assert not text[end:].strip().strip("\u200b\ufeff")
    for span in found["spans"]:
        assert text[span["start"] : span["end"]] == span["span"]


@pytest.mark.parametrize("text", TRICKY)
def test_answer_offsets_match_context(trained: Trained, text: str) -> None:
    contexts = [text, f"{text} cat {text}"]
    for context, found in zip(
        contexts, Predictor.load(trained("qa")).predict([("the cat", c) for c in contexts]), strict=True
    ):
        assert found["context"] == context
        assert context[found["start"] : found["end"]] == found["answer"]
        assert found["answer"] == found["answer"].strip()
        assert 0 <= found["confidence"] <= 1


def test_bfloat16_predicts_as_float32_to_its_digits(
    trained: Trained, tagger: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    texts = ["the cat sees a dog", "a dog", "in in"]
    whole, reduced = (one.predict(texts) for one in (tagger, Predictor.load(trained("ner"), precision="bfloat16")))
    pairs = [pair for w, r in zip(whole, reduced, strict=True) for pair in zip(w["words"], r["words"], strict=True)]
    assert [a["tag"] for a, _ in pairs] == [b["tag"] for _, b in pairs]
    differences = [abs(a["confidence"] - b["confidence"]) for a, b in pairs]
    assert 0 < max(differences) < 0.02
    with pytest.raises(UserError, match="--precision bfloat: unknown. Did you mean 'bfloat16'"):
        Predictor.load(trained("ner"), precision="bfloat")


def test_trained_tagger_finds_spans(tagger: Predictor) -> None:
    [raw, given, plain] = tagger.predict(["the  cat sees a dog", ["the", "cat"], "in in"])
    assert [(span["span"], span["label"], span["start"], span["end"]) for span in raw["spans"]] == [
        ("cat", "X", 5, 8),
        ("dog", "X", 16, 19),
    ]
    assert given["text"] == "the cat" and [(s["start"], s["end"]) for s in given["spans"]] == [(4, 7)]
    assert plain["spans"] == []


def test_tags_without_spans_show_none(trained: Trained) -> None:
    [found] = Predictor.load(trained("pos")).predict(["the cat"])
    assert "spans" not in found and len(found["words"]) == 2


def test_spans_equal_scored_spans() -> None:
    generator = random.Random(0)
    for _ in range(300):
        tags = generator.choices(["O", "B-A", "I-A", "B-B", "I-B"], k=generator.randint(0, 8))
        text, words = "", []
        for tag in tags:
            confidence = generator.random()
            words.append({"start": len(text), "end": len(text) + 2, "tag": tag, "confidence": confidence})
            text += "xy "
        spans = join_spans(text, words)
        expected = get_entities(list(tags))
        assert [(s["label"], s["start"] // 3, (s["end"] - 2) // 3) for s in spans] == expected
        for span, (_, first, last) in zip(spans, expected, strict=True):
            assert span["confidence"] == min(word["confidence"] for word in words[first : last + 1])
            assert span["span"] == " ".join(["xy"] * (last - first + 1))


def test_source_language_is_default(tagger: Predictor) -> None:
    assert tagger.card.source == "en"
    words = [word["word"] for word in tagger.predict(["it's"])[0]["words"]]
    assert words == [word["word"] for word in tagger.predict(["it's"], language="en")[0]["words"]] == ["it", "'s"]
    assert len(tagger.predict(["it's"], language="de")[0]["words"]) == 1


@pytest.mark.parametrize(
    ("task", "inputs", "message"),
    [
        ("ner", "the cat", "a list of texts, not one text"),
        ("ner", [3], "input 0: '3' is not a text or a list of words"),
        ("ner", ["cat", ["dog", None]], "input 1"),
        ("sentiment", [("a", "b")], "is not a text"),
        ("nli", ["a b"], "is not a pair of texts"),
        ("nli", [("a", "b", "c")], "is not a pair of texts"),
        ("qa", [("who", None)], "is not a pair of question and context"),
    ],
)
def test_inputs_of_wrong_shape_are_refused(trained: Trained, task: str, inputs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Predictor.load(trained(task)).predict(inputs)


def test_empty_input_gives_no_predictions(tagger: Predictor) -> None:
    assert tagger.predict([]) == []


def test_model_without_task_is_refused(tmp_path: Path, tiny_folder: Path) -> None:
    from dataclasses import replace

    model, card = train_tiny(tiny_folder, tmp_path, "ner")
    with pytest.raises(ArtefactError, match="no task to predict"):
        wrap(model, replace(card, tasks={}))


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def predict(model: Path, path: Path | None, **settings: Any) -> list[dict[str, Any]]:
    return list(predict_file(model, path, **settings))


LINES = "\ufeffthe cat\r\n\r\n \t\na\u2028dog\x85\rin\x0c\r\nfish"


def test_results_carry_line_numbers(trained: Trained, tmp_path: Path) -> None:
    found = predict(trained("ner"), write(tmp_path / "in.txt", LINES))
    assert [(item["line"], item["text"]) for item in found] == [
        (1, "the cat"),
        (4, "a\u2028dog\x85\rin\x0c"),
        (5, "fish"),
    ]
    assert [word["word"] for word in found[1]["words"]] == ["a", "dog", "in"]


def test_standard_input_is_read_like_a_file(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = LINES.encode()
    # Opened as a system with another encoding and other line ends would.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="latin-1"))
    assert predict(trained("ner"), None) == predict(trained("ner"), write(tmp_path / "in.txt", raw))


def test_split_words_are_kept(trained: Trained, tmp_path: Path) -> None:
    path = write(tmp_path / "words.txt", "\nthe\tDET\r\ncat\tNOUN\r\n\r\n\r\nHà Nội\nin")
    found = predict(trained("ner"), path, words=True)
    assert [(item["line"], item["text"]) for item in found] == [(2, "the cat"), (6, "Hà Nội in")]
    assert [[word["word"] for word in item["words"]] for item in found] == [["the", "cat"], ["Hà Nội", "in"]]


def test_pairs_are_tab_separated(trained: Trained, tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.txt", "the cat\ta dog\n\nthe dog \t a cat\n")
    found = predict(trained("nli"), path)
    assert [(item["line"], item["first"], item["second"]) for item in found] == [
        (1, "the cat", "a dog"),
        (3, "the dog ", " a cat"),
    ]
    assert {item["label"] for item in found} <= {"cats", "other"}


def test_long_file_is_predicted_in_chunks(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in.txt", "the cat\na dog in\n\nfish\nred\nin the house\n")
    whole = predict(trained("ner"), path)
    monkeypatch.setattr(prediction, "CHUNK", 2)
    calls: list[int] = []
    original = Predictor.predict

    def count(self: Predictor, inputs: Sequence[Any], **settings: Any) -> list[dict[str, Any]]:
        calls.append(len(inputs))
        return original(self, inputs, **settings)

    monkeypatch.setattr(Predictor, "predict", count)
    parts = predict(trained("ner"), path)
    assert calls == [2, 2, 1]
    assert [(item["line"], item["spans"]) for item in parts] == [(item["line"], item["spans"]) for item in whole]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no text"),
        (b"\n \r\n\t\n", "holds no text"),
        (b"a\n\x89PNG\r\n", "in.txt:2: not UTF-8 text"),
        (b"\xef\xbb\xbfa\n\ncaf\xe9\n", "in.txt:3: not UTF-8 text"),
        (b"ab\nc\0d", "in.txt:2: not text"),
        ("text".encode("utf-16"), "UTF-16"),
    ],
)
def test_files_without_text_are_errors(trained: Trained, tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predict_file(trained("ner"), write(tmp_path / "in.txt", content))


def test_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_text(tmp_path / "in.txt", name="in.txt")
    with pytest.raises(DataError, match="directory"):
        read_text(tmp_path, name="here")


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("nli", "one text", "in.txt:2: no tab"),
        ("nli", "a\tb\tc", "in.txt:2: 2 tabs"),
        ("nli", "\tb", "in.txt:2: nothing before the tab"),
        ("qa", "a\t ", "in.txt:2: nothing after the tab"),
    ],
)
def test_lines_without_tab_are_refused(trained: Trained, tmp_path: Path, task: str, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predict_file(trained(task), write(tmp_path / "in.txt", f"a\tb\n{line}\n"))


def test_words_option_is_for_taggers(trained: Trained, tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt", "the\n\tcat\n")
    with pytest.raises(DataError, match="only a tagger"):
        predict_file(trained("sentiment"), path, words=True)
    with pytest.raises(DataError, match="in.txt:2: no word before the tab"):
        predict_file(trained("ner"), path, words=True)


def test_unknown_language_is_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown language 'xx'"):
        predict_file(tmp_path / "no model", None, language="xx")


@pytest.mark.parametrize("task", ["ner", "sentiment", "nli", "qa"])
def test_languages_in_one_batch_change_nothing(trained: Trained, task: str) -> None:
    model = Predictor.load(trained(task))
    inputs: list[Any] = ["it's the cat", "aujourd'hui l'homme", "मछली खाती है।", "dog in 北京"]
    if task in ("nli", "qa"):
        inputs = [(text, f"{text} cat") for text in inputs]
    languages = ["en", "fr", None, "zh"]
    alone = [model.predict([item], language=one)[0] for item, one in zip(inputs, languages, strict=True)]
    together = model.predict_mixed(inputs * 2, languages * 2)
    for found, expected in zip(together, alone * 2, strict=True):
        assert drop_confidence(found) == drop_confidence(expected)


def drop_confidence(found: Any) -> Any:
    """A result without confidences, whose last digit depends on the batch."""
    if isinstance(found, dict):
        return {name: drop_confidence(value) for name, value in found.items() if name != "confidence"}
    return [drop_confidence(value) for value in found] if isinstance(found, list) else found


def test_new_text_is_classified_to_its_end(trained: Trained) -> None:
    """The model was trained on texts that are cut off; a short text is read as training read it."""
    predictor = Predictor.load(trained("sentiment"))
    length = predictor.task.settings.length
    start = ["the"] * length
    texts = [" ".join([*start, *end]) for end in (["cat"] * length, ["dog"] * length)]
    first, second = predictor.predict(texts)
    assert first["confidence"] != second["confidence"] or first["label"] != second["label"]
    rows = make_rows(LabelledText)
    [scored] = predict_with(predictor.engine, predictor.task, [rows], head=predictor.head, cache=None)
    found = predictor.predict(list_inputs(rows))
    assert [one["label"] for one in found] == [scored.labels[code] for code in scored.column("predicted")]
    assert [one["confidence"] for one in found] == pytest.approx(scored.column("confidence").tolist(), abs=1e-4)
