"""What is said of an encoder before its weights are downloaded, on the stand-in for the hub and on folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling.cli.show_data import show_encoder
from crossling.encoders.coverage import count_subwords
from crossling.encoders.loading import load_encoder
from crossling.encoders.without_weights import open_checkpoint
from crossling.errors import DataError, EncoderError
from crossling.phrasebook import generate
from crossling.study import encoder_report
from crossling.study.encoder_report import EncoderReport, inspect_encoder
from hub import serve
from tiny import save_tiny, save_with_head, tiny_tokenizer


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a hub's models; the hub's client of this process uses the stand-in.

    Instead of the offline encoder's tokenizer, which takes seconds to build, there is a tiny one to compare with.
    """
    import huggingface_hub

    folder = tmp_path / "hub" / "models" / "group"
    folder.mkdir(parents=True)
    monkeypatch.setattr(encoder_report, "find_offline_file", Path)
    monkeypatch.setattr(encoder_report, "BlockFile", Path)
    monkeypatch.setattr(encoder_report, "build_tokenizer", lambda _: tiny_tokenizer("xlm-r-initials"))
    with serve(tmp_path / "hub") as endpoint:
        api = huggingface_hub.HfApi(endpoint=endpoint)
        cache = tmp_path / "cache"
        monkeypatch.setattr(
            huggingface_hub, "snapshot_download", lambda *a, **k: api.snapshot_download(*a, cache_dir=cache, **k)
        )
        monkeypatch.setattr(huggingface_hub, "list_repo_files", api.list_repo_files)
        monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", api.get_safetensors_metadata)
        yield folder


def inspect(name: object, *languages: str) -> EncoderReport:
    return inspect_encoder(str(name), languages or ("en",), store=Path("store"))


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def test_hub_encoder_is_described_without_its_weights(models: Path, tmp_path: Path) -> None:
    save_with_head(models / "xlm", "xlm-r")
    (models / "xlm" / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n", encoding="utf-8")
    report = inspect("group/xlm", "en", "zu")
    loaded, checkpoint = load_encoder(str(models / "xlm")), report.checkpoint
    assert checkpoint.reasons == () and checkpoint.head is True and checkpoint.pooler is False
    assert checkpoint.licence == "apache-2.0" and checkpoint.bytes_to_fetch
    assert checkpoint.encoder is not None
    assert all(parameter.is_meta for parameter in checkpoint.encoder.parameters())
    shapes = {name: tensor.shape for name, tensor in checkpoint.encoder.named_parameters()}
    assert shapes == {name: tensor.shape for name, tensor in loaded.named_parameters()}
    weights = (models / "xlm" / "model.safetensors").read_bytes()
    fetched = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert fetched and not any(path.read_bytes() == weights for path in fetched)
    english, zulu = report.tokenizations
    assert zulu.text == "" and english.text == "phrasebook"
    sentences = [row.words for row in generate("pos", "en", "train", rows=1000)]
    assert (english.fertility, english.unknown) == count_subwords(tiny_tokenizer("xlm-r"), sentences)
    assert english.offline == count_subwords(tiny_tokenizer("xlm-r-initials"), sentences)


def test_folder_and_hub_are_described_alike(models: Path) -> None:
    save_tiny(models / "tiny", "bert", pooler=True)
    here, there = inspect(models / "tiny").facts(), inspect("group/tiny").facts()
    assert there.pop("to download") and there.pop("encoder") == "group/tiny" and here.pop("encoder") == "tiny"
    assert here == there
    assert here["pooler"] == "yes" and here["licence"] == "not stated" and here["masked-word head"].startswith("no")
    assert "32 x 128" in here["memory to train"] and here["longest input"] == "512 subwords"


def test_reasons_against_an_encoder_are_all_given(models: Path) -> None:
    for name in ("pickled", "code", "other"):
        save_tiny(models / name, "bert")
    (models / "pickled" / "model.safetensors").rename(models / "pickled" / "pytorch_model.bin")
    change(models / "code" / "config.json", auto_map={"AutoModel": "code.py"})
    (models / "code" / "model.safetensors").rename(models / "code" / "pytorch_model.bin")
    change(models / "other" / "config.json", model_type="vit")
    for place in (models, Path("group")):
        pickled, code, other = (inspect(place / name).checkpoint for name in ("pickled", "code", "other"))
        assert len(pickled.reasons) == 1 and "pytorch_model.bin" in pickled.reasons[0]
        assert pickled.encoder is not None and pickled.head is None
        assert len(code.reasons) == 2 and "code that comes with the model" in code.reasons[1] and code.encoder is None
        assert len(other.reasons) == 1 and "'vit'" in other.reasons[0]


def test_tokenizer_of_another_encoder_is_noticed_by_shapes_alone(models: Path) -> None:
    save_tiny(models / "tiny", "bert")
    tiny_tokenizer("xlm-r").save_pretrained(models / "tiny")
    change(models / "tiny" / "config.json", vocab_size=100)
    assert any("vocab_size = 100" in reason for reason in inspect("group/tiny").checkpoint.reasons)


def test_weights_of_another_architecture_are_noticed_by_names_alone(models: Path) -> None:
    save_tiny(models / "tiny", "bert", layers=3)
    change(models / "tiny" / "config.json", num_hidden_layers=2)
    (reason,) = inspect("group/tiny").checkpoint.reasons
    assert "another architecture" in reason and "layer.2" in reason


def test_large_weights_take_neither_memory_nor_disk(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that promises 2 TB is a file with a hole, and a model of that size is on the meta device."""
    import huggingface_hub
    from huggingface_hub.utils import SafetensorsFileMetadata, SafetensorsRepoMetadata, TensorInfo

    save_tiny(models / "tiny", "bert")
    sizes = {"vocab_size": 10_000_000, "hidden_size": 50_000, "intermediate_size": 10_000}
    change(models / "tiny" / "config.json", **sizes)
    tensor = TensorInfo(dtype="F32", shape=[10_000_000, 50_000], data_offsets=(0, 2_000_000_000_000))
    file = SafetensorsFileMetadata(metadata={}, tensors={"embeddings.word_embeddings.weight": tensor})
    listed = SafetensorsRepoMetadata(metadata=None, sharded=False, weight_map={}, files_metadata={"model": file})
    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", lambda *_, **__: listed)
    report = inspect("group/tiny")
    assert report.checkpoint.reasons == () and report.checkpoint.bytes_to_fetch == 2_000_000_000_000
    assert report.facts()["to download"] == "2,000,000 MB" and "million" in report.facts()["parameters"]


def test_encoder_without_mask_is_usable_with_limits(models: Path) -> None:
    folder = save_tiny(models / "tiny", "xlm-r")
    change(folder / "tokenizer_config.json", mask_token=None)
    report = inspect(folder)
    assert not report.checkpoint.reasons and any("no mask" in limit for limit in report.limits())


def test_folders_and_names_that_are_no_encoder_are_errors(models: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderError, match="not an encoder's folder"):
        open_checkpoint(str(tmp_path / "empty"))
    with pytest.raises(EncoderError, match="neither a folder here nor a name on the hub"):
        open_checkpoint("group/none")
    with pytest.raises(DataError, match="Did you mean 'hi'"):
        inspect("group/none", "hindu")


def test_report_is_shown_in_words(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_tiny(models / "tiny", "bert", layers=2, pooler=True)
    show_encoder(inspect("group/tiny", "de", "zu"))
    printed = capsys.readouterr().out
    assert "2 a layer, 4 in all" in printed and "German" in printed and "No text of zu is at hand" in printed
    assert "It can be used" in printed and "not stated" in printed
