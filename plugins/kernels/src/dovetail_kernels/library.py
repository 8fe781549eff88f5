"""Library of all registered kernels, and the choice of a kernel for a node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import from_name, is_onnx
from dovetail.plugin.loading import calling
from dovetail.text import did_you_mean

from dovetail_kernels.kernel import DeviceMemory, Kernel
from dovetail_kernels.keys import (
    ANY,
    DEVICE,
    DOMAIN,
    HOST_DEVICE,
    KERNEL,
    KEY,
    LAYOUTS,
    TO_DEVICE,
    TO_HOST,
    KernelKey,
    key_of,
    wider_types,
)
from dovetail_kernels.operator_files.entries import OperatorArgument
from dovetail_kernels.operator_files.library import OperatorLibrary, UncomparedRegistry, library_of
from dovetail_kernels.operator_files.opening import register
from dovetail_kernels.operator_files.schemas import tensor_types

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.plugin import Registry
    from dovetail.plugin.loading import Registration

    from dovetail_kernels.operator_files.entries import OperatorEntry


@dataclass(frozen=True)
class RegisteredKernel:
    """A kernel with its registered name.

    Attributes:
        name: Its registered name.
        title: Name and distribution, for messages.
        kernel: The kernel.
    """

    name: str
    title: str
    kernel: Kernel


@dataclass(frozen=True)
class RegisteredMemory:
    """Memory of a device, with the device's name.

    Attributes:
        device: The device.
        title: Device and distribution, for messages.
        memory: Copies values to the device and back.
    """

    device: str
    title: str
    memory: DeviceMemory


@dataclass(frozen=True)
class KernelChoice:
    """Kernel chosen for a node.

    Attributes:
        registered: The kernel.
        key: The key with which it runs.
        wanted: The key that the node requests.
    """

    registered: RegisteredKernel
    key: KernelKey
    wanted: KernelKey

    @property
    def fallback(self) -> str:
        """Differences between the kernel and the node's request, with reasons; empty if there are none."""
        parts = []
        if self.key.device != self.wanted.device:
            parts.append(f"computes on {self.key.device}, as {self.wanted.device} has no kernel for it")
        if self.key.type != self.wanted.type:
            parts.append(f"computes in {self.key.type}, as there is no kernel for {self.wanted.type}")
        if self.wanted.layout not in (ANY, self.key.layout) and self.key.layout != ANY:
            parts.append(f"computes in {self.key.layout}, as there is no kernel for {self.wanted.layout}")
        return "; ".join(parts)


@dataclass(frozen=True)
class KernelLibrary:
    """Kernels by the function that they implement.

    Attributes:
        kernels: The kernels by function.
        operators: The contents of operator files.
        memories: Memories by device.
    """

    operators: OperatorLibrary
    kernels: dict[str, list[RegisteredKernel]] = field(default_factory=dict)
    memories: dict[str, RegisteredMemory] = field(default_factory=dict)

    def entry(self, node: ir.Node) -> OperatorEntry | None:
        """Return the entry of a node's operator in an operator file; None without one."""
        found = self.operators.get(node.domain, node.op_type)
        return found.entry if found is not None else None

    def of(self, node: ir.Node) -> list[RegisteredKernel]:
        """Return the kernels that implement a node's operator; may be empty."""
        return self.kernels.get(function_of(node, self.entry(node)), []) if self.kernels else []

    def named(self, name: str) -> RegisteredKernel | None:
        """Return the kernel of a name, or None."""
        return next((one for those in self.kernels.values() for one in those if one.name == name), None)

    def nearest_device(self, node: ir.Node) -> str:
        """Return the host's device if it has a kernel for a node, else another device that has one."""
        devices = [one.kernel.device for one in self.of(node)]
        return HOST_DEVICE if HOST_DEVICE in devices or not devices else devices[0]

    def choose(self, node: ir.Node, device: str) -> KernelChoice:
        """Choose the kernel of a node: the first match by device, then type, then layout.

        Candidates are tried in this order: the requested device, then the host's; the requested type, then wider ones;
        the requested layout, `any`, then the other ones.

        Raises:
            DovetailError: No kernel matches.
        """
        wanted = key_of(node, self.entry(node), device)
        known = self.of(node)
        for key in _acceptable(wanted):
            for one in known:
                if _fits(one.kernel, key):
                    return KernelChoice(one, key, wanted)
        there = ", ".join(
            f"{one.name} <{one.kernel.device}, {one.kernel.layout}, {_types(one.kernel)}>" for one in known
        )
        who = f"node '{node.name}': no kernel of '{function_of(node, self.entry(node))}' computes {wanted}"
        raise DovetailError(
            f"{who}{f'; there are {there}' if there else ''}", "register one that does; see docs/kinds/running.md"
        )


def function_of(node: ir.Node, entry: OperatorEntry | None) -> str:
    """Return the function that implements a node, with its domain: the entry's kernel, else the operator itself."""
    name = node.op_type
    if entry is not None and entry.kernel is not None and entry.kernel.functions:
        dense = [func for func, kinds in entry.kernel.functions if not kinds or "dense" in kinds]
        name = (dense or [entry.kernel.functions[0][0]])[0]
    return name if is_onnx(node) else f"{node.domain}::{name}"


def kernels_of(registry: Registry) -> KernelLibrary:
    """Collect the registered kernels in a library; one that does not load is left out with a warning."""
    entries = (*registry.kernel.entries, *registry.operators.entries, *registry.device_memory.entries)
    return _library(entries, UncomparedRegistry(registry))


@lru_cache(maxsize=8)
def _library(entries: tuple[Registration, ...], ignored: UncomparedRegistry) -> KernelLibrary:
    registry = ignored.registry
    memories = {name: _memory(registry, name) for name in registry.device_memory}
    library = KernelLibrary(library_of(registry), memories=memories)
    for kernel in registry.kernel.usable(lambda name: _kernel(registry, name, memories)).values():
        library.kernels.setdefault(kernel.kernel.function, []).append(kernel)
    return library


def _kernel(registry: Registry, name: str, memories: Mapping[str, RegisteredMemory]) -> RegisteredKernel:
    """Load a kernel.

    Raises:
        DovetailError: It cannot be loaded, or violates its contract.
    """
    made, title = registry.kernel[name], registry.kernel.title(name)
    if not isinstance(made, type) or not issubclass(made, Kernel):
        raise DovetailError(f"{title} is not a class based on dovetail_kernels.Kernel", "see docs/kinds/running.md")
    with calling(title):
        kernel = made()
    _check(kernel, title, memories)
    return RegisteredKernel(name, title, kernel)


def _memory(registry: Registry, device: str) -> RegisteredMemory:
    """Load the memory of a device.

    Raises:
        DovetailError: It cannot be loaded, or violates its contract.
    """
    made, title = registry.device_memory[device], registry.device_memory.title(device)
    if not isinstance(made, type) or not issubclass(made, DeviceMemory):
        problem = f"{title} is not a class based on dovetail_kernels.DeviceMemory"
        raise DovetailError(problem, "see docs/kinds/running.md")
    with calling(title):
        return RegisteredMemory(device, title, made())


def _check(kernel: Kernel, title: str, memories: Collection[str]) -> None:
    """Check that a kernel's key is well-formed.

    Raises:
        DovetailError: The key is malformed.
    """
    if not isinstance(vars(type(kernel)).get("function"), str) or not kernel.function:
        raise DovetailError(
            f"{title} has no `function`", "name the operator that it computes: function = 'acme::scale'"
        )
    if kernel.in_device_memory and kernel.device not in memories:
        near = did_you_mean(kernel.device, memories)
        raise DovetailError(
            f"{title} computes in the memory of '{kernel.device}', which no distribution brings{near}",
            f'registry.device_memory("{kernel.device}", "module:Class") does',
        )
    if kernel.layout not in LAYOUTS:
        near = did_you_mean(str(kernel.layout), LAYOUTS)
        raise DovetailError(f"{title}: there is no layout {kernel.layout!r}{near}", f"layouts are {', '.join(LAYOUTS)}")
    for one in kernel.types:
        try:
            from_name(one)
        except KeyError:
            raise DovetailError(
                f"{title}: there is no element type {one!r}", "types are called as float32, int8"
            ) from None


def _acceptable(wanted: KernelKey) -> Iterator[KernelKey]:
    """Yield the keys that satisfy a node's request, best first."""
    layouts = dict.fromkeys((wanted.layout, *LAYOUTS))
    for device in dict.fromkeys((wanted.device, HOST_DEVICE)):
        for type_ in (wanted.type, *wider_types(wanted.type)):
            for layout in layouts:
                yield KernelKey(device, layout, type_)


def _fits(kernel: Kernel, key: KernelKey) -> bool:
    return (
        kernel.device == key.device and kernel.layout == key.layout and (not kernel.types or key.type in kernel.types)
    )


def _types(kernel: Kernel) -> str:
    return "/".join(kernel.types) or ANY


def register_schemas(registry: Registry) -> None:
    """Register the schemas of operators, of their lowered forms, and of device copies with onnx.

    Raises:
        DovetailError: An operator file is invalid, or two distributions define the same operator.
    """
    library = library_of(registry)
    register([*(one.schema for one in library.definitions.values()), *_lowered(library)])
    if len(registry.device_memory):
        register(_copies())


@lru_cache(maxsize=8)
def _lowered(library: OperatorLibrary) -> tuple[onnx.defs.OpSchema, ...]:
    more = (OperatorArgument(KERNEL, "str"), OperatorArgument(KEY, "str"))
    found = library.definitions.items()
    return tuple(
        one.in_domain(f"{DOMAIN}.{domain}", more) for (domain, _), one in found if one.entry.kernel is not None
    )


@lru_cache(maxsize=1)
def _copies() -> tuple[onnx.defs.OpSchema, ...]:
    """Return the schemas of copies to a device and back; the result has the input's type and shape."""
    import onnx

    def same(context: Any) -> None:
        context.set_output_type(0, context.get_input_type(0))

    made, port = [], onnx.defs.OpSchema.FormalParameter
    types = ("T", tensor_types(), "any tensor")
    device = onnx.defs.OpSchema.Attribute(DEVICE, onnx.defs.OpSchema.AttrType.STRING, required=True)
    for name in (TO_DEVICE, TO_HOST):
        schema = onnx.defs.OpSchema(
            name, DOMAIN, 1, inputs=[port("x", "T")], outputs=[port("out", "T")], type_constraints=[types],
            attributes=[device],
        )  # fmt: skip
        schema.set_type_and_shape_inference_function(same)
        made.append(schema)
    return tuple(made)
