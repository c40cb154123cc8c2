"""How much memory training takes, beside what ``crossling check`` forecasts: whole runs, each in its own process.

    python benchmarks/memory.py                          # the offline encoder, on whatever device is there
    python benchmarks/memory.py --device cpu --task ner --trim --only plain lora
    python benchmarks/memory.py --device cuda --large    # random weights of XLM-R large's size: needs 16 GB of disk
    python benchmarks/memory.py --forecast               # XLM-R large on a GPU, forecast only: nothing is trained
    python benchmarks/memory.py --device cpu --quick     # a tiny encoder: only to see that everything works

On a CPU the most that was ever resident is measured, on a GPU the most that torch had allocated, to which the forecast
of ``crossling study`` adds the CUDA context. The sentences are the phrasebook's, the tokenizer is XLM-R's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

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
LARGE = {
    "vocab_size": 250_002,
    "hidden_size": 1_024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4_096,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}
"""XLM-R large."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.one:
        measure(json.loads(options.one))
        return 0
    if options.forecast:
        forecast_large()
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device here: nothing is measured")
        return 2
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
    parser.add_argument("--large", action="store_true", help="Random weights of XLM-R large's size.")
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
    if not options.large:
        return str(options.encoder)
    from transformers import XLMRobertaConfig, XLMRobertaModel

    from crossling.encoders.encoder import Encoder
    from crossling.encoders.loading import load_encoder, save_encoder

    tokenizer = load_encoder("multilingual-e5-small").tokenizer
    model = XLMRobertaModel(XLMRobertaConfig(**LARGE | {"vocab_size": len(tokenizer)}), add_pooling_layer=False)
    return str(save_encoder(Encoder(model, tokenizer, name="large", identity="large"), folder / "large"))


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
        print(torch.cuda.max_memory_allocated())
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


def forecast_large() -> None:
    """GB on a GPU for NLI in batches of 32 x 128 subwords, with the CUDA context; weights are on no device."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    from _synthetic import TINY, build_tokenizer
    from crossling.encoders.encoder import Encoder
    from crossling.recipe.recipe import parse_recipe
    from crossling.study.memory import GPU_OVERHEAD, Load, forecast_gpu_stage

    with torch.device("meta"):
        model = XLMRobertaModel(XLMRobertaConfig(**LARGE), add_pooling_layer=False)
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
