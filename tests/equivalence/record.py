"""Record digests of everything that training and analyses give, with the code at hand, on this machine.

    python tests/equivalence/record.py                      # writes reference.json beside this file
    python tests/equivalence/record.py --compare            # runs all cases again and compares: see compare.py

Commands run in a temporary folder on one CPU thread. Nothing of crossling is imported here, so that the names in
``cases.py`` are all that this depends on.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import compileall
import csv
import fnmatch
import hashlib
import json
import os
import platform
import shutil
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cases import (
    ANALYSE,
    ANALYSES,
    ANALYSIS_OUT,
    ANALYSIS_TABLES,
    ARTEFACT,
    PREDICTIONS,
    PROGRAM,
    RUN,
    RUN_RECORD,
    SCORES,
    STAGES_KEY,
    STORE_VARIABLE,
    STORED_TABLES,
    TRAININGS,
    Looking,
    Training,
    write_option,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REFERENCE = HERE / "reference.json"
FORMAT = 1
LARGE = 6_000
"""Characters of a table beyond which a reference has digests of its columns instead of its values."""

Record = dict[str, Any]


# ---- What commands need ---------------------------------------------------------------------------------------------


def make_encoders(folder: Path) -> None:
    """Tiny BERT encoders with fixed random weights: one with a head for masked words, one with a pooler."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    devanagari = [chr(code) for code in range(0x0900, 0x0980)]
    characters = [*string.ascii_letters, *string.digits, *"äöüÄÖÜß", *".,!?;:'\"()-।", *devanagari]
    words = ["the", "The", "in", "is", "a", "der", "die", "das", "##er", "##en", "##s", "##ing"]
    pieces = dict.fromkeys([*special, *words, *characters, *(f"##{one}" for one in characters)])
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    config = BertConfig(
        vocab_size=len(pieces) + 3,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=512,
        pad_token_id=0,
    )
    for name, model_class in {"tiny": BertForMaskedLM, "tiny-pooler": BertModel}.items():
        model = model_class(config)
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter_name, parameter in sorted(model.named_parameters()):
                is_scale = parameter.dim() == 1 and parameter_name.endswith("weight")  # of a normalisation
                mean, spread = (1.0, 0.1) if is_scale else (0.0, 0.2)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread + mean)
        model.save_pretrained(folder / name)
        fast.save_pretrained(folder / name)


def write_text(folder: Path) -> None:
    """Sentences and translations without links."""
    people = [("the cat", "die Katze"), ("the dog", "der Hund"), ("my sister", "meine Schwester"), ("he", "er")]
    doings = [("sees", "sieht"), ("likes", "mag"), ("finds", "findet")]
    things = [("the house", "das Haus"), ("an old book", "ein altes Buch"), ("good bread", "gutes Brot")]
    pairs = [[f"{p[side]} {d[side]} {t[side]} ." for side in (0, 1)] for p in people for d in doings for t in things]
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"text.{language}").write_text(text, encoding="utf-8")


# ---- Digests --------------------------------------------------------------------------------------------------------


def digest_tensors(path: Path) -> dict[str, str]:
    """A digest of type, shape and bytes for each tensor of a safetensors file."""
    from safetensors import safe_open

    digests = {}
    with safe_open(path, framework="np") as stored:
        for name in sorted(stored.keys()):
            tensor = stored.get_tensor(name)
            what = f"{tensor.dtype.str} {list(tensor.shape)} ".encode()
            digests[name] = hashlib.sha256(what + tensor.tobytes()).hexdigest()
    return digests


def digest_texts(texts: Iterable[str]) -> str:
    """One digest of a sequence of strings."""
    return hashlib.sha256(json.dumps(list(texts), ensure_ascii=False).encode()).hexdigest()


def digest_parquet(path: Path) -> dict[str, Any]:
    """A digest of type and values for each column of a Parquet file, rows in their order."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = {
        field.name: digest_texts([str(field.type), *map(repr, table.column(field.name).to_pylist())])
        for field in table.schema
    }
    return {"rows": len(table), "columns": columns}


def read_csv(path: Path) -> Record:
    """A table with its values as they are written."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    return {"columns": rows[0] if rows else [], "rows": rows[1:]}


def read_stored(paths: Sequence[Path]) -> Record:
    """Tables of several models as one, with the exact values, each row once."""
    import pyarrow.parquet as pq

    columns: list[str] = []
    rows: set[tuple[str, ...]] = set()
    for path in paths:
        table = pq.read_table(path)
        columns = table.column_names
        rows.update(tuple(repr(row[name]) for name in columns) for row in table.to_pylist())
    return {"columns": columns, "rows": [list(row) for row in sorted(rows)]}


def shorten(table: Record) -> Record:
    """A large table with digests in the place of its values: one of all rows, and one of each column."""
    if "rows" not in table or len(json.dumps(table)) <= LARGE:
        return table
    return summarise(table["columns"], table["rows"])


def summarise(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Record:
    """Digests of a table that do not depend on the order of its rows."""
    return {
        "columns": list(columns),
        "count": len(rows),
        "digest": digest_texts(json.dumps(list(row), ensure_ascii=False) for row in sorted(map(list, rows))),
        "by_column": [digest_texts(sorted(row[index] for row in rows))[:16] for index in range(len(columns))],
    }


# ---- Running --------------------------------------------------------------------------------------------------------


class Place:
    """A temporary folder in which the commands of some code run."""

    def __init__(self, folder: Path, code: Path) -> None:
        self.folder = folder
        source = folder / "src"  # a copy, so that code may change meanwhile, and is compiled once
        shutil.copytree(code / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        compileall.compile_dir(source, quiet=1)
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"},
            "PYTHONPATH": str(source),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "120",
        }
        found = self._call(["-P", "-c", "import crossling; print(crossling.__file__)"], {}).strip()
        if not Path(found).resolve().is_relative_to(source):
            raise SystemExit(f"crossling would be imported from {found}, not from {source}")

    def _call(self, words: Sequence[str], more: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def crossling(self, words: Sequence[str], store: Path) -> str:
        """Run a command of crossling."""
        return self._call(["-P", *PROGRAM, *words], {STORE_VARIABLE: str(store)})

    def out(self, case: str) -> Path:
        """Where a case writes."""
        return self.folder / "out" / case

    def store(self, case: str) -> Path:
        """A store for each case, so that none finds what another did."""
        return self.folder / "stores" / case


def train(case: Training, place: Place) -> Record:
    """Run a recipe; digests of weights by seed and stage, of predictions and of scores."""
    out, store = place.out(case.name), place.store(case.name)
    recipe = place.folder / "recipes" / f"{case.name.replace('/', '-')}.toml"
    recipe.parent.mkdir(exist_ok=True)
    recipe.write_text(case.recipe, encoding="utf-8")
    # Data in files are named relative to where the command runs, or to the recipe; both have them.
    place.crossling([word.format(recipe=recipe, out=out, store=store) for word in RUN], store)
    weights: dict[str, dict[str, str]] = {}
    stages = json.loads((out / RUN_RECORD).read_text(encoding="utf-8"))[STAGES_KEY]
    for seed, identities in sorted(stages.items()):
        for number, identity in enumerate(identities):
            tensors: dict[str, str] = {}
            artefact = store / ARTEFACT.format(identity=identity)
            for path in sorted(artefact.rglob("*.safetensors")):
                tensors |= digest_tensors(path)
            if not tensors:
                raise RuntimeError(f"{case.name}: no weights below {artefact}")
            weights[f"seed {seed} stage {number}"] = tensors
    predictions = {
        path.relative_to(out).as_posix(): digest_parquet(path)
        for path in sorted(out.glob(PREDICTIONS))
        if path.is_file()
    }
    tables = {path.name: read_csv(path) for path in sorted(out.glob(SCORES))}
    if not predictions or not tables:
        raise RuntimeError(f"{case.name}: no predictions or no scores in {out}")
    return {"weights": weights, "predictions": predictions, "tables": tables}


def look(case: Looking, place: Place) -> Record:
    """Run an analysis's commands; the tables that they write, and those that the store has of each model."""
    out = place.out(case.name)
    out.mkdir(parents=True)
    where = {name: place.out(name) for name in {training.name for training in TRAININGS}}
    models = [f"{label}={where.get(model, model)}" for label, model in case.models.items()]
    # The models that were trained are in this store, and what is found of all models goes there.
    store = place.store(case.models["plain"])
    tables: dict[str, Record] = {}
    for variant in case.variants:
        options = [word for field, value in variant.settings.items() for word in write_option(case.kind, field, value)]
        outs = [word.format(out=out, name=variant.name) for word in ANALYSIS_OUT]
        place.crossling([*ANALYSE[case.kind], *models, *options, *outs], store)
        written = sorted(out.glob(ANALYSIS_TABLES.format(name=variant.name)))
        if not written:
            raise RuntimeError(f"{case.name}: no tables of {variant.name} in {out}")
        tables |= {path.name: read_csv(path) for path in written}
    stores = {place.store(model) for model in case.models.values() if model in where}
    pattern = STORED_TABLES.format(kind=ANALYSE[case.kind][-1])
    stored = [path for one in sorted(stores) for path in sorted(one.glob(pattern))]
    if not stored:
        raise RuntimeError(f"{case.name}: no tables in {', '.join(map(str, sorted(stores)))}")
    tables["stored"] = read_stored(stored)
    return {"tables": tables}


def select(patterns: Sequence[str]) -> tuple[list[Training], list[Looking]]:
    """The cases that patterns name, and the trainings that their analyses need."""
    if not patterns:
        return list(TRAININGS), list(ANALYSES)
    analyses = [case for case in ANALYSES if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]
    needed = {model for case in analyses for model in case.models.values()}
    named = {case.name for case in TRAININGS if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)}
    return [case for case in TRAININGS if case.name in named | needed], analyses


def record(code: Path, *, only: Sequence[str] = (), jobs: int = 1) -> Record:
    """Run all cases with the code in a checkout; a case that fails is recorded with its error."""
    trainings, analyses = select(only)
    cases: dict[str, Record] = {}
    began = time.monotonic()

    def carry_out(case: Training | Looking) -> None:
        start = time.monotonic()
        try:
            found = train(case, place) if isinstance(case, Training) else look(case, place)
        except Exception as error:  # a failed case must not hide what the others give
            found = {"error": str(error)}
        cases[case.name] = found
        remark = " FAILED\n" + found["error"] if "error" in found else ""
        print(f"{time.monotonic() - began:6.1f} s  {case.name} ({time.monotonic() - start:.1f} s){remark}", flush=True)

    with tempfile.TemporaryDirectory(prefix="equivalence-") as name, ThreadPoolExecutor(jobs) as pool:
        folder = Path(name).resolve()
        place = Place(folder, code)
        make_encoders(folder)
        write_text(folder)
        facts = {**describe_machine(), "tiny encoder": digest_tensors_together(folder / "tiny" / "model.safetensors")}
        list(pool.map(carry_out, trainings))
        list(pool.map(carry_out, analyses))
    names = [case.name for case in trainings] + [case.name for case in analyses]
    ordered = {name: cases[name] for name in names}
    return {"format": FORMAT, "machine": facts, "seconds": round(time.monotonic() - began), "cases": ordered}


def digest_tensors_together(path: Path) -> str:
    """One digest of all tensors of a file."""
    return digest_texts(f"{name} {digest}" for name, digest in digest_tensors(path).items())


def describe_machine() -> dict[str, str]:
    """What decides on last bits."""
    from importlib.metadata import version

    import torch

    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "cpu family", "model\t", "stepping")):
                key, _, value = line.partition(":")
                processor += f"; {key.strip()} {value.strip()}"
            elif not line.strip():
                break
    facts = {"processor": processor, "capability": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}
    return {**facts, **{name: version(name) for name in ("transformers", "tokenizers", "numpy", "pyarrow")}}


# ---- The file -------------------------------------------------------------------------------------------------------


def write_record(found: Record, path: Path, *, full: bool = False) -> None:
    """Write a record; without ``full``, large tables and digests of tensors are cut short."""
    names: list[list[str]] = []
    cases = {}
    for name, case in found["cases"].items():
        packed = dict(case)
        packed["weights"] = {}
        for stage, tensors in case.get("weights", {}).items():
            if list(tensors) not in names:
                names.append(list(tensors))
            packed["weights"][stage] = {
                "digest": digest_texts(f"{key} {value}" for key, value in tensors.items()),
                "names": names.index(list(tensors)),
                "tensors": " ".join(value[:12] for value in tensors.values()),
            }
        if not full:
            packed["tables"] = {key: shorten(table) for key, table in case.get("tables", {}).items()}
        cases[name] = {key: value for key, value in packed.items() if value}
    lines = [f"{json.dumps(name)}: {json.dumps(case, ensure_ascii=False)}" for name, case in cases.items()]
    known = {name: index for index, name in enumerate(dict.fromkeys(name for some in names for name in some))}
    packed_names = {"all": list(known), "lists": [" ".join(str(known[name]) for name in some) for some in names]}
    head = json.dumps({**found, "cases": {}, "names": packed_names}, ensure_ascii=False)
    path.write_text(head.replace('"cases": {}', '"cases": {\n' + ",\n".join(lines) + "\n}", 1) + "\n", encoding="utf-8")


def read_record(path: Path) -> Record:
    """A record that was written."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    if found["format"] != FORMAT:
        raise SystemExit(f"{path}: format {found['format']}, expected {FORMAT}")
    every = found["names"]["all"]
    found["names"] = [[every[int(index)] for index in text.split()] for text in found["names"]["lists"]]
    return found


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=REFERENCE, help="where the record goes")
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout whose code runs; default: this one")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases, such as 'tiny/*'")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time; each has one thread")
    parser.add_argument("--full", action="store_true", help="write all values of large tables")
    parser.add_argument("--compare", action="store_true", help="compare with the record --out instead of writing it")
    parser.add_argument("--save", type=Path, help="when comparing: write the record of the code at hand, too")
    parser.add_argument("--against", metavar="REV", help="compare with the code of a git revision, on this machine")
    options = parser.parse_args()
    if options.compare or options.against:
        from compare import compare_with

        return compare_with(options)
    if options.only and options.out == REFERENCE:
        parser.error("--only would leave cases out of the reference; name another file with --out")
    found = record(options.code, only=options.only, jobs=options.jobs)
    write_record(found, options.out, full=options.full)
    failed = [name for name, case in found["cases"].items() if "error" in case]
    print(f"{len(found['cases'])} cases in {found['seconds']} s, {len(failed)} failed: {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
