"""Compilation of every model in a folder, each into its own folder, with one table of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.plugin import CompiledFolder, Frontend, compiled_folder, load_plugins
from dovetail.plugin.loading import made
from dovetail_onnx.files.locations import is_remote

from dovetail_commands.folder_model import ModelOutcome, compile_one, outcome_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dovetail.passes import BackendChoice
    from dovetail.plugin import PluginSet, Registry

_MANIFEST = "result.json"
_MANY_USES = (".json", ".txt")
"""Suffixes of models that other files have, too: such a model is compiled if it is named itself."""


def compile_folder(
    folder: str | Path,
    backends: str | Sequence[str] = (),
    output: str | Path | None = None,
    *,
    data: str | Path | None = None,
    plugins: PluginSet | None = None,
    external: bool | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    keywords_of: Callable[[Path | None], Mapping[str, Any]] | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> list[ModelOutcome]:
    """Compile every model below a folder; a failure of one does not affect the others.

    Args:
        folder: The folder. Models are the files with a suffix that a front end reads, apart from `.json` and
            `.txt`, which have other uses. Folders of saved results and hidden ones are left out. A folder that a plugin
            compiles as a unit, such as a language model, has its parts as models, and its result is in `output`.
        backends: As for `dovetail.compile`.
        output: The folder to write to: the result of `a/b.onnx` goes to `a/b` in it. Nothing is written without it.
        data: A folder with a file or folder of data for each model, which has its name, as in `a/b.npz`; or one file
            for all.
        plugins: The plugins to use; all installed ones by default.
        external: As for `CompiledModel.save`.
        progress: As for `dovetail.compile`.
        keywords_of: Called with the output folder of each model, or None; returns further keywords for it.
        executor: What compiles models beside each other, each in a process of its own: one of `concurrent.futures`, or
            of dask.distributed (`client.get_executor(pure=False)`), whose machines see all files under the same paths.
            None compiles one model after the other in this process.
        options: Further keywords of `dovetail.compile`; with an executor plain data, and paths.

    Returns:
        The outcome of each model, in the order of their paths.

    Raises:
        UsageError: No backend is named, or a plan is given, which is one model's.
        DovetailError: The folder holds no models, or is a result itself, or a backend is not installed.
    """
    from dovetail.api import named_backends, requested
    from dovetail.passes import Context

    if options.get("plan") is not None:
        raise UsageError("a plan belongs to one model, and a folder is named", "name the model that it was made for")
    if not backends:
        raise UsageError("no backend is named", "name one or several; `dovetail backends` lists them")
    plugins = plugins or load_plugins()
    named = named_backends(backends, plugins)
    Context(requested(named), plugins=plugins).load_backends()
    if is_remote(data):
        raise UsageError(f"{data}: data of a folder of models is looked for by name, in a folder here", "copy it here")
    folder, place = Path(folder), Path(output) if output is not None else None
    whole = {"plugins": plugins, "backends": named, "data": data, "progress": progress, **options}
    if (parts := _compile_whole(folder, place, external, whole)) is not None:
        return parts
    models = models_in(folder, plugins.registry, place)
    samples = Path(data) if data is not None else None
    targets = {model: place / name if place is not None else None for model, name in result_names(models).items()}
    given = {model: {**options, **(keywords_of(targets[model]) if keywords_of else {})} for model in models}
    if executor is None:
        return [
            compile_one(folder, model, target, named, samples, plugins, external, given[model], progress)
            for model, target in targets.items()
        ]
    common = {"folder": folder, "data": samples, "external": external}
    return _beside_each_other(common, targets, given, named, plugins, executor, progress)


def _beside_each_other(
    common: Mapping[str, Any],
    targets: Mapping[Path, Path | None],
    given: Mapping[Path, Mapping[str, Any]],
    backends: Sequence[str | BackendChoice],
    plugins: PluginSet,
    executor: Executor,
    progress: Callable[[str, int, int], None] | None,
) -> list[ModelOutcome]:
    """Compile models on an executor: what all jobs have, the output and the keywords of each, and the rest as above."""
    from dovetail.passes import BackendChoice

    from dovetail_commands.folder_jobs import compile_jobs
    from dovetail_commands.folder_worker import plain
    from dovetail_commands.request import named_as_given

    blocked = [record.name for record in plugins.plugins if record.status == "disabled"]
    names = [named_as_given(BackendChoice.parse(choice), plugins.registry) for choice in backends]
    jobs = {
        model: plain(
            {**common, "backends": names, "model": str(model), "output": target, "options": given[model]}, "a keyword"
        )
        for model, target in targets.items()
    }
    done = compile_jobs(jobs, executor, blocked, progress)
    return [replace(outcome, output=outcome.output and targets[outcome.model]) for outcome in done]


def _compile_whole(
    folder: Path, output: Path | None, external: bool | None, request: Mapping[str, Any]
) -> list[ModelOutcome] | None:
    """Compile a folder that a plugin compiles as a unit, and return the outcomes of its parts; None for others."""
    compiled, failure = compile_whole(folder, output, external, request)
    if compiled is None:
        return None
    status = "ok" if failure is None else "missed"
    return [outcome_of(Path(name), status, part, output, failure) for name, part in compiled.parts.items()]


def compile_whole(
    folder: Path, output: Path | None, external: bool | None, request: Mapping[str, Any]
) -> tuple[CompiledFolder | None, ResultError | None]:
    """Compile a folder that a plugin compiles as a unit, and save it.

    Returns:
        The result, and the goal that it misses; None and None if no plugin compiles the folder.
    """

    def keep(compiled: CompiledFolder) -> None:
        if output is not None:
            compiled.save(output, external=external, progress=request["progress"])

    try:
        return compiled_folder(folder, output=output, keep=keep, **request), None
    except ResultError as error:
        if not isinstance(error.compiled, CompiledFolder):
            raise
        return error.compiled, error


def models_in(folder: Path, registry: Registry, output: Path | None = None) -> list[Path]:
    """Return the models below a folder, relative to it and sorted; see `compile_folder`.

    Raises:
        DovetailError: There are none, or the folder is a result.
    """
    if (folder / _MANIFEST).is_file():
        raise DovetailError(f"{folder} is a result, and no folder of models", f"name {folder}/model.onnx to compile it")
    suffixes = _suffixes(registry)
    found = sorted(path.relative_to(folder) for path in _files(folder, output) if path.suffix in suffixes)
    if not found:
        raise DovetailError(f"{folder} holds no models", f"front ends read {', '.join(sorted(suffixes))}")
    return found


def result_names(models: Sequence[Path]) -> dict[Path, Path]:
    """Return the folder name of each result: that of the model without its suffix, unless two would share it."""
    short = Counter(model.with_suffix("") for model in models)
    return {model: model if short[model.with_suffix("")] > 1 else model.with_suffix("") for model in models}


def _suffixes(registry: Registry) -> set[str]:
    table = registry.frontend
    ends = (made(table[name], table.title(name), Frontend).suffixes for name in table)
    return {suffix for found in ends for suffix in found if suffix and suffix not in _MANY_USES}


def _files(folder: Path, output: Path | None) -> Iterator[Path]:
    """Yield the files below a folder, without those in results, in hidden folders, and in the output."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif not (path / _MANIFEST).is_file() and not (output is not None and _same(path, output)):
            yield from _files(path, output)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
