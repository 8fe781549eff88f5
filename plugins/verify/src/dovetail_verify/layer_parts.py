"""Errors of nodes on parts of the data, each in another process: their sums are added in the order of the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail_runtime.data.batches import as_given
from dovetail_runtime.data.file_items import FileItems
from dovetail_runtime.data_workers import DataWorkers, answering, data_workers
from dovetail_runtime.nested_graphs import with_nodes

from dovetail_verify.accuracy.baseline import effects_at_outputs
from dovetail_verify.accuracy.per_node_errors import ErrorSums
from dovetail_verify.accuracy.streamed import NodeErrors, SideBySide, Streamed
from dovetail_verify.compiled_from import exact_model, request_of_result
from dovetail_verify.metrics import told_sum
from dovetail_verify.parts import folder_of, plugins_without

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Progress
    from dovetail.plugin import CompiledModel

Effects = dict[str, dict[str, ErrorSums]]
"""Sums by node and output."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class LayerParts:
    """Measures the nodes of a result on parts of the data, in other processes.

    Attributes:
        workers: The processes.
        original: The file of the model that was compiled.
        result: The folder of the result.
        parts: The parts of the data.
        progress: Called with (what, done, total).
    """

    workers: DataWorkers
    original: Path
    result: Path
    parts: Sequence[FileItems]
    progress: Progress | None

    @classmethod
    def of(cls, original: Model, result: CompiledModel, data: object, progress: Progress | None) -> LayerParts | None:
        """Return what measures a result in parts; None without workers, or where they do not find the files."""
        workers, path, folder = data_workers(), original.path, folder_of(result)
        if workers is None or path is None or folder is None or original.revision:
            return None
        parts = workers.divided(original, data)
        return cls(workers, path.absolute(), folder, parts, progress) if parts else None

    def errors(self) -> Streamed:
        """Measure every node; see `SideBySide.run`.

        Raises:
            DovetailError: A part of the data does not fit, or no machine finishes it.
        """
        found = Streamed()
        for batches, errors in self._answers({"names": None}, "layers, parts", _errors_in):
            found.batches += batches
            for name, one in errors.items():
                before = found.errors.setdefault(name, NodeErrors())
                if one.own.elements:
                    before.moves = one.moves and (before.moves or not before.own.elements)
                before.own += one.own
                before.accumulated += one.accumulated
        return found

    def effects(self, names: Sequence[str]) -> Effects:
        """Measure the outputs with single nodes low; see `effects_at_outputs`.

        Raises:
            DovetailError: A part of the data does not fit, or no machine finishes it.
        """
        found: Effects = {}
        for effects in self._answers({"names": list(names)}, "layers at the outputs, parts", _effects_in):
            for node, outputs in effects.items():
                sums = found.setdefault(node, {})
                for output, one in outputs.items():
                    sums[output] = sums.get(output, ErrorSums()) + one
        return found

    def _answers(self, what: Mapping[str, Any], title: str, read: Callable[[Any], _Answer]) -> list[_Answer]:
        """Return what all workers answer, file by file in the order of the data."""
        about = {"original": str(self.original), "result": str(self.result), **what}
        tasks = [{**about, "data": part.as_dict()} for part in self.parts]
        answers = self.workers.run(measure_part, tasks, b"", self.progress, title)
        try:
            found = sorted((each for answer in answers for each in answer), key=lambda each: int(each["item"]))
            return [read(each) for each in found]
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
            raise DovetailError(f"a worker gives an answer that is not valid: {error!r}", "verify here") from error


def _errors_in(answer: Mapping[str, Any]) -> tuple[int, dict[str, NodeErrors]]:
    errors = {
        str(name): NodeErrors(_sums_in(one["own"]), _sums_in(one["accumulated"]), bool(one["moves"]))
        for name, one in answer["errors"].items()
    }
    return int(answer["batches"]), errors


def _effects_in(answer: Mapping[str, Any]) -> Effects:
    return {
        str(node): {str(name): _sums_in(one) for name, one in outputs.items()}
        for node, outputs in answer["effects"].items()
    }


def _sums_in(given: Mapping[str, Any]) -> ErrorSums:
    signal, noise, energy = (told_sum(name, given[name], float) for name in ("signal", "noise", "energy"))
    return ErrorSums(signal, noise, energy, told_sum("elements", given["elements"], int))


def measure_part(text: str, model: bytes) -> str:
    """Measure nodes on a part of the data in this process; see `LayerParts`.

    Args:
        text: The task.
        model: Nothing: models are read where they lie.

    Returns:
        The answer; see `dovetail_runtime.data_workers`.
    """
    return answering(lambda: list(_measured(json.loads(text))))


def _measured(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from dovetail import api

    plugins = plugins_without(tuple(task["blocked"]))
    original, result = api.open(task["original"], plugins), api.load(task["result"], plugins)
    ctx = Context(request_of_result(result.plan, plugins), plugins=plugins)
    exact, engines = exact_model(original, result, ctx)
    items = FileItems.from_dict(task["data"])
    _, exact, low = as_given(original, items, exact, with_nodes(result))
    side_by_side = SideBySide(exact, low, engines)
    for item in items.divided(len(items.numbers)):
        about: dict[str, Any] = {"item": item.numbers[0]}
        if task["names"] is None:
            found = side_by_side.run(original, item)
            yield {
                **about, "batches": found.batches, "errors": {name: asdict(one) for name, one in found.errors.items()}
            }  # fmt: skip
        else:
            effects = effects_at_outputs(original, exact, task["names"], side_by_side, engines, item)
            named = {node: {name: asdict(one) for name, one in each.items()} for node, each in effects.items()}
            yield {**about, "effects": named}
