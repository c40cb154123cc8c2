"""Where the time of a first fine-tuning goes: a fresh process, a fresh store, one recipe; seconds by phase.

    python benchmarks/first_run.py                              # on a GPU: an encoder of mBERT's size
    python benchmarks/first_run.py --device cpu --quick         # tiny sizes, to see that it works
    python benchmarks/first_run.py --sources . ../before        # another working tree beside this one, in turns

Pairs of texts are made up, with as many subwords as real ones have; the WordPiece tokenizer has as many as mBERT's. A
phase has the time within it that belongs to no other phase: capturing is not part of an epoch. A GPU is waited for at
the end of an epoch and of a prediction only. What a thread does meanwhile counts nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAIN, DEV, TEST = 16_000, 2_000, 2_000
LANGUAGES = ("de", "es", "fr", "ru")
PHASES = {
    "encoder: loading": (
        "crossling.encoders.cache:EncoderCache.load",
        "crossling.encoders.cache:EncoderCache.load_last",
        "crossling.encoders.cache:EncoderCache.identify",
    ),
    "data: opening": ("crossling.study.recipe_run:open_recipe",),
    "device: setting up": ("crossling.study.recipe_run:setup_distributed",),
    "tokenizing": ("crossling.inference.evaluate:encode_rows",),
    "vocabulary: trimming": ("crossling.models.model:Model.trim",),
    "trainer: moving the model, optimiser": ("crossling.training.loop:Trainer.__init__",),
    "capturing": (
        "crossling.training.fast.cuda_graph:CapturedSteps._capture_pass",
        "crossling.training.fast.cuda_graph:CapturedSteps._capture_finish",
    ),
    "epochs": ("crossling.training.loop:Trainer.train_epoch",),
    "dev scores": ("crossling.stages.task_training:score_dev",),
    "best weights: keeping": ("crossling.training.loop:Trainer.keep_if_best",),
    "model: saving": ("crossling.study.recipe_run:save_model", "crossling.store.artefacts:Store.publish"),
    "model: loading": ("crossling.study.recipe_run:load_model",),
    "predicting": ("crossling.study.recipe_run:RecipeRun.predict",),
}
WAITED = ("epochs", "dev scores", "predicting")


class Clock:
    """Seconds by phase; the innermost phase counts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.within: list[str] = ["rest"]
        self.since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self.within[-1]] = self.seconds.get(self.within[-1], 0.0) + now - self.since
        self.since = now

    def watch(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed; only calls of the main thread count."""
        import threading

        main, clock = threading.main_thread(), self

        @wraps(function)
        def timed(*arguments: Any, **more: Any) -> Any:
            if threading.current_thread() is not main:
                return function(*arguments, **more)
            clock.switch()
            clock.within.append(phase)
            clock.calls[phase] = clock.calls.get(phase, 0) + 1
            try:
                return function(*arguments, **more)
            finally:
                if phase in WAITED:
                    wait()
                clock.switch()
                clock.within.pop()

        return timed


def wait() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def run_child(recipe: Path, began: float) -> None:
    """Run a recipe in this process, and print the seconds of its phases."""
    started = time.time()
    clock = Clock()
    clock.seconds["python: starting"] = started - began
    clock.within.append("imports: torch")
    import torch

    clock.switch()
    clock.within[-1] = "imports: crossling"
    import importlib

    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import Store
    from crossling.study.recipe_run import run_recipe

    for phase, places in PHASES.items():
        for place in places:
            module, _, path = place.partition(":")
            if "cuda_graph" in module and not torch.cuda.is_available():
                continue
            owner: Any = importlib.import_module(module)
            *outer, name = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            if hasattr(owner, name):
                setattr(owner, name, clock.watch(phase, getattr(owner, name)))
    clock.switch()
    clock.within.pop()
    run = run_recipe(load_recipe(recipe), store=Store(recipe.parent / "store"), out=recipe.parent / "out")
    wait()
    clock.switch()
    total = time.time() - began
    record = next((recipe.parent / "store" / "artefacts").glob("*/complete.json"), None)
    facts = json.loads(record.read_text()) if record else {}
    found = {
        "total": total,
        "phases": clock.seconds,
        "calls": clock.calls,
        "dev": facts.get("dev_score"),
        "losses": [step["loss"] for step in facts.get("history", []) if "loss" in step][-1:],
        "device": str(run.distributed.device),
    }
    print(json.dumps(found))


def write_recipe(folder: Path, *, device: str, quick: bool, epochs: int, encoder: Path) -> Path:
    """Texts, and a recipe that learns to compare them."""
    import numpy as np

    from _synthetic import LANGUAGE, TEXTS, TINY, make_lengths

    most = TINY.vocabulary - 10 if quick else LANGUAGE
    sizes = {"train": TRAIN, "dev": DEV, **dict.fromkeys(LANGUAGES, TEST)}
    for number, (name, count) in enumerate(sizes.items()):
        generator = np.random.default_rng(number)
        rows = 40 if quick else count
        lines = ["a\tb\tc\n"]
        for length in make_lengths(TEXTS, rows, seed=number):
            words = [f"w{int(most ** generator.random())}" for _ in range(max(2, length - 3))]
            first = max(1, len(words) * 2 // 3)
            lines.append(f"{' '.join(words[:first])}\t{' '.join(words[first:])}\t{'abc'[len(words) % 3]}\n")
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    columns = 'header = true, first = "a", second = "b", label = "c"'
    data = {
        name: f'{{ format = "tsv", path = "{folder / name}.tsv", {columns}, language = "{language}" }}'
        for name, language in {"train": "en", "dev": "en", **{name: name for name in LANGUAGES}}.items()
    }
    tests = "".join(f"[[evaluate]]\non = {data[language]}\n" for language in LANGUAGES)
    path = folder / "recipe.toml"
    path.write_text(
        f'seeds = [1]\nencoder = {{ name = "{encoder}" }}\n'
        f'[[stage]]\nkind = "finetune"\ntask = {{ kind = "classify_pair" }}\ntrain = {data["train"]}\n'
        f'dev = {data["dev"]}\nepochs = {epochs}\n{tests}[run]\ndevice = "{device}"\n',
        encoding="utf-8",
    )
    return path


def save_encoder(folder: Path, *, quick: bool) -> Path:
    """An encoder of random weights on disk, with a tokenizer that cuts texts at spaces and marks."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    from _synthetic import MBERT, SPECIAL, TEXTS, TINY, build_model

    size = TINY if quick else MBERT
    words = [*SPECIAL, *(f"w{number}" for number in range(size.vocabulary - len(SPECIAL)))]
    pieces = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=False)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [(name, SPECIAL.index(name)) for name in ("[SEP]", "[CLS]")]
    pieces.post_processor = processors.BertProcessing(*around)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    model = build_model(TEXTS, size)
    getattr(model, "bert", model).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=pieces, **dict(zip(names, SPECIAL, strict=True))).save_pretrained(folder)
    return folder


def measure(source: Path, recipe: Path) -> dict[str, Any]:
    """The phases of a fresh process with the package of a working tree."""
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), *others])}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(recipe), str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """A table: a row for each phase, a column for each run."""
    runs = [(name, run) for name, several in found.items() for run in several]
    print(f"{'seconds':38}" + "".join(f"{name[-18:]:>20}" for name, _ in runs))
    phases = dict.fromkeys(phase for _, run in runs for phase in run["phases"])
    for phase in phases:
        cells = []
        for _, run in runs:
            calls = run["calls"].get(phase, 0)
            cells.append(f"{run['phases'].get(phase, 0.0):.2f}" + (f" ({calls} x)" if calls > 1 else ""))
        print(f"{phase:38}" + "".join(f"{cell:>20}" for cell in cells))
    for name in ("total", "dev", "losses"):
        print(
            f"{name:38}"
            + "".join(f"{run[name]:20.2f}" if name == "total" else f"{run[name]!s:>20.20}" for _, run in runs)
        )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        run_child(Path(sys.argv[2]), float(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--sources", nargs="+", type=Path, default=[ROOT], help="Working trees to measure.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="Tiny sizes; the figures mean nothing.")
    parser.add_argument("--out", type=Path, help="Also save what is found as JSON.")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {str(source): [] for source in options.sources}
    with tempfile.TemporaryDirectory() as name:
        encoder = save_encoder(Path(name) / "encoder", quick=options.quick)
        for number in range(options.rounds):
            for place, source in enumerate(options.sources):
                folder = Path(name) / f"run-{number}-{place}"
                folder.mkdir()
                recipe = write_recipe(
                    folder, device=options.device, quick=options.quick, epochs=options.epochs, encoder=encoder
                )
                found[str(source)].append(measure(source.resolve(), recipe))
                if options.out:
                    options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found)


if __name__ == "__main__":
    main()
