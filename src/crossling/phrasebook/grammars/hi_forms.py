"""Hindi inflection: direct and oblique nouns, agreeing adjectives, participles and futures."""

from __future__ import annotations

from functools import cache

from crossling.phrasebook.lexicon import Entry

PERFECTIVES = {
    "कर": "किया किए की कीं", "जा": "गया गए गई गईं", "दे": "दिया दिए दी दीं", "हो": "हुआ हुए हुई हुईं",
    "पी": "पिया पिए पी पीं",
}  # fmt: skip
FUTURES = {
    "दे": "देगा देंगे देगी देंगी", "हो": "होगा होंगे होगी होंगी", "पी": "पिएगा पिएँगे पिएगी पिएँगी",
}  # fmt: skip
SLOTS = ("m sg", "m pl", "f sg", "f pl")
WAS = dict(zip(SLOTS, ["था", "थे", "थी", "थीं"], strict=True))
IS = dict(zip(SLOTS, ["है", "हैं", "है", "हैं"], strict=True))
HABITUAL = dict(zip(SLOTS, ["ता", "ते", "ती", "ती"], strict=True))
OF = {"m sg": "का", "m pl": "के", "f sg": "की", "f pl": "की"}


@cache
def decline(form: str, gender: str, *, plural: bool, oblique: bool, fixed: str = "") -> str:
    """A noun by number and case; ``fixed`` says inv (no change but in the oblique plural) or inv0 (none)."""
    if fixed == "inv0" or not (plural or oblique):
        return form
    last, stem = form[-1], form[:-1]
    if gender == "f":
        if not plural:
            return form
        if last in "ीई":
            joint = "इ" if last == "ई" else "ि"
            return stem + joint + ("यों" if oblique else "याँ")
        if last == "ा":
            return form + ("ओं" if oblique else "एँ")
        return form + ("ों" if oblique else "ें")
    if last == "ा" and fixed != "inv":
        return stem + ("ों" if plural and oblique else "े")
    if not (plural and oblique):
        return form
    if last == "ी":
        return stem + "ियों"
    return form + ("ओं" if last == "ा" else "यों" if last == "ि" else "ों")


def decline_entry(entry: Entry, *, plural: bool, oblique: bool, feminine: bool = False) -> str:
    """A noun of the lexicon; only the last of several words changes."""
    own = feminine and entry.get("f") not in ("", entry.form)
    form = entry.get("f") if own else entry.form
    if plural and not own:
        given = entry.get("op" if oblique else "np")
        if given:
            return given
    fixed = next((mark for mark in ("inv", "inv0") if mark in entry and not own), "")
    *before, last = form.split()
    gender = "f" if own else entry.gender
    return " ".join([*before, decline(last, gender, plural=plural, oblique=oblique, fixed=fixed)])


@cache
def inflect(form: str, slot: str, oblique: bool = False, fixed: bool = False) -> str:
    """An adjective, वाला or a participle; only those in -ā agree."""
    if fixed or not form.endswith("ा"):
        return form
    stem = form[:-2] if form.endswith("या") else form[:-1]
    e, i = ("ए", "ई") if form.endswith("या") else ("े", "ी")
    if slot.startswith("f"):
        return stem + i
    return stem + e if oblique or slot == "m pl" else form


@cache
def perfective(stem: str, slot: str) -> str:
    """The perfective participle."""
    if stem in PERFECTIVES:
        return PERFECTIVES[stem].split()[SLOTS.index(slot)]
    vowel = stem[-1] in "ाो"
    endings = "या ए ई ईं" if vowel else "ा े ी ीं"
    return stem + endings.split()[SLOTS.index(slot)]


@cache
def future(stem: str, slot: str) -> str:
    """The future, which agrees like a participle."""
    if stem in FUTURES:
        return FUTURES[stem].split()[SLOTS.index(slot)]
    vowel = stem[-1] in "ाो"
    endings = "एगा एँगे एगी एँगी" if vowel else "ेगा ेंगे ेगी ेंगी"
    return stem + endings.split()[SLOTS.index(slot)]
