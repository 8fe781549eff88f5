"""Quantized copy of a float model, executed block by block; each block is loaded into an engine when it is reached."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, constant_of, input_of, name_of
from dovetail.planning import extract, given_regions
from dovetail.plugin import RegionModel, TemporaryFolder
from dovetail_placement.source_scales import is_qdq
from dovetail_precision.sharing_groups import QuantizedForm, quantized_forms
from dovetail_runtime.engines import engines_of
from dovetail_runtime.region_runner import RegionRunner
from dovetail_runtime.serialize import needs_file, write_scratch

from dovetail_quantize.conversions import parameter_tensors
from dovetail_quantize.inserting import insert_conversions
from dovetail_quantize.integers import dequantize_array, parameters_of
from dovetail_quantize.quantized_tensor import QuantizedTensor
from dovetail_quantize.refining.activation_cache import ActivationCache, Batch

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import QuantizedValue, Region
    from dovetail_runtime.engines import GuardedEngine


class QuantizedConstants:
    """Formats and parameters of the constants of a calibrated model.

    Args:
        model: The model.
        ctx: Its context, with the quantized values.
    """

    def __init__(self, model: Model, ctx: Context):
        forms = quantized_forms(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        quantized_values = {(one.value, one.format, one.group): one for one in ctx.outcome.quantized_values}
        self._at: dict[tuple[ir.Node, int], tuple[QuantizedForm, QuantizedValue]] = {}
        for one in forms:
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
        self._copies = list(self.model.graph)
        self.nodes = dict(zip(model.graph, self._copies))
        said, counts = len(ctx.remarks), Counter(ctx.counts)
        self._inserted = insert_conversions(self.model, ctx)
        # Drop the remarks about the copy; the model itself will produce them again.
        del ctx.remarks[said:]
        ctx.counts = counts
        self._forms = {_form(one) for one in ctx.outcome.quantized_values}
        self._inputs = [node.inputs for node in self._copies]
        self._outputs = list(self.model.graph.outputs)

    def adapt(self, model: Model, ctx: Context) -> bool:
        """Take over the parameters and constants of another calibrated copy of the same decided model.

        Returns:
            False if more than these differs; the copy can then no longer be used.
        """
        originals = list(model.graph)
        if [node.name for node in originals] != [node.name for node in self._copies] or any(map(is_qdq, originals)):
            return False
        self.nodes = dict(zip(originals, self._copies))
        self.model.graph.outputs.clear()
        self.model.graph.outputs.extend(self._outputs)
        dropped = sum(map(self._take_inputs, originals, self._copies, self._inputs))
        found = {_form(one): one for one in ctx.outcome.quantized_values}
        if not found.keys() <= self._forms or len(self._forms) - len(found) != dropped:
            return False
        given = model.graph.initializers
        for name, value in self.model.graph.initializers.items():
            if name in given:
                value.const_value = given[name].const_value
        self.model.touch()
        return self._take_weights(given, found) and self._take_parameters(found)

    def _take_inputs(self, original: ir.Node, copy: ir.Node, inputs: Sequence[ir.Value | None]) -> int:
        """Give a node the inputs that it had when the copy was made, without those that its original has dropped.

        Returns:
            How many are dropped.
        """
        left = inputs[: len(original.inputs)]
        if len(copy.inputs) != len(left):
            copy.resize_inputs(len(left))
            for index, value in enumerate(left):
                copy.replace_input_with(index, value)
        return len(inputs) - len(left)

    def _take_weights(self, given: Mapping[str, ir.Value], found: Mapping[_Form, QuantizedValue]) -> bool:
        for stored, source, known in self._inserted.stored:
            quantized, name = found.get(_form(known)), name_of(source)
            if quantized is None:
                continue  # a dropped bias
            if name not in given or quantized.parameters is None:
                return False
            weight = constant_of(given[name])
            stored.const_value = QuantizedTensor(weight, quantized.format, quantized.parameters, name_of(stored))
        return True

    def _take_parameters(self, found: Mapping[_Form, QuantizedValue]) -> bool:
        taken: dict[ir.Value, bytes] = {}
        for nodes, step, known in self._inserted.converting:
            quantized = found.get(_form(known))
            if quantized is None:
                continue  # a dropped bias
            if quantized.parameters is None or len(nodes) != 1 or not is_qdq(nodes[0]):
                return False
            format_ = step.target if step.kind == "quantize" else step.source
            assert format_ is not None
            constants = [input_of(nodes[0], index) for index in (1, 2)]
            shape = tuple(constant_of(constants[0]).shape.numpy())
            if math.prod(shape) != len(quantized.parameters.scale):
                return False
            for constant, tensor in zip(constants, parameter_tensors(format_, quantized.parameters, shape)):
                tensor.name, data = constant.name, tensor.tobytes()
                if taken.setdefault(constant, data) != data:
                    return False  # two conversions share a constant, and no longer can
                constant.const_value = tensor
        return True

    def calibrated_constants(self) -> list[ir.Value]:
        """Return the constants that follow from calibration: integers of weights, scales and zero points."""
        found = [stored for stored, _, _ in self._inserted.stored]
        for nodes, _, _ in self._inserted.converting:
            found += [value for node in nodes for value in node.inputs[1:] if value is not None]
        initializers = self.model.graph.initializers
        return [value for value in dict.fromkeys(found) if initializers.get(name_of(value)) is value]

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


_Form = tuple[str, Any, tuple[str, ...], str]


def _form(one: QuantizedValue) -> _Form:
    """Return what identifies a quantized value, whatever observer its group is named after."""
    return one.value, one.format, one.readers, one.made_by


@dataclass
class _Shared:
    """The quantized model of a search, once one is made."""

    model: QuantizedModel | None = None


def share_quantized_model(ctx: Context) -> None:
    """Make one quantized model serve all calibrated copies of a decided model, which must be used one after the other.

    A search that calibrates a model in several ways saves most of the copies.
    """
    ctx.kept.put(_Shared())


def quantized_model_of(model: Model, ctx: Context) -> QuantizedModel:
    """Return a quantized copy of a calibrated model: the shared one, if there is one and it can be adapted."""
    shared = ctx.kept.get(_Shared) or _Shared()
    if shared.model is None or not shared.model.adapt(model, ctx):
        shared.model = QuantizedModel(model, ctx)
    return shared.model


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

    def runner(self, block: int) -> BlockRunner:
        """Create a runner for a block with its current constants."""
        return BlockRunner(self._model, self._regions[block], self._engines)

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


class BlockRunner:
    """Runs one block; a block without outputs is skipped."""

    def __init__(self, model: Model, region: Region, engines: Sequence[GuardedEngine]):
        self._session = None
        if region.outputs:
            part = extract(model, region)
            path = None
            if needs_file(part):
                self._folder = TemporaryFolder("refine")
                write_scratch(part, path := self._folder.path / "block.onnx")
            options = {"optimize": "none", "spin": False, "share_weights": True}
            self._session = RegionRunner(region, RegionModel(part, path), engines, options, lambda text: None)

    def run(self, inputs: Batch) -> Batch:
        """Compute the outputs of the block."""
        return {} if self._session is None else self._session.run(inputs)


def _is_here(engine: GuardedEngine) -> bool:
    return engine.available()[0]
