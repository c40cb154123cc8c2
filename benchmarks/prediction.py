"""How fast a trained tagger predicts: files in sentences a second, and single sentences in milliseconds.

    python benchmarks/run.py --device cpu --only prediction

Compared with transformers' pipeline, as it comes (one text after another) and in batches of the size that is fastest
here, and with a plain loop around ONNX Runtime (the same graph, batches in the order of the file, padded to the
longest, no words and no spans). Each round runs every way once, and the best round counts. The limit is what the CPU's
rate of large matrix products in float32, measured in every round, allows for the subwords of these sentences without
padding. The encoder is the offline one where its package is, else a random one of its size. The head is random, which
does not change the time.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _rows import MissingError, Row
from _speed import READ, Scale, count_operations, measure_matrix_rate
from _synthetic import Size

Predict = Callable[[Sequence[str]], Any]
FILES_TARGETS = {"float32": 3.0, "int8": 5.0}
PIPELINE, LOOP, TORCH = "transformers.pipeline", "ONNX Runtime, plain loop", "predict, torch"
TORCH_BF16 = f"{TORCH} in bfloat16"
BATCHED = f"{PIPELINE}, best batch size"
SIZES = (4, 8, 16, 32, 64)
"""Batch sizes that the pipeline is tried with."""
LABELS = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")
BATCH = 32


def measure_prediction(scale: Scale) -> Iterator[Row]:
    """Rows for files and for single sentences, each with float32 and int8."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingError("ONNX Runtime is not installed: pip install 'crossling[onnx]'") from None
    texts = collect_texts(24 if scale.quick else 240)
    with tempfile.TemporaryDirectory() as folder:
        model, card = build_tagger(scale)
        ways = build_ways(model, card, Path(folder))
        files, sizes, rate = measure_files(ways, build_pipeline(model), texts, scale)
        singles: dict[str, list[float]] = {name: [] for name in ways}
        for text in texts[: 4 if scale.quick else 60]:
            for name, predict in ways.items():
                start = time.perf_counter()
                predict([text])
                singles[name].append(1000 * (time.perf_counter() - start))
    lengths = np.array([len(ids) for ids in model.encoder.tokenizer(texts)["input_ids"]])
    operations = count_operations(measure_size(model.encoder), lengths, passes=READ) / len(texts)
    peers = [name for name in ways if name not in FILES_TARGETS]
    for precision, target in FILES_TARGETS.items():
        yield Row(
            f"prediction of files, {precision}",
            f"tags of {len(texts)} sentences in eight languages, ONNX Runtime",
            "sentences/s",
            files[precision],
            peers={**{name: files[name] for name in peers}, BATCHED: max(sizes.values())},
            limit=rate / operations if precision == "float32" else None,
            targets={PIPELINE: target, BATCHED: target},
            notes={
                "subwords of a sentence, mean": round(float(lengths.mean()), 1),
                "matrix products in float32, Gflop/s": round(rate / 1e9),
                **{f"{PIPELINE}, batches of {size}": round(value, 1) for size, value in sizes.items()},
            },
        )
    for precision in FILES_TARGETS:
        yield Row(
            f"prediction of a sentence, {precision}",
            "tags of single sentences, ONNX Runtime, median",
            "ms",
            float(np.median(singles[precision])),
            peers={name: float(np.median(singles[name])) for name in peers},
            better="lower",
            notes={f"p99 {name}": round(float(np.percentile(values, 99)), 1) for name, values in singles.items()},
        )


def measure_files(
    ways: dict[str, Predict], pipeline: Any, texts: Sequence[str], scale: Scale
) -> tuple[dict[str, float], dict[int, float], float]:
    """Sentences a second of every way, of the pipeline by batch size, and the rate of matrix products: the best of all
    rounds, in each of which everything is measured once."""
    timed: dict[Any, Predict] = {**ways, **{size: partial(pipeline, batch_size=size) for size in SIZES}}
    best, rate = dict.fromkeys(timed, 0.0), 0.0
    for predict in timed.values():
        predict(list(texts[:8]))
    for _ in range(1 if scale.quick else 3):
        for name, predict in timed.items():
            start = time.perf_counter()
            predict(list(texts))
            best[name] = max(best[name], len(texts) / (time.perf_counter() - start))
        rate = max(rate, measure_matrix_rate(scale.device, quick=scale.quick))
    return {name: best[name] for name in ways}, {size: best[size] for size in SIZES}, rate


def measure_size(encoder: Any) -> Size:
    """The size of an encoder, of which operations are counted."""
    config = encoder.model.config
    return Size(config.vocab_size, encoder.width, encoder.layers, encoder.heads, config.intermediate_size)


def collect_texts(count: int) -> list[str]:
    """Sentences of the phrasebook, its eight languages mixed."""
    from crossling.data.catalogue import open_data

    languages = ("en", "de", "es", "fr", "hi", "ru", "vi", "zh")
    with tempfile.TemporaryDirectory() as store:
        each = -(-count // len(languages))
        sets = [open_data(f"phrasebook-ner:{code}:train[:{each}]", store=Path(store)) for code in languages]
        rows = [[" ".join(row.words) for row in rows] for rows in sets]
    return [text for together in zip(*rows, strict=True) for text in together][:count]


def build_ways(model: Any, card: Any, folder: Path) -> dict[str, Predict]:
    """What predicts a list of texts, by name; all of them the same model."""
    from crossling.inference.onnx.export import export_onnx
    from crossling.inference.predictor import Predictor
    from crossling.recipe.recipe import RunSettings
    from crossling.training.distributed import has_bf16_products, setup_distributed

    ways: dict[str, Predict] = {}
    for precision in FILES_TARGETS:
        export_onnx(model, card, folder / precision, precision=precision)  # type: ignore[arg-type]
        ways[precision] = Predictor.load(folder / precision).predict
    ways[LOOP] = build_loop(folder / "float32", model.encoder.tokenizer)
    ways[PIPELINE] = build_pipeline(model)
    ways[TORCH] = Predictor.from_model(model, card).predict
    if has_bf16_products():
        reduced = setup_distributed(RunSettings(device="cpu", precision="bfloat16"))
        ways[TORCH_BF16] = Predictor.from_model(model, card, distributed=reduced).predict
    return ways


def build_tagger(scale: Scale) -> tuple[Any, Any]:
    """A tagger with a random head, and its card."""
    from _synthetic import TEXTS, build_encoder
    from crossling.encoders.loading import load_encoder
    from crossling.models.model import ModelCard, build_model
    from crossling.tasks import build_task, parse_task
    from startup import OFFLINE_NAME, has_offline_encoder

    offline = has_offline_encoder() and not scale.quick
    encoder = load_encoder(OFFLINE_NAME) if offline else build_encoder(TEXTS, scale.size)
    task = build_task(parse_task("ner"), LABELS)
    model = build_model(encoder, {"kind": "last"})
    head = task.build_objective("tag").build_head(encoder.width)
    assert head is not None
    model.heads["tag"] = head
    stored: Any = {"tag": {"settings": task.settings.model_dump(mode="json"), "labels": list(LABELS)}}
    return model.eval(), ModelCard(encoder.name, encoder.identity, tasks=stored)


def build_loop(folder: Path, tokenizer: Any) -> Predict:
    """ONNX Runtime as its tutorials use it: a batch after another, padded, with all threads."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def predict(texts: Sequence[str]) -> list[Any]:
        found = []
        for start in range(0, len(texts), BATCH):
            given = tokenizer(list(texts[start : start + BATCH]), padding=True, return_tensors="np")
            inputs = {"ids": given["input_ids"].astype(np.int64), "mask": given["attention_mask"].astype(np.int64)}
            found.append(session.run(None, inputs)[0].argmax(-1))
        return found

    return predict


def build_pipeline(model: Any) -> Any:
    """transformers' pipeline around the same weights; without ``batch_size`` it reads one text after another."""
    from transformers import AutoModelForTokenClassification, pipeline

    config = copy.deepcopy(model.encoder.model.config)
    config.num_labels = len(LABELS)
    config.id2label = dict(enumerate(LABELS))
    tagger = AutoModelForTokenClassification.from_config(config)
    tagger.base_model.load_state_dict(model.encoder.model.state_dict(), strict=False)
    tokenizer = model.encoder.tokenizer
    return pipeline(
        "token-classification", tagger.eval(), tokenizer=tokenizer, device="cpu", aggregation_strategy="first"
    )
