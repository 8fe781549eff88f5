"""Export: the sessions of a result as files, their description, and a program that runs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import __version__
from dovetail.api import load
from dovetail.errors import DovetailError
from dovetail.planning import placed_backend
from dovetail.plugin import CompiledModel, ShippedFolder, TemporaryFolder, load_plugins, shipped_folder
from dovetail.plugin.loading import SHARED
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.writing import created_folders, named, write_text
from dovetail_onnx.skeleton import data_files
from dovetail_runtime import DeployedSession, KeptSession
from dovetail_runtime.executor import RegionExecutor
from dovetail_runtime.feeds import required_inputs
from dovetail_runtime.keeping import SessionPart, parts_of, start_of
from dovetail_runtime.serialize import value_type

from dovetail_export.description import FILE, FORMAT, constant_of, description_of, step_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

_PARTS = "parts"
RUNNERS = {"python": ("run.py",), "c": ("dovetail_run.h", "dovetail_run.cpp")}
"""The files of each runner."""


def export(
    result: str | Path | CompiledModel, folder: str | Path, runner: str | None = None, plugins: PluginSet | None = None
) -> dict[str, Any]:
    """Write a result as files that run without Dovetail.

    The folder holds `deploy.json`, whose fields `docs/reference/exported.md` lists, a folder of files for each step,
    and on request a program that runs them. What the steps compute is what `dovetail.load(result).run` computes here.
    Of the result of a folder, such as a language model, it holds what the program loads that the result is for, and the
    steps of each part in `parts/NAME` where several engines run it, or with a runner.

    Args:
        result: The folder that `compile` wrote, or what was compiled, once it is saved as it is.
        folder: The folder to write. It must not exist, or be empty or an earlier export, which is replaced as a whole.
        runner: `python` for `run.py`, which needs NumPy and the packages of the engines alone; `c` for
            `dovetail_run.cpp` and its header, which need the engines' shared libraries; None for no program.
        plugins: Installed plugins; by default all.

    Returns:
        The description that `deploy.json` holds. Of a folder: `runtime`, the program that loads it, `files`, and
        `parts`, the description of each by name.

    Raises:
        DovetailError: The result cannot be loaded, or is not saved; an engine's sessions cannot be made without
            Dovetail, or the folder cannot be written to.
    """
    folder = Path(folder)
    if runner is not None and runner not in RUNNERS:
        raise DovetailError(f"there is no runner '{runner}'", f"runners: {', '.join(RUNNERS)}")
    _check(folder)
    if isinstance(result, (str, Path)):
        plugins = plugins or load_plugins()
        shipped = shipped_folder(Path(result), plugins)
        if shipped is not None:
            return _written_folder(Path(result), shipped, folder, runner, plugins)
    compiled = load(result, plugins) if isinstance(result, (str, Path)) else result
    if compiled.saved_to is None or not compiled.is_saved:
        raise DovetailError("what is exported has to be saved first", "result.save(FOLDER), then export it")
    with _staged(folder) as new:
        return _written(compiled, compiled.saved_to / "model.onnx", new, runner)


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of an export after the block."""
    parent = folder.absolute().parent
    with named(folder), created_folders(parent), TemporaryFolder("export", within=parent) as staging:
        (new := staging / "new").mkdir()
        yield new
        _replace(folder, new, staging / "old")


def _written_folder(
    result: Path, shipped: ShippedFolder, folder: Path, runner: str | None, plugins: PluginSet
) -> dict[str, Any]:
    """Write the result of a folder: the files that a program loads, and steps of parts.

    Raises:
        DovetailError: A part cannot be exported, or there are none for a runner.
    """
    if runner is not None and not shipped.parts:
        problem = f"{result} is for {shipped.runtime} alone, and no runner runs its parts"
        raise DovetailError(problem, "leave --runner out")
    parts = {}
    with _staged(folder) as new:
        for path in shipped.files:
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(result / path, new / path)
        for name, file in shipped.parts.items():
            compiled = load(result / file, plugins)
            if runner is not None or _has_several_engines(compiled):
                (place := new / _PARTS / name).mkdir(parents=True)
                parts[name] = _written(compiled, result / file, place, runner)
    return {"runtime": shipped.runtime, "files": [path.as_posix() for path in shipped.files], "parts": parts}


def _has_several_engines(compiled: CompiledModel) -> bool:
    """Check whether a result runs on several engines; engines load it only if it has several backends."""
    if len({placed_backend(node) for node in compiled.model.graph}) < 2:
        return False
    executor = compiled.executor()
    return isinstance(executor, RegionExecutor) and len(set(executor.engines)) > 1


def _check(folder: Path) -> None:
    """Refuse a folder with anything but an export in it.

    Raises:
        DovetailError: It is a file, or holds something else.
    """
    if not folder.exists() or folder.is_dir() and not any(folder.iterdir()):
        return
    try:
        is_export = parse_json((folder / FILE).read_bytes()).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        is_export = False
    if not is_export:
        raise DovetailError(f"{folder} exists, and is no export", "name another folder to write to, or remove it")


def _replace(folder: Path, new: Path, aside: Path) -> None:
    """Move a new export to its place, and an old one aside."""
    if folder.exists():
        folder.rename(aside)
    try:
        new.rename(folder)
    except OSError:
        if aside.exists():
            aside.rename(folder)
        raise


def _written(compiled: CompiledModel, model: Path, root: Path, runner: str | None) -> dict[str, Any]:
    """Write the files of all steps below `root`, their description and a runner; return the description.

    Args:
        compiled: The result.
        model: The file of its model, if there is one.
        root: The folder to write to.
        runner: See `export`.
    """
    executor, graph = compiled.executor(), compiled.model.graph
    if not isinstance(executor, RegionExecutor):
        raise DovetailError(
            f"{model.parent} is run by an executor of a plugin, not region by region", "load it with Dovetail"
        )
    for value in (*required_inputs(graph), *graph.outputs):
        if not value_type(value):
            problem = f"'{value.name}' is no tensor, and other values cannot be exported"
            raise DovetailError(problem, "compile the part of the model that computes tensors")
    steps = []
    for number, part in enumerate(parts_of(executor, compiled.model, model if model.is_file() else None)):
        (files := root / str(number)).mkdir()
        deployed, kept = _deployed(compiled, part, files)
        first = [_inside(file, files, compiled) for file in kept.files]
        others = sorted(file for file in files.rglob("*") if file.is_file() and file not in first)
        steps.append(step_of(part, deployed, [*first, *others], root))
    constants = [_constant(value, root) for value in dict.fromkeys(graph.outputs) if value.is_initializer()]
    description = description_of(graph, steps, constants, f"dovetail {__version__}")
    write_text(root / FILE, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
    for name in RUNNERS.get(runner or "", ()):
        source = resources.files("dovetail_export") / "runners" / name
        write_text(root / name, source.read_text(encoding="utf-8"))
    return description


def _constant(value: ir.Value, root: Path) -> dict[str, Any]:
    """Write an output that nothing computes: little-endian, texts as a list in JSON."""
    assert value.const_value is not None
    texts = value.const_value.dtype.name == "STRING"
    path = root / "constants" / f"{len(list(root.glob('constants/*')))}.{'json' if texts else 'bin'}"
    path.parent.mkdir(exist_ok=True)
    if texts:
        write_text(path, json.dumps([text.decode() for text in value.const_value.numpy().ravel()]))
    else:
        path.write_bytes(value.const_value.tobytes())
    return constant_of(value, path, root)


def _deployed(compiled: CompiledModel, part: SessionPart, files: Path) -> tuple[DeployedSession, KeptSession]:
    """Write what a session is made from, and return how.

    Raises:
        DovetailError: Its engine has no way to make it without Dovetail.
    """
    engine = part.session.engine
    if part.region.artifact is not None:
        programs = _copied(part.region.artifact, files)
        main = files / _program_of(part.region.model)
        programs.sort(key=lambda file: file != main)
        if part.region.shared is not None:
            programs += _copied(part.region.shared, files.parent / SHARED / part.region.shared.parent.name)
        return DeployedSession(engine.name, {}), KeptSession({}, tuple(programs))
    assert compiled.registry is not None
    start = start_of(engine, compiled.registry)
    kept = part.session.keep(start, part.region, files) if start is not None else None
    deployed = start.deployed(kept) if start is not None and kept is not None else None
    if kept is None or deployed is None:
        what = f"{' and '.join(part.backends)} on {engine.name} cannot be exported: Dovetail alone makes its sessions"
        raise DovetailError(what, "name another engine or backend, or run the result with dovetail-runtime")
    return deployed, kept


def _program_of(model: Model) -> str:
    """Return the file that a node for a program names, within the folder of its region; empty if there is none."""
    named = (node.attributes.get("ep_cache_context") for node in model.graph)
    path = next((attribute.as_string() for attribute in named if attribute is not None), "")
    return path.split("/", 3)[-1]  # artifacts/BACKEND/REGION/FILE


def _copied(folder: Path, into: Path) -> list[Path]:
    """Copy the files of a folder, and return the copies; one that an earlier step has copied stays."""
    sources = sorted(file for file in folder.rglob("*") if file.is_file())
    targets = [into / file.relative_to(folder) for file in sources]
    for source, target in zip(sources, targets):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return targets


def _inside(file: Path, files: Path, compiled: CompiledModel) -> Path:
    """Return the place of a file in the export; one of the result itself is copied, with its weights."""
    if file.is_relative_to(files.parent):
        return file
    for source in (file, *data_files(compiled.model)):
        shutil.copyfile(source, files / source.name)
    return files / file.name
