"""Values in the memory of a device, and the instructions that copy them there and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir.required import input_of, name_of
from dovetail.plugin import EngineError, Executed
from dovetail.plugin.isolation import described

from dovetail_runtime.kernels.lowered import DEVICE, TO_DEVICE
from dovetail_runtime.kernels.program import Environment, Instruction, fails

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_runtime.kernels.library import KernelLibrary, RegisteredMemory


@dataclass(frozen=True, eq=False, slots=True)
class DeviceValue:
    """A value in the memory of a device.

    Attributes:
        registered: The memory.
        buffer: What its kernels take.
    """

    registered: RegisteredMemory
    buffer: object


def uploaded(value: object, registered: RegisteredMemory, node: ir.Node) -> DeviceValue:
    """A value in the memory of a device; copied if it is an array, or in the memory of another one.

    Raises:
        EngineError: The memory fails.
    """
    if isinstance(value, DeviceValue) and value.registered is registered:
        return value
    array = downloaded(value, node)
    return DeviceValue(registered, _called(registered.memory.upload, array, registered, node))


def downloaded(value: object, node: ir.Node) -> object:
    """A value in the memory of the host; arrays stay as they are.

    Raises:
        EngineError: The memory fails, or gives no array.
    """
    if not isinstance(value, DeviceValue):
        return value
    registered = value.registered
    array = _called(registered.memory.download, value.buffer, registered, node)
    if not isinstance(array, np.ndarray):
        raise fails(node, f"{registered.title}: `download` gives {type(array).__name__}, and no array")
    return array


def device_copy(node: ir.Node, library: KernelLibrary) -> Instruction:
    """The instruction of a copy.

    Raises:
        EngineError: The device's memory is not installed.
    """
    device = node.attributes[DEVICE].as_string()
    registered = library.memories.get(device)
    if registered is None:
        error = fails(node, f"the memory of the device '{device}' is not installed")
        raise EngineError(
            error.message, "install the distribution that brings it, or compile the model again", node.name or ""
        )
    return _DeviceCopy(node, registered)


class _DeviceCopy(Instruction):
    """A copy to a device or back."""

    def __init__(self, node: ir.Node, registered: RegisteredMemory):
        self.node, self._registered = node, registered
        self.title, self.about = node.name or node.op_type, {"device": registered.device}
        self.reads, self.writes = (name_of(input_of(node, 0)),), (name_of(node.outputs[0]),)
        self.runs_on_constants = node.op_type == TO_DEVICE

    def run(self, values: Environment, dying: frozenset[str]) -> None:
        del dying
        (source,), (target,) = self.reads, self.writes
        if self.node.op_type == TO_DEVICE:
            values[target] = uploaded(values[source], self._registered, self.node)
        else:
            values[target] = downloaded(values[source], self.node)

    def executed(self) -> dict[str, Executed]:
        return {self.node.name or self.writes[0]: Executed("", "reported")}


def _called(function: Callable[[Any], object], value: object, registered: RegisteredMemory, node: ir.Node) -> object:
    try:
        return function(value)
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise fails(node, f"{registered.title} fails: {described(error)}") from error
