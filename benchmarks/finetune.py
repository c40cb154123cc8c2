"""Fine-tuning speed: crossling's loop against Hugging Face's Trainer, on the same examples in the same run.

    python benchmarks/finetune.py                  # on a GPU: an encoder of mBERT's size, batches of 32
    python benchmarks/finetune.py --device cpu     # a small encoder, a few steps

Examples are random subwords of the lengths that pairs of inference have (gamma, mean 43, at most 128). The Trainer runs
as run_xnli comes (float32, padded to 128) and tuned (bfloat16 on a GPU, padded to the batch's longest, grouped by
length, fused AdamW, loader workers). Time of start-up, of capturing graphs and of the first steps is not counted. The
limit is the device's rate of matrix products, measured here too; of each example, only real subwords count.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLASSES = 3
LONGEST = 128


def make_lengths(count: int) -> np.ndarray:
    return np.clip(np.random.default_rng(0).gamma(4.0, 10.0, count) + 3, 8, LONGEST).astype(int)


def build_bert(size: dict[str, int]) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(**size, num_labels=CLASSES, max_position_embeddings=512)
    return BertForSequenceClassification(config)


class Timer:
    """Examples a second between two steps."""

    def __init__(self, skip: int, batch: int, device: torch.device) -> None:
        self.skip, self.batch, self.device, self.seen = skip, batch, device, 0

    def step(self, count: int = 1) -> None:
        before, self.seen = self.seen, self.seen + count
        if before < self.skip <= self.seen:
            self._wait()
            self.began, self.first = time.perf_counter(), self.seen

    def rate(self) -> float:
        self._wait()
        return (self.seen - self.first) * self.batch / (time.perf_counter() - self.began)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def time_trainer(options: argparse.Namespace, size: dict[str, int], *, tuned: bool) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    lengths = make_lengths(options.steps * options.batch)
    generator = np.random.default_rng(1)
    rows = [
        {"input_ids": generator.integers(5, size["vocab_size"], n), "label": int(generator.integers(CLASSES))}
        for n in lengths
    ]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = -(-max(len(row["input_ids"]) for row in batch) // 8) * 8 if tuned else LONGEST
        ids = np.zeros((len(batch), longest), dtype=np.int64)
        for place, row in enumerate(batch):
            ids[place, : len(row["input_ids"])] = row["input_ids"]
        found = torch.from_numpy(ids)
        return {
            "input_ids": found,
            "attention_mask": (found > 0).long(),
            "labels": torch.tensor([row["label"] for row in batch]),
        }

    timer = Timer(options.skip, options.batch, options.device)

    class Watch(TrainerCallback):
        def on_step_end(self, *arguments: Any, **more: Any) -> None:
            timer.step()

    on_gpu = options.device.type == "cuda"
    extra: dict[str, Any] = {"bf16": False}
    if tuned:
        extra = {
            "bf16": on_gpu,
            "optim": "adamw_torch_fused",
            "train_sampling_strategy": "group_by_length",
            "dataloader_num_workers": 4 if on_gpu else 1,
            "dataloader_persistent_workers": True,
        }
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=options.batch,
            num_train_epochs=1,
            learning_rate=5e-5,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=not on_gpu,
            **extra,
        )
        model = build_bert(size)
        trainer = Trainer(model, arguments, train_dataset=rows, data_collator=collate, callbacks=[Watch()])
        trainer.train()
    return timer.rate()


def time_crossling(options: argparse.Namespace, size: dict[str, int], *, capture: bool) -> tuple[float, float]:
    """Examples a second, and the share of computed subwords that is padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from crossling.data.batching import plan_epoch, write_examples
    from crossling.encoder import Encoder
    from crossling.model import build_model
    from crossling.objectives.label_texts import Objective
    from crossling.training.loop import Execution, Stream, fit
    from crossling.training.settings import TrainingSettings
    from crossling.training.world import World

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    encoder = Encoder(build_bert(size).bert, tokenizer, name="random", identity="random")
    lengths = make_lengths(options.steps * options.batch)
    generator = np.random.default_rng(1)
    ids = [generator.integers(5, size["vocab_size"], n).astype(np.int32) for n in lengths]
    gold = generator.integers(CLASSES, size=len(ids)).astype(np.int32)
    on_gpu = options.device.type == "cuda"
    world = World(0, 1, options.device, torch.bfloat16 if on_gpu else torch.float32)
    timer = Timer(options.skip, options.batch, options.device)

    class Watch:
        def begin(self, what: str, total: int, done: int = 0) -> None: ...
        def end(self) -> None: ...
        def say(self, line: str) -> None:
            print(line)

        def advance(self, steps: int = 1, **facts: str) -> None:
            timer.step(steps)

    with tempfile.TemporaryDirectory() as folder:
        examples = write_examples(Path(folder) / "examples.arrow", [{"ids": ids, "gold": gold}])
        plan = plan_epoch(examples.lengths, options.batch, seed=1, epoch=0)
        padding = 1 - examples.lengths.sum() / sum(len(batch.rows) * batch.length for batch in plan)
        objective = Objective("main", classes=CLASSES)
        model = build_model(encoder, {"kind": "last"})
        model.heads["main"] = objective.build_head(encoder.width)
        # Only the rows in use, as every run has it by default; here that is nearly the whole table.
        model.trim(examples.distinct_ids())
        settings = TrainingSettings(epochs=1, batch=options.batch)
        execution = Execution(
            world, 1, Path(folder) / "work", checkpoint_seconds=1e9, progress=Watch(), capture=capture
        )
        fit(model, Stream(objective, examples), settings, execution)
        rate = timer.rate()
    return rate, float(padding)


def measure_matrix_rate(device: torch.device) -> float:
    """Floating-point operations a second of large matrix products: the most that this device gives."""
    size, rounds = (8192, 20) if device.type == "cuda" else (1536, 20)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    for _ in range(3):
        a @ b
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(rounds):
        a @ b
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 2 * size**3 * rounds / (time.perf_counter() - began)


def count_operations(size: dict[str, int]) -> float:
    """Multiplications and additions of an average example, forward and backward, padding not counted."""
    width, inner, layers = size["hidden_size"], size["intermediate_size"], size["num_hidden_layers"]
    lengths = make_lengths(100_000).astype(float)
    by_subword = layers * (4 * width * width + 2 * width * inner) * 2
    attention = layers * 2 * width * 2
    return float(3 * (by_subword * lengths.mean() + attention * (lengths**2).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.device = torch.device(options.device)
    on_gpu = options.device.type == "cuda"
    options.steps = options.steps or (1000 if on_gpu else 30)
    options.skip = options.steps // 2 if on_gpu else 10
    size = {"vocab_size": 119_547, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    size["intermediate_size"] = 3072
    if not on_gpu:
        size |= {"vocab_size": 20_000, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    limit = measure_matrix_rate(options.device) / count_operations(size)
    ours, padding = time_crossling(options, size, capture=True)
    rows = {"crossling": ours}
    if on_gpu:
        rows["crossling, without CUDA graphs"] = time_crossling(options, size, capture=False)[0]
    rows["Trainer, tuned"] = time_trainer(options, size, tuned=True)
    rows["Trainer, as it comes"] = time_trainer(options, size, tuned=False)
    print(f"batch {options.batch}, {options.steps - options.skip} timed steps, padding {100 * padding:.1f} %")
    for name, rate in rows.items():
        print(f"{name:32s} {rate:10,.0f} examples/s   crossling is {ours / rate:5.2f} x   {100 * rate / limit:5.1f} %")
    print(f"{'limit (matrix products)':32s} {limit:10,.0f} examples/s")
    if options.out:
        facts = {"torch": torch.__version__, "python": platform.python_version(), "cpu": platform.processor()}
        facts["device"] = torch.cuda.get_device_name() if on_gpu else "cpu"
        result = {"examples_per_second": rows, "limit": limit, "padding": padding, "batch": options.batch, **facts}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
