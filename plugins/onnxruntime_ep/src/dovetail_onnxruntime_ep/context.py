"""Context programs: a region that a provider compiled ahead of time, and the node `EPContext` that stands for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from dovetail.plugin import Artifact, Emitter, EngineError, RegionModel, StandIn
from dovetail.plugin.loading import PROGRAM
from dovetail.text import printable
from dovetail_runtime import engine_source

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import EmittedRegion

    from dovetail_onnxruntime_ep.providers import Provider


_MODEL = "net.onnx"
_BINARY = "ep_cache_context"
"""The attribute of `EPContext` that names the file of the program."""

_ATTRIBUTES = frozenset(
    {
        _BINARY,
        "main_context",
        "ep_sdk_version",
        "hardware_architecture",
        "partition_name",
        "source",
        "max_size",
        "notes",
    }
)
"""Attributes of `EPContext` that a provider gets from a result."""


class ContextEmitter(Emitter):
    """Compiles a region with its provider into a context, which plain ONNX Runtime loads on the device.

    Attributes:
        provider: The provider.
        title: The emitter's name, for messages.
    """

    provider: ClassVar[Provider]
    title: ClassVar[str]

    def version(self) -> str:
        """Return the versions of ONNX Runtime and of the provider's library; empty if the provider is not here."""
        if not self.provider.available().ok:
            return ""
        try:
            found = self.provider.described()
        except EngineError:
            return ""
        return f"onnxruntime {found['onnxruntime']} {found['library']}".strip()

    def provider_options(self, region: EmittedRegion) -> dict[str, str]:
        """Return the provider's options for a region."""
        return dict(self.provider.options)

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the context, and return the node.

        Without the provider on this machine nothing is compiled, and a note says so.

        Raises:
            EngineError: The provider refuses the region, or does not compile it as a whole.
        """
        if not (found := self.provider.available()).ok:
            return Artifact(notes=(f"{region.name} was not compiled: {found.why}",))
        entries = {
            "ep.context_enable": "1", "ep.context_embed_mode": "0", "ep.context_file_path": str(folder / _MODEL),
        }  # fmt: skip
        host = self.provider.host(self.title)
        names = [node.name for node in region.model.nodes() if node.name]
        try:
            loaded = host.load(
                provider=self.provider.name, library=self.provider.library,
                model=sent(engine_source(RegionModel(region.model))), options=self.provider_options(region),
                entries=entries, names=names,
            )  # fmt: skip
        finally:
            host.close()
        return _artifact(region, folder, int(loaded["nodes"]))


def sent(source: Path | bytes) -> str | bytes:
    """Return a model as it is sent to what holds sessions: its bytes, or the path of its file."""
    return source if isinstance(source, bytes) else str(source)


def _artifact(region: EmittedRegion, folder: Path, nodes: int) -> Artifact:
    import onnx

    made = onnx.load(str(folder / _MODEL), load_external_data=False)
    (folder / _MODEL).unlink()
    own = [value.name for value in region.model.graph.inputs], [value.name for value in region.model.graph.outputs]
    if len(made.graph.node) != 1 or (list(made.graph.node[0].input), list(made.graph.node[0].output)) != own:
        parts = len(made.graph.node)
        raise EngineError(f"the provider compiles {region.name} into {parts} parts, and not as a whole")
    (node,) = made.graph.node
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    binary = str(attributes.pop(_BINARY))
    facts = {"nodes": nodes, "bytes": (folder / binary).stat().st_size}
    return Artifact((binary,), StandIn(attributes=attributes), facts=facts)


def compiled_context(region: RegionModel, title: str) -> tuple[str | bytes, dict[str, str]]:
    """Return a model of the node `EPContext` of a region, and the entries with which ONNX Runtime finds its program.

    Raises:
        EngineError: The artifact is no context.
    """
    import onnx

    assert region.artifact is not None, "its caller checks"
    source = engine_source(RegionModel(region.model))
    model = onnx.load_model_from_string(source if isinstance(source, bytes) else source.read_bytes())
    nodes = [node for node in model.graph.node if (node.op_type, node.domain) == PROGRAM]
    names = [each for node in nodes for each in node.attribute if each.name == _BINARY]
    if len(model.graph.node) != 1 or len(names) != 1:
        name = model.graph.node[0].name if model.graph.node else ""
        raise EngineError(f"{title}: '{name}' is no context of ONNX Runtime", "compile for this backend", name)
    (node,), (held,) = nodes, names
    binary = re.split(r"[\\/]", held.s.decode(errors="replace"))[-1]
    file = region.artifact / binary
    if binary in ("", ".", "..") or file.is_symlink() or not file.is_file():
        raise EngineError(f"{title}: the artifact has no file {printable(binary)}", "compile again", node.name)
    held.s = binary.encode()
    # Others name files (`onnx_model_filename`), or hold the program itself (`embed_mode`).
    kept = [each for each in node.attribute if each.name in _ATTRIBUTES]
    kept = [type(each).FromString(each.SerializeToString()) for each in kept]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("embed_mode", 0)])
    return model.SerializeToString(), {"ep.context_file_path": str(region.artifact / "loaded.onnx")}
