"""What is kept of a result's sessions, so that a later program runs it without loading it.

Plain data beside the files that engines write (`session_start.SessionStart`); `restarting.RestartedResult` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import name_of
from dovetail.planning import HOST
from dovetail.plugin import RegionModel
from dovetail.plugin.loading import made
from dovetail_transforms.canonicalize.input_ranges import declared_range

from dovetail_runtime.executor import RegionExecutor
from dovetail_runtime.feeds import declared, required_inputs
from dovetail_runtime.serialize import value_type
from dovetail_runtime.session_start import SessionStart
from dovetail_runtime.whole_session import whole_session

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel, Registry

    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.guarded_session import GuardedSession


def keep_sessions(compiled: CompiledModel, path: Path, folder: Path) -> dict[str, Any] | None:
    """Write what a later program needs to run a result, and return the rest as plain data.

    None if an engine of it has no `SessionStart`, or cannot keep its session; if regions may run at the same time,
    which only the executor does; and if inputs or outputs are no tensors, or outputs are constants. Engines
    load the result if they have not done so yet.

    Args:
        compiled: The result.
        path: The file of its model.
        folder: The folder to write to.

    Raises:
        DovetailError: No engine takes a region, or a plugin's class is at fault.
        OSError: A file cannot be written.
    """
    executor, graph = compiled.executor(), compiled.model.graph
    if not isinstance(executor, RegionExecutor) or compiled.registry is None or not _is_simple(executor, graph):
        return None
    steps = []
    for number, part in enumerate(parts_of(executor, compiled.model, path)):
        (files := folder / str(number)).mkdir()
        step = _kept(part, compiled.registry, files)
        if step is None:
            return None
        steps.append({**step, "files": [_place(file, folder) for file in step["files"]], **part.border()})
    fed = required_inputs(graph)
    whole = whole_session(compiled)
    return {
        "steps": steps,
        "inputs": declarations(fed),
        "ranges": {name_of(value): found for value in fed if (found := declared_range(value)) is not None},
        "outputs": list(map(name_of, graph.outputs)),
        "is_native": whole is not None,
        "is_last": whole is not None and whole.is_last,
    }


def _is_simple(executor: RegionExecutor, graph: ir.Graph) -> bool:
    """Whether the result runs one session after the other, on values that can be checked by their declaration."""
    fed = required_inputs(graph)
    computed = {*map(name_of, fed), *(name for runner in executor.runners for name in runner.outputs)}
    return (
        (executor.is_sequence or executor.joint is not None)
        and all(map(value_type, (*fed, *graph.outputs)))
        and all(name_of(value) in computed for value in graph.outputs)
    )


class SessionPart(NamedTuple):
    """A session that runs a part of a result.

    Attributes:
        session: The session.
        region: What it was loaded from.
        backends: The backends of its nodes.
        inputs: The names of the values that it reads.
        outputs: The values that it gives.
        is_judge: Whether the shapes that it computes are right by definition.
    """

    session: GuardedSession
    region: RegionModel
    backends: tuple[str, ...]
    inputs: list[str]
    outputs: Sequence[ir.Value]
    is_judge: bool

    def border(self) -> dict[str, Any]:
        """Return what it reads and gives as plain data."""
        return {"inputs": self.inputs, "outputs": declarations(self.outputs), "is_judge": self.is_judge}


def parts_of(executor: RegionExecutor, model: Model, path: Path | None) -> Iterator[SessionPart]:
    """Yield each session that runs, in an order in which every one finds what it reads.

    Args:
        executor: What runs the result.
        model: The model of the result.
        path: Its file, if it has one.
    """
    fed = list(map(name_of, required_inputs(model.graph)))
    if executor.joint is not None:
        backends = tuple(dict.fromkeys(runner.backend for runner in executor.runners))
        yield SessionPart(executor.joint, RegionModel(executor.model), backends, fed, model.graph.outputs, False)
        return
    for runner in executor.runners:
        session, region = runner.loaded
        if region.model is model:
            region = replace(region, path=path)
        # A model that is a single region is passed on unchanged, with its unused inputs.
        inputs = fed if len(executor.regions) == 1 else runner.inputs
        is_host = runner.backend == HOST
        yield SessionPart(session, region, (runner.backend,), inputs, runner.region.outputs, is_host)


def start_of(engine: GuardedEngine, registry: Registry) -> SessionStart | None:
    """Return how sessions of an engine start again; None if they do not."""
    if engine.name not in registry.session_start:
        return None
    return made(registry.session_start[engine.name], registry.session_start.title(engine.name), SessionStart)


def _kept(part: SessionPart, registry: Registry, files: Path) -> dict[str, Any] | None:
    engine = part.session.engine
    start = start_of(engine, registry)
    if start is None or part.region.artifact is not None:
        return None
    kept = part.session.keep(start, part.region, files)
    if kept is None:
        return None
    return {
        "engine": engine.name,
        "distribution": registry.session_start.entry(engine.name).owner,
        "chosen": dict(engine.chosen),
        "data": dict(kept.data),
        "files": list(kept.files),
    }


def _place(file: Path, folder: Path) -> str:
    """Return where a file is in a folder; its absolute path if it is elsewhere."""
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file.absolute())


def declarations(values: Sequence[ir.Value]) -> list[dict[str, Any]]:
    """Return name, type and extents of values as plain data."""
    found = map(declared, values)
    return [{"name": one.name, "type": one.type, "extents": one.extents} for one in found]
