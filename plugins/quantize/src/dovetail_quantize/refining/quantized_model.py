"""The quantized model beside the float one, in blocks that each become a model for an engine when their turn comes."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, input_of, name_of
from dovetail.plugin import RegionModel
from dovetail_precision.sharing_groups import Held, held_values
from dovetail_runtime.engines import engines_of
from dovetail_runtime.region_runner import RegionRunner
from dovetail_runtime.serialize import needs_file
from dovetail_transforms.regions.regions import extract, given_regions

from dovetail_quantize.integers import parameters_of
from dovetail_quantize.quantize import Quantize, QuantizedTensor

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import QuantizedValue
    from dovetail_runtime.engines import GuardedEngine
    from dovetail_transforms.regions.regions import Region


class HeldConstants:
    """In which format, and with which parameters, a calibrated model holds its constants.

    Args:
        model: The model.
        ctx: Its run, with the quantized values.
    """

    def __init__(self, model: Model, ctx: Context):
        held = held_values(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        quantized_values = {(one.value, one.format, one.group): one for one in ctx.outcome.quantized_values}
        self._at: dict[tuple[ir.Node, int], tuple[Held, QuantizedValue]] = {}
        for one in held:
            found = quantized_values[name_of(one.value), one.format, one.name]
            self._at |= {(use.node, use.index): (one, found) for use in one.uses if not use.is_output}

    def at(self, node: ir.Node, index: int) -> QuantizedValue | None:
        """The quantized value that an input of a node reads; None if it reads floats."""
        found = self._at.get((node, index))
        return None if found is None else found[1]


class QuantizedModel:
    """A copy of a calibrated model that computes as the quantized one will.

    Args:
        model: The model; it stays as it is.
        ctx: Its run, with the quantized values.

    Attributes:
        model: The copy.
        nodes: Its nodes by those of the original.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model = model.clone()
        self.nodes = dict(zip(model.graph, list(self.model.graph)))
        said, counts = len(ctx.remarks), Counter(ctx.counts)
        Quantize().run(self.model, ctx)
        # What is said of the copy will be said again of the model.
        del ctx.remarks[said:]
        ctx.counts = counts

    def put(self, node: ir.Node, index: int, tensor: ir.TensorProtocol, quantized: QuantizedValue | None) -> None:
        """Give the quantized copy of a node another constant, held as the original one is."""
        value = input_of(self.nodes[node], index)
        producer = value.producer()
        if producer is None or quantized is None:
            value.const_value = tensor
            return
        stored = input_of(producer, 0)
        stored.const_value = QuantizedTensor(tensor, quantized.format, parameters_of(quantized), name_of(stored))


Batch = Mapping[str, Any]
"""Values of one batch by name."""


class ActivationCache:
    """Keeps values by name, batch by batch, until they are dropped.

    Args:
        beside: Has values that this one has not.
    """

    def __init__(self, beside: ActivationCache | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-refine-")
        self._paths: dict[str, Path] = {}
        self._made = 0
        self._beside = beside

    @contextmanager
    def writing(self) -> Iterator[Callable[[Batch], None]]:
        """A function that keeps the values of one batch; values of the same names are replaced."""
        with ExitStack() as files:
            opened: dict[str, Any] = {}

            def write(batch: Batch) -> None:
                for name, array in batch.items():
                    if name not in opened:
                        opened[name] = files.enter_context(self._new(name).open("wb"))
                    # Not `np.save`, which has no bfloat16. Only this user can write to the folder.
                    pickle.dump(array, opened[name], protocol=5)

            yield write

    def read(self, names: Iterable[str], batches: int) -> Iterator[dict[str, Any]]:
        """Some values of every batch."""
        with ExitStack() as files:
            opened = {name: files.enter_context(self._path(name).open("rb")) for name in names}
            for _ in range(batches):
                yield {name: pickle.load(file) for name, file in opened.items()}

    def drop(self, name: str) -> None:
        """Forget a value, if it is here."""
        path = self._paths.pop(name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._paths[name] if name in self._paths or self._beside is None else self._beside._path(name)

    def _new(self, name: str) -> Path:
        self.drop(name)
        self._made += 1
        self._paths[name] = Path(self._folder.name) / str(self._made)
        return self._paths[name]


class Replica:
    """A model in blocks.

    Args:
        model: The model; its outputs are replaced by what is wanted.
        blocks: Its nodes in blocks, in an order in which these can run.
        wanted: Values that somebody wants to see.
        inputs: The inputs of the model.
        ctx: The run, whose host executes it.
    """

    def __init__(
        self,
        model: Model,
        blocks: Sequence[Sequence[ir.Node]],
        wanted: Iterable[ir.Value],
        inputs: ActivationCache,
        ctx: Context,
    ):
        self._model = model
        model.graph.outputs.clear()
        model.graph.outputs.extend(dict.fromkeys(value for value in wanted if value.producer() is not None))
        self._regions = given_regions(model.graph, blocks)
        self._cache = ActivationCache(inputs)
        self._last = {value.name: region.index for region in self._regions for value in region.inputs}
        # A step of refining changes constants, so that a block is loaded when its turn comes.
        self._engines = [engine for engine in engines_of([ctx.host], ctx.registry)[ctx.host.name] if _is_here(engine)]
        if not self._engines:
            raise DovetailError("no engine of the host is available to refine weights with", "install onnxruntime")

    def runner(self, block: int) -> Runner:
        """What runs a block, with the constants that it has now."""
        return Runner(self._model, self._regions[block], self._engines)

    def read(self, block: int, batches: int) -> Iterator[dict]:
        """What enters a block, batch by batch."""
        return self._cache.read([name_of(value) for value in self._regions[block].inputs], batches)

    def writing(self) -> AbstractContextManager[Callable[[Batch], None]]:
        """A function that keeps what leaves blocks; see `ActivationCache.writing`."""
        return self._cache.writing()

    def leaving(self, block: int, results: Batch) -> Batch:
        """Those of the results of a block that later ones read."""
        return {name: array for name, array in results.items() if self._last.get(name, -1) > block}

    def forget(self, block: int) -> None:
        """Forget what no block behind this one reads."""
        for value in self._regions[block].inputs:
            if self._last[value.name] <= block:
                self._cache.drop(name_of(value))


class Runner:
    """Runs one block; nothing where nobody wants its results."""

    def __init__(self, model: Model, region: Region, engines: Sequence[GuardedEngine]):
        self._session = None
        if region.outputs:
            self._folder = tempfile.TemporaryDirectory(prefix="dovetail-refine-")
            part = extract(model, region)
            path = Path(self._folder.name) / "block.onnx" if needs_file(part) else None
            if path is not None:
                part.save(path)
            options = {"optimize": "none", "spin": False}
            self._session = RegionRunner(region, RegionModel(part, path), engines, options, lambda text: None)

    def run(self, inputs: Batch) -> Batch:
        """What the block computes."""
        return {} if self._session is None else self._session.run(inputs)


def _is_here(engine: GuardedEngine) -> bool:
    return engine.available()[0]
