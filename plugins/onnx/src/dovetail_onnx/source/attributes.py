"""Check attributes: one value each, of the declared type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


TENSOR, GRAPH, GRAPHS = 4, 5, 10  # onnx.AttributeProto.AttributeType
# The field of each type, and whether it must be set: an unset message is not a default.
_FIELDS = {
    1: ("f", False), 2: ("i", False), 3: ("s", False), 4: ("t", True), 5: ("g", True), 6: ("floats", False),
    7: ("ints", False), 8: ("strings", False), 9: ("tensors", False), 10: ("graphs", False),
    11: ("sparse_tensor", True), 12: ("sparse_tensors", False), 13: ("tp", True), 14: ("type_protos", False),
}  # fmt: skip
_RANKS = 1 << 16
_AXES = {"axis": -_RANKS, "axes": -_RANKS, "perm": 0, "batch_dims": 0}
"""Attributes that name axes, with their lowest valid number."""
_LONGEST_EQUATION = 1000  # characters; parsers of equations are superlinear
_BESIDE = frozenset({"name", "type", "doc_string", "ref_attr_name"})


def attribute_problem(attribute: onnx.AttributeProto, in_function: bool) -> str:
    """Return what is wrong with one attribute by itself; empty if nothing is."""
    field, message = _FIELDS.get(attribute.type, ("", False))
    if not field:
        return f"attribute '{attribute.name}' states no type that ONNX knows ({attribute.type})"
    found = [entry.name for entry, _ in attribute.ListFields() if entry.name not in _BESIDE]
    if attribute.ref_attr_name:
        if not in_function:
            return f"attribute '{attribute.name}' refers to an attribute of a function, and stands in none"
        return f"attribute '{attribute.name}' is a reference and a value" if found else ""
    if found != [field] and (found or message):
        held = ", ".join(found) or "no value"
        return f"attribute '{attribute.name}' is {type_name(attribute.type)} and holds {held}"
    # onnx's inference uses these before it checks them, and can crash the process.
    lowest = _AXES.get(attribute.name)
    if lowest is not None and any(not lowest <= axis < _RANKS for axis in (attribute.i, *attribute.ints)):
        return f"attribute '{attribute.name}' names an axis that no tensor has"
    if attribute.name == "equation" and len(attribute.s) > _LONGEST_EQUATION:
        return f"attribute 'equation' has {len(attribute.s)} characters; no more than {_LONGEST_EQUATION} are read"
    texts = (attribute.s,) if field == "s" else attribute.strings if field == "strings" else ()
    for text in texts:
        text.decode()  # the caller reports text that is not UTF-8
    return ""


def type_name(number: int) -> str:
    """Return the name of an attribute type: `INTS`."""
    import onnx

    try:
        return onnx.AttributeProto.AttributeType.Name(number)
    except ValueError:
        return f"type {number}"
