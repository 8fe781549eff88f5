"""Extraction of regions as separate models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.graphs import bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.regions import Region


def extract(model: Model, region: Region) -> Model:
    """Return a model that computes one region: same node and value names, same functions and opset imports.

    Weights are shared, not copied; values from outside become inputs.

    Raises:
        DovetailError: A value at the region's border has no type.
    """
    return model_of(model, region, region.constants, f"{model.graph.name or 'graph'}.region{region.index}")


def model_of(model: Model, region: Region, constants: Iterable[ir.Value], name: str) -> Model:
    """Return the model of a region with the given constants and name; see `extract`."""
    import onnx_ir as ir

    from dovetail.ir.model import Model

    for value in region.inputs:
        if value.type is None:
            raise DovetailError(
                f"value '{value.name}' enters region {region.index} ({region.backend}) without a type",
                "infer the model's types first, or state the type in its value_info",
            )
    view = ir.GraphView(
        region.inputs, region.outputs, nodes=region.nodes, initializers=tuple(constants),
        opset_imports=model.graph.opset_imports, name=name,
    )  # fmt: skip
    source = model.ir
    part = ir.Model(
        view.clone(),
        ir_version=source.ir_version,
        producer_name=source.producer_name,
        functions=_called(region.nodes, source.functions),
    )
    return Model(part, dialect=model.dialect)


def _called(nodes: Iterable[ir.Node], functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> list[ir.Function]:
    """Return the model-local functions that the nodes call, directly or indirectly."""
    found: dict[ir.OperatorIdentifier, ir.Function] = {}
    waiting = list(nodes) if functions else []
    while waiting:
        node = waiting.pop()
        for body in bodies(node):
            waiting.extend(body)
        key = node.op_identifier()
        if key in functions and key not in found:
            found[key] = functions[key]
            waiting.extend(functions[key])
    return list(found.values())
