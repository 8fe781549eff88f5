"""Lookup of the installed TensorRT: the full one, TensorRT-RTX from the extra `rtx`, or the reason why there is none.

Nothing is imported before first use. TensorRT-RTX can parse and build without a GPU. Its libraries come with ONNX
Runtime's execution provider, in a folder that the dynamic linker does not search. Hence they are loaded by path before
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
# The order matters: each library needs the ones before it.
_RTX_LIBRARIES = ("libcudart.so", "libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")
_NEEDED = ("Builder", "OnnxParser", "Runtime")


class NoLibrary(DovetailError):
    """Raised if no TensorRT is installed, or it fails to load."""


@dataclass(frozen=True, eq=False)
class Library:
    """A loaded TensorRT.

    Attributes:
        sdk: `TensorRT` or `TensorRT-RTX`; their engines are incompatible.
        version: Its version; engines are tied to it.
        trt: Its Python module.
        cudart: The CUDA runtime that came with it; None if the system's is used.
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
    """Load the installed TensorRT: the full one if it loads, else TensorRT-RTX.

    Raises:
        NoLibrary: None is installed, or it fails to load; the message includes the error.
    """
    broken = []
    for load, name in ((_full, FULL), (_rtx, RTX)):
        try:
            found = load()
        except Exception as error:  # importing a third-party package may raise anything
            what = "is of no use here" if isinstance(error, NoDevice) else "is broken"
            broken.append(f"{name} {what}: {_described(error)}")
            continue
        if found is not None:
            return found
    if broken:
        raise NoLibrary("; ".join(broken), f"install the extra (again): {EXTRA}")
    raise NoLibrary("TensorRT is not installed", f"{EXTRA} brings TensorRT-RTX, which builds without a GPU")


def state() -> str:
    """Describe the installed TensorRT in one line, for listings; never raises."""
    try:
        return f"{library().title} builds engines"
    except NoLibrary as error:
        return f"{error.message} ({error.hint})"


def _full() -> Library | None:
    if not _is_package(_FULL_MODULE):
        return None
    trt = importlib.import_module(_FULL_MODULE)
    _check(trt)
    check_driver()  # its builder needs a GPU; without one, TensorRT-RTX is preferable
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
    # Do not import the package itself: it imports ONNX Runtime, which the libraries do not need.
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
    """Check whether a package is installed, and not merely a folder of that name, which Python could import, too."""
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
# Without a driver it repeats these messages, but builds nevertheless.
_NO_DRIVER = re.compile(r"cudaError 35|Cuda Runtime \(In catchCudaError|checkMacros\.cpp")
_MOST = 1000
_SOURCE = re.compile(r"\s*\(?In \w+ at [\w/.:\\-]+\.(?:cpp|h|cu):\d+\)?\.?$")
_HEADING = re.compile(r"^(?:Invalid Node - .*|In node .*?:)$")
_ASSERTION = re.compile(r"^Assertion failed: .*?: (?=[A-Z])")
_CODE = re.compile(r"^[\w:]+: (?:ITensor::getDimensions: )?Error Code \d+: (?:API Usage Error|Internal Error) ?")


def make_logger(trt: Any) -> Any:
    """Create a TensorRT logger that keeps errors and warnings.

    Args:
        trt: The Python module of a TensorRT.

    Returns:
        An `ILogger` with `taken()`, which returns the (severity, text) pairs since the last call.
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
    """Reduce a message of TensorRT to one line without headings, error codes and source locations."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _HEADING.match(line) and not _NO_DRIVER.search(line)]
    if not lines:
        return ""
    text = _ASSERTION.sub("", _SOURCE.sub("", _CODE.sub("", lines[0])).strip())
    if text.startswith("(") and text.count("(") != text.count(")"):
        text = text[1:]
    return text.strip(" .")
