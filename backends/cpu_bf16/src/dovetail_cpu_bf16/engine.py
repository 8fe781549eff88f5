"""The engine `openvino-cpu`: OpenVINO's CPU plugin."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.plugin import Availability, EngineError, Reads, RegionModel
from dovetail_runtime import TENSOR_TYPES, ConvertingEngine, engine_source, has_bfloat16

from dovetail_cpu_bf16.float32_marks import write_marked
from dovetail_cpu_bf16.frontend_input import prepare_for_frontend
from dovetail_cpu_bf16.inference_mode import IN_BFLOAT16, infer_in_bfloat16, is_mixed, widened
from dovetail_cpu_bf16.passed_inputs import leave_out, passed_inputs
from dovetail_cpu_bf16.report import refusal
from dovetail_cpu_bf16.session_start import counts_of
from dovetail_cpu_bf16.widening import ExactConstants, widen
from dovetail_cpu_bf16.workarounds import apply_workarounds

if TYPE_CHECKING:
    import openvino as ov
    from dovetail.ir import Model

    from dovetail_cpu_bf16.session import OpenVinoSession


# Products with weights of few bits and float inputs are computed as the file says. By default, the plugin rounds such
# inputs to int8: MatMulNBits loses 40 dB.
_CONFIGURATION = {"PERFORMANCE_HINT": "LATENCY", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_UNFUSED = {"SNIPPETS_MODE": "DISABLE"}
IN_FLOAT32: Mapping[str, object] = {"INFERENCE_PRECISION_HINT": "f32"}
_TYPES = TENSOR_TYPES - {"string"}
_CAVEAT = "no bfloat16 instructions on this CPU: bfloat16 parts are computed in float32"


class _Compiled(NamedTuple):
    """A compiled region, the configuration that it was compiled with, and whether attention in it may have no keys."""

    compiled: ov.CompiledModel
    configuration: Mapping[str, object]
    may_attend_to_nothing: bool


class OpenVinoCpu(ConvertingEngine):
    """OpenVINO's CPU plugin.

    A region with bfloat16 is compiled in OpenVINO's bfloat16 mode, with marks on the operations that the plan has in
    float32 (`inference_mode.py`). That mode rounds less than the types require: operators fused into a preceding
    product, with their constants, and all operators after the last product are computed in float32. If OpenVINO ignores
    a mark, and for regions without bfloat16, `INFERENCE_PRECISION_HINT=f32` computes every operator in its own type.

    OpenVINO computes int64 in 32 bits and float64 in float32. On a CPU without bfloat16 instructions a region with
    bfloat16 is computed in float32, so results there do not show the rounding of bfloat16.

    Calls from several threads run concurrently. A small model runs on its caller's thread; a large one uses all cores,
    shared between calls. `streams` partitions the cores among that many calls, which increases both throughput and
    latency.

    Options: `threads` (0: all cores), `streams` (0: one, for the lowest latency).
    """

    name, writes = "openvino-cpu", ".xml"
    reads = Reads(opset=26, ir_version=13, types=_TYPES)
    """Opset and types of OpenVINO's ONNX frontend; unsupported newer operators are rejected one by one.
    """
    spoils_sessions = True
    """A product whose operands do not fit fails from then on where they do."""

    def available(self) -> Availability:
        """Check whether OpenVINO is installed, with a caveat if the CPU has no bfloat16 instructions."""
        if importlib.util.find_spec("openvino") is None:
            return Availability(False, "openvino is not installed (pip install openvino)")
        return Availability(True, _CAVEAT if has_bfloat16() is False else "")

    def load(self, region: RegionModel, options: Mapping[str, object]) -> OpenVinoSession:
        """Compile a region.

        Raises:
            EngineError: OpenVINO rejects the region; names the node if OpenVINO does.
        """
        self._refuse_packed(region.model)
        return self._load(region, options, _CONFIGURATION)

    def _refuse_packed(self, region: Model) -> None:
        """Refuse inputs and outputs with less than a byte an element: OpenVINO's Python binding has no such tensors."""
        import onnx_ir as ir

        for value in (*region.graph.inputs, *region.graph.outputs):
            if value.dtype is None or value.dtype == ir.DataType.STRING or value.dtype.itemsize >= 1:
                continue
            node = value.producer() or next((use.node for use in value.uses()), None)
            why = f"its Python binding has no tensors of {value.dtype.name.lower()}, which '{value.name}' is"
            raise EngineError(f"{self.name} refuses the region: {why}", node=node.name or "" if node else "")

    def _load(
        self, region: RegionModel, options: Mapping[str, object], configuration: Mapping[str, object]
    ) -> OpenVinoSession:
        import openvino as ov

        from dovetail_cpu_bf16.session import OpenVinoSession
        from dovetail_cpu_bf16.shape_checks import ShapeChecks, loses_errors

        given, (region, files) = region, prepare_for_frontend(region)
        config: dict[str, object] = {**configuration, **counts_of(options)}
        config["LP_TRANSFORMS_MODE"] = self.computes_in_low_precision(region.model)
        passed: dict[int, int] = {}
        source = engine_source(region)
        try:
            made = self._compile(region.model, source, config, passed)
            while found := passed_inputs(made.compiled):
                passed |= found
                made = self._compile(region.model, source, config, passed)
        except Exception as error:  # the binding raises RuntimeError and its own classes
            raise refusal(error, "refuses", region.model, self.name) from error
        fuses = configuration is _CONFIGURATION and made.may_attend_to_nothing
        always, checks = loses_errors(made.compiled), None
        if always or fuses:
            checks = ShapeChecks(lambda: ov.Core().read_model(source), always)
        return OpenVinoSession(
            made.compiled,
            passed,
            region,
            made.configuration,
            self.name,
            self._write_loaded,
            lambda body: self.load(RegionModel(body), options),
            self.saturates,
            files,
            checks,
            (lambda: self._load(given, options, {**_CONFIGURATION, **_UNFUSED})) if fuses else None,
        )

    def _compile(
        self, region: Model, source: Path | bytes, config: Mapping[str, object], left_out: Collection[int]
    ) -> _Compiled:
        """Compile a region without the outputs at some positions, which stay as empty constants."""
        import openvino as ov

        from dovetail_cpu_bf16.shape_checks import may_attend_to_nothing

        def read() -> ov.Model:
            return leave_out(self.read(source, bool(config["LP_TRANSFORMS_MODE"])), left_out)

        model = read()
        attends = may_attend_to_nothing(model)
        if is_mixed(model):
            exact = ExactConstants.of(region)
            if has_bfloat16():
                lowered = {**config, **IN_BFLOAT16}
                compiled = infer_in_bfloat16(model, exact, lowered)
                if compiled is not None:
                    return _Compiled(compiled, lowered, attends)
                model = read()
            else:
                widen(model, exact, in_float32=True)
        config = {**config, **IN_FLOAT32}
        return _Compiled(ov.Core().compile_model(model, "CPU", config), config, attends)

    def _write_loaded(self, session: OpenVinoSession, region: RegionModel, path: Path) -> None:
        """Write what OpenVINO compiled for a session: the graph with all changes, as OpenVINO's file.

        With the configuration of the session, it computes bit by bit what the session computes. Operations that stay in
        float32 are marked.

        Args:
            session: A session of this engine.
            region: The region that it was loaded from.
            path: The `.xml` file to write.
        """
        region, files = prepare_for_frontend(region)  # `files` holds the weights while the model is written
        model = self.read(engine_source(region), self.computes_in_low_precision(region.model))
        leave_out(model, session.calls.passed)
        marked: list[ov.Node] = []
        if is_mixed(model):
            exact = ExactConstants.of(region.model)
            if IN_BFLOAT16.items() <= session.configuration.items():
                marked = widened(model, exact)
            elif not has_bfloat16():
                widen(model, exact, in_float32=True)
        write_marked(model, marked, path)
        del files

    def convert(self, region: RegionModel, path: Path, adapt: Callable[[Any], None]) -> None:
        """Write a region as OpenVINO's file.

        In a region with bfloat16, operations that the plan has in float32 are marked, for OpenVINO's bfloat16 mode, its
        default on CPUs with these instructions. Products cannot be marked: a region without bfloat16 is computed as
        planned with `INFERENCE_PRECISION_HINT=f32` where it is loaded. Inputs of products are not rounded to int8.

        Raises:
            EngineError: OpenVINO rejects the region; names the node if OpenVINO does.
        """
        region, files = prepare_for_frontend(region)  # `files` holds the weights while the model is written
        try:
            model = self.read(engine_source(region), self.computes_in_low_precision(region.model))
            marked = widened(model, ExactConstants.of(region.model)) if is_mixed(model) else []
            before = {operation.get_name() for operation in model.get_ops()}
            adapt(model)
            if marked:  # operations between inputs and the plan's operations move unrounded values
                marked += [one for one in model.get_ops() if one.get_name() not in before and _moves_floats(one)]
            model.set_rt_info("0", ["runtime_options", "DYNAMIC_QUANTIZATION_GROUP_SIZE"])
            model.set_rt_info("f32", ["runtime_options", "KV_CACHE_PRECISION"])
            write_marked(model, marked, path)
        except Exception as error:  # the binding raises RuntimeError and its own classes
            raise refusal(error, "refuses", region.model, self.name) from error
        del files

    def computes_in_low_precision(self, model: Model) -> bool:
        """Check whether to compile a region with OpenVINO's low-precision transformations; never, by default.

        They move 8-bit rounding across reductions, pooling and padding, which changes results.
        """
        return False

    def saturates(self, model: Model) -> bool:
        """Check whether low-precision transformations give a region sums that saturate without VNNI; by default not."""
        return False

    def read(self, source: Path | bytes, low_precision: bool) -> ov.Model:
        """Read a region's file, and apply the workarounds to its graph.

        Args:
            source: The file, or its content.
            low_precision: Whether it is compiled with OpenVINO's low-precision transformations.
        """
        import openvino as ov

        model = ov.Core().read_model(source)
        apply_workarounds(model, low_precision=low_precision)
        return model


def _moves_floats(operation: ov.Node) -> bool:
    return operation.get_type_name() == "Gather" and operation.get_output_element_type(0).get_type_name() == "f32"
