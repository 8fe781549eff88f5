"""Snapshot of the source model before any pass, and its diagnosis after a failure."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import printable

from dovetail_onnx.native_runtime import new_session, onnx_runtime, write_blanks
from dovetail_onnx.skeleton import graphs_of, is_stub, skeleton_of
from dovetail_onnx.source.tensors import size_in_bytes

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_onnx.skeleton import Skeleton


_LARGEST = 1 << 28  # bytes; the session allocates zeros of the same size as the weights
# Messages about invalid models, as opposed to missing kernels.
_WRONG = ("Type Error", "ShapeInferenceError", "TypeInferenceError", "INVALID_GRAPH")


def runtime_error(proto: onnx.ModelProto) -> str:
    """Return why ONNX Runtime finds `proto` invalid; empty if it does not.

    Args:
        proto: The proto of a skeleton; changed in place.
    """
    stubs = [tensor for tensor in proto.graph.initializer if is_stub(tensor)]
    if importlib.util.find_spec("onnxruntime") is None or sum(map(size_in_bytes, stubs)) > _LARGEST:
        return ""
    onnxruntime = onnx_runtime()
    for tensor in stubs:
        tensor.raw_data = bytes(size_in_bytes(tensor))
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for graph in (proto.graph, *proto.functions):
        write_blanks(graph.node)
    try:
        new_session(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:  # the binding's exceptions share no base class below Exception
        text = str(error)
        return text if any(mark in text for mark in _WRONG) else ""
    return ""


_LONGEST = 400  # characters of a message


@dataclass(frozen=True)
class SourceModel:
    """The model that a compilation starts from.

    Attributes:
        name: Its name in messages: its path, or `the model`.
        content: Its proto without large weights, serialized: cheap to keep, and immutable.
        weights: The tensors that are not in `content`, by name.
    """

    name: str
    content: bytes = field(repr=False)
    weights: Mapping[str, ir.TensorProtocol] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Model, checked: bool) -> SourceModel:
        """Take the snapshot of a model before any pass.

        Args:
            model: The model.
            checked: Whether `check_source` checked it when it was opened.

        Raises:
            DovetailError: The model is invalid.
        """
        from dovetail_onnx.external import TensorLoader
        from dovetail_onnx.source import check_source

        name = str(model.path) if model.path is not None else "the model"
        try:
            skeleton = skeleton_of(model)
        except Exception as error:  # onnx-ir raises arbitrary exceptions for incomplete graphs
            problem = f"{name}: the graph cannot be written as ONNX: {_plain(error)}"
            raise DovetailError(problem, "every value that a node reads or gives needs a name and a place") from error
        if not checked:
            check_source(skeleton.proto, TensorLoader(name, model.path))
        try:
            content = skeleton.proto.SerializeToString()
        except Exception as error:  # larger than 2 GiB, or text that is not UTF-8
            raise DovetailError(f"{name}: the graph cannot be written as ONNX: {_plain(error)}") from error
        return cls(name, content, skeleton.weights)

    def skeleton(self) -> Skeleton:
        """Return the model as a new skeleton."""
        import onnx

        from dovetail_onnx.skeleton import Skeleton

        return Skeleton(onnx.ModelProto.FromString(self.content), dict(self.weights))

    def with_metadata(self, metadata: Mapping[str, str], weights: bool) -> Model:
        """Return the model for saving.

        Args:
            metadata: Entries to add to its metadata.
            weights: Include all data; otherwise tensors above a kilobyte have only dims and type, and
                `open_model(..., declared=True)` reads them as zeros.
        """
        from dovetail.ir import Model

        from dovetail_onnx.source.tensors import drop_data

        skeleton = self.skeleton()
        for key, value in metadata.items():
            skeleton.proto.metadata_props.add(key=key, value=value)
        if not weights:
            skeleton.weights.clear()
            drop_data(skeleton.proto)
        return Model(lazy=skeleton, checked=True)

    def fault(self) -> str:
        """Return type and shape conflicts of the source that only inference finds; empty if there are none.

        Declarations of values between nodes do not count: `normalize` corrects them. Slow: called after a pass has
        failed, to distinguish an invalid model from a defective pass.
        """
        import onnx

        proto = onnx.ModelProto.FromString(self.content)
        for graph in graphs_of(proto.graph):
            del graph.value_info[:]
        try:
            _sort(proto)
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        except Exception as error:  # C++ exceptions of any kind
            return _plain(error)
        try:
            problem = _type_problem(onnx.shape_inference.infer_shapes(proto, data_prop=True))
        except Exception as error:  # onnx-ir cannot read it
            return _plain(error)
        return problem or _shortened(runtime_error(proto))


def _sort(proto: onnx.ModelProto) -> None:
    from dovetail_onnx.topological_order import sort_function, sort_nodes

    sort_nodes(proto.graph)
    for function in proto.functions:
        sort_function(function)


def _type_problem(proto: onnx.ModelProto) -> str:
    from dovetail.ir import all_nodes

    from dovetail_onnx.type_check import type_problems
    from dovetail_onnx.type_gaps import from_proto

    model = from_proto(proto)
    problems = type_problems(all_nodes(model.graph), model.opset_imports)
    return problems[0] if problems else ""


def _plain(error: Exception) -> str:
    """Return the message of an exception on one line."""
    return _shortened(str(error)) or type(error).__name__


def _shortened(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
