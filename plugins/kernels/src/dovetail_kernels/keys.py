"""Kernel keys: device, layout and element type, and which key a node requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FLOATS, dtype_name, promote

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_kernels.operator_files.entries import KeyCandidates, OperatorEntry


ANY = "any"
LAYOUTS = (ANY, "NCHW", "NHWC")
_INTEGERS = ("int8", "int16", "int32", "int64")
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_PADDLE_TYPES = {"float": "float32", "double": "float64"}


class KernelKey(NamedTuple):
    """Key that distinguishes the kernels of one operator.

    Attributes:
        device: The device, as in a backend file's `device:` entry.
        layout: `NCHW`, `NHWC` or `any`.
        type: Name of an element type; `any` if no tensor determines it.
    """

    device: str
    layout: str = ANY
    type: str = ANY

    def __str__(self) -> str:
        return f"<{self.device}, {self.layout}, {self.type}>"


def key_of(node: ir.Node, entry: OperatorEntry | None, device: str) -> KernelKey:
    """Return the key that a node requests.

    The type is that of the first of the entry's `data_type` candidates that is known (`x > y`), or their promoted type
    (`x, y`). Without candidates it follows from all inputs, and without inputs from the first output. Device and layout
    follow from their own candidates likewise, and default to the backend's device and `any`.

    Source: Paddle's lowering to kernels (`GetKernelKey` in pd_op_to_kernel_pass).

    Args:
        node: The node.
        entry: The operator's entry in an operator file; None without one.
        device: The device of the node's backend.
    """
    if entry is None or entry.kernel is None:
        return KernelKey(device, ANY, _promoted(map(_type, node.inputs)) or _result_type(node))
    kernel, reader = entry.kernel, _Reader(node, entry)
    wanted = reader.decide(kernel.data_type, reader.type) or _promoted(map(_type, node.inputs)) or _result_type(node)
    forced = reader.attribute(kernel.force_backend) if kernel.force_backend else ""
    place = forced or reader.decide(kernel.backend, reader.word) or device
    layout = reader.decide(kernel.layout, reader.word).upper()
    return KernelKey(place.lower(), layout if layout in LAYOUTS else ANY, wanted)


def wider_types(name: str) -> tuple[str, ...]:
    """Return the element types that hold all values of `name`, nearest first: `float32`, `float64` for `float16`."""
    if name in FLOATS:
        return tuple(other for other in FLOATS if other in FLOATS[name] and other != name)
    if name in _INTEGERS:
        return _INTEGERS[_INTEGERS.index(name) + 1 :]
    return ()


class _Reader:
    """Resolves the candidates of an entry for one node."""

    def __init__(self, node: ir.Node, entry: OperatorEntry):
        self._node = node
        self._ports = {arg.name: index for index, arg in enumerate(entry.inputs)}
        self._defaults = {arg.name: arg.default for arg in entry.attributes if arg.has_default}

    def decide(self, candidates: KeyCandidates, read: Callable[[str], str]) -> str:
        known = [found for found in map(read, candidates.names) if found]
        if not known:
            return ""
        return known[0] if candidates.ordered else _promoted(known)

    def type(self, name: str) -> str:
        """Return the element type of a candidate; empty if unknown."""
        if name.startswith("complex(") and name.endswith(")"):
            inner = self.type(name[len("complex(") : -1].strip())
            return _COMPLEX.get(inner, inner)
        if name in self._ports:
            index = self._ports[name]
            return _type(self._node.inputs[index]) if index < len(self._node.inputs) else ""
        found = self.word(name).lower()
        return _PADDLE_TYPES.get(found, found)

    def word(self, name: str) -> str:
        """Return the value of a literal (`DataLayout::NHWC`) or an attribute; empty if it is not definite."""
        found = name.rpartition("::")[2] if "::" in name else self.attribute(name)
        return "" if found.upper() in ("", "ANY", "UNDEFINED", "ALL_LAYOUT") else found

    def attribute(self, name: str) -> str:
        given = self._node.attributes.get(name)
        found = self._defaults.get(name) if given is None else given.value
        return str(found) if isinstance(found, str) else ""


def _type(value: ir.Value | None) -> str:
    return dtype_name(value.dtype) if value is not None and value.dtype is not None else ""


def _result_type(node: ir.Node) -> str:
    return next(filter(None, map(_type, node.outputs)), ANY)


def _promoted(names: Iterable[str]) -> str:
    """Return the promoted type of `names`: floats win over integers, wider types over narrower ones."""
    found = [name for name in names if name]
    if floats := [name for name in found if name in FLOATS]:
        return promote(*floats)
    integers = [name for name in found if name in _INTEGERS]
    if integers:
        return max(integers, key=_INTEGERS.index)
    return found[0] if found else ""


DOMAIN = "kernel"
"""Domain prefix of lowered nodes, before the operator's domain: `kernel.acme`."""

KERNEL, KEY = "kernel_name", "kernel_key"
"""Attributes of lowered nodes: the name of the kernel, and its key as text."""

TO_DEVICE, TO_HOST = "CopyToDevice", "CopyToHost"
"""Operators of this domain that copy a value between host and device memory."""

DEVICE = "device"
"""Attribute of the copies: the name of the device."""

HOST_DEVICE = "cpu"
"""Name of the host's device."""

ENGINE = "kernels"
"""Name of the engine."""


def is_lowered(node: ir.Node) -> bool:
    """Check whether a node is lowered to a kernel."""
    return node.domain == DOMAIN or node.domain.startswith(f"{DOMAIN}.")


def is_copy(node: ir.Node) -> bool:
    """Check whether a node copies a value to a device or back."""
    return node.domain == DOMAIN and node.op_type in (TO_DEVICE, TO_HOST)


def operator_of(node: ir.Node) -> tuple[str, str]:
    """Return the domain and name of the operator that was lowered to a kernel."""
    return node.domain.removeprefix(DOMAIN).removeprefix("."), node.op_type
