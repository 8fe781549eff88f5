"""A graph of OpenVINO's in float32 instead of bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_cpu_bf16.bodies import bodies_of

if TYPE_CHECKING:
    import numpy as np
    import openvino as ov

__all__ = ["widen"]


def _kind(port: ov.Output) -> str:
    return port.get_element_type().get_type_name()


def widen(model: ov.Model, exact: Mapping[str, np.ndarray]) -> None:
    """Type everything float32 that is bfloat16; inputs and outputs keep their types.

    Args:
        model: Changed in place, with its bodies.
        exact: What constants were before they were rounded, by name.
    """
    _widen(model, exact, is_body=False)


def _widen(model: ov.Model, exact: Mapping[str, np.ndarray], is_body: bool) -> None:
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
            _give_exact(operation, exact)
        elif kind == "Convert" and _is_idle(operation):
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


def _is_idle(convert: ov.Node) -> bool:
    """Whether a Convert only led from one of both types to the other, and no output of the model needs it."""
    if _kind(convert.input_value(0)) != "f32" or _kind(convert.output(0)) not in ("f32", "bf16"):
        return False
    return all(port.get_node().get_type_name() != "Result" for port in convert.output(0).get_target_inputs())


def _give_exact(constant: ov.Node, exact: Mapping[str, np.ndarray]) -> None:
    import numpy as np
    from openvino import op

    array, shape = exact.get(constant.get_friendly_name()), list(constant.get_output_shape(0))
    if array is not None and _kind(constant.output(0)) == "bf16" and array.size == np.prod(shape):
        made = op.Constant(array.reshape(shape))
        made.set_friendly_name(constant.get_friendly_name())
        constant.output(0).replace(made.output(0))


def _convert_results(operation: ov.Node, is_body: bool) -> None:
    """Let readers of what is bfloat16 all the same (inputs, constants, types in attributes) read it in float32."""
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
