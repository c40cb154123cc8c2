"""Larger vocabularies: new subwords for a language that an encoder cuts into many pieces or cannot write.

``new_subwords`` learns them from text; here the encoder gets a row for each, the mean of those it had before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from crossling.encoders.coverage import Coverage, measure_coverage, read_text_lines
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.masked_word_head import load_head, store_head
from crossling.encoders.new_subwords import Extension, count_words, extend_tokenizer
from crossling.encoders.tokenization import TRIMMED_FROM
from crossling.encoders.trimming import rebuild_tokenizer
from crossling.encoders.vocabulary import set_table
from crossling.errors import DataError, EncoderError, UserError
from crossling.files import check_new_folder, write_folder
from crossling.progress import NoProgress, Progress

MEASURED = 10_000
"""Lines of the text on which the two encoders are compared."""

_RECIPE = """\
[encoder]
name = {name}

[[stage]]
kind = "adapt"
train = {{ format = "text", path = {text}, language = "..." }}
"""


@dataclass(frozen=True, slots=True)
class Extended:
    """What was added to an encoder, and how the tokenization of the text changed."""

    out: Path
    text: Path
    asked: int
    characters: int
    merges: int
    rows: tuple[int, int]
    """Rows of the table of subwords before and after."""
    before: Coverage
    after: Coverage
    head: str
    """What became of the checkpoint's masked-word head."""

    def facts(self) -> dict[str, str]:
        """For showing: names and values in words."""
        added = self.characters + self.merges
        fewer = f" of {self.asked:,} asked for: no others would be used" if added < self.asked else ""
        return {
            "encoder": str(self.out),
            "subwords added": f"{added:,}{fewer}",
            "characters that it could not write": f"{self.characters:,}",
            "merges of subwords that it had": f"{self.merges:,}",
            "rows of subwords": f"{self.rows[0]:,} -> {self.rows[1]:,}",
            "masked-word head": self.head,
            "compared on": f"{self.before.lines:,} lines",
        }

    def changes(self) -> dict[str, tuple[str, str]]:
        """How the text was tokenized before, and how it is now."""
        first, second = self.before.facts(), self.after.facts()
        names = ("subwords a word", "words kept whole", "characters a subword", "words with an unknown subword")
        return {name: (first[name], second[name]) for name in names}

    def next_recipe(self) -> str:
        """A recipe whose stage trains the new subwords."""
        names = {"name": str(self.out), "text": str(self.text)}
        return _RECIPE.format(**{key: json.dumps(value, ensure_ascii=False) for key, value in names.items()})


def extend_on(name: str, text: Path, *, pieces: int, out: Path, progress: Progress | None = None) -> Extended:
    """Write the extended encoder, atomically."""
    if pieces < 1:
        raise UserError(f"--pieces {pieces}: how many subwords to add; at least 1.")
    check_new_folder(out)
    progress = progress or NoProgress()
    encoder = load_encoder(name)
    words = count_words(encoder.tokenizer, _watch(text, progress))
    if not words:
        raise DataError(f"{text}: holds no text to learn subwords from.")
    extension, new = extend_tokenizer(encoder.tokenizer, words, count=pieces, progress=progress)
    if not new:
        raise DataError(f"{text}: {encoder.name} has a subword for every word that occurs more than once.")
    before = measure_coverage(encoder, text, limit=MEASURED, references={})
    heads: list[str] = []
    write_folder(out, lambda folder: heads.append(_write(encoder, extension, folder)))
    characters = sum(piece.character for piece in new)
    larger = load_encoder(str(out))
    return Extended(
        out=out,
        text=text,
        asked=pieces,
        characters=characters,
        merges=len(new) - characters,
        rows=(encoder.vocabulary, larger.vocabulary),
        before=before,
        after=measure_coverage(larger, text, limit=MEASURED, references={}),
        head=heads[0],
    )


def _watch(path: Path, progress: Progress) -> Iterator[str]:
    """The lines of a file, with a bar that counts kilobytes."""
    lines: Iterable[str] = read_text_lines(path)
    read = 0
    progress.begin("reading text (kB)", path.stat().st_size // 1000 if path.is_file() else 0)
    for line in lines:
        read += len(line.encode()) + 1
        if read >= 1000:
            progress.advance(read // 1000)
            read %= 1000
        yield line
    progress.end()


def _write(encoder: Encoder, extension: Extension, folder: Path) -> str:
    """Write the encoder and its masked-word head with the new rows; returns what became of the head."""
    write_extended(encoder, extension, folder)
    try:
        head: Any = load_head(encoder)
    except EncoderError as error:
        return f"left out: {error}"
    if head is None:
        return "none; adapt trains a new one"
    head.bias = nn.Parameter(extension.extend(head.bias.detach()))
    store_head(head, folder, model=encoder.model)
    return "kept, with the new subwords"


def write_extended(encoder: Encoder, extension: Extension, folder: Path) -> Path:
    """An encoder with more subwords as a folder; the given one is not changed."""
    marks = {key: value for key, value in encoder.tokenizer.init_kwargs.items() if key == TRIMMED_FROM}
    tokenizer = rebuild_tokenizer(encoder.tokenizer, extension.settings, marks)
    table, config = encoder.model.get_input_embeddings(), encoder.model.config
    before = config.vocab_size
    set_table(encoder, extension.extend(table.weight.detach()), padding=table.padding_idx)
    config.vocab_size = encoder.model.get_input_embeddings().num_embeddings
    try:
        larger = Encoder(encoder.model, tokenizer, name=encoder.name, identity="")
        larger.pooler = encoder.pooler
        return save_encoder(larger, folder)
    finally:
        encoder.model.set_input_embeddings(table)
        config.vocab_size = before
