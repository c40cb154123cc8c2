"""A spaCy pipeline component: ``nlp.add_pipe("crossling", config={"model": "ner-model"})``.

spaCy finds it by an entry point of the package, so that nothing of crossling has to be imported. The model reads
spaCy's own tokens, so its labels lie on tokens, and the offsets are those of the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from spacy.language import Language
from spacy.parts_of_speech import IDS
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from crossling.api import load
from crossling.errors import UserError
from crossling.inference.predictor import Predictor
from crossling.scores.spans import list_spans

UNIVERSAL = frozenset(IDS) - {"", "EOL", "SPACE"}
"""Tags that spaCy takes as a token's ``pos``."""


class CrosslingComponent:
    """Sets entities, tags or categories of documents."""

    def __init__(self, predictor: Predictor, *, language: str | None) -> None:
        self.predictor, self.language = predictor, language
        self.kind = predictor.task.settings.kind
        if self.kind not in ("tag", "classify"):
            raise UserError(
                f"crossling: a model of kind {self.kind!r} reads two texts, a document is one; use crossling.predict"
            )

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Documents with the model's labels, predicted a batch at a time."""
        waiting = iter(stream)
        while docs := list(islice(waiting, batch_size)):
            self._label(docs)
            yield from docs

    def _label(self, docs: list[Doc]) -> None:
        tokens = [[token for token in doc if not token.is_space] for doc in docs]
        full = [(doc, some) for doc, some in zip(docs, tokens, strict=True) if some]
        if self.kind == "classify":
            texts: list[Any] = [doc.text for doc, _ in full]
        else:
            texts = [[token.text for token in some] for _, some in full]
        found = self.predictor.predict(texts, language=self.language) if full else []
        for (doc, some), one in zip(full, found, strict=True):
            if self.kind == "classify":
                doc.cats[one["label"]] = one["confidence"]
                continue
            tags = [word["tag"] for word in one["words"]]
            if "spans" in one:
                spans = [Span(doc, some[a].i, some[b].i + 1, label=label) for a, b, label in list_spans(tags)]
                doc.set_ents(filter_spans([*spans, *doc.ents]))
            else:
                for token, tag in zip(some, tags, strict=True):
                    token.tag_ = tag
                    if tag in UNIVERSAL:
                        token.pos_ = tag


def create(nlp: Language, name: str, model: str, language: str | None, seed: int | None) -> CrosslingComponent:
    """A component from the folder of a run, of a saved model or of an export; the language is the pipeline's."""
    if not model:
        raise UserError('crossling: name a model: nlp.add_pipe("crossling", config={"model": "FOLDER"})')
    return CrosslingComponent(load(model, seed=seed), language=language or (None if nlp.lang == "xx" else nlp.lang))


Language.factory(
    "crossling",
    default_config={"model": "", "language": None, "seed": None},
    assigns=["doc.ents", "doc.cats", "token.tag", "token.pos"],
    func=create,
)
