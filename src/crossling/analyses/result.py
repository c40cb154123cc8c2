"""What an analysis found: the tables of all models, and their summary as files that the report reads.

``STEM.parquet`` is the whole table and ``STEM.json`` the summary: tables as objects, notes, heat maps and the names of
figures. CSV, Markdown and SVG are written from the same objects, for people and other programs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from crossling.analyses import Draws, WritesCsv, load_analysis
from crossling.analyses.correlation import Variant, correlate_scores, draw_scatter
from crossling.analyses.settings import AnalysisSettings
from crossling.files import read_json, replacing, write_atomic
from crossling.report.figures import HeatMap
from crossling.report.table import Table, markdown_text, neutralise

S = TypeVar("S", bound=AnalysisSettings, covariant=True)
FOLDER = Path("analyses")
"""Where results of models from several places go by default."""


@dataclass(frozen=True)
class AnalysisTable(Generic[S]):
    """The tables of all models as one."""

    settings: S
    table: pa.Table
    """``task``, ``model`` and ``seed``, then the columns of the analysis."""
    title: str = ""
    """Which models were analysed."""
    home: Path | None = None
    """Where results go by default: the folder of a study, a run or a model, if it is the only one."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """For each model that is compared with another: the other's name."""
    pretrained: frozenset[str] = frozenset()
    """Names of encoders before any training here: they have no seeds."""
    variants: tuple[Variant, ...] = ()
    """Of studies: measures and zero-shot scores."""
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each row."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


@dataclass(frozen=True)
class AnalysisResult:
    """The summary of an analysis, as the report shows it."""

    kind: str
    title: str
    settings: str
    """Those that are not the default, as JSON."""
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    figures: Mapping[str, Path] = field(default_factory=dict)
    """SVG files by name."""

    def to_json(self) -> dict[str, Any]:
        """For a file that a program reads back, see :meth:`from_json`."""
        return {
            "analysis": self.kind,
            "title": self.title,
            "settings": self.settings,
            "tables": [table.to_json() for table in self.tables],
            "notes": list(self.notes),
            "heat_maps": [heat_map.to_json() for heat_map in self.heat_maps],
            "figures": {name: path.name for name, path in self.figures.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path) -> AnalysisResult:
        """A summary that :meth:`to_json` wrote; its figures lie in ``folder``."""
        return cls(
            kind=value["analysis"],
            title=value["title"],
            settings=value["settings"],
            tables=tuple(map(Table.from_json, value["tables"])),
            notes=tuple(value["notes"]),
            heat_maps=tuple(map(HeatMap.from_json, value["heat_maps"])),
            figures={name: folder / Path(file).name for name, file in value["figures"].items()},
        )

    def to_markdown(self) -> str:
        """For a document."""
        head = f"# {self.kind}: {markdown_text(self.title)}\n\nSettings: `{self.settings}`.\n"
        notes = "".join(f"- {markdown_text(note)}\n" for note in self.notes)
        return "\n".join([head, *(table.to_markdown() for table in self.tables), *([notes] if notes else [])])


def write_result(found: AnalysisTable[AnalysisSettings], path: Path | None = None) -> tuple[AnalysisResult, list[Path]]:
    """Summarise an analysis and write all files; ``path`` is the CSV file, by default in the models' folder."""
    path = path or (found.home or FOLDER) / f"{found.settings.file_stem()}.csv"
    path = path if path.suffix == ".csv" else path.with_name(f"{path.name}.csv")
    kind = load_analysis(found.settings.kind)
    tables = tuple(
        replace(table, stem="-".join(filter(None, (path.stem, str(number or "")))))
        for number, table in enumerate(kind.summarise(found))
    )
    drawn = dict(kind.draw(found)) if isinstance(kind, Draws) else {}
    if len(found.variants) > 1:
        drawn[""] = draw_scatter(found.variants, title=f"{path.stem}: {found.title}")
    figures = {name: svg for name, svg in drawn.items() if isinstance(svg, str)}
    correlations = (one.describe() for one in correlate_scores(found.variants))
    result = AnalysisResult(
        kind=found.settings.kind,
        title=found.title,
        settings=found.settings.describe(),
        tables=tables,
        notes=(*correlations, *(f"Note: {note}." for note in found.notes)),
        heat_maps=tuple(one for one in drawn.values() if isinstance(one, HeatMap)),
        figures={name or path.stem: _beside(path, name, ".svg") for name in figures},
    )
    written = kind.to_csv(found) if isinstance(kind, WritesCsv) else {"": table_to_csv(found.table)}
    files = {_beside(path, name, ".csv"): text for name, text in written.items()}
    files |= {_beside(path, name, ".svg"): svg for name, svg in figures.items()}
    files[path.with_suffix(".md")] = result.to_markdown()
    with replacing(path.with_suffix(".parquet")) as partial:
        pq.write_table(found.table, partial)
    for place, text in files.items():
        write_atomic(place, text)
    write_atomic(path.with_suffix(".json"), json.dumps(result.to_json(), ensure_ascii=False))
    return result, [*files, path.with_suffix(".parquet"), path.with_suffix(".json")]


def _beside(path: Path, name: str, ending: str) -> Path:
    return path.with_name("-".join(filter(None, (path.stem, name))) + ending)


def table_to_csv(table: pa.Table) -> str:
    """For a spreadsheet; columns of lists, which are for figures, are left out."""
    text = io.BytesIO()
    plain = [column.name for column in table.schema if not pa.types.is_nested(column.type)]
    chosen = table.select(plain)
    for place, column in enumerate(chosen.schema):
        if pa.types.is_string(column.type):
            cells = [None if cell is None else neutralise(cell) for cell in chosen.column(place).to_pylist()]
            chosen = chosen.set_column(place, column, pa.array(cells, column.type))
    pyarrow.csv.write_csv(chosen, text)
    return text.getvalue().decode()


def find_results(folder: Path) -> list[AnalysisResult]:
    """Every analysis that was written into a folder; files that are damaged or of another kind are passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        facts = read_json(path) if path.with_suffix(".parquet").is_file() else None
        if isinstance(facts, dict) and "analysis" in facts:
            try:
                found.append(AnalysisResult.from_json(facts, folder))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
    return found
