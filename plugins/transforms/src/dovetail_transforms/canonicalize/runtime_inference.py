"""Type inference for operators that only ONNX Runtime knows, such as those of `com.microsoft`.

Its own exporters and optimizer also write some in the default domain, such as SimplifiedLayerNormalization.

onnx cannot infer results of an operator without a schema. ONNX Runtime infers them when it loads a model with that
single node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx

from dovetail_transforms.canonicalize.ml_types import ML_DOMAIN, ml_output_types
from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.opsets import default_version
from dovetail_transforms.decompositions.inference import infer_by_decomposition

if TYPE_CHECKING:
    import onnx


_CONSTANT = 1024  # bytes; larger ones are weights, of which inference needs only the type
_TENSOR = re.compile(r"tensor\((\w+)\)")


def infer_with_runtime(proto: onnx.ModelProto) -> int:
    """Add types of values that onnx could not infer because of operators of other domains.

    Args:
        proto: Changed in place; its nodes are in topological order.

    Returns:
        The number of values that got a type.
    """
    if not any(map(_is_foreign, all_nodes(proto.graph))):
        return 0
    return _Inference(proto).graph(proto.graph, {})


def _is_foreign(node: onnx.NodeProto) -> bool:
    """Check whether onnx has no schema of an operator; ONNX Runtime has some of its own in the default domain, too."""
    return not is_onnx(node) or not _is_defined(node.op_type)


def _lacks_shape(type_: onnx.TypeProto | None) -> bool:
    """Check whether a type is that of a tensor of unknown rank."""
    return type_ is not None and type_.HasField("tensor_type") and not type_.tensor_type.HasField("shape")


def _is_known(name: str, types: Mapping[str, onnx.TypeProto], node: onnx.NodeProto) -> bool:
    """Check whether a result needs no more inference: it has a type, and a shape if one can be told.

    A session is not worth its time where an input lacks a shape, too.
    """
    if name not in types:
        return False
    if not _lacks_shape(types[name]):
        return True
    return _is_foreign(node) and any(_lacks_shape(types.get(given)) for given in node.input if given)


@cache
def _is_defined(op_type: str) -> bool:
    import onnx

    return onnx.defs.has(op_type)


class _Inference:
    def __init__(self, proto: onnx.ModelProto):
        self._opsets = list(proto.opset_import)
        self._ir_version = proto.ir_version
        self._known: dict[bytes, list[onnx.TypeProto | None]] = {}

    def graph(self, graph: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto]) -> int:
        import onnx

        types = dict(outer)
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.type.WhichOneof("value"):
                types[value.name] = value.type
        constants = {}
        for tensor in graph.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            if tensor.ByteSize() <= _CONSTANT and tensor.data_location != onnx.TensorProto.EXTERNAL:
                constants[tensor.name] = tensor
        infos = {value.name: value for value in (*graph.value_info, *graph.output)}
        found = 0
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found += self.graph(attribute.g, types)
            missing = [name for name in node.output if name and not _is_known(name, types, node)]
            if not missing or any(name and name not in types for name in node.input):
                continue
            for name, type_ in zip(node.output, self._outputs(node, types, constants)):
                if name in missing and type_ is not None:
                    if name in types and not type_.tensor_type.HasField("shape"):
                        continue
                    types[name] = type_
                    target = infos[name] if name in infos else graph.value_info.add(name=name)
                    target.type.CopyFrom(type_)
                    found += 1
        return found

    def _outputs(self, node: onnx.NodeProto, types: Mapping, constants: Mapping) -> list[onnx.TypeProto | None]:
        """Return the types of a node's outputs, cached by operator, attributes and input types."""
        given = {name: types[name] for name in node.input if name}
        data = {name: constants[name] for name in given if name in constants}
        key = _question(node, given, data)
        if key not in self._known:
            asked = (self._by_runtime, self._by_decomposition) if _is_foreign(node) else (self._by_onnx,)
            if node.domain == ML_DOMAIN:
                asked = (self._by_runtime, self._by_rule)
            found: list[onnx.TypeProto | None] = [None] * len(node.output)
            for ask in asked:
                if all(map(_is_complete, found)):
                    break
                try:
                    found = list(map(_completed, found, ask(node, given, data)))
                except Exception:  # C++ exceptions of any kind; the value stays as it is known
                    continue
            self._known[key] = found
        return self._known[key]

    def _by_decomposition(self, node: onnx.NodeProto, given: Mapping, data: Mapping) -> list[onnx.TypeProto | None]:
        """Return types of an operator that no session loads, for lack of a CPU kernel, or reports no shape for."""
        return infer_by_decomposition(node, given, data, default_version(self._opsets) or 0)

    def _by_rule(self, node: onnx.NodeProto, given: Mapping, data: Mapping) -> list[onnx.TypeProto | None]:
        return ml_output_types(node, given)

    def _by_onnx(self, node: onnx.NodeProto, given: Mapping, data: Mapping) -> list[onnx.TypeProto | None]:
        import onnx

        version = next((entry.version for entry in self._opsets if entry.domain in ("", "ai.onnx")), 1)
        schema = onnx.defs.get_schema(node.op_type, version, "")
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, node, dict(given), dict(data), opset_imports=self._opsets, ir_version=self._ir_version
        )
        return [inferred.get(name) for name in node.output]

    def _by_runtime(self, node: onnx.NodeProto, given: Mapping, data: Mapping) -> list[onnx.TypeProto | None]:
        import onnx
        from dovetail_onnx.native_runtime import new_session, onnx_runtime, write_blanks

        ort = onnx_runtime()
        graph = onnx.GraphProto(name="inference", node=[node], initializer=list(data.values()))
        graph.input.extend(
            onnx.ValueInfoProto(name=name, type=type_) for name, type_ in given.items() if name not in data
        )
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        write_blanks(graph.node)
        model = onnx.ModelProto(ir_version=self._ir_version, graph=graph, opset_import=self._opsets)
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = new_session(model.SerializeToString(), settings, ["CPUExecutionProvider"])
        told = {output.name: _type_of(output) for output in session.get_outputs()}
        return [told.get(name) for name in node.output]


def _is_complete(type_: onnx.TypeProto | None) -> bool:
    """Check whether every extent of a type is known or has a name."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") or dim.HasField("dim_param") for dim in type_.tensor_type.shape.dim)


def _completed(known: onnx.TypeProto | None, other: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """Return a type with the shape, or the extents, that only another source knows."""
    if known is None or other is None or not other.tensor_type.HasField("shape"):
        return other if known is None else known
    if not known.tensor_type.HasField("shape"):
        known.tensor_type.shape.CopyFrom(other.tensor_type.shape)
        return known
    pairs = zip(known.tensor_type.shape.dim, other.tensor_type.shape.dim)
    for dim, more in pairs if len(known.tensor_type.shape.dim) == len(other.tensor_type.shape.dim) else ():
        if not dim.HasField("dim_value") and not dim.HasField("dim_param"):
            dim.CopyFrom(more)
    return known


def _type_of(output) -> onnx.TypeProto | None:
    """Return the type that ONNX Runtime reports for an output; unnamed dimensions stay unknown."""
    import onnx

    tensor = _TENSOR.fullmatch(output.type)
    if tensor is None:
        return None
    element = onnx.TensorProto.DataType.Value(tensor[1].upper())
    # ONNX Runtime reports an empty shape for scalars and for unknown ranks alike.
    return onnx.helper.make_tensor_type_proto(element, output.shape or None)


def _question(node: onnx.NodeProto, given: Mapping, data: Mapping) -> bytes:
    """Return a cache key of everything that determines the output types of a node, without value names."""
    import onnx

    places = {name: str(index) for index, name in enumerate(dict.fromkeys(node.input))}
    plain = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
    plain.input.extend(places[name] for name in node.input)
    plain.output.extend("o" if name else "" for name in node.output)
    parts = [plain.SerializeToString(deterministic=True)]
    parts += [places[name].encode() + type_.SerializeToString(deterministic=True) for name, type_ in given.items()]
    parts += [places[name].encode() + tensor.raw_data + bytes(repr(tensor), "utf-8") for name, tensor in data.items()]
    return b"|".join(parts)
