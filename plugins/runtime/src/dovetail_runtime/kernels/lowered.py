"""Nodes that have their kernel: their domain, and the attributes that say which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


DOMAIN = "kernel"
"""The domain of nodes that have their kernel; that of the operator follows: `kernel.acme`."""

KERNEL, KEY = "kernel_name", "kernel_key"
"""Attributes of such a node: the name of the kernel, and its key as text."""

TO_DEVICE, TO_HOST = "CopyToDevice", "CopyToHost"
"""Operators of the domain that copy a value between the host and the memory of a device."""

DEVICE = "device"
"""Their attribute: the name of the device."""

HOST_DEVICE = "cpu"
"""The device of the host."""

ENGINE = "kernels"
"""The name of the engine."""


def is_lowered(node: ir.Node) -> bool:
    """Whether a node has its kernel."""
    return node.domain == DOMAIN or node.domain.startswith(f"{DOMAIN}.")


def is_copy(node: ir.Node) -> bool:
    """Whether a node copies a value to a device or back."""
    return node.domain == DOMAIN and node.op_type in (TO_DEVICE, TO_HOST)


def operator_of(node: ir.Node) -> tuple[str, str]:
    """Domain and name of the operator that a node with a kernel was."""
    return node.domain.removeprefix(DOMAIN).removeprefix("."), node.op_type
