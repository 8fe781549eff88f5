"""Reading of the folder of a language model, and of the ports of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail_decoder import genai_config, optimum
from dovetail_decoder.caches import check_caches, ports_of
from dovetail_decoder.expert_weights import check_experts
from dovetail_decoder.folder import MODEL_SUFFIX, GeneratorFolder
from dovetail_decoder.openvino_chain import OpenVinoChain, is_openvino_folder, read_openvino_folder
from dovetail_decoder.quantized_weights import check_blocks
from dovetail_decoder.saving import check_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_decoder.states import Chain


def is_generator(folder: Path) -> bool:
    """Return whether there is a configuration of onnxruntime-genai, or a decoder beside a `config.json`."""
    return (folder / genai_config.CONFIG).is_file() or optimum.is_optimum_folder(folder)


def read_folder(folder: Path) -> GeneratorFolder:
    """Read the folder of a language model.

    Raises:
        DovetailError: What describes it is malformed, or names a file that is not there.
    """
    check_source(folder)
    if (folder / genai_config.CONFIG).is_file():
        return genai_config.read_genai_folder(folder)
    if is_openvino_folder(folder) and not optimum.is_optimum_folder(folder):
        return read_openvino_folder(folder)
    return optimum.read_optimum_folder(folder)


def models_of(folder: GeneratorFolder, plugins: PluginSet | None = None) -> dict[str, Model]:
    """Open the model of every part; weights stay on disk.

    Raises:
        DovetailError: A part cannot be read.
    """
    from dovetail import api

    return {part.name: api.open(folder.file_of(part), plugins) for part in folder.parts}


def chain_of(folder: GeneratorFolder, models: Mapping[str, Model] | None = None, threads: int = 0) -> Chain:
    """Return the parts of a folder, to be run in ONNX Runtime, or in OpenVINO where they are in its format.

    Args:
        folder: The folder.
        models: The models of its parts, if they are open.
        threads: Threads of each session; 0 for ONNX Runtime's own choice.

    Raises:
        DovetailError: A part cannot be read, or its caches or quantized weights are not those that are declared.
    """
    from dovetail_decoder.states import Chain

    if all(part.file.suffix != MODEL_SUFFIX for part in folder.parts):
        return OpenVinoChain(folder, threads)
    models = models or models_of(folder)
    ports = ports_of(folder, models)
    produced = frozenset(port.role for one in ports.values() for port in one.outputs)
    for part in folder.parts:
        check_blocks(models[part.name], folder.file_of(part))
        check_experts(models[part.name], folder.file_of(part))
        check_caches(folder, part, ports[part.name], produced)
    return Chain(folder, ports, threads)
