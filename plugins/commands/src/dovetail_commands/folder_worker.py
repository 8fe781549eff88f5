"""Compiles models of a folder, as the worker of a `dovetail.plugin.Tool`."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet

FolderJob: TypeAlias = Mapping[str, Any]
"""One model to compile, as plain data.

`folder` and `model` in it; `output`, the folder of the result, or None; `backends`, `data` and `external` as for
`compile_folder`; `options`, further keywords of `dovetail.compile`.
"""


def plain(value: Any, title: str) -> Any:
    """Return a keyword as JSON has it, with paths as texts.

    Raises:
        UsageError: It is something that no other process can be told, such as a function or an array.
    """
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, Mapping):
        return {str(key): plain(each, title) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each, title) for each in value]
    problem = f"{title} is of type {type(value).__name__}, which is not sent to other processes"
    raise UsageError(problem, "name a file instead, or compile the folder in this process")


def begin(blocked: Sequence[str]) -> PluginSet:
    """Load the plugins, without those that are named."""
    from dovetail.plugin import load_plugins

    return load_plugins(block=blocked)


def compile_model(plugins: PluginSet, job: FolderJob) -> dict[str, Any]:
    """Compile the model of a job, and return the outcome as plain data, or the error of a wrong request."""
    from dovetail_commands.folder_model import compile_one

    output = job["output"] and Path(job["output"])
    data = job["data"] and Path(job["data"])
    try:
        outcome = compile_one(
            Path(job["folder"]), Path(job["model"]), output, job["backends"], data, plugins, job["external"],
            job["options"],
        )  # fmt: skip
    except UsageError as error:
        return {"usage": error.message, "hint": error.hint}
    finally:
        gc.collect()  # the model and its sessions
        if not gc.get_freeze_count():
            gc.freeze()  # what was imported stays, and takes longer to walk than models
    return {"outcome": outcome.as_dict()}
