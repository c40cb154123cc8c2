"""How much memory training takes, beside what ``crossling check`` forecasts: whole runs, each in its own process.

    python benchmarks/memory.py                          # the offline encoder, on whatever device is there
    python benchmarks/memory.py --device cpu --task ner --trim --only plain lora
    python benchmarks/memory.py --device cuda --table    # random encoders of three sizes on a GPU: memory and speed
    python benchmarks/memory.py --forecast               # XLM-R large on a GPU, forecast only: nothing is trained
    python benchmarks/memory.py --device cpu --quick     # a tiny encoder: only to see that everything works

On a CPU the most that was ever resident is measured, on a GPU the most that torch held, to which the forecast of
``crossling check`` adds the CUDA context. The sentences are the phrasebook's, the tokenizer is XLM-R's.

The table is of pairs of texts in batches of 32 x 128 subwords, with 28,000 subwords and with the whole vocabulary;
speeds are those of whole epochs after a first one. Each size has a process, which is started again where it dies: a row
that fails has its error, and the others are measured.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from _synthetic import LANGUAGE, MBERT, OFFLINE, TEXTS, TINY, Size

ROOT = Path(__file__).parent.parent
LORA = {"rank": 16, "alpha": 32.0}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "lora": {"lora": LORA},
    "lora on all layers": {"lora": {**LORA, "targets": "all"}},
    "lora with dropout": {"lora": {**LORA, "targets": "all", "dropout": 0.05}},
    "freeze 6": {"freeze": 6},
    "8bit": {"optimizer_states": "8bit"},
    "checkpointing": {"gradient_checkpointing": True},
    "8bit, checkpointing": {"optimizer_states": "8bit", "gradient_checkpointing": True},
    "lora, checkpointing": {"lora": LORA, "gradient_checkpointing": True},
}
LARGE = Size(250_002, 1_024, 24, 16, 4_096)
SIZES = {"multilingual-e5-small": OFFLINE, "mBERT": MBERT, "XLM-R large": LARGE}
COMPARED = ("plain", "freeze 6", "lora", "lora on all layers", "8bit", "checkpointing", "8bit, checkpointing")
COLUMNS = ("subwords", "settings", "forecast GB", "measured GB", "forecast is off by", "examples/s")
XLM_R = {"max_position_embeddings": 514, "type_vocab_size": 1}
STEPS, TIMED = 10, 2
"""Updates of an epoch, and epochs that are timed after the first."""
SECONDS = 150
"""A process of the table that takes longer is ended; its row counts as failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.one:
        request = json.loads(options.one)
        measure_rows(request) if "size" in request else measure(request)
        return 0
    if options.forecast:
        forecast_large()
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device here: nothing is measured")
        return 2
    if options.table:
        print_table(options)
        return 0
    with tempfile.TemporaryDirectory() as name:
        encoder = choose_encoder(options, Path(name))
        print("settings\tforecast GB\tmeasured GB\tforecast / measured", flush=True)
        for case in options.only or CASES:
            tables = make_recipe(options, encoder, CASES[case])
            measured = run_apart(tables, Path(name))
            expected = forecast(tables, Path(name), on_gpu=options.device == "cuda")
            ratio = expected / measured
            print(f"{case}\t{expected / 1e9:.2f}\t{measured / 1e9:.2f}\t{ratio:.2f}", flush=True)
    return 0


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--encoder", default="multilingual-e5-small")
    parser.add_argument("--table", action="store_true", help="Random encoders of three sizes: memory and speed.")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), help="Of the table: these encoders only.")
    parser.add_argument("--out", type=Path, help="Of the table: a file for its rows, in JSON.")
    parser.add_argument("--forecast", action="store_true", help="Forecast XLM-R large on a GPU; train nothing.")
    parser.add_argument("--quick", action="store_true", help="A tiny encoder; the figures mean nothing.")
    parser.add_argument("--task", choices=("ner", "nli", "qa", "pos"), default="qa")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--trim", action="store_true", help="Train the subword rows in use alone.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=tuple(CASES), help=", ".join(CASES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def choose_encoder(options: argparse.Namespace, folder: Path) -> str:
    """An encoder's name, or the folder of a random one."""
    if options.quick:
        sys.path.insert(0, str(ROOT / "tests"))
        from tiny import save_tiny

        return str(save_tiny(folder / "tiny", layers=8))
    return str(options.encoder)


def make_recipe(options: argparse.Namespace, encoder: str, changes: dict[str, Any]) -> dict[str, Any]:
    """One epoch on a few rows of the phrasebook, then a few predictions."""
    name, rows = f"phrasebook-{options.task}", options.batch if options.quick else options.rows
    stage = {"kind": "finetune", "task": options.task, "train": f"{name}:en:train[:{rows}]", "epochs": 1}
    return {
        "encoder": {"name": encoder, "trim": options.trim},
        "run": {"device": options.device},
        "stage": [{**stage, "dev": f"{name}:en:dev[:8]", "batch": options.batch, **changes}],
        "evaluate": [{"on": name, "languages": ["hi"], "split": "test[:6]"}],
    }


def run_apart(tables: dict[str, Any], folder: Path) -> float:
    """Bytes at the most, of a run in its own process."""
    request = json.dumps({"tables": tables, "folder": tempfile.mkdtemp(dir=folder)})
    command = [sys.executable, __file__, "--one", request]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return float(lines[-1])


def measure(request: dict[str, Any]) -> None:
    """Run a recipe, and print the most memory that it took."""
    from crossling.recipe.recipe import parse_recipe
    from crossling.store.artefacts import Store
    from crossling.study.recipe_run import run_recipe

    folder = Path(request["folder"])
    run_recipe(parse_recipe(request["tables"]), store=Store(folder / "store"), out=folder / "out")
    if request["tables"]["run"]["device"] == "cuda":
        print(torch.cuda.max_memory_reserved())
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def forecast(tables: dict[str, Any], folder: Path, *, on_gpu: bool) -> float:
    """What ``crossling check`` says of the recipe's stage, and ``crossling study`` on a GPU, without the context."""
    from crossling.encoders.loading import load_encoder
    from crossling.recipe.recipe import parse_recipe
    from crossling.study.memory import forecast_gpu_stage, forecast_stage, inspect_recipe, measure_load

    recipe = parse_recipe(tables)
    encoder = load_encoder(recipe.encoder.name)
    rows = [one for role, one in inspect_recipe(recipe, store=folder).data if role.startswith("stage")]
    load = measure_load(recipe.stage[0], rows, encoder)
    if on_gpu:
        return forecast_gpu_stage(recipe, 0, encoder, load)
    return forecast_stage(recipe, 0, encoder, load).total


def print_table(options: argparse.Namespace) -> None:
    """Measure and forecast all sizes, each in its own process, as a table in Markdown."""
    sizes = {"tiny": TINY} if options.quick else {name: SIZES[name] for name in options.sizes or SIZES}
    found = []
    for name, size in sizes.items():
        print(f"\n{name}\n\n| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
        for row in run_rows(size, options):
            found.append({"encoder": name, **row})
            print(f"| {' | '.join(describe_row(row))} |", flush=True)
            if options.out:
                options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run_rows(size: Size, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of one size. Of a process that died, the case that it was at has an error, and another does the rest."""
    left = [[rows, case] for rows in (LANGUAGE, 0) for case in options.only or COMPARED]
    while left:
        request = {"size": asdict(size), "cases": left, "device": options.device, "quick": options.quick}
        command = [sys.executable, __file__, "--one", json.dumps(request)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            output, why = done.stdout, (done.stderr.strip().splitlines() or ["?"])[-1]
        except subprocess.TimeoutExpired as error:
            output, why = (error.stdout or b"").decode(), f"more than {SECONDS} seconds"
        rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        yield from rows
        left = left[len(rows) :]
        if left:
            (subwords, case), *left = left
            yield {"subwords": subwords, "case": case, "error": why}


def describe_row(row: dict[str, Any]) -> list[str]:
    """The cells of a row; a size of 0 stands for the whole vocabulary."""
    about = [f"{row['subwords']:,}" if row["subwords"] else "all", row["case"]]
    if "error" in row:
        return [*about, f"failed: {row['error']}", *[""] * (len(COLUMNS) - 3)]
    measured, expected = row["measured"], row["forecast"]
    off = f"{100 * (expected / measured - 1):+.0f} %" if measured else "-"
    sizes = [f"{value / 1e9:.2f}" for value in (expected, measured)]
    return [*about, *sizes, off, f"{row['speed']:,.0f}"]


def measure_rows(request: dict[str, Any]) -> None:
    """Train with each of some settings, and print a line of JSON for each, also where it failed."""
    from _synthetic import build_encoder

    size = Size(**request["size"])
    encoder = build_encoder(TEXTS, size)
    for subwords, case in request["cases"]:
        row: dict[str, Any] = {"subwords": subwords, "case": case}
        try:
            row |= measure_row(copy.deepcopy(encoder), size, min(subwords, size.vocabulary), case, request)
        except Exception as error:  # a full memory, or whatever a new version of torch does not take
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(row), flush=True)


def measure_row(encoder: Any, size: Size, subwords: int, case: str, request: dict[str, Any]) -> dict[str, Any]:
    """The most bytes that torch held on the GPU, the CUDA context's, the forecast, and examples a second."""
    import numpy as np

    from _speed import build_run, choose_scale, time_epochs, workspace
    from _synthetic import make_rows, write_rows
    from crossling.models.model import build_model
    from crossling.objectives import label_texts
    from crossling.recipe.recipe import parse_recipe
    from crossling.study.memory import Load, forecast_gpu_stage
    from crossling.training.hardware import release_memory
    from crossling.training.mixture import Stream

    scale = choose_scale(request["device"], quick=request["quick"])
    options = argparse.Namespace(
        task="nli", batch=32, rows=64, trim=bool(subwords), device=request["device"], quick=False
    )
    recipe = parse_recipe(make_recipe(options, "random", CASES[case]))
    expected = forecast_gpu_stage(recipe, 0, encoder, Load(32, TEXTS.longest, subwords or size.vocabulary))
    with workspace() as folder:
        rows = make_rows(TEXTS, 32 * (1 if scale.quick else STEPS), subwords or size.vocabulary)
        for number, row in enumerate(rows):  # all as long as the longest, as the forecast has it
            row["input_ids"] = np.resize(row["input_ids"], TEXTS.longest)
            row["gold"] = number % 3
        model = build_model(encoder, {"kind": "last"})
        objective = label_texts.Objective("main", classes=3)
        model.heads["main"] = objective.build_head(encoder.width)
        if subwords:
            model.trim(np.arange(subwords))
        stream = Stream(objective, write_rows(TEXTS, rows, folder / "examples.arrow"))
        release_memory(scale.device)
        run = build_run(model, stream, scale, folder / "work", batch=32, **CASES[case])
        seconds = time_epochs(run, TIMED, scale.device)
    held = context = 0
    if scale.on_gpu:
        free, total = torch.cuda.mem_get_info()
        held, context = torch.cuda.max_memory_reserved(), total - free - torch.cuda.memory_reserved()
    return {"forecast": expected, "measured": held, "context": context, "speed": len(rows) / seconds}


def forecast_large() -> None:
    """GB on a GPU for NLI in batches of 32 x 128 subwords, with the CUDA context; weights are on no device."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    from _synthetic import build_tokenizer
    from crossling.encoders.encoder import Encoder
    from crossling.recipe.recipe import parse_recipe
    from crossling.study.memory import GPU_OVERHEAD, Load, forecast_gpu_stage

    with torch.device("meta"):
        model = XLMRobertaModel(XLMRobertaConfig(**LARGE.config() | XLM_R), add_pooling_layer=False)
    encoder = Encoder(model, build_tokenizer(TINY), name="large", identity="large")
    print("settings\twhole vocabulary GB\ttrimmed to 28,000 subwords GB")
    for case, changes in CASES.items():
        needs = []
        for trim in (False, True):
            options = argparse.Namespace(task="nli", batch=32, rows=64, trim=trim, device="cuda", quick=False)
            recipe = parse_recipe(make_recipe(options, "large", changes))
            needs.append(GPU_OVERHEAD + forecast_gpu_stage(recipe, 0, encoder, Load(32, 128, 28_000)))
        print(case, *(f"{need / 1e9:.1f}" for need in needs), sep="\t")


if __name__ == "__main__":
    raise SystemExit(main())
