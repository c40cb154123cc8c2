"""Probes for all attention heads at once compared with loops over heads, on the same cached features.

    python benchmarks/head_probing.py                                          # the embedded corpus, offline encoder
    python benchmarks/head_probing.py --task pos --data ud:en_ewt:train --rows 1000 # needs CROSSLING_DATA
    python benchmarks/head_probing.py --heads 0 --threads 1                    # loops over all heads, on one thread

Every head's output is collected in one forward run and kept in memory. Then probes are trained: all at once; and head
by head with scikit-learn's LogisticRegression, with torch.optim.LBFGS, and with our own trainer. All minimise the same
loss to the same tolerance; the mean loss that each reached is shown, of the heads that it went over. A loop may go over
some of the heads only (``--heads``), evenly spread; its time is then scaled to all. Rounds take turns, and the best of
each counts. Times are wall times, with CPU times beside them. The ratio is how many times as fast all at once is;
the target is 5 against the faster of the first two loops.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from crossling.analyses import AnalysisContext
from crossling.analyses._probes.features import collect_features, extract_heads
from crossling.analyses._probes.training import InMemory, train_probes
from crossling.data.catalogue import open_data
from crossling.models.model import load_original
from crossling.recipe.recipe import RunSettings
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed, setup_distributed

TARGET = 5.0
L2 = 1.0
CASES = (("pos", "phrasebook-pos:en:train"), ("nli", "phrasebook-nli:en:train"))


@dataclass(frozen=True)
class Examples:
    """Features of all heads, in memory, and labels."""

    values: Tensor
    """N x G x D."""
    labels: Tensor
    classes: int
    seconds: float
    """What the forward run took."""


def main() -> None:
    options = parse_options()
    cases = [(options.task, options.data)] if options.data else CASES
    for row in measure(
        cases,
        encoder=options.encoder,
        rows=options.rows,
        heads=options.heads,
        rounds=options.rounds,
        tolerance=options.tolerance,
        device=options.device,
        threads=options.threads,
    ):
        figures = (
            f"{row['seconds']:9.2f} s  mean loss {row['loss']:.5f}  all at once is {row['ratio']:6.2f} times as fast"
        )
        print(f"{row['what']:34} {figures}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="multilingual-e5-small")
    parser.add_argument("--task", default="pos")
    parser.add_argument("--data", default="", help="Default: the embedded corpus, words and then pairs of texts.")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--heads", type=int, default=12, help="Heads that loops go over; 0: all.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


def measure(
    cases: Any = CASES,
    *,
    encoder: str = "multilingual-e5-small",
    rows: int = 2_000,
    heads: int = 12,
    rounds: int = 2,
    tolerance: float = 1e-5,
    device: Any = "auto",
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """A row for each way of training the probes of each case: seconds for all heads, and how we compare."""
    distributed = setup_distributed(RunSettings(device=device, threads=threads))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for task, data in cases:
            examples = collect(encoder, task, data, rows, distributed, Path(folder))
            count, groups, width = examples.values.shape
            print(
                f"{task} on {data}: {count:,} examples, {groups} heads of width {width}, {examples.classes} classes; "
                f"{distributed.device}, {torch.get_num_threads()} threads; one forward run {examples.seconds:.1f} s",
                flush=True,
            )
            found += compare(task, examples, heads or groups, rounds, tolerance)
    return found


def collect(encoder: str, task_name: str, data: str, limit: int, distributed: Distributed, store: Path) -> Examples:
    """Every head's output at every word, or at every text's first token."""
    model, _ = load_original(encoder)
    model.to(distributed.device)
    rows = open_data(data, split="train", store=store).head(limit)
    settings = parse_task(task_name)
    task = build_task(settings, build_task(settings, ()).collect_labels([rows]))
    groups = model.encoder.layers * model.encoder.heads
    start = time.perf_counter()
    stored, positions = collect_features(
        model,
        task,
        rows,
        extract=extract_heads,
        key=[],
        groups=groups,
        labels=task.labels,
        folder=store / task_name,
        context=AnalysisContext(distributed, store),
    )
    taken = time.perf_counter() - start
    labels = torch.from_numpy(positions.gold).to(distributed.device)
    return Examples(torch.cat(list(stored.parts(4_096))), labels, len(task.labels), taken)


def draw_examples(count: int, heads: int, width: int, classes: int, device: torch.device) -> Examples:
    """Features drawn at random, a few dimensions of each head depending on the class, without an encoder."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    centres = torch.randn(classes, heads, width, generator=generator) * (torch.arange(width) < 8) * 0.5
    values = torch.randn(count, heads, width, generator=generator) + centres[labels]
    return Examples(values.to(device), labels.to(device), classes, 0.0)


Train = Callable[[Examples, float, list[int]], float]
"""Train the probes of some heads and give the sum of their losses."""


def compare(name: str, examples: Examples, heads: int, rounds: int, tolerance: float) -> list[dict[str, Any]]:
    groups = examples.values.shape[1]
    some = [round(number * (groups - 1) / max(1, heads - 1)) for number in range(min(heads, groups))]
    ways: dict[str, tuple[Train, list[int]]] = {
        "all at once": (train_together, list(range(groups))),
        "scikit-learn, head by head": (train_sklearn, some),
        "torch.optim.LBFGS, head by head": (train_torch, some),
        "our own trainer, head by head": (train_alone, some),
    }
    best: dict[str, tuple[float, float]] = dict.fromkeys(ways, (float("inf"), float("inf")))
    losses: dict[str, float] = {}
    for number in range(rounds + 1):  # the first one warms up
        for way, (train, chosen) in ways.items():
            if not number and way.startswith("scikit"):
                continue
            start, work = time.perf_counter(), time.process_time()
            losses[way] = train(examples, tolerance, chosen) / len(chosen)
            if examples.labels.is_cuda:
                torch.cuda.synchronize()
            if number:
                share = groups / len(chosen)
                taken = ((time.perf_counter() - start) * share, (time.process_time() - work) * share)
                best[way] = min(best[way], taken)
    ours = best["all at once"][0]
    return [
        {
            "what": f"{name}: {way}",
            "seconds": seconds,
            "cpu": cpu,
            "loss": losses[way],
            "ratio": seconds / ours,
            "target": TARGET,
        }
        for way, (seconds, cpu) in best.items()
    ]


def train_together(examples: Examples, tolerance: float, heads: list[int]) -> float:
    probes = train_probes(
        InMemory(examples.values), examples.labels, classes=examples.classes, l2=L2, tolerance=tolerance
    )
    return float(probes.loss.sum())


def train_alone(examples: Examples, tolerance: float, heads: list[int]) -> float:
    total = 0.0
    for head in heads:
        alone = InMemory(examples.values[:, head : head + 1].contiguous())
        found = train_probes(alone, examples.labels, classes=examples.classes, l2=L2, tolerance=tolerance)
        total += float(found.loss.sum())
    return total


def train_sklearn(examples: Examples, tolerance: float, heads: list[int]) -> float:
    """On the CPU, in single precision, which is faster."""
    from sklearn.linear_model import LogisticRegression

    labels = examples.labels.cpu().numpy()
    total = 0.0
    for head in heads:
        scaled = _scale(examples.values[:, head]).cpu().numpy()
        # Of two classes it has one row of weights, so that the same penalty is half of ours.
        strength = 1 / L2 if examples.classes > 2 else 2 / L2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(C=strength, tol=tolerance, max_iter=5_000).fit(scaled, labels)
        weights, biases = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
        if examples.classes == 2:
            weights, biases = torch.cat([-weights, weights]) / 2, torch.cat([-biases, biases]) / 2
        scores = torch.from_numpy(scaled).double() @ weights.double().T + biases.double()
        penalty = L2 / 2 * weights.double().square().sum() / len(labels)
        total += float(functional.cross_entropy(scores, torch.from_numpy(labels)) + penalty)
    return total


def train_torch(examples: Examples, tolerance: float, heads: list[int]) -> float:
    """As one writes it by hand: all examples in each step, a line search."""
    total = 0.0
    for head in heads:
        scaled = _scale(examples.values[:, head])
        weight = torch.zeros(examples.classes, scaled.shape[1], device=scaled.device, requires_grad=True)
        bias = torch.zeros(examples.classes, device=scaled.device, requires_grad=True)
        optimiser = torch.optim.LBFGS(
            [weight, bias], max_iter=2_000, tolerance_grad=tolerance, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            scores = scaled @ weight.T + bias  # noqa: B023 (used before the next head comes)
            return functional.cross_entropy(scores, examples.labels) + L2 / 2 * weight.square().sum() / len(scaled)  # noqa: B023

        def closure() -> float:
            optimiser.zero_grad()  # noqa: B023
            value = loss()
            value.backward()  # type: ignore[no-untyped-call]
            return float(value.detach())

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        total += float(loss().detach())
    return total


def _scale(values_ND: Tensor) -> Tensor:
    spread = values_ND.std(0, correction=0)
    return (values_ND - values_ND.mean(0)) / torch.where(spread > 0, spread, 1.0)


if __name__ == "__main__":
    main()
