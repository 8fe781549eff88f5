"""Which TensorRT is here: the full one, TensorRT-RTX from the extra `rtx`, or why there is none.

Nothing of it is imported before somebody asks. TensorRT-RTX needs no GPU to parse and to build. Its libraries come with
ONNX Runtime's provider, in a folder that the dynamic linker does not search, so they are loaded by their paths before
the bindings are imported, which then find them in the process.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError

from dovetail_tensorrt.runtime.cuda import NoDevice, check_driver

FULL, RTX = "TensorRT", "TensorRT-RTX"
EXTRA = "pip install 'dovetail-tensorrt[rtx]'"
_FULL_MODULE, _RTX_MODULE, _RTX_FOLDER = "tensorrt", "tensorrt_rtx_bindings", "onnxruntime_ep_nv_tensorrt_rtx"
# The order matters: each one needs those before it.
_RTX_LIBRARIES = ("libcudart.so", "libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")
_NEEDED = ("Builder", "OnnxParser", "Runtime")


class NoLibrary(DovetailError):
    """There is no TensorRT here, or it does not load."""


@dataclass(frozen=True, eq=False)
class Library:
    """A TensorRT that was loaded.

    Attributes:
        sdk: `TensorRT` or `TensorRT-RTX`; engines of one are nothing to the other.
        version: Its version, with which engines are built and loaded.
        trt: Its Python module.
        cudart: The CUDA runtime that came with it; None where the system's is used.
    """

    sdk: str
    version: str
    trt: Any
    cudart: Path | None = None

    @property
    def title(self) -> str:
        """Name and version, for messages."""
        return f"{self.sdk} {self.version}"


@cache
def library() -> Library:
    """The TensorRT that is here: the full one where it loads, else TensorRT-RTX.

    Raises:
        NoLibrary: There is none, or what is there does not load; its own words are given.
    """
    broken = []
    for load, name in ((_full, FULL), (_rtx, RTX)):
        try:
            found = load()
        except Exception as error:  # a package of somebody else may raise anything while it is imported
            what = "is of no use here" if isinstance(error, NoDevice) else "is broken"
            broken.append(f"{name} {what}: {_described(error)}")
            continue
        if found is not None:
            return found
    if broken:
        raise NoLibrary("; ".join(broken), f"install the extra (again): {EXTRA}")
    raise NoLibrary("TensorRT is not installed", f"{EXTRA} brings TensorRT-RTX, which builds without a GPU")


def state() -> str:
    """What is here, in one line, for listings; never raises."""
    try:
        return f"{library().title} builds engines"
    except NoLibrary as error:
        return f"{error.message} ({error.hint})"


def _full() -> Library | None:
    if not _is_package(_FULL_MODULE):
        return None
    trt = importlib.import_module(_FULL_MODULE)
    _check(trt)
    check_driver()  # its builder needs a GPU, so without one TensorRT-RTX is of more use
    return Library(FULL, str(trt.__version__), trt)


def _rtx() -> Library | None:
    if not _is_package(_RTX_MODULE):
        return None
    paths = list(_rtx_libraries())
    for path in paths:
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    trt = importlib.import_module(_RTX_MODULE)
    _check(trt)
    return Library(RTX, str(trt.__version__), trt, paths[0])


def _rtx_libraries() -> Iterator[Path]:
    # The package itself is not imported: it imports ONNX Runtime, which the libraries do not need.
    found = importlib.util.find_spec(_RTX_FOLDER)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"{_RTX_FOLDER}, which brings its libraries, is not installed")
    folder = Path(next(iter(found.submodule_search_locations)))
    for name in _RTX_LIBRARIES:
        files = sorted(folder.glob(f"{name}*"))
        if not files:
            raise ImportError(f"{name} is missing in {folder}")
        yield files[-1]


def _is_package(name: str) -> bool:
    """Whether a package is installed; a mere folder of that name, which Python would import too, is none."""
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


def _check(trt: Any) -> None:
    missing = [name for name in (*_NEEDED, "__version__") if not hasattr(trt, name)]
    if missing:
        raise ImportError(f"{trt.__name__} has no {', '.join(missing)}")


def _described(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "message", error)).split())
    return text if isinstance(error, NoDevice) else f"{type(error).__name__}: {text}" if text else type(error).__name__


_SEVERITIES = {"INTERNAL_ERROR": "error", "ERROR": "error", "WARNING": "warning"}
# Without a driver it says so again and again, and builds nevertheless.
_NO_DRIVER = re.compile(r"cudaError 35|Cuda Runtime \(In catchCudaError|checkMacros\.cpp")
_MOST = 1000
_SOURCE = re.compile(r"\s*\(?In \w+ at [\w/.:\\-]+\.(?:cpp|h|cu):\d+\)?\.?$")
_HEADING = re.compile(r"^(?:Invalid Node - .*|In node .*?:)$")
_ASSERTION = re.compile(r"^Assertion failed: .*?: (?=[A-Z])")
_CODE = re.compile(r"^[\w:]+: (?:ITensor::getDimensions: )?Error Code \d+: (?:API Usage Error|Internal Error) ?")


def make_logger(trt: Any) -> Any:
    """A logger for TensorRT that keeps errors and warnings.

    Args:
        trt: The Python module of a TensorRT.

    Returns:
        An `ILogger` with `taken()`, which gives the (severity, text) pairs since the last time.
    """

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._kept: list[tuple[str, str]] = []

        def log(self, severity: Any, text: str) -> None:
            kind = _SEVERITIES.get(getattr(severity, "name", ""), "")
            if kind and len(self._kept) < _MOST and not _NO_DRIVER.search(text):
                self._kept.append((kind, text))

        def taken(self) -> list[tuple[str, str]]:
            kept, self._kept = self._kept, []
            return kept

    return Logger()


def plain(text: str) -> str:
    """A message of TensorRT without headings, codes and places in its source, in one line."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _HEADING.match(line) and not _NO_DRIVER.search(line)]
    if not lines:
        return ""
    text = _ASSERTION.sub("", _SOURCE.sub("", _CODE.sub("", lines[0])).strip())
    if text.startswith("(") and text.count("(") != text.count(")"):
        text = text[1:]
    return text.strip(" .")
