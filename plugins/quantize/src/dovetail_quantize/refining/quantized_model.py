"""Quantized copy of a float model, executed block by block; each block is loaded into an engine when it is reached."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, constant_of, input_of, name_of
from dovetail.planning import extract, given_regions
from dovetail.plugin import RegionModel, TemporaryFolder
from dovetail_precision.sharing_groups import Held, held_values
from dovetail_runtime.engines import engines_of
from dovetail_runtime.region_runner import RegionRunner
from dovetail_runtime.serialize import needs_file

from dovetail_quantize.integers import dequantize_array, parameters_of
from dovetail_quantize.quantize import Quantize
from dovetail_quantize.quantized_tensor import QuantizedTensor

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import QuantizedValue, Region
    from dovetail_runtime.engines import GuardedEngine


class HeldConstants:
    """Formats and parameters of the constants of a calibrated model.

    Args:
        model: The model.
        ctx: Its context, with the quantized values.
    """

    def __init__(self, model: Model, ctx: Context):
        held = held_values(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        quantized_values = {(one.value, one.format, one.group): one for one in ctx.outcome.quantized_values}
        self._at: dict[tuple[ir.Node, int], tuple[Held, QuantizedValue]] = {}
        for one in held:
            found = quantized_values[name_of(one.value), one.format, one.name]
            self._at |= {(use.node, use.index): (one, found) for use in one.uses if not use.is_output}

    def at(self, node: ir.Node, index: int) -> QuantizedValue | None:
        """Return the quantized value that an input of a node reads; None if it reads floats."""
        found = self._at.get((node, index))
        return None if found is None else found[1]


class QuantizedModel:
    """A copy of a calibrated model that computes like the quantized result.

    Args:
        model: The model; it is not changed.
        ctx: Its context, with the quantized values.

    Attributes:
        model: The copy.
        nodes: Nodes of the copy by original node.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model = model.clone()
        self.nodes = dict(zip(model.graph, list(self.model.graph)))
        said, counts = len(ctx.remarks), Counter(ctx.counts)
        Quantize().run(self.model, ctx)
        # Drop the remarks about the copy; the model itself will produce them again.
        del ctx.remarks[said:]
        ctx.counts = counts

    def numbers(self, node: ir.Node, index: int, quantized: QuantizedValue | None) -> np.ndarray:
        """Return the real numbers that a constant input of a node's copy represents, in float32."""
        value = input_of(self.nodes[node], index)
        producer = value.producer()
        if producer is None or quantized is None:
            return constant_of(value).numpy().astype(np.float32)
        return dequantize_array(constant_of(input_of(producer, 0)).numpy(), quantized.format, parameters_of(quantized))

    def put(self, node: ir.Node, index: int, tensor: ir.TensorProtocol, quantized: QuantizedValue | None) -> None:
        """Replace a constant input of a node's copy, quantized like the original."""
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
    """Disk cache of activations by name, batch by batch, until they are dropped.

    Args:
        fallback: Cache for values that are not in this one.
    """

    def __init__(self, fallback: ActivationCache | None = None) -> None:
        self._folder = TemporaryFolder("refine")
        self._paths: dict[str, Path] = {}
        self._made = 0
        self._fallback = fallback

    @contextmanager
    def writing(self) -> Iterator[Callable[[Batch], None]]:
        """Yield a function that stores the values of one batch, replacing earlier values of the same names."""
        with ExitStack() as files:
            opened: dict[str, Any] = {}

            def write(batch: Batch) -> None:
                for name, array in batch.items():
                    if name not in opened:
                        opened[name] = files.enter_context(self._new(name).open("wb"))
                    # `np.save` does not support bfloat16. Pickle is safe here: only this user can write to the folder.
                    pickle.dump(array, opened[name], protocol=5)

            yield write

    def read(self, names: Iterable[str], batches: int) -> Iterator[dict[str, Any]]:
        """Yield the named values of every batch."""
        with ExitStack() as files:
            opened = {name: files.enter_context(self._path(name).open("rb")) for name in names}
            for _ in range(batches):
                yield {name: pickle.load(file) for name, file in opened.items()}

    def change(self, name: str, by: Callable[[np.ndarray], np.ndarray], batches: int) -> None:
        """Replace a value of this cache by a function of it in every batch."""
        before, after = self._paths[name], self._new_path()
        with before.open("rb") as source, after.open("wb") as target:
            for _ in range(batches):
                pickle.dump(by(pickle.load(source)), target, protocol=5)
        self.drop(name)
        self._paths[name] = after

    def drop(self, name: str) -> None:
        """Drop a value if it is cached here."""
        path = self._paths.pop(name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._paths[name] if name in self._paths or self._fallback is None else self._fallback._path(name)

    def _new(self, name: str) -> Path:
        self.drop(name)
        self._paths[name] = self._new_path()
        return self._paths[name]

    def _new_path(self) -> Path:
        self._made += 1
        return self._folder.path / str(self._made)


class Replica:
    """A model that runs block by block.

    Args:
        model: The model; its outputs are replaced by the wanted values.
        blocks: Its nodes by block, in execution order.
        wanted: Values to return.
        inputs: Cache with the model's inputs.
        ctx: The context; its host backend runs the blocks.
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
        # Refinement changes constants, so a block is loaded only when it is reached.
        self._engines = [engine for engine in engines_of([ctx.host], ctx.registry)[ctx.host.name] if _is_here(engine)]
        if not self._engines:
            raise DovetailError("no engine of the host is available to refine weights with", "install onnxruntime")

    def runner(self, block: int) -> Runner:
        """Create a runner for a block with its current constants."""
        return Runner(self._model, self._regions[block], self._engines)

    def read(self, block: int, batches: int) -> Iterator[dict]:
        """Yield the inputs of a block, batch by batch."""
        return self._cache.read([name_of(value) for value in self._regions[block].inputs], batches)

    def change(self, name: str, by: Callable[[np.ndarray], np.ndarray], batches: int) -> None:
        """Replace a value by a function of it in every batch, if a later block reads it."""
        if name in self._last:
            self._cache.change(name, by, batches)

    def writing(self) -> AbstractContextManager[Callable[[Batch], None]]:
        """Return a context manager that stores values leaving blocks; see `ActivationCache.writing`."""
        return self._cache.writing()

    def leaving(self, block: int, results: Batch) -> Batch:
        """Select the results of a block that later blocks read."""
        return {name: array for name, array in results.items() if self._last.get(name, -1) > block}

    def forget(self, block: int) -> None:
        """Drop the inputs of a block that no later block reads."""
        for value in self._regions[block].inputs:
            if self._last[value.name] <= block:
                self._cache.drop(name_of(value))


class Runner:
    """Runs one block; a block without outputs is skipped."""

    def __init__(self, model: Model, region: Region, engines: Sequence[GuardedEngine]):
        self._session = None
        if region.outputs:
            part = extract(model, region)
            path = None
            if needs_file(part):
                self._folder = TemporaryFolder("refine")
                part.save(path := self._folder.path / "block.onnx")
            options = {"optimize": "none", "spin": False, "share_weights": True}
            self._session = RegionRunner(region, RegionModel(part, path), engines, options, lambda text: None)

    def run(self, inputs: Batch) -> Batch:
        """Compute the outputs of the block."""
        return {} if self._session is None else self._session.run(inputs)


def _is_here(engine: GuardedEngine) -> bool:
    return engine.available()[0]
