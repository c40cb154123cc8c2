"""Consistency training in whole stages on tiny encoders: what is learnt, what counts in identities, what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from crossling.aligners.lexicon import Lexicon, write_lexicon
from crossling.data.batching import Batch
from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.errors import RecipeError
from crossling.models.model import Model
from crossling.objectives.consistency import ConsistencySettings
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import EncoderSettings, freeze, load_recipe, parse_recipe
from crossling.stages import finetune, task_training
from crossling.stages.consistent_task import open_lexicons
from crossling.stages.context import StageContext
from crossling.store.artefacts import Store
from crossling.study.memory import measure_load
from crossling.study.recipe_run import run_recipe
from crossling.training.distributed import Distributed
from examples import make_rows
from parallel_text import describe, make_linked
from tiny import save_tiny, tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
PAGE = Path(__file__).parent.parent.parent / "docs" / "consistency.md"
PLAIN: dict[str, Any] = {"train": "made:en", "select": "last", "epochs": 2, "batch": 8, "lr": 1e-3}
CUT = {"subwords": 0.5, "alpha": 0.0}
TASKS: dict[str, Any] = {
    "tag": TaggedSentence,
    "classify": LabelledText,
    "classify_pair": LabelledPair,
    "answer": Question,
}
LEXICON = Lexicon(("en", "ru"), {"cat": [("кошка", 1.0)], "the": [("не", 1.0)], "dog": [("猫", 1.0)]})


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    for family in ("bert", "xlm-r-initials"):
        save_tiny(folder / family, family, layers=1)
    return folder


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.en-ru.tsv"
    write_lexicon(LEXICON, path)
    return str(path)


def _settings(kind: str = "tag", **changes: Any) -> finetune.Settings:
    task: dict[str, Any] = {"kind": kind}
    if kind == "answer":
        task |= {"length": 48, "question": 8, "overlap": 8}
    return finetune.Settings.model_validate(freeze({"task": task, **PLAIN, **changes}))


def _train(
    folder: Path, encoder: Path, settings: finetune.Settings, data: finetune.Data
) -> tuple[Model, dict[str, Any]]:
    context = StageContext(
        1, "en", load_encoder(str(encoder)), EncoderSettings(name=str(encoder)), ONE, folder / "work", folder
    )
    model, _, record = finetune.train(settings, data, context)
    return model, record


@pytest.mark.parametrize(
    ("kind", "family"), [(kind, "xlm-r-initials") for kind in TASKS] + [("tag", "bert"), ("classify_pair", "bert")]
)
def test_every_task_learns_from_copies(tmp_path: Path, encoders: Path, kind: str, family: str) -> None:
    """With a trimmed vocabulary, which has the subwords of copies, too."""
    data = finetune.Data((make_rows(TASKS[kind]),), None)
    model, record = _train(tmp_path, encoders / family, _settings(kind, consistency=CUT), data)
    assert model.trimmed is not None
    entries = [entry for entry in record["history"] if "loss" in entry]
    assert entries and all(entry[f"{kind}_consistency"] > 0 for entry in entries)
    for entry in entries:
        assert entry["loss"] == pytest.approx(entry[kind] + entry[f"{kind}_consistency"], abs=1e-5)
    assert record["steps"] == 2 * 3, "as many updates as without copies"


def test_words_are_replaced_beside_auxiliary_tasks_and_replay(
    tmp_path: Path, encoders: Path, lexicon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    original = task_training.make_consistent_stream
    monkeypatch.setattr(
        task_training, "make_consistent_stream", lambda *a, **k: seen.append(original(*a, **k)) or seen[-1]
    )
    rows = make_rows(TaggedSentence)
    data = finetune.Data((rows,), None, ((make_rows(LabelledPair, 16),),), describe(make_linked()), (LEXICON,))
    settings = _settings(
        consistency={"words": 1.0, "lexicon": [lexicon], "learn": "original"},
        auxiliary=[{"task": {"kind": "classify_pair"}, "train": "made:en"}],
        replay={"parallel": "made:en-ru", "batch": 4},
        accumulate=2,
    )
    _, record = _train(tmp_path, encoders / "bert", settings, data)
    entry = record["history"][0]
    assert {"tag", "tag_consistency", "auxiliary-0-classify_pair", "replay_pull"} <= set(entry)
    examples = seen[0].examples
    copies = examples.copy(np.arange(len(examples)), 0)
    tokenizer = load_encoder(str(encoders / "bert")).tokenizer
    cats = [row for row in range(len(examples)) if tokenizer.vocab["cat"] in examples.get("ids", row)]
    assert cats and all(tokenizer.vocab["кошка"] in copies.get("ids", row) for row in cats)


def test_shares_of_processes_add_up_to_the_whole_batch(tmp_path: Path, encoders: Path) -> None:
    from crossling.inference.evaluate import encode_rows
    from crossling.objectives.consistency import make_consistent, vary_examples
    from crossling.tasks import learn_labels

    encoder = load_encoder(str(encoders / "xlm-r-initials"))
    settings, rows = ConsistencySettings(**CUT), make_rows(TaggedSentence)
    task = learn_labels(_settings().task, [rows])
    examples = encode_rows(task, [rows], encoder, cache=tmp_path, labels=task.labels)
    varied = vary_examples(examples, settings, encoder, seed=1)
    objective = make_consistent(task.build_objective("tag"), settings)
    length = int(varied.lengths.max())
    whole = objective.collate(varied, Batch(np.arange(8), length, 2), size=8)
    parts = [objective.collate(varied, Batch(np.arange(8)[rank::2], length, 2), size=4) for rank in range(2)]
    for rank, part in enumerate(parts):
        for name, values in part.items():
            assert np.array_equal(values, whole[name][rank::2]), name
    counts = [objective.count_targets(part) for part in parts]
    assert [sum(pair) for pair in zip(*(c[::3] for c in counts), strict=True)] == list(
        objective.count_targets(whole)[::3]
    )


def test_identity_counts_what_is_used_and_a_lexicon_by_its_content(tmp_path: Path, lexicon: str) -> None:
    rows = (make_rows(TaggedSentence),)

    def identify(*, lexicons: tuple[Lexicon, ...] = (), **changes: Any) -> Any:
        return finetune.identity_inputs(_settings(**changes), finetune.Data(rows, None, lexicons=lexicons))

    plain = identify()
    assert plain == identify(consistency=False)
    assert "consistency" not in plain["settings"] and "lexicons" not in plain["data"]
    assert identify(consistency=CUT) != plain != identify(consistency={**CUT, "weight": 2.0})
    words: dict[str, Any] = {"words": 0.2, "lexicon": [lexicon]}
    here = identify(consistency=words, lexicons=(LEXICON,))
    assert here == identify(consistency={**words, "lexicon": ["elsewhere.tsv"]}, lexicons=(LEXICON,))
    other = Lexicon(("en", "ru"), {"cat": [("кот", 1.0)]})
    assert here != identify(consistency=words, lexicons=(other,))


def test_lexicon_must_translate_from_a_language_of_the_training_data(tmp_path: Path, lexicon: str) -> None:
    settings = ConsistencySettings(words=0.5, lexicon=(lexicon,))
    (found,), text = open_lexicons(settings, [make_rows(TaggedSentence)], store=tmp_path)
    assert found.translations == LEXICON.translations and text == ()
    with pytest.raises(RecipeError, match="translates from 'en', but training data are in 'de'"):
        open_lexicons(settings, [make_rows(TaggedSentence, language="de")], store=tmp_path)


def test_wrong_settings_name_the_key() -> None:
    table = {"encoder": {"name": "x"}, "stage": [{"kind": "finetune", "task": "ner", "train": "panx:en"}]}
    for consistency, said in (
        ({"subword": 0.3}, r"stage.0.consistency.subword: unknown key.*subwords"),
        ({"subwords": 2.0}, r"stage.0.consistency.subwords = 2.0"),
        ({"words": 0.3}, r"stage.0.consistency: lexicon: missing"),
    ):
        table["stage"] = [{**table["stage"][0], "consistency": consistency}]
        with pytest.raises(RecipeError, match=said):
            parse_recipe(table)
    with pytest.raises(ValidationError):
        _settings(consistency=True)


def test_teach_stage_has_the_consistency_of_the_stage_before_unless_it_says_otherwise() -> None:
    first = {"kind": "finetune", "task": "ner", "train": "panx:en", "consistency": CUT}
    encoder = {"name": "x"}
    for named, expected in (({}, True), ({"consistency": False}, False), ({"consistency": {"subwords": 1}}, True)):
        taught = {"kind": "teach", "text": ["panx:de"], **named}
        recipe = parse_recipe({"encoder": encoder, "stage": [first, taught]})
        assert (recipe.stage[1].consistency is not None) == expected  # type: ignore[attr-defined]
        again = parse_recipe(tomllib.loads(to_toml(recipe.model_dump(mode="json"))))
        assert again.stage == recipe.stage, "a stored recipe says the same"


def test_students_learn_from_copies_of_labelled_and_taught_examples(
    tmp_path: Path, encoders: Path, lexicon: str
) -> None:
    stage = {"kind": "finetune", "task": "ner", "train": "phrasebook-ner:en:train[:16]", "select": "last", "epochs": 1}
    taught = {
        "kind": "teach",
        "text": ["phrasebook-ner:de:train[:8]"],
        "teachers": 1,
        "keep": "all",
        "labels": "soft",
        "consistency": {**CUT, "words": 0.5, "lexicon": [lexicon]},
    }
    tables = {"encoder": {"name": str(encoders / "xlm-r-initials")}, "stage": [stage, taught], "run": {"threads": 1}}
    done = run_recipe(parse_recipe(tables), store=Store(tmp_path / "store"), out=tmp_path / "out")
    first, second = (done.store.record(identity)["history"][0] for identity in done.identify_stages(1))
    assert "tag_consistency" not in first and second["tag_consistency"] > 0


def test_forecast_of_memory_counts_copies() -> None:
    encoder, rows = tiny_encoder(), [make_rows(TaggedSentence)]
    plain, copied = (measure_load(_settings(**how), rows, encoder) for how in ({}, {"consistency": CUT}))
    assert copied.batch == 2 * plain.batch and copied.length > plain.length


def test_recipe_of_the_page_runs(tmp_path: Path, flat_folder: Path) -> None:
    (listing,) = re.findall(r"```toml\n(\[encoder.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    small = listing.replace("multilingual-e5-small", str(flat_folder)).replace("[:400]", "[:24]")
    (tmp_path / "recipe.toml").write_text(small, encoding="utf-8")
    shown = [
        "stage.0.epochs=1",
        "stage.0.dev=phrasebook-ner:en:dev[:8]",
        "run.threads=1",
        'evaluate.0.languages=["de"]',
    ]
    recipe = load_recipe(tmp_path / "recipe.toml", [*shown, "evaluate.0.split=test[:8]"])
    done = run_recipe(recipe, store=Store(tmp_path / "store"), out=tmp_path / "out")
    record = done.store.record(done.identify_stages(1)[-1])
    assert any("tag_consistency" in entry for entry in record["history"])
