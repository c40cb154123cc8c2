"""The README of an exported model, with the hub's metadata: what it is, what it learnt from, where it was scored.

Everything comes from the record of its run; what the record does not say is named as not known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crossling.data.languages import find_language, is_same_language, name_of
from crossling.report.run_summary import TERMINAL_SCORES, LanguageResult, format_percent, name_result
from crossling.report.table import Table, markdown_text

PIPELINES = {
    "tag": "token-classification",
    "classify": "text-classification",
    "classify_pair": "text-classification",
    "answer": "question-answering",
}
"""The hub's names for kinds of tasks."""
_KINDS = {
    "tag": "labels the words of a text",
    "classify": "classifies texts",
    "classify_pair": "classifies pairs of texts",
    "answer": "answers a question with a span of a text",
}
_INPUTS = {
    "tag": '"Anna lives in Paris."',
    "classify": '"I liked it."',
    "classify_pair": '("It rains.", "The street is wet.")',
    "answer": '("Where does Anna live?", "Anna lives in Paris.")',
}
_METRICS = {"precision": "precision", "recall": "recall", "accuracy": "accuracy", "exact_match": "exact_match"}
"""The hub's names for metrics, by how ours end; all others are F scores."""

SHOWN_LABELS = 50


@dataclass(frozen=True)
class UsedData:
    """A data set that a model was trained or scored on."""

    role: str
    name: str
    language: str
    rows: int | None
    licence: str
    """As the catalogue states it."""
    repository: str = ""
    """On the hub, where it is there."""

    @property
    def set(self) -> str:
        """The data set without language and rows."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class ModelFacts:
    """What is known of an exported model."""

    name: str
    kind: str
    """The kind of its task, such as `tag`; empty where it has none."""
    labels: tuple[str, ...]
    source: str
    base: str
    """The encoder that it was trained from."""
    repository: str = ""
    """That encoder's name on the hub."""
    recorded: bool = False
    """Whether the record of its run was found; without it nothing below is known."""
    task: str = ""
    stages: tuple[str, ...] = ()
    """A line for each stage of its training."""
    data: tuple[UsedData, ...] = ()
    """What it was trained on, in the order of stages."""
    tested: tuple[UsedData, ...] = ()
    """What it was scored on, in the order of results."""
    results: tuple[LanguageResult, ...] = ()
    """Scores with every seed of the run."""
    seeds: tuple[int, ...] = ()
    seed: int = 0
    """Its own."""
    main_score: str = ""
    sources: tuple[str, ...] = ()
    """Languages whose labels it learnt from."""
    limits: tuple[str, ...] = ()
    """Sentences that a user must not miss."""
    sections: tuple[str, ...] = ()
    """Further sections, in Markdown."""
    usage: str = ""
    """How it is loaded; default: with crossling."""
    library: str = "crossling"
    machine: dict[str, str] = field(default_factory=dict)


def write_readme(facts: ModelFacts) -> str:
    """The README: metadata as the hub reads it, then the same in words."""
    parts = [
        _write_metadata(facts),
        f"# {markdown_text(facts.name)}",
        _describe(facts),
        f"## Use\n\n{facts.usage or _show_usage(facts)}",
        _describe_training(facts),
        _show_scores(facts),
        *facts.sections,
        "## Limits\n\n" + "\n".join(f"- {markdown_text(limit)}" for limit in list_limits(facts)),
        _show_licences(facts),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def describe_transformers(facts: ModelFacts, *, own: bool) -> ModelFacts:
    """The facts of a folder for transformers; ``own``: it needs classes that crossling registers."""
    first = "import crossling  # registers the model's class\n" if own else ""
    name = json.dumps(facts.name, ensure_ascii=False)
    if facts.kind == "tag":
        call = (
            "from transformers import pipeline\n\n"
            f'tagger = pipeline("token-classification", model={name}, aggregation_strategy="first")\n'
            'tagger(["Anna", "lives", "in", "Paris", "."], is_split_into_words=True)'
        )
    elif facts.kind == "answer":
        call = (
            "from transformers import AutoModelForQuestionAnswering, AutoTokenizer\n\n"
            f"model = AutoModelForQuestionAnswering.from_pretrained({name})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({name})\n"
            'inputs = tokenizer("Where does Anna live?", "Anna lives in Paris.", return_tensors="pt")\n'
            "output = model(**inputs)  # start_logits and end_logits"
        )
    else:
        pair = '{"text": "It rains.", "text_pair": "The street is wet."}'
        text = pair if facts.kind == "classify_pair" else _INPUTS["classify"]
        call = (
            "from transformers import pipeline\n\n"
            f'classifier = pipeline("text-classification", model={name})\n'
            f"classifier({text}, truncation=True)"
        )
    limits = [*facts.limits]
    if facts.kind == "tag":
        limits.append(
            "It was trained on words. Given as words, they get the tags of crossling. In running text transformers' "
            "pipeline takes what stands between spaces for a word, punctuation and all, and a text longer than "
            "`model_max_length` subwords is cut off."
        )
    usage = f"```python\n{first}{call}\n```"
    return replace(facts, usage=usage, library="transformers", limits=tuple(limits))


def _write_metadata(facts: ModelFacts) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    pipeline = PIPELINES.get(facts.kind)
    codes = [*(facts.sources or (facts.source,)), *(result.language for result in facts.results)]
    known = [language.code for language in map(find_language, codes) if language]
    place = facts.seeds.index(facts.seed) if facts.results else 0
    results = [
        EvalResult(
            task_type=pipeline or facts.kind,
            dataset_type=used.repository or used.set,
            dataset_name=f"{used.set}, {name_result(result)}",
            dataset_config=result.variant or result.language,
            dataset_split=used.role,
            metric_type=_name_metric(name),
            metric_name=name,
            metric_value=round(values[place], 4),
        )
        for used, result in zip(facts.tested, facts.results, strict=True)
        for name, values in _list_scores(facts, result)
    ]
    data = ModelCardData(
        language=list(dict.fromkeys(known)) or None,
        library_name=facts.library,
        pipeline_tag=pipeline,
        base_model=facts.repository or None,
        datasets=list(dict.fromkeys(used.repository for used in facts.data if used.repository)) or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        tags=["crossling", "cross-lingual"],
        model_name=facts.name,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---"


def _list_scores(facts: ModelFacts, result: LanguageResult) -> list[tuple[str, tuple[float, ...]]]:
    """The main score and a few others, each with a value for every seed."""
    ordered = sorted(result.scores.items(), key=lambda item: item[0] != facts.main_score)
    return ordered[:TERMINAL_SCORES]


def _name_metric(score: str) -> str:
    return next((metric for ending, metric in _METRICS.items() if score.endswith(ending)), "f1")


def _describe(facts: ModelFacts) -> str:
    what = f"A model that {_KINDS.get(facts.kind, 'has no task')}" + (f" ({facts.task})" if facts.task else "")
    languages = ", ".join(map(name_of, facts.sources or (facts.source,)))
    text = f"{what}. It was trained from {facts.base} on labels in {languages}, with crossling."
    if facts.labels:
        shown = [f"`{' '.join(label.split()).replace('`', chr(39))}`" for label in facts.labels[:SHOWN_LABELS]]
        rest = len(facts.labels) - len(shown)
        text += f"\n\nLabels: {', '.join(shown)}" + (f" and {rest:,} more" if rest else "")
    return text


def _show_usage(facts: ModelFacts) -> str:
    example = _INPUTS.get(facts.kind, "…")
    return (
        "This folder needs nothing else: `pip install crossling`, then\n\n```python\nimport crossling\n\n"
        f"model = crossling.load({json.dumps(facts.name, ensure_ascii=False)})  # the folder\n"
        f'crossling.predict(model, [{example}], language="en")\n```'
    )


def _describe_training(facts: ModelFacts) -> str:
    if not facts.recorded:
        return ""
    lines = [f"{number}. {markdown_text(stage)}" for number, stage in enumerate(facts.stages, 1)]
    others = f"; seeds {', '.join(map(str, facts.seeds))} were trained" if len(facts.seeds) > 1 else ""
    rows = tuple(
        (used.role, used.name, name_of(used.language), "?" if used.rows is None else f"{used.rows:,}")
        for used in facts.data
    )
    table = Table("Data", ("role", "data set", "language", "rows"), rows, names=3).to_markdown(level=3)
    made = ", ".join(f"{name} {facts.machine[name]}" for name in ("crossling", "torch") if name in facts.machine)
    made = f" Made with {made}." if made else ""
    return "## Training\n\n" + "\n".join(lines) + f"\n\nThis model has seed {facts.seed}{others}.{made}\n\n{table}"


def _show_scores(facts: ModelFacts) -> str:
    if not facts.results:
        return ""
    place = facts.seeds.index(facts.seed)
    several = len(facts.seeds) > 1
    head = ["data set", "split", "language", "labels", "rows", facts.main_score, *(["all seeds"] if several else [])]
    rows = []
    for used, result in zip(facts.tested, facts.results, strict=True):
        own = format_percent(result.scores[facts.main_score][place])
        mean = [format_percent(result.mean(facts.main_score), result.spread(facts.main_score))] if several else []
        seen = "trained on" if _is_trained(facts, result) else "zero-shot"
        rows.append((used.set, used.role, name_result(result), seen, f"{result.examples:,}", own, *mean))
    notes = ("all seeds: mean ± standard deviation",) if several else ()
    return Table("Scores", tuple(head), tuple(rows), names=4, notes=notes).to_markdown()


def _is_trained(facts: ModelFacts, result: LanguageResult) -> bool:
    return any(is_same_language(result.language, code) for code in facts.sources)


def list_limits(facts: ModelFacts) -> list[str]:
    """What the record does not show, and what it shows that lowers the worth of a score."""
    limits = list(facts.limits)
    if not facts.recorded:
        return [*limits, "The record of its training was not found: its data, seeds and scores are not known here."]
    scored = list(dict.fromkeys(result.language for result in facts.results))
    if scored:
        limits.append(
            f"Scored in {', '.join(map(name_of, scored))}, and in no other language. The encoder reads more languages, "
            "but how well the model does there was not measured."
        )
    else:
        limits.append("It was not scored in any language.")
    unscored = [code for code in facts.sources if not any(is_same_language(code, other) for other in scored)]
    if unscored and scored:
        limits.append(f"Trained on, but not scored: {', '.join(map(name_of, unscored))}.")
    if len(facts.seeds) == 1:
        limits.append("One seed was trained: how much scores differ from seed to seed is not known.")
    development = sorted({used.role for used in facts.tested if not used.role.startswith("test")})
    if development:
        limits.append(f"Scores are on {', '.join(development)}, not on a test split.")
    parts = sorted({f"{used.set} {used.role}" for used in facts.tested if "[" in used.role})
    if parts:
        limits.append(f"Scored on a part of the split: {', '.join(parts)}.")
    return limits


def _show_licences(facts: ModelFacts) -> str:
    """Licences of data as the catalogue states them; nothing is concluded from them."""
    if not facts.recorded:
        return ""
    stated = _collect_licences([*facts.data, *facts.tested])
    table = Table("Licences", ("data set", "licence as stated"), stated, names=2).to_markdown()
    return f"{table}\n{markdown_text(facts.base)} has a licence of its own, which is not recorded here."


def _collect_licences(data: Sequence[UsedData]) -> tuple[tuple[str, str], ...]:
    found = {used.set: used.licence for used in data}
    return tuple(sorted(found.items()))
