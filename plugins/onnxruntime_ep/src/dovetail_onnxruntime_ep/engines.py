"""Engines that run regions on an execution provider of ONNX Runtime, never on the CPU in its place."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, ClassVar

import dovetail.plugin
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, is_onnx
from dovetail_runtime import engine_source

from dovetail_onnxruntime_ep.context import compiled_context, sent
from dovetail_onnxruntime_ep.providers import IdleProcesses, Provider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx_ir as ir
    from dovetail.plugin import RegionModel

    from dovetail_onnxruntime_ep.providers import ProviderHost


TYPES = frozenset(
    {"float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool", "float64"}
)


class ProviderEngine(Engine):
    """Base class of engines for one provider; a vendor's own derives from it and sets `provider` and `name`.

    A region is loaded as a whole or refused: the error names all nodes that the provider would leave to the CPU. A
    region that an emitter compiled (`dovetail_onnxruntime_ep.context.ContextEmitter`) is loaded from its context.

    Attributes:
        provider: The provider.
        leaves_integers: Whether nodes that read no floats, such as arithmetic of shapes, may stay on the CPU within the
            session, as ONNX Runtime itself prefers it for GPUs; `executed()` reports them.
    """

    provider: ClassVar[Provider]
    leaves_integers: ClassVar[bool] = False
    loads_artifacts = True
    reads = Reads(opset=23, ir_version=11, types=TYPES)

    def __init__(self) -> None:
        self._idle = IdleProcesses()

    def available(self) -> Availability:
        """Return whether the provider may run here, from what is installed."""
        return self.provider.available()

    def devices(self) -> list[str]:
        """Return the devices of the provider here, as `gpu NVIDIA`.

        Raises:
            EngineError: It finds none, or does not load.
        """
        return self.provider.devices()

    def provider_options(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the provider's options for a region.

        Args:
            options: The user's engine options, and as `backend` the chosen options of the backend.
        """
        return dict(self.provider.options)

    def miscomputes(self, node: ir.Node) -> str:
        """Return why the provider computes a node wrongly, or fails when it runs it; empty if nothing is known."""
        return ""

    def load(self, region: RegionModel, options: Mapping[str, object]) -> ProviderSession:
        """Load a region on the provider.

        Raises:
            EngineError: The provider is not here, or refuses the region or some of its nodes.
        """
        host = self.provider.host(self.name, self._idle)
        if region.artifact is not None:
            names: list[str] = []
            stay: list[str] = []
            model, entries = compiled_context(region, self.name)
        else:
            region = _named(region)
            self._refuse_miscomputed(region)
            names, entries = [node.name for node in region.model.nodes() if node.name], {}
            stay = [node.name for node in region.model.nodes() if node.name and self._may_stay(node)]
            model = sent(engine_source(region))
        try:
            given = options.get("threads")
            loaded = host.load(
                provider=self.provider.name, library=self.provider.library, model=model,
                options=self.provider_options(options), entries=entries, names=names,
                threads=given if isinstance(given, int) else 0, stay=stay,
            )  # fmt: skip
        except EngineError:
            host.close()
            raise
        return ProviderSession(host, region, self.provider, int(loaded["nodes"]), loaded["left"])

    def _may_stay(self, node: ir.Node) -> bool:
        """Check whether a node may stay on the CPU: it reads no floats."""
        values = [value for value in node.inputs if value is not None]
        return self.leaves_integers and not any(each.dtype is None or each.dtype.is_floating_point() for each in values)

    def _refuse_miscomputed(self, region: RegionModel) -> None:
        """Check that a region has no node that the provider computes wrongly.

        Raises:
            EngineError: It has some; the error names them.
        """
        found = {node.name or "": why for node in region.model.nodes() if (why := self.miscomputes(node))}
        if found:
            name, why = next(iter(found.items()))
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise EngineError(f"{self.name}: node '{name}'{more}: {why}", nodes=list(found))


def _named(region: RegionModel) -> RegionModel:
    """Return a region whose nodes all have names: ONNX Runtime tells by them where each node is."""
    if all(node.name for node in region.model.nodes()):
        return region
    model = region.model.clone()
    known = {node.name for node in model.nodes()}
    fresh = (name for name in map("node_{}".format, itertools.count()) if name not in known)
    for node in model.nodes():
        node.name = node.name or next(fresh)
    return dataclasses.replace(region, model=model, path=None)


class ProviderSession(dovetail.plugin.Session):
    """A region on a provider. ONNX Runtime may be called from several threads.

    Args:
        host: What holds the session.
        region: The region.
        provider: The provider.
        nodes: The number of nodes that the provider reports as its own; 0 if it does not report.
        left: Names of nodes that stay on the CPU.
    """

    def __init__(self, host: ProviderHost, region: RegionModel, provider: Provider, nodes: int, left: Sequence[str]):
        self._host, self._left = host, left
        self._nodes = [node.name or "" for node in region.model.nodes()]
        self._outputs = [value.name or "" for value in region.model.graph.outputs]
        self.facts = {"provider": provider.name, "nodes": nodes} if nodes else {"provider": provider.name}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name.

        Raises:
            EngineError: The provider fails.
        """
        found = self._host.run(inputs)
        return {name: found[name] for name in self._outputs}

    def executed(self) -> dict[str, Executed]:
        """Return that nodes ran on the provider, but for those that stayed; in which precision, no provider reports."""
        found = dict.fromkeys(self._nodes, Executed("", "not-reported"))
        return {**found, **dict.fromkeys(self._left, Executed("", "reported-on-cpu"))}

    def close(self) -> None:
        """Release the session."""
        self._host.close()


class Qnn(ProviderEngine):
    """Qualcomm's HTP, or its emulator on x86."""

    name = "onnxruntime-ep-qnn"
    provider = Provider(
        "QNNExecutionProvider",
        "QNN",
        "onnxruntime_qnn",
        "onnxruntime-qnn",
        {"backend_path": "@get_qnn_htp_path"},
        crashes=True,
    )


class OpenVino(ProviderEngine):
    """Intel's CPU, GPU and NPU by OpenVINO."""

    name = "onnxruntime-ep-openvino"
    provider = Provider("OpenVINOExecutionProvider", "OPENVINO", "onnxruntime_ep_openvino", "onnxruntime-ep-openvino")


class WebGpu(ProviderEngine):
    """GPUs of NVIDIA, AMD, Intel and Apple by WebGPU."""

    name = "onnxruntime-ep-webgpu"
    provider = Provider(
        "WebGpuExecutionProvider", "WEBGPU", "onnxruntime_ep_webgpu", "onnxruntime-ep-webgpu",
        without_device="on Linux it needs a Vulkan driver; with ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 it takes Mesa's "
        "software Vulkan (mesa-vulkan-drivers 25.0 or newer), too",
    )  # fmt: skip
    leaves_integers = True
    reads = Reads(opset=21, ir_version=11, types=TYPES)
    """From opset 22 on it lacks the kernels of definitions that only got another element type."""

    def available(self) -> Availability:
        """Return whether there is a device, with what its sums are in as a caveat."""
        found = super().available()
        adds = "it adds float16 in float16, which gpu-fp16:accumulate=half expects"
        return Availability(True, "; ".join(filter(None, (found.why, adds)))) if found.ok else found

    def miscomputes(self, node: ir.Node) -> str:
        """Return why the provider computes a node wrongly (onnxruntime-ep-webgpu 0.4.0, in float32 and float16)."""
        if not is_onnx(node):
            return ""
        if node.op_type == "BatchNormalization":
            kinds = {value.dtype for value in node.inputs[:5] if value is not None}
            return "WebGPU fails on statistics of another type than the data" if len(kinds) > 1 else ""
        return _wrong_convolution(node) if node.op_type == "Conv" else ""


def _wrong_convolution(node: ir.Node) -> str:
    """Return why WebGPU's kernels compute a convolution wrongly; empty for one that they compute rightly.

    Measured over channels, filters, groups, windows and strides: filters are taken by fours, and channels by threes
    where their number is a multiple of three; that reads wrong elements beyond three channels. With groups, filters are
    taken by as many as divide their total, although those of one group may not be a multiple.
    """
    weight = node.inputs[1]
    if weight is None or weight.shape is None or not weight.shape.is_static() or len(weight.shape) > 4:
        return ""
    filters, channels, *window = weight.shape.numpy()
    groups = node.attributes.get_int("group", 1)
    if groups > 1:
        each, together = filters // groups, 4 if filters % 4 == 0 else 2 if filters % 2 == 0 else 1
        wrong = each >= 4 and each % together != 0
        return f"WebGPU computes groups of {each} filters of {filters} wrongly" if wrong else ""
    strides = node.attributes.get_ints("strides") or []
    if all(extent == 1 for extent in window) and all(stride == 1 for stride in strides):
        return ""
    wrong = channels > 3 and channels % 3 == 0 and channels % 4 != 0 and filters % 4 == 0
    return f"WebGPU computes {filters} filters over {channels} channels wrongly" if wrong else ""


class Cuda(ProviderEngine):
    """NVIDIA's GPUs by CUDA, in float32 without TF32."""

    name = "onnxruntime-ep-cuda"
    provider = Provider("CUDAExecutionProvider", "CUDA", "", "onnxruntime-gpu", {"use_tf32": "0"})
    leaves_integers = True


class NvTensorRtRtx(ProviderEngine):
    """NVIDIA's RTX GPUs by TensorRT for RTX."""

    name = "onnxruntime-ep-nv-tensorrt-rtx"
    provider = Provider(
        "NvTensorRTRTXExecutionProvider", "NV_TENSORRT_RTX", "onnxruntime_ep_nv_tensorrt_rtx",
        "onnxruntime-ep-nv-tensorrt-rtx",
    )  # fmt: skip


class Cann(ProviderEngine):
    """Huawei's Ascend."""

    name = "onnxruntime-ep-cann"
    provider = Provider("CANNExecutionProvider", "CANN", "", "onnxruntime-cann")


class CoreMl(ProviderEngine):
    """Apple's CPU, GPU and Neural Engine."""

    name = "onnxruntime-ep-coreml"
    provider = Provider("CoreMLExecutionProvider", "COREML", "", "onnxruntime (on macOS)")


class DirectMl(ProviderEngine):
    """GPUs on Windows by DirectML."""

    name = "onnxruntime-ep-directml"
    provider = Provider("DmlExecutionProvider", "DIRECTML", "", "onnxruntime-directml")


class MiGraphX(ProviderEngine):
    """AMD's GPUs."""

    name = "onnxruntime-ep-migraphx"
    provider = Provider("MIGraphXExecutionProvider", "MIGRAPHX", "", "onnxruntime-rocm")


class VitisAi(ProviderEngine):
    """AMD's NPUs."""

    name = "onnxruntime-ep-vitisai"
    provider = Provider("VitisAIExecutionProvider", "VITISAI", "", "onnxruntime-vitisai")
