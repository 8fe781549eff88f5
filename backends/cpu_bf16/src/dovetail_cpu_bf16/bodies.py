"""Bodies of OpenVINO's control-flow operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


def bodies_of(operation: ov.Node) -> list[ov.Model]:
    """Return the bodies of `operation`; empty unless it is control flow."""
    if operation.get_type_name() == "If":
        return [operation.get_function(0), operation.get_function(1)]
    return [operation.get_function()] if hasattr(operation, "get_function") else []


def with_bodies(model: ov.Model) -> Iterator[ov.Model]:
    """Yield `model` and all bodies in it, nested ones too."""
    found = [model]
    for part in found:
        yield part
        for operation in part.get_ordered_ops():
            found += bodies_of(operation)
