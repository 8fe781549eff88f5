"""The engine `reference`: the reference evaluator of the onnx package, slow but complete."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.plugin import Availability, EngineError, Evaluator, Executed, Reads, RegionModel, Session
from dovetail_runtime import NOT_REPORTED, TENSOR_TYPES, engine_source, has_type, node_key, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator


class ReferenceEngine(Evaluator):
    """The reference evaluator of onnx: NumPy expressions over arrays of the declared types.

    Option: `profile` (true: keep every intermediate, so that `executed()` reports its type).
    """

    name = "reference"
    interprets = True

    def available(self) -> Availability:
        """Check whether onnx is installed."""
        if importlib.util.find_spec("onnx") is None:
            return Availability(False, "onnx is not installed (pip install onnx)")
        return Availability(True, "slow: every operator is a NumPy expression")

    @property
    def reads(self) -> Reads:  # type: ignore[override]  # never set
        """The opset, IR version and types of the installed onnx package."""
        import onnx

        return Reads(onnx.defs.onnx_opset_version(), onnx.IR_VERSION, TENSOR_TYPES)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> ReferenceSession:
        """Load a region."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        from dovetail_host.reference_operators import REPLACEMENTS

        source = engine_source(region)
        try:
            proto = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
            _order_functions(proto)
            evaluator = ReferenceEvaluator(proto, new_ops=REPLACEMENTS)
            return ReferenceSession(evaluator, region, bool(options.get("profile")))
        except Exception as error:  # the evaluator raises arbitrary exceptions
            raise DovetailError(f"reference refuses the region: {_first_sentence(error)}") from error

    def evaluate(
        self, node: ir.Node, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]
    ) -> list[np.ndarray]:
        """Evaluate one node; used for constant folding.

        Raises:
            EngineError: The operator has no implementation, or it rejects these inputs.
        """

        return evaluate(node, inputs, opsets)


class ReferenceSession(Session):
    """A region loaded by the reference evaluator."""

    def __init__(self, evaluator: ReferenceEvaluator, region: RegionModel, profile: bool):
        self._evaluator = evaluator
        self._region = region
        self._profile = profile
        self._computed: dict[str, str] = {}
        self._running = threading.Lock()
        self._types = {name_of(value): value_type(value) for value in region.model.graph.outputs}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; concurrent calls are serialized."""
        try:
            # The evaluator is not documented as thread-safe, and NumPy mostly holds the GIL anyway.
            with self._running:
                results = self._results(dict(inputs))
        except Exception as error:
            raise DovetailError(f"reference fails: {type(error).__name__}: {_first_sentence(error)}") from error
        return {name: _checked(name, results[name], declared) for name, declared in self._types.items()}

    def _results(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the outputs; with a profile, all values."""
        import numpy as np

        if not self._profile:
            return dict(zip(self._types, self._evaluator.run(list(self._types), inputs)))
        results = cast("dict[str, Any]", self._evaluator.run(None, inputs, intermediate=True))
        self._computed = {k: v.dtype.name for k, v in results.items() if isinstance(v, (np.ndarray, np.generic))}
        return results

    def executed(self) -> dict[str, Executed]:
        """Return the array types of the last run if profiling is on; bodies are not reported."""
        answers = {}
        for node in self._region.model.nodes():
            type_ = next((self._computed[out.name] for out in node.outputs if out.name in self._computed), "")
            answers[node_key(node)] = Executed(type_, "reported") if type_ else NOT_REPORTED
        return answers


def _checked(name: str, result: Any, declared: str) -> Any:
    """Return a result as an array after checking its type: a few operators return float32 instead of bfloat16."""
    import numpy as np

    array = np.asarray(result) if isinstance(result, np.generic) else result
    if isinstance(array, np.ndarray) and declared and not has_type(array, declared):
        raise DovetailError(f"reference computed output '{name}' as {array.dtype.name}, the model declares {declared}")
    return array


def _first_sentence(error: Exception) -> str:
    """Return the message of the evaluator, without its list of known operators."""
    return " ".join(str(error).partition(" You may either")[0].partition(" Available implementations")[0].split())


def _order_functions(proto: onnx.ModelProto) -> None:
    """Sort functions so that callees precede callers, as the evaluator requires."""
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


# Before opset 13, these flattened all axes from the given axis on.
_ONE_AXIS_FROM_13 = frozenset({"Softmax", "LogSoftmax", "Hardmax"})


def evaluate(node: ir.Node, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]) -> list[np.ndarray]:
    """Return the outputs of `node` for these inputs.

    Raises:
        EngineError: The operator has no implementation, or it rejects these inputs.
    """
    import numpy as np
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    from dovetail_host.reference_operators import REPLACEMENTS

    if node.op_type in _ONE_AXIS_FROM_13 and opsets.get("", 1) < 13:
        raise EngineError("the reference implements this operator only from opset 13 on")
    try:
        proto = ir.to_proto(node)
        names = [f"i{index}" if array is not None else "" for index, array in enumerate(inputs)]
        del proto.input[:], proto.output[:]
        proto.input.extend(names)
        proto.output.extend(f"o{index}" if value.name else "" for index, value in enumerate(node.outputs))
        declared = [
            onnx.helper.make_tensor_value_info(name, ir.DataType.from_numpy(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=True)
            if array is not None
        ]
        wanted = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
        graph = onnx.helper.make_graph([proto], "fold", declared, wanted)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opsets.get("", 1))])
        feeds = {name: array for name, array in zip(names, inputs, strict=True) if name}
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model, new_ops=REPLACEMENTS).run(None, feeds)
    except Exception as error:  # arbitrary exceptions
        raise EngineError(str(error)) from error
    # The result must have the declared type; the reference does not always keep it.
    out = []
    for value, result in zip([v for v in node.outputs if v.name], results, strict=True):
        if not isinstance(result, (np.ndarray, np.generic)) or result.dtype.kind in "OUS":
            raise EngineError("the result is not a numeric tensor")
        if value.dtype is not None and ir.DataType.from_numpy(result.dtype) != value.dtype:
            raise EngineError(f"the reference gives {result.dtype}")
        out.append(np.ascontiguousarray(result) if result.ndim else np.asarray(result))
    return out
