"""Engines that run regions on an execution provider of ONNX Runtime, never on the CPU in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import dovetail.plugin
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads
from dovetail_runtime import engine_source

from dovetail_onnxruntime_ep.context import compiled_context, sent
from dovetail_onnxruntime_ep.providers import Provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from dovetail.plugin import RegionModel

    from dovetail_onnxruntime_ep.providers import Host


TYPES = frozenset(
    {"float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool", "float64"}
)


class ProviderEngine(Engine):
    """Base class of engines for one provider; a vendor's own derives from it and sets `provider` and `name`.

    A region is loaded as a whole or refused: the error names all nodes that the provider would leave to the CPU. A
    region that an emitter compiled (`dovetail_onnxruntime_ep.context.ContextEmitter`) is loaded from its context.

    Attributes:
        provider: The provider.
    """

    provider: ClassVar[Provider]
    loads_artifacts = True
    reads = Reads(opset=23, ir_version=11, types=TYPES)

    def available(self) -> Availability:
        """Return whether the provider may run here, from what is installed."""
        return self.provider.available()

    def provider_options(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the provider's options for a region.

        Args:
            options: The user's engine options, and as `backend` the chosen options of the backend.
        """
        return dict(self.provider.options)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> ProviderSession:
        """Load a region on the provider.

        Raises:
            EngineError: The provider is not here, or refuses the region or some of its nodes.
        """
        host = self.provider.host(self.name)
        if region.artifact is not None:
            names: list[str] = []
            model, entries = compiled_context(region, self.name)
        else:
            names, entries = [node.name for node in region.model.nodes() if node.name], {}
            model = sent(engine_source(region))
        try:
            given = options.get("threads")
            loaded = host.ask(
                "load", provider=self.provider.name, library=self.provider.library, model=model,
                options=self.provider_options(options), entries=entries, names=names,
                threads=given if isinstance(given, int) else 0,
            )  # fmt: skip
        except EngineError:
            host.close()
            raise
        return ProviderSession(host, loaded["number"], region, self.provider, int(loaded["nodes"]))


class ProviderSession(dovetail.plugin.Session):
    """A region on a provider. ONNX Runtime may be called from several threads.

    Args:
        host: What holds the session.
        number: Its number there.
        region: The region.
        provider: The provider.
        nodes: The number of nodes that the provider reports as its own; 0 if it does not report.
    """

    def __init__(self, host: Host, number: int, region: RegionModel, provider: Provider, nodes: int):
        self._host, self._number, self._title = host, number, provider.name
        self._nodes = [node.name or "" for node in region.model.nodes()]
        self._outputs = [value.name or "" for value in region.model.graph.outputs]
        self.facts = {"provider": provider.name, "nodes": nodes} if nodes else {"provider": provider.name}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name.

        Raises:
            EngineError: The provider fails.
        """
        try:
            found = self._host.ask("run", number=self._number, inputs=dict(inputs))
        except EngineError:
            raise
        except Exception as error:  # of the binding
            raise EngineError(f"{self._title} fails: {error}") from error
        return {name: found[name] for name in self._outputs}

    def executed(self) -> dict[str, Executed]:
        """Return that every node ran on the provider; in which precision, no provider reports."""
        return dict.fromkeys(self._nodes, Executed("", "not-reported"))

    def close(self) -> None:
        """Release the session."""
        self._host.close()


class Qnn(ProviderEngine):
    """Qualcomm's HTP, or its emulator on x86."""

    name = "onnxruntime-ep-qnn"
    provider = Provider(
        "QNNExecutionProvider", "QNN", "onnxruntime_qnn", "onnxruntime-qnn", {"backend_path": "@get_qnn_htp_path"}
    )


class OpenVino(ProviderEngine):
    """Intel's CPU, GPU and NPU by OpenVINO."""

    name = "onnxruntime-ep-openvino"
    provider = Provider("OpenVINOExecutionProvider", "OPENVINO", "onnxruntime_ep_openvino", "onnxruntime-ep-openvino")


class WebGpu(ProviderEngine):
    """GPUs of NVIDIA, AMD, Intel and Apple by WebGPU."""

    name = "onnxruntime-ep-webgpu"
    provider = Provider("WebGpuExecutionProvider", "WEBGPU", "onnxruntime_ep_webgpu", "onnxruntime-ep-webgpu")


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
