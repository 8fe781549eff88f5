"""Outputs of a region that are its inputs, which sessions copy themselves.

OpenVINO 2026.4 removes conversions that change nothing, such as a Cast to the same type, or to float16 and back where
that is widened. If nothing is left between an input and an output, both share memory: with open extents, a call reads
or writes the freed input of an earlier one, and an output that is bound to an array leaves that array unwritten.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


def passed_inputs(compiled: ov.CompiledModel) -> dict[int, int]:
    """Return each output of a compiled region that is one of its inputs, with that input, both by their positions.

    What OpenVINO's own passes turn into nothing is known only after compiling, from its runtime model.
    """
    runtime = compiled.get_runtime_model()
    inputs = {node.get_name(): index for index, node in enumerate(runtime.get_parameters())}
    sources = [result.input_value(0).get_node().get_name() for result in runtime.get_results()]
    return {index: inputs[name] for index, name in enumerate(sources) if name in inputs}


def leave_out(model: ov.Model, outputs: Collection[int]) -> ov.Model:
    """Replace outputs of `model`, in place, by empty constants, which keeps the positions of all others."""
    import openvino as ov
    from openvino import op

    results = model.get_results()
    for index in outputs:
        port = results[index].input(0)
        empty = op.Constant(port.get_element_type(), ov.Shape([0]), [])
        port.replace_source_output(empty.output(0))
    if outputs:
        model.validate_nodes_and_infer_types()
    return model
