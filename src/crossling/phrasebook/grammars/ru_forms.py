"""Russian declension and conjugation: endings by type, with what is irregular taken from the lexicon."""

from __future__ import annotations

from functools import cache

from crossling.phrasebook.lexicon import Entry

CASES = ("nom", "gen", "dat", "acc", "ins", "pre")
HUSHES, VELARS = "жшчщ", "гкх"
CONSONANTS = "бвгджзйклмнпрстфхцчшщ"
# Endings of the singular (nom, gen, dat, acc, ins, pre) and of the plural (nom, gen, dat, ins, pre).
NOUN_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hard m": (("", "а", "у", "", "ом", "е"), ("ы", "ов", "ам", "ами", "ах")),
    "й": (("й", "я", "ю", "й", "ем", "е"), ("и", "ев", "ям", "ями", "ях")),
    "soft m": (("ь", "я", "ю", "ь", "ем", "е"), ("и", "ей", "ям", "ями", "ях")),
    "а": (("а", "ы", "е", "у", "ой", "е"), ("ы", "", "ам", "ами", "ах")),
    "я": (("я", "и", "е", "ю", "ей", "е"), ("и", "ь", "ям", "ями", "ях")),
    "ия": (("я", "и", "и", "ю", "ей", "и"), ("и", "й", "ям", "ями", "ях")),
    "soft f": (("ь", "и", "и", "ь", "ью", "и"), ("и", "ей", "ям", "ями", "ях")),
    "о": (("о", "а", "у", "о", "ом", "е"), ("а", "", "ам", "ами", "ах")),
    "ие": (("е", "я", "ю", "е", "ем", "и"), ("я", "й", "ям", "ями", "ях")),
}
PLURAL_KEYS = {"nom": "np", "gen": "gp", "dat": "dp", "ins": "ip", "pre": "pp"}
NUMERALS = {
    "2": ("два", "двух", "двум", "двумя"), "3": ("три", "трёх", "трём", "тремя"),
    "4": ("четыре", "четырёх", "четырём", "четырьмя"),
}  # fmt: skip


def noun_type(form: str, gender: str) -> tuple[str, str]:
    """The declension type of a basic form, and its stem."""
    if form.endswith(("ия", "ие")):
        return form[-2:], form[:-1]
    if form[-1] in "аяойй":
        return form[-1], form[:-1]
    if form[-1] == "ь":
        return f"soft {gender}", form[:-1]
    return "hard m", form


def spell(stem: str, ending: str) -> str:
    """Join under the spelling rules: no ы after г к х ж ш ч щ, no unstressed о after ж ш ч щ ц."""
    last = stem[-1:]
    if ending.startswith("ы") and last and last in HUSHES + VELARS:
        ending = "и" + ending[1:]
    elif ending in ("ом", "ой") and last and last in HUSHES + "ц":
        ending = "е" + ending[1:]
    elif ending == "ов" and last and last in HUSHES:
        ending = "ей"
    return stem + ending


@cache
def decline_regular(form: str, gender: str, case: str, *, plural: bool, animate: bool, stem: str = "") -> str:
    """A regular noun; the accusative of animates is their genitive."""
    kind, own_stem = noun_type(form, gender)
    singular, plurals = NOUN_TYPES[kind]
    base = stem or own_stem
    if plural:
        if case == "acc":
            case = "gen" if animate else "nom"
        return spell(base, plurals[("nom", "gen", "dat", "ins", "pre").index(case)])
    if case == "nom" or (case == "acc" and kind not in ("а", "я", "ия") and not (animate and gender == "m")):
        return form
    if case == "acc" and kind in ("hard m", "й", "soft m"):
        case = "gen"
    return spell(base, singular[CASES.index(case)])


def decline(entry: Entry, case: str, *, plural: bool, animate: bool, feminine: bool = False) -> str:
    """A noun of the lexicon; ``feminine`` takes the form for women, whose own irregularities start with f."""
    if "0" in entry:
        return entry.form
    if "adj" in entry:
        return decline_adjective(entry.form, "pl" if plural else entry.gender, case, animate=animate)
    form = entry.get("f") if feminine and entry.get("f") else entry.form
    mark = "f" if form != entry.form else ""
    gender = "f" if mark else entry.gender
    if plural:
        if case == "acc":
            case = "gen" if animate else "nom"
        given = entry.get(mark + PLURAL_KEYS[case]) or (entry.get("pl") if case == "nom" and not mark else "")
    else:
        given = entry.get(mark + case)
    stem = "" if mark else entry.get("st")
    return given or decline_regular(form, gender, case, plural=plural, animate=animate, stem=stem)


@cache
def decline_name(form: str, gender: str, case: str, slavic: bool = False) -> str:
    """A person's name: women's names that end in a consonant, and all in -о, -и, -у, -э, stay as they are."""
    last = form[-1]
    if case == "nom" or (last in "оиуэеыю") or (gender == "f" and last not in "ая"):
        return form
    if slavic and gender == "f":
        return form[:-1] + ("у" if case == "acc" else "ой")
    if slavic and case == "ins":
        return form + "ым"
    return decline_regular(form, gender, case, plural=False, animate=True)


@cache
def decline_adjective(form: str, slot: str, case: str, animate: bool = False) -> str:
    """An adjective by gender (m, f, n) or pl, from its masculine nominative or, for nouns, its neuter."""
    stem = form[:-2]
    hush = stem[-1] in HUSHES and not form.endswith("ой")
    soft = form.endswith(("ний", "нее")) or hush
    o = "е" if soft else "о"
    y = "и" if soft or stem[-1] in VELARS + HUSHES else "ы"
    a, u = ("я", "ю") if soft and not hush else ("а", "у")
    if case == "acc":
        if slot == "f":
            return stem + u + "ю"
        case = "gen" if animate and slot in ("m", "pl") else "nom"
    if slot == "pl":
        return stem + {"nom": y + "е", "gen": y + "х", "dat": y + "м", "ins": y + "ми", "pre": y + "х"}[case]
    if slot == "f":
        return stem + (a + "я" if case == "nom" else o + "й")
    if case == "nom":
        return form if slot == "m" else stem + o + "е"
    return stem + {"gen": o + "го", "dat": o + "му", "ins": y + "м", "pre": o + "м"}[case]


def past_form(entry: Entry, slot: str) -> str:
    """The past by gender (m, f, n) or pl."""
    given = entry.get("past").split(",")
    if len(given) == 4:
        return given[("m", "f", "n", "pl").index(slot)]
    return (given[0] or entry.form[:-2] + "л") + {"m": "", "f": "а", "n": "о", "pl": "и"}[slot]


def short_participle(entry: Entry, slot: str) -> str:
    """The short passive participle by gender or pl."""
    form = entry.get("part")
    if slot == "m":
        return form
    stem = form[:-2] + "ен" if form.endswith("ён") else form
    return stem + {"f": "а", "n": "о", "pl": "ы"}[slot]


def inflect_numeral(count: str, form: str, *, case: str, gender: str, animate: bool) -> str:
    """A numeral in its case; two has its own feminine."""
    if not count.isdigit() or int(count) > 10:
        return form
    if case == "acc":
        case = "gen" if animate and count in NUMERALS else "nom"
    if count in NUMERALS:
        forms = NUMERALS[count]
        if case == "nom":
            return "две" if count == "2" and gender == "f" else forms[0]
        return forms[{"gen": 1, "dat": 2, "ins": 3, "pre": 1}[case]]
    if case == "nom":
        return form
    if count == "8":
        return "восемью" if case == "ins" else "восьми"
    return form[:-1] + ("ью" if case == "ins" else "и")
