"""A decoder in OpenVINO's own format, run as OpenVINO GenAI runs it: its caches are states, which it keeps itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.text import printable

from dovetail_decoder.caches import PartPort, Ports
from dovetail_decoder.folder import LOGITS, GeneratorFolder, Part, number_in, read_document
from dovetail_decoder.foreign_files import inside
from dovetail_decoder.openvino_genai import MODEL
from dovetail_decoder.states import Chain, Feeds

_CONFIG = "config.json"
_DECODER = Part("decoder", Path(MODEL))
_BEAM = "beam_idx"  # of each row, the one whose states it goes on from


def is_openvino_folder(folder: Path) -> bool:
    """Return whether a folder holds a decoder that OpenVINO GenAI loads."""
    return (folder / MODEL).is_file() and (folder / _CONFIG).is_file()


def read_openvino_folder(folder: Path) -> GeneratorFolder:
    """Read such a folder, to be run.

    Raises:
        DovetailError: `config.json` is malformed.
    """
    path = folder / _CONFIG
    for file in (MODEL, Path(MODEL).with_suffix(".bin")):
        inside(folder, folder / file)
    document = read_document(path)
    text = document.get("text_config")
    text = {**document, **text} if isinstance(text, dict) else document
    context, vocabulary = (number_in(text, key, path) for key in ("max_position_embeddings", "vocab_size"))
    return GeneratorFolder(folder, path, [_DECODER], context, vocabulary)


class OpenVinoChain(Chain):
    """The decoder of a folder in OpenVINO on the CPU, with floats as the plan has them.

    Args:
        folder: See `read_openvino_folder`.
        threads: Threads to compute with; 0 for OpenVINO's own choice.

    Raises:
        DovetailError: OpenVINO is not installed, or cannot load the decoder.
    """

    def __init__(self, folder: GeneratorFolder, threads: int = 0):
        try:
            import openvino
        except ImportError:
            raise DovetailError(
                "openvino is not installed, so the decoder cannot run", "pip install 'dovetail-decoder[openvino-genai]'"
            ) from None
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if threads:
            settings["INFERENCE_NUM_THREADS"] = threads
        self._path = folder.file_of(_DECODER)
        try:
            model = openvino.Core().compile_model(str(self._path), "CPU", settings)
        except RuntimeError as error:
            raise self._refused("load", error) from None
        self._request = model.create_infer_request()
        inputs = [
            PartPort(name, name, np.dtype(np.int64), ("batch_size", "sequence_length"))
            for name in (port.get_any_name() for port in model.inputs)
            if name != _BEAM
        ]
        outputs = [PartPort(LOGITS, LOGITS, np.dtype(np.float32), ("batch_size", "sequence_length", "vocabulary"))]
        super().__init__(folder, {_DECODER.name: Ports(inputs, outputs)}, threads)

    def run(self, part: Part, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run the decoder, whose states begin anew where nothing is behind the tokens.

        Raises:
            DovetailError: OpenVINO cannot run it.
        """
        ids = feeds["input_ids"]
        if feeds["attention_mask"].shape[1] == ids.shape[1]:
            self._request.reset_state()
        try:
            self._request.infer({**feeds, _BEAM: np.arange(len(ids), dtype=np.int32)}, share_inputs=True)
        except RuntimeError as error:
            raise self._refused("run", error) from None
        return {LOGITS: np.array(self._request.get_tensor(LOGITS).data)}

    def load(self) -> None:
        """The decoder is loaded from the first on."""

    def close(self) -> None:
        """It goes with this object."""

    def _refused(self, what: str, error: RuntimeError) -> DovetailError:
        lines = str(error).strip().splitlines()
        return DovetailError(
            f"{self._path}: OpenVINO cannot {what} it: {printable(lines[-1] if lines else 'no reason')}",
            "compile without --runtime, for ONNX Runtime",
        )
