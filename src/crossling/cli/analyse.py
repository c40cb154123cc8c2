"""``crossling analyse KIND MODELS``: a verb for each analysis, with an option for each of its settings.

A list of the kinds takes their docstrings alone; settings are imported when a kind is called.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from crossling.analyses.result import AnalysisResult

MOST_ROWS = 40
"""Rows of a table that the terminal shows, but for the first table."""

ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL",
        help="The folder of a study (or its file), of a run (RUN@0: after its first stage) or of a saved model; or a "
        "pretrained encoder: multilingual-e5-small, a hub name, a folder. LABEL=WHERE gives a name.",
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(help="The language that others are compared with; default: what a model was trained on, en."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A key inside a setting: training.epochs=3. Repeatable."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file; others go beside it. Default: in the folder of a study, run or model, else in analyses/.",
        metavar="FILE.csv",
    ),
]


class AnalysisGroup(TyperGroup):
    """A verb for each kind of analysis, whose options are made when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        from crossling.registry import list_kinds

        return list(list_kinds("analyses"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb without options: all that a list of verbs shows."""
        return _make_command(cmd_name, lambda: None, help=_read_docstring(cmd_name).partition("\n")[0])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0].replace("-", "_")
        return name, build_command(name), args[1:]


app = typer.Typer(
    cls=AnalysisGroup,
    no_args_is_help=True,
    help="Analyse models: trained ones and pretrained encoders. crossling analyse KIND --help lists a kind's options.",
)


@app.callback()
def _analyses() -> None:
    """A group though it has no commands of its own."""


def _make_command(name: str, function: Callable[..., None], *, help: str) -> Any:
    paragraphs = [" ".join(paragraph.split()) for paragraph in help.replace("``", "").split("\n\n")]
    single = typer.Typer(add_completion=False)
    single.command(name, help="\n\n".join(paragraphs))(function)
    return typer.main.get_command(single)


def _read_docstring(kind: str) -> str:
    """A kind's docstring, which for those of the package is read without importing them."""
    spec = find_spec(f"crossling.analyses.{kind}")
    if spec is None or spec.origin is None:
        from crossling.registry import load_kind

        return inspect.cleandoc(load_kind("analyses", kind).__doc__ or "")
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""


def build_command(kind: str) -> Any:
    """The verb of a kind, with an option for each of its settings."""
    from crossling.registry import load_kind

    fields: Mapping[str, FieldInfo] = load_kind("analyses", kind).Settings.model_fields
    own = {name: field for name, field in fields.items() if name != "kind"}

    def run(models: Any, *, source: Any = None, overrides: Any = None, out: Any = None, **options: Any) -> None:
        given = {name: value for name, value in options.items() if value is not None and value != []}
        table = {"kind": kind, **{name: _read_option(own[name], value) for name, value in given.items()}}
        run_analysis(models, table, overrides=overrides or (), source=source, out=out)

    annotations: dict[str, Any] = {"models": ModelsArgument}
    annotations |= {name: _make_option(name, field) for name, field in own.items()}
    annotations |= {"source": SourceOption, "overrides": SetOption, "out": OutOption}
    required = {"models", *(name for name, field in own.items() if field.is_required())}
    keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    run.__annotations__ = annotations
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, keyword, default=empty if name in required else None, annotation=annotation)
            for name, annotation in annotations.items()
        ]
    )
    return _make_command(kind, run, help=_read_docstring(kind))


def _make_option(name: str, field: FieldInfo) -> Any:
    """A setting as an option: the docstring under the field is its help."""
    flag = f"--{name.replace('_', '-')}"
    text, shown = field.description or "", _show_default(field)
    text += f" Default: {shown}." if shown and "efault" not in text else ""
    if field.annotation is bool:
        flags = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return Annotated[bool | None, typer.Option(flags, help=text, show_default=False)]
    kind = list[str] | None if _is_repeatable(field) else str | None
    return Annotated[
        kind if not field.is_required() else str,
        typer.Option(flag, help=text, metavar=_name_value(field.annotation), show_default=False),
    ]


def _show_default(field: FieldInfo) -> str:
    value = field.default
    return "" if isinstance(value, bool) or not isinstance(value, str | int | float) else f"{value}"


def _name_value(annotation: Any) -> str:
    members = _list_members(annotation)
    words = [str(word) for member in members if get_origin(member) is Literal for word in get_args(member)]
    names = {int: "NUMBER", float: "NUMBER", str: "TEXT", tuple[str, ...]: "A,B,…"}
    return "|".join([*(names[member] for member in members if member in names), *words]) or "TEXT"


def _list_members(annotation: Any) -> list[Any]:
    """The types of a union, without none and without their bounds."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    plain = (get_args(member)[0] if get_origin(member) is Annotated else member for member in members)
    return [member for member in plain if member is not type(None)]


def _is_repeatable(field: FieldInfo) -> bool:
    """Whether values are items that may hold commas: pairs, or assignments."""
    annotation = field.annotation
    return annotation == dict[str, str] or (get_origin(annotation) is tuple and annotation != tuple[str, ...])


def _read_option(field: FieldInfo, value: Any) -> Any:
    """What was written, as the setting's type; what does not fit is left to validation."""
    if not isinstance(value, str):
        return value
    members = _list_members(field.annotation)
    if value.lstrip().startswith(("{", "[")):
        from crossling.recipe.overrides import parse_value

        return parse_value(value.strip())
    if tuple[str, ...] in members:
        return [item.strip() for item in value.split(",") if item.strip()]
    if any(get_origin(member) is dict for member in members) and str not in members:
        return _read_table(field, value)
    for number in (int, float):
        if number in members:
            try:
                return number(value)
            except ValueError:
                continue
    return value


def _read_table(field: FieldInfo, text: str) -> Any:
    """A short form of a table, such as its kind, as the table: ``--set`` may then set its keys."""
    from pydantic import BeforeValidator

    from crossling.errors import RecipeError

    try:
        for validator in (one for one in field.metadata if isinstance(one, BeforeValidator)):
            text = validator.func(text)  # type: ignore[call-arg]
    except ValueError as error:
        raise RecipeError(f"{text!r}: {error}") from None
    return text


def run_analysis(
    models: Sequence[str],
    table: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    source: str | None = None,
    out: Path | None = None,
) -> None:
    """Analyse models as a table of settings says, write what was found and show it."""
    from crossling.analyses.result import write_result
    from crossling.analyses.settings import parse_settings
    from crossling.recipe.overrides import apply_overrides
    from crossling.report.terminal import TerminalProgress
    from crossling.study.analyse import analyse

    settings = parse_settings(apply_overrides(dict(table), overrides))
    with TerminalProgress() as progress:
        found = analyse(models, settings, source=source, progress=progress)
    result, files = write_result(found, out)
    _show(result, files)


def _show(result: AnalysisResult, files: Sequence[Path]) -> None:
    """Tables, notes, and the files that hold more."""
    from crossling.report import terminal

    for number, table in enumerate(result.tables):
        if number and len(table.rows) > MOST_ROWS:
            terminal.print_message(f"{table.title}: {len(table.rows):,} rows, in the Markdown file.")
            continue
        terminal.print_message(table.title)
        terminal.out.print(table.to_rich())
        for note in table.notes:
            terminal.print_message(note)
    for note in result.notes:
        terminal.print_message(note)
    for path in files:
        terminal.print_message(f"written: {path}")
