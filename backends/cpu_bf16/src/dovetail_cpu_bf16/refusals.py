"""Turn OpenVINO's exceptions into errors that name the engine and the node."""

from __future__ import annotations

import re

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError

_NODE = re.compile(r"'<Node\((\w+)\): ([^>]*)>'|Operation name: (\S+)|node with name '([^']*)'")
# The first operator that failed: later ones in the message are consequences.
_FIRST = re.compile(r".*?with a message: (.*?)(?: -- \w+-\d+ with a message: .*| Summary: .*|$)")
_WHILE = re.compile(
    r"While validating ONNX node '<[^>]*>': |While validating node '.*?' with friendly_name '[^']*': |"
    r"Exception from \S+: |FrontEnd API failed with \w+: ?"
)
_CHECK = re.compile(r"Check '(.*?)' failed at \S+:\d+: ?")
_SHOWN = 300
"""Maximum length of a reason, in characters."""


def refusal(error: Exception, verb: str) -> DovetailError:
    """Return the error of `openvino-cpu` for an exception of OpenVINO.

    Args:
        error: The exception.
        verb: What the engine does to the node: `refuses`, `fails at`.
    """
    if isinstance(error, DovetailError):
        return error
    text = " ".join(str(error).split())
    found = _NODE.search(text)
    node = next((part for part in reversed(found.groups()) if part), "") if found else ""
    what = f"the node of '{node}'" if node else "the region"
    return EngineError(f"openvino-cpu {verb} {what}: {_reason(text)[:_SHOWN]}", node=node)


def _reason(text: str) -> str:
    """Extract the readable sentence of a message, or the failed condition if there is none."""
    first = _FIRST.match(text)
    said = _WHILE.sub("", first[1] if first else text)
    failed = _CHECK.search(said)
    sentence = _CHECK.sub("", said).strip()
    return sentence or (f"it needs {failed[1]}" if failed else text)
