"""The branches of a merged decoder that stands alone, as models of their own.

Backends quantize no bodies, so that all of such a decoder would stay as it is. Its branches are written beside each
other into a temporary folder, compiled as Optimum's two decoders are, and put together again (`merged.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import TemporaryFolder
from dovetail_onnx.data_paths import DataPlaces

from dovetail_decoder.folder import MODEL_SUFFIX, GeneratorFolder, Part, Phase
from dovetail_decoder.merged import BRANCHES, JOINED, is_merged
from dovetail_decoder.shared_weights import tensors_of

if TYPE_CHECKING:
    import onnx

_STEMS = {"decoder": "decoder_model", "decoder_with_past": "decoder_with_past_model"}
_PHASES: dict[str, Phase] = {"decoder": "prompt", "decoder_with_past": "step"}


def with_branches_apart(folder: GeneratorFolder) -> GeneratorFolder:
    """Return a folder whose merged decoder, if it has one without its two parts, is two parts.

    The files of these parts live as long as the folder that is returned.

    Raises:
        OSError: The temporary folder cannot be written.
    """
    part = next((one for one in folder.parts if one.name == "decoder" and one.phase == "always"), None)
    if (
        part is None
        or folder.document is not None
        or any(one.name in JOINED for one in folder.parts if one is not part)
    ):
        return folder
    import onnx

    try:
        model = onnx.load(folder.file_of(part), load_external_data=False)
    except Exception:  # whatever protobuf raises on a damaged file, which is reported when it is compiled
        return folder
    if not is_merged(model):
        return folder
    place = TemporaryFolder("branches")
    _provide_data(model, folder.file_of(part), place.path)
    made = []
    for name, key in zip(JOINED, BRANCHES):
        file = place.path / f"{_STEMS[name]}{MODEL_SUFFIX}"
        onnx.save(branch_of(model, key), file)
        made.append(Part(name, part.file.with_name(file.name), _PHASES[name], part.inputs, part.outputs, made=file))
    parts = [one for given in folder.parts for one in (made if given is part else [given])]
    return replace(folder, parts=parts, merged=part.file, apart=place)


def _provide_data(model: onnx.ModelProto, path: Path, place: Path) -> None:
    """Let weights outside of a model be found from another folder: by links to them, or by copies of them."""
    names = {e.value for tensor in tensors_of(model.graph) for e in tensor.external_data if e.key == "location"}
    places = DataPlaces(path)
    for name in names:
        try:
            source = places.file(name)
        except (OSError, ValueError, RuntimeError):
            source = None
        if source is None or not source.is_file():
            continue  # reported when the part is opened
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place / name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, place / name)


def branch_of(model: onnx.ModelProto, key: str) -> onnx.ModelProto:
    """Return one branch of a merged decoder as a model, with the names of the whole for inputs and outputs.

    Args:
        model: The merged decoder; see `is_merged`.
        key: The attribute of the branch: `then_branch`.
    """
    import onnx

    (node,) = model.graph.node
    body = next(attribute.g for attribute in node.attribute if attribute.name == key)
    graph = onnx.GraphProto(name=body.name or key, node=body.node, value_info=body.value_info)
    graph.initializer.extend(body.initializer)
    computed = {output: one for one in body.node for output in one.output}
    names: dict[str, str] = {}  # of results, by name in the body
    copies = []
    for name, declared, inner in zip(node.output, model.graph.output, body.output):
        producer = computed.get(inner.name)
        if producer is not None and producer.op_type == "Constant":
            continue  # it stands for an output that the branch does not have, and is added again
        output = graph.output.add()
        output.CopyFrom(inner if inner.type.tensor_type.HasField("shape") else declared)
        output.name = name
        if producer is None or inner.name in names:
            copies.append((inner.name, name))
        else:
            names[inner.name] = name
    taken = {value.name for value in graph.output} - names.keys()
    names.update({name: f"{name}/inner" for name in computed if name in taken})
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)
    _rename(graph, names)
    for source, name in copies:
        graph.node.add(op_type="Identity", input=[names.get(source, source)], output=[name])
    read = set(_read(graph))
    graph.input.extend(value for value in model.graph.input if value.name in read)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    made = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    made.producer_name, made.producer_version = model.producer_name, model.producer_version
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    return made


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename values wherever the nodes of a graph and its bodies name them."""
    for node in graph.node:
        for ports in (node.input, node.output):
            for at, name in enumerate(ports):
                ports[at] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                for value in attribute.g.output:
                    value.name = names.get(value.name, value.name)
                _rename(attribute.g, names)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph and its bodies read."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read(attribute.g)
