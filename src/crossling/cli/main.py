"""The command line: verbs in panels, in the order of use. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crossling.cli import data, train, use
from crossling.cli.analyse import app as analyse_app
from crossling.cli.entry import guard
from crossling.cli.papers import reproduce
from crossling.cli.start import start
from crossling.cli.study import app as study_app

PANELS = {
    "Train": ("demo", "start", "check", "run"),
    "Use": ("predict", "suggest", "export", "serve"),
    "Data and encoders": ("data", "encoder", "coverage", "trim", "extend", "align"),
    "Analyse": ("analyse",),
    "Compare": ("study", "reproduce"),
}
"""The verbs that ``crossling --help`` shows under each heading."""


class _Verbs(TyperGroup):
    """All verbs in the order of their panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verbs in PANELS.values() for verb in verbs]


app = typer.Typer(
    name="crossling",
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train a tagger, a classifier or a reader in one language, use it in a hundred.",
)
_PANEL_OF = {verb: panel for panel, verbs in PANELS.items() for verb in verbs}
for _command in (
    *(train.demo, start, train.check, train.run, use.predict, use.suggest, use.export, use.serve),
    *(data.encoder, data.coverage, data.trim, data.extend, reproduce),
):
    app.command(rich_help_panel=_PANEL_OF[_command.__name__])(_command)
_GROUPS = {"data": data.data_app, "align": data.align_app, "analyse": analyse_app, "study": study_app}
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name, rich_help_panel=_PANEL_OF[_name])


def _show_version(wanted: bool) -> None:
    if wanted:
        from crossling import __version__

        typer.echo(f"crossling {__version__}")
        raise typer.Exit


@app.callback()
def _load_plugins(
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FAMILY=FILE.py",
            help="Run a file that defines a custom kind, such as fusions=gated_mean.py. Repeat as needed.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    for plugin in plugins or ():
        from crossling.errors import UserError
        from crossling.registry import add_plugin

        family, equals, file = plugin.partition("=")
        if not equals:
            raise UserError(f"--plugin {plugin}: write FAMILY=FILE.py, such as fusions=gated_mean.py")
        add_plugin(family, file)


def main() -> None:
    """Run a command; see :func:`crossling.cli.entry.guard`."""
    guard(app)


if __name__ == "__main__":
    main()
