"""Facts that a session reports about its model, in ONNX Runtime's terms: inputs, outputs, types, metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir
    import onnxruntime as ort
    from dovetail.ir import Model

_OWN = "dovetail."
"""Prefix of the metadata that a compilation adds."""
_NO_VERSION = (1 << 63) - 1  # what ONNX Runtime says of a model without one


@dataclass(frozen=True)
class NodeArg:
    """An input or output; the attributes are those of `onnxruntime.NodeArg`.

    Attributes:
        name: Its name.
        type: Its type: `tensor(float)`, `seq(tensor(int64))`.
        shape: Its extents: a number, the name of an open extent, or None for one without a name.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model; the attributes are those of `onnxruntime.ModelMetadata`.

    Attributes:
        producer_name: The program that wrote the model.
        graph_name: Name of the graph.
        domain: The domain of the model.
        description: The documentation of the model.
        graph_description: The documentation of the graph.
        version: The version of the model.
        custom_metadata_map: Its further metadata, without that of the compilation.
    """

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def node_args(values: Iterable[ir.Value]) -> list[NodeArg]:
    """Describe the inputs or outputs of a graph."""
    from dovetail.ir import name_of

    return [NodeArg(name_of(value), _type_text(value.type), _extents(value.shape)) for value in values]


def metadata_of(model: Model) -> ModelMetadata:
    """Return the metadata of a model."""
    whole, graph = model.ir, model.graph
    return ModelMetadata(
        whole.producer_name or "",
        graph.name or "",
        whole.domain or "",
        whole.doc_string or "",
        graph.doc_string or "",
        whole.model_version or 0,
        _without_own(whole.metadata_props),
    )


def metadata_of_session(session: ort.InferenceSession) -> ModelMetadata:
    """Return the metadata of the model that a session of ONNX Runtime was made from."""
    found = session.get_modelmeta()
    return ModelMetadata(
        found.producer_name,
        found.graph_name,
        found.domain,
        found.description,
        found.graph_description,
        0 if found.version == _NO_VERSION else found.version,
        _without_own(found.custom_metadata_map),
    )


def _without_own(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in entries.items() if not key.startswith(_OWN)}


def _type_text(type_: ir.TypeProtocol | None) -> str:
    import onnx_ir as ir

    if isinstance(type_, ir.SequenceType):
        return f"seq({_type_text(type_.elem_type)})"
    if isinstance(type_, ir.OptionalType):
        return f"optional({_type_text(type_.elem_type)})"
    if type_ is None:
        return ""
    kind = "sparse_tensor" if isinstance(type_, ir.SparseTensorType) else "tensor"
    return f"{kind}({type_.dtype.name.lower()})"


def _extents(shape: ir.Shape | None) -> list[int | str | None]:
    return [extent if isinstance(extent, int) else extent.value for extent in shape] if shape is not None else []
