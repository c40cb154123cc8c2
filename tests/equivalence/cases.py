"""The cases that must stay equal bit by bit, and, at the top, every name of crossling's that they depend on.

When commands, options or folders change, adapt the section "Names"; the cases below it and the format of the record
stay as they are, so that records from before and after can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# ---- Names ----------------------------------------------------------------------------------------------------------

PROGRAM = ("-m", "crossling")
RUN = ("run", "{recipe}", "--out", "{out}", "--store", "{store}")
STORE_VARIABLE = "CROSSLING_STORE"  # analyses have no --store

ANALYSE = {  # the words of an analysis' command, by its kind
    "similarity": ("analyse", "similarity"),
    "distances": ("analyse", "distances"),
    "perplexity": ("analyse", "perplexity"),
    "probe": ("analyse", "probe"),
    "heads": ("analyse", "head_updates"),
    "head_probe": ("analyse", "head_probe"),
}
ANALYSIS_OUT = ("--out", "{out}/{name}.csv")
OPTIONS: dict[tuple[str, str], str] = {}  # default: --field-name
WITHOUT_OPTION = {("perplexity", "training.rows")}

RUN_RECORD = "run.json"  # in a run's folder; its "stages" has the identities of all stages for each seed
STAGES_KEY = "stages"
ARTEFACT = "artefacts/{identity}"  # in the store; weights are all *.safetensors below it
PREDICTIONS = "seed-*/predictions/**/*.parquet"  # in a run's folder
SCORES = "scores*.csv"  # in a run's folder
ANALYSIS_TABLES = "{name}*.csv"  # in an analysis' folder
STORED_TABLES = "analyses/*/{kind}-*.parquet"  # in the store: what an analysis found for each model, not rounded

RENAMED_TENSORS: dict[str, str] = {}  # regular expression -> its replacement, from a reference's names to present ones
RENAMED_COLUMNS: dict[str, str] = {}  # of tables and predictions, from a reference's names to present ones
RENAMED_FILES: dict[str, str] = {}  # regular expression -> its replacement, for predictions and tables
IGNORED_COLUMNS: frozenset[str] = frozenset()  # neither values nor presence are compared


def write_option(kind: str, field: str, value: Any) -> list[str]:
    """One setting of an analysis as words of a command line."""
    if isinstance(value, Mapping):
        text = ",".join(f"{name}={data}" for name, data in value.items())
    elif isinstance(value, tuple):
        text = ",".join(str(item) for item in value)
    else:
        text = str(value)
    if (kind, field) in WITHOUT_OPTION:
        return ["--set", f"{field}={text}"]
    return [OPTIONS.get((kind, field), "--" + field.replace("_", "-")), text]


# ---- Cases ----------------------------------------------------------------------------------------------------------

OFFLINE = "multilingual-e5-small"
ENCODERS = {"tiny": "tiny", "pooler": "tiny-pooler", "offline": OFFLINE}  # the first two are folders made by record.py


@dataclass(frozen=True)
class Training:
    """A recipe that is run: weights, predictions and scores are recorded."""

    name: str
    recipe: str


@dataclass(frozen=True)
class Variant:
    """One command of an analysis."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Looking:
    """Commands of one kind of analysis on some models: all tables are recorded."""

    name: str
    kind: str
    models: Mapping[str, str]
    """The encoder's name, or the name of the case that trained the model, by label."""
    variants: tuple[Variant, ...]


def _write_recipe(encoder: str, *stages: str, on: str = "phrasebook-ner", seeds: str = "[1]", rows: int = 16) -> str:
    parts = "\n".join(f"[[stage]]\n{stage}" for stage in stages)
    return f"""seeds = {seeds}

[encoder]
name = "{ENCODERS[encoder]}"

{parts}
[[evaluate]]
on = "{on}"
split = "test[:{rows}]"
languages = ["en", "de", "hi"]

[run]
device = "cpu"
threads = 1
"""


def _finetune(encoder: str, *more: str, task: str = "ner") -> str:
    rows, rate, epochs = (32, "1e-4", 1) if encoder == "offline" else (64, "1e-3", 2)
    lines = [
        'kind = "finetune"',
        f'task = "{task}"',
        f'train = "phrasebook-{task}:en:train[:{rows}]"',
        f'dev = "phrasebook-{task}:en:dev[:12]"',
        f"epochs = {epochs}",
        "batch = 8",
        f"lr = {rate}",
        *more,
    ]
    return "\n".join(lines) + "\n"


def _adjust(parallel: str, *more: str) -> str:
    lines = ['kind = "adjust"', f"parallel = [{parallel}]", "sentences = 16", "batch = 8", *more]
    return "\n".join(lines) + "\n"


def _adapt(*more: str) -> str:
    texts = '"phrasebook-ner:en:train[:32]", "phrasebook-ner:de:train[:24]"'
    lines = ['kind = "adapt"', f"train = [{texts}]", "epochs = 1", "batch = 8", "held_out = 0.1", "lr = 1e-4", *more]
    return "\n".join(lines) + "\n"


LINKED = '"phrasebook-parallel:en-de", "phrasebook-parallel:en-hi"'
UNLINKED = '{ format = "parallel", source = "text.en", target = "text.de", language = "en-de" }'  # made by record.py
AUXILIARY = """auxiliary = [
    { task = "pos", train = "phrasebook-pos:en:train[:24]" },
    { task = "nli", train = "phrasebook-nli:en:train[:16]" },
]"""


def _list_methods(encoder: str) -> list[Training]:
    """Every way to train, with one encoder."""
    layer, vocabulary = (11, "seen") if encoder == "offline" else (2, "whole")
    methods = {
        "plain": (_finetune(encoder),),
        "dlfa": (_finetune(encoder, f'fusion = {{ kind = "dlfa", layer = {layer} }}'),),
        "mean": (_finetune(encoder, f'fusion = {{ kind = "mean", layer = {layer} }}'),),
        "scalar-mix": (_finetune(encoder, 'fusion = { kind = "scalar_mix" }'),),
        "adjust-replay": (_adjust(LINKED), _finetune(encoder, "replay = { batch = 4 }")),
        "auxiliary": (_finetune(encoder, AUXILIARY),),
        "adapt": (_adapt(f'vocabulary = "{vocabulary}"'), _finetune(encoder)),
    }
    seeds = "[1, 2]" if encoder == "tiny" else "[1]"
    return [
        Training(f"{encoder}/{name}", _write_recipe(encoder, *stages, seeds=seeds if name == "plain" else "[1]"))
        for name, stages in methods.items()
    ]


def _list_tasks() -> list[Training]:
    """The other kinds of task, with the tiny encoders; ``plain`` has tags of spans."""
    cases = [
        Training(f"tiny/{name}", _write_recipe("tiny", _finetune("tiny", task=task), on=f"phrasebook-{task}"))
        for name, task in {"tag": "pos", "classify": "sentiment", "classify-pair": "nli", "answer": "qa"}.items()
    ]
    pooled = _write_recipe("pooler", _finetune("pooler", task="paraphrase"), on="phrasebook-paraphrase")
    return [*cases, Training("tiny/classify-pair-pooler", pooled)]


def _list_aligned() -> list[Training]:
    """Adjustment to text that an aligner links."""
    return [
        Training(
            f"tiny/adjust-{aligner}",
            _write_recipe("tiny", _adjust(UNLINKED, f'aligner = "{aligner}"'), _finetune("tiny"), rows=8),
        )
        for aligner in ("neural", "statistical")
    ]


def _list_analyses(encoder: str) -> list[Looking]:
    """Every analysis; with the offline encoder on less."""
    tiny = encoder == "tiny"
    original = {"original": ENCODERS[encoder]}
    trained = {"plain": f"{encoder}/plain", **({"dlfa": "tiny/dlfa"} if tiny else {})}
    parallel = {"on": "phrasebook-parallel", "languages": ("de", "hi"), "sentences": 40 if tiny else 16}
    texts = {"on": "phrasebook-ner", "languages": ("en", "de"), "sentences": 8 if tiny else 3}
    tasks = {"ner": "phrasebook-ner", "nli": "phrasebook-nli"} if tiny else {"ner": "phrasebook-ner"}
    probing = {"tasks": tasks, "languages": ("en", "de"), "rows": 60 if tiny else 24, "test_rows": 24 if tiny else 12}
    variants: dict[str, dict[str, dict[str, Any]]] = {
        "similarity": {"mean": parallel, "random": {**parallel, "pool": "cls", "seed": 3, "length": 32}},
        "distances": {"last": parallel, "fused": {**parallel, "layer": "fused", "pooling": "first", "seed": 5}},
        "perplexity": {
            "checkpoint": texts,
            "trained": {**texts, "method": "within_word_l2r", "head": "trained", "training.rows": 40},
        },
        "probe": {"last": {**probing, "samples": 1}, "lower": {**probing, "layer": 1, "l2": 2.0}},
        "heads": {"updates": {}},
        "head_probe": {"heads": probing},
    }
    if not tiny:  # one command of each kind; this encoder has no head for masked words, so that one is trained
        kept = {"similarity": "random", "distances": "last", "perplexity": "trained", "probe": "last"}
        variants |= {kind: {name: variants[kind][name]} for kind, name in kept.items()}
    return [
        Looking(
            f"{encoder}/analyse-{kind}",
            kind,
            trained if kind == "heads" else {**original, **trained},
            tuple(Variant(name, settings) for name, settings in some.items()),
        )
        for kind, some in variants.items()
    ]


TRAININGS = (*_list_methods("tiny"), *_list_tasks(), *_list_aligned(), *_list_methods("offline"))
ANALYSES = (*_list_analyses("tiny"), *_list_analyses("offline"))
