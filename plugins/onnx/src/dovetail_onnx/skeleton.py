"""Skeletons: a proto small enough for onnx's own tools, with the weights kept outside.

onnx checks, converts and infers on whole protos. With weights inside, that copies them several times and fails above
2 GiB. Only tensors that inference may need stay inside: small integers and booleans (shapes, axes, indices) and very
small floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail_onnx.topological_order import sort_function, sort_nodes
from dovetail_onnx.type_gaps import from_proto, to_proto

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model


INTEGERS_UP_TO = 64 * 1024
FLOATS_UP_TO = 1024
_STUB = "dovetail-weight"
_SORTED = "dovetail.sorted"
_DATA_FILES = "dovetail.data_files"


def data_files(model: Model) -> list[Path]:
    """Return the files besides its own that a model's data is in, or was when it was read."""
    import onnx_ir as ir

    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    external = {Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    return sorted(external.union(model.graph.meta.get(_DATA_FILES, ())))


@dataclass
class Skeleton:
    """A `ModelProto` in which large initializers of the main graph are stubs, and their tensors by name.

    It is a `dovetail.plugin.Unbuilt`: a model stays in this form until its graph is first accessed.
    """

    proto: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol]
    data_files: tuple[Path, ...] = ()  # other files that data was in, also data that was read in

    def copy(self) -> Skeleton:
        """Return a copy with its own proto and shared tensors."""
        return Skeleton(
            type(self.proto).FromString(self.proto.SerializeToString()), dict(self.weights), self.data_files
        )

    def build(self) -> ir.Model:
        """Build the onnx-ir model, whose nodes are in topological order: onnx-ir cannot clone it otherwise."""
        unsorted = sort_nodes(self.proto.graph) + sum(map(sort_function, self.proto.functions))
        model = from_proto(self.proto)
        if unsorted:
            model.graph.meta[_SORTED] = True
        model.graph.meta[_DATA_FILES] = self.data_files
        for name, tensor in self.weights.items():
            value = model.graph.initializers.get(name)
            if value is not None:
                value.const_value = tensor
        return model

    def interface(self) -> tuple[list[str], list[str]]:
        """Return the names of the graph's inputs and outputs, in order."""
        graph = self.proto.graph
        return [value.name for value in graph.input], [value.name for value in graph.output]

    def initializer_names(self) -> set[str]:
        """Return the names of the main graph's initializers."""
        return {tensor.name for tensor in self.proto.graph.initializer}

    def node_count(self) -> int:
        """Return the number of nodes of the main graph."""
        return len(self.proto.graph.node)

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield all nodes, including those of bodies."""
        stack = [self.proto.graph]
        while stack:
            for node in stack.pop().node:
                yield node
                for attribute in node.attribute:
                    if attribute.HasField("g"):
                        stack.append(attribute.g)
                    stack.extend(attribute.graphs)

    def functions(self) -> set[tuple[str, str]]:
        """Return domain and name of every local function."""
        return {(function.domain, function.name) for function in self.proto.functions}

    def content(self) -> bytes:
        """Return a fingerprint of the model that ignores weights: the serialized proto."""
        return self.proto.SerializeToString(deterministic=True)


def stays_inline(tensor: ir.TensorProtocol) -> bool:
    """Check whether inference may need the values of a tensor, so that it stays in the proto."""
    dtype = tensor.dtype
    limit = INTEGERS_UP_TO if dtype.is_integer() or dtype.name == "BOOL" else FLOATS_UP_TO
    return dtype.name == "STRING" or tensor.nbytes <= limit


def stub(tensor: onnx.TensorProto) -> None:
    """Mark a `TensorProto` as one whose data is kept outside the proto."""
    import onnx

    tensor.ClearField("raw_data")
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", _STUB


def is_stub(tensor: onnx.TensorProto) -> bool:
    """Check whether `tensor` is a stub; true only for initializers of a skeleton's main graph.

    All external data is resolved before the first stub is made, so no file can contain the mark.
    """
    return len(tensor.external_data) == 1 and tensor.external_data[0].value == _STUB


def split_weights(model: ir.Model) -> Skeleton:
    """Serialize `model` without its weights; `model` is not changed."""
    import onnx_ir as ir

    weights: dict[str, ir.TensorProtocol] = {}
    held: dict[str, ir.TensorProtocol] = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or stays_inline(tensor) and not isinstance(tensor, ir.ExternalTensor):
            continue
        if stays_inline(tensor):
            held[name] = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
        else:
            weights[name] = tensor
            held[name] = ir.ExternalTensor(
                _STUB, None, None, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
    return Skeleton(to_proto(view_with_tensors(model, held)), weights)


def view_with_tensors(model: ir.Model, tensors: Mapping[str, ir.TensorProtocol]) -> ir.Model:
    """Return a view of `model` in which initializers of the main graph have other tensors, to serialize it.

    The model is not changed, because other threads may run it meanwhile and read its weights.

    Args:
        model: The model.
        tensors: The other tensors, by name of the initializer.
    """
    initializers = [
        _with_tensor(value, tensors[name]) if name in tensors else value
        for name, value in model.graph.initializers.items()
    ]
    return _view(model, tuple(model.graph), initializers)


def border_of(model: ir.Model) -> ir.Model:
    """Return a view of `model` without nodes and initializers of the main graph, to serialize these one by one."""
    return _view(model, (), ())


def _view(model: ir.Model, nodes: Sequence[ir.Node], initializers: Sequence[ir.Value]) -> ir.Model:
    import onnx_ir as ir

    graph = model.graph
    view = ir.GraphView(
        graph.inputs,
        graph.outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=graph.doc_string,
        opset_imports=graph.opset_imports,
        name=graph.name,
        metadata_props=graph.metadata_props,
    )
    return ir.Model(
        cast("ir.Graph", view),  # serializing only reads the graph, and takes a view as well
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=tuple(model.functions.values()),
        metadata_props=model.metadata_props,
    )


def _with_tensor(value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
    """Return a copy of an initializer with another tensor."""
    import onnx_ir as ir

    like = ir.Value(
        name=value.name, type=value.type, shape=value.shape, doc_string=value.doc_string, const_value=tensor,
        metadata_props=value.metadata_props,
    )  # fmt: skip
    like.meta.update(value.meta)
    return like


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its nodes, at every depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)
            for body in attribute.graphs:
                yield from graphs_of(body)


def was_sorted(model: Model) -> bool:
    """Check whether the nodes of `model` had to be sorted when its graph was built."""
    return not model.untouched and bool(model.graph.meta.get(_SORTED))


def skeleton_of(model: Model) -> Skeleton:
    """Return the skeleton of a model; the one it is built from if its graph is not built yet."""
    held = model.lazy
    return held if isinstance(held, Skeleton) else split_weights(model.ir)
