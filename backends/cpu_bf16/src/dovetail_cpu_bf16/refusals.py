"""What OpenVINO's exceptions say, as errors that name the engine and the node."""

from __future__ import annotations

import re

from dovetail.errors import DovetailError
from dovetail.runtime.engine import EngineError

__all__ = ["refusal"]

_NODE = re.compile(r"'<Node\((\w+)\): ([^>]*)>'|Operation name: (\S+)|operations?: (\S+)")
_SHOWN = 300
"""Characters of OpenVINO's message that are shown: its end, where the reason stands."""


def refusal(error: Exception, verb: str) -> DovetailError:
    """The error of `openvino-cpu` for an exception of OpenVINO's.

    Args:
        error: What OpenVINO raised.
        verb: What the engine does to the node: `refuses`, `fails at`.
    """
    if isinstance(error, DovetailError):
        return error
    text = " ".join(str(error).split())
    found = _NODE.search(text)
    node = next((part for part in reversed(found.groups()) if part), "") if found else ""
    what = f"the node of '{node}'" if node else "the region"
    return EngineError(f"openvino-cpu {verb} {what}: {text[-_SHOWN:]}", node=node)
