"""Forms and order: whole sentences read by eye, paradigms from the books, and agreement over the whole lexicon."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from crossling.phrasebook import LANGUAGES
from crossling.phrasebook.grammars import load_grammar
from crossling.phrasebook.grammars.hi_forms import decline_entry
from crossling.phrasebook.grammars.ru_forms import CASES, decline, decline_adjective, decline_name
from crossling.phrasebook.lexicon import load_concepts, load_lexicon, select
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, Pronoun, Quality, Sentence

HEADER, *SENTENCES = Path(__file__).with_name("sentences.tsv").read_text(encoding="utf-8").splitlines()


def person(first: str, last: str, sex: str, title: str = "") -> Name:
    return Name("PER", (first, last), sex, title=title)


def anna() -> Name:
    return person("anna", "keller", "f")


def paul() -> Name:
    return person("paul", "petrov", "m")


def place(concept: str) -> Name:
    return Name("LOC", (concept,))


def at(phrase: Name | Noun, kind: str = "in") -> Adjunct:
    return Adjunct(kind, phrase)


def time(concept: str, *values: str) -> Adjunct:
    return Adjunct("time", concept=concept, values=values)


def trees() -> Iterator[Sentence]:
    """The abstract sentences of sentences.tsv, in its order."""
    one = lambda clause: Sentence((clause,))  # noqa: E731
    ask = lambda clause: Sentence((clause,), question=True)  # noqa: E731
    young, red = Noun("teacher", sex="f", adjectives=("young",)), Noun("car", "indef", adjectives=("red",))
    yield one(Clause("visit", anna(), Noun("museum"), adjuncts=(time("monday"),), front="time"))
    yield one(Clause("buy", young, red, adjuncts=(at(place("lisbon")), time("year", "2015"))))
    yield one(Clause("buy", paul(), Noun("apple", "indef"), negative=True))
    yield one(Clause("buy", paul(), Noun("book", "indef", "pl", count="5", adjectives=("new",))))
    yield one(Clause("give", paul(), Noun("letter", "indef"), recipient=Noun("doctor"), tense="future"))
    home = Clause("live", Noun("friend", sex="f", owner=anna()), adjuncts=(at(place("france")),), tense="present")
    company = Name("ORG", ("novexa",), pattern="plain_company")
    work = Clause("work", Pronoun("she"), adjuncts=(at(Noun("hospital")), at(company, "for")))
    yield Sentence((home, work), ("but",))
    foundation = Name("ORG", ("keller",), pattern="foundation_of")
    built = Clause("build", foundation, Noun("bridge", "indef", adjectives=("big",)), passive=True)
    yield one(built.but(adjuncts=(time("date", "2015", "may", "3"),)))
    older = Quality("ancient", than=Noun("library"))
    yield one(Clause("be", Noun("museum", where=place("berlin")), predicate=older, tense="present"))
    student = Clause("be", anna(), predicate=Noun("student", "indef", sex="f"), tense="present")
    yield Sentence((student, Clause("be", paul(), predicate=Quality("tired", "very"))), ("and",))
    yield ask(Clause("visit", anna(), Noun("museum"), adjuncts=(time("yesterday"),)))
    yield ask(Clause("found", Pronoun("who"), Name("ORG", ("lisbon",), pattern="university_of")))
    where = Adjunct("in", concept="where")
    yield ask(Clause("work", anna(), adjuncts=(where, time("year", "1999"))))
    yield ask(Clause("buy", anna(), Pronoun("what"), adjuncts=(at(place("japan")),)))
    yield ask(Clause("buy", anna(), Noun("book", "how_many", "pl")))
    yield ask(Clause("help", anna(), Pronoun("who")))
    helped = Clause("help", person("paul", "keller", "m", "mr"), person("emma", "ivanov", "f", "lawyer"))
    arrived = Clause("arrive", Pronoun("she"), adjuncts=(at(place("canada")),))
    yield Sentence((helped, arrived), ("when",), fronted=True)
    yield from more_trees(one)


def more_trees(one: object) -> Iterator[Sentence]:
    assert callable(one)
    contracts = Noun("contract", number="pl", adjectives=("important",))
    signed = Clause("sign", Noun("director", owner=Noun("museum"), sex="f"), contracts)
    glad = Clause("be", Pronoun("she"), predicate=Quality("happy"))
    yield Sentence((Clause("say", Group((anna(), paul()))), signed, glad), ("that", "because"))
    park = Noun("park", "indef", adjectives=("beautiful",))
    yield one(Clause("exist", park, adjuncts=(at(place("mexico")),), tense="present"))
    home = Clause("live", None, adjuncts=(at(place("paris")),), tense="present")
    guests = Noun("guest", "indef", "pl", "m", "3")
    yield one(Clause("invite", Noun("engineer", relative=home), guests))
    way = (at(place("vienna"), "from"), at(place("portugal"), "to"), at(Noun("friend", "indef"), "with"))
    yield one(Clause("travel", paul(), adjuncts=(*way, time("last_week"))))
    to_island = (at(Noun("island"), "to"),)
    yield one(Clause("travel", paul(), adjuncts=to_island, modal="want", tense="present", negative=True))
    milk = Noun("milk", "indef", adjectives=("cold",))
    yield one(Clause("drink", Noun("boy"), milk, tense="present", adjuncts=(time("every_day"),)))
    yield one(Clause("be_born", paul(), adjuncts=(at(place("moscow")), time("may"))))
    dogs = Noun("dog", "indef", "pl", count="many")
    yield one(Clause("see", Noun("woman", "indef"), dogs, adjuncts=(at(Noun("garden")),)))
    often = Adjunct("freq", concept="often")
    waiting = Clause("wait", Name("PER", ("sofia",), "f"), paul(), tense="present")
    yield one(waiting.but(adjuncts=(at(Noun("station")), often)))
    carefully = Adjunct("manner", concept="carefully")
    yield one(Clause("repair", Noun("engineer", sex="m"), Noun("computer", "this"), adjuncts=(carefully,)))
    sending = Clause("send", Noun("journalist", sex="f"), Noun("report"), recipient=Group((anna(), paul())))
    yield one(sending.but(modal="can", negative=True))


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_match_reviewed_ones(language: str) -> None:
    grammar = load_grammar(language)
    column = HEADER.split("\t").index(language)
    expected = [line.split("\t")[column] for line in SENTENCES]
    assert [grammar.text(grammar.realise(tree)) for tree in trees()] == expected


def test_german_articles_and_adjectives_agree_for_every_noun() -> None:
    """Gender from the lexicon fixes the article; the adjective is strong just where the article shows no case."""
    grammar, lexicon = load_grammar("de"), load_lexicon("de")
    articles = {
        "m": "der den dem des", "f": "die die der der", "n": "das das dem des", "pl": "die die den der",
    }  # fmt: skip
    strong = {"m": "er en em", "f": "e e er", "n": "es es em"}
    for concept, case, number in product(select("noun"), ("nom", "acc", "dat", "gen"), ("sg", "pl")):
        index = ("nom", "acc", "dat", "gen").index(case)
        slot = "pl" if number == "pl" else lexicon[concept].gender
        article, adjective, *_ = grammar.noun(Noun(concept, "def", number, adjectives=("red",)), case)
        assert article.form == articles[slot].split()[index], concept
        bare = slot != "pl" and (case == "nom" or (case == "acc" and slot != "m"))
        assert adjective.form == ("rote" if bare else "roten")
        if (
            number == "sg"
            and case != "gen"
            and "mass" not in {*lexicon[concept].features, *load_concepts()[concept].tags}
        ):
            article, adjective, *_ = grammar.noun(Noun(concept, "indef", adjectives=("red",)), case)
            ending = strong[slot].split()[index]
            assert adjective.form == "rot" + (ending if article.form == "ein" else "e" if ending == "e" else "en")


@pytest.mark.parametrize(
    ("language", "articles"),
    [("es", {"m": "el los", "f": "la las"}), ("fr", {"m": "le les", "f": "la les"})],
)
def test_romance_articles_and_adjectives_agree_for_every_noun(language: str, articles: dict[str, str]) -> None:
    grammar, lexicon = load_grammar(language), load_lexicon(language)
    forms = {"es": {"m": "blanco", "f": "blanca"}, "fr": {"m": "blanc", "f": "blanche"}}[language]
    for concept, number in product(select("noun"), ("sg", "pl")):
        entry = lexicon[concept]
        words = grammar.noun(Noun(concept, "def", number, adjectives=("white",)), "")
        expected = articles[entry.gender].split()[number == "pl"]
        assert words[0].form == ("el" if "el" in entry and number == "sg" else expected)
        adjective = next(word for word in words if word.upos == "ADJ")
        assert adjective.form == forms[entry.gender] + ("s" if number == "pl" else "")


def test_french_elides_before_every_vowel_and_nowhere_else() -> None:
    grammar = load_grammar("fr")
    for concept in select("noun"):
        words = grammar.finish(grammar.noun(Noun(concept), ""), False)
        elided = words[0].form == "L'"
        assert elided == (words[1].form[0] in "aeiouéêîhôœ"), words[1].form
        assert words[0].tight == elided


RUSSIAN_NOUNS = {
    ("teacher", "sg"): "учитель учителя учителю учителя учителем учителе",
    ("teacher", "pl"): "учителя учителей учителям учителей учителями учителях",
    ("friend", "pl"): "друзья друзей друзьям друзей друзьями друзьях",
    ("singer", "sg"): "певец певца певцу певца певцом певце",
    ("book", "sg"): "книга книги книге книгу книгой книге",
    ("book", "pl"): "книги книг книгам книги книгами книгах",
    ("door", "sg"): "дверь двери двери дверь дверью двери",
    ("building", "pl"): "здания зданий зданиям здания зданиями зданиях",
    ("museum", "sg"): "музей музея музею музей музеем музее",
    ("museum", "pl"): "музеи музеев музеям музеи музеями музеях",
    ("prize", "sg"): "премия премии премии премию премией премии",
    ("animal", "sg"): "животное животного животному животное животным животном",
    ("animal", "pl"): "животные животных животным животных животными животных",
    ("girl", "pl"): "девочки девочек девочкам девочек девочками девочках",
    ("man", "sg"): "мужчина мужчины мужчине мужчину мужчиной мужчине",
}


@pytest.mark.parametrize(("concept", "number"), RUSSIAN_NOUNS)
def test_russian_declension(concept: str, number: str) -> None:
    animate = bool({"person", "animal", "animalhyper"} & load_concepts()[concept].tags)
    entry = load_lexicon("ru")[concept]
    forms = [decline(entry, case, plural=number == "pl", animate=animate) for case in CASES]
    assert " ".join(forms) == RUSSIAN_NOUNS[concept, number]


@pytest.mark.parametrize(
    ("form", "slot", "paradigm"),
    [
        ("новый", "m", "новый нового новому новый новым новом"),
        ("новый", "f", "новая новой новой новую новой новой"),
        ("синий", "n", "синее синего синему синее синим синем"),
        ("синий", "f", "синяя синей синей синюю синей синей"),
        ("большой", "pl", "большие больших большим большие большими больших"),
        ("большой", "m", "большой большого большому большой большим большом"),
        ("хороший", "f", "хорошая хорошей хорошей хорошую хорошей хорошей"),
        ("русский", "pl", "русские русских русским русские русскими русских"),
    ],
)
def test_russian_adjectives(form: str, slot: str, paradigm: str) -> None:
    assert " ".join(decline_adjective(form, slot, case) for case in CASES) == paradigm


@pytest.mark.parametrize(
    ("form", "sex", "slavic", "paradigm"),
    [
        ("Анна", "f", False, "Анна Анны Анне Анну Анной Анне"),
        ("Мария", "f", False, "Мария Марии Марии Марию Марией Марии"),
        ("Кармен", "f", False, "Кармен Кармен Кармен Кармен Кармен Кармен"),
        ("Пауль", "m", False, "Пауль Пауля Паулю Пауля Паулем Пауле"),
        ("Бруно", "m", False, "Бруно Бруно Бруно Бруно Бруно Бруно"),
        ("Келлер", "m", False, "Келлер Келлера Келлеру Келлера Келлером Келлере"),
        ("Келлер", "f", False, "Келлер Келлер Келлер Келлер Келлер Келлер"),
        ("Петров", "m", True, "Петров Петрова Петрову Петрова Петровым Петрове"),
        ("Петрова", "f", True, "Петрова Петровой Петровой Петрову Петровой Петровой"),
    ],
)
def test_russian_names(form: str, sex: str, slavic: bool, paradigm: str) -> None:
    assert " ".join(decline_name(form, sex, case, slavic) for case in CASES) == paradigm


@pytest.mark.parametrize(
    ("count", "concept", "case", "phrase"),
    [
        ("2", "book", "nom", "две новые книги"),
        ("2", "table", "nom", "два новых стола"),
        ("5", "book", "acc", "пять новых книг"),
        ("3", "dog", "acc", "трёх новых собак"),
        ("8", "table", "ins", "восемью новыми столами"),
        ("many", "window", "acc", "много новых окон"),
    ],
)
def test_russian_numerals_govern(count: str, concept: str, case: str, phrase: str) -> None:
    noun = Noun(concept, "indef", "pl", count=count, adjectives=("new",))
    assert " ".join(word.form for word in load_grammar("ru").noun(noun, case)) == phrase


@pytest.mark.parametrize(
    ("concept", "forms"),
    [
        ("boy", "लड़का लड़के लड़के लड़कों"),
        ("girl", "लड़की लड़की लड़कियाँ लड़कियों"),
        ("book", "किताब किताब किताबें किताबों"),
        ("house", "मकान मकान मकान मकानों"),
        ("plan", "योजना योजना योजनाएँ योजनाओं"),
        ("man", "आदमी आदमी आदमी आदमियों"),
        ("actor", "अभिनेता अभिनेता अभिनेता अभिनेताओं"),
        ("bird", "चिड़िया चिड़िया चिड़ियाँ चिड़ियों"),
    ],
)
def test_hindi_declension(concept: str, forms: str) -> None:
    entry = load_lexicon("hi")[concept]
    made = [
        decline_entry(entry, plural=plural, oblique=oblique) for plural in (False, True) for oblique in (False, True)
    ]
    assert " ".join(made) == forms


def test_hindi_perfective_agrees_with_a_bare_object_and_not_with_the_doer() -> None:
    grammar, lexicon = load_grammar("hi"), load_lexicon("hi")
    for concept in select("noun", "thing"):
        for sex, name in (("f", "anna"), ("m", "paul")):
            clause = Clause("buy", Name("PER", (name,), sex), Noun(concept, "indef"))
            words = grammar.clause(clause, "main")
            assert words[1].form == "ने"
            assert words[-1].form == ("ख़रीदी" if lexicon[concept].gender == "f" else "ख़रीदा")


@pytest.mark.parametrize(("language", "mark"), [("zh", "cl")])
def test_chinese_counts_with_the_measure_word_of_the_noun(language: str, mark: str) -> None:
    for concept in select("noun"):
        entry = load_lexicon(language)[concept]
        assert entry.get(mark), concept
        words = load_grammar(language).noun(Noun(concept, "indef", "pl", count="3"), "")
        assert [word.form for word in words] == ["三", entry.get(mark), entry.form]


def test_running_text_is_spaced_as_each_language_spaces_it() -> None:
    tree = next(tree for tree in trees() if tree.question)
    texts = {language: load_grammar(language).text(load_grammar(language).realise(tree)) for language in LANGUAGES}
    assert texts["fr"].endswith("hier\u00a0?") and "qu'Anna" in texts["fr"]
    assert texts["es"].startswith("¿Visitó")
    assert " " not in texts["zh"]
    assert "bảo tàng" in texts["vi"] and "_" not in texts["vi"]
