"""Tiny models as text, and their inputs."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from dovetail.ir import Model

HEADER = '<ir_version: 10, opset_import: ["" : 22]>\n'


def parse(text: str) -> Model:
    """A model from the text of its graph, every value typed and every node named."""
    proto = onnx.parser.parse_model(text if text.lstrip().startswith("<") else HEADER + text)
    proto = onnx.shape_inference.infer_shapes(proto)
    model = Model(ir.from_proto(proto))
    for number, node in enumerate(model.nodes()):
        node.name = node.name or f"{node.op_type.lower()}_{number}"
    return model
