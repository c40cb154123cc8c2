"""The Python interface: load an encoder, fine-tune, evaluate, predict, save, load; or run a whole recipe.

What is trained here is kept in the store by identity, as the command line keeps it: the same call again trains
nothing, and a killed one continues from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crossling.data.catalogue import open_data
from crossling.data.in_memory import is_in_memory, store_in_memory
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.errors import RecipeError
from crossling.inference.evaluate import predict_with
from crossling.inference.predictor import Predictor
from crossling.models.model import load_model
from crossling.progress import NoProgress, Progress
from crossling.recipe.overrides import apply_overrides
from crossling.recipe.recipe import EvaluateSettings, Recipe, load_recipe, parse_recipe, validate_table
from crossling.registry import add_plugin, load_kind
from crossling.report.run_summary import RunSummary
from crossling.report.terminal import TerminalProgress
from crossling.scores.metrics import score
from crossling.store.artefacts import Store, find_store
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.run_record import find_model
from crossling.study.run_report import report_run
from crossling.tasks import resolve_task
from crossling.training.distributed import Distributed, setup_distributed

__all__ = ["evaluate", "finetune", "load", "load_encoder", "predict", "run", "save", "to_frame"]

Table = Mapping[str, Any]
"""What a TOML table holds."""
DataSpec = Any
"""A data set's name; a table as in a recipe; or rows: a frame of pandas or polars, a ``datasets.Dataset``, an Arrow
table, or a list of tuples ``(text, label)``, ``(words, tags)``, ``(first, second, label)`` or of dicts. Rows in another
language than the source are ``{"rows": …, "language": "sw"}``, with ``fields`` where columns have other names."""
Input = str | Sequence[str]
"""A text; a sentence as a list of words; a pair of texts, or of question and context."""
Names = str | Iterable[str]
"""One name or several; a lone string is one name, never a list of letters."""
Plugins = Mapping[str, Names]
"""Files that define custom kinds, by family: ``{"fusions": ["gated.py"]}``."""
Shown = Progress | bool
"""Whether progress is shown as on the command line; or what receives it instead."""


def finetune(
    encoder: str | Encoder,
    task: str | Table,
    train: DataSpec,
    *,
    seed: int = 1,
    source: str = "en",
    store: str | Path | None = None,
    progress: Shown = True,
    plugins: Plugins | None = None,
    threads: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    **settings: Any,
) -> Predictor:
    """Train a task on an encoder; further settings are those of a recipe's finetune stage (``epochs=2``, ``dev=…``).

    ``threads``, ``device`` and ``precision`` are those of a recipe's ``[run]``; ``progress=False`` shows nothing.
    """
    name, revision = _origin(encoder)
    kept = find_store(store)
    stage = {"kind": "finetune", "task": task, "train": train, **settings}
    for key in ("train", "dev"):
        if stage.get(key) is not None:
            stage[key] = _store_rows(stage[key], task, language=source, store=kept)
    tables = {
        "seeds": [seed],
        "source": source,
        "encoder": {"name": name} if revision is None else {"name": name, "revision": revision},
        "stage": [stage],
        "run": {"device": device, "precision": precision, **({} if threads is None else {"threads": threads})},
        "plugins": {family: list(_list_names(files)) for family, files in (plugins or {}).items()},
    }
    recipe = parse_recipe(apply_overrides(tables, ()), where="finetune")
    distributed = setup_distributed(recipe.run)
    with TemporaryDirectory() as out, _show(progress, distributed) as shown:
        RecipeRun(recipe, Store(kept), Path(out), distributed, shown).run()
        return Predictor.from_model(*load_model(find_model(Path(out), seed=seed)), distributed=distributed)


def _store_rows(data: Any, task: str | Table, *, language: str, store: Path) -> Any:
    """Data as a recipe names it: rows in memory are written into the store."""
    if is_in_memory(data):
        kind = str(resolve_task(task if isinstance(task, str) else dict(task)).get("kind"))
        names = [field.name for field in fields(load_kind("tasks", kind).Task.record)]
        return store_in_memory(data, names, language=language, store=store)
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_store_rows(one, task, language=language, store=store) for one in data]
    return data


@contextmanager
def _show(progress: Shown | None, distributed: Distributed | None = None) -> Iterator[Progress]:
    """What receives the progress: a bar, what the caller gave, or nothing; of several processes the first shows it."""
    if not progress or (distributed is not None and not distributed.is_main):
        yield NoProgress()
    elif progress is True:
        with TerminalProgress(logs=False) as bar:
            yield bar
    else:
        yield progress


def _list_names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _origin(encoder: str | Encoder) -> tuple[str, str | None]:
    if isinstance(encoder, str):
        return encoder, None
    if encoder.origin is None:
        raise RecipeError(
            f"encoder {encoder.name!r}: was not loaded from a name or a folder, so that a saved model could not find "
            "it again. Save it with save_encoder and load that folder with load_encoder."
        )
    return encoder.origin


def evaluate(
    model: Predictor,
    on: DataSpec,
    languages: Names = (),
    *,
    split: str = "test",
    batch: int = 128,
    store: str | Path | None = None,
    progress: Shown = True,
) -> dict[str, dict[str, float]]:
    """Scores of a model by language: ``evaluate(model, "panx", ["de", "hi"])["hi"]["span_f1"]``, as fractions.

    Rows in memory are of the one language that is named, or of the source language.
    """
    named, folder = _list_names(languages), find_store(store)
    if is_in_memory(on):
        if len(named) > 1:
            raise RecipeError(f"languages: rows have one language, not {', '.join(named)}; evaluate each alone")
        settings = model.task.settings.model_dump(mode="json")
        on = _store_rows(on, settings, language=named[0] if named else model.card.source, store=folder)
        named = ()
    table = {"on": on if isinstance(on, str) else dict(on), "languages": named, "split": split}
    problems: list[str] = []
    entry = validate_table(EvaluateSettings, {**table, "batch": batch}, "evaluate", problems)
    if entry is None:
        raise RecipeError("\n  ".join(["evaluate: " + problems[0], *problems[1:]]))
    opened = [(language, open_data(spec, split=entry.split, store=folder)) for language, spec in entry.specs()]
    with _show(progress, getattr(model.engine, "distributed", None)) as shown:
        found = predict_with(
            model.engine,
            model.task,
            [rows for _, rows in opened],
            head=model.head,
            cache=folder / "encoded",
            batch=entry.batch,
            progress=shown,
        )
        return {language: score(predictions) for (language, _), predictions in zip(opened, found, strict=True)}


def predict(model: Predictor, inputs: str | Sequence[Input], *, language: str | None = None) -> list[dict[str, Any]]:
    """What a model says of new texts, lists of words, pairs, or ``(question, context)``; offsets are in characters.

    ``language`` decides how running text is split into words; without it, as in the language of the training labels.
    """
    return model.predict([inputs] if isinstance(inputs, str) else inputs, language=language)


def to_frame(results: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]] | RunSummary) -> Any:
    """Results as a pandas DataFrame: scores of :func:`evaluate` by language, predictions by input, or the scores of
    :func:`run` by data set, language and seed."""
    import pandas

    if isinstance(results, RunSummary):
        rows = [
            {"data": one.data, "language": one.language, "seed": seed, **{n: v[place] for n, v in one.scores.items()}}
            for one in results.results
            for place, seed in enumerate(results.seeds)
        ]
        return pandas.DataFrame(rows)
    if isinstance(results, Mapping):
        return pandas.DataFrame.from_dict(dict(results), orient="index").rename_axis("language")
    return pandas.DataFrame(list(results))


def save(model: Predictor, folder: str | Path) -> None:
    """Write a trained model into a folder that needs neither the store nor the encoder that it was trained from."""
    model.save(folder)


def load(
    folder: str | Path,
    *,
    seed: int | None = None,
    plugins: Plugins | None = None,
    engine: str = "auto",
    threads: int | None = None,
    precision: str = "auto",
) -> Predictor:
    """A trained model, from the folder that it was saved in or the folder of a run; ``plugins`` as in a recipe.

    ``engine`` is torch, onnx, or auto: what the folder is for. ``threads`` are CPU threads; default: all cores.
    ``precision`` is that of torch's matrix products, as in a recipe's ``[run]``: ``"bfloat16"`` on a CPU that has it.
    """
    for family, files in (plugins or {}).items():
        for file in _list_names(files):
            add_plugin(family, file)
    return Predictor.load(find_model(Path(folder), seed=seed), engine=engine, threads=threads, precision=precision)


def run(
    recipe: str | Path | Recipe,
    overrides: Names = (),
    *,
    out: str | Path | None = None,
    store: str | Path | None = None,
    progress: Shown = True,
) -> RunSummary:
    """Carry out a recipe; gives its scores, samples and facts, and writes its page and tables into ``out``."""
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, _list_names(overrides))
    folder = Path(out) if out else Path("runs") / (Path(recipe).stem if not isinstance(recipe, Recipe) else "recipe")
    with _show(progress) as shown:  # run_recipe shows it in the first process alone
        done = run_recipe(loaded, store=Store(find_store(store)), out=folder, progress=shown)
    return report_run(done)
