"""Reading and writing results and plans through registered stores; core itself knows no file format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin.loading.by_suffix import Installed, chosen_for, installed
from dovetail.plugin.loading.isolation import calling
from dovetail.plugin.results import Recognition, ResultStore

if TYPE_CHECKING:
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.options import CompileJob


T = TypeVar("T")

_WAY_OUT = "pip install dovetail-onnx, which saves results in folders and plans in files"


@contextmanager
def store_for(path: str | Path, verb: str, registry: Registry | None = None) -> Iterator[Any]:
    """Yield the `dovetail.plugin.ResultStore` for a path; whatever the block raises becomes an error that names it.

    Args:
        path: The path; the longest matching suffix decides.
        verb: The method that the store must implement.
        registry: The registry with the stores; by default that of all installed plugins.

    Raises:
        DovetailError: No store, or more than one, takes such paths.
        UsageError: The path is empty, and would mean the current folder.
    """
    found = _chosen(path, verb, registry)
    with calling(found.title):
        yield found.made


def _chosen(path: str | Path, verb: str, registry: Registry | None) -> Installed:
    from dovetail.plugin.loading.loader import load_plugins

    if not str(path).strip():
        raise UsageError("the output has an empty name", "name a file or folder; `.` is the current folder")
    registry = registry or load_plugins().registry
    found = chosen_for(Path(path), registry.result_store, ResultStore, verb).found
    if found is None:
        raise DovetailError(f"{path}: no store of results and plans is installed for it", _WAY_OUT)
    return found


def loaded(path: str | Path, verb: str, wanted: type[T], registry: Registry | None, *more: Any) -> T:
    """Read a path with its store, and check the type of the result.

    Args:
        path: The path.
        verb: The store's method: `load` or `load_plan`.
        wanted: The expected type.
        registry: The registry with the stores; by default that of all installed plugins.
        more: Further arguments of the method, after the path.

    Raises:
        DovetailError: It cannot be read, or the store returns another type; the error names the store.
    """
    found = _chosen(path, verb, registry)
    with calling(found.title):
        made = getattr(found.made, verb)(Path(path), *more)
    if not isinstance(made, wanted):
        what = f"{found.title} loads {type(made).__name__} from {path}"
        raise DovetailError(what, f"`{verb}` returns a {wanted.__name__}")
    return made


def recognized(job: CompileJob) -> Recognition:
    """Ask all stores about a request before it is compiled, and return the first result that one recognizes."""

    answers = []
    for title, store in installed(job.ctx.registry.result_store, ResultStore):
        with calling(title):
            answer = store.recognize(job)
            if not isinstance(answer, Recognition):
                returned = type(answer).__name__
                raise DovetailError(f"{title} recognizes with {returned}", "`recognize` returns a Recognition")
        answers.append((title, answer))

    def mark(compiled: CompiledModel) -> None:
        for title, answer in answers:
            with calling(title):
                answer.mark(compiled)

    return Recognition(next((answer.found for _, answer in answers if answer.found is not None), None), mark)
