"""What TensorRT says while it parses and builds."""

from __future__ import annotations

import re
from typing import Any

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
