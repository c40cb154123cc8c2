"""Loading and saving: folders, the hub, poolers, identities and vocabularies of checkpoints."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.encoders.encoder import Encoder
from crossling.encoders.extending import extend_on
from crossling.encoders.loading import load_encoder, paused_collection, save_encoder
from crossling.errors import EncoderError, StorageError
from hub import environment, serve
from prepared import run_code
from tiny import FAMILIES, save_tiny, tiny_encoder

TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生"]


def batch(encoder: Encoder) -> tuple[Tensor, Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return inputs["input_ids"], inputs["attention_mask"]


@pytest.mark.parametrize("family", FAMILIES)
def test_missing_pooler_is_not_initialised_at_random(family: str, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    encoder = load_encoder(str(save_tiny(tmp_path / "saved", family)))
    assert not encoder.has_pooler
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(EncoderError, match='pooling = "mean"'):
        encoder.pool_cls(torch.zeros(1, 1, 16))


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_encoder_round_trips(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    encoder = tiny_encoder(family)
    folder = save_encoder(encoder, tmp_path / "saved")
    again = load_encoder(str(folder))
    ids, mask = batch(encoder)
    assert torch.equal(batch(again)[0], ids)
    with torch.no_grad():
        expected = encoder(ids, mask, layers=(3,))[3]
        assert torch.equal(again(ids, mask, layers=(3,))[3], expected)
        theirs = AutoModel.from_pretrained(folder)(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.allclose(theirs[mask.bool()], expected[mask.bool()], atol=1e-5)
    assert AutoTokenizer.from_pretrained(folder)(TEXTS[1])["input_ids"] == encoder.tokenizer(TEXTS[1])["input_ids"]
    assert (again.name, again.max_length, again.vocabulary) == ("saved", 512, encoder.vocabulary)
    assert all(parameter.dtype == torch.float32 for parameter in again.parameters())


def test_identity_depends_on_content(tmp_path: Path) -> None:
    assert tiny_encoder("bert").identity == tiny_encoder("bert").identity
    assert tiny_encoder("bert").identity != tiny_encoder("bert", seed=1).identity
    first, same = save_tiny(tmp_path / "a", "bert"), save_tiny(tmp_path / "b", "bert")
    other = save_tiny(tmp_path / "c", "bert", seed=1)
    assert load_encoder(str(first)).identity == load_encoder(str(same)).identity
    assert load_encoder(str(first)).identity != load_encoder(str(other)).identity
    (first / "README.md").write_text("not part of it")
    assert load_encoder(str(first)).identity == load_encoder(str(same)).identity


def test_half_precision_checkpoints_are_loaded_as_float32(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert")
    encoder.model.to(torch.float16)
    again = load_encoder(str(save_encoder(encoder, tmp_path / "half")))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}


def break_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_wrong_folders_are_refused_with_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderError, match=r"holds no config\.json"):
        load_encoder(str(tmp_path / "empty"))
    pickled = save_tiny(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(EncoderError, match=r"pytorch_model\.bin, which would have to be unpickled.*save_pretrained"):
        load_encoder(str(pickled))
    other = save_tiny(tmp_path / "other")
    break_config(other, model_type="vit")
    with pytest.raises(EncoderError, match=r"'vit'.*distilbert, electra,.* roberta, .*xlm-roberta, .*are supported"):
        load_encoder(str(other))
    break_config(other, model_type="gpt2")
    with pytest.raises(EncoderError, match=r"not complete: it lacks h\.0\.attn"):
        load_encoder(str(other))
    taller = save_tiny(tmp_path / "taller")
    break_config(taller, num_hidden_layers=4)
    with pytest.raises(EncoderError, match=r"not complete: it lacks encoder\.layer\.3"):
        load_encoder(str(taller))
    cut = save_tiny(tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_encoder(str(cut))
    broken = save_tiny(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(EncoderError, match="cannot be used"):
        load_encoder(str(broken))
    with pytest.raises(EncoderError, match="no such folder"):
        load_encoder(str(tmp_path / "nothing" / "here"))


LOAD = """
import sys
from crossling.encoders.loading import load_encoder
from crossling.errors import EncoderError
for name in sys.argv[1:]:
    name, _, revision = name.partition("@")
    try:
        encoder = load_encoder(name, revision=revision or None)
        print("loaded", encoder.name, encoder.identity)
    except EncoderError as error:
        print("error", error)
"""


def load_elsewhere(endpoint: str, home: Path, *names: str, **more: str) -> list[str]:
    done = run_code(LOAD, *names, variables=environment(endpoint, home, **more))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_full_disk_while_downloading_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        load_encoder("group/encoder")


def test_hub_names_are_downloaded_or_suggested(tmp_path: Path) -> None:
    good = save_tiny(tmp_path / "hub" / "models" / "group" / "tiny", "xlm-r")
    (good / "pytorch_model.bin").write_bytes(b"never fetched")
    (good / "onnx").mkdir()
    (good / "onnx" / "model.safetensors").write_bytes(b"never fetched")
    pickled = save_tiny(tmp_path / "hub" / "models" / "group" / "pickled", "bert")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    home = tmp_path / "home"
    with serve(tmp_path / "hub") as endpoint:
        found, lost, unsafe = load_elsewhere(
            endpoint, home, "group/tiny", "xlm-roberta-bas", "group/pickled", HF_HUB_DISABLE_XET="1"
        )
    assert found == f"loaded group/tiny {load_encoder(str(good)).identity}"
    assert "neither a folder here nor a name on the hub" in lost and "Did you mean 'xlm-roberta-base'" in lost
    assert unsafe.startswith("error") and "no model.safetensors" in unsafe and "refs/pr" in unsafe
    assert not [path for path in home.rglob("*") if path.is_file() and path.read_bytes() == b"never fetched"]
    # The server is gone: what was fetched is still there, what was not says how to go on without a network.
    cached, known, other = load_elsewhere(
        endpoint, home, "group/tiny", "xlm-roberta-base", "xlm-roberta-bas", HF_HUB_OFFLINE="1"
    )
    assert cached == found
    for away in (known, other):
        assert "cannot be reached" in away and "`multilingual-e5-small` needs no network" in away
    assert "the name is right, but it is not downloaded yet" in known and "Did you mean" not in known
    assert "Did you mean 'xlm-roberta-base'" in other


HINDI = "किताब किताबें लडका लडके कमल कमला पानी पानी बहन बहनें बहन किताब लडके बहनें कमल कमला लडका किताबें\n"


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def strip_to_vocabulary_file(folder: Path, more: list[str]) -> None:
    """As extended BERTs are published: a vocabulary file, weights, and a configuration that fits them."""
    pieces = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    listed = sorted(pieces, key=lambda piece: int(pieces[piece])) + more
    write(folder / "vocab.txt", "".join(f"{piece}\n" for piece in listed))


def test_externally_extended_vocabulary_is_loaded(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "bert", "bert")
    strip_to_vocabulary_file(folder, ["##ताब", "कमल"])
    encoder = load_encoder(str(folder))
    known = len(tiny_encoder("bert").tokenizer)
    assert encoder.tokenizer.encode("कमल", add_special_tokens=False)[0] == known + 1
    assert encoder.tokenizer.tokenize("किताब London") == ["क", "##ि", "##ताब", "London"]  # not lower-cased
    extended = extend_on(str(folder), write(tmp_path / "text.txt", HINDI), pieces=3, out=tmp_path / "new")
    assert extended.merges == 3 and len(load_encoder(str(tmp_path / "new")).tokenizer) == known + 5


def test_vocabulary_without_capitals_is_lower_cased(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "bert", "bert")
    strip_to_vocabulary_file(folder, [])
    path = folder / "vocab.txt"
    write(path, path.read_text(encoding="utf-8").replace("London", "london"))
    lines = [line if line.startswith("[") else line.lower() for line in path.read_text(encoding="utf-8").splitlines()]
    write(path, "\n".join(f"{line}{i}" if lines.index(line) < i else line for i, line in enumerate(lines)) + "\n")
    assert load_encoder(str(folder)).tokenizer.tokenize("London") == ["london"]


def test_mismatched_vocabulary_sizes_are_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "bert", "bert")
    strip_to_vocabulary_file(folder, [f"कमल{'ा' * n}" for n in range(1, 9)])
    with pytest.raises(EncoderError, match=r"subwords up to 435, but its weights only 431 rows"):
        load_encoder(str(folder))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write(folder / "config.json", json.dumps(config | {"vocab_size": 500}))
    with pytest.raises(EncoderError, match=r"vocab_size = 500, but its weights have 431 rows"):
        load_encoder(str(folder))


def test_garbage_collector_runs_again_after_loading(tmp_path: Path) -> None:
    assert gc.isenabled()
    with paused_collection():
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    with pytest.raises(EncoderError):
        load_encoder(str(tmp_path))
    assert gc.isenabled()


def test_workers_exempt_libraries_from_collection_once() -> None:
    """What a later job leaves behind is still looked at."""
    code = (
        "import gc; from crossling.encoders.loading import exempt_libraries;"
        "from crossling.study.worker import import_all; import_all(); first = gc.get_freeze_count();"
        "later = [[] for _ in range(1000)]; exempt_libraries(); print(first, gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, again = map(int, done.stdout.split())
    assert first > 100_000, "what transformers and torch created"
    assert again <= first
