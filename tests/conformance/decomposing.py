"""One node of ONNX Runtime, run as it is and written out; both without optimization, on the same inputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from dovetail.passes import Context
from dovetail_onnx.opening import open_proto
from dovetail_onnx.signatures import find_signature
from dovetail_transforms.canonicalize.normalize import Normalize
from dovetail_transforms.decompositions import WriteOutNode, can_decompose, is_known
from onnx import helper, numpy_helper

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """A node with values for its ports.

    Attributes:
        name: What is special about it.
        op_type: The operator.
        inputs: Values by port, in the types in which the node gets them; ports that are left out are absent.
        attributes: Its attributes.
        outputs: The ports of the results that are read.
        constants: Inputs that are initializers.
        open: Axes of inputs whose extent is open, with its name.
        domain: The domain of the operator.
        opset: The version of the default domain.
        variadic: Values after the ports.
        expected: Computes the results, in float64, for operators that ONNX Runtime has no kernel of on CPUs.
        defined: The part of each result that is defined.
        through_float32: Whether the kernel is that of float32, on the same numbers: there is none of the type.
        steps: By how much integers may differ, and for what part of the elements.
        close: The relative difference that is allowed, if it is not that of the type.
    """

    name: str
    op_type: str
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    constants: Sequence[str] = ()
    open: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    domain: str = "com.microsoft"
    opset: int = 21
    variadic: Sequence[Any] = ()
    expected: Callable[..., Any] | None = None
    defined: Mapping[str, Any] = field(default_factory=dict)
    through_float32: bool = False
    steps: tuple[int, float] = (0, 0.0)
    close: float | None = None

    def __str__(self):
        return f"{self.op_type}-{self.name}".replace(" ", "_")


def model_of(case, unread=""):
    """The model, in which bfloat16 is cast on both sides, and what it is given.

    Args:
        case: The node.
        unread: The beginning of the names of outputs that nothing reads; empty to leave these outputs out.
    """
    signature = find_signature(case.domain, case.op_type, None)
    ports = [port.name for port in signature.inputs if not port.variadic]
    unknown = set(case.inputs) - set(ports) or set(case.attributes) - signature.attributes
    assert not unknown, f"{case.op_type} has no {unknown}"
    names = [name if case.inputs.get(name) is not None else "" for name in ports]
    values = {name: np.asarray(value) for name, value in case.inputs.items() if value is not None}
    for index, value in enumerate(case.variadic):
        names.append(f"more{index}")
        values[names[-1]] = np.asarray(value)
    while names and not names[-1]:
        names.pop()
    nodes, given, graph_inputs, initializers = [], {}, [], []
    for name, value in values.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        if name in case.constants:
            initializers.append(numpy_helper.from_array(value, name))
            continue
        shape = [case.open.get(name, {}).get(axis, extent) for axis, extent in enumerate(value.shape)]
        if (
            value.dtype in (np.float16, np.float32, np.float64, np.bool_)
            or value.dtype.kind in "iu"
            and value.dtype.itemsize * 8 > 4
            and value.dtype.name in ("int8", "uint8", "int16", "uint16", "int32", "int64")
        ):
            graph_inputs.append(helper.make_tensor_value_info(name, kind, shape))
            given[name] = value
            continue
        graph_inputs.append(helper.make_tensor_value_info(f"{name}_wide", onnx.TensorProto.FLOAT, shape))
        given[f"{name}_wide"] = value.astype(np.float32)
        nodes.append(helper.make_node("Cast", [f"{name}_wide"], [name], to=kind, name=f"cast_{name}"))
    outputs = [port.name for port in signature.outputs]
    read = list(case.outputs) or outputs[:1]
    results = [f"out_{name}" if name in read else unread and f"{unread}{name}" for name in outputs]
    while len(results) > signature.min_outputs and not results[-1]:
        results.pop()
    nodes.append(
        helper.make_node(
            case.op_type,
            names,
            results,
            name="node",
            domain="" if case.domain == "" else case.domain,
            **case.attributes,
        )
    )
    read_values = [onnx.ValueInfoProto(name=name) for name in results if name.startswith("out_")]
    graph = helper.make_graph(nodes, "case", graph_inputs, read_values)
    graph.initializer.extend(initializers)
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), given


def on_runtime(model, given):
    """The results of ONNX Runtime; bfloat16 as float32."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        _readable(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, given)


def _readable(model):
    """The model with casts of what Python cannot read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        if output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            for node in copy.graph.node:
                for names in (node.input, node.output):
                    for index, name in enumerate(names):
                        if name == output.name:
                            names[index] = f"{name}_narrow"
            copy.graph.node.append(helper.make_node("Cast", [f"{output.name}_narrow"], [output.name], to=1))
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return copy


def normalized(proto):
    """The model, with types for its values."""
    model = open_proto(onnx.ModelProto.FromString(proto.SerializeToString()))
    Normalize().run(model, Context(model=model))
    return model


def written_out(model):
    """The model that the node of another one is written out in; what is asked before agrees with what is done."""
    (node,) = (node for node in model.graph if is_known(node))
    before = str(model)
    assert can_decompose(node) is None and str(model) == before
    assert WriteOutNode().apply(model, node, "after", Context(model=model))
    model.touch()
    result = ir.to_proto(model.ir)
    onnx.checker.check_model(result, full_check=True)
    assert {node.domain for node in result.graph.node} <= {"", "ai.onnx"}
    return result


def assert_same(case):
    proto, given = model_of(case)
    model = normalized(proto)
    source = ir.to_proto(model.ir)
    result = written_out(model)
    found = on_runtime(result, given)
    names = [output.name.removeprefix("out_") for output in source.graph.output]
    kinds = [output.type.tensor_type.elem_type for output in source.graph.output]
    if case.through_float32:
        inputs = {name: value.astype(np.float32) if _is_narrow(value) else value for name, value in case.inputs.items()}
        expected = kernel_results(replace(case, inputs=inputs))
    elif case.expected is None:
        expected = on_runtime(source, given)
    else:
        wide = {name: _wide(value) for name, value in case.inputs.items() if value is not None}
        expected = case.expected(*case.variadic, **wide, **case.attributes)
        expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert len(found) == len(expected)
    for output, result in zip(source.graph.output, found, strict=True):
        assert_inferred(output, result)
    for name, kind, ours, theirs in zip(names, kinds, found, expected, strict=True):
        assert ours.shape == theirs.shape, f"{name}: {ours.shape} instead of {theirs.shape}"
        if case.expected is None and not case.through_float32:
            assert ours.dtype == theirs.dtype, name
        defined = case.defined.get(name)
        if defined is not None:
            ours, theirs = ours[defined], theirs[defined]
        _assert_close(case, name, kind, ours, theirs)


def assert_same_without(case, read, unread):
    """Outputs that are read have the same bits whether or not the others are read."""
    whole, given = model_of(case)
    expected = dict(zip(case.outputs, on_runtime(written_out(normalized(whole)), given), strict=True))
    part, given = model_of(replace(case, outputs=read), unread)
    names = [output.name.removeprefix("out_") for output in part.graph.output]
    found = on_runtime(written_out(normalized(part)), given)
    for name, ours in zip(names, found, strict=True):
        np.testing.assert_array_equal(ours, expected[name], err_msg=name)


def assert_inferred(output, result):
    """The inferred type of an output has its axes, and those extents that do not depend on the inputs of the model."""
    kind = output.type.tensor_type
    assert kind.elem_type and kind.HasField("shape"), f"{output.name} has no type, or no shape"
    assert len(kind.shape.dim) == result.ndim, output.name
    assert all(dim.dim_value in (0, extent) for dim, extent in zip(kind.shape.dim, result.shape)), output.name


def kernel_results(case):
    """The results of the kernel for a node."""
    proto, given = model_of(case)
    return on_runtime(ir.to_proto(normalized(proto).ir), given)


def _is_narrow(value):
    return value is not None and np.asarray(value).dtype.name in ("float16", "bfloat16")


def _wide(value):
    value = np.asarray(value)
    return value.astype(np.float64) if value.dtype.kind in "fV" else value


CLOSE = {
    onnx.TensorProto.FLOAT: 1e-5,
    onnx.TensorProto.FLOAT16: 1.5e-3,
    onnx.TensorProto.BFLOAT16: 1.2e-2,
    onnx.TensorProto.DOUBLE: 1e-7,
}


def _assert_close(case, name, kind, ours, theirs):
    if ours.dtype.kind in "biu":
        difference = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
        most, part = case.steps
        assert difference.max(initial=0) <= most, f"{name} differs by {difference.max()}"
        assert (difference > 0).sum() <= max(2 * most, part * difference.size), f"{name} differs often"
        return
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    close = case.close or CLOSE[kind]
    np.testing.assert_allclose(a, b, rtol=close, atol=close * largest, err_msg=name)
