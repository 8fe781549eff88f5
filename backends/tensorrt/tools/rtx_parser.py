"""The parser and the builder of TensorRT-RTX, in a separate process, which some models crash."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from pathlib import Path
from typing import NamedTuple

from dovetail.plugin import Tool, ToolEndedError

__all__ = ["Answer", "Worker"]

SECONDS = 60
LIBRARIES = ("libcudart.so", "libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")  # each needs those before it


class Answer(NamedTuple):
    """What the parser says of a model.

    Attributes:
        outcome: `ok`, `parse` (refused by the parser), `build` (refused by the builder) or `crash`.
        errors: Index, name and text of every node that the parser refuses; index -1 for the model itself.
        detail: The first error of the builder.
    """

    outcome: str
    errors: tuple[tuple[int, str, str], ...] = ()
    detail: str = ""


class Worker:
    """A process with the libraries loaded, which is replaced if it dies or hangs."""

    def __init__(self):
        self._tool = Tool.start(__file__, title="TensorRT-RTX", timeout=SECONDS)

    def ask(self, model: bytes, build: bool = False) -> Answer:
        """Parse a serialized model, and build it if it parses and `build` says so."""
        try:
            outcome, errors, detail = self._tool.ask("parsed", model=model, build=build)
        except ToolEndedError:
            return Answer("crash")
        return Answer(outcome, tuple(map(tuple, errors)), detail)

    def stop(self) -> None:
        """End the process."""
        self._tool.close()


@functools.cache
def _library():
    """Return the module, its builder, and the errors that it logs."""
    folder = Path(importlib.util.find_spec("onnxruntime_ep_nv_tensorrt_rtx").submodule_search_locations[0])
    for name in LIBRARIES:
        ctypes.CDLL(str(next(folder.glob(f"{name}*"))), ctypes.RTLD_GLOBAL)
    import tensorrt_rtx_bindings as trt

    class Log(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity, text):
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR) and "CUDA" not in text:
                self.errors.append(text)

    log = Log()
    return trt, trt.Builder(log), log


def parsed(model: bytes, build: bool) -> list[object]:
    """Return the fields of the answer about a model."""
    trt, builder, log = _library()
    log.errors.clear()
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    if not parser.parse(model):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        return ["parse", [[error.node(), error.node_name(), error.desc()] for error in errors], ""]
    if build:
        log.errors.clear()
        config = builder.create_builder_config()
        if builder.build_serialized_network(network, config) is None and not _wants_profile(log.errors):
            return ["build", [], log.errors[0] if log.errors else ""]
    return ["ok", [], ""]


def _wants_profile(errors: list[str]) -> bool:
    """Whether a network was not built because its inputs have no extents or values."""
    return any("no optimization profile" in error for error in errors)
