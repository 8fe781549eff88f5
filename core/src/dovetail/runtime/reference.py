"""The engine `reference`: the evaluator of the onnx package, slow and complete."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.runtime.engine import Availability, Executed, Reads, RegionModel
from dovetail.runtime.reporting import NOT_REPORTED, node_key
from dovetail.runtime.serialise import source_of
from dovetail.runtime.tensors import TENSOR_TYPES, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

__all__ = ["ReferenceEngine"]


class ReferenceEngine:
    """The reference evaluator of onnx: NumPy arrays of exactly the types that the model declares. No options."""

    name = "reference"

    def available(self) -> Availability:
        """Whether onnx is installed."""
        if importlib.util.find_spec("onnx") is None:
            return Availability(False, "onnx is not installed (pip install onnx)")
        return Availability(True, "slow: every operator is a NumPy expression")

    @property
    def reads(self) -> Reads:
        """What the installed onnx package defines."""
        import onnx

        return Reads(onnx.defs.onnx_opset_version(), onnx.IR_VERSION, TENSOR_TYPES)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> ReferenceSession:
        """Make a session."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        source = source_of(region)
        try:
            proto = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
            _order_functions(proto)
            return ReferenceSession(ReferenceEvaluator(proto), proto, region)
        except Exception as error:  # the evaluator raises whatever its parts raise
            raise DovetailError(f"reference refuses the region: {error}") from error


class ReferenceSession:
    """A region loaded by the reference evaluator."""

    def __init__(self, evaluator: ReferenceEvaluator, proto: onnx.ModelProto, region: RegionModel):
        self._evaluator = evaluator
        self._region = region
        self._types = {value.name: value_type(value) for value in region.model.graph.outputs}
        self._outputs = [output.name for output in proto.graph.output]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name."""
        import numpy as np

        try:
            results = self._evaluator.run(self._outputs, dict(inputs))
        except Exception as error:
            raise DovetailError(f"reference fails: {type(error).__name__}: {error}") from error
        outputs = {}
        for name, result in zip(self._outputs, results):
            array = np.asarray(result) if isinstance(result, np.generic) else result
            declared = self._types.get(name)
            if isinstance(array, np.ndarray) and declared and declared not in ("string", array.dtype.name):
                raise DovetailError(
                    f"reference computed output '{name}' as {array.dtype.name}, the model declares {declared}"
                )
            outputs[name] = array
        return outputs

    def executed(self) -> dict[str, Executed]:
        """Declared types: every intermediate of the evaluator is an array of exactly that type."""
        answers = {}
        for node in self._region.model.nodes():
            type_ = value_type(node.outputs[0]) if node.outputs else ""
            answers[node_key(node)] = Executed(type_, "reported") if type_ else NOT_REPORTED
        return answers


def _order_functions(proto: onnx.ModelProto) -> None:
    """Put callees before their callers: the evaluator knows only the functions that it has read."""
    functions = {(function.domain, function.name): function for function in proto.functions}
    ordered: dict[tuple[str, str], onnx.FunctionProto] = {}

    def visit(key: tuple[str, str]) -> None:
        for node in _nodes(functions[key].node):
            called = (node.domain, node.op_type)
            if called in functions and called not in ordered:
                visit(called)
        ordered[key] = functions[key]

    for key in functions:
        if key not in ordered:
            visit(key)
    copies = [type(function).FromString(function.SerializeToString()) for function in ordered.values()]
    del proto.functions[:]
    proto.functions.extend(copies)


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
