"""A process that compiles models of a folder: jobs as lines of JSON on standard input, a line for each answer."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping
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


def answer(job: FolderJob, plugins: PluginSet) -> dict[str, Any]:
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
    return {"outcome": outcome.as_dict()}


def main() -> None:
    """Do the jobs on standard input, until it ends; arguments are names of plugins to leave out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that an engine prints is mistaken for an answer
    from dovetail.plugin import end_with_parent, load_plugins

    end_with_parent()
    plugins = load_plugins(block=sys.argv[1:])
    for number, line in enumerate(sys.stdin):
        print(json.dumps(answer(json.loads(line), plugins)), file=answers, flush=True)
        gc.collect()  # the model and its sessions
        if not number:
            gc.freeze()  # what was imported stays, and takes longer to walk than models


if __name__ == "__main__":
    main()
