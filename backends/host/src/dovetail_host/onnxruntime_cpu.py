"""The engine `onnxruntime-cpu`: ONNX Runtime with its CPU execution provider, and the base class for others."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, RegionModel, Session, TemporaryFolder
from dovetail_onnx import new_session, onnx_runtime
from dovetail_runtime import (
    DOT_PRODUCTS,
    NOT_REPORTED,
    TENSOR_TYPES,
    follow_fusions,
    node_key,
    saturates_dot_products,
    type_name,
)

from dovetail_host.calls import Calls, ForeignType
from dovetail_host.misread import TRANSPOSE_OPTIMIZER, misread_by_transpose_optimizer
from dovetail_host.session_settings import entries_of, settings_of
from dovetail_host.session_source import source_of
from dovetail_host.session_start import Keepable, SessionSettings
from dovetail_host.unsigned_weights import saturates

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort


CPU = "CPUExecutionProvider"
"""ONNX Runtime's name of its CPU provider."""
# From opset 21 on, it inserts an int8 QuantizeLinear with a uint8 zero point after a DequantizeLinear (1.31).
_FAULTY_OPTIMIZER = "QDQPropagationTransformer"
# It makes one pair of two QuantizeLinear and DequantizeLinear with different scales, so that results differ (1.32).
_INEXACT_OPTIMIZER = "DoubleQDQPairsRemover"
# Its kernel of the fused operator takes ten times as long as an Add and a LayerNormalization: 5 % of a BERT-base in
# float32, 15 % in int8 (1.32).
_SLOW_OPTIMIZER = "SkipLayerNormFusion"
# Setting of a session that has to be on for `get_provider_graph_assignment_info`, and the version that has both.
_REPORTS_ASSIGNMENTS = (1, 24)
_NODE = re.compile(r"node with name '([^']*)'|[Nn]ode \(([^)]*)\)|Node:\s*(\S+)|node_name:\s*(\S+)|Name:'([^']*)'")
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


class OnnxRuntimeCpu(Engine):
    """ONNX Runtime's CPU provider.

    It computes most float16 operators in float32 between its own casts, and bfloat16, for which it has no arithmetic,
    in float32 between our casts. Hence the declared types are not the executed ones, and `executed()` only reports
    profiled types. Results are rounded to the low type nevertheless (`emulated.py`). On x86 CPUs without VNNI, where
    sums of uint8 times int8 saturate, weights are held in uint8 (`unsigned_weights.py`).

    Options: `threads` (0: all cores), `optimize` (`none`, `basic`, `extended`, `all`), `profile` (true: `executed()`
    reports the kernels of the runs so far), `spin` (false: threads stop spinning when a run ends, and in small regions
    they never do), `share_weights` (true: the session reads weights in place, so they must not change, and threads do
    not spin; for regions that run only a few times),
    `session_options` (an `onnxruntime.SessionOptions` to use, with its own settings), `disabled_optimizers` (names).

    Attributes:
        providers: ONNX Runtime's execution providers, in order of preference.
        device: The device of the first one, as `session.layer_assignment_settings` names it.
        way_out: What to do where they do not start.
    """

    name = "onnxruntime-cpu"
    reads = Reads(opset=26, ir_version=13, types=TENSOR_TYPES)
    """Opset and types that ONNX Runtime 1.31 accepts."""
    providers: tuple[str, ...] = (CPU,)
    device = "cpu"
    way_out = ""

    def available(self) -> Availability:
        """Check whether ONNX Runtime is installed."""
        if importlib.util.find_spec("onnxruntime") is None:
            return Availability(False, "onnxruntime is not installed (pip install onnxruntime)")
        return Availability(True)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Load a region.

        Raises:
            EngineError: ONNX Runtime rejects the region; names the node if ONNX Runtime does.
        """
        ort = onnx_runtime()
        waits = bool(options.get("share_weights")) or _does_little(region)
        settings, level = settings_of(options, self.name, records_assignments=self.providers != (CPU,), waits=waits)
        profile = TemporaryFolder("profile") if options.get("profile") else None
        if profile:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(profile.path / "ort")
        graph = region.model.graph
        for value in (*graph.inputs, *graph.outputs):
            # Types of two or four bits pack several elements per byte, which NumPy arrays cannot.
            if value.dtype is not None and value.dtype.name != "STRING" and value.dtype.bitwidth < 8:
                raise DovetailError(f"{self.name} has no array for '{value.name}' of type {type_name(value.dtype)}")
        self._demand(ort.get_available_providers())
        on_cpu = self.providers == (CPU,)
        made_of = source_of(region, on_cpu, share=bool(options.get("share_weights")), fuses=level != "none")
        weights = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in made_of.arrays.items()}
        if weights:
            settings.add_external_initializers(list(weights), list(weights.values()))
        source = made_of.content if isinstance(made_of.content, bytes) else str(made_of.content)
        without = [*made_of.kept, *[_SLOW_OPTIMIZER, _INEXACT_OPTIMIZER] * on_cpu]
        if misread := misread_by_transpose_optimizer(region.model):
            # It runs again for every provider.
            without += [TRANSPOSE_OPTIMIZER, *(f"{TRANSPOSE_OPTIMIZER}_{name}" for name in self.providers)]
        kept = None
        if not made_of.arrays and profile is None and level == "all":
            kept = SessionSettings(entries_of(options, not on_cpu, waits), tuple(self.providers), tuple(without))
        without += cast("Sequence[str]", options.get("disabled_optimizers", ()))
        try:
            session = new_session(source, settings, self.providers, without)
        except Exception as error:  # the binding's exceptions share no base class below Exception
            refusal = _refusal(error, f"{self.name} refuses")
            if level == "none" or not _made_by_optimizer(refusal.node, region):
                raise refusal from error
            session, kept = self._with_fewer_optimizers(source, settings, without, refusal), None
        self._demand(session.get_providers())
        made = OnnxRuntimeSession(session, region, (profile, made_of.files, weights), self.name, kept)
        if misread and level != "none":
            made.notes = (f"its transpose optimizer is off, which would misread the axes of '{misread[0].name}'",)
        return made

    def _with_fewer_optimizers(
        self, source: bytes | str, settings: ort.SessionOptions, kept: Sequence[str], refusal: EngineError
    ) -> ort.InferenceSession:
        """Retry a region if ONNX Runtime rejects a node that one of its own optimizers inserted.

        Raises:
            EngineError: It rejects the region without optimizers, too.
        """
        ort = onnx_runtime()
        asked = settings.graph_optimization_level
        without = [*kept, _FAULTY_OPTIMIZER]
        try:
            for level in (asked, ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
                settings.graph_optimization_level = level
                try:
                    return new_session(source, settings, self.providers, without)
                except Exception as error:
                    refusal = _refusal(error, f"{self.name} refuses")
        finally:
            settings.graph_optimization_level = asked  # they may be the caller's
        raise refusal

    def _demand(self, there: Sequence[str]) -> None:
        """Check the execution providers: ONNX Runtime skips one that it cannot load with only a warning."""
        missing = [provider for provider in self.providers if provider not in there]
        if missing:
            raise DovetailError(f"{self.name}: ONNX Runtime could not start {', '.join(missing)}", self.way_out)


def _does_little(region: RegionModel) -> bool:
    """Check whether all results of a region together are so small that threads cannot share the work on them."""
    elements = 0
    for node in region.model.nodes():
        for value in node.outputs:
            if value.shape is None or not value.shape.is_static():
                return False
            elements += math.prod(value.shape.numpy())
            if elements > _LITTLE:
                return False
    return True


_LITTLE = 1 << 16  # elements


class OnnxRuntimeSession(Keepable):
    """A region loaded by ONNX Runtime."""

    def __init__(
        self,
        session: ort.InferenceSession,
        region: RegionModel,
        held: tuple[TemporaryFolder | None, TemporaryFolder | None, object],
        engine: str,
        settings: SessionSettings | None = None,
    ):
        self._session = session
        self.settings = settings
        self._engine = engine
        self._region = region
        # Keep alive the files and weights that the session reads.
        self._profile, self._files, self._weights = held
        self._reported: dict[str, tuple[str, str]] | None = None
        self._ending = threading.Lock()
        graph = region.model.graph
        self.foreign = {
            name_of(value): ForeignType(int(value.dtype), value.dtype.numpy().name)
            for value in (*graph.inputs, *graph.outputs)
            if value.dtype is not None and value.dtype.numpy().type.__module__ == "ml_dtypes"
        }
        self._calls = Calls(session, self.foreign)

    @property
    def native(self) -> ort.InferenceSession | None:
        """The session; None if it takes or gives types that NumPy lacks."""
        return None if self.foreign else self._session

    def write(self, region: RegionModel, folder: Path) -> Path | None:
        """Return the file of what was loaded, which is written if the region has none; None if it has several."""
        made_of = source_of(region, self._session.get_providers() == [CPU], share=False, fuses=True)
        if isinstance(made_of.content, bytes):
            path = folder / "region.onnx"
            path.write_bytes(made_of.content)
            return path
        return made_of.content if made_of.files is None else None

    def needs(self, region: RegionModel) -> list[list[str]]:
        """Return groups of CPU instructions that the numbers depend on: int8 weights were left as they are."""
        on_cpu = self._session.get_providers() == [CPU]
        return [sorted(DOT_PRODUCTS)] if on_cpu and not saturates_dot_products() and saturates(region.model) else []

    @property
    def joins_neighbors(self) -> bool:
        """Whether this is a session on the CPU alone, which reads no options of backends."""
        return self._session.get_providers() == [CPU]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe, like ONNX Runtime's sessions."""
        try:
            return self._calls.run(inputs)
        except Exception as error:
            raise _refusal(error, f"{self._engine} fails at") from error

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call over fixed arrays in the memory of the CPU; see `Bindable`."""
        return self._calls.bind(inputs, outputs)

    def executed(self) -> dict[str, Executed]:
        """Return the profiled kernels, and end the profile; without a profile, no precision is reported.

        `reported-on-cpu` marks nodes that a session of another provider ran on the CPU. ONNX Runtime reports that from
        1.24 on without a profile, too.
        """
        nodes = list(self._region.model.nodes())
        if self._profile is None:
            left = self._left_to_the_cpu()
            return {
                key: Executed("", "reported-on-cpu") if key in left else NOT_REPORTED for key in map(node_key, nodes)
            }
        with self._ending:  # a profile can be ended only once
            if self._reported is None:
                self._reported = _read_profile(Path(self._session.end_profiling()))
                self._profile.cleanup()
        answers = follow_fusions(nodes, {name: precision for name, (precision, _) in self._reported.items()})
        preferred = self._session.get_providers()[0]
        for name, (precision, provider) in self._reported.items():
            if provider != preferred and name in answers:
                answers[name] = Executed(precision, "reported-on-cpu")
        return answers

    def _left_to_the_cpu(self) -> set[str]:
        """Return the nodes that a session of another provider assigned to the CPU; empty before ONNX Runtime 1.24."""
        if self._session.get_providers()[0] == CPU or not _at_least(onnx_runtime().__version__, _REPORTS_ASSIGNMENTS):
            return set()
        parts = self._session.get_provider_graph_assignment_info()
        return {node.name for part in parts if part.ep_name == CPU for node in part.get_nodes()}


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= wanted


def _made_by_optimizer(name: str, region: RegionModel) -> bool:
    """Check whether an error names a node that is not in the region."""
    return bool(name) and all(name != node.name for node in region.model.nodes())


def _refusal(error: Exception, who_does_what: str) -> EngineError:
    text = _PREFIX.sub("", str(error).strip().split("\n")[0])
    found = _NODE.search(text)
    node = next(filter(None, found.groups()), "") if found else ""
    what = f"node '{node}'" if node else "the region"
    return EngineError(f"{who_does_what} {what}: {text}", node=node)


def _read_profile(path: Path) -> dict[str, tuple[str, str]]:
    """Return precision and provider of each node's kernel.

    The precision is the type of its first float input or output, else of its output.
    """
    import onnx_ir as ir

    reported = {}
    for event in json.loads(path.read_text()):
        args = event.get("args", {})
        if not event.get("name", "").endswith("_kernel_time") or "node_index" not in args:
            continue
        types = [key for port in (*args["input_type_shape"], *args["output_type_shape"]) for key in port]
        chosen = next((type_ for type_ in types if "float" in type_ or type_ == "double"), types[-1] if types else "")
        member = chosen.upper().replace("TENSOR(", "").rstrip(")")
        if member in ir.DataType.__members__:
            name = event["name"].removesuffix("_kernel_time")
            reported[name] = type_name(ir.DataType[member]), args.get("provider", CPU)
    return reported
