"""Check nodes against the schemas of their operators: known operator, numbers of ports, attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dovetail.suggestions import near_misses

from dovetail_onnx.signatures import Signature, find
from dovetail_onnx.source.attributes import type_name

if TYPE_CHECKING:
    from dovetail_onnx.source.functions import Functions, Key


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
        """Return what is wrong with nodes of this form; empty if nothing is, or the operator has no schema."""
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
        sig = find(domain, op_type, version)
        if sig is None:
            return self._unknown(op_type, version) if domain == "" else ""
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
        newer = find("", op_type, None)
        if newer is not None:
            return f"is an operator of opset {newer.version} or later; the model imports opset {version}"
        near = near_misses(op_type, _default_operators(), most=1)
        return "is not an operator of ONNX" + (f" (did you mean {near[0]}?)" if near else "")


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
        if port is not None and not port.optional and not port.variadic:
            return f"leaves out its input '{port.name}', which {sig.op_type} needs"
    return ""


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high > 1 << 20 else f"{low} to {high}"


def _attributes(sig: Signature, given: dict[str, int]) -> str:
    for name, number in given.items():
        expected = sig.attribute_types.get(name)
        if expected is None:
            near = near_misses(name, sig.attribute_types, most=1)
            return f"has an attribute '{name}', which {sig.op_type}-{sig.version} does not know" + (
                f" (did you mean '{near[0]}'?)" if near else ""
            )
        if number != expected:
            return f"has an attribute '{name}' of {type_name(number)}; {sig.op_type} wants {type_name(expected)}"
    missing = next((name for name in sorted(sig.required) if name not in given), None)
    return f"lacks the attribute '{missing}', which {sig.op_type} needs" if missing else ""
