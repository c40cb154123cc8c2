"""Types of settings that several stages have: data sets and tasks, parsed as a recipe is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from crossling.data.spec import list_data
from crossling.errors import UserError
from crossling.tasks import TaskSettings, parse_task

DataSpec = str | dict[str, Any]


def _parse_data(value: Any) -> tuple[DataSpec, ...]:
    found = list_data(value)
    if not found:
        raise ValueError("at least one data set")
    return found


def _parse_task(value: Any) -> TaskSettings:
    try:
        return parse_task(value)
    except UserError as error:
        raise ValueError(str(error)) from None


def _dump_task(task: TaskSettings | None) -> dict[str, Any] | None:
    """A table; none for a task that an earlier stage names."""
    return task.model_dump(mode="json") if task is not None else None


DataSpecs = Annotated[tuple[DataSpec, ...], BeforeValidator(_parse_data)]
"""One data set or a list of them, at least one."""

if TYPE_CHECKING:
    ParsedTask = TaskSettings
else:
    ParsedTask = Annotated[Any, BeforeValidator(_parse_task), PlainSerializer(_dump_task)]
    """The settings of any kind of task, from its name or a table."""
