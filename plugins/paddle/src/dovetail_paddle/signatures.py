"""Signatures of `pd_op` operators from `pd_ops.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.plugin import Source
    from dovetail_kernels.operator_files.entries import OperatorEntry


_FILE = Path(__file__).parent / "pd_ops.yaml"


@dataclass(frozen=True)
class OpArgument:
    """An argument of an operator.

    Attributes:
        name: Its name.
        kind: Its type, such as `Tensor`, `int[]`, `IntArray`.
        default: Its default as parsed by the grammar; None without one.
        optional: Whether a tensor may be missing.
    """

    name: str
    kind: str
    default: Any = None
    optional: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of tensors."""
        return self.kind.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Whether it is a list of tensors."""
        return self.kind == "Tensor[]"

    @property
    def is_operand(self) -> bool:
        """Whether it is an operand: a tensor, or an attribute that may be a tensor."""
        return self.is_tensor or self.kind == "IntArray" or self.kind.startswith("Scalar(")

    @property
    def element(self) -> str:
        """Type of an attribute, or of its elements: `int`, `float`, `bool`, `str` or `dtype`."""
        kind = self.kind.removeprefix("Scalar(").removesuffix(")").removesuffix("[]")
        words = {"double": "float", "int64_t": "int", "IntArray": "int", "DataType": "dtype", "Scalar": "float"}
        return words.get(kind, kind)

    @property
    def is_array(self) -> bool:
        """Whether it is an attribute with several elements."""
        return self.kind == "IntArray" or (self.kind.endswith("[]") and not self.is_tensor)

    def default_value(self) -> bool | int | float | str | list | None:
        """Convert the default to a value; None without one."""
        if self.default is None:
            return None
        if self.is_array:
            return list(self.default)
        return self.default.removeprefix("DataType::").lower() if self.element == "dtype" else self.default


@dataclass(frozen=True)
class OpOutput:
    """A result of an operator.

    Attributes:
        name: Its name.
        is_list: Whether it is a list of tensors.
    """

    name: str
    is_list: bool = False


@dataclass(frozen=True)
class OpSignature:
    """The signature of an operator.

    Attributes:
        name: Its name.
        arguments: Its arguments in order.
        outputs: Its results in order.
    """

    name: str
    arguments: tuple[OpArgument, ...]
    outputs: tuple[OpOutput, ...]

    @cached_property
    def operands(self) -> tuple[OpArgument, ...]:
        """Tensors in order, then the attributes that may be tensors."""
        tensors = [argument for argument in self.arguments if argument.is_tensor]
        others = [argument for argument in self.arguments if argument.is_operand and not argument.is_tensor]
        return (*tensors, *others)

    @cached_property
    def attributes(self) -> tuple[OpArgument, ...]:
        """The arguments that can only be attributes."""
        return tuple(argument for argument in self.arguments if not argument.is_operand)

    @cached_property
    def operand_index(self) -> dict[str, int]:
        """Positions of operands by name."""
        return {argument.name: index for index, argument in enumerate(self.operands)}

    @cached_property
    def argument(self) -> dict[str, OpArgument]:
        """Arguments by name."""
        return {argument.name: argument for argument in self.arguments}


def plain_name(name: str) -> str:
    """Return the name of an operator without the `_` that marks its in-place form."""
    return name.removesuffix("_")


@cache
def operators() -> Mapping[str, OpSignature]:
    """Return the operators of `pd_ops.yaml` by name."""
    return read_signatures(_FILE)


def read_signatures(source: Source) -> dict[str, OpSignature]:
    """Read a file of operators.

    Raises:
        DovetailError: Entries are invalid; one line for each.
    """
    from dovetail_kernels.operator_files.reading import read_operators

    return {name: _operator(entry) for name, entry in read_operators(source, "pd_op").entries.items()}


def _operator(entry: OperatorEntry) -> OpSignature:
    arguments = tuple(
        OpArgument(
            argument.name,
            argument.type,
            argument.default if argument.has_default else None,
            argument.name in entry.optional,
        )
        for argument in entry.args
    )
    return OpSignature(entry.name, arguments, tuple(OpOutput(output.name, output.is_list) for output in entry.outputs))
