"""List the attributes whose default in OpenVINO's ONNX frontend differs from ONNX's.

    python check_defaults.py

Reads every operator test of the onnx package twice for each attribute with a default: without the attribute, and with
the default written out. Prints the attributes for which the graphs differ.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import onnx
from node_tests import cases


def main() -> None:
    """Print the attributes that are read differently when they are left out."""
    import openvino as ov

    core, differing = ov.Core(), collections.Counter()
    for case in cases():
        for name, model, explicit in _variants(case.model) if case.form == "free" else ():
            try:
                read = [core.read_model(proto.SerializeToString()) for proto in (model, explicit)]
            except Exception:  # refused: nothing is computed, so nothing wrongly
                continue
            differing[case.model.graph.node[0].op_type, name] += _described(read[0]) != _described(read[1])
    for (operator, name), count in differing.items():
        if count:
            print(f"{operator}: {name} ({count} tests)")


def _variants(source: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto, onnx.ModelProto]]:
    """Yield every attribute with a default, and the model without it and with its default."""
    node = source.graph.node[0]
    version = next((entry.version for entry in source.opset_import if entry.domain == node.domain), 1)
    for name, attribute in onnx.defs.get_schema(node.op_type, version, node.domain).attributes.items():
        if not attribute.default_value.type or attribute.default_value.type == onnx.AttributeProto.STRINGS:
            continue  # lists of strings have one default per direction
        models = onnx.ModelProto(), onnx.ModelProto()
        for model in models:
            model.CopyFrom(source)
            kept = [given for given in node.attribute if given.name != name]
            del model.graph.node[0].attribute[:]
            model.graph.node[0].attribute.extend(kept)
            for output in model.graph.output:  # another default may give another shape
                output.type.tensor_type.ClearField("shape")
        models[1].graph.node[0].attribute.append(attribute.default_value)
        yield name, *models


def _described(model: object) -> list[tuple]:
    """Describe a graph by its operations, without the names."""
    numbers: dict[str, int] = {}
    found = []
    for operation in model.get_ordered_ops():
        numbers[operation.get_name()] = len(numbers)
        data = operation.data.tolist() if operation.get_type_name() == "Constant" else None
        sources = [numbers[value.get_node().get_name()] for value in operation.input_values()]
        attributes = {
            key: round(setting, 7) if isinstance(setting, float) else setting
            for key, setting in operation.get_attributes().items()
        }
        found.append((operation.get_type_name(), str(attributes), str(data), sources))
    return found


if __name__ == "__main__":
    main()
