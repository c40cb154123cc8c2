"""One model analysed, once: its table is kept in the store under all that affects it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from crossling.analyses import AnalysisContext, AnalysisData, load_analysis
from crossling.analyses.models import ModelLocation, Pretrained
from crossling.analyses.settings import AnalysisSettings
from crossling.files import is_intact, replacing
from crossling.recipe.identity import content_hash
from crossling.registry import identify_plugins


def analyse_model(
    settings: AnalysisSettings, data: AnalysisData, location: ModelLocation, context: AnalysisContext
) -> pa.Table:
    """The table of one model, from the store where the same was asked before.

    ``data`` is what the kind's ``open_analysis_data`` gave for these settings.
    """
    from crossling.models.model import load_model, load_original

    kind = load_analysis(settings.kind)
    # A pretrained encoder's identity is known once it is loaded; a saved model is loaded only if it is needed.
    loaded = load_original(location.name, revision=location.revision) if isinstance(location, Pretrained) else None
    identity = f"encoder-{loaded[0].encoder.identity[:20]}" if loaded else _identify_folder(cast(Path, location))
    path = _table_path(settings, data, identity, store=context.store)
    stored = _read_table(path, kind.SCHEMA)
    if stored is not None:
        return stored
    model, card = loaded or load_model(cast(Path, location))
    model.to(context.distributed.device)
    table = kind.analyse(model, card, data, settings=settings, context=context).cast(kind.SCHEMA)
    _write_table(table, path)
    return table


def _table_path(settings: AnalysisSettings, data: AnalysisData, identity: str, *, store: Path) -> Path:
    """Data count by content and in their order, wherever they lie."""
    facts = [load_analysis(settings.kind).VERSION, settings.model_dump(mode="json"), list(data.fingerprints())]
    if plugins := identify_plugins(facts):
        facts.append(plugins)
    key = content_hash(facts)
    return store / "analyses" / identity / f"{settings.kind}-{key}.parquet"


def _identify_folder(folder: Path) -> str:
    """An artefact goes by its identity, any other saved model by its content."""
    if (folder / "complete.json").is_file():
        return folder.name
    digest = hashlib.sha256()
    for name in ("model.json", "model.safetensors"):
        with (folder / name).open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return f"model-{digest.hexdigest()[:20]}"


def _read_table(path: Path, schema: pa.Schema) -> pa.Table | None:
    """A stored table; a damaged one is made again."""
    if not is_intact(path, needs_seal=False):
        return None
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        return None
    return table if table.schema.equals(schema) else None


def _write_table(table: pa.Table, path: Path) -> None:
    """Write a table so that whoever finds it finds it whole."""
    with replacing(path, seal=True) as partial:
        pq.write_table(table, partial)
