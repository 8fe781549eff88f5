"""Checks of nodes and declared types: known operators, numbers of ports, attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dovetail.text import near_misses

from dovetail_onnx.signatures import Signature, find_signature
from dovetail_onnx.source.tensors import element_type

if TYPE_CHECKING:
    import onnx

    from dovetail_onnx.source.functions import Functions, Key


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
_POOLS = ("pool_int64s", "pool_strings")
_BESIDE = frozenset({"name", "type", "doc_string", "ref_attr_name"})


def attribute_problem(attribute: onnx.AttributeProto, in_function: bool) -> str:
    """Return the problem with a single attribute; empty if there is none."""
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
    texts = (attribute.s,) if field == "s" else dict.fromkeys(attribute.strings) if field == "strings" else ()
    for text in texts:
        text.decode()  # raises for text that is not UTF-8, which the caller reports
    return ""


def values_problem(operator: str, attributes: Sequence[onnx.AttributeProto], outputs: int) -> str:
    """Return the problem with values of attributes that end a process, or leave results unwritten; empty if none."""
    given = {attribute.name: attribute for attribute in attributes if not attribute.ref_attr_name}
    if "num_outputs" in given and given["num_outputs"].i != outputs:  # onnx's inference
        return f"says that it has {given['num_outputs'].i} outputs, and has {outputs}"
    if "saturate" in given and given["saturate"].i not in (0, 1):  # ONNX Runtime
        return f"has a 'saturate' of {given['saturate'].i}, and ONNX knows 0 and 1"
    if operator == "TfIdfVectorizer" and "ngram_counts" in given and "ngram_indexes" in given:  # ONNX Runtime
        pool = next((len(given[name].ints or given[name].strings) for name in _POOLS if name in given), 0)
        bounds = [*given["ngram_counts"].ints, pool]
        grams = sum(max(end - start, 0) // (at + 1) for at, (start, end) in enumerate(pairwise(bounds)))
        if len(given["ngram_indexes"].ints) < grams:
            return f"has {len(given['ngram_indexes'].ints)} 'ngram_indexes' for {grams} n-grams"
    return ""


def type_name(number: int) -> str:
    """Return the name of an attribute type: `INTS`."""
    import onnx

    try:
        return onnx.AttributeProto.AttributeType.Name(number)
    except ValueError:
        return f"type {number}"


Form = tuple[str, str, str, int, int, tuple[int, ...], tuple[tuple[str, int], ...]]
"""The key under which verdicts are cached: operator, domain, overload, numbers of inputs and outputs, positions of
omitted inputs, names and types of attributes."""


class Operators:
    """Checks forms of nodes within one set of imports.

    Args:
        opsets: The version of each imported domain.
        functions: The local functions that nodes may call.
    """

    def __init__(self, opsets: Mapping[str, int], functions: Functions):
        self._opsets = opsets
        self._functions = functions

    def problem(self, form: Form) -> str:
        """Return the problem with nodes of this form; empty without one, or if the operator has no schema."""
        op_type, domain, overload, inputs, outputs, blanks, attributes = form
        names = [name for name, _ in attributes]
        if len(set(names)) < len(names):
            return f"has two attributes called '{next(name for name in names if names.count(name) > 1)}'"
        domain = "" if domain == "ai.onnx" else domain
        if not op_type:
            return "names no operator"
        function = self._functions.get((domain, op_type, overload))
        if function is not None:
            return self._call_problem(function, (domain, op_type, overload), inputs, outputs, blanks)
        version = self._opsets.get(domain)
        if version is None:
            where = f"domain '{domain}'" if domain else "the default domain"
            return f"is of {where}, which the model does not import"
        sig = find_signature(domain, op_type, version)
        if sig is None:
            return self._unknown(op_type, version) if domain == "" and not _is_vendors(op_type, names) else ""
        return _ports(sig, inputs, outputs, blanks) or _attributes(sig, dict(attributes))

    def _call_problem(self, function, key: Key, inputs: int, outputs: int, blanks: tuple[int, ...]) -> str:
        if inputs > len(function.input):
            return f"has {inputs} inputs; its function takes {len(function.input)}"
        if outputs > len(function.output):
            return f"has {outputs} outputs; its function gives {len(function.output)}"
        for index in (*blanks, *range(inputs, len(function.input))):
            if index in self._functions.needed[key]:
                return f"leaves out input '{function.input[index]}', which its function needs"
        return ""

    @staticmethod
    def _unknown(op_type: str, version: int) -> str:
        newer = find_signature("", op_type, None)
        if newer is not None:
            return f"is an operator of opset {newer.version} or later; the model imports opset {version}"
        near = near_misses(op_type, _default_operators(), most=1)
        return "is not an operator of ONNX" + (f" (did you mean {near[0]}?)" if near else "")


def _is_vendors(op_type: str, attributes: Collection[str]) -> bool:
    """Check whether an operator of the default domain that ONNX lacks looks like a vendor's, not like a misspelling.

    No operator of ONNX has an underscore in its name, and plugins of TensorRT have (`ROIAlign_TRT`), or the attribute
    that its parser reads. Whether a backend takes it is decided where nodes are placed.
    """
    return "_" in op_type or "plugin_version" in attributes


def _default_operators() -> Collection[str]:
    import onnx

    return {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}


def _ports(sig: Signature, inputs: int, outputs: int, blanks: tuple[int, ...]) -> str:
    if not sig.min_inputs <= inputs <= sig.max_inputs:
        return f"has {inputs} inputs; {sig.op_type} takes {_between(sig.min_inputs, sig.max_inputs)}"
    if not sig.min_outputs <= outputs <= sig.max_outputs:
        return f"has {outputs} outputs; {sig.op_type} gives {_between(sig.min_outputs, sig.max_outputs)}"
    for index in blanks:
        port = sig.input(index)
        if port is not None and not port.optional:  # several engines crash the process at a blank among variadic inputs
            return f"leaves out its input '{port.name}', which {sig.op_type} needs"
    return ""


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high > 1 << 20 else f"{low} to {high}"


_PROGRAM = "EPContext"
"""Operator of the programs of execution providers: each adds attributes of its own, and ONNX Runtime checks none."""


def _attributes(sig: Signature, given: dict[str, int]) -> str:
    for name, number in given.items():
        expected = sig.attribute_types.get(name)
        if expected is None and sig.op_type == _PROGRAM:
            continue
        if expected is None:
            near = near_misses(name, sig.attribute_types, most=1)
            return f"has an attribute '{name}', which {sig.op_type}-{sig.version} does not know" + (
                f" (did you mean '{near[0]}'?)" if near else ""
            )
        if number != expected:
            return f"has an attribute '{name}' of {type_name(number)}; {sig.op_type} wants {type_name(expected)}"
    missing = next((name for name in sorted(sig.required) if name not in given), None)
    return f"lacks the attribute '{missing}', which {sig.op_type} needs" if missing else ""


_DEEPEST = 8  # sequences of optionals of maps ...; real models have two levels


def type_problem(kind: onnx.TypeProto, needed: bool = False) -> str:
    """Return the problem with a declared type; empty if there is none.

    Negative extents, by which some exporters mean "unknown", are cleared.

    Args:
        kind: The type; empty if none is declared.
        needed: The type must be declared, as for inputs of the main graph.
    """
    which = kind.WhichOneof("value")
    for _ in range(_DEEPEST):
        if which is None:
            return "declares no type" if needed else ""
        inner = getattr(kind, which)
        if which in ("tensor_type", "sparse_tensor_type"):
            return _tensor_problem(inner, needed)
        if which == "map_type":
            if element_type(inner.key_type) is None:
                return f"declares a map with keys of an unknown type ({inner.key_type})"
            kind = inner.value_type
        elif which in ("sequence_type", "optional_type"):
            kind = inner.elem_type
        else:
            return f"declares a {which.removesuffix('_type')} type, which is not supported"
        which, needed = kind.WhichOneof("value"), True
    return f"declares a type nested deeper than {_DEEPEST} levels"


def _tensor_problem(kind: onnx.TypeProto.Tensor, needed: bool) -> str:
    number = kind.elem_type
    if element_type(number) is None:
        if number == 0:
            return "declares a tensor without an element type" if needed else ""
        return f"declares an element type that ONNX does not know ({number})"
    for dim in kind.shape.dim:
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
    return ""
