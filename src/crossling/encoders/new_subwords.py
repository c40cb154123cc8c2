"""New subwords for a language, learnt from text by byte-pair encoding over a tokenizer's subwords instead of letters.

The tokenizer splits the text. The most frequent pair of adjacent subwords in a word is merged, then the next, which may
contain the first. Each new subword is therefore a run of old ones, whose mean embedding it starts from, and saves a
subword wherever it occurs. Characters that had no subword come before all merges.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import regex

from crossling.encoders.coverage import find_scripts
from crossling.encoders.tokenization import BYTE_MARK, find_mark, is_byte, read_bytes
from crossling.errors import EncoderError
from crossling.progress import NoProgress, Progress

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 20
"""Maximum length of a new subword: in scripts without spaces whole phrases would become subwords otherwise."""
SPARE = 3
"""Merges to learn for each piece that is asked for: some are only steps to longer ones."""
ROUNDS = 6
OWN_SCRIPT = 0.1
"""The share of a text's letters from which on a script is one that its language is written in."""
MERGE_BONUS = 1e-4
"""How much a Unigram subword scores above its parts, for each subword that it saves. It is far less than the score
difference of two ways to split a word, so only subwords that were adjacent before are joined. float32 can hold it."""
UNKNOWN_PENALTY = 10.0
"""How far below the lowest score Unigram puts a character without a piece."""

_PRIVATE = 0x10000
"""Pieces go through the trainer as characters, from this one on: none of them is a space."""
_REPEATED = 10_000
_MARKED = regex.compile(r"▁?[^▁]+|▁")
_LETTER = regex.compile(r"[\p{L}\p{M}\u200c\u200d]")

Words = Mapping[str, int]
"""Words as a tokenizer's model gets them, normalised and split off, and how often they occur."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A new piece."""

    text: str
    """As the vocabulary writes it: with ▁ where a word begins, or with ## where none does."""
    parts: tuple[int, ...]
    """The pieces that it is made of; of a character that could not be written, what stood in its place."""
    character: bool = False
    merges: list[tuple[str, str]] = field(default_factory=list)
    """For BPE: the pairs from which it is merged."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A larger vocabulary: the tokenizer that has it, and what the new rows start from."""

    settings: dict[str, Any]
    """The larger tokenizer's JSON."""
    first: int
    """The id of the first new piece; the others follow it."""
    parts: tuple[tuple[int, ...], ...]
    """For each new piece, the old ones that the text in it was cut into before."""

    @property
    def rows(self) -> int:
        """How many pieces the larger tokenizer has."""
        return self.first + len(self.parts)

    def extend(self, rows: Tensor) -> Tensor:
        """A table (or one number a piece) with a row more for each new piece: the mean of its parts'.

        What some checkpoints have in rows beyond their last piece makes room for new ones.
        """
        larger = rows.new_zeros(max(len(rows), self.rows), *rows.shape[1:])
        larger[: len(rows)] = rows
        for row, parts in enumerate(self.parts, start=self.first):
            larger[row] = rows[list(parts)].mean(dim=0)
        return larger


class Vocabulary:
    """A tokenizer's pieces, how they cut a word, and how others are added."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self.settings = settings
        model = settings["model"]
        self.kind: str = model["type"]
        self.prefix: str = model.get("continuing_subword_prefix") or ""
        self.ids: dict[str, int]
        if self.kind == "Unigram":
            self.ids = {piece: index for index, (piece, _) in enumerate(model["vocab"])}
            unknown = model["unk_id"]
        else:
            self.ids = model["vocab"]
            unknown = self.ids.get(model["unk_token"])
        self.texts = {index: piece for piece, index in self.ids.items()}
        bytes_ = {index for piece, index in self.ids.items() if is_byte(piece)}
        self.unwritten = bytes_ if unknown is None else bytes_ | {unknown}
        """Pieces in place of a character that has none."""
        backend = Tokenizer.from_str(json.dumps(settings))
        self.byte_level = find_mark(backend) == BYTE_MARK
        self._model = backend.model

    def cut(self, word: str) -> list[int]:
        """The pieces of a word."""
        return [token.id for token in self._model.tokenize(word)]

    def join(self, parts: Iterable[int]) -> str:
        """How a piece that is made of these is written."""
        first, *rest = (self.texts[part] for part in parts)
        return first + "".join(text.removeprefix(self.prefix) for text in rest)

    def add(self, pieces: Sequence[Piece]) -> Vocabulary:
        """With further pieces, whose ids follow the last; the others keep theirs."""
        if not pieces:
            return self
        return Vocabulary(self.settings | {"model": _ADDERS[self.kind](self.settings["model"], pieces)})


def _add_unigram(model: dict[str, Any], pieces: Sequence[Piece]) -> dict[str, Any]:
    scores = [score for _, score in model["vocab"]]
    # A new character costs what it cost when it was unknown, so that the text around it is cut as before. What is
    # still unknown then costs more, which matters to nothing: where it stands, there is no other way to go.
    unknown = min(scores) - UNKNOWN_PENALTY
    new = [
        [piece.text, unknown]
        if piece.character
        else [piece.text, sum(scores[part] for part in piece.parts) + MERGE_BONUS * (len(piece.parts) - 1)]
        for piece in pieces
    ]
    return model | {"vocab": [*model["vocab"], *new]}


def _add_wordpiece(model: dict[str, Any], pieces: Sequence[Piece]) -> dict[str, Any]:
    first = max(model["vocab"].values()) + 1
    return model | {"vocab": model["vocab"] | {piece.text: first + place for place, piece in enumerate(pieces)}}


def _add_bpe(model: dict[str, Any], pieces: Sequence[Piece]) -> dict[str, Any]:
    """New merges come after all old ones: what those make of a word is joined further and not cut otherwise."""
    larger = _add_wordpiece(model, pieces)
    merges = [list(merge) for piece in pieces for merge in piece.merges if set(merge) <= larger["vocab"].keys()]
    return larger | {"merges": [*model["merges"], *merges]}


_ADDERS = {"Unigram": _add_unigram, "WordPiece": _add_wordpiece, "BPE": _add_bpe}


def count_words(tokenizer: Any, lines: Iterable[str]) -> Counter[str]:
    """The words of a text as the tokenizer's model gets them."""
    backend = tokenizer.backend_tokenizer
    words: Counter[str] = Counter()
    for line in lines:
        text = backend.normalizer.normalize_str(line) if backend.normalizer else line
        split = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, None)]
        # Some tokenizers split nothing and leave it to their pieces to begin at a ▁.
        words.update(chain.from_iterable(_MARKED.findall(word) for word, _ in split))
    return words


def extend_tokenizer(
    tokenizer: Any, words: Words, *, count: int, progress: Progress | None = None
) -> tuple[Extension, tuple[Piece, ...]]:
    """A tokenizer with up to ``count`` pieces more, and these; fewer where no others would be used."""
    progress = progress or NoProgress()
    progress.begin("learning subwords", 3 + ROUNDS)
    old = Vocabulary(_merge_added(_read_settings(tokenizer)))
    characters = find_characters(old, words)[:count]
    written = old.add(characters)
    progress.advance()
    merged = find_merged_pieces(written, words, count=count - len(characters), progress=progress)
    if merged:
        # After a piece that WordPiece takes for being the longest, there may be none for what is left of a word.
        characters += find_characters(written.add(merged), words)[: len(merged)]
        merged = merged[: count - len(characters)]
    progress.end()
    larger = old.add(characters).add(merged)
    # Rows start from old ones, so that a merged piece with a new character in it goes back to what stood for that.
    origins: dict[int, tuple[int, ...]] = {}
    for piece in (*characters, *merged):
        parts = chain.from_iterable(origins.get(part, (part,)) for part in piece.parts)
        origins[larger.ids[piece.text]] = tuple(parts)
    return Extension(larger.settings, max(old.texts) + 1, tuple(origins.values())), (*characters, *merged)


def _read_settings(tokenizer: Any) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    model = settings["model"]
    if model["type"] not in _ADDERS:
        raise EncoderError(f"a tokenizer of type {model['type']} cannot be extended; {', '.join(_ADDERS)} can.")
    if model["type"] == "BPE" and (model["continuing_subword_prefix"] or model["end_of_word_suffix"]):
        raise EncoderError("a BPE tokenizer that marks the middle or the end of words cannot be extended.")
    return settings


def _merge_added(settings: dict[str, Any]) -> dict[str, Any]:
    """Move added tokens into the model's vocabulary at their ids: new ids continue from its end."""
    model = settings["model"]
    added = {token["content"]: token["id"] for token in settings["added_tokens"]}
    if model["type"] != "Unigram":
        return settings | {"model": model | {"vocab": model["vocab"] | added}}
    vocabulary, contents = list(model["vocab"]), {index: content for content, index in added.items()}
    for index in range(len(vocabulary), max(added.values(), default=-1) + 1):
        vocabulary.append([contents.get(index, f"<unused {index}>"), 0.0])
    return settings | {"model": model | {"vocab": vocabulary}}


def find_characters(vocabulary: Vocabulary, words: Words) -> list[Piece]:
    """Characters of words that cannot be written, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for word, times in words.items():
        if vocabulary.unwritten.isdisjoint(vocabulary.cut(word)):
            continue
        for place, character in _find_stuck(vocabulary, word) if vocabulary.prefix else enumerate(word):
            text = vocabulary.prefix + character if place else character
            if text not in vocabulary.ids and character.isprintable():
                counts[text, character] += times
    found = []
    for (text, character), _ in counts.most_common():
        # A word may begin with a character that others have inside, and the other way round.
        known = vocabulary.ids.get(character, vocabulary.ids.get(vocabulary.prefix + character))
        parts = vocabulary.cut(character) if known is None else [known]
        if parts:
            found.append(Piece(text, tuple(parts), character=True))
    return found


def _find_stuck(vocabulary: Vocabulary, word: str) -> Iterator[tuple[int, str]]:
    """Where WordPiece, which takes the longest piece each time, has none to go on with."""
    place = 0
    while place < len(word):
        prefix = vocabulary.prefix if place else ""
        sizes = range(len(word) - place, 0, -1)
        size = next((size for size in sizes if prefix + word[place : place + size] in vocabulary.ids), 0)
        if not size:
            yield place, word[place]
        place += size or 1


def find_merged_pieces(vocabulary: Vocabulary, words: Words, *, count: int, progress: Progress) -> list[Piece]:
    """Up to ``count`` pieces that merge others, the most frequent first."""
    if not count:
        return []
    cuts = {word: ids for word in words if len(ids := vocabulary.cut(word)) > 1}
    letters = find_letters(words, byte_level=vocabulary.byte_level)
    runs: Counter[tuple[int, ...]] = Counter()
    for word, ids in cuts.items():
        for run in _find_runs(vocabulary, word, ids, letters=letters):
            runs[run] += words[word]
    progress.advance()
    merged = _build_merged_pieces(vocabulary, _learn_merges(runs, SPARE * count))
    progress.advance()
    if vocabulary.kind == "BPE":  # every merge is a step that the next ones may need
        return merged[:count]
    weighted = {word: (ids, words[word]) for word, ids in cuts.items()}
    return _choose_used(vocabulary, merged, weighted, count=count, progress=progress)


def find_letters(words: Words, *, byte_level: bool) -> frozenset[str]:
    """Letters of the scripts in which a text is written; names in another script, here and there, are another's."""
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for sign in read_bytes(word) if byte_level else word:
            counts[sign] += times
    own = {script for script, share in find_scripts(counts) if share >= OWN_SCRIPT}
    return frozenset(c for c in counts if _LETTER.match(c) and {script for script, _ in find_scripts({c: 1})} <= own)


def _find_runs(
    vocabulary: Vocabulary, word: str, ids: Sequence[int], *, letters: frozenset[str]
) -> Iterator[tuple[int, ...]]:
    """Pieces side by side that hold letters alone: joined with a comma, a word would be another at a clause's end."""
    if not vocabulary.unwritten.isdisjoint(ids):
        return
    marks = _mark_letters(word, letters, byte_level=vocabulary.byte_level)
    run: list[int] = []
    place = 0
    for piece in ids:
        text = vocabulary.texts[piece]
        end = place + len(text.removeprefix(vocabulary.prefix) if place else text)
        if all(marks[place:end]):
            run.append(piece)
        else:
            yield from [tuple(run)] if len(run) > 1 else []
            run = []
        place = end
    yield from [tuple(run)] if len(run) > 1 else []


def _mark_letters(word: str, letters: frozenset[str], *, byte_level: bool) -> list[bool]:
    """Whether each sign of a word is (part of) a letter; the mark of a word's beginning belongs to it."""
    text = read_bytes(word) if byte_level else word
    marks = [sign in letters or (place == 0 and sign in " ▁") for place, sign in enumerate(text)]
    if not byte_level:
        return marks
    return [mark for mark, sign in zip(marks, text, strict=True) for _ in sign.encode()]


def _learn_merges(runs: Mapping[tuple[int, ...], int], limit: int) -> list[tuple[str, str]]:
    """The pairs to merge, in order; a piece is one character here, and a merged one a string of them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    def repeat() -> Iterator[str]:
        for run, times in runs.items():
            text = "".join(chr(_PRIVATE + piece) for piece in run) + " "
            for done in range(0, times, _REPEATED):
                yield text * min(_REPEATED, times - done)

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = len(set(chain.from_iterable(runs))) + limit
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, special_tokens=[])
    learner.train_from_iterator(repeat(), trainer)
    return [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]


def _build_merged_pieces(vocabulary: Vocabulary, merges: Iterable[tuple[str, str]]) -> list[Piece]:
    """Merges as pieces; what is in the vocabulary already, or too long, is left out with all that is made of it."""
    made: dict[str, Piece] = {}
    left_out: set[str] = set()
    for left, right in merges:
        parts = tuple(ord(sign) - _PRIVATE for sign in left + right)
        text = vocabulary.join(parts)
        too_long = len(read_bytes(text) if vocabulary.byte_level else text) > LONGEST
        if too_long or text in vocabulary.ids or {left, right} & left_out:
            left_out.add(left + right)
            continue
        # Two pairs may come to the same text, which is one piece.
        piece = made.setdefault(text, Piece(text, parts))
        pair = tuple(vocabulary.join(ord(sign) - _PRIVATE for sign in side) for side in (left, right))
        if pair not in piece.merges:
            piece.merges.append((pair[0], pair[1]))
    return list(made.values())


def _choose_used(
    vocabulary: Vocabulary,
    merged: Sequence[Piece],
    cuts: Mapping[str, tuple[list[int], int]],
    *,
    count: int,
    progress: Progress,
) -> list[Piece]:
    """The first merged pieces that leave fewer pieces in the text, up to ``count``: steps to longer ones do not."""
    tried = count
    for _ in range(ROUNDS):
        useful = _keep_useful(vocabulary, merged[:tried], cuts)
        progress.advance()
        if len(useful) >= count or tried >= len(merged):
            break
        tried = tried * count // max(len(useful), 1) + 1
    useful = useful[:count]
    # WordPiece takes the longest piece first, so that with one gone another may no longer be worth its row.
    while len(kept := _keep_useful(vocabulary, useful, cuts)) < len(useful):
        useful = kept
    return useful


def _keep_useful(
    vocabulary: Vocabulary, merged: Sequence[Piece], cuts: Mapping[str, tuple[list[int], int]]
) -> list[Piece]:
    """Merged pieces that save subwords, summed over all words that contain them."""
    if not merged:
        return []
    larger = vocabulary.add(merged)
    saved: Counter[int] = Counter()
    for word, (before, times) in cuts.items():
        after = larger.cut(word)
        for piece in {piece for piece in after if piece not in vocabulary.texts}:
            saved[piece] += times * (len(before) - len(after))
    return [piece for piece in merged if saved[larger.ids[piece.text]] > 0]
