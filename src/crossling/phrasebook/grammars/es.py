"""Spanish: personal ``a``, ser and estar, doubled recipients, dropped subject pronouns, inverted questions."""

from __future__ import annotations

from typing import ClassVar

from crossling.phrasebook.grammar import Agreement, Word
from crossling.phrasebook.grammars.romance import Romance
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Pronoun, Quality

ARTICLES = {
    "def": {"m": "el los", "f": "la las"},
    "indef": {"m": "un unos", "f": "una unas"},
    "this": {"m": "este estos", "f": "esta estas"},
}
COPULAS = {
    "ser": {"past": "era eran", "present": "es son", "future": "será serán"},
    "estar": {"past": "estaba estaban", "present": "está están", "future": "estará estarán"},
}
PASSIVE = {"past": "fue fueron", "present": "es son", "future": "será serán"}
EXIST = {"past": "había", "present": "hay", "future": "habrá"}
ENDINGS = {"a": ("a", "an", "ó", "aron", "ado"), "e": ("e", "en", "ió", "ieron", "ido")}
UNSTRESSED = str.maketrans("áéíó", "aeio")


class Spanish(Romance):
    code = "es"
    question_marks = ("¿", "?")
    relative_pronoun = "que"
    more = "más"
    than = "que"
    by = "por"
    prepositions: ClassVar[dict[str, str]] = {
        "to": "a",
        "from": "de",
        "with": "con",
        "for": "para",
        "recipient": "a",
    }

    def article(self, det: str, agreement: Agreement, entry: Entry | None = None) -> str:
        mass = entry is not None and ("mass" in entry or "mass" in load_concepts()[entry.concept].tags)
        if det == "indef" and (mass or agreement.number == "pl"):
            return ""
        if entry is not None and "el" in entry and agreement.number == "sg" and det == "def":
            return "el"
        return ARTICLES[det]["f" if agreement.gender == "f" else "m"].split()[agreement.number == "pl"]

    def plural(self, entry: Entry, form: str) -> str:
        return (entry.get("pl") if form == entry.form else "") or pluralise(form)

    def inflect(self, entry: Entry, agreement: Agreement) -> str:
        form = entry.form
        if agreement.gender == "f":
            form = entry.get("f") or (form[:-1] + "a" if form.endswith("o") else form)
        if agreement.number == "sg":
            return form
        return entry.get("pl") or pluralise(form)

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        if name.title in ("mr", "mrs"):
            article = Word("la" if name.title == "mrs" else "el", "DET", ((id(name), "det"),))
            return [article, *self.markup(self.lexicon[name.title].form, (id(name), "title")), *words]
        if name.title:
            return self.titled(name)
        if name.pattern and "det" in self.lexicon[name.pattern]:
            article = Word(self.article("def", self.agreement(name)), "DET", ((id(name), "det"),))
            return [article, *words]
        return words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        if case == "nom" and pronoun.concept in ("he", "she", "they"):
            return []
        return [Word(self.lexicon[pronoun.concept].form, "PRON", ((id(pronoun), "pron"),))]

    def place(self, place: NounPhrase, clause: Clause | None = None) -> list[Word]:
        arriving = clause is not None and clause.verb == "arrive"
        return self.under("a" if arriving else "en", place)

    def complement(self, clause: Clause, phrase: NounPhrase) -> list[Word]:
        """A person as object takes ``a``."""
        personal = is_personal(phrase) and clause.verb != "exist"
        return self.under("a", phrase) if personal else self.phrase(phrase, "obl")

    def verb(self, clause: Clause, agreement: Agreement) -> list[Word]:
        plural = agreement.number == "pl"
        key = (id(clause), "verb")
        words = [Word("no", "ADV", ((id(clause), "not"),))] if clause.negative else []
        if clause.recipient is not None:
            many = self.agreement(clause.recipient).number == "pl"
            words.append(Word("les" if many else "le", "PRON", ()))
        if clause.verb == "exist":
            words.append(Word(EXIST[clause.tense], "VERB", (key,)))
        elif clause.verb == "be":
            quality = clause.predicate
            estar = isinstance(quality, Quality) and "estar" in self.lexicon[quality.concept]
            forms = COPULAS["estar" if estar else "ser"][clause.tense]
            words.append(Word(forms.split()[plural], "AUX", (key,)))
        elif clause.passive:
            words.append(Word(PASSIVE[clause.tense].split()[plural], "AUX", ((id(clause), "aux"),)))
            participle = stem_forms(self.lexicon[clause.verb])[4]
            words.append(Word(agree(participle, agreement), "VERB", (key,)))
        elif clause.modal:
            form = conjugate(self.lexicon[clause.modal], clause.tense, plural)
            words.append(Word(form, "AUX", ((id(clause), "modal"),)))
            words.append(Word(self.lexicon[self.lexeme(clause)].form, "VERB", (key,)))
        else:
            words.append(Word(conjugate(self.lexicon[clause.verb], clause.tense, plural), "VERB", (key,)))
        return words + self.adjuncts(clause, "freq")

    def lexeme(self, clause: Clause) -> str:
        return clause.verb

    def question(self, clause: Clause, asked: NounPhrase | Adjunct | None) -> list[Word]:
        """Question word, verb, subject, the rest."""
        subject = clause.object if clause.passive else clause.subject
        words: list[Word] = []
        if isinstance(asked, Adjunct):
            words += self.adjunct(asked, clause)
        elif asked is not None:
            words += self.complement(clause, asked)
        words += self.verb(clause, self.agreement(subject))
        if clause.verb != "exist":
            words += self.phrase(subject, "nom")
        return words + self.tail(clause, asked) + self.fronted(clause, comma=False)

    def finish(self, words: list[Word], question: bool) -> list[Word]:
        """Contractions (del, al) and ``e`` for ``y`` before an i-sound."""
        merged: list[Word] = []
        for word in words:
            last = merged[-1] if merged else None
            if last and word.form == "el" and word.upos == "DET" and last.form in ("a", "de"):
                last.form = "al" if last.form == "a" else "del"
                last.keys += word.keys
                continue
            if last and last.form == "y" and word.form.lower().startswith(("i", "hi", "í")):
                last.form = "e"
            merged.append(word)
        return super().finish(merged, question)


def is_personal(phrase: NounPhrase) -> bool:
    """Whether an object is a person (or several)."""
    if isinstance(phrase, Group):
        return is_personal(phrase.members[0])
    if isinstance(phrase, Noun):
        return "person" in load_concepts()[phrase.concept].tags
    if isinstance(phrase, Name):
        return phrase.kind == "PER"
    return phrase.concept != "what"


def pluralise(form: str) -> str:
    """-s after a vowel, -es after a consonant, where a final stress loses its accent."""
    if form[-1] in "aeioué":
        return form + "s"
    if form.endswith("z"):
        return form[:-1] + "ces"
    if form.endswith(("ón", "án", "ín", "és")):
        form = form[:-2] + form[-2:].translate(UNSTRESSED)
    return form + "es"


def agree(participle: str, agreement: Agreement) -> str:
    """A participle in agreement with its subject."""
    form = participle[:-1] + "a" if agreement.gender == "f" else participle
    return form + "s" if agreement.number == "pl" else form


def stem_forms(entry: Entry) -> tuple[str, str, str, str, str]:
    """Present and preterite, singular and plural, and participle."""
    stem, vowel = entry.form[:-2], entry.form[-2]
    regular = [stem + ending for ending in ENDINGS["a" if vowel == "a" else "e"]]
    given = [entry.get(key) for key in ("3", "3p", "p", "pp", "part")]
    present, presents, past, pasts, participle = (a or b for a, b in zip(given, regular, strict=True))
    return present, presents, past, pasts, participle


def conjugate(entry: Entry, tense: str, plural: bool) -> str:
    """A finite form in the third person."""
    if tense == "future":
        return (entry.get("fut") or entry.form + "á") + ("n" if plural else "")
    forms = stem_forms(entry)
    return forms[(2 if tense == "past" else 0) + plural]


GRAMMAR = Spanish
