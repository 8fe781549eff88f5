"""Recording of every value of a model on one batch, so that any part of the model can be run alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.passes import Context, Pipeline, Request
from dovetail.planning import given_regions
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.watched import OPTIONS

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet


_PART = 32  # nodes whose values are in memory together


class RecordedValues:
    """Arrays by value name. They are kept in one file, because those of a large model do not fit in memory.

    Args:
        file: A file that is open for reading and writing.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._places: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        self._objects: dict[str, np.ndarray] = {}

    def add(self, name: str, array: np.ndarray) -> None:
        """Keep an array; the first one of a name stays."""
        import numpy as np

        if name in self._places or name in self._objects:
            return
        if array.dtype.hasobject:  # strings
            self._objects[name] = array
            return
        self._places[name] = self._file.seek(0, 2), array.dtype, array.shape
        self._file.write(np.ascontiguousarray(array).tobytes())

    def get(self, name: str) -> np.ndarray | None:
        """Read the array of a value; None if it was not recorded, or is no array."""
        import numpy as np

        if name in self._objects:
            return self._objects[name]
        if name not in self._places:
            return None
        offset, dtype, shape = self._places[name]
        self._file.seek(offset)
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._file.read(count * dtype.itemsize), dtype, count).reshape(shape)

    def declared(self, name: str) -> tuple[Any, tuple[int, ...]] | None:
        """Return element type and shape of a value without reading it; None if it was not recorded."""
        if name in self._objects:
            return self._objects[name].dtype, self._objects[name].shape
        place = self._places.get(name)
        return None if place is None else place[1:]


def typed_copy(model: Model, plugins: PluginSet) -> Model:
    """Return a copy of a model whose values have the types that inference finds; its graph is as in the source.

    Inference needs a normalized model, so it runs on another copy. What cannot be normalized is copied as it is.
    """
    copy, inferred = model.clone(), model.clone()
    try:
        Pipeline.parse("normalize", plugins.registry).run(inferred, Context(Request(), plugins=plugins))
    except DovetailError:
        return copy
    types = {value.name: value for node in inferred.graph for value in node.outputs if value.type is not None}
    for node in copy.graph:
        for value in node.outputs:
            found = types.get(value.name)
            if found is not None and value.type is None:
                value.type = found.type
            if found is not None and value.shape is None and found.shape is not None:
                value.shape = found.shape.copy()
    return copy


def record(model: Model, feeds: Mapping[str, np.ndarray], file: IO[bytes], plugins: PluginSet) -> RecordedValues:
    """Run a model on the host, part by part, and keep every value.

    Args:
        model: The model; its values have types.
        feeds: Its inputs.
        file: Receives the arrays; open for reading and writing.
        plugins: The plugins with the host's engines.

    Raises:
        DovetailError: The host does not run the model on these inputs.
    """
    from dovetail_runtime.executor import RegionExecutor

    runnable = model.runnable()
    work = runnable.clone()
    nodes = list(work.graph)
    values = [value for node in nodes for value in node.outputs if value.name]
    produced = [value for value in work.graph.outputs if value.producer() is not None]
    work.graph.outputs[:] = list(dict.fromkeys((*produced, *values)))
    work.touch()
    parts = [nodes[start : start + _PART] for start in range(0, len(nodes), _PART)]
    ctx = Context(Request(), plugins=plugins)
    executor = RegionExecutor(
        work, engines_of([ctx.host], ctx.registry), OPTIONS, regions=given_regions(work.graph, parts)
    )
    recorded = RecordedValues(file)
    for name, array in feeds.items():
        _keep(recorded, name, array)
    names: list[list[str]] = [[name_of(value) for value in runner.region.outputs] for runner in executor.runners]
    for (_, live), made in zip(executor.steps(feeds), names, strict=True):
        for name in made:
            _keep(recorded, name, live[name])
    return recorded


def _keep(recorded: RecordedValues, name: str, array: object) -> None:
    import numpy as np

    if isinstance(array, (np.ndarray, np.generic)):  # sequences cannot be inputs of a model
        recorded.add(name, np.asarray(array))


def give_types(graph: ir.Graph, recorded: RecordedValues) -> None:
    """Give every value without a type that of its recorded array."""
    import onnx_ir as ir

    for node in graph:
        for value in node.outputs:
            found = recorded.declared(name_of(value))
            if found is None or value.type is not None:
                continue
            value.type = ir.TensorType(ir.DataType.STRING if found[0].hasobject else ir.DataType.from_numpy(found[0]))
            value.shape = ir.Shape(found[1])


def temporary_file(folder: Path) -> IO[bytes]:
    """Open the file for a recording in a folder."""
    return (folder / "values.bin").open("w+b")
