"""The `layer-annotations` pass: placements as annotations that ONNX Runtime itself follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Pass
from dovetail.planning import get_placement

from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend, Registry

KEY = "layer_ann"
"""Metadata of a node that ONNX Runtime (1.32) matches with the setting; versions without it ignore both."""
SETTING = "session.layer_assignment_settings"


class LayerAnnotations(Pass):
    """Annotate every node with its backend, where ONNX Runtime runs backends on several devices.

    Given:  Conv on gpu-fp16, Softmax on host
    Result: Conv with layer_ann = gpu-fp16, Softmax with layer_ann = host

    To get the same placement from ONNX Runtime alone, open the saved model with one setting of the session, which a
    remark names: `session.layer_assignment_settings = "cuda(=gpu-fp16); cpu(=host)"`.
    """

    name = "layer-annotations"
    stage = "emit"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate the nodes; the graph itself does not change."""
        devices = {backend.name: device_of(backend, ctx.registry) for backend in (*ctx.backends, ctx.host)}
        if not set(devices.values()) - {"", "cpu"}:
            return False
        found = set()
        for node in model.nodes():
            placement = get_placement(node)
            if placement is not None and devices.get(placement.backend):
                node.metadata_props[KEY] = placement.backend
                found.add(placement.backend)
        if not found:
            return False
        text = "; ".join(f"{device}(={name})" for name, device in devices.items() if name in found)
        why = f"every node names its backend in '{KEY}': ONNX Runtime alone places them alike with {SETTING} = '{text}'"
        ctx.remark("analysis", "", "layer-annotations", why)
        return True


def device_of(backend: Backend, registry: Registry) -> str:
    """Return the device of a backend in ONNX Runtime's words, such as `cuda`; empty if another engine runs it."""
    for name in backend.engines:
        try:
            engine = registry.engine[name]
        except DovetailError:
            continue  # an engine that is not installed; loading the result reports it
        if isinstance(engine, type) and issubclass(engine, OnnxRuntimeCpu):
            return engine.device
        return ""
    return ""
