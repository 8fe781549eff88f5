"""Retyping of a bfloat16 OpenVINO graph to float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail_precision import exact_floats

from dovetail_cpu_bf16.float32_marks import bodies_of
from dovetail_cpu_bf16.frontend_input import exact_scalars, scalar_of

if TYPE_CHECKING:
    import numpy as np
    import openvino as ov
    from dovetail.ir import Model


def _kind(port: ov.Output) -> str:
    return port.get_element_type().get_type_name()


@dataclass(frozen=True)
class ExactConstants:
    """The float32 values of constants that were rounded to bfloat16.

    Attributes:
        names: The names of all constants of the region.
        constants: Their float32 values where known, flattened, by name.
        scalars: Numbers in attributes, by node and by their upper 16 bits; the frontend turns them into unnamed
            constants.
    """

    names: frozenset[str] = frozenset()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    scalars: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> ExactConstants:
        """Collect the exact constants of a region."""
        names = frozenset(name for _, graph in model.graphs() for name in graph.initializers)
        return cls(names, exact_floats(model), exact_scalars(model))


def widen(model: ov.Model, exact: ExactConstants, in_float32: bool = False) -> None:
    """Retype all bfloat16 operations as float32; inputs and outputs keep their types.

    Args:
        model: Changed in place, with its bodies.
        exact: The float32 values of its constants.
        in_float32: Whether it is compiled with the hint `f32`. OpenVINO then removes the conversions of results to
            bfloat16, and gives their names to the operations before them, which should be recognized.
    """
    _widen(model, exact, is_body=False)
    for result in model.get_results() if in_float32 else ():
        convert = result.input_value(0).get_node()
        if convert.get_type_name() == "Convert":
            convert.set_friendly_name(f"{convert.input_value(0).get_node().get_friendly_name()}.0")


def _widen(model: ov.Model, exact: ExactConstants, is_body: bool) -> None:
    import openvino as ov
    from openvino import opset13

    results = [] if is_body else [port for port in model.get_results() if _kind(port.input_value(0)) == "bf16"]
    for operation in model.get_ordered_ops():
        kind = operation.get_type_name()
        if kind == "Result":
            continue
        if kind == "Parameter" and is_body and _kind(operation.output(0)) == "bf16":
            operation.set_element_type(ov.Type.f32)
            operation.validate_and_infer_types()
        elif kind == "Constant":
            _restore_exact(operation, exact)
        elif kind == "Convert" and _is_noop(operation):
            operation.output(0).replace(operation.input_value(0))
            continue
        elif kind != "Parameter":
            for body in bodies_of(operation):
                _widen(body, exact, is_body=True)
            operation.validate_and_infer_types()
        _convert_results(operation, is_body)
    for result in results:
        if _kind(source := result.input_value(0)) == "f32":
            rounded = opset13.convert(source, "bf16")
            rounded.output(0).set_names(source.get_names())
            result.input(0).replace_source_output(rounded.output(0))
    model.validate_nodes_and_infer_types()


def _is_noop(convert: ov.Node) -> bool:
    """Check whether a Convert between bfloat16 and float32 has become a no-op and feeds no model output."""
    if _kind(convert.input_value(0)) != "f32" or _kind(convert.output(0)) not in ("f32", "bf16"):
        return False
    return all(port.get_node().get_type_name() != "Result" for port in convert.output(0).get_target_inputs())


def _restore_exact(constant: ov.Node, exact: ExactConstants) -> None:
    import numpy as np
    from openvino import op

    if _kind(constant.output(0)) != "bf16":
        return
    name, shape = constant.get_friendly_name(), list(constant.get_output_shape(0))
    array = exact.constants.get(name)
    if array is None and name not in exact.names and np.prod(shape) == 1:
        scalar = scalar_of(constant, exact.scalars)
        array = None if scalar is None else np.array([scalar], np.float32)
    if array is not None and array.size == np.prod(shape):
        made = op.Constant(array.reshape(shape))
        made.set_friendly_name(name)
        constant.output(0).replace(made.output(0))


def _convert_results(operation: ov.Node, is_body: bool) -> None:
    """Convert results that are still bfloat16 (inputs, constants, types in attributes) to float32 for their readers."""
    from openvino import opset13

    for output in operation.outputs():
        if _kind(output) != "bf16":
            continue
        readers = list(output.get_target_inputs())
        if not is_body:
            readers = [port for port in readers if port.get_node().get_type_name() != "Result"]
        if readers:
            wide = opset13.convert(output, "f32")
            for port in readers:
                port.replace_source_output(wide.output(0))
