"""Facts that a session reports about its model, in ONNX Runtime's terms: inputs, outputs, types, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel

_HOST_PROVIDER = "CPUExecutionProvider"
_OWN = "dovetail."
"""Prefix of the metadata that a compilation adds."""


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


@dataclass(frozen=True)
class SessionFacts:
    """What a session says of its model and of what runs it, which a later one says again without loading them.

    Attributes:
        inputs: The inputs without a default.
        overridable: The inputs with a default.
        outputs: The outputs.
        metadata: The metadata of the model.
        providers: What runs it, in order; see `InferenceSession.get_providers`.
        provider_options: The options of each provider.
    """

    inputs: list[NodeArg]
    overridable: list[NodeArg]
    outputs: list[NodeArg]
    metadata: ModelMetadata
    providers: list[str]
    provider_options: dict[str, dict[str, str]]

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> SessionFacts:
        """Return what `as_dict` made.

        Raises:
            TypeError, KeyError: It is damaged.
        """
        ports = {name: [NodeArg(**one) for one in kept[name]] for name in ("inputs", "overridable", "outputs")}
        metadata, options = ModelMetadata(**kept["metadata"]), dict(kept["provider_options"])
        return cls(**ports, metadata=metadata, providers=list(kept["providers"]), provider_options=options)


def facts_of(compiled: CompiledModel) -> SessionFacts:
    """Return what a session says of a result."""
    graph = compiled.model.graph
    found: list[str] = []
    for runner in compiled.regions:
        found += [runner.backend] if runner.native is None else runner.native.get_providers()
    providers = [*dict.fromkeys(name for name in found if name != _HOST_PROVIDER), _HOST_PROVIDER]
    chosen = {backend.name: dict(backend.chosen) for backend in compiled.backends}
    return SessionFacts(
        inputs=node_args(value for value in graph.inputs if not value.is_initializer()),
        overridable=node_args(value for value in graph.inputs if value.is_initializer()),
        outputs=node_args(graph.outputs),
        metadata=metadata_of(compiled.model),
        providers=providers,
        provider_options={name: chosen.get(name, {}) for name in providers},
    )


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
