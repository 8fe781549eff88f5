"""Types and attributes of PIR programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail_paddle.element_types import BY_TAG
from dovetail_paddle.pd_graph import TensorInfo

MISSING = object()
"""Marks an attribute that does not affect the computation, such as a place."""

_WORDS = {word: float(word) for word in ("inf", "-inf", "nan", "-nan")}
_PLAIN = {"a_bool": bool, "a_i32": int, "a_i64": int, "a_index": int, "a_f32": float, "a_f64": float, "a_str": str}
_UNUSED = frozenset(("a_place", "a_layout", "a_type", "a_pointer", "a_tensorname", "a_symbol", "a_c64", "a_c128"))


class PirProblem(ValueError):
    """Raised for a malformed program."""


def type_of(value: Any) -> TensorInfo:
    """Parse the type of a value."""
    if value in (None, "NULL") or not isinstance(value, Mapping):
        return TensorInfo()
    tag, content = _tag(value), value.get("D")
    if tag == "t_vec":
        items = [type_of(item) for item in content] if isinstance(content, list) else []
        return TensorInfo(items[0].dtype if items else "", None, True)
    if tag not in ("t_dtensor", "t_dense_tensor_array"):
        return TensorInfo()
    if not isinstance(content, list) or len(content) < 2 or not isinstance(content[1], list):
        raise PirProblem(f"a value has a type that cannot be read ({str(content)[:60]})")
    dtype, shape = BY_TAG.get(_tag(content[0]), ""), content[1]
    if not all(isinstance(extent, int) and abs(extent) < 1 << 62 for extent in shape):
        raise PirProblem(f"a value has impossible extents ({str(shape)[:60]})")
    # Paddle multiplies open extents, which are -1, with others: -20 is open, too.
    return TensorInfo(dtype, tuple(max(extent, -1) for extent in shape), tag == "t_dense_tensor_array")


def attribute_value(description: Any) -> Any:
    """Parse the value of an attribute; `MISSING` if it does not affect the computation."""
    if not isinstance(description, Mapping):
        raise PirProblem(f"an attribute cannot be read ({str(description)[:60]})")
    tag = _tag(description)
    content = description.get("D", description.get("VD"))
    if tag in _UNUSED:
        return MISSING
    if tag in ("a_f32", "a_f64") and isinstance(content, str):
        if content.lower() not in _WORDS:
            raise PirProblem(f"an attribute is {content[:40]!r}, which is no number")
        return _WORDS[content.lower()]
    kind = _PLAIN.get(tag)
    if kind is not None:
        numeric = isinstance(content, (int, float)) and (kind is bool) == isinstance(content, bool)
        if not (isinstance(content, str) if kind is str else numeric):
            raise PirProblem(f"an attribute of type {tag} is {str(content)[:40]!r}")
        return kind(content)
    if tag == "a_array" and isinstance(content, list):
        return [attribute_value(item) for item in content]
    if tag == "a_intarray" and isinstance(content, list) and all(isinstance(item, int) for item in content):
        return list(content)
    if tag == "a_dtype" and isinstance(content, str):
        return content.lower()
    if tag == "a_scalar":
        found = content[-1] if isinstance(content, list) and content else content
        if isinstance(found, Mapping):
            return attribute_value(found)
        found = _WORDS.get(found.lower(), found) if isinstance(found, str) else found
        if isinstance(found, (bool, int, float)):
            return found
    raise PirProblem(f"an attribute of type {tag!r} cannot be read ({str(content)[:60]})")


def _tag(description: Any) -> str:
    """Return the name of a type or attribute, without the number of its dialect."""
    tag = description.get("#") if isinstance(description, Mapping) else None
    return tag.partition(".")[2] if isinstance(tag, str) else ""
