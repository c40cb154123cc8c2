"""Where the time of a first fine-tuning goes: ``crossling run`` in a fresh process and store, in seconds by phase.

    python benchmarks/first_run.py                              # on a GPU: an encoder of mBERT's size
    python benchmarks/first_run.py --device cpu --quick         # tiny sizes, to see that it works
    python benchmarks/first_run.py --sources ../before . --rounds 3     # two working trees in turns, and medians
    python benchmarks/first_run.py --imports                    # also the modules that take longest to import

Pairs of texts are made up, with as many subwords as real ones have; the WordPiece tokenizer has as many as mBERT's. A
phase has the time within it that belongs to no other phase: capturing is not part of an epoch. A GPU is waited for at
the end of an epoch and of a prediction only. What a thread does meanwhile counts nowhere. Before the first round each
working tree runs once at tiny sizes, so that its code is compiled and files are in memory.
"""

from __future__ import annotations

import argparse
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAIN, DEV, TEST = 16_000, 2_000, 2_000
LANGUAGES = ("de", "es", "fr", "ru")
RUN = "crossling.study.recipe_run"
LOADING = "crossling.encoders.loading"
STEPS = "crossling.training.fast.cuda_graph:CapturedSteps"
PHASES = {
    "recipe: reading": ("crossling.recipe.recipe:load_recipe",),
    "data: opening": (f"{RUN}:open_recipe",),
    "device: asking torch": (f"{RUN}:setup_distributed",),
    "device: releasing memory": (f"{RUN}:release_memory",),
    "encoder: loading": ("crossling.encoders.cache:load_encoder",),
    "encoder: checking": (f"{LOADING}:check_checkpoint", f"{LOADING}:check_weights"),
    "encoder: tokenizer": (f"{LOADING}:load_tokenizer",),
    "encoder: weights": (f"{LOADING}:load_files",),
    "encoder: copying": ("crossling.encoders.cache:_copy",),
    "tokenizing": ("crossling.inference.evaluate:encode_rows",),
    "vocabulary: trimming": ("crossling.models.model:Model.trim",),
    "trainer: moving the model": ("crossling.training.loop:Trainer.__init__",),
    "trainer: optimiser": ("crossling.training.loop:build_optimiser",),
    "steps: launching passes": (f"{STEPS}._launch_pass",),
    "steps: capturing passes": (f"{STEPS}._capture_pass",),
    "steps: launching and capturing ends": (f"{STEPS}._run_finish",),
    "steps: replaying": (f"{STEPS}.update",),
    "epochs": ("crossling.training.loop:Trainer.train_epoch",),
    "dev scores": ("crossling.stages.task_training:score_dev",),
    "best weights: keeping": ("crossling.training.loop:Trainer.keep_if_best",),
    "best weights: loading": ("crossling.training.loop:Trainer.load_best",),
    "model: saving": (f"{RUN}:save_model",),
    "model: publishing": ("crossling.store.artefacts:Store.publish",),
    "model: verifying": ("crossling.store.artefacts:Store.fetch",),
    "model: loading": (f"{RUN}:load_model",),
    "predicting": (f"{RUN}:RecipeRun.predict",),
    "predictions: writing": (f"{RUN}:write_predictions",),
    "run: describing": (f"{RUN}:RecipeRun.describe",),
    "report": ("crossling.study.run_report:report_run", "crossling.cli.show_run:show_run"),
}
"""Functions by phase, as ``module:name``; those that a working tree does not have are left out."""
WAITED = ("epochs", "dev scores", "predicting")
TRAINING = ("epochs", "steps: replaying")
"""What is training and not overhead."""
LIBRARIES = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch",
    "transformers",
    "crossling",
    "pandas",
    "sklearn",
    "scipy",
    "sympy",
    "numpy",
    "pyarrow",
    "triton",
    "matplotlib",
)
"""Whose imports are phases of their own; the first that fits."""


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


class Watch(importlib.abc.MetaPathFinder):
    """Has imports timed, and functions of modules as soon as they are imported."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.places: dict[str, list[tuple[str, str]]] = {}
        for phase, places in PHASES.items():
            for place in places:
                module, _, name = place.partition(":")
                self.places.setdefault(module, []).append((name, phase))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in later)
        spec = next((one for one in found if one is not None), None)
        loader = getattr(spec, "loader", None)
        if isinstance(loader, importlib.machinery.SourceFileLoader | importlib.machinery.ExtensionFileLoader):
            loader.exec_module = self._watch_import(fullname, loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _watch_import(self, fullname: str, execute: Callable[[Any], None]) -> Callable[[Any], None]:
        library = next((name for name in LIBRARIES if f"{fullname}.".startswith(f"{name}.")), "others")
        timed = self.clock.watch(f"imports: {library}", execute)

        def load(module: Any) -> None:
            timed(module)
            for path, phase in self.places.get(fullname, ()):
                owner: Any = module
                *outer, name = path.split(".")
                for part in outer:
                    owner = getattr(owner, part, None)
                if hasattr(owner, name):
                    setattr(owner, name, self.clock.watch(phase, getattr(owner, name)))

        return load


def run_command(recipe: Path) -> Any:
    """``crossling run``, or what it does where its command line lacks a library; the exit code."""
    store, out = recipe.parent / "store", recipe.parent / "out"
    if not all(map(importlib.util.find_spec, ("typer", "rich"))):
        from crossling.recipe.recipe import load_recipe

        loaded = load_recipe(recipe)
        with suppress(ImportError):  # an earlier working tree has none
            from crossling.gpu_context import begin_context

            begin_context(loaded.run.device)
        from crossling.store.artefacts import Store
        from crossling.study.recipe_run import run_recipe

        run_recipe(loaded, store=Store(store), out=out)
        gc.freeze() if importlib.util.find_spec("crossling.gpu_context") else None
        return 0
    sys.argv = ["crossling", "run", str(recipe), "--store", str(store), "--out", str(out)]
    from crossling.cli.entry import main

    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def run_child(recipe: Path, began: float) -> None:
    """Run a recipe in this process as the command line does, and print the seconds of its phases."""
    clock = Clock()
    clock.seconds["python: starting"] = time.time() - began
    sys.meta_path.insert(0, Watch(clock))
    code = run_command(recipe)
    wait()
    clock.switch()
    total = time.time() - began
    if code:
        raise SystemExit(code)
    record = next((recipe.parent / "store" / "artefacts").glob("*/complete.json"), None)
    facts = json.loads(record.read_text()) if record else {}
    found = {
        "total": total,
        "beyond training": total - sum(clock.seconds.get(name, 0.0) for name in TRAINING),
        "phases": clock.seconds,
        "calls": clock.calls,
        "dev": facts.get("dev_score"),
        "losses": [step["loss"] for step in facts.get("history", []) if "loss" in step][-1:],
        "compiler imported": "torch._dynamo" in sys.modules,
    }
    print(f"\n{json.dumps(found)}")


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


def measure(source: Path, recipe: Path, *, imports: bool = False) -> dict[str, Any]:
    """The phases of a fresh process with the package of a working tree."""
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), *others])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles the package again
    options = ["-X", "importtime"] if imports else []
    began = time.time()
    command = [sys.executable, *options, str(Path(__file__).resolve()), "--child", str(recipe), str(began)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stdout[-1000:] + done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["phases"]["python: ending"] = time.time() - began - found["total"]
    found["total"], found["beyond training"] = (
        found[name] + found["phases"]["python: ending"] for name in ("total", "beyond training")
    )
    if imports:
        show_imports(done.stderr)
    return found


def show_imports(report: str, *, least: float = 0.1) -> None:
    """The modules that took longest to import, each below the one that imported it; nested seconds, then its own."""
    rows = []
    for line in report.splitlines():
        found = re.match(r"import time:\s+(\d+) \|\s+(\d+) \|( +)(\S+)", line)
        if found and int(found[2]) > 1e6 * least:
            rows.append(f"{int(found[2]) / 1e6:8.2f}{int(found[1]) / 1e6:8.2f} {found[3]}{found[4]}")
    print("\n".join(["seconds of imports, with what they import, and their own:", *reversed(rows)]))


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """A table: a row for each phase, a column for each run, then the median of each working tree."""
    columns = [(name, [run]) for name, several in found.items() for run in several]
    if all(len(several) > 1 for several in found.values()):
        columns += [(f"{name[-10:]} (median)", several) for name, several in found.items()]
    print(f"{'seconds':38}" + "".join(f"{name[-19:]:>20}" for name, _ in columns))
    phases = dict.fromkeys(phase for several in found.values() for run in several for phase in run["phases"])
    for phase in (*phases, "total", "beyond training"):
        cells = []
        for _, runs in columns:
            seconds = statistics.median(run.get(phase, run["phases"].get(phase, 0.0)) for run in runs)
            calls = runs[0]["calls"].get(phase, 0) if not phase.startswith("imports") else 0
            cells.append(f"{seconds:.2f}" + (f" ({calls} x)" if calls > 1 else ""))
        if any(float(cell.split()[0]) >= 0.01 for cell in cells):
            print(f"{phase:38}" + "".join(f"{cell:>20}" for cell in cells))
    for name in ("dev", "losses", "compiler imported"):
        print(f"{name:38}" + "".join(f"{runs[0][name]!s:>20.20}" for _, runs in columns))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        run_child(Path(sys.argv[2]), float(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--sources", nargs="+", type=Path, default=[ROOT], help="Working trees to measure.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--imports", action="store_true", help="Also show what takes longest to import.")
    parser.add_argument("--quick", action="store_true", help="Tiny sizes; the figures mean nothing.")
    parser.add_argument("--out", type=Path, help="Also save what is found as JSON.")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {str(source): [] for source in options.sources}
    with tempfile.TemporaryDirectory() as name:
        encoder = save_encoder(Path(name) / "encoder", quick=options.quick)
        for place, source in enumerate(options.sources):
            folder = Path(name) / f"first-{place}"
            folder.mkdir()
            measure(
                source.resolve(), write_recipe(folder, device=options.device, quick=True, epochs=1, encoder=encoder)
            )
        for number in range(options.rounds):
            for place, source in enumerate(options.sources):
                folder = Path(name) / f"run-{number}-{place}"
                folder.mkdir()
                recipe = write_recipe(
                    folder, device=options.device, quick=options.quick, epochs=options.epochs, encoder=encoder
                )
                found[str(source)].append(measure(source.resolve(), recipe))
                if options.imports and number == options.rounds - 1:
                    again = Path(name) / f"imports-{place}"
                    again.mkdir()
                    recipe = write_recipe(again, device=options.device, quick=True, epochs=1, encoder=encoder)
                    measure(source.resolve(), recipe, imports=True)
                if options.out:
                    options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found)


if __name__ == "__main__":
    main()
