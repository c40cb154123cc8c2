"""German: four cases, verb second and verb last, separable prefixes, contracted articles."""

from __future__ import annotations

from functools import cache

from crossling.phrasebook.grammar import Agreement, Grammar, Order, Word
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Pronoun, Quality

CASES = ("nom", "acc", "dat", "gen")
DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "pl": "die die den der"}
STRONG = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "pl": "e e en er"}
THIS = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "pl": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "pl": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "pl": "en en en en"}
EIN = {"m": " en em es", "f": "e e er er", "n": "  em es", "pl": "e e en er"}
CONTRACTIONS = {
    ("in", "dem"): "im", ("an", "dem"): "am", ("von", "dem"): "vom", ("zu", "dem"): "zum",
    ("zu", "der"): "zur", ("bei", "dem"): "beim",
}  # fmt: skip
PRONOUNS = {
    "he": "er ihn ihm", "she": "sie sie ihr", "they": "sie sie ihnen", "someone": "jemand jemanden jemandem",
    "who": "wer wen wem", "what": "was was was",
}  # fmt: skip


def pick(table: dict[str, str], slot: str, case: str) -> str:
    """An ending or article from a table of four cases."""
    return table[slot].split(" ")[CASES.index(case)]


class German(Grammar):
    code = "de"

    def noun(self, noun: Noun, case: str, negative: bool = False) -> list[Word]:
        entry = self.lexicon[noun.concept]
        agreement = self.agreement(noun)
        slot = "pl" if agreement.number == "pl" else agreement.gender
        article, endings = self.determiner(noun, slot, case, negative)
        words = [*article, *self.count(noun, case)]
        for position, adjective in enumerate(noun.adjectives):
            form = stem(self.lexicon[adjective]) + pick(endings, slot, case)
            words.append(Word(form, "ADJ", ((id(noun), f"adj{position}"),)))
        words.append(Word(decline(entry, slot, case, noun.sex), "NOUN", ((id(noun), "noun"),)))
        if noun.owner:
            words += self.owner(noun, noun.owner)
        if noun.where:
            words += self.place(noun.where)
        if noun.relative:
            pronoun = Word(pick(DEFINITE, slot, "nom"), "PRON", ((id(noun.relative), "rel"),))
            # the opening comma is marked so that the clause can move behind a closing verb
            comma = Word(",", "PUNCT", (("opening", id(noun)),))
            words += [comma, pronoun, *self.clause(noun.relative, "relative"), Word(",", "PUNCT")]
        return words

    def determiner(self, noun: Noun, slot: str, case: str, negative: bool) -> tuple[list[Word], dict[str, str]]:
        """The article and the table of endings that adjectives take after it."""
        key = ((id(noun), "det"),)
        if noun.det == "def":
            return [Word(pick(DEFINITE, slot, case), "DET", key)], WEAK
        if noun.det == "this":
            return [Word("dies" + pick(THIS, slot, case), "DET", key)], WEAK
        entry = self.lexicon[noun.concept]
        if noun.det == "indef" and not noun.count and negative:
            return [Word("kein" + pick(EIN, slot, case), "DET", key)], MIXED
        mass = "mass" in entry or "mass" in load_concepts()[noun.concept].tags
        if noun.det == "indef" and slot != "pl" and not mass:
            return [Word("ein" + pick(EIN, slot, case), "DET", key)], MIXED
        return [], STRONG

    def count(self, noun: Noun, case: str) -> list[Word]:
        key = (id(noun), "count")
        if noun.det == "how_many" or noun.count == "many":
            words = self.markup(self.lexicon["many" if noun.count else "how_many"].form, key)
            words[-1].form = "viel" + pick(STRONG, "pl", case)
            for word in words:
                word.keys = (key,)
            return words
        entry = self.lexicon.get(noun.count)
        return [Word(entry.form if entry else noun.count, "NUM", (key,))] if noun.count else []

    def owner(self, noun: Noun, owner: NounPhrase) -> list[Word]:
        """A genitive, or ``von`` where a name or a group cannot show it."""
        article = isinstance(owner, Name) and owner.pattern and "det" in self.lexicon[owner.pattern]
        if isinstance(owner, Noun) or article:
            return self.phrase(owner, "gen")
        return self.under("von", "dat", owner, key=(id(noun), "owner"))

    def under(self, preposition: str, case: str, phrase: NounPhrase, key: object = None) -> list[Word]:
        """A preposition with its phrase, contracted with a definite article."""
        words = self.phrase(phrase, case)
        keys = (key or (id(phrase), "case"),)
        if words[0].upos == "DET":
            contracted = CONTRACTIONS.get((preposition, words[0].form))
            if contracted:
                return [Word(contracted, "ADP", (*keys, *words[0].keys)), *words[1:]]
        return [Word(preposition, "ADP", keys), *words]

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        key = ((id(name), "det"),)
        if name.pattern:
            entry = self.lexicon[name.pattern]
            if case == "gen":
                words[0].form = entry.get("gen", words[0].form)
            return [Word(pick(DEFINITE, entry.gender, case), "DET", key), *words] if "det" in entry else words
        if name.title in ("mr", "mrs"):
            entry = self.lexicon[name.title]
            title = self.markup(entry.form, (id(name), "title"))
            title[0].form = entry.get("obl", title[0].form) if case != "nom" else title[0].form
            return title + words
        if name.title:
            form = decline(self.lexicon[name.title], name.sex, case, name.sex)
            article = Word(pick(DEFINITE, name.sex, case), "DET", key)
            return [article, Word(form, "NOUN", ((id(name), "title"),)), *words]
        return words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        form = PRONOUNS[pronoun.concept].split()[CASES.index(case)]
        return [Word(form, "PRON", ((id(pronoun), "pron"),))]

    def place(self, place: NounPhrase) -> list[Word]:
        if isinstance(place, Name) and place.kind == "ORG":
            return self.under(self.lexicon[place.pattern].get("in", "bei"), "dat", place)
        preposition = self.lexicon[place.concept].get("in", "in") if isinstance(place, Noun) else "in"
        return self.under(preposition, "dat", place)

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        phrase = adjunct.phrase
        if phrase is None:
            return self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
        city = isinstance(phrase, Name) and phrase.kind == "LOC"
        if adjunct.kind == "in":
            return self.place(phrase)
        if adjunct.kind == "to":
            return self.under("nach", "dat", phrase) if city else self.under("zu", "dat", phrase)
        if adjunct.kind == "from":
            return self.under("aus" if city and clause.adjunct("to") is None else "von", "dat", phrase)
        return self.under("mit", "dat", phrase) if adjunct.kind == "with" else self.under("für", "acc", phrase)

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        asked = self.asked(clause) if order == "question" else None
        subject = clause.object if clause.passive else clause.subject
        finite, final = self.verb(clause, self.agreement(subject), joined=order in ("sub", "relative"))
        nominative = [Word("es", "PRON")] if clause.verb == "exist" else self.phrase(subject, "nom")
        front = self.fronted(clause, comma=False)
        middle = self.middle(clause, asked)
        if middle and middle[-1].form == "," and order in ("main", "after"):
            start = max(i for i, word in enumerate(middle) if word.form == "," and word.keys)
            middle, final = middle[:start], [*final, *middle[start:]]
        if order == "relative":
            return front + middle + final + finite
        if order == "sub":
            return nominative + front + middle + final + finite
        if order == "after" or (order == "question" and asked is None):
            return finite + nominative + front + middle + final
        if asked is not None and asked is not subject:
            return self.question_word(asked, clause) + finite + nominative + front + middle + final
        if front:
            return front + finite + nominative + middle + final
        return nominative + finite + middle + final

    def question_word(self, asked: NounPhrase | Adjunct, clause: Clause) -> list[Word]:
        if isinstance(asked, Adjunct):
            return self.adjunct(asked, clause)
        return self.complement(clause, asked)

    def complement(self, clause: Clause, phrase: NounPhrase) -> list[Word]:
        """The object in the case or under the preposition that the verb asks for."""
        marker = "acc" if clause.verb == "exist" else self.lexicon[clause.verb].get("obj", "acc")
        preposition, plus, case = marker.partition("+")
        if plus:
            return self.under(preposition, case, phrase)
        if isinstance(phrase, Noun):
            return self.noun(phrase, marker, negative=clause.negative)
        return self.phrase(phrase, marker)

    def middle(self, clause: Clause, asked: object) -> list[Word]:
        """The middle field: known before new, so that place follows a definite object and precedes a new one."""
        words = self.kinds(clause, asked, "sentence", "time", "freq", "with")
        if clause.recipient is not None:
            words += self.phrase(clause.recipient, "dat")
        target = clause.subject if clause.verb == "exist" else clause.object
        shown = target is not None and not clause.passive and target is not asked
        objects = self.complement(clause, target) if shown and target is not None else []
        negation = [Word("nicht", "PART", ((id(clause), "not"),))] if clause.negative else []
        if any(word.form.startswith("kein") for word in objects):
            negation = []
        if clause.passive and clause.subject is not None:
            words += self.under("von", "dat", clause.subject)
        if clause.predicate is not None:
            return words + self.predicate(clause, negation) + self.kinds(clause, asked, "in")
        if objects and (not is_known(target) or objects[0].upos == "ADP"):
            return [*words, *self.kinds(clause, asked, "in", "manner"), *negation, *objects]
        words += [*objects, *self.kinds(clause, asked, "manner"), *negation]
        return words + self.kinds(clause, asked, "in", "from", "to", "for")

    def kinds(self, clause: Clause, asked: object, *kinds: str) -> list[Word]:
        return self.adjuncts(clause, *(kind for kind in kinds if clause.adjunct(kind) is not asked))

    def predicate(self, clause: Clause, negation: list[Word]) -> list[Word]:
        predicate = clause.predicate
        if isinstance(predicate, Quality):
            return negation + self.quality(predicate)
        if isinstance(predicate, Noun) and predicate.det == "indef" and predicate.number == "sg":
            if clause.negative:
                return self.noun(predicate, "nom", negative=True)
            if not predicate.adjectives and "job" in load_concepts()[predicate.concept].tags:
                return self.noun(predicate, "nom")[1:]
        return negation + self.phrase(predicate, "nom")

    def quality(self, quality: Quality) -> list[Word]:
        entry = self.lexicon[quality.concept]
        key = ((id(quality), "adj"),)
        if quality.than is not None:
            form = entry.get("cmp") or entry.form.rstrip("e") + "er"
            than = Word("als", "CCONJ", ((id(quality), "than"),))
            return [Word(form, "ADJ", key), than, *self.phrase(quality.than, "nom")]
        words = self.tokens(self.lexicon[quality.degree].form, "ADV", (id(quality), "degree")) if quality.degree else []
        return [*words, Word(entry.form, "ADJ", key)]

    def verb(self, clause: Clause, agreement: Agreement, joined: bool) -> tuple[list[Word], list[Word]]:
        """The finite verb and what closes the clause; ``joined`` where both stand at the end."""
        plural = agreement.number == "pl" and clause.verb != "exist"
        aux, key = ((id(clause), "aux"),), ((id(clause), "verb"),)
        if clause.passive or clause.verb == "be_born":
            forms = {"past": "wurde wurden", "present": "wird werden", "future": "wird werden"}[clause.tense]
            form = "geboren" if clause.verb == "be_born" else participle(self.lexicon[clause.verb])
            final = [Word(form, "VERB", key)]
            final += [Word("werden", "AUX", aux)] if clause.tense == "future" else []
            return [Word(forms.split()[plural], "AUX", aux)], final
        if clause.verb == "be":
            forms = {"past": "war waren", "present": "ist sind", "future": "wird werden"}[clause.tense]
            final = [Word("sein", "AUX", key)] if clause.tense == "future" else []
            return [Word(forms.split()[plural], "AUX", aux if final else key)], final
        entry = self.lexicon["give" if clause.verb == "exist" else clause.verb]
        if clause.modal or clause.tense == "future":
            if clause.modal:
                finite = Word(finite_form(self.lexicon[clause.modal], clause.tense, plural), "AUX")
                finite.keys = ((id(clause), "modal"),)
            else:
                finite = Word("werden" if plural else "wird", "AUX", aux)
            return [finite], [Word(entry.form, "VERB", key)]
        form, prefix = finite_form(entry, clause.tense, plural), entry.get("sep")
        if prefix and not joined:
            return [Word(form, "VERB", key)], [Word(prefix, "ADP", key)]
        return [Word(prefix + form, "VERB", key)], []


def is_known(phrase: NounPhrase | None) -> bool:
    """Whether a phrase is definite, so that it stands early in the middle field."""
    if isinstance(phrase, Group):
        return all(is_known(member) for member in phrase.members)
    return not isinstance(phrase, Noun) or phrase.det in ("def", "this")


def stem(entry: Entry) -> str:
    """An adjective without ending."""
    return entry.get("st") or entry.form.removesuffix("e")


@cache
def inflect(form: str, plural: str, genitive: str, *, slot: str, case: str, weak: bool) -> str:
    if slot == "pl":
        return plural + ("n" if case == "dat" and not plural.endswith(("n", "s")) else "")
    if slot == "f" or case == "nom":
        return form
    if weak:
        return plural
    if case == "gen":
        return genitive or form + ("es" if form.endswith(("s", "ß", "x", "z")) else "s")
    return form


def decline(entry: Entry, slot: str, case: str, sex: str = "") -> str:
    """A noun in its case; ``slot`` is the gender, or pl. Women's forms are regular."""
    feminine = entry.get("f") if sex == "f" else ""
    if feminine:
        return inflect(feminine, feminine + "nen", "", slot=slot, case=case, weak=False)
    return inflect(entry.form, entry.get("pl"), entry.get("gen"), slot=slot, case=case, weak="weak" in entry)


def finite_form(entry: Entry, tense: str, plural: bool) -> str:
    """Third person, present or past; the lexicon gives what is irregular, less the separable prefix."""
    infinitive = entry.get("base") or entry.form
    root = infinitive.removesuffix("en")
    if tense == "past":
        form = entry.get("p") or root + "te"
        return form + ("n" if form.endswith("e") else "en") if plural else form
    return infinitive if plural else entry.get("3") or root + "t"


def participle(entry: Entry) -> str:
    """The past participle."""
    return entry.get("pp") or "ge" + entry.form.removesuffix("en") + "t"


GRAMMAR = German
