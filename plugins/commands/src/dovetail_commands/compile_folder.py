"""Compilation of every model in a folder, each into its own folder, with one table of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.planning import HOST, get_placement
from dovetail.plugin import CompiledFolder, Frontend, compiled_folder, load_plugins
from dovetail.plugin.loading import described, made

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dovetail.passes import BackendChoice
    from dovetail.plugin import CompiledModel, PluginSet, Registry

DATA = (".npz", ".npy", ".pb", "")
"""Suffixes of data with the name of a model; a folder has none."""

_MANIFEST = "result.json"
_MANY_USES = (".json", ".txt")
"""Suffixes of models that other files have, too: such a model is compiled if it is named itself."""


@dataclass(frozen=True)
class ModelOutcome:
    """The outcome of one model of a folder.

    Attributes:
        model: Its path in the folder.
        status: `ok`, `missed` (the result is complete, but misses a goal), or `failed`.
        why: The error, or empty.
        hint: What to do about it, or empty.
        nodes: Nodes on backends other than the host, and all nodes.
        regions: Regions of these backends.
        borders: Values that pass from one backend to another, counted once for each that reads them.
        joins: Conversions between formats.
        size: Bytes of the model file and its weights; None if it was not saved.
        accuracy: The accuracy on the data: `SNR 57.9 dB`; empty if it was not measured.
        output: The folder of the result; None if it was not saved.
    """

    model: Path
    status: str
    why: str = ""
    hint: str = ""
    nodes: tuple[int, int] = (0, 0)
    regions: int = 0
    borders: int = 0
    joins: int = 0
    size: int | None = None
    accuracy: str = ""
    output: Path | None = None

    def row(self) -> dict[str, str]:
        """Return the row of the table; a model that failed has the reason in it."""
        there = self.status != "failed"
        return {
            "model": str(self.model),
            "placed": f"{self.nodes[0]}/{self.nodes[1]}" if there else "",
            "regions": str(self.regions) if there else "",
            "borders": str(self.borders) if there else "",
            "conversions": str(self.joins) if there else "",
            "MB": f"{self.size / 1e6:.3g}" if self.size is not None else "",
            "accuracy": self.accuracy,
            "status": f"{self.status}: {self.why}" if self.why else self.status,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        texts = {"model": str(self.model), "output": self.output and str(self.output)}
        return {**vars(self), **texts, "nodes": {"placed": self.nodes[0], "all": self.nodes[1]}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelOutcome:
        """Return the outcome that `as_dict` gave."""
        nodes, output = data["nodes"], data["output"]
        paths = {"model": Path(data["model"]), "output": Path(output) if output else None}
        return cls(**{**data, **paths, "nodes": (nodes["placed"], nodes["all"])})


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
    from dovetail.passes import BackendChoice, Context

    if options.get("plan") is not None:
        raise UsageError("a plan belongs to one model, and a folder is named", "name the model that it was made for")
    if not backends:
        raise UsageError("no backend is named", "name one or several; `dovetail backends` lists them")
    plugins = plugins or load_plugins()
    named = named_backends(backends, plugins)
    Context(requested(named), plugins=plugins).load_backends()
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
    from dovetail_commands.folder_jobs import compile_jobs
    from dovetail_commands.folder_worker import plain
    from dovetail_commands.request import named_as_given

    blocked = [record.name for record in plugins.plugins if record.status == "disabled"]
    names = [named_as_given(BackendChoice.parse(choice), plugins.registry) for choice in named]
    common = {"folder": folder, "data": samples, "external": external, "backends": names}
    jobs = {
        model: plain({**common, "model": str(model), "output": target, "options": given[model]}, "a keyword")
        for model, target in targets.items()
    }
    done = compile_jobs(jobs, executor, blocked, progress)
    return [replace(outcome, output=outcome.output and targets[outcome.model]) for outcome in done]


def compile_one(
    folder: Path,
    model: Path,
    target: Path | None,
    backends: Sequence[str | BackendChoice],
    data: Path | None,
    plugins: PluginSet,
    external: bool | None,
    options: Mapping[str, Any],
    progress: Callable[[str, int, int], None] | None = None,
) -> ModelOutcome:
    """Compile one model of a folder, and save its result in `target`; see `compile_folder` for the rest.

    Raises:
        UsageError: The request is wrong for every model.
    """
    from dovetail.api import compile

    def compiled() -> CompiledModel:
        found = data_for(model, data) if data is not None else None
        keep = partial(_keep, target, external, progress)
        return compile(folder / model, backends, data=found, plugins=plugins, keep=keep, progress=progress, **options)

    return _outcome(model, target, compiled)


def _keep(
    target: Path | None,
    external: bool | None,
    progress: Callable[[str, int, int], None] | None,
    compiled: CompiledModel,
) -> None:
    if target is not None:
        target.mkdir(parents=True, exist_ok=True)
        compiled.save(target, external=external, progress=progress)


def _outcome(model: Path, target: Path | None, compiled: Callable[[], CompiledModel]) -> ModelOutcome:
    """Compile one model, and return the outcome; only a request that is wrong for every model is an error."""
    try:
        return outcome_of(model, "ok", compiled(), target)
    except ResultError as error:
        return outcome_of(model, "missed", error.compiled, target, error)
    except UsageError:
        raise
    except DovetailError as error:
        return ModelOutcome(model, "failed", error.message, error.hint)
    except Exception as error:  # a defect that one model reveals must not affect the others
        hint = "this is a defect of Dovetail or of a plugin: compile this model alone with --debug"
        return ModelOutcome(model, "failed", described(error), hint)


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


def data_for(model: Path, data: Path) -> Path:
    """Return the data of a model: the file or folder of its name in a folder of data, or the one file for all.

    Raises:
        DovetailError: There is none.
    """
    if not data.is_dir():
        return data
    for suffix in DATA:
        found = data / model.with_suffix(suffix)
        if found.exists():
            return found
    raise DovetailError(f"no data for it: {data} has no {model.with_suffix('.npz')}", "name data after its model")


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


def outcome_of(
    model: Path, status: str, compiled: CompiledModel, target: Path | None, error: DovetailError | None = None
) -> ModelOutcome:
    """Return the outcome of a model.

    Args:
        model: Its path in the folder.
        status: See `ModelOutcome`; a result that is broken is `missed`.
        compiled: Its result.
        target: The folder of the result; None if it was not saved.
        error: Why it misses a goal, or None.
    """
    placed = [place for node in compiled.model.nodes() if (place := get_placement(node))]
    accuracy = compiled.verification.short() if compiled.verification is not None else ""
    if status == "ok" and compiled.verification is not None and compiled.verification.broken:
        status, error = "missed", DovetailError("the result is no approximation of the original", "compile it alone")
    return ModelOutcome(
        model,
        status,
        error.message if error is not None else "",
        error.hint if error is not None else "",
        (sum(place.backend != HOST for place in placed), len(placed)),
        len({place.region for place in placed if place.region is not None and place.backend != HOST}),
        _borders(compiled),
        compiled.plan.summary.get("joins", 0),
        sum(file.stat().st_size for file in target.glob("model.onnx*")) if target is not None else None,
        accuracy,
        target,
    )


def _borders(compiled: CompiledModel) -> int:
    """Count the values of the main graph that other backends read, once for each of these backends."""
    found = set()
    for node in compiled.model.graph:
        mine = get_placement(node)
        for value in node.outputs:
            for reader in value.consumers():
                theirs = get_placement(reader)
                if mine is not None and theirs is not None and theirs.backend != mine.backend:
                    found.add((value.name, theirs.backend))
    return len(found)
