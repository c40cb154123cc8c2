"""What is known of each language: name, family and branch, script, order of subject, verb and object.

Transfer is read by these facts: scores fall with distance from the source language. Word order is the
dominant one in the World Atlas of Language Structures (feature 81A) and, for languages it does not list, that
of their grammars; `none` means that no single order dominates.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from crossling.errors import DataError

WordOrder = Literal["SVO", "SOV", "VSO", "VOS", "none"]
Direction = Literal["ltr", "rtl"]


@dataclass(frozen=True, slots=True)
class Language:
    """A language under its ISO 639-1 code or, lacking one, its 639-3 code."""

    code: str
    name: str
    family: str
    branch: str
    """The customary group within the family; the family again where there is none."""
    script: str
    """The one its text is mostly written in, as far as multilingual corpora go."""
    word_order: WordOrder
    direction: Direction


# code | name | branch | script | word order | other codes and names that mean it, apart from `name` itself
_TABLE = """
af  | Afrikaans         | Germanic                | Latin      | none | afr
ak  | Akan              | Kwa                     | Latin      | SVO  | aka tw twi fat
am  | Amharic           | Semitic                 | Ethiopic   | SOV  | amh
an  | Aragonese         | Romance                 | Latin      | SVO  | arg
ar  | Arabic            | Semitic                 | Arabic     | VSO  | ara arb
arz | Egyptian Arabic   | Semitic                 | Arabic     | SVO  |
as  | Assamese          | Indo-Aryan              | Bengali    | SOV  | asm
ast | Asturian          | Romance                 | Latin      | SVO  |
ay  | Aymara            | Aymaran                 | Latin      | SOV  | aym ayr
az  | Azerbaijani       | Turkic                  | Latin      | SOV  | aze azj
ba  | Bashkir           | Turkic                  | Cyrillic   | SOV  | bak
bbj | Ghomala           | Grassfields             | Latin      | SVO  | ghomálá'
be  | Belarusian        | Slavic                  | Cyrillic   | SVO  | bel
bg  | Bulgarian         | Slavic                  | Cyrillic   | SVO  | bul
bho | Bhojpuri          | Indo-Aryan              | Devanagari | SOV  | bh
bm  | Bambara           | Mande                   | Latin      | SOV  | bam
bn  | Bengali           | Indo-Aryan              | Bengali    | SOV  | ben bangla
bo  | Tibetan           | Bodic                   | Tibetan    | SOV  | bod tib
br  | Breton            | Celtic                  | Latin      | SVO  | bre
bs  | Bosnian           | Slavic                  | Latin      | SVO  | bos
ca  | Catalan           | Romance                 | Latin      | SVO  | cat valencian
ceb | Cebuano           | Philippine              | Latin      | VSO  |
ckb | Central Kurdish   | Iranian                 | Arabic     | SOV  | sorani
cs  | Czech             | Slavic                  | Latin      | SVO  | ces cze
cv  | Chuvash           | Turkic                  | Cyrillic   | SOV  | chv
cy  | Welsh             | Celtic                  | Latin      | VSO  | cym wel
da  | Danish            | Germanic                | Latin      | SVO  | dan
de  | German            | Germanic                | Latin      | none | deu ger
dv  | Dhivehi           | Indo-Aryan              | Thaana     | SOV  | div maldivian
ee  | Ewe               | Kwa                     | Latin      | SVO  | ewe
el  | Greek             | Hellenic                | Greek      | none | ell gre
en  | English           | Germanic                | Latin      | SVO  | eng simple
eo  | Esperanto         | Constructed             | Latin      | SVO  | epo
es  | Spanish           | Romance                 | Latin      | SVO  | spa castilian
et  | Estonian          | Finnic                  | Latin      | SVO  | est ekk
eu  | Basque            | Isolate                 | Latin      | SOV  | eus baq
fa  | Persian           | Iranian                 | Arabic     | SOV  | fas per pes farsi
fi  | Finnish           | Finnic                  | Latin      | SVO  | fin
fo  | Faroese           | Germanic                | Latin      | SVO  | fao
fon | Fon               | Kwa                     | Latin      | SVO  |
fr  | French            | Romance                 | Latin      | SVO  | fra fre
fy  | Western Frisian   | Germanic                | Latin      | none | fry frisian
ga  | Irish             | Celtic                  | Latin      | VSO  | gle
gd  | Scottish Gaelic   | Celtic                  | Latin      | VSO  | gla
gl  | Galician          | Romance                 | Latin      | SVO  | glg
gn  | Guarani           | Tupi-Guarani            | Latin      | SVO  | grn gug
gsw | Swiss German      | Germanic                | Latin      | none | alemannic
gu  | Gujarati          | Indo-Aryan              | Gujarati   | SOV  | guj
ha  | Hausa             | Chadic                  | Latin      | SVO  | hau
he  | Hebrew            | Semitic                 | Hebrew     | SVO  | heb iw
hi  | Hindi             | Indo-Aryan              | Devanagari | SOV  | hin
hr  | Croatian          | Slavic                  | Latin      | SVO  | hrv
ht  | Haitian Creole    | French creole           | Latin      | SVO  | hat
hu  | Hungarian         | Ugric                   | Latin      | none | hun
hy  | Armenian          | Armenian                | Armenian   | none | hye arm
id  | Indonesian        | Malayic                 | Latin      | SVO  | ind in
ig  | Igbo              | Igboid                  | Latin      | SVO  | ibo
ilo | Ilocano           | Philippine              | Latin      | VSO  | iloko
is  | Icelandic         | Germanic                | Latin      | SVO  | isl ice
it  | Italian           | Romance                 | Latin      | SVO  | ita
ja  | Japanese          | Japanese                | Japanese   | SOV  | jpn jp
jv  | Javanese          | Javanese                | Latin      | SVO  | jav
ka  | Georgian          | Karto-Zan               | Georgian   | SOV  | kat geo
kk  | Kazakh            | Turkic                  | Cyrillic   | SOV  | kaz
km  | Khmer             | Khmer                   | Khmer      | SVO  | khm cambodian
kn  | Kannada           | South Dravidian         | Kannada    | SOV  | kan
ko  | Korean            | Korean                  | Hangul     | SOV  | kor
ku  | Kurdish           | Iranian                 | Latin      | SOV  | kur kmr kurmanji
ky  | Kyrgyz            | Turkic                  | Cyrillic   | SOV  | kir kirghiz
la  | Latin             | Italic                  | Latin      | SOV  | lat
lb  | Luxembourgish     | Germanic                | Latin      | none | ltz
lg  | Luganda           | Bantu                   | Latin      | SVO  | lug ganda
ln  | Lingala           | Bantu                   | Latin      | SVO  | lin
lo  | Lao               | Tai                     | Lao        | SVO  | lao
lt  | Lithuanian        | Baltic                  | Latin      | SVO  | lit
luo | Luo               | Nilotic                 | Latin      | SVO  | dholuo
lv  | Latvian           | Baltic                  | Latin      | SVO  | lav lvs
mai | Maithili          | Indo-Aryan              | Devanagari | SOV  |
mg  | Malagasy          | Barito                  | Latin      | VOS  | mlg plt
mi  | Maori             | Polynesian              | Latin      | VSO  | mri mao
mk  | Macedonian        | Slavic                  | Cyrillic   | SVO  | mkd mac
ml  | Malayalam         | South Dravidian         | Malayalam  | SOV  | mal
mn  | Mongolian         | Mongolic                | Cyrillic   | SOV  | mon khk
mos | Mossi             | Gur                     | Latin      | SVO  | mooré moore
mr  | Marathi           | Indo-Aryan              | Devanagari | SOV  | mar
ms  | Malay             | Malayic                 | Latin      | SVO  | msa may zsm
mt  | Maltese           | Semitic                 | Latin      | SVO  | mlt
my  | Burmese           | Burmese-Lolo            | Burmese    | SOV  | mya bur myanmar
ne  | Nepali            | Indo-Aryan              | Devanagari | SOV  | nep npi
nl  | Dutch             | Germanic                | Latin      | none | nld dut flemish
nn  | Norwegian Nynorsk | Germanic                | Latin      | SVO  | nno nynorsk
no  | Norwegian         | Germanic                | Latin      | SVO  | nor nb nob bokmål bokmal
nso | Northern Sotho    | Bantu                   | Latin      | SVO  | sepedi
ny  | Chichewa          | Bantu                   | Latin      | SVO  | nya chewa nyanja
oc  | Occitan           | Romance                 | Latin      | SVO  | oci
om  | Oromo             | Cushitic                | Latin      | SOV  | orm gaz
or  | Odia              | Indo-Aryan              | Odia       | SOV  | ori ory oriya
pa  | Punjabi           | Indo-Aryan              | Gurmukhi   | SOV  | pan panjabi
pcm | Nigerian Pidgin   | English creole          | Latin      | SVO  | naija
pl  | Polish            | Slavic                  | Latin      | SVO  | pol
ps  | Pashto            | Iranian                 | Arabic     | SOV  | pus pbt
pt  | Portuguese        | Romance                 | Latin      | SVO  | por
qu  | Quechua           | Quechuan                | Latin      | SOV  | que quy quz
rn  | Kirundi           | Bantu                   | Latin      | SVO  | run rundi
ro  | Romanian          | Romance                 | Latin      | SVO  | ron rum moldovan
ru  | Russian           | Slavic                  | Cyrillic   | SVO  | rus
rw  | Kinyarwanda       | Bantu                   | Latin      | SVO  | kin
sa  | Sanskrit          | Indo-Aryan              | Devanagari | SOV  | san
sd  | Sindhi            | Indo-Aryan              | Arabic     | SOV  | snd
se  | Northern Sami     | Sami                    | Latin      | SVO  | sme
sh  | Serbo-Croatian    | Slavic                  | Latin      | SVO  | hbs
si  | Sinhala           | Indo-Aryan              | Sinhala    | SOV  | sin sinhalese
sk  | Slovak            | Slavic                  | Latin      | SVO  | slk slo
sl  | Slovenian         | Slavic                  | Latin      | SVO  | slv slovene
sn  | Shona             | Bantu                   | Latin      | SVO  | sna
so  | Somali            | Cushitic                | Latin      | SOV  | som
sq  | Albanian          | Albanian                | Latin      | SVO  | sqi alb als
sr  | Serbian           | Slavic                  | Cyrillic   | SVO  | srp
st  | Southern Sotho    | Bantu                   | Latin      | SVO  | sot sesotho
su  | Sundanese         | Sundanese               | Latin      | SVO  | sun
sv  | Swedish           | Germanic                | Latin      | SVO  | swe
sw  | Swahili           | Bantu                   | Latin      | SVO  | swa swh kiswahili
ta  | Tamil             | South Dravidian         | Tamil      | SOV  | tam
te  | Telugu            | South-Central Dravidian | Telugu     | SOV  | tel
tg  | Tajik             | Iranian                 | Cyrillic   | SOV  | tgk
th  | Thai              | Tai                     | Thai       | SVO  | tha
ti  | Tigrinya          | Semitic                 | Ethiopic   | SOV  | tir
tk  | Turkmen           | Turkic                  | Latin      | SOV  | tuk
tl  | Tagalog           | Philippine              | Latin      | VSO  | tgl fil filipino
tn  | Setswana          | Bantu                   | Latin      | SVO  | tsn tswana
tr  | Turkish           | Turkic                  | Latin      | SOV  | tur
tt  | Tatar             | Turkic                  | Cyrillic   | SOV  | tat
ug  | Uyghur            | Turkic                  | Arabic     | SOV  | uig uighur
uk  | Ukrainian         | Slavic                  | Cyrillic   | SVO  | ukr
ur  | Urdu              | Indo-Aryan              | Arabic     | SOV  | urd
uz  | Uzbek             | Turkic                  | Latin      | SOV  | uzb uzn
vi  | Vietnamese        | Vietic                  | Latin      | SVO  | vie
war | Waray             | Philippine              | Latin      | VSO  | waray-waray
wo  | Wolof             | Senegambian             | Latin      | SVO  | wol
xh  | Xhosa             | Bantu                   | Latin      | SVO  | xho isixhosa
yi  | Yiddish           | Germanic                | Hebrew     | SVO  | yid ydd ji
yo  | Yoruba            | Defoid                  | Latin      | SVO  | yor
yue | Cantonese         | Sinitic                 | Han        | SVO  | zh-yue
zh  | Chinese           | Sinitic                 | Han        | SVO  | zho chi cmn mandarin
zu  | Zulu              | Bantu                   | Latin      | SVO  | zul isizulu
"""

_BRANCHES: Mapping[str, str] = {
    "Afro-Asiatic": "Chadic, Cushitic, Semitic",
    "Austroasiatic": "Khmer, Vietic",
    "Austronesian": "Barito, Javanese, Malayic, Philippine, Polynesian, Sundanese",
    "Aymaran": "Aymaran",
    "Constructed": "Constructed",
    "Creole": "English creole, French creole",
    "Dravidian": "South Dravidian, South-Central Dravidian",
    "Indo-European": "Albanian, Armenian, Baltic, Celtic, Germanic, Hellenic, Indo-Aryan, Iranian, Italic, "
    "Romance, Slavic",
    "Isolate": "Isolate",
    "Japonic": "Japanese",
    "Kartvelian": "Karto-Zan",
    "Koreanic": "Korean",
    "Mande": "Mande",
    "Mongolic": "Mongolic",
    "Niger-Congo": "Bantu, Defoid, Grassfields, Gur, Igboid, Kwa, Senegambian",
    "Nilo-Saharan": "Nilotic",
    "Quechuan": "Quechuan",
    "Sino-Tibetan": "Bodic, Burmese-Lolo, Sinitic",
    "Tai-Kadai": "Tai",
    "Tupian": "Tupi-Guarani",
    "Turkic": "Turkic",
    "Uralic": "Finnic, Sami, Ugric",
}
"""Which branches of the table belong to which family."""

_SCRIPT_TAGS: Mapping[str, str] = {
    "arab": "Arabic",
    "beng": "Bengali",
    "cyrl": "Cyrillic",
    "deva": "Devanagari",
    "guru": "Gurmukhi",
    "hans": "Han",
    "hant": "Han",
    "hebr": "Hebrew",
    "jpan": "Japanese",
    "latn": "Latin",
    "tfng": "Tifinagh",
}
_UNICODE_SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "Burmese": ("Myanmar",),
    "Han": ("Han", "Bopomofo"),
    "Hangul": ("Hangul", "Han"),
    "Japanese": ("Hiragana", "Katakana", "Han"),
    "Odia": ("Oriya",),
}
"""Unicode's names for the scripts of the table, where they are others or several."""
_SECOND_SCRIPTS: Mapping[str, str] = {
    "az": "Cyrillic",
    "bs": "Cyrillic",
    "ha": "Arabic",
    "kk": "Latin",
    "ku": "Arabic",
    "ky": "Latin",
    "mn": "Mongolian",
    "ms": "Arabic",
    "pa": "Arabic",
    "sd": "Devanagari",
    "sh": "Cyrillic",
    "sr": "Latin",
    "tg": "Latin",
    "tk": "Cyrillic",
    "tt": "Latin",
    "ug": "Latin",
    "uz": "Cyrillic",
}
"""Another script that a language is also written in."""
_ORDERS: Mapping[str, WordOrder] = {"SVO": "SVO", "SOV": "SOV", "VSO": "VSO", "VOS": "VOS", "none": "none"}
_RIGHT_TO_LEFT = frozenset(["Arabic", "Hebrew", "Thaana"])


def _direction_of(script: str) -> Direction:
    return "rtl" if script in _RIGHT_TO_LEFT else "ltr"


@cache
def _read_table() -> tuple[Mapping[str, Language], Mapping[str, str]]:
    """Languages by code, and the code by every alias in lower case."""
    family_of = {branch: family for family, names in _BRANCHES.items() for branch in names.split(", ")}
    languages: dict[str, Language] = {}
    aliases: dict[str, str] = {}
    for line in _TABLE.strip().splitlines():
        code, name, branch, script, order, others = (cell.strip() for cell in line.split("|"))
        direction = _direction_of(script)
        languages[code] = Language(code, name, family_of[branch], branch, script, _ORDERS[order], direction)
        for alias in (code, name.lower(), *others.split()):
            assert aliases.setdefault(alias, code) == code, f"{alias} names two languages"
    return languages, aliases


def list_languages() -> tuple[Language, ...]:
    """All languages known, by code."""
    return tuple(_read_table()[0].values())


@cache
def find_language(code: str) -> Language | None:
    """The language of a code or name, if known; region and script may follow (`zh-CN`, `srp_Latn`)."""
    languages, aliases = _read_table()
    wanted = code.strip().lower()
    if wanted in aliases:
        return languages[aliases[wanted]]
    first, *tags = wanted.replace("_", "-").split("-")
    if first not in aliases or not tags:
        return None
    language = languages[aliases[first]]
    scripts = [_SCRIPT_TAGS[tag] for tag in tags if tag in _SCRIPT_TAGS]
    return replace(language, script=scripts[0], direction=_direction_of(scripts[0])) if scripts else language


def get_language(code: str) -> Language:
    """As `find_language`, but an unknown code is an error that names the nearest."""
    language = find_language(code)
    if language is None:
        languages, aliases = _read_table()
        close = difflib.get_close_matches(code.strip().lower(), aliases, n=1, cutoff=0.6)
        nearest = languages[aliases[close[0]]] if close else None
        hint = f" Did you mean {nearest.code!r} ({nearest.name})?" if nearest else ""
        raise DataError(f"unknown language {code!r}.{hint} Known codes: {', '.join(languages)}.")
    return language


def name_of(code: str) -> str:
    """The English name of a language; the code itself where it is not known, for users bring their own."""
    language = find_language(code)
    return language.name if language else code


def is_same_language(code: str, other: str) -> bool:
    """Whether two codes, `en` and `eng_Latn` say, mean one language."""
    first, second = find_language(code), find_language(other)
    return code == other or (first is not None and second is not None and first.code == second.code)


def find_scripts(code: str) -> tuple[str, ...]:
    """Unicode's names of all scripts that a language is written in; none where the language is not known.

    A script that the code names (`sr_Latn`) is the only one.
    """
    language = find_language(code)
    if language is None:
        return ()
    tags = code.strip().lower().replace("_", "-").split("-")[1:]
    scripts = [language.script]
    if language.code in _SECOND_SCRIPTS and not any(tag in _SCRIPT_TAGS for tag in tags):
        scripts.append(_SECOND_SCRIPTS[language.code])
    return tuple(name for script in scripts for name in _UNICODE_SCRIPTS.get(script, (script,)))


GROUPINGS: Mapping[str, Callable[[Language], str]] = {
    "family": lambda language: f"{language.family} family",
    "branch": lambda language: f"{language.branch} branch",
    "script": lambda language: f"{language.script} script",
    "order": lambda language: f"{language.word_order} order",
    "enf": lambda language: "avg_enf" if language.code in ("en", "de") else "avg_noenf",
}
"""Ways to group languages for averages. ``enf`` is the layer-fusion paper's: English and German, and all others."""


def group_of(code: str, grouping: str) -> str:
    """The group that a language belongs to; one that is not known is on its own."""
    language = find_language(code)
    return GROUPINGS[grouping](language) if language else code
