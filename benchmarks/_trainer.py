"""Hugging Face's Trainer on the same rows: as its example scripts come, tuned, and compiled."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from _rows import MissingError
from _speed import Scale, batch_of, wait
from _synthetic import Example, Kind, build_model, collate, make_rows

WAYS = ("as it comes", "tuned", "compiled")


def time_trainer(kind: Kind, scale: Scale, *, way: str) -> tuple[float, int]:
    """Examples a second, and how many steps that is from: the median of a few epochs after a first one.

    ``as it comes``: float32, all padded to one length. ``tuned``: bfloat16 on a GPU, padded to the batch's longest,
    grouped by length, fused AdamW, loader workers. ``compiled``: that, with torch.compile.
    """
    from transformers import PrinterCallback, Trainer, TrainerCallback

    steps, batch = scale.peer_steps[way], batch_of(kind, scale)
    rows = make_rows(kind, steps * batch, scale.size.drawn, batch=batch)
    seconds: list[float] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, *arguments: Any, **more: Any) -> None:
            wait(scale.device)
            self.began = time.perf_counter()

        def on_epoch_end(self, *arguments: Any, **more: Any) -> None:
            wait(scale.device)
            seconds.append(time.perf_counter() - self.began)

    # Runs of crossling ask for the same bits every time on a CPU; the Trainer does not.
    torch.use_deterministic_algorithms(False)
    with tempfile.TemporaryDirectory() as folder:
        arguments = choose_arguments(folder, scale, batch=batch, way=way)
        trainer = Trainer(
            build_model(kind, scale.size),
            arguments,
            train_dataset=rows,
            data_collator=Collate(kind, fixed=way == "as it comes"),
            callbacks=[Watch()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    if way == "compiled":
        torch._dynamo.reset()  # so that the next model is not taken for this one with other shapes
    timed = seconds[1:]
    return steps * batch / statistics.median(timed), steps * len(timed)


class Collate:
    """Rows as a batch, padded to one length for all or to the longest row."""

    def __init__(self, kind: Kind, *, fixed: bool) -> None:
        self.kind, self.fixed = kind, fixed

    def __call__(self, batch: Sequence[Example]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in batch)
        return collate(self.kind, batch, length=self.kind.longest if self.fixed else -(-longest // 8) * 8)


def choose_arguments(folder: str, scale: Scale, *, batch: int, way: str) -> Any:
    from transformers import TrainingArguments

    extra: dict[str, Any] = {"bf16": False}
    if way != "as it comes":
        extra = {
            "bf16": scale.on_gpu,
            "optim": "adamw_torch_fused",
            "train_sampling_strategy": "group_by_length",
            "dataloader_num_workers": 0 if scale.quick else 4 if scale.on_gpu else 1,
            "dataloader_persistent_workers": not scale.quick,
            "torch_compile": way == "compiled",
        }
    return TrainingArguments(
        folder,
        per_device_train_batch_size=batch,
        num_train_epochs=1 + scale.peer_epochs,
        learning_rate=5e-5,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=not scale.on_gpu,
        **extra,
    )


def prepare_prediction(
    kind: Kind, scale: Scale, parts: Sequence[Sequence[Example]], folder: Path, *, batch: int
) -> tuple[Callable[[], None], list[int]]:
    """What predicts with Trainer.predict, one language after the other, each batch padded to its longest.

    Also the places of its last batches, padding included.
    """
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(folder),
        per_device_eval_batch_size=batch,
        bf16_full_eval=scale.on_gpu,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=not scale.on_gpu,
    )
    collator, sizes = Collate(kind, fixed=False), []

    def collate_counted(rows: Sequence[Example]) -> dict[str, torch.Tensor]:
        found = collator(rows)
        sizes.append(found["input_ids"].numel())
        return found

    trainer = Trainer(build_model(kind, scale.size), arguments, data_collator=collate_counted)

    def predict() -> None:
        sizes.clear()
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        for part in parts:
            trainer.predict(part)
        torch.use_deterministic_algorithms(before, warn_only=True)

    return predict, sizes


def check_trainer() -> None:
    """The Trainer needs accelerate."""
    try:
        import accelerate  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingError(f"the Trainer cannot be imported: {error}") from None
