"""The README of an exported model: metadata that the hub's client reads, what is recorded and what is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard import metadata_load

import crossling
from crossling.models.model import load_model
from crossling.report.readme import list_limits, write_readme
from crossling.study.export import export_model
from crossling.study.model_facts import _find_repository, _name_base, describe_model
from crossling.study.run_record import find_model
from hub import environment

Trained = Callable[[str], Path]
RECIPE = {
    "seeds": [1, 2],
    "stage": [
        {
            "kind": "finetune",
            "task": "ner",
            "train": ["phrasebook-ner:en:train[:16]", {"format": "bio", "path": "mine.tsv", "language": "sw"}],
            "epochs": 1,
            "select": "last",
        }
    ],
    "evaluate": [
        {"on": "phrasebook-ner", "languages": ["en", "hi"], "split": "test[:4]"},
        {"on": "phrasebook-ner", "languages": ["de"], "split": "dev"},
    ],
    "run": {"threads": 1},
}


@pytest.fixture(scope="module")
def run(flat_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    mine = folder / "secret" / "mine.tsv"
    mine.parent.mkdir()
    mine.write_text("Juma\tB-PER\nanaishi\tO\n\n", encoding="utf-8")
    recipe = json.loads(json.dumps(RECIPE).replace("mine.tsv", str(mine)))
    recipe["encoder"] = {"name": str(flat_folder)}
    crossling.run(crossling.api.parse_recipe(recipe), out=folder / "out", store=folder / "store")
    return folder / "out"


@pytest.fixture(scope="module")
def readme(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "tagger"
    export_model(run / "seed-2", out, store=out.parent)
    return out / "README.md"


def test_metadata_survives_the_round_trip_of_the_hubs_client(readme: Path) -> None:
    card = ModelCard.load(readme)
    assert isinstance(card.data, ModelCardData)
    again = ModelCardData(**yaml.safe_load(card.data.to_yaml()))
    assert again.to_dict() == card.data.to_dict() == ModelCardData(**metadata_load(readme)).to_dict()
    assert card.data.language == ["en", "sw", "hi", "de"]
    assert card.data.pipeline_tag == "token-classification" and card.data.library_name == "crossling"
    assert card.data.base_model is None  # a folder is no name on the hub


def test_scores_are_those_of_the_exported_seed(readme: Path, run: Path) -> None:
    card = ModelCard.load(readme)
    facts = describe_model(run, load_model(find_model(run))[1], name="tagger", seed=2)
    assert isinstance(card.data, ModelCardData) and card.data.eval_results
    found = {
        (one.dataset_config, one.dataset_split): one.metric_value
        for one in card.data.eval_results
        if one.metric_name == "span_f1"
    }
    assert found == {
        (result.language, used.role): round(result.scores["span_f1"][1], 4)
        for used, result in zip(facts.tested, facts.results, strict=True)
    }
    assert len(found) == 3


def test_limits_are_stated(readme: Path, run: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    assert "Scored in English, Hindi, German, and in no other language" in text
    assert "Trained on, but not scored: Swahili" in text
    assert "Scores are on dev, not on a test split" in text
    assert "Scored on a part of the split: phrasebook-ner test[:4]" in text
    assert "This model has seed 2; seeds 1, 2 were trained." in text
    assert "One seed" not in text and "Transductive" not in text
    assert "| phrasebook-ner | Apache-2.0 |" in text and "| mine.tsv | a custom file: not recorded |" in text
    facts = describe_model(run, load_model(find_model(run))[1], name="x", seed=1)
    assert any("One seed was trained" in limit for limit in list_limits(replace(facts, seeds=(1,))))
    assert list_limits(replace(facts, results=(), tested=()))[0] == "It was not scored in any language."


def test_readme_names_no_folder_of_the_machine(readme: Path, run: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    assert "secret" not in text and str(run.parent) not in text and "/" + "tmp" not in text


def test_labels_cannot_break_the_page(run: Path) -> None:
    facts = describe_model(run, load_model(find_model(run))[1], name="x", seed=1)
    text = write_readme(replace(facts, labels=("`x`\n# y", *map(str, range(60)))))
    assert "Labels: `'x' # y`, `0`," in text and "and 11 more" in text


def test_saved_model_without_record_says_so(trained: Trained, tmp_path: Path) -> None:
    export_model(trained("qa"), tmp_path / "out", store=tmp_path)
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "The record of its training was not found" in text
    assert metadata_load(tmp_path / "out" / "README.md")["pipeline_tag"] == "question-answering"


def test_base_under_other_terms_is_named_with_them() -> None:
    assert "Gemma Terms of Use" in _name_base("gemma-3-270m")
    assert _find_repository("gemma-3-270m") == "google/gemma-3-270m"


def test_unfinished_run_is_named(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    next((copy / "seed-2").rglob("hi.parquet")).unlink()
    facts = describe_model(copy, load_model(find_model(run))[1], name="x", seed=1)
    assert [result.language for result in facts.results] == ["en", "de"]
    assert any("Without scores: phrasebook-ner:hi:test[:4]" in limit for limit in facts.limits)


class _Validator(BaseHTTPRequestHandler):
    """The hub's validator as far as its protocol is public: metadata must be a YAML mapping with known types."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        data = yaml.safe_load(body["content"].split("---")[1])
        good = self.path == "/api/validate-yaml" and body["repoType"] == "model" and isinstance(data, dict)
        good &= isinstance(data.get("language"), list) and all(len(code) in (2, 3) for code in data["language"])
        good &= all({"task", "dataset", "metrics"} <= result.keys() for result in data["model-index"][0]["results"])
        self.send_response(200 if good else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_client_sends_the_card_to_the_validator(readme: Path, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Validator)
    Thread(target=server.serve_forever, daemon=True).start()
    code = f"from huggingface_hub import ModelCard; ModelCard.load({str(readme)!r}).validate()"
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(endpoint, tmp_path), capture_output=True, text=True, check=False
    )
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
