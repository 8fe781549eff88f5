"""ONNX Runtime, imported in one place: without telemetry, and with its own sessions even if a program replaced them.

Since version 1.29, ONNX Runtime writes an identifier and events below the cache and temporary folders when it is
imported, and sends them. Its environment variable is read at that moment only.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

_NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
_CONFIG_OF_MODEL = "ORT_LOAD_CONFIG_FROM_MODEL"
_CUDA = "CUDAExecutionProvider"
_PROVIDER_OPTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType({_CUDA: {"use_tf32": "0"}})


def disable_telemetry() -> None:
    """Keep ONNX Runtime's telemetry off in this process and its children, unless the user decided on it."""
    os.environ.setdefault(_NO_TELEMETRY, "1")


def onnx_runtime() -> Any:
    """Return the module `onnxruntime`, whose sessions take their options from their caller and never from a model.

    Raises:
        ImportError: It is not installed.
    """
    disable_telemetry()
    os.environ.pop(_CONFIG_OF_MODEL, None)  # it lets models set options of their sessions: `ort_config`
    return importlib.import_module("onnxruntime")


def native_state() -> ModuleType:
    """Return the module with ONNX Runtime's tables of operators and kernels.

    Raises:
        ImportError: ONNX Runtime is not installed.
    """
    onnx_runtime()
    return importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")


READ_TO_THE_END = {("com.microsoft", "QLinearLeakyRelu"): 5, ("com.microsoft", "QLinearSigmoid"): 5}
"""Operators whose kernels read this many inputs, whatever a node has, and crash the process where it has fewer (1.32).

The last input is the zero point of the result, which is optional. A blank in its place is read as zero."""


def write_blanks(nodes: Iterable[onnx.NodeProto]) -> None:
    """Give nodes of `READ_TO_THE_END`, in bodies too, a blank for each input that they leave out at the end."""
    for node in nodes:
        missing = READ_TO_THE_END.get((node.domain, node.op_type), 0) - len(node.input)
        node.input.extend([""] * max(0, missing))
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                write_blanks(body.node)


def new_session(
    source: bytes | str, options: ort.SessionOptions, providers: Sequence[str], without: Sequence[str] = ()
) -> ort.InferenceSession:
    """Create a session of ONNX Runtime.

    A program may have replaced `onnxruntime.InferenceSession` by ours, which would compile the model again. For CUDA,
    the libraries that pip brought are loaded first, and float32 is not rounded to TF32, whose mantissa has as many
    bits as that of float16: what a plan keeps in float32 is meant.

    Args:
        source: A serialized model or a path.
        options: The options of the session.
        providers: Its execution providers, in order of preference.
        without: Names of optimizers to leave out.
    """
    onnx_runtime()
    if _CUDA in providers:
        _load_cuda()
    collection = importlib.import_module("onnxruntime.capi.onnxruntime_inference_collection")
    session = collection.InferenceSession(
        source,
        options,
        [(name, dict(_PROVIDER_OPTIONS.get(name, {}))) for name in providers],
        disabled_optimizers=list(without) or None,
        enable_fallback=0,  # else it goes on without the provider that failed, and only prints that
    )
    return cast("ort.InferenceSession", session)


@cache
def _load_cuda() -> None:
    """Load CUDA's libraries and cuDNN where pip puts them, which the dynamic linker does not search.

    What is missing there may be among the system's, so it prints what it does not find, which says nothing yet.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        onnx_runtime().preload_dlls(directory="")


def configure(settings: ort.SessionOptions, entries: Mapping[str, str]) -> None:
    """Set entries. Settings may serve several sessions, and ONNX Runtime warns of an entry that is set twice."""
    for key, text in entries.items():
        try:
            known = settings.get_session_config_entry(key)
        except RuntimeError:  # there is none
            known = None
        if known != text:
            settings.add_session_config_entry(key, text)


def quiet_settings() -> ort.SessionOptions:
    """Return settings of a session that logs nothing: its errors are raised."""
    settings = cast("ort.SessionOptions", onnx_runtime().SessionOptions())
    settings.log_severity_level = 4
    return settings


def return_freed_memory() -> None:
    """Give memory that sessions have freed back to the system, where the C library keeps it for later (glibc)."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library
        return


_TRIM_VARIABLE = "MALLOC_TRIM_THRESHOLD_"
_TRIM, _MMAP = -1, -3  # parameters of `mallopt`
_KEPT, _MAPPED = 1 << 28, 1 << 25  # bytes
_DEFAULT_MAPPED = 1 << 17  # bytes; glibc's, which a fixed trim threshold keeps from growing


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep freed memory for the next allocation inside of the block, where the environment says otherwise (glibc).

    Workers of dask return all freed memory to the system at once. A model that runs batch by batch then gets new pages
    for each value, which takes as long as computing it.
    """
    asked = os.environ.get(_TRIM_VARIABLE, "")
    set_option = _mallopt() if asked.isdecimal() else None
    if set_option is None:
        yield
        return
    try:
        set_option(_TRIM, _KEPT)
        set_option(_MMAP, _MAPPED)
        yield
    finally:
        set_option(_TRIM, min(int(asked), _KEPT))
        set_option(_MMAP, _DEFAULT_MAPPED)
        return_freed_memory()


def _mallopt() -> Callable[[int, int], int] | None:
    import ctypes

    try:
        return cast("Callable[[int, int], int]", ctypes.CDLL(None).mallopt)
    except (AttributeError, OSError, TypeError):  # another C library
        return None
