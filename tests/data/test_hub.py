"""Hub data sets, read for real over HTTP from a stand-in that serves Parquet made here."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hub import environment, hash_repository, serve
from prepared import run_code

OPEN = """
import json, sys
from crossling.data import hub
hub.REACH_SECONDS = float(sys.argv[1])
from dataclasses import asdict
from pathlib import Path
from crossling.data.catalogue import open_data
from crossling.errors import DataError

results = []
for spec in sys.argv[3:]:
    try:
        rows = open_data(spec, store=Path(sys.argv[2]))
        results.append({"rows": [asdict(row) for row in rows], "fingerprint": rows.fingerprint,
            "kind": rows.kind.__name__, "language": rows.language, "skipped": rows.skipped,
            "labels": rows.labels() if rows.kind.__name__ == "LabelledPair" else None,
            "datasets": "datasets" in sys.modules})
    except DataError as error:
        results.append({"error": str(error)})
print(json.dumps(results))
"""

NER_TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]


def write_table(folder: Path, config: str, split: str, columns: dict[str, Any], features: dict[str, Any]) -> None:
    """Parquet as the hub has it: the features, with class names, in the schema's metadata."""
    path = folder / config / (f"{split}.parquet" if split.isdigit() else f"{split}-00000-of-00001.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    info = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(info), path)


def write_card(folder: Path, configs: dict[str, list[str]]) -> None:
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    text = {"dtype": "string", "_type": "Value"}
    xnli = root / "datasets" / "facebook" / "xnli"
    label = {"names": ["entailment", "neutral", "contradiction"], "_type": "ClassLabel"}
    columns = {
        "premise": ["Die Katze schläft.", "Er liest\u2028laut.", "Es regnet."],
        "hypothesis": ["Ein Tier ruht.", "Er schweigt.", "Es ist Montag."],
        "label": [0, 2, 1],
    }
    for split in ("train", "validation", "test"):
        write_table(xnli, "de", split, columns, {"premise": text, "hypothesis": text, "label": label})
    write_card(xnli, {"de": ["train", "validation", "test"]})

    panx = root / "datasets" / "unimelb-nlp" / "wikiann"
    tags = {"feature": {"names": NER_TAGS, "_type": "ClassLabel"}, "_type": "List"}
    tokens = {"feature": text, "_type": "List"}
    columns = {"tokens": [["Asha", "anaishi", "Arusha"], ["", "x"]], "ner_tags": [[1, 0, 5], [0, 0]]}
    write_table(panx, "sw", "validation", columns, {"tokens": tokens, "ner_tags": tags})
    columns = {"tokens": [["Asha", "anaishi", "Arusha"]], "ner_tags": [[1, 0, 5]]}
    write_table(panx, "sw", "test", columns, {"tokens": tokens, "ner_tags": tags})
    write_card(panx, {"sw": ["validation", "test"]})

    paws = root / "datasets" / "google-research-datasets" / "paws-x"
    columns = {"sentence1": ["Es regnet.", "", "Er liest."], "sentence2": ["Es gießt.", "", "Er schweigt."]}
    binary = {"names": ["0", "1"], "_type": "ClassLabel"}
    features = {"sentence1": text, "sentence2": text, "label": binary}
    write_table(paws, "de", "train", {**columns, "label": [1, 0, 0]}, features)
    write_card(paws, {"de": ["train"]})

    squad = root / "datasets" / "google" / "xquad"
    answers = pa.array(
        [{"text": ["Arusha"], "answer_start": [13]}],
        pa.struct({"text": pa.list_(pa.string()), "answer_start": pa.list_(pa.int32())}),
    )
    number = {"dtype": "int32", "_type": "Value"}
    inner = {"text": {"feature": text, "_type": "List"}, "answer_start": {"feature": number, "_type": "List"}}
    columns = {"id": ["q1"], "context": ["Asha lebt in Arusha."], "question": ["Wo?"], "answers": answers}
    features = {"id": text, "context": text, "question": text, "answers": inner}
    write_table(squad, "xquad.de", "validation", columns, features)
    write_card(squad, {"xquad.de": ["validation"]})

    tydi = root / "datasets" / "google-research-datasets" / "tydiqa"
    columns = {
        "id": ["swahili-1", "english-2"],
        "context": ["Asha lebt in Arusha.", "Asha lives in Arusha."],
        "question": ["Wapi?", "Where?"],
        "answers": pa.array(
            [{"text": ["Arusha"], "answer_start": [13]}, {"text": ["Arusha"], "answer_start": [14]}],
            answers.type,
        ),
    }
    write_table(tydi, "secondary_task", "train", columns, features)
    write_card(tydi, {"secondary_task": ["train"]})

    opus = root / "datasets" / "Helsinki-NLP" / "opus-100"
    both = pa.array([{"en": "It rains.", "ko": "비가 온다."}, {"en": "Open!", "ko": "열려라!"}, {"en": "", "ko": "x"}])
    for split, rows in (("train", both), ("validation", both[:2]), ("test", both[1:2])):
        write_table(opus, "en-ko", split, {"translation": rows}, {"translation": {"en": text, "ko": text}})
    write_card(opus, {"en-ko": ["train", "validation", "test"]})

    for config in ("mlqa.es.en", "mlqa.en.en"):  # the hub's own conversion: a folder a split, and no card
        columns = {"id": [config], "context": ["Asha lebt in Arusha."], "question": ["Wo?"], "answers": answers}
        for split in ("test", "validation"):
            write_table(root / "datasets" / "facebook" / "mlqa", f"{config}/{split}", "0000", columns, features)
    return root


def open_in_process(spec: str, store: Path, variables: dict[str, str], *, timeout: float = 120.0) -> dict[str, Any]:
    """What a process of its own reads; ``timeout``: seconds after which a hub that is silent counts as unreachable."""
    [result] = open_all([spec], store, variables, timeout=timeout)
    return result


def open_all(
    specs: list[str], store: Path, variables: dict[str, str], *, timeout: float = 120.0
) -> list[dict[str, Any]]:
    """The same of several sets, in one process."""
    done = run_code(OPEN, timeout, store, *specs, variables=variables)
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_rows_are_read_offline_from_caches(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        online = open_in_process("xnli:de:dev", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert online["kind"] == "LabelledPair" and online["language"] == "de"
    assert [row["label"] for row in online["rows"]] == ["entailment", "contradiction", "neutral"]
    assert online["rows"][1]["first"] == "Er liest\u2028laut."
    assert online["labels"] == ["contradiction", "entailment", "neutral"]

    away = environment(endpoint, tmp_path / "hf", HF_HUB_OFFLINE="1")
    stored = open_in_process("xnli:de:dev", tmp_path / "a", away)
    assert stored["rows"] == online["rows"] and stored["fingerprint"] == online["fingerprint"]
    assert not stored["datasets"], "the store has the rows; the hub's library need not even be imported"

    # another store: the rows come out of the hub library's own cache, under the same commit
    cached = open_in_process("xnli:de:dev", tmp_path / "b", away)
    assert cached["rows"] == online["rows"] and cached["fingerprint"] == online["fingerprint"]


def test_converted_sets_are_read_by_configuration_folder(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        variables = environment(endpoint, tmp_path / "hf")
        specs = [f"mlqa:context={language},question=en:test" for language in ("es", "de")]
        online, absent = open_all(specs, tmp_path / "a", variables)
    assert [row["id"] for row in online["rows"]] == ["mlqa.es.en"], "and no other configuration's rows"
    assert "facebook/mlqa (configuration mlqa.de.en" in absent["error"]
    gone = open_in_process("mlqa:context=es,question=en:test", tmp_path / "a", variables)
    assert gone["rows"] == online["rows"] and gone["fingerprint"] == online["fingerprint"]


def test_parallel_text_is_read_in_both_directions(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        specs = ["opus:en-ko:dev", "opus:ko-en:dev", "opus:ko-en:train", "opus:fi-ko:train"]
        there, back, empty, absent = open_all(specs, tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert there["rows"][0] == {"source": "It rains.", "target": "비가 온다."} and there["kind"] == "ParallelPair"
    assert [(row["target"], row["source"]) for row in back["rows"]] == [
        (row["source"], row["target"]) for row in there["rows"]
    ]
    assert back["fingerprint"] != there["fingerprint"]
    assert "Helsinki-NLP/opus-100/train row 3: target is empty" in empty["error"]
    assert "Helsinki-NLP/opus-100 (configuration fi-ko, revision main) cannot be loaded from the hub" in absent["error"]
    assert "opus-100-corpus/v1.0/supervised/fi-ko/opus.fi-ko-train.fi" in absent["error"]


def test_mixed_sides_are_read_from_hub(folder: Path, tmp_path: Path) -> None:
    english = tmp_path / "hub" / "datasets" / "facebook" / "xnli"
    shutil.copytree(folder / "datasets" / "facebook" / "xnli" / "de", english / "de")
    shutil.copytree(english / "de", english / "en")
    write_card(english, {"de": ["test"], "en": ["test"]})
    with serve(tmp_path / "hub") as endpoint:
        mixed = open_in_process("xnli@mixed:de:test", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert len(mixed["rows"]) == 3 and mixed["language"] == "de"


def test_script_sets_are_read_from_conversion(folder: Path, tmp_path: Path) -> None:
    repositories = tmp_path / "hub" / "datasets" / "rajpurkar"
    converted = repositories / "squad@refs%2Fconvert%2Fparquet" / "plain_text"
    shutil.copytree(folder / "datasets" / "facebook" / "mlqa" / "mlqa.es.en", converted)
    (repositories / "squad").mkdir()
    (repositories / "squad" / "squad.py").write_text("", encoding="utf-8")
    with serve(tmp_path / "hub") as endpoint:
        result = open_in_process("squad:en:dev", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
        again = open_in_process("squad:en:dev", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert [row["question"] for row in result["rows"]] == ["Wo?"] and again["fingerprint"] == result["fingerprint"]


def test_silent_hub_times_out(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = open_in_process("xnli:de:dev", tmp_path / "a", environment(endpoint, tmp_path / "hf"), timeout=1)
    assert f"xnli:de:dev: the hub ({endpoint}) cannot be reached" in result["error"]
    assert "facebook/xnli (configuration de, revision main) is not in its cache" in result["error"]
    assert "CROSSLING_DATA is not set; set it to a folder that has xnli/dev-de.tsv" in result["error"]


def test_cache_of_another_revision_is_not_used(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        online = open_in_process("panx:sw:test", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    away = environment(endpoint, tmp_path / "hf")
    commit = hash_repository(folder / "datasets" / "unimelb-nlp" / "wikiann")
    specs = [f"panx@{revision}:sw:test" for revision in ("0" * 40, commit)]
    other, same = open_all(specs, tmp_path / "a", away)
    assert "its cache here has another revision" in other["error"]
    assert same["rows"] == online["rows"]


def test_dead_hub_falls_back_to_cache(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        online = open_in_process("panx:sw:test", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    gone = open_in_process("panx:sw:test", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert gone["rows"] == online["rows"] == [{"words": ["Asha", "anaishi", "Arusha"], "tags": ["B-PER", "O", "B-LOC"]}]


def test_broken_rows_and_missing_splits_are_errors(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        specs = ["panx:sw:dev", "panx:sw:train", "pawsx:de:dev"]
        broken, absent, missing = open_all(specs, tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert "unimelb-nlp/wikiann/validation row 2" in broken["error"] and "words is empty" in broken["error"]
    assert "CROSSLING_DATA" not in broken["error"], "the set is there: only a row of it is broken"
    assert "'train'" in absent["error"] and "validation" in absent["error"], "the splits there are"
    assert "google-research-datasets/paws-x" in missing["error"]
    assert "CROSSLING_DATA is not set" in missing["error"]


def test_rows_whose_translation_failed_are_left_out_and_counted(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        found = open_in_process("pawsx:de:train", tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert [row["first"] for row in found["rows"]] == ["Es regnet.", "Er liest."]
    assert found["skipped"] == 1


def test_nested_questions_are_selected_by_language(folder: Path, tmp_path: Path) -> None:
    with serve(folder) as endpoint:
        specs = ["xquad:de:test", "tydiqa:sw:train"]
        xquad, tydi = open_all(specs, tmp_path / "a", environment(endpoint, tmp_path / "hf"))
    assert xquad["rows"][0]["answers"] == ["Arusha"] and xquad["rows"][0]["starts"] == [13]
    assert [row["id"] for row in tydi["rows"]] == ["swahili-1"]
