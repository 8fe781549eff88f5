"""Transcribers of operators that deviate from their entry in `op_compat.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dovetail_paddle.element_types import of_number
from dovetail_paddle.legacy.program import Attribute, LegacyOp
from dovetail_paddle.pd_graph import TensorInfo, attribute
from dovetail_paddle.signatures import OpArgument, OpSignature, operators
from dovetail_paddle.translate.transcriber import OpTranscriber, Scope

if TYPE_CHECKING:
    import onnx_ir as ir


class Elementwise(OpTranscriber):
    """Binary arithmetic; `axis` aligns the extents of Y with those of X."""

    def operand(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Reshape Y if its extents are not aligned with the last ones of X."""
        value = super().operand(argument, op, scope)
        axis = op.attributes.get("axis", -1)
        if argument.name != "y" or value is None or not isinstance(axis, int) or axis < 0:
            return value
        x, y = (scope.info(op.input(name) or "").shape for name in ("X", "Y"))
        if x is None or y is None:
            return value
        after = len(x) - axis - len(y)
        if after <= 0:
            return value
        form = self.constant_list(op, [0] * len(y) + [1] * after, scope)
        info = TensorInfo(scope.info(op.input("Y") or "").dtype, (*y, *[1] * after))
        node = scope.graphs.node("reshape", [value, form], {}, [(f"{value.name}.aligned", info)], source=op.source)
        return scope.append(node).outputs[0]

    @staticmethod
    def constant_list(op: LegacyOp, items: list[int], scope: Scope) -> ir.Value:
        """Create a constant integer list."""
        attributes = {"value": attribute("value", items, "int", True), "dtype": attribute("dtype", "int64")}
        results = [(f"{op.type}.shape", TensorInfo("int64", (len(items),)))]
        return scope.append(scope.graphs.node("full_int_array", [], attributes, results)).outputs[0]


class AllAxesReduction(OpTranscriber):
    """Reductions over all axes: an attribute in legacy programs, an empty axis list in `pd_op`."""

    def attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Return no axes if all are reduced, and a type only if it differs."""
        if argument.name == "axis" and op.attributes.get("reduce_all"):
            return []
        value = super().attribute(argument, op, scope)
        if argument.name == "axis" and isinstance(value, int):
            return [value]
        if argument.element == "dtype" and isinstance(value, int):
            return of_number(value) or "undefined"
        return value


class Split(OpTranscriber):
    """`split`, which is another operator for equal parts than for given extents."""

    def operator(self, op: LegacyOp, scope: Scope) -> OpSignature:
        """Select the operator by its arguments."""
        number = op.attributes.get("num", 0)
        by_number = number and not op.attributes.get("sections") and not op.inputs.get("SectionsTensorList")
        return operators()["split_with_num" if by_number else "split"]

    def missing_attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Default to the first axis."""
        return 0 if argument.name == "axis" else super().missing_attribute(argument, op, scope)


class FillConstant(OpTranscriber):
    """Constants; the value is text if a float cannot represent it."""

    def transcribe(self, op: LegacyOp, scope: Scope) -> None:
        """Create `full`, or `full_with_tensor` if shape or value is computed."""
        import numpy as np

        from dovetail_paddle.element_types import element_type

        forms = self.entry.tensor_forms
        dtype = _dtype(op)
        names = op.outputs.get("Out", [])
        text = cast("str | float", op.attributes.get("str_value") or op.attributes.get("value", 0.0))
        try:
            number = float(text) if "float" in dtype or not _is_integer(text) else int(text)
        except (TypeError, ValueError):
            raise scope.refuse(op, f"has {text!r} as its value, which is no number") from None
        array = np.array(number).astype(element_type(dtype).numpy())
        computed = any(op.inputs.get(name) for form in forms.values() for name in (form.tensor, form.tensors) if name)
        shape = op.attributes.get("shape", [])
        attributes = {"dtype": attribute("dtype", dtype)}
        results = [(name, scope.info(name)) for name in names[:1]]
        if not computed:
            attributes["shape"] = attribute("shape", shape, "int", True)
            attributes["value"] = attribute("value", array)
            node = scope.graphs.node("full", [], attributes, results, source=op.source)
        else:
            arguments = operators()["full_with_tensor"].argument
            extents = self.attribute_as_input(arguments["shape"], op, scope)
            given = op.inputs.get("ValueTensor", [])
            if given:
                value = scope.get(given[0], op)
            else:
                constant = {
                    "shape": attribute("shape", [], "int", True),
                    "value": attribute("value", array),
                    "dtype": attribute("dtype", dtype),
                }
                made = scope.graphs.node("full", [], constant, [(f"{names[0]}.value", TensorInfo(dtype, ()))])
                value = scope.append(made).outputs[0]
            node = scope.graphs.node("full_with_tensor", [value, extents], attributes, results, source=op.source)
        scope.set(names[0], scope.append(node).outputs[0])


def _dtype(op: LegacyOp) -> str:
    return of_number(cast("int", op.attributes.get("dtype", 5))) or "float32"


def _is_integer(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.lstrip("+-").isdigit())


class AssignValue(OpTranscriber):
    """Constants with several elements; older programs have one attribute per element type."""

    _FIELDS = ("values", "fp32_values", "fp64_values", "int32_values", "int64_values", "bool_values", "int8_values")

    def made_attribute(self, argument: OpArgument, value: Attribute, op: LegacyOp, scope: Scope) -> ir.Attr:
        """Store the elements as a tensor, which is exact."""
        import numpy as np

        from dovetail_paddle.element_types import element_type

        if argument.name != "values":
            return super().made_attribute(argument, value, op, scope)
        dtype = element_type(_dtype(op))
        return attribute("values", np.array(value, dtype.numpy()))

    def missing_attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Return the elements from the attribute that has some."""
        if argument.name != "values":
            return super().missing_attribute(argument, op, scope)
        return next((found for name in self._FIELDS if (found := op.attributes.get(name))), [])


class SetValue(OpTranscriber):
    """Writes to a slice; with a tensor, this is another operator."""

    also_reads = ("ValueTensor",)

    def operator(self, op: LegacyOp, scope: Scope) -> OpSignature:
        """Select the operator by its arguments."""
        return operators()["set_value_with_tensor" if op.inputs.get("ValueTensor") else "set_value"]

    def operand(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Return the tensor to write."""
        if argument.name == "values":
            return scope.get(op.inputs["ValueTensor"][0], op)
        return super().operand(argument, op, scope)


class TrilTriu(OpTranscriber):
    """`tril_triu`, which covers both triangles."""

    def operator(self, op: LegacyOp, scope: Scope) -> OpSignature:
        """Select the operator by the attribute."""
        return operators()["tril" if op.attributes.get("lower", True) else "triu"]


class ArrayWrite(OpTranscriber):
    """Writes to an array: the array is an operand, created if it has not been written yet."""

    def operand(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Return the array as an operand; legacy programs only list it as an output."""
        if argument.name != "array":
            return super().operand(argument, op, scope)
        name = op.outputs["Out"][0]
        found = scope.find(name)
        return found if found is not None else new_array(name, scope)

    def create(self, operator, operands, attributes, op, scope):
        """Create a node whose result is a whole array."""
        name = op.outputs["Out"][0]
        info = TensorInfo(scope.info(name).dtype, None, True)
        return scope.append(scope.graphs.node(operator.name, operands, {}, [(name, info)], source=op.source))

    def record(self, operator, node, op, scope):
        """Bind the variable to the array."""
        scope.set(op.outputs["Out"][0], node.outputs[0])


class OfArray(OpTranscriber):
    """Operators on whole arrays, which are lists already."""

    def operand(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> ir.Value | None:
        """Return the array unchanged."""
        if argument.is_list:
            name = op.input(self.entry.inputs.get(argument.name, argument.name))
            found = scope.find(name) if name else None
            return found if found is not None or name is None else new_array(name, scope)
        return super().operand(argument, op, scope)


def new_array(name: str, scope: Scope) -> ir.Value:
    """Create an empty array for a variable."""
    info = TensorInfo(scope.info(name).dtype, None, True)
    attributes = {"dtype": attribute("dtype", info.dtype or "float32")}
    value = scope.append(scope.graphs.node("create_array", [], attributes, [(name, info)])).outputs[0]
    scope.set(name, value)
    return value


class Assign(OpTranscriber):
    """Assignments, which bind a variable to another one's value without a computation."""

    def transcribe(self, op: LegacyOp, scope: Scope) -> None:
        """Record the value without an operator, because SSA form needs no copy."""
        name = op.input("X")
        if name is None or not op.outputs.get("Out"):
            raise scope.refuse(op, "has no input or no output")
        scope.set(op.outputs["Out"][0], scope.get(name, op))


class Arange(OpTranscriber):
    """Ranges of the result's declared type."""

    def missing_attribute(self, argument: OpArgument, op: LegacyOp, scope: Scope) -> Attribute | None:
        """Return the type of the result."""
        if argument.name == "dtype":
            return scope.info(op.outputs["Out"][0]).dtype
        return super().missing_attribute(argument, op, scope)


_ELEMENTWISE = ("add", "sub", "mul", "div", "max", "min", "mod", "floordiv", "pow", "fmax", "fmin")

SPECIAL: dict[str, type[OpTranscriber]] = {
    **{f"elementwise_{name}": Elementwise for name in _ELEMENTWISE},
    **dict.fromkeys(("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"), Elementwise),
    **{
        f"reduce_{name}": AllAxesReduction
        for name in ("sum", "mean", "max", "min", "prod", "any", "all", "amax", "amin")
    },
    "frobenius_norm": AllAxesReduction,
    "logsumexp": AllAxesReduction,
    "split": Split,
    "fill_constant": FillConstant,
    "assign_value": AssignValue,
    "set_value": SetValue,
    "tril_triu": TrilTriu,
    "write_to_array": ArrayWrite,
    "read_from_array": OfArray,
    "lod_array_length": OfArray,
    "tensor_array_to_tensor": OfArray,
    "assign": Assign,
    "range": Arange,
}
"""Transcribers by legacy operator; others use `OpTranscriber`."""
