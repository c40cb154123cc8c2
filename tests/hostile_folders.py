"""Hostile folders of encoders and models, made by a seed: each must be refused with a message.

See ``hostile.py`` for how they are used. A kind of attack is a function that corrupts a good folder; a die decides on
which family, which of several keys or values, and by how much, so that every seed gives another folder.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from crossling.encoders.four_bit_blocks import write_blocks
from crossling.encoders.loading import load_encoder
from crossling.errors import UserError
from crossling.files import hash_file
from crossling.inference.predictor import Predictor
from crossling.models.card import list_loaded
from crossling.models.model import ROWS, ModelCard, build_model, save_model
from crossling.models.standalone import write_standalone
from crossling.tasks import build_task, parse_task
from tiny import FAMILIES, save_tiny, tiny_encoder
from tiny_blocks import write_tiny_blocks

MARKER = "an-attack-was-run"
"""A file that every piece of hostile code would write into the working folder."""
SECRET = "secret.txt"
"""A file outside of every hostile folder, which must be neither changed nor loaded."""
CODE = f"import pathlib\npathlib.Path({MARKER!r}).write_text('')\n"
PICKLE = b"cpathlib\nPath\n(V" + MARKER.encode() + b"\ntR(lcpathlib\nPath.touch\n0."
Corrupt = Callable[[Path, random.Random], None]
LABELS = ("A", "B-X", "I-X", "O")
SIZES = {
    "width": ("hidden_size", "dim"),
    "layers": ("num_hidden_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_heads"),
    "inner": ("intermediate_size", "hidden_dim"),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings",),
}
"""What families call their sizes."""


@dataclass(frozen=True)
class HostileFolder:
    """A folder that no command may load, and what is wrong with it."""

    attack: str
    path: Path
    is_model: bool

    def open(self) -> None:
        """Load it as a command would; must raise a UserError."""
        if self.is_model:
            Predictor.load(self.path).predict(["the cat sleeps"])
        else:
            load_encoder(str(self.path))

    def refusal(self) -> str:
        """The message with which it is refused; an AssertionError where it is not, or in another way."""
        try:
            self.open()
        except UserError as error:
            return str(error)
        except BaseException as error:
            raise AssertionError(f"{self.attack}: {self.path} raised {type(error).__name__}: {error}") from error
        raise AssertionError(f"{self.attack}: {self.path} was loaded")


def make_good_folders(root: Path) -> None:
    """The folders that attacks begin from: encoders of all families, standalone and stored models, one for ONNX."""
    for number, family in enumerate(FAMILIES):
        encoder = save_tiny(root / "encoder" / family, family, seed=number)
        save_tiny(root / "with-pooler" / family, family, pooler=True) if family in ("bert", "xlm-r") else None
        task = build_task(parse_task("ner"), LABELS)
        for kind in ("standalone", "stored"):
            base = load_encoder(str(encoder))
            model = build_model(base, {"kind": "dlfa", "layer": 1} if number % 2 else {"kind": "last"})
            model.heads["main"] = task.build_objective("main").build_head(base.width)
            stored: Any = {"main": {"settings": task.settings.model_dump(mode="json"), "labels": list(LABELS)}}
            fusion = {"kind": "dlfa", "layer": 1} if number % 2 else {"kind": "last"}
            card = ModelCard(str(encoder), base.identity, fusion=fusion, tasks=stored)
            if kind == "standalone":
                write_standalone(model.eval(), card, root / kind / family)
            else:
                model.trim(torch.arange(40).numpy())
                save_model(model.eval(), card, root / kind / family)
    _make_onnx(root / "onnx")
    write_tiny_blocks(root / "tiny.bin")
    write_blocks(root / "tiny.bin", np.arange(13), root / "blocks" / "tiny", name="tiny")
    (root / SECRET).write_text("a secret")


def _make_onnx(folder: Path) -> None:
    from crossling.inference.onnx.export import export_onnx

    encoder = tiny_encoder("xlm-r", layers=1)
    task = build_task(parse_task("ner"), LABELS)
    model = build_model(encoder, {"kind": "last"})
    model.heads["main"] = task.build_objective("main").build_head(encoder.width)
    stored: Any = {"main": {"settings": task.settings.model_dump(mode="json"), "labels": list(LABELS)}}
    export_onnx(model.eval(), ModelCard("base", encoder.identity, tasks=stored), folder / "xlm-r")


def make_hostile_folder(good: Path, out: Path, seed: int) -> HostileFolder:
    """Copy one of the ``good`` folders to ``out`` and corrupt it; the seed decides how.

    Consecutive seeds go through all attacks in turn.
    """
    dice = random.Random(f"hostile folder {seed}")
    names = list(ATTACKS)
    attack = names[seed % len(names)]
    group, corrupt = ATTACKS[attack]
    kind = dice.choice(("encoder", "standalone")) if group == "encoder" else group
    family = {"onnx": "xlm-r", "blocks": "tiny"}.get(kind) or dice.choice(FAMILIES)
    shutil.copytree(good / kind / family, out)
    corrupt(out, dice)
    is_model = kind not in ("encoder", "blocks")
    if is_model:
        _seal_again(out)
    return HostileFolder(attack, out, is_model)


def _seal_again(folder: Path) -> None:
    """Write the digests of the corrupted files into the card: an attacker would."""
    if not (folder / "model.json").is_file() or (folder / "model.json").stat().st_size > 10**6:
        return
    try:
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        names = set(card["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if not names:
        return
    for path in list_loaded(folder):
        if path.is_file() and path.stat().st_size < 10**8:
            card["files"][path.name] = {"bytes": path.stat().st_size, "sha256": hash_file(path)}
    (folder / "model.json").write_text(json.dumps(card), encoding="utf-8")


ATTACKS: dict[str, tuple[str, Corrupt]] = {}
"""By name: which folder is corrupted (of an encoder, alone or in a model; of a stored model; for ONNX), and how."""


def attack(group: str) -> Callable[[Corrupt], Corrupt]:
    """Register a way to corrupt a folder of a group."""

    def register(corrupt: Corrupt) -> Corrupt:
        ATTACKS[f"{corrupt.__name__} ({group})"] = (group, corrupt)
        return corrupt

    return register


def change(path: Path, **values: Any) -> None:
    """Set values in a JSON file."""
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values), encoding="utf-8")


def set_size(folder: Path, size: str, value: Any) -> None:
    """Set a size in the configuration, under the family's name of it."""
    config = json.loads((folder / "config.json").read_text())
    key = next(key for key in SIZES[size] if key in config)
    change(folder / "config.json", **{key: value})


def get_size(folder: Path, size: str) -> int:
    """A size of the configuration."""
    config = json.loads((folder / "config.json").read_text())
    return int(next(config[key] for key in SIZES[size] if key in config))


def change_weights(path: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Write a safetensors file again, edited."""
    weights = {name: weight.clone() for name, weight in load_file(path).items()}
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


def pick_weight(weights: dict[str, torch.Tensor], dice: random.Random, *, start: str = "") -> str:
    """A weight that every model of the family has and loads."""
    return dice.choice(sorted(n for n, w in weights.items() if w.is_floating_point() and n.startswith(start)))


def corrupt_json(path: Path, dice: random.Random) -> None:
    """Make a JSON file one that cannot be used."""
    text = path.read_text(encoding="utf-8")
    depth = dice.randint(10_000, 200_000)
    path.write_bytes(
        dice.choice(
            [
                text[: dice.randrange(1, len(text) - 1)].encode(),
                b"",
                b"[]",
                b"null",
                str(dice.random()).encode(),
                text.encode("utf-16"),
                b"\0" * dice.randint(1, 100) + text.encode(),
                b"[" * depth + b"]" * depth,
                b'{"a":' * depth + b"1" + b"}" * depth,
                text.encode() + text.encode(),
                b'{"a": ' + b"9" * dice.randint(5_000, 9_000) + b"}",
                b"\xff" + text.encode(),
            ]
        )
    )


def replace_by_other(path: Path, dice: random.Random) -> None:
    """Put something that is no regular file in a file's place; reading it could last for ever."""
    path.unlink()
    kind = dice.choice(("folder", "pipe", "socket", "endless", "loop", "nowhere"))
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            here = Path.cwd()
            os.chdir(path.parent)  # the path of a socket has 107 bytes at most
            try:
                listening.bind(path.name)
            finally:
                os.chdir(here)
    else:
        path.symlink_to({"endless": "/dev/zero", "loop": path.name, "nowhere": "/nonexistent/file"}[kind])


def link_outside(path: Path, dice: random.Random) -> None:
    """Put a link to the same content outside of the folder in a file's place."""
    outside = path.parent.parent / f"outside-{dice.randrange(10**9)}{path.suffix}"
    path.rename(outside)
    path.symlink_to(outside)


# Code, links, and files that are none.


@attack("encoder")
def code_in_the_configuration(folder: Path, dice: random.Random) -> None:
    (folder / "evil.py").write_text(CODE)
    key = dice.choice(("AutoModel", "AutoConfig", "AutoModelForMaskedLM"))
    change(folder / "config.json", auto_map={key: dice.choice(("evil.Evil", "other/repository--evil.Evil"))})


@attack("encoder")
def code_of_the_tokenizer(folder: Path, dice: random.Random) -> None:
    (folder / "evil.py").write_text(CODE)
    value: Any = dice.choice((["evil.Evil", None], {"AutoTokenizer": [None, "evil.Evil"]}, "evil.Evil", 7))
    change(folder / "tokenizer_config.json", auto_map=value)


@attack("encoder")
def an_unknown_class_of_model(folder: Path, dice: random.Random) -> None:
    name: Any = dice.choice(("evil", "", "../evil", "gpt2", "t5", "clip", 7, None, ["bert"], {"a": 1}, "llama\0"))
    change(folder / "config.json", model_type=name)


@attack("encoder")
def pickled_weights_alone(folder: Path, dice: random.Random) -> None:
    (folder / "model.safetensors").unlink()
    (folder / dice.choice(("pytorch_model.bin", "model.pt", "flax_model.msgpack"))).write_bytes(PICKLE)


@attack("encoder")
def an_index_of_pickled_weights(folder: Path, dice: random.Random) -> None:
    (folder / "pytorch_model.bin").write_bytes(PICKLE)
    name = dice.choice(("pytorch_model.bin", "model-1.bin", "./pytorch_model.bin"))
    change(folder / "model.safetensors.index.json", metadata={}, weight_map={"a": name})


@attack("encoder")
def an_index_that_leads_outside(folder: Path, dice: random.Random) -> None:
    outside = folder.parent / f"outside-{dice.randrange(10**9)}.safetensors"
    shutil.copy(folder / "model.safetensors", outside)
    name = dice.choice((f"../{outside.name}", str(outside), f"x/../../{outside.name}", f"..\\{outside.name}"))
    change(folder / "model.safetensors.index.json", metadata={}, weight_map={"a": name})


@attack("encoder")
def an_index_of_missing_files(folder: Path, dice: random.Random) -> None:
    mapping: Any = dice.choice(({"a": "model-9.safetensors"}, {"a": 7}, {}, [], None, "model.safetensors", {"a": None}))
    change(folder / "model.safetensors.index.json", metadata={}, weight_map=mapping)


@attack("encoder")
def a_broken_index(folder: Path, dice: random.Random) -> None:
    change(folder / "model.safetensors.index.json", metadata={}, weight_map={"a": "model.safetensors"})
    corrupt_json(folder / "model.safetensors.index.json", dice)


@attack("encoder")
def a_link_that_leads_outside(folder: Path, dice: random.Random) -> None:
    link_outside(folder / dice.choice(("model.safetensors", "config.json", "tokenizer.json")), dice)


@attack("encoder")
def weights_that_are_no_file(folder: Path, dice: random.Random) -> None:
    replace_by_other(folder / "model.safetensors", dice)


@attack("encoder")
def a_configuration_that_is_no_file(folder: Path, dice: random.Random) -> None:
    replace_by_other(folder / "config.json", dice)


@attack("encoder")
def a_tokenizer_that_is_no_file(folder: Path, dice: random.Random) -> None:
    replace_by_other(folder / dice.choice(("tokenizer.json", "tokenizer_config.json")), dice)


@attack("encoder")
def a_tokenizer_named_outside(folder: Path, dice: random.Random) -> None:
    outside = folder.parent / "tokenizer.1.0.0.json"
    if not outside.exists():
        shutil.copy(folder / "tokenizer.json", outside)
    names = [dice.choice(("../tokenizer.1.0.0.json", str(outside), "a/../../tokenizer.1.0.0.json"))]
    change(folder / "tokenizer_config.json", fast_tokenizer_files=dice.choice((names, names * 3)))


# Configurations.


@attack("encoder")
def a_broken_configuration(folder: Path, dice: random.Random) -> None:
    corrupt_json(folder / "config.json", dice)


@attack("encoder")
def an_endless_configuration(folder: Path, dice: random.Random) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(10**9 + dice.randrange(10**9))


@attack("encoder")
def a_huge_size(folder: Path, dice: random.Random) -> None:
    set_size(folder, dice.choice(sorted(SIZES)), dice.choice((2**31, 2**63, 10 ** dice.randint(9, 30))))


@attack("encoder")
def a_size_too_large_for_the_weights(folder: Path, dice: random.Random) -> None:
    has_table = json.loads((folder / "config.json").read_text())["model_type"] != "modernbert"
    size = dice.choice(("width", "inner", "vocabulary", *(["positions"] if has_table else [])))
    set_size(folder, size, get_size(folder, size) * dice.choice((2, 4, 64, 1024)))


@attack("encoder")
def more_layers_than_weights(folder: Path, dice: random.Random) -> None:
    set_size(folder, "layers", get_size(folder, "layers") + dice.randint(1, 900))


@attack("encoder")
def a_size_that_is_no_number(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice(("16", 16.0, True, None, [16], {"a": 16}, math.nan, math.inf, -math.inf, 1e30))
    set_size(folder, dice.choice(sorted(SIZES)), value)


@attack("encoder")
def a_size_below_one(folder: Path, dice: random.Random) -> None:
    set_size(folder, dice.choice(sorted(SIZES)), -dice.choice((0, 1, 2**31, dice.randrange(10**6))))


@attack("encoder")
def heads_that_do_not_divide_the_width(folder: Path, dice: random.Random) -> None:
    set_size(folder, "heads", dice.choice((3, 5, 6, 7, 9, 11, 13, 32, 1000)))


@attack("encoder")
def an_unknown_activation(folder: Path, dice: random.Random) -> None:
    config = json.loads((folder / "config.json").read_text())
    key = next(key for key in ("hidden_act", "activation", "hidden_activation") if key in config)
    value: Any = dice.choice(("evil", "__import__('os')", "", 7, None, ["gelu"], "gelu\0"))
    change(folder / "config.json", **{key: value})


@attack("encoder")
def a_dropout_that_is_none(folder: Path, dice: random.Random) -> None:
    config = json.loads((folder / "config.json").read_text())
    keys = [key for key in config if key.endswith(("dropout", "dropout_prob"))]
    keys = [key for key in keys if isinstance(config[key], float)]
    value: Any = dice.choice((-0.1, 1.5, math.nan, math.inf, "0.1", [0.1], 10**9))
    change(folder / "config.json", **{dice.choice(keys): value})


@attack("encoder")
def a_normalisation_that_is_none(folder: Path, dice: random.Random) -> None:
    config = json.loads((folder / "config.json").read_text())
    key = next((key for key in ("layer_norm_eps", "norm_eps") if key in config), "layer_norm_eps")
    change(folder / "config.json", **{key: dice.choice((-1.0, math.nan, math.inf, "small", [], 1e9))})


@attack("encoder")
def a_padding_outside_the_vocabulary(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((-1, 10**6, 2**40, "0", 1.5, [1]))
    change(folder / "config.json", pad_token_id=value)


@attack("encoder")
def a_quantisation(folder: Path, dice: random.Random) -> None:
    method = dice.choice(("gptq", "awq", "bitsandbytes", "fp8", "evil", "torchao"))
    change(folder / "config.json", quantization_config={"quant_method": method, "bits": dice.choice((2, 3, 4, 8))})


@attack("encoder")
def a_decoder(folder: Path, dice: random.Random) -> None:
    change(folder / "config.json", **{dice.choice(("is_decoder", "add_cross_attention", "is_encoder_decoder")): True})


@attack("encoder")
def pruned_heads(folder: Path, dice: random.Random) -> None:
    change(folder / "config.json", pruned_heads={str(dice.randrange(3)): [0]})


# Weights.


@attack("encoder")
def weights_that_are_not_numbers(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        weight = weights[pick_weight(weights, dice)].view(-1)
        weight[dice.randrange(len(weight))] = dice.choice((math.nan, math.inf, -math.inf))

    change_weights(folder / "model.safetensors", edit)


@attack("encoder")
def weights_of_another_type(folder: Path, dice: random.Random) -> None:
    kind = dice.choice((torch.int64, torch.int32, torch.uint8, torch.bool, torch.int8, torch.int16))

    def edit(weights: dict[str, torch.Tensor]) -> None:
        name = pick_weight(weights, dice)
        weights[name] = weights[name].to(kind)

    change_weights(folder / "model.safetensors", edit)


@attack("encoder")
def weights_of_another_shape(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        name = pick_weight(weights, dice)
        weight = weights[name]
        weights[name] = dice.choice((weight[:-1], torch.cat([weight, weight]), weight[None], weight.new_zeros(0)))
        weights[name] = weights[name].contiguous()

    change_weights(folder / "model.safetensors", edit)


@attack("encoder")
def a_missing_weight(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        del weights[pick_weight(weights, dice)]

    change_weights(folder / "model.safetensors", edit)


@attack("encoder")
def truncated_weights(folder: Path, dice: random.Random) -> None:
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(dice.randrange(path.stat().st_size))


@attack("encoder")
def a_false_header_of_weights(folder: Path, dice: random.Random) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    kind = dice.choice(("length", "offsets", "shape", "json", "type"))
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    body = content[8 + struct.unpack("<Q", content[:8])[0] :]
    name = dice.choice(sorted(key for key in header if key != "__metadata__"))
    if kind == "length":
        path.write_bytes(struct.pack("<Q", dice.choice((2**63, 2**40, 10**9, 0))) + content[8:])
        return
    if kind == "offsets":
        header[name]["data_offsets"] = dice.choice(([0, 2**62], [-8, 0], [16, 0], ["0", "8"], []))
    elif kind == "shape":
        header[name]["shape"] = dice.choice(([2**40, 2**40], [-1], [2**63], "16", [1] * 100))
    elif kind == "type":
        header[name]["dtype"] = dice.choice(("F1024", "PICKLE", 7, None))
    text = json.dumps(header).encode() if kind != "json" else b"[" * 50_000
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


# Tokenizers.


@attack("encoder")
def a_broken_tokenizer(folder: Path, dice: random.Random) -> None:
    corrupt_json(folder / "tokenizer.json", dice)


@attack("encoder")
def a_broken_configuration_of_the_tokenizer(folder: Path, dice: random.Random) -> None:
    corrupt_json(folder / "tokenizer_config.json", dice)


@attack("encoder")
def a_tokenizer_with_more_subwords_than_weights(folder: Path, dice: random.Random) -> None:
    table = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = table["model"]["vocab"]
    for number in range(dice.randint(50, 500)):
        piece = f"hostile{number}"
        vocabulary.append([piece, -9.0]) if isinstance(vocabulary, list) else vocabulary.update({piece: 10**6 + number})
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")


@attack("encoder")
def a_tokenizer_without_special_subwords(folder: Path, dice: random.Random) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    """With none of the three that could fill batches: one of them alone would do."""
    without = ("pad_token", "eos_token", "unk_token")
    for key in (*without, *dice.sample(("cls_token", "sep_token"), dice.randint(0, 2))):
        config[key] = None
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@attack("encoder")
def a_missing_tokenizer(folder: Path, dice: random.Random) -> None:
    for path in folder.glob("tokenizer*" if dice.random() < 0.5 else "tokenizer.json"):
        path.unlink()


# Cards and heads of models.


def change_card(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Write a card again, edited."""
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    edit(card)
    (folder / "model.json").write_text(json.dumps(card), encoding="utf-8")


def on_any_model(corrupt: Corrupt) -> Corrupt:
    """Register an attack for standalone and for stored models."""
    attack("standalone")(corrupt)
    return attack("stored")(corrupt)


@on_any_model
def a_broken_card(folder: Path, dice: random.Random) -> None:
    corrupt_json(folder / "model.json", dice)


@on_any_model
def a_card_that_is_no_file(folder: Path, dice: random.Random) -> None:
    replace_by_other(folder / "model.json", dice)


@attack("standalone")
def files_outside_on_the_card(folder: Path, dice: random.Random) -> None:
    name = dice.choice((f"../{SECRET}", "/etc/passwd", "a/../../x", "..", ".", "", "a\0b", "x/y"))
    change_card(folder, lambda card: card["files"].update({name: {"bytes": 8, "sha256": "0" * 64}}))


@on_any_model
def classes_of_a_head(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((0, -1, 10**12, 2**63, 10**6, "4", 4.5, None, 3, 5, 50_000))
    change_card(folder, lambda card: card["heads"]["main"].update(classes=value))


@on_any_model
def dropout_of_a_head(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((-1.0, 1.0, 7.5, "0.1", None, math.nan, math.inf))
    change_card(folder, lambda card: card["heads"]["main"].update(dropout=value))


@on_any_model
def labels_of_a_task(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice(
        (
            [],
            ["A"],
            ["A", "B-X", "I-X", "O", "C"],
            ["A"] * 4,
            [1, 2, 3, 4],
            "ABCD",
            None,
            ["A", "B", "", "D"],
            ["A\0"] * 4,
        )
    )
    change_card(folder, lambda card: card["tasks"]["main"].update(labels=value))


@on_any_model
def settings_of_a_task(folder: Path, dice: random.Random) -> None:
    values: list[dict[str, Any]] = [{"kind": "os"}, {"kind": "../../evil"}, {"kind": None}, {"length": 10**9}]
    values += [{"length": -1}, {"length": "long"}, {"dropout": 2.0}, {"scheme": "evil"}, {"evil": 1}, {"score": 7}]
    values += [{"kind": "answer"}, {"kind": "__init__"}, {"kind": ["tag"]}, {"preset": "evil"}, {"preset": []}]
    value = dice.choice(values)
    change_card(folder, lambda card: card["tasks"]["main"]["settings"].update(value))


@on_any_model
def a_task_without_a_head(folder: Path, dice: random.Random) -> None:
    key = dice.choice(("heads", "tasks"))
    change_card(folder, lambda card: card[key].update(other=card[key].pop("main")))


@on_any_model
def a_fusion_that_is_none(folder: Path, dice: random.Random) -> None:
    values: list[Any] = [{}, {"kind": "evil"}, {"kind": "../evil"}, {"kind": "dlfa", "layer": 10**9}, {"kind": 7}]
    values += [{"kind": "dlfa", "layer": -1}, {"kind": "mean", "layer": 1, "weight": math.nan}, None, [], "last"]
    values += [{"kind": "dlfa", "layer": 1, "r": 10**9}, {"kind": "dlfa"}, {"kind": "last", "evil": 1}]
    value = dice.choice(values)
    change_card(folder, lambda card: card.update(fusion=value))


@on_any_model
def an_unknown_key_on_the_card(folder: Path, dice: random.Random) -> None:
    change_card(folder, lambda card: card.update({f"evil{dice.randrange(1000)}": 1}))


@on_any_model
def plugins_on_the_card(folder: Path, dice: random.Random) -> None:
    (folder / "gated.py").write_text(CODE)
    value: Any = dice.choice(({"fusions.gated": "0" * 20}, ["gated.py"], {"fusions": ["gated.py"]}))
    change_card(folder, lambda card: card.update(plugins=value))


@on_any_model
def a_source_that_is_no_language(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((7, None, [], "", "../en", "\x1b[31m", "x" * 10_000, "en\0"))
    change_card(folder, lambda card: card.update(source=value))


def head_file(folder: Path) -> Path:
    """The file with the weights of heads."""
    own = folder / "heads.safetensors"
    return own if own.exists() else folder / "model.safetensors"


@on_any_model
def heads_that_are_not_numbers(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        weights[pick_weight(weights, dice, start="heads.")].view(-1)[0] = dice.choice((math.nan, math.inf))

    change_weights(head_file(folder), edit)


@on_any_model
def heads_of_another_type(folder: Path, dice: random.Random) -> None:
    kind = dice.choice((torch.int64, torch.uint8, torch.bool, torch.complex64))

    def edit(weights: dict[str, torch.Tensor]) -> None:
        name = pick_weight(weights, dice, start="heads.")
        weights[name] = weights[name].to(kind)

    change_weights(head_file(folder), edit)


@on_any_model
def heads_of_another_shape(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        name = pick_weight(weights, dice, start="heads.")
        more = weights[name].new_zeros(dice.randint(5, 100_000), *weights[name].shape[1:])
        weights[name] = dice.choice((weights[name][:-1].contiguous(), more, weights[name].new_zeros(0)))

    change_weights(head_file(folder), edit)


@on_any_model
def heads_that_are_missing_or_too_many(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        if dice.random() < 0.5:
            weights.pop(pick_weight(weights, dice, start="heads."))
        else:
            weights[f"heads.evil{dice.randrange(1000)}.weight"] = torch.zeros(2)

    change_weights(head_file(folder), edit)


@on_any_model
def a_file_of_heads_that_is_broken(folder: Path, dice: random.Random) -> None:
    path = head_file(folder)
    choice = dice.randrange(3)
    if choice == 0:
        replace_by_other(path, dice)
    elif choice == 1:
        path.write_bytes(PICKLE)
    else:
        with path.open("r+b") as file:
            file.truncate(dice.randrange(path.stat().st_size))


@attack("stored")
def weights_of_a_stored_model_that_lead_outside(folder: Path, dice: random.Random) -> None:
    link_outside(folder / dice.choice(("model.safetensors", "model.json")), dice)


@attack("stored")
def rows_of_subwords(folder: Path, dice: random.Random) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        rows = weights[ROWS]
        kind = dice.choice(("beyond", "negative", "twice", "fewer", "type", "shape", "none"))
        if kind in ("beyond", "negative", "twice"):
            rows[dice.randrange(len(rows) - 1)] = {"beyond": 10**9, "negative": -1, "twice": int(rows[-1])}[kind]
        elif kind == "fewer":
            weights[ROWS] = rows[:-1].contiguous()
        elif kind == "type":
            weights[ROWS] = rows.to(dice.choice((torch.float32, torch.bool, torch.uint8)))
        elif kind == "shape":
            weights[ROWS] = rows[None]
        else:
            del weights[ROWS]

    change_weights(folder / "model.safetensors", edit)


@attack("stored")
def an_encoder_that_is_another(folder: Path, dice: random.Random) -> None:
    values = [{"encoder": "/nonexistent/encoder"}, {"encoder": "../../x"}, {"encoder": ""}, {"encoder": "a\0b"}]
    values += [{"encoder_identity": "0" * 64}, {"encoder_identity": ""}, {"encoder": "/etc"}, {"encoder": "./x"}]
    value = dice.choice(values)
    change_card(folder, lambda card: card.update(value))


# Models for ONNX Runtime.


@attack("onnx")
def a_broken_graph(folder: Path, dice: random.Random) -> None:
    path = folder / "model.onnx"
    content = path.read_bytes()
    path.write_bytes(dice.choice((content[: len(content) // 2], b"", PICKLE, dice.randbytes(1000))))


@attack("onnx")
def weights_of_a_graph_outside(folder: Path, dice: random.Random) -> None:
    import onnx

    graph = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    place = dice.choice((f"../{SECRET}", "/etc/passwd", "a/../../x", "nowhere.data"))
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = place
    onnx.save(graph, str(folder / "model.onnx"))


@attack("onnx")
def facts_of_a_graph(folder: Path, dice: random.Random) -> None:
    values: list[dict[str, Any]] = [{"padding": -1}, {"padding": 10**9}, {"padding": "0"}, {"max_length": 0}]
    values += [{"max_length": 10**12}, {"special": [-1]}, {"special": [10**9]}, {"mask": 10**9}, {"unknown": -5}]
    values += [{"precision": "evil"}, {"token_types": 1}, {"token_types": True}, {"special": None}]
    value = dice.choice(values)
    change_card(folder, lambda card: card["onnx"].update(value))


@attack("onnx")
def classes_of_a_graph(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((3, 5, 10**9, -1))
    change_card(folder, lambda card: card["heads"]["main"].update(classes=value))


@attack("onnx")
def labels_of_a_graph(folder: Path, dice: random.Random) -> None:
    value: Any = dice.choice((["A"], ["A"] * 4, [*LABELS, "C"], [""] * 4, [1, 2, 3, 4]))
    change_card(folder, lambda card: card["tasks"]["main"].update(labels=value))


@attack("onnx")
def a_tokenizer_of_another_graph(folder: Path, dice: random.Random) -> None:
    if dice.random() < 0.5:
        corrupt_json(folder / "tokenizer.json", dice)
        return
    table = json.loads((folder / "tokenizer.json").read_text())
    table["model"]["vocab"][5:5] = [[f"hostile{number}", -9.0] for number in range(dice.randint(1_000, 5_000))]
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")


# Encoders in 4-bit blocks.


@attack("blocks")
def a_broken_description_of_blocks(folder: Path, dice: random.Random) -> None:
    corrupt_json(folder / "blocks.json", dice)


@attack("blocks")
def blocks_that_are_no_file(folder: Path, dice: random.Random) -> None:
    replace_by_other(folder / "encoder.bin", dice)


@attack("blocks")
def blocks_that_lead_outside(folder: Path, dice: random.Random) -> None:
    link_outside(folder / dice.choice(("encoder.bin", "blocks.json")), dice)


@attack("blocks")
def truncated_blocks(folder: Path, dice: random.Random) -> None:
    path = folder / "encoder.bin"
    with path.open("r+b") as file:
        file.truncate(dice.randrange(path.stat().st_size - 256))


@attack("blocks")
def sizes_of_blocks(folder: Path, dice: random.Random) -> None:
    """One of the numbers of the header, which begin after the magic bytes and the version."""
    place = dice.randrange(14)
    value = struct.pack("<f", dice.choice((-1.0, math.nan, math.inf, 7.0)))
    if place != 7:
        value = struct.pack("<i", dice.choice((-1, 2**31 - 1, 10**9, 10**6, -(2**31), 77)))
    content = bytearray((folder / "encoder.bin").read_bytes())
    content[8 + 4 * place : 12 + 4 * place] = value
    (folder / "encoder.bin").write_bytes(content)


@attack("blocks")
def blocks_that_are_not_numbers(folder: Path, dice: random.Random) -> None:
    content = bytearray((folder / "encoder.bin").read_bytes())
    content[-1_024:] = struct.pack("<f", dice.choice((math.nan, math.inf))) * 256
    (folder / "encoder.bin").write_bytes(content)
