"""Transcription of a legacy operator to a `pd_op` operator.

`OpTranscriber` only follows names: `op_compat.yaml` maps legacy names of arguments, and `pd_ops.yaml` defines their
order. Operators that need more override single steps (see `special`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.errors import DovetailError

from dovetail_paddle.element_types import of_number
from dovetail_paddle.legacy.program import Attribute, LegacyOp, VariableRef
from dovetail_paddle.pd_graph import BUILTIN, PdGraphs, TensorInfo, attribute
from dovetail_paddle.signatures import OpArgument, OpSignature, operators

if TYPE_CHECKING:
    import onnx_ir as ir


_FILE = Path(__file__).parent.parent / "op_compat.yaml"
_NAMES = re.compile(r"(\w+)\s*(?:\((\w+)\))?\s*")
_KEYS = frozenset(("op", "backward", "inputs", "outputs", "attrs", "scalar", "int_array", "extra"))
_FORM_KEYS = frozenset(("data_type", "tensor_name", "tensors_name", "support_tensor"))


@dataclass(frozen=True)
class TensorForm:
    """Inputs of a legacy operator that supply an attribute as tensors.

    Attributes:
        tensor: The input with a single tensor; empty without one.
        tensors: The input with a list of single-element tensors; empty without one.
    """

    tensor: str = ""
    tensors: str = ""


@dataclass(frozen=True)
class Compat:
    """Mapping of a legacy operator and its arguments to `pd_op`.

    Attributes:
        op: The operator of `pd_op`.
        legacy: The legacy operator.
        inputs: Legacy names of inputs by new name.
        outputs: Legacy names of outputs by new name.
        attrs: Legacy names of attributes by new name.
        tensor_forms: Tensors that supply attributes, by new name.
    """

    op: str
    legacy: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)
    tensor_forms: Mapping[str, TensorForm] = field(default_factory=dict)


@cache
def compat() -> Mapping[str, Compat]:
    """Return the entries of `op_compat.yaml` by legacy operator."""
    return read_compat(_FILE)


def read_compat(path: Path) -> dict[str, Compat]:
    """Read a compatibility file.

    Raises:
        ValueError: An entry is malformed; names it.
    """
    import yaml

    entries = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found: dict[str, Compat] = {}
    for entry in entries:
        made = _entry(entry)
        if made.legacy in found:
            raise ValueError(f"{path.name}: legacy operator '{made.legacy}' has two entries")
        found[made.legacy] = made
    return found


def _entry(entry: Mapping[str, Any]) -> Compat:
    names = _NAMES.fullmatch(entry["op"])
    if names is None:
        raise ValueError(f"op : {entry['op']!r} is not `name` or `name (legacy name)`")
    if unknown := sorted(set(entry) - _KEYS):
        raise ValueError(f"op : {entry['op']}: unknown keys {', '.join(unknown)}")
    forms = {}
    for name, form in {**entry.get("scalar", {}), **entry.get("int_array", {})}.items():
        if unknown := sorted(set(form) - _FORM_KEYS):
            raise ValueError(f"op : {entry['op']}: '{name}' has unknown keys {', '.join(unknown)}")
        forms[name] = TensorForm(form.get("tensor_name", ""), form.get("tensors_name", ""))
    inputs, outputs, attrs = (dict(entry.get(key) or {}) for key in ("inputs", "outputs", "attrs"))
    return Compat(names[1], names[2] or names[1], inputs, outputs, attrs, forms)


class Scope(Protocol):
    """The block that is being translated."""

    graphs: PdGraphs

    def get(self, name: str, op: LegacyOp) -> ir.Value:
        """Return the current value of a variable, which must exist."""

    def find(self, name: str) -> ir.Value | None:
        """Return the current value of a variable, or None."""

    def set(self, name: str, value: ir.Value) -> None:
        """Bind a variable to another value."""

    def info(self, name: str) -> TensorInfo:
        """Return the declared type of a variable."""

    def append(self, node: ir.Node) -> ir.Node:
        """Append a node to the block's graph."""

    def refuse(self, op: LegacyOp, problem: str) -> DovetailError:
        """Create the error for a malformed operator."""


class OpTranscriber:
    """Transcription of one operator; subclasses override the steps in which their operator differs.

    Args:
        entry: The names of the operator.
    """

    also_reads: tuple[str, ...] = ()
    """Inputs that a step reads and the entry does not list."""

    def __init__(self, entry: Compat):
        self.entry = entry

    def transcribe(self, op: LegacyOp, scope: Scope) -> None:
        """Append the transcription of `op`, and record its results."""
        self.check_inputs(op, scope)
        operator = self.operator(op, scope)
        operands = [self.operand(argument, op, scope) for argument in operator.operands]
        attributes = {}
        for argument in operator.attributes:
            value = self.attribute(argument, op, scope)
            if value is not None:
                attributes[argument.name] = self.made_attribute(argument, value, op, scope)
        node = self.create(operator, operands, attributes, op, scope)
        self.record(operator, node, op, scope)

    def check_inputs(self, op: LegacyOp, scope: Scope) -> None:
        """Check that no input or fusion is ignored, which would silently change the result."""
        arguments = operators()[self.entry.op].argument
        forms = [form for name, form in self.entry.tensor_forms.items() if arguments[name].is_operand]
        known = {
            *self.also_reads,
            *self.entry.inputs.values(),
            *(name for form in forms for name in (form.tensor, form.tensors)),
        }
        known.update(
            name for name, argument in arguments.items() if argument.is_tensor and name not in self.entry.inputs
        )
        for name, given in op.inputs.items():
            if given and name not in known and name not in self.entry.inputs:
                raise scope.refuse(op, f"has an input '{name}' that is not supported")
        for name, value in op.attributes.items():
            if name.startswith("fuse") and value and name != "fuse_brelu_threshold":
                raise scope.refuse(op, f"does the work of others, too ('{name}'): export it without optimization")

    def operator(self, op: LegacyOp, scope: Scope) -> OpSignature:
        """Look up the operator."""
        return operators()[self.entry.op]

    def operand(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Return the operand for an argument: an input, or an attribute that became one."""
        if not argument.is_tensor:
            return self.attribute_as_input(argument, op, scope)
        names = op.inputs.get(self.entry.inputs.get(argument.name, argument.name), [])
        if argument.is_list:
            return combine([scope.get(name, op) for name in names], op, scope) if names else None
        if len(names) > 1:
            raise scope.refuse(op, f"has {len(names)} tensors as '{argument.name}', which is one")
        if not names and not argument.optional:
            raise scope.refuse(op, f"has no input '{argument.name}'")
        return scope.get(names[0], op) if names else None

    def attribute_as_input(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Return the operand for an attribute that may be a tensor: the given tensors, else a constant."""
        form = self.entry.tensor_forms.get(argument.name)
        if form is not None:
            names = op.inputs.get(form.tensor, []) if form.tensor else []
            if names:
                return scope.get(names[0], op)
            names = op.inputs.get(form.tensors, []) if form.tensors else []
            if names:
                return combine([scope.get(name, op) for name in names], op, scope)
        value = self.attribute(argument, op, scope)
        if isinstance(value, VariableRef):
            return scope.get(value.name, op)
        if isinstance(value, list) and value and all(isinstance(item, VariableRef) for item in value):
            return combine([scope.get(item.name, op) for item in value], op, scope)
        return None if value is None else constant(argument, value, op, scope)

    def attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Return the value of an attribute."""
        name = self.entry.attrs.get(argument.name, argument.name)
        if name in op.attributes:
            return op.attributes[name]
        return self.missing_attribute(argument, op, scope)

    def missing_attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Return the value of a missing attribute, as in programs of an older version."""
        return argument.default_value()

    def made_attribute(self, argument: OpArgument, value: Attribute, op: LegacyOp, scope: Scope) -> ir.Attr:
        """Create the attribute of the node; element types are names there, and numbers in legacy programs."""
        if argument.element == "dtype" and isinstance(value, int):
            value = of_number(value) or "undefined"
        if isinstance(value, list) != argument.is_array or isinstance(value, str) != (
            argument.element in ("str", "dtype")
        ):
            shown = "a list" if isinstance(value, list) else f"{value!r}"
            raise scope.refuse(op, f"has {shown} as attribute '{argument.name}', which is {argument.kind}")
        return attribute(argument.name, value, argument.element, argument.is_array)

    def create(
        self,
        operator: OpSignature,
        operands: Sequence[ir.Value | None],
        attributes: dict[str, ir.Attr],
        op: LegacyOp,
        scope: Scope,
    ) -> ir.Node:
        """Append the node."""
        results = []
        for output in operator.outputs:
            names = self.result_names(output.name, op)
            if output.is_list:
                dtype = scope.info(names[0]).dtype if names else ""
                results.append((f"{names[0]}.list" if names else output.name, TensorInfo(dtype, None, True)))
            else:
                results.append(
                    (names[0], scope.info(names[0])) if names else (f"{op.type}.{output.name}", TensorInfo())
                )
        return scope.append(scope.graphs.node(operator.name, operands, attributes, results, source=op.source))

    def result_names(self, output: str, op: LegacyOp) -> list[str]:
        """Return the variables that a result is written to."""
        return op.outputs.get(self.entry.outputs.get(output, output), [])

    def record(self, operator: OpSignature, node: ir.Node, op: LegacyOp, scope: Scope) -> None:
        """Bind the output variables to the results."""
        for output, value in zip(operator.outputs, node.outputs, strict=True):
            names = self.result_names(output.name, op)
            if output.is_list:
                split(value, names, op, scope)
            elif names:
                scope.set(names[0], value)


def combine(values: Sequence[ir.Value], op: LegacyOp, scope: Scope) -> ir.Value:
    """Combine values into a list."""
    dtype = TensorInfo("", None, True)
    node = scope.graphs.node("combine", values, {}, [(f"{op.type}.list", dtype)], domain=BUILTIN, source=op.source)
    return scope.append(node).outputs[0]


def split(value: ir.Value, names: Sequence[str], op: LegacyOp, scope: Scope) -> None:
    """Split a list into the values of variables."""
    if not names:
        return
    results = [(name, scope.info(name)) for name in names]
    node = scope.append(scope.graphs.node("split", [value], {}, results, domain=BUILTIN, source=op.source))
    for name, result in zip(names, node.outputs, strict=True):
        scope.set(name, result)


def constant(argument: OpArgument, value: Attribute, op: LegacyOp, scope: Scope) -> ir.Value:
    """Create a constant for an attribute that became an input."""
    import numpy as np

    if argument.is_array:
        items = value if isinstance(value, list) else [value]
        attributes = {"value": attribute("value", items, "int", True), "dtype": attribute("dtype", "int64")}
        info = TensorInfo("int64", (len(items),))
        node = scope.graphs.node("full_int_array", [], attributes, [(f"{op.type}.{argument.name}", info)])
        return scope.append(node).outputs[0]
    dtype = "float64" if argument.element == "float" else "bool" if argument.element == "bool" else "int64"
    try:
        array = np.array(value, dtype)
    except (TypeError, ValueError):
        raise scope.refuse(op, f"has {value!r} as attribute '{argument.name}', which is {argument.kind}") from None
    if array.shape:
        raise scope.refuse(op, f"has a list as attribute '{argument.name}', which is {argument.kind}")
    attributes = {
        "shape": attribute("shape", [], "int", True),
        "value": attribute("value", array),
        "dtype": attribute("dtype", dtype),
    }
    node = scope.graphs.node("full", [], attributes, [(f"{op.type}.{argument.name}", TensorInfo(dtype, ()))])
    return scope.append(node).outputs[0]
