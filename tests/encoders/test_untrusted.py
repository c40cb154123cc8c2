"""An untrusted checkpoint is data: code, links, absurd sizes and broken weights are refused before they count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crossling.encoders.loading import hash_folder, load_encoder
from crossling.encoders.masked_word_head import has_head
from crossling.encoders.untrusted import LARGEST_JSON, is_finite
from crossling.errors import EncoderError
from tiny import FAMILIES, save_tiny, save_with_head


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "given", "bert")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))


def name_remote_code(folder: Path) -> None:
    change(folder / "config.json", auto_map={"AutoModel": "modeling_evil.Evil"})
    (folder / "modeling_evil.py").write_text("raise SystemExit('ran')")


def name_tokenizer_code(folder: Path) -> None:
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})


def link_outside(folder: Path) -> None:
    secret = folder.parent / "secret.safetensors"
    (folder / "model.safetensors").rename(secret)
    (folder / "model.safetensors").symlink_to(secret)


def name_a_file_outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    (folder / "model-1.safetensors").write_bytes((folder.parent / "outside.safetensors").read_bytes())
    change(folder / "model.safetensors.index.json", weight_map={"a": "../outside.safetensors"})


def name_pickled_weights(folder: Path) -> None:
    change(folder / "model.safetensors.index.json", weight_map={"a": "pytorch_model.bin"})


def name_a_missing_file(folder: Path) -> None:
    change(folder / "model.safetensors.index.json", weight_map={"a": "model-9.safetensors"})


def replace_a_file_by_a_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


def ask_for_much(folder: Path) -> None:
    change(folder / "config.json", hidden_size=65_536, intermediate_size=262_144)


def ask_for_layers(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=10**9)


def give_words_as_sizes(folder: Path) -> None:
    change(folder / "config.json", hidden_size="16")


def truncate_the_configuration(folder: Path) -> None:
    (folder / "config.json").write_text((folder / "config.json").read_text()[:-5])


def nest_the_configuration(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000 + "]" * 100_000)


def give_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def break_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    next(w for w in weights.values() if w.ndim == 2)[0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (name_remote_code, "never run"),
        (name_tokenizer_code, "never run"),
        (link_outside, "leads outside"),
        (name_a_file_outside, "in the same folder"),
        (name_pickled_weights, "in the same folder"),
        (name_a_missing_file, "is missing"),
        (replace_a_file_by_a_folder, "not a regular file"),
        (ask_for_much, "asks for about"),
        (ask_for_layers, "num_hidden_layers = 1000000000"),
        (give_words_as_sizes, "hidden_size = '16'"),
        (truncate_the_configuration, "config.json cannot be used"),
        (nest_the_configuration, "config.json cannot be used"),
        (give_a_list, "not an object"),
        (break_a_weight, "not a number"),
    ],
)
def test_hostile_folders_are_refused(folder: Path, corrupt: Callable[[Path], None], message: str) -> None:
    corrupt(folder)
    with pytest.raises(EncoderError, match=message):
        load_encoder(str(folder))


def test_a_huge_configuration_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(LARGEST_JSON + 1)
    with pytest.raises(EncoderError, match="has more than"):
        load_encoder(str(folder))


@pytest.mark.parametrize("family", FAMILIES)
def test_links_of_the_cache_of_the_hub_are_followed(family: str, tmp_path: Path) -> None:
    saved = save_tiny(tmp_path / "saved", family)
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "1f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(saved.iterdir()):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    assert load_encoder(str(snapshot)).width == 16


def _copy_weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Other weights beside a checkpoint's, under another name."""
    weights = {key: weight + 1 for key, weight in load_file(folder / "model.safetensors").items()}
    (folder / name).parent.mkdir(exist_ok=True)
    save_file(weights, folder / name, metadata={"format": "pt"})
    return weights


@pytest.mark.parametrize("name", ["other.safetensors", "below/model.safetensors", "modelX.safetensors"])
def test_weights_under_a_name_that_the_identity_does_not_cover_are_never_loaded(name: str, folder: Path) -> None:
    _copy_weights(folder, name)
    change(folder / "config.json", transformers_weights=name)
    with pytest.raises(EncoderError, match=r"given cannot be loaded: .*" + Path(name).name):
        load_encoder(str(folder))


@pytest.mark.parametrize("extra", ["adapter_config.json", "tekken.json", "tiktoken.model", "chat_template.jinja"])
def test_files_that_the_identity_does_not_cover_are_not_seen(
    extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import BertModel

    before = load_encoder(str(folder))
    (folder / extra).write_text('{"base_model_name_or_path": "elsewhere"}')
    load, seen = BertModel.from_pretrained, []

    def watch(place: Path, **settings: object) -> object:
        seen.extend(path.name for path in Path(place).iterdir())
        return load(place, **settings)

    monkeypatch.setattr(BertModel, "from_pretrained", watch)
    after = load_encoder(str(folder))
    assert "model.safetensors" in seen and extra not in seen
    assert after.identity == before.identity
    assert after.tokenizer.get_vocab() == before.tokenizer.get_vocab()


@pytest.mark.parametrize("family", FAMILIES)
def test_identity_covers_every_file_that_is_saved_and_loaded(family: str, tmp_path: Path) -> None:
    """A byte more in any file of a checkpoint, of one or of several files of weights, is another encoder."""
    whole = save_tiny(tmp_path / "whole", family)
    load_encoder(str(whole)).model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    for path in whole.iterdir():
        if path.name.startswith(("tokenizer", "special")):
            (tmp_path / "parts" / path.name).write_bytes(path.read_bytes())
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 1
    for folder in (whole, tmp_path / "parts"):
        identity = load_encoder(str(folder)).identity
        for path in folder.iterdir():
            content = path.read_bytes()
            path.write_bytes(content + b"\n")
            assert hash_folder(folder) != identity, path.name
            path.write_bytes(content)
        assert hash_folder(folder) == identity


def test_head_is_read_from_covered_files_only(tmp_path: Path) -> None:
    save_with_head(tmp_path / "given", "bert")
    whole = load_file(tmp_path / "given" / "model.safetensors")
    head = {key: weight for key, weight in whole.items() if key.startswith("cls.")}
    save_file({key: weight for key, weight in whole.items() if key not in head}, tmp_path / "given/model.safetensors")
    save_file(head, tmp_path / "given" / "modelX.safetensors")
    assert not has_head(str(tmp_path / "given"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_finite_even_where_their_sum_is_not(dtype: torch.dtype) -> None:
    weight = torch.full((64,), torch.finfo(dtype).max, dtype=dtype)
    assert is_finite(weight) and is_finite(torch.zeros(0)) and is_finite(torch.ones(3, dtype=torch.int64))
    for value in (torch.inf, -torch.inf, torch.nan):
        assert not is_finite(weight.clone().index_fill_(0, torch.tensor(5), value))
    assert not is_finite(torch.tensor([torch.inf, -torch.inf]))
