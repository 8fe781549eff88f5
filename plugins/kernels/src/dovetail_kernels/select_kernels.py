"""The `select-kernels` pass: lower nodes to kernels, with keys and the necessary conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, is_onnx
from dovetail.passes import Pass
from dovetail.planning import HOST, get_placement

from dovetail_kernels.keys import DOMAIN, ENGINE, HOST_DEVICE, KERNEL, KEY, is_lowered

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_kernels.library import KernelChoice, KernelLibrary


class SelectKernels(Pass):
    """Lower every node that has a kernel to it, with a key, and insert the necessary conversions.

    Given:  y = acme.scale <factor = 2.0> (x) on a backend whose engine is `kernels`, with %x in float16
    Result: %x/float32 = Cast(%x)
            %y/float32 = kernel.acme.scale <kernel_name = "acme-scale", kernel_key = "<cpu, any, float32>"> (%x/float32)
            y = Cast(%y/float32)

    A kernel that differs from the node's request, such as one in a wider type, leaves a remark.
    """

    name = "select-kernels"
    stage = "outline"
    before = ("form-regions",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Select kernels for all nodes on the host, or on a backend with the engine `kernels`.

        Raises:
            DovetailError: A node of such a backend has no kernel for its key.
        """
        if not len(ctx.registry.kernel):
            return False
        from dovetail_kernels.library import kernels_of

        library = kernels_of(ctx.registry)
        devices = {backend.name: backend.device for backend in ctx.backends if ENGINE in backend.engines}
        devices[HOST] = HOST_DEVICE

        def device_of(node: ir.Node) -> str | None:
            placement = get_placement(node)
            return devices.get(placement.backend if placement is not None else HOST)

        def said(node: ir.Node, choice: KernelChoice) -> None:
            why = f"{choice.registered.title} computes it, {choice.key}"
            if choice.fallback:
                ctx.remark("missed", node, "kernel-fallback", f"{why}: {choice.fallback}")
            else:
                ctx.remark("passed", node, "kernel", why)

        selected, transfers = lower_to_kernels(model, library, device_of, said)
        ctx.count("kernels selected", selected)
        ctx.count("conversions for kernels", transfers)
        return bool(selected)


def lower_to_kernels(
    model: Model,
    library: KernelLibrary,
    device_of: Callable[[ir.Node], str | None],
    said: Callable[[ir.Node, KernelChoice], None],
) -> tuple[int, int]:
    """Select kernels and insert conversions, in the graph and all bodies.

    Args:
        model: The model to change.
        library: The kernels.
        device_of: The device of a node's backend; None if it uses no kernels.
        said: Receives every choice.

    Returns:
        The number of lowered nodes, and of conversions.

    Raises:
        DovetailError: A node has no kernel for its key, and nothing else computes it.
    """
    from dovetail_kernels.transfers import Transfers

    functions = model.ir.functions
    chosen: list[tuple[ir.Node, KernelChoice]] = []
    problems: list[str] = []
    for node in model.nodes():
        device = device_of(node)
        if device is None or is_lowered(node) or node.op_identifier() in functions or not library.of(node):
            continue
        if is_onnx(node) and device == HOST_DEVICE:
            continue  # other engines of the host implement ONNX operators themselves
        try:
            chosen.append((node, library.choose(node, device)))
        except DovetailError as error:
            problems.append(error.message)
            hint = error.hint
    if problems:
        raise DovetailError("\n  ".join(problems), hint)
    if not chosen:
        return 0, 0
    transfers = Transfers(FreshNames.of(model.graph))
    imports = model.ir.opset_imports
    for node, choice in chosen:
        said(node, choice)
        entry = library.entry(node)
        transfers.around(node, entry, choice)
        _mark(node, choice)
        imports.setdefault(node.domain, 1)
        if choice.registered.kernel.in_device_memory:
            imports.setdefault(DOMAIN, 1)
    transfers.remove_unread()
    model.touch()
    return len(chosen), transfers.count


def _mark(node: ir.Node, choice: KernelChoice) -> None:
    import onnx_ir as ir

    node.domain = f"{DOMAIN}.{node.domain}" if node.domain else DOMAIN
    node.attributes[KERNEL] = ir.AttrString(KERNEL, choice.registered.name)
    node.attributes[KEY] = ir.AttrString(KEY, str(choice.key))
