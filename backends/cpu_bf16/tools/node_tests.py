"""The operator tests of the onnx package, in variants that show which nodes an engine accepts.

A test becomes up to five cases: as it is; with every input but the first constant; stamped with a newer opset; and
with bfloat16 on every port whose schema allows it, free and constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Case", "cases"]

BF16 = np.dtype(ml_dtypes.bfloat16)
NEWEST_OPSET = 26
OLDEST_BF16_OPSET = 22


@dataclass(frozen=True)
class Case:
    """A model of one node, its inputs by name and its expected outputs."""

    test: str
    form: str
    model: onnx.ModelProto
    inputs: dict[str, object]
    outputs: list[object]
    rtol: float
    atol: float

    @property
    def label(self) -> str:
        """Unique name."""
        return f"{self.test}:{self.form}"


def cases() -> Iterator[Case]:
    """Yield all cases of all tests with exactly one node."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        if len(test.model.graph.node) != 1 or not test.data_sets:
            continue
        values, outputs = test.data_sets[0]
        names = [value.name for value in test.model.graph.input]
        if len(names) != len(values):
            continue
        inputs, expected = dict(zip(names, map(_array, values))), [*map(_array, outputs)]
        case = Case(test.name, "free", test.model, inputs, expected, test.rtol, test.atol)
        yield case
        yield from filter(None, (_constant(case, "constant"), _newer(case)))
        low = _bfloat16(case)
        if low:
            yield low
            yield from filter(None, (_constant(low, "bf16-constant"),))


def _constant(case: Case, form: str) -> Case | None:
    """Return the case with all inputs but the first as initializers."""
    if len(case.inputs) < 2 or not all(isinstance(value, np.ndarray) for value in case.inputs.values()):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    first, *rest = list(model.graph.input)
    model.graph.initializer.extend(_tensor(case.inputs[value.name], value.name) for value in rest)
    del model.graph.input[1:]
    return Case(case.test, form, model, {first.name: case.inputs[first.name]}, case.outputs, case.rtol, case.atol)


def _newer(case: Case) -> Case | None:
    """Return the case at the newest opset if the operator did not change since."""
    node, old = case.model.graph.node[0], _opset(case.model)
    if node.domain or old >= NEWEST_OPSET:
        return None
    now = onnx.defs.get_schema(node.op_type, NEWEST_OPSET)
    if onnx.defs.get_schema(node.op_type, old).since_version != now.since_version:
        return None
    model = _stamped(case.model, NEWEST_OPSET)
    return Case(case.test, f"opset{NEWEST_OPSET}", model, case.inputs, case.outputs, case.rtol, case.atol)


def _bfloat16(case: Case) -> Case | None:
    """Return the case in bfloat16 at the first opset that allows it, with expected values from rounded inputs."""
    for opset in (_opset(case.model), *range(OLDEST_BF16_OPSET, NEWEST_OPSET + 1)):
        if opset < _opset(case.model):
            continue
        model = _retyped(case.model, opset)
        if model is None:
            continue
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception:
            continue
        low = {value.name for value in model.graph.input if value.type.tensor_type.elem_type == TensorProto.BFLOAT16}
        inputs = {n: v.astype(BF16) if n in low else v for n, v in case.inputs.items()}
        rounded = {n: v.astype(np.float32) if n in low else v for n, v in inputs.items()}
        try:
            outputs = onnx.reference.ReferenceEvaluator(case.model).run(None, rounded)
        except Exception:
            return None
        return Case(case.test, "bf16", model, inputs, outputs, 3e-2, 3e-2)
    return None


def _retyped(source: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    model = _stamped(source, opset)
    node = model.graph.node[0]
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    takes = {c.type_param_str for c in schema.type_constraints if "tensor(bfloat16)" in c.allowed_type_strs}
    low = {
        n
        for ports, names in ((schema.inputs, node.input), (schema.outputs, node.output))
        for i, n in enumerate(names)
        if ports and ports[min(i, len(ports) - 1)].type_str in takes
    }
    changed = False
    for value in (*model.graph.input, *model.graph.output):
        tensor = value.type.tensor_type
        if value.name in low and tensor.elem_type == TensorProto.FLOAT:
            tensor.elem_type, changed = TensorProto.BFLOAT16, True
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.BFLOAT16
    return model if changed else None


def _stamped(source: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    model.ir_version = max(model.ir_version, 10)
    for entry in model.opset_import:
        if not entry.domain:
            entry.version = opset
    return model


def _opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if not entry.domain), 1)


def _array(value: object) -> object:
    """Tests hold arrays, NumPy scalars, tensors, and lists (sequences, which stay as they are)."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def _tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    if array.dtype == BF16:
        return helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True)
    return numpy_helper.from_array(array, name)
