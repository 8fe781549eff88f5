"""The emitter `ep-context`: the whole model with `com.microsoft::EPContext` nodes in place of engines."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.ir import FreshNames, name_of
from dovetail.planning import HOST, Placement, set_placement
from dovetail.plugin import Artifact, Emitter
from dovetail_onnx import save_model
from dovetail_placement import numbered_or_formed, replace_region

from dovetail_tensorrt.cache import DESCRIPTION, ENGINE, EngineFile, read_engine
from dovetail_tensorrt.libraries import RTX

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Region
    from dovetail.plugin import EmittedRegion
    from dovetail.plugin.loading import ArtifactFolder


MODEL = "model_ctx.onnx"
_OPTION, _EMBEDDED = "context", "embedded"
_OPERATOR, _DOMAIN = "EPContext", "com.microsoft"
_ENGINE = "ep_cache_context"
# ONNX Runtime assigns a node to the execution provider in its attribute `source`.
_PROVIDERS = {RTX: "NvTensorRTRTXExecutionProvider"}
_TENSORRT = "TensorrtExecutionProvider"
_OPSET_DOMAIN_VERSION = 1
_LARGEST_EMBEDDED = 1 << 30  # bytes; ONNX files are limited to two gigabytes


class EPContext(Emitter):
    """Writes `model_ctx.onnx` for ONNX Runtime with NVIDIA's provider, with external or embedded engines.

    Nodes outside of engines are not changed. ONNX Runtime rejects such a model without the execution provider, whereas
    `model.onnx` of the result runs everywhere.
    """

    whole = True

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the model; nothing if no engine was built."""
        root = cast("ArtifactFolder", cast("Context", region.context).outcome.artifacts).root / region.backend.name
        found = [one for one in numbered_or_formed(region.model.graph) if one.backend == region.backend.name]
        engines = {one.index: root / f"region_{one.index}" for one in found}
        engines = {index: path for index, path in engines.items() if (path / DESCRIPTION).is_file()}
        if not engines:
            return Artifact()
        embed = region.backend.chosen.get(_OPTION) == _EMBEDDED
        size = sum((path / ENGINE).stat().st_size for path in engines.values())
        notes = [_BOOLEANS.format(one.index) for one in found if one.index in engines and _has_booleans(one)]
        if embed and size > _LARGEST_EMBEDDED:
            embed = False
            notes.append(f"{MODEL} names its engines as files: {size >> 20} MiB of them do not fit into one file")
        _replace(region.model, (one for one in found if one.index in engines), engines, folder, embed)
        with _bytes_as_attributes():
            save_model(region.model, folder / MODEL)
        return Artifact(tuple(sorted(path.name for path in folder.iterdir())), notes=tuple(notes))


_BOOLEANS = (
    "booleans cross the border of region_{}, for which EPContext has no type; they are cast to uint8 in front of it "
    "and behind it, and the provider may not find them by their names"
)


def _has_booleans(region: Region) -> bool:
    return any(value.dtype is not None and value.dtype.name == "BOOL" for value in (*region.inputs, *region.outputs))


def _replace(model: Model, regions: Iterable[Region], engines: dict[int, Path], folder: Path, embed: bool) -> None:
    names = FreshNames.of(model.graph)
    for region in regions:
        engine, path = read_engine(engines[region.index]), engines[region.index] / ENGINE
        region = region.part(region.nodes)
        cache: bytes | str = path.read_bytes() if embed else f"region_{region.index}.plan"
        if not embed:
            _link(path, folder / str(cache))
        attributes = _attributes(engine, f"region_{region.index}", cache)
        inputs = list(region.inputs)
        node = replace_region(model, region, _OPERATOR, _DOMAIN, inputs, attributes, _OPSET_DOMAIN_VERSION, names)
        _cast_booleans(model, node, names)
    _remove_unread(model)
    model.graph.sort()
    model.touch()


def _attributes(engine: EngineFile, name: str, cache: bytes | str) -> dict[str, object]:
    return {
        # Each node has its own context.
        "main_context": 1,
        "embed_mode": int(isinstance(cache, bytes)),
        _ENGINE: cache,
        "ep_sdk_version": engine.version,
        "hardware_architecture": engine.target,
        "partition_name": name,
        "source": _PROVIDERS.get(engine.sdk, _TENSORRT),
        "notes": f"sha256={engine.sha256}; content={engine.content}",
    }


def _link(source: Path, target: Path) -> None:
    """Link the engine under another name, because engines are large; copy it if the file system has no hard links."""
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def _cast_booleans(model: Model, node: ir.Node, names: FreshNames) -> None:
    """Pass booleans through the border of `node` as uint8, because EPContext does not support them."""
    import onnx_ir as ir

    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype is ir.DataType.BOOL:
            cast = _cast(value, ir.DataType.UINT8, names)
            model.graph.insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])
    for value in node.outputs:
        if value.dtype is ir.DataType.BOOL:
            cast = _cast(value, ir.DataType.BOOL, names)
            value.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
            cast.replace_input_with(0, value)
            value.type = ir.TensorType(ir.DataType.UINT8)
            name, value.name = value.name, names.fresh(f"{value.name}_uint8")
            cast.outputs[0].name = name
            model.graph.insert_after(node, cast)


def _cast(value: ir.Value, kind: ir.DataType, names: FreshNames) -> ir.Node:
    import onnx_ir as ir

    name = names.fresh(f"{value.name}_{kind.name.lower()}")
    result = ir.Value(name=name, type=ir.TensorType(kind), shape=value.shape)
    node = ir.Node(
        "", "Cast", [value], ir.convenience.convert_attributes({"to": int(kind)}), outputs=[result], name=name
    )
    set_placement(node, Placement(HOST))
    return node


@contextlib.contextmanager
def _bytes_as_attributes() -> Iterator[None]:
    """Suppress onnx-ir's warning about an embedded engine, an attribute of bytes that are not text."""

    def is_other(record: logging.LogRecord) -> bool:
        return _ENGINE not in (record.args or ())

    logger = logging.getLogger("onnx_ir.serde")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _remove_unread(model: Model) -> None:
    """Remove the weights that only engines read."""
    for value in list(_unread(model)):
        del model.graph.initializers[name_of(value)]


def _unread(model: Model) -> Iterator[ir.Value]:
    outputs = {value for _, graph in model.graphs() for value in graph.outputs}
    for value in model.graph.initializers.values():
        if not value.uses() and value not in outputs and not value.is_graph_input():
            yield value
