"""Checkpoints: all that a killed run needs to continue to the same result.

A checkpoint is a folder that is complete once its marker exists, which is written last and holds the digests of its
files. The last two are kept: where the newest is damaged, training continues from the one before. Weights and optimiser
are safetensors, the rest is JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from crossling.errors import StorageError
from crossling.files import (
    explain_failures,
    fsync,
    hash_file,
    is_filled,
    make_folder,
    read_json,
    replacing,
    write_atomic,
)
from crossling.models.model import Model, count_bytes, load_weights, read_weights, weights_of

log = logging.getLogger(__name__)
MARKER = "complete"


@dataclass
class Position:
    """How far a training run has come, as it is stored in a checkpoint.

    The random state is a function of seed, step and process, so it is not stored.
    """

    step: int = 0
    best_score: float | None = None
    best_step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class Checkpoints:
    """The checkpoints of one training run, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self,
        model: Model,
        optimiser: torch.optim.Optimizer,
        position: Position,
        *,
        best: dict[str, Tensor] | None = None,
    ) -> bool:
        """Write a checkpoint, with the best epoch's weights, or the mean of all epochs', where not on disk yet.

        A full disk is reported and costs nothing but the checkpoint: space may be freed before the end.
        """
        folder = self.folder / f"step-{position.step:08d}"
        if is_filled(folder / MARKER):
            return True
        try:
            self._write(folder, model, optimiser, position, best)
        except (StorageError, OSError, SafetensorError) as error:
            log.warning("No checkpoint is written, training continues. %s", error)
            shutil.rmtree(folder, ignore_errors=True)
            return False
        kept = [folder, *self._list_complete(before=folder)[-1:]]
        for other in self.folder.glob("step-*"):
            if other not in kept:
                shutil.rmtree(other, ignore_errors=True)
        referred = {name.removeprefix("../") for one in kept for name in _read_digests(one)}
        for path in self.folder.glob("best-*.safetensors"):
            if path.name not in referred:
                path.unlink(missing_ok=True)
        return True

    def _write(
        self,
        folder: Path,
        model: Model,
        optimiser: torch.optim.Optimizer,
        position: Position,
        best: dict[str, Tensor] | None,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # what a killed process left of it
        best_path = self._best_path(position.best_step)
        if best is not None and not is_filled(best_path):
            with replacing(best_path, needed=count_bytes(best)) as partial:
                save_file(best, partial)
        tensors = {"model": weights_of(model), "optimiser": _optimiser_tensors(model, optimiser)}
        with explain_failures(folder, needed=sum(map(count_bytes, tensors.values()))):
            make_folder(folder)
            for name, values in tensors.items():
                save_file(values, folder / f"{name}.safetensors")
            (folder / "position.json").write_text(json.dumps(asdict(position)), encoding="utf-8")
            digests = {path.name: hash_file(path) for path in folder.iterdir()}
            if is_filled(best_path):
                digests[f"../{best_path.name}"] = hash_file(best_path)
            for path in (*folder.iterdir(), folder):
                fsync(path)
        write_atomic(folder / MARKER, json.dumps(digests))

    def _list_complete(self, *, before: Path | None = None) -> list[Path]:
        """The folders of complete checkpoints, the oldest first."""
        found = sorted(marker.parent for marker in self.folder.glob(f"step-*/{MARKER}") if is_filled(marker))
        return [folder for folder in found if before is None or folder.name < before.name]

    def restore(self, model: Model, optimiser: torch.optim.Optimizer) -> Position:
        """Load the last whole checkpoint into model and optimiser; the start where there is none."""
        for folder in reversed(self._list_complete()):
            digests = _read_digests(folder)
            if digests and all(_is_whole(folder / name, digest) for name, digest in digests.items()):
                load_weights(model, read_weights(folder / "model.safetensors"))
                _restore_optimiser(model, optimiser, read_weights(folder / "optimiser.safetensors"))
                return Position(**json.loads((folder / "position.json").read_text(encoding="utf-8")))
            log.warning("%s: the checkpoint is damaged; training continues from the one before", folder)
            shutil.rmtree(folder, ignore_errors=True)
        return Position()

    def _best_path(self, step: int) -> Path:
        return self.folder / f"best-{step:08d}.safetensors"

    def read_best(self, step: int) -> dict[str, Tensor]:
        """The best epoch's weights, or the mean of all epochs' up to this step."""
        return read_weights(self._best_path(step))


def _read_digests(folder: Path) -> dict[str, str]:
    """By name: the digests of a checkpoint's files, and of the best epoch's weights; none where they are damaged."""
    found = read_json(folder / MARKER)
    return found if isinstance(found, dict) else {}


def _is_whole(path: Path, digest: str) -> bool:
    return path.is_file() and hash_file(path) == digest


def _optimiser_tensors(model: Model, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}|{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    return tensors


def _restore_optimiser(model: Model, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("|")
        parameter = parameters[name]
        # AdamW's step counter stays where the optimiser made it: on the CPU, unless fused or capturable on a GPU.
        target = parameter.device if key != "step" or _keeps_step_on_device(optimiser) else torch.device("cpu")
        optimiser.state[parameter][key] = value.to(target)


def _keeps_step_on_device(optimiser: torch.optim.Optimizer) -> bool:
    return any(group.get("fused") or group.get("capturable") for group in optimiser.param_groups)
