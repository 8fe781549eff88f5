"""Folders that OpenVINO GenAI's `LLMPipeline` loads: a decoder as OpenVINO's own file, with its caches as states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import HOST
from dovetail.plugin import EngineError
from dovetail_runtime.converting import ConvertingEngine

from dovetail_decoder.folder import LOGITS
from dovetail_decoder.openvino_padding import IDS, MASK, POSITIONS, pad_at_end, why_one_text
from dovetail_decoder.openvino_tokenizer import convert_tokenizer

if TYPE_CHECKING:
    import openvino as ov
    from dovetail.plugin import CompiledModel, RegionModel, Registry

    from dovetail_decoder.caches import PartPort, Ports
    from dovetail_decoder.folder import GeneratorFolder, Part

MODEL = "openvino_model.xml"
IN_FLOAT32 = (
    "on CPUs with bfloat16 instructions, OpenVINO rounds floats to bfloat16 by default: "
    'LLMPipeline(folder, "CPU", INFERENCE_PRECISION_HINT="f32") computes what the plan says'
)
"""Note for plans whose products are in float32."""
_INPUTS = (IDS, MASK, POSITIONS)
_ELSEWHERE = "leave --runtime out, for ONNX Runtime"


def check_parts(folder: GeneratorFolder, ports: Mapping[str, Ports]) -> Part:
    """Return the one decoder of a folder that `LLMPipeline` can run.

    Raises:
        DovetailError: There are several models, or one has inputs or caches that the pipeline does not know.
    """
    if len(folder.parts) != 1:
        names = ", ".join(part.name for part in folder.parts)
        raise DovetailError(
            f"{folder.path}: LLMPipeline of OpenVINO GenAI runs one decoder, and the folder has {names}", _ELSEWHERE
        )
    (part,) = folder.parts
    file = folder.file_of(part)
    own = ports[part.name]
    if own.output(LOGITS) is None:
        raise DovetailError(f"{file} has no output '{LOGITS}'", "name it in 'outputs' of the decoder")
    for port in own.inputs:
        if port.is_cache:
            _check_cache(port, own, file)
        elif port.role not in _INPUTS:
            raise DovetailError(
                f"{file}: OpenVINO GenAI gives no input '{port.name}', only {', '.join(_INPUTS)}", _ELSEWHERE
            )
    return part


def _check_cache(port: PartPort, ports: Ports, file: Path) -> None:
    if port.window or port.shape is None or len(port.shape) != 4:
        what = "holds the last positions alone" if port.window else f"is {list(port.shape or ())}"
        raise DovetailError(
            f"{file}: cache '{port.name}' {what}, and states of OpenVINO GenAI are [batch, heads, length, head size]",
            _ELSEWHERE,
        )
    if ports.output(port.role) is None:
        raise DovetailError(f"{file}: cache '{port.name}' has no output that fills it", "export the model again")


def check_plan(part: Part, compiled: CompiledModel) -> str:
    """Return the backend that has the whole decoder in one region.

    Raises:
        DovetailError: A node is elsewhere.
    """
    nodes = [node for node in compiled.plan.nodes if node.op_type != "Constant"]
    away = next((node for node in nodes if node.backend == HOST), None)
    if away is not None:
        raise DovetailError(
            f"{part.name}: node '{away.name}' ({away.operator}) is on the host, and OpenVINO GenAI runs the whole",
            f"`dovetail explain` says why, once it is compiled without --runtime; or {_ELSEWHERE}",
        )
    regions = sorted({(node.backend, node.region) for node in nodes if node.region is not None})
    if len(regions) != 1:
        second = next(node for node in nodes if (node.backend, node.region) != regions[0]) if regions else None
        where = f": node '{second.name}' is in another than the first" if second is not None else ""
        raise DovetailError(
            f"{part.name} has {len(regions)} regions, and OpenVINO GenAI runs one{where}",
            f"name one backend that takes all of it; or {_ELSEWHERE}",
        )
    return regions[0][0]


def converting_engine(compiled: CompiledModel, backend: str, registry: Registry) -> ConvertingEngine:
    """Return the engine of a backend that writes files of OpenVINO.

    Raises:
        DovetailError: None does.
    """
    for named in compiled.engines.get(backend, ()):
        found = registry.engine.get(named.name)
        if isinstance(found, type) and issubclass(found, ConvertingEngine) and found.writes == Path(MODEL).suffix:
            engine = found()
            if engine.available().ok:
                return engine
    raise DovetailError(
        f"no engine of {backend} writes files of OpenVINO here", "use cpu-bf16 or cpu-int8, with openvino installed"
    )


def write_decoder(
    folder: GeneratorFolder,
    ports: Ports,
    region: RegionModel,
    engine: ConvertingEngine,
    made: Path,
) -> None:
    """Write the model and the tokenizer.

    Args:
        folder: The source.
        ports: The ports of its decoder.
        region: The whole decoder as one region.
        engine: The engine that converts it.
        made: The folder to write to.

    Raises:
        DovetailError: OpenVINO or the converter of tokenizers refuses it.
    """
    try:
        engine.convert(region, made / MODEL, lambda model: _make_stateful(model, folder, ports))
    except EngineError as error:
        raise DovetailError(f"{engine.name} cannot convert the decoder: {error.message}", _ELSEWHERE) from error
    convert_tokenizer(folder.path, made)


def write_settings(folder: GeneratorFolder, made: Path) -> None:
    """Write the configuration of the model and of its generation, unless those of the source are there."""
    for name, document in (("config.json", _config(folder)), ("generation_config.json", _generation(folder))):
        if not (made / name).is_file():
            (made / name).write_text(json.dumps(document, indent=2) + "\n")


def _make_stateful(model: ov.Model, folder: GeneratorFolder, ports: Ports) -> None:
    """Turn caches into states, chosen by `beam_idx`, which are empty before the first token."""
    import numpy as np
    import openvino as ov
    from openvino import opset13
    from openvino.passes import MakeStateful, Manager

    inputs = {name: port for port in model.inputs for name in port.get_names()}
    outputs = {name: port for port in model.outputs for name in port.get_names()}
    batch = 1 if why_one_text(ports) else -1
    shapes: dict[ov.Output, ov.PartialShape] = {}
    for port in ports.caches:
        heads, size = (_extent(port, axis, known) for axis, known in ((1, folder.kv_heads), (3, folder.head_size)))
        shapes[inputs[port.name]] = ov.PartialShape([batch, heads, -1, size])
    shapes |= {inputs[port.name]: ov.PartialShape([batch, -1]) for port in ports.inputs if port.role in _INPUTS}
    model.reshape(shapes)
    beam = opset13.parameter(ov.PartialShape([-1]), np.int32, name="beam_idx")
    beam.output(0).set_names({"beam_idx"})
    added = [beam]
    if all(port.role != MASK for port in ports.inputs):  # the pipeline gives one, whatever the model does with it
        added.append(opset13.parameter(ov.PartialShape([batch, -1]), np.int64, name=MASK))
        added[-1].output(0).set_names({MASK})
    model.add_parameters(added)
    pairs = {}
    for port in ports.caches:
        cache, filled = inputs[port.name], ports.output(port.role)
        assert filled is not None
        readers = list(cache.get_target_inputs())
        chosen = opset13.gather(cache, beam, opset13.constant(np.int64(0)))
        for reader in readers:
            reader.replace_source_output(chosen.output(0))
        pairs[port.name] = filled.name
    for port in ports.inputs:
        if port.role in _INPUTS and port.name != port.role:
            inputs[port.name].set_names({port.role})
    logits = ports.output(LOGITS)
    assert logits is not None
    if logits.name != LOGITS:
        outputs[logits.name].set_names({LOGITS})
    if any(port.by_position for port in ports.caches):
        given = {port.role: inputs[port.name] for port in ports.inputs if port.role in _INPUTS}
        pad_at_end(given, outputs[logits.name])
    model.validate_nodes_and_infer_types()
    manager = Manager()
    manager.register_pass(MakeStateful(pairs))
    manager.run_passes(model)
    ids = next(port for port in model.inputs if "input_ids" in port.get_names())
    rows = opset13.gather(
        opset13.shape_of(ids, "i64"), opset13.constant(np.array([0], np.int64)), opset13.constant(np.int64(0))
    )
    for operation in model.get_ops():
        if operation.get_type_name() == "ReadValue":
            extents = list(operation.get_output_partial_shape(0))[1:]
            known = [np.array([0 if one.is_dynamic else one.get_length()], np.int64) for one in extents]
            shape = opset13.concat([rows, *map(opset13.constant, known)], 0)
            zero = opset13.constant(0, operation.get_output_element_type(0))
            operation.set_arguments([opset13.broadcast(zero, shape)])
    model.validate_nodes_and_infer_types()


def _extent(port: PartPort, axis: int, known: int | None) -> int:
    extent = (port.shape or ())[axis]
    if isinstance(extent, int) and extent > 0:
        return extent
    if known is None:
        raise DovetailError(
            f"cache '{port.name}' has an open axis {axis}, and the configuration does not tell its extent",
            "write num_key_value_heads and head_size into it",
        )
    return known


def _config(folder: GeneratorFolder) -> dict[str, Any]:
    model = (folder.document or {}).get("model", {})
    return {
        "model_type": model.get("type", ""),
        "vocab_size": folder.vocabulary,
        "max_position_embeddings": folder.context,
    }


def _generation(folder: GeneratorFolder) -> dict[str, Any]:
    model = (folder.document or {}).get("model", {})
    found = {"eos_token_id": sorted(folder.stops) or None}
    found |= {key: model.get(key) for key in ("bos_token_id", "pad_token_id")}
    return {key: value for key, value in found.items() if value is not None}
