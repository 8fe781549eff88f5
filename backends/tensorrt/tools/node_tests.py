"""The operator tests of the onnx package as models of one node, in every element type that their operators take.

A test becomes one case per type, in place of its float32, and form: with all inputs free, and with all but the first
constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["TYPES", "Case", "cases"]

TYPES = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip
OPSETS = (22, 23, 24)  # tried in order where the test's own opset lacks the type
NEWEST_OPSET = 24


class Case(NamedTuple):
    """A model of one node.

    Attributes:
        test: Name of the test.
        kind: The type in place of the test's float32; `none` if it has none.
        form: `free` or `constant`.
        model: The model.
    """

    test: str
    kind: str
    form: str
    model: onnx.ModelProto

    @property
    def operator(self) -> str:
        """The operator, with its domain unless that is the default one."""
        node = self.model.graph.node[0]
        return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def cases() -> Iterator[Case]:
    """Yield all cases of all tests with exactly one node, of opsets that the backend file speaks of."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        if len(test.model.graph.node) != 1 or not test.data_sets:
            continue
        values = test.data_sets[0][0]
        names = [value.name for value in test.model.graph.input]
        if len(names) != len(values):
            continue
        arrays = {name: _array(value) for name, value in zip(names, values)}
        for kind, model in _typed(test.model):
            yield Case(test.name, kind, "free", model)
            constant = _constant(model, arrays)
            if constant is not None:
                yield Case(test.name, kind, "constant", constant)


def _typed(source: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The model in each type that its operator takes, at the lowest opset from its own on at which it does."""
    own = _lowered(source)
    if own is None:
        return
    floats = _has(own, TensorProto.FLOAT)
    yield ("float32" if floats else "none"), own
    for kind in TYPES[1:] if floats else ():
        code = TensorProto.DataType.Value("DOUBLE" if kind == "float64" else kind.upper())
        for opset in (_opset(own), *(newer for newer in OPSETS if newer > _opset(own))):
            model = _retyped(_stamped(own, opset), opset, code)
            if model is not None and _valid(model):
                yield kind, model
                break


def _lowered(source: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model at the newest opset of the backend file, if it is valid there, too."""
    if _opset(source) <= NEWEST_OPSET or source.graph.node[0].domain:
        return source
    model = _stamped(source, NEWEST_OPSET)
    return model if _valid(model) else None


def _valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:
        return False
    return True


def _has(model: onnx.ModelProto, code: int) -> bool:
    values = (*model.graph.input, *model.graph.output)
    return any(value.type.tensor_type.elem_type == code for value in values)


def _retyped(model: onnx.ModelProto, opset: int, code: int) -> onnx.ModelProto | None:
    """The model with `code` on every float32 port whose type parameter allows it; None if there is none."""
    node = model.graph.node[0]
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    name = f"tensor({TensorProto.DataType.Name(code).lower()})"
    takes = {c.type_param_str for c in schema.type_constraints if name in c.allowed_type_strs}
    low = {
        value
        for ports, values in ((schema.inputs, node.input), (schema.outputs, node.output))
        for index, value in enumerate(values)
        if ports and ports[min(index, len(ports) - 1)].type_str in takes
    }
    changed = False
    for value in (*model.graph.input, *model.graph.output):
        tensor = value.type.tensor_type
        if value.name in low and tensor.elem_type == TensorProto.FLOAT:
            tensor.elem_type, changed = code, True
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_datatype") and attribute.i == TensorProto.FLOAT:
            attribute.i = code
    return model if changed else None


def _constant(source: onnx.ModelProto, arrays: dict[str, object]) -> onnx.ModelProto | None:
    """The model with every input but the first as an initializer."""
    if len(source.graph.input) < 2 or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(source)
    for value in list(model.graph.input)[1:]:
        code = value.type.tensor_type.elem_type
        array = arrays[value.name].astype(helper.tensor_dtype_to_np_dtype(code))
        model.graph.initializer.append(_tensor(array, value.name))
    del model.graph.input[1:]
    return model


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
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def _tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        return helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True)
    return numpy_helper.from_array(array, name)
