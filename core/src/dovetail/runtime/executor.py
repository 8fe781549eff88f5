"""The executor: runs a model region by region, each on the first engine of its backend that takes it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.near import near_misses
from dovetail.runtime.engine import Engine, Executed, RegionModel, Session
from dovetail.runtime.extraction import extract
from dovetail.runtime.regions import Region, form_regions, placed_backend
from dovetail.runtime.serialise import needs_file
from dovetail.runtime.tensors import matches, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.model import Model

__all__ = ["Executor"]


class Executor:
    """Runs a placed model.

    Args:
        model: Every node of the main graph counts for the backend of its placement; `host` where it has none.
        engines_of: The engines of every backend, in order of preference.
        options: Passed to every engine (`threads`, `profile`, ...); each takes what it knows.
        backend_of: The backend of a node.
        regions: The regions to run it in; without them they are formed by backend.

    Attributes:
        regions: The regions in the order in which they run.
        engines: The name of the engine that runs each region.
        notes: What the user should know: engines that are absent, that have a caveat, or that refused a region.

    Raises:
        DovetailError: No engine of a backend takes one of its regions; all reasons are given.
    """

    def __init__(
        self,
        model: Model,
        engines_of: Mapping[str, Sequence[Engine]],
        options: Mapping[str, object] | None = None,
        backend_of: Callable[[ir.Node], str] = placed_backend,
        regions: Sequence[Region] | None = None,
    ):
        self.notes: list[str] = []
        self.engines: list[str] = []
        self.regions = form_regions(model.graph, backend_of) if regions is None else list(regions)
        self._model = model
        self._options = dict(options or {})
        self._files = tempfile.TemporaryDirectory(prefix="dovetail-regions-")
        self._caveats: dict[str, str] = {}
        self._usable = {name: self._available(engines) for name, engines in engines_of.items()}
        # What gives nothing that is wanted is not run: the nodes behind the last measured one, say.
        self._sessions = {region.index: self._load(region) for region in self.regions if region.outputs}
        self._last_use = _last_uses(self.regions)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the model's outputs by name. Nothing is cast: types and shapes must be those that it declares."""
        graph = self._model.graph
        values = _checked(graph, inputs)
        kept = {value.name for value in graph.outputs}
        for region in self.regions:
            session = self._sessions.get(region.index)
            if session is None:
                continue
            # A model that is one region is handed over as it is, with the inputs that nothing reads.
            wanted = values if len(self.regions) == 1 else {value.name for value in region.inputs}
            values.update(session.run({name: values[name] for name in wanted}))
            for name in self._last_use[region.index]:
                if name not in kept:
                    del values[name]
        return {value.name: _result(value, values) for value in graph.outputs}

    def executed(self) -> dict[str, Executed]:
        """How every node was executed, by node name."""
        return {name: how for session in self._sessions.values() for name, how in session.executed().items()}

    def _available(self, engines: Sequence[Engine]) -> list[Engine]:
        usable = []
        for engine in engines:
            ok, why = engine.available()
            if ok:
                usable.append(engine)
                self._caveats[engine.name] = why
            else:
                self._note(f"{engine.name} is not available: {why}")
        return usable

    def _load(self, region: Region) -> Session:
        if region.backend not in self._usable:
            raise DovetailError(f"no engines are known for backend '{region.backend}' ({_described(region)})")
        part = self._region_model(region)
        reasons = []
        for engine in self._usable[region.backend]:
            try:
                session = engine.load(part, self._options)
            except DovetailError as error:
                reasons.append(error.message)
                continue
            for reason in reasons:
                self._note(f"{_described(region)} runs on {engine.name}: {reason}")
            if self._caveats[engine.name]:
                self._note(f"{engine.name}: {self._caveats[engine.name]}")
            self.engines.append(engine.name)
            return session
        reasons = reasons or self.notes or ["the backend names no engine"]
        raise DovetailError(f"no engine runs {_described(region)}: " + "; ".join(reasons))

    def _region_model(self, region: Region) -> RegionModel:
        """The region as a model; in a file where its weights do not fit in memory or lie in files already."""
        whole = len(self.regions) == 1
        part = self._model if whole else extract(self._model, region)
        if not needs_file(part):
            return RegionModel(part)
        if whole and self._model.path is not None and self._model.revision == 0:
            return RegionModel(part, self._model.path)
        from dovetail.ir.saving import save_model

        path = Path(self._files.name) / f"region{region.index}.onnx"
        save_model(part, path)
        return RegionModel(part, path)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _described(region: Region) -> str:
    first = region.nodes[0]
    name = first.name or (first.outputs[0].name if first.outputs else first.op_type)
    return f"region {region.index} ({region.backend}, {len(region.nodes)} nodes from '{name}')"


def _last_uses(regions: Sequence[Region]) -> list[list[str]]:
    """For every region the values that nobody needs after it."""
    last = {value.name: region.index for region in regions for value in (*region.outputs, *region.inputs)}
    dying: list[list[str]] = [[] for _ in regions]
    for name, index in last.items():
        dying[index].append(name)
    return dying


def _checked(graph: ir.Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs, if they are those that the graph declares."""
    wanted = {value.name: value for value in graph.inputs if not value.is_initializer()}
    for name in inputs:
        if name in graph.initializers:
            raise DovetailError(f"input '{name}' is a constant of this model and cannot be fed")
        if name not in wanted:
            near = near_misses(name, wanted, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(wanted) or 'none'}"
            raise DovetailError(f"the model has no input '{name}'", hint)
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise DovetailError(f"no value for input {', '.join(repr(name) for name in missing)}")
    return {name: _fitting(value, inputs[name]) for name, value in wanted.items()}


def _fitting(value: ir.Value, given: object) -> object:
    import numpy as np

    type_ = value_type(value)
    if not type_:
        return given
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    if not matches(array, type_):
        raise DovetailError(f"input '{value.name}' is {type_}, the value given is {array.dtype.name}")
    if value.shape is not None:
        fits = len(value.shape) == array.ndim and all(
            not isinstance(extent, int) or extent == got for extent, got in zip(value.shape, array.shape)
        )
        if not fits:
            raise DovetailError(
                f"input '{value.name}' has shape {value.shape}, the value given has {list(array.shape)}"
            )
    # The other byte order is the same value; engines take the machine's.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _result(value: ir.Value, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """An output's value; one that no node computes is a constant."""
    return values[value.name] if value.name in values else value.const_value.numpy()
