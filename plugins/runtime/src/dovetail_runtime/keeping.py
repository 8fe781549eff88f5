"""What is kept of a result's sessions, so that a later program runs it without loading it.

Plain data beside the files that engines write (`session_start.SessionStart`); `restarting.RestartedResult` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    from dovetail.plugin import CompiledModel, Registry

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
    for number, (session, region, border) in enumerate(_parts(executor, graph)):
        if region.model is compiled.model:
            region = replace(region, path=path)
        (files := folder / str(number)).mkdir()
        step = _kept(session, region, compiled.registry, files)
        if step is None:
            return None
        steps.append({**step, "files": [_place(file, folder) for file in step["files"]], **border})
    fed = required_inputs(graph)
    whole = whole_session(compiled)
    return {
        "steps": steps,
        "inputs": _declarations(fed),
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


def _parts(executor: RegionExecutor, graph: ir.Graph) -> Iterator[tuple[GuardedSession, RegionModel, dict[str, Any]]]:
    """Yield each session that runs, with the region that it was loaded from, and the values that it reads and gives."""
    if executor.joint is not None:
        inputs = list(map(name_of, required_inputs(graph)))
        yield (
            executor.joint,
            RegionModel(executor.model),
            {"inputs": inputs, "outputs": _declarations(graph.outputs), "is_judge": False},
        )
        return
    for runner in executor.runners:
        session, region = runner.loaded
        # A model that is a single region is passed on unchanged, with its unused inputs.
        whole = len(executor.regions) == 1
        yield (
            session,
            region,
            {
                "inputs": list(map(name_of, required_inputs(graph))) if whole else runner.inputs,
                "outputs": _declarations(runner.region.outputs),
                "is_judge": runner.backend == HOST,
            },
        )


def _kept(session: GuardedSession, region: RegionModel, registry: Registry, files: Path) -> dict[str, Any] | None:
    engine = session.engine
    if engine.name not in registry.session_start or region.artifact is not None:
        return None
    start = made(registry.session_start[engine.name], registry.session_start.title(engine.name), SessionStart)
    kept = session.keep(start, region, files)
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


def _declarations(values: Sequence[ir.Value]) -> list[dict[str, Any]]:
    found = map(declared, values)
    return [{"name": one.name, "type": one.type, "extents": one.extents} for one in found]
