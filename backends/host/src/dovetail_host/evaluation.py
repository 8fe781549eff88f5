"""Evaluate one node with onnx's reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.plugin import EngineError

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


# Before opset 13, these flattened all axes from the given one on.
_ONE_AXIS_FROM_13 = frozenset({"Softmax", "LogSoftmax", "Hardmax"})


def evaluate(node: ir.Node, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]) -> list[np.ndarray]:
    """Return the outputs of `node` for these inputs.

    Raises:
        EngineError: The operator has no implementation, or it refuses these inputs.
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
    except Exception as error:  # exceptions of any kind
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
