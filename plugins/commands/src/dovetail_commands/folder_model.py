"""One model of a folder: how it is compiled, with data of its name, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.planning import HOST, get_placement
from dovetail.plugin.loading import described

if TYPE_CHECKING:
    from dovetail.passes import BackendChoice
    from dovetail.plugin import CompiledModel, PluginSet

DATA = (".npz", ".npy", ".pb", "")
"""Suffixes of data with the name of a model; a folder has none."""


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
