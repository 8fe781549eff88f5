"""Sessions of the engine `kernels`, and the instruction that calls a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import input_of, name_of
from dovetail.plugin import EngineError, Executed, Session
from dovetail.plugin.loading import described, foreign_output
from dovetail_runtime.feeds import DeclaredValue, declared
from dovetail_runtime.program import Environment, Instruction, Program, fails, names_read

from dovetail_kernels.keys import DEVICE, KERNEL, KEY, TO_DEVICE, operator_of
from dovetail_kernels.library import KernelLibrary, RegisteredKernel, RegisteredMemory

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_kernels.operator_files.entries import OperatorEntry


@dataclass(frozen=True, eq=False, slots=True)
class DeviceValue:
    """A value in device memory.

    Attributes:
        registered: The device's memory.
        buffer: The buffer to pass to its kernels.
    """

    registered: RegisteredMemory
    buffer: object


def uploaded(value: object, registered: RegisteredMemory, node: ir.Node) -> DeviceValue:
    """Return a value in the memory of a device, copied from the host or from another device if necessary.

    Raises:
        EngineError: The memory fails.
    """
    if isinstance(value, DeviceValue) and value.registered is registered:
        return value
    array = downloaded(value, node)
    return DeviceValue(registered, _called(registered.memory.upload, array, registered, node))


def downloaded(value: object, node: ir.Node) -> object:
    """Return a value in host memory; arrays are returned unchanged.

    Raises:
        EngineError: The memory fails, or does not return an array.
    """
    if not isinstance(value, DeviceValue):
        return value
    registered = value.registered
    array = _called(registered.memory.download, value.buffer, registered, node)
    if not isinstance(array, np.ndarray):
        raise fails(node, f"{registered.title}: `download` gives {type(array).__name__}, and no array")
    return array


def device_copy(node: ir.Node, library: KernelLibrary) -> Instruction:
    """Create the instruction of a copy node.

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
    """Instruction that copies a value to a device or back."""

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


class KernelSession(Session):
    """A session that runs a region as a program."""

    def __init__(self, program: Program):
        self._program = program

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name."""
        given = {name: inputs[name] for name in self._program.inputs if name in inputs}
        return cast("dict[str, np.ndarray]", self._program.run(given))

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed: kernels compute in the type of their key."""
        return self._program.executed()


class _KernelCall(Instruction):
    """Instruction that computes a node with its kernel."""

    def __init__(
        self,
        node: ir.Node,
        registered: RegisteredKernel,
        key: str,
        entry: OperatorEntry | None,
        memory: RegisteredMemory | None,
    ):
        self.node, self._registered, self._key, self._memory = node, registered, key, memory
        # Region outputs must be host arrays, wherever the next region runs.
        self._leaving = {value.name for value in node.outputs if value.is_graph_output()}
        self._inputs = tuple(value.name if value is not None else "" for value in node.inputs)
        self._declared = [declared(value) for value in node.outputs]
        self._attributes = _attributes(node, entry)
        self.title, self.about = node.name or registered.name, {"kernel": registered.name, "key": key}
        self.reads = names_read(node)
        self.writes = tuple(value.name for value in node.outputs if value.name)
        self._overwritten = _overwritten(node, entry)

    def run(self, values: Environment, dying: frozenset[str]) -> None:
        given = [self._given(values[name]) if name else None for name in self._inputs]
        kernel = self._registered.kernel
        in_place = bool(self._overwritten) and self._overwritten <= dying and all(map(_is_alone, self._mine(values)))
        try:
            with foreign_output(self._registered.title):
                made = (kernel.run_in_place if in_place else kernel.run)(given, self._attributes)
            # A result that is not iterable is the only output; the check below rejects one that is not an array.
            results = list(made) if isinstance(made, Iterable) and not isinstance(made, (np.ndarray, str)) else [made]
        except (DovetailError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise fails(self.node, f"{self._who} fails: {described(error)}") from error
        if len(results) < len(self._declared):
            raise fails(self.node, f"{self._who} gives {len(results)} of {len(self._declared)} outputs")
        for expected, result in zip(self._declared, results, strict=False):
            if expected.name and self._memory is not None:
                kept = DeviceValue(self._memory, result)
                leaves = expected.name in self._leaving
                values[expected.name] = self._checked(expected, downloaded(kept, self.node)) if leaves else kept
            elif expected.name:
                array = self._checked(expected, result)
                # A kernel that returns its input aliases it, so neither may be overwritten in place later.
                shared = not in_place and any(array is one for one in given)
                values[expected.name] = array.view() if shared else array

    def executed(self) -> dict[str, Executed]:
        type_ = self._key.strip("<>").rpartition(", ")[2]
        return {self.node.name or self.writes[0]: Executed("" if type_ == "any" else type_, "reported")}

    def _given(self, value: object) -> Any:
        """Return a kernel argument: an array, or a buffer of the kernel's device."""
        if self._memory is not None:
            return uploaded(value, self._memory, self.node).buffer
        return downloaded(value, self.node)

    def _mine(self, values: Environment) -> list[object]:
        return [values[name] for name in self._overwritten]

    @property
    def _who(self) -> str:
        return f"{self._registered.title} {self._key}"

    def _checked(self, expected: DeclaredValue, result: object) -> np.ndarray:
        """Check an output against the declared type and shape, and return it as an array.

        Raises:
            EngineError: The type or shape differs.
        """
        if not isinstance(result, (np.ndarray, np.generic)):
            raise fails(self.node, f"{self._who} gives {type(result).__name__} for '{expected.name}', and no array")
        array = np.asarray(result)
        if not expected.has_type_of(array):
            text = f"gives '{expected.name}' as {array.dtype.name}, the model declares {expected.type}"
            raise fails(self.node, f"{self._who} {text}")
        if not expected.has_shape(array.shape):
            text = f"gives '{expected.name}' the shape {list(array.shape)}, the model declares {expected.shape}"
            raise fails(self.node, f"{self._who} {text}")
        return array


def _is_alone(array: object) -> bool:
    """Check whether an array owns its memory and is writable."""
    return isinstance(array, np.ndarray) and array.base is None and array.flags.writeable


def kernel_call(node: ir.Node, library: KernelLibrary) -> Instruction:
    """Create the instruction of a node lowered to a kernel.

    Raises:
        EngineError: The kernel is not installed.
    """
    name, key = node.attributes[KERNEL].as_string(), node.attributes[KEY].as_string()
    registered = library.named(name)
    domain, operator = operator_of(node)
    if registered is None:
        error = fails(node, f"the kernel '{name}' of '{domain}::{operator}' is not installed")
        raise EngineError(
            error.message, "install the distribution that brings it, or compile the model again", node.name or ""
        )
    found, kernel = library.operators.get(domain, operator), registered.kernel
    memory = library.memories[kernel.device] if kernel.in_device_memory else None
    return _KernelCall(node, registered, key, found.entry if found is not None else None, memory)


def _attributes(node: ir.Node, entry: OperatorEntry | None) -> dict[str, object]:
    """Return all attributes by name, with defaults from the entry."""
    given = {name: attribute.value for name, attribute in node.attributes.items() if name not in (KERNEL, KEY)}
    defaults = {arg.name: arg.default for arg in entry.attributes if arg.has_default} if entry is not None else {}
    return {**defaults, **given}


def _overwritten(node: ir.Node, entry: OperatorEntry | None) -> frozenset[str]:
    """Return the inputs that the entry allows a kernel to overwrite; empty if one is a constant."""
    if entry is None or not entry.inplace:
        return frozenset()
    ports = {arg.name: index for index, arg in enumerate(entry.inputs)}
    indices = [ports[name] for name, _ in entry.inplace if name in ports and ports[name] < len(node.inputs)]
    values = [value for index in indices if (value := node.inputs[index]) is not None]
    return frozenset(map(name_of, values)) if len(values) == len(indices) else frozenset()
