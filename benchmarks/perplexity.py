"""Pseudo-perplexity beside minicons: the same model, the same texts, the same scores, in the same process.

    python benchmarks/perplexity.py                                  # the embedded corpus, the offline encoder
    python benchmarks/perplexity.py --on ntrex:en-de --sentences 40  # needs CROSSLING_DATA
    python benchmarks/perplexity.py --encoder xlm-roberta-base       # a checkpoint with a head of its own

Needs ``minicons`` (measured with 0.3.39), which is no dependency: ``pip install minicons``, or a folder of it in
PYTHONPATH. With transformers 5 it calls a method that is gone, ``batch_encode_plus``; here that is the tokenizer's own
call. An encoder without a head gets one of random weights, which scores as fast as any. minicons is given the best of
several batch sizes (texts in a batch; it holds the scores of all subwords at all places of all copies of them).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from _rows import MissingError, clock
from crossling.analyses.perplexity import SubwordPredictor, score_copies
from crossling.data.catalogue import choose_split, open_data
from crossling.data.records import TEXT_COLUMNS, PlainText
from crossling.data.rows import SCHEMAS, Rows
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder, locate_checkpoint
from crossling.encoders.masked_word_head import MaskedWordHead, build_head, load_head
from crossling.encoders.unlabelled import Chunking, encode_unlabelled
from crossling.models.model import build_model
from crossling.progress import NoProgress
from crossling.training.distributed import Distributed

METHODS = ("original", "within_word_l2r")
Score = Callable[[str], np.ndarray]
"""The pseudo-log-likelihood of each text by a method."""


def main() -> None:
    options = parse_options()
    try:
        measure(
            options.on,
            encoder=options.encoder,
            sentences=options.sentences,
            batches=options.batches,
            rounds=options.rounds,
            device=options.device,
        )
    except MissingError as error:
        print(error)


def measure(
    data: str = "phrasebook-sentiment:de",
    *,
    encoder: str = "multilingual-e5-small",
    sentences: int = 40,
    batches: Sequence[int] = (1, 4),
    rounds: int = 2,
    device: str = "cpu",
    methods: Sequence[str] = METHODS,
) -> list[dict[str, Any]]:
    """By method: seconds of ours and of minicons at its best, and how far their scores are apart."""
    try:
        from minicons import scorer  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingError(
            f"minicons is not here ({error}); install it beside crossling: pip install minicons"
        ) from None
    where = torch.device(device)
    loaded = load_encoder(encoder)
    torch.manual_seed(0)
    head = (load_head(loaded) or build_head(loaded)).to(where).eval()
    with tempfile.TemporaryDirectory() as folder:
        texts = read_texts(data, sentences, Path(folder))
        ours, subwords = prepare_ours(loaded, head, texts, Path(folder), where)
        peer = prepare_peer(scorer, loaded, head, where)
        print(f"{len(texts)} texts, {subwords:,} subwords; {loaded.name} on {where}", flush=True)
        peers = {n: peer(texts, n) for n in batches}
        return [compare(method, subwords, ours, peers, rounds=rounds) for method in methods]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="multilingual-e5-small")
    parser.add_argument("--on", default="phrasebook-sentiment:de")
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def read_texts(data: str, count: int, store: Path) -> list[str]:
    """Running texts; of pairs and translations the second side."""
    rows = open_data(data, split=choose_split(data), store=store).head(count)
    texts: list[str] = rows.column(TEXT_COLUMNS[rows.kind][-1]).to_pylist()
    if not texts or not isinstance(texts[0], str):
        raise SystemExit(f"{data}: holds no running text")
    return texts


def prepare_ours(
    encoder: Encoder, head: MaskedWordHead, texts: Sequence[str], folder: Path, device: torch.device
) -> tuple[Score, int]:
    """A function that scores all texts, and how many subwords they have."""
    model = build_model(encoder, {"kind": "last"}).to(device).eval()
    words = SubwordPredictor(head, encoder.model.get_input_embeddings().weight.detach())
    distributed = Distributed(0, 1, device, torch.float32)
    table = pa.table({"text": list(texts)}, schema=SCHEMAS[PlainText])
    rows = Rows(table, PlainText, language="xx", name="texts", fingerprint="texts")

    def score(method: str, encoded: Path = folder) -> np.ndarray:
        # Cutting texts into subwords is part of the time, as it is for the peer.
        path = Path(tempfile.mkdtemp(dir=encoded))
        examples = encode_unlabelled([rows], encoder, Chunking(encoder.max_length, words=True), cache=path).examples
        found = score_copies(
            model, words, examples, rest_of_word=method != "original", distributed=distributed, progress=NoProgress()
        )
        return -np.bincount(found.text, found.loss, minlength=len(texts))

    subwords = sum(len(ids) for ids in encoder.tokenizer(list(texts), add_special_tokens=False)["input_ids"])
    return score, subwords


def prepare_peer(
    scorer: Any, encoder: Encoder, head: MaskedWordHead, device: torch.device
) -> Callable[[Sequence[str], int], Score]:
    """minicons with the very weights that we use."""
    tokenizer = encoder.tokenizer
    tokenizer.batch_encode_plus = tokenizer.__call__  # gone from transformers 5
    model = scorer.MaskedLMScorer(build_masked_model(encoder, head), str(device), tokenizer=tokenizer)

    def prepare(texts: Sequence[str], batch: int) -> Score:
        def score(method: str) -> np.ndarray:
            found: list[float] = []
            for start in range(0, len(texts), batch):
                part = list(texts[start : start + batch])
                found += model.sequence_score(part, reduction=lambda x: x.sum(0).item(), PLL_metric=method)
            return np.asarray(found)

        return score

    return prepare


def build_masked_model(encoder: Encoder, head: MaskedWordHead) -> Any:
    """transformers' model for masked words: the checkpoint's, or BERT's with our head."""
    from transformers import AutoModelForMaskedLM, BertForMaskedLM

    folder = locate_checkpoint(encoder.origin[0], revision=encoder.origin[1]) if encoder.origin else None
    if folder is not None and load_head(encoder) is not None:
        return AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    if encoder.model.config.model_type != "bert":
        raise SystemExit(f"{encoder.name}: a head of random weights is built for BERTs only")
    model = BertForMaskedLM(encoder.model.config)
    model.bert = encoder.model
    transform = model.cls.predictions.transform
    transform.dense.load_state_dict(head.dense.state_dict())
    transform.LayerNorm.load_state_dict(head.norm.state_dict())
    transform.LayerNorm.eps = head.norm.eps
    decoder = model.cls.predictions.decoder
    decoder.weight, decoder.bias = encoder.model.get_input_embeddings().weight, torch.nn.Parameter(head.bias.detach())
    return model.eval()


def compare(method: str, subwords: int, ours: Score, peers: dict[int, Score], *, rounds: int) -> dict[str, Any]:
    """Both in turns, each at its best; the scores must be the same."""
    own_seconds, seconds, largest = float("inf"), dict.fromkeys(peers, float("inf")), 0.0
    for _ in range(rounds):
        taken, own = clock(partial(ours, method))
        own_seconds = min(own_seconds, taken)
        for batch, peer in peers.items():
            taken, theirs = clock(partial(peer, method))
            seconds[batch] = min(seconds[batch], taken)
            largest = max(largest, float(np.abs(own - theirs).max()))
    best = min(seconds, key=lambda batch: seconds[batch])
    peers = ", ".join(f"{value:.1f} s at {batch}" for batch, value in seconds.items())
    print(
        f"{method}: {own_seconds:.1f} s, {subwords / own_seconds:,.0f} subwords/s; minicons {peers} texts a batch; "
        f"{seconds[best] / own_seconds:.1f} times as fast; scores differ by {largest:.1e} at most; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    found = {"method": method, "subwords": subwords, "seconds": own_seconds, "peer": seconds[best], "batch": best}
    return {**found, "difference": largest}


if __name__ == "__main__":
    main()
