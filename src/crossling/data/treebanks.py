"""Which treebank ``ud:de`` stands for: the folder's if there is one, else one of the hub's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from crossling.errors import DataError, nearest

PARALLEL = "pud"
TRAINING = {"en": "ewt"}
"""The treebank that a language's training and development rows come from, where it has several."""

FILE_NAME = re.compile(r"(?P<treebank>[a-z]+_[a-z0-9]+)-ud-(?P<split>train|dev|test)\.conllu(\.gz)?")

TREEBANKS: dict[str, tuple[str, ...]] = {
    "af": ("afribooms",),
    "am": ("att",),
    "ar": ("nyuad", "padt", "pud"),
    "be": ("hse",),
    "bg": ("btb",),
    "ca": ("ancora",),
    "cs": ("cac", "cltt", "fictree", "pdt", "pud"),
    "cy": ("ccg",),
    "da": ("ddt",),
    "de": ("gsd", "hdt", "lit", "pud"),
    "el": ("gdt", "gud"),
    "en": ("atis", "eslspok", "ewt", "gum", "gumreddit", "lines", "partut", "pronouns", "pud"),
    "es": ("ancora", "gsd", "pud"),
    "et": ("edt", "ewt"),
    "eu": ("bdt",),
    "fa": ("perdt", "seraji"),
    "fi": ("ftb", "ood", "pud", "tdt"),
    "fr": ("fqb", "gsd", "parisstories", "partut", "pud", "rhapsodie", "sequoia"),
    "ga": ("idt", "twittirish"),
    "gl": ("ctg", "pud", "treegal"),
    "he": ("htb", "iahltwiki"),
    "hi": ("hdtb", "pud"),
    "hr": ("set",),
    "hu": ("szeged",),
    "hy": ("armtdp", "bsut"),
    "id": ("csui", "gsd", "pud"),
    "is": ("gc", "icepahc", "modern", "pud"),
    "it": ("isdt", "markit", "old", "partut", "postwita", "pud", "twittiro", "valico", "vit"),
    "ja": ("bccwj", "gsd", "gsdluw", "modern", "pud", "pudluw"),
    "ka": ("glc",),
    "kk": ("ktb",),
    "ko": ("gsd", "kaist", "ksl", "pud"),
    "la": ("ittb", "llct", "perseus", "proiel", "udante"),
    "lt": ("alksnis", "hse"),
    "lv": ("cairo", "lvtb"),
    "mr": ("ufal",),
    "mt": ("mudt",),
    "nl": ("alpino", "lassysmall"),
    "no": ("bokmaal", "nynorsk", "nynorsklia"),
    "pcm": ("nsc",),
    "pl": ("lfg", "pdb", "pud"),
    "pt": ("bosque", "cintil", "gsd", "petrogold", "porttinari", "pud"),
    "ro": ("nonstandard", "rrt", "simonero"),
    "ru": ("gsd", "poetry", "pud", "syntagrus", "taiga"),
    "sk": ("snk",),
    "sl": ("ssj", "sst"),
    "sr": ("set",),
    "sv": ("lines", "pud", "talbanken"),
    "ta": ("mwtt", "ttb"),
    "te": ("mtg",),
    "th": ("pud", "tud"),
    "tl": ("trg", "ugnayan"),
    "tr": ("atis", "boun", "framenet", "gb", "imst", "kenet", "penn", "pud", "tourism"),
    "ug": ("udt",),
    "uk": ("iu", "parlamint"),
    "ur": ("udtb",),
    "vi": ("tueclparser", "vtb"),
    "wo": ("wtb",),
    "yo": ("ytb",),
    "zh": ("cfl", "gsd", "gsdsimp", "hk", "patentchar", "pud"),
}
"""The treebanks of common languages on the hub; any other can be named in full."""


def find_files(folder: Path) -> dict[tuple[str, str], Path]:
    """(treebank, split) -> file, for all treebanks below a folder."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.glob("*/*-ud-*.conllu*")):
        match = FILE_NAME.fullmatch(path.name)
        if match is not None:
            found[match["treebank"], match["split"]] = path
    return found


def choose_treebank(language: str, split: str, candidates: Iterable[str], *, name: str) -> str | None:
    """The one treebank of ``candidates`` (with the split asked for) that a language means, or none of them.

    PUD for testing: the same thousand sentences in each of its languages make scores comparable.
    """
    found = sorted({treebank for treebank in candidates if treebank.partition("_")[0] == language})
    preferred = f"{language}_{PARALLEL if split == 'test' else TRAINING.get(language, '')}"
    if preferred in found:
        return preferred
    if len(found) > 1:
        listed = ", ".join(f"{name}:{treebank}" for treebank in found)
        raise DataError(f"{name}:{language}:{split} could be of several treebanks; choose one of {listed}")
    return found[0] if found else None


def list_treebanks(language: str, split: str) -> tuple[str, ...]:
    """A language's treebanks by their full names; an unknown language is an error that lists the known.

    Of their splits only this is known: that parallel treebanks are for testing alone.
    """
    if language not in TREEBANKS:
        raise DataError(
            f"no treebank of {language!r} is known; name one in full, as in ud:{language}_xyz."
            f"{nearest(language, TREEBANKS)}"
        )
    return tuple(f"{language}_{name}" for name in TREEBANKS[language] if split == "test" or name != PARALLEL)
