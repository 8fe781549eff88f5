"""Sessions of `openvino-cpu`: compiled, thread-safe regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
from dovetail.errors import DovetailError
from dovetail.ir import bodies, input_of, name_of
from dovetail.plugin import Executed, RegionModel, TemporaryFolder
from dovetail_runtime import BFLOAT16, DOT_PRODUCTS, extract_body, has_bfloat16, saturates_dot_products

from dovetail_cpu_bf16.calls import Calls
from dovetail_cpu_bf16.inference_mode import IN_BFLOAT16
from dovetail_cpu_bf16.report import executed_precisions, refusal
from dovetail_cpu_bf16.session_start import Keepable
from dovetail_cpu_bf16.shape_checks import ShapeChecks

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.ir import Model


_ALONE = {"reported": "reported-alone"}


class OpenVinoSession(Keepable):
    """A region compiled by OpenVINO.

    Args:
        compiled: The compiled region.
        passed: The positions of outputs that are inputs, each with that of its input (`passed_inputs.py`).
        region: The region.
        configuration: OpenVINO's configuration that it was compiled with.
        engine: Its engine, for messages.
        write: Writes what was compiled for this session of a region to a file.
        load_body: Loads a body of the region as a separate region.
        saturates: Checks whether sums of 8-bit products of a region saturate without instructions for them.
        files: The files that it was compiled from.
        checks: Checks of input shapes; None if it needs none.
        plain: Loads the region without fused attention, for calls in which there are no keys.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        passed: Mapping[int, int],
        region: RegionModel,
        configuration: Mapping[str, object],
        engine: str,
        write: Callable[[OpenVinoSession, RegionModel, Path], None],
        load_body: Callable[[Model], OpenVinoSession],
        saturates: Callable[[Model], bool],
        files: TemporaryFolder | None = None,
        checks: ShapeChecks | None = None,
        plain: Callable[[], OpenVinoSession] | None = None,
    ):
        self._engine, self._write, self.configuration = engine, write, configuration
        self._checks = checks
        self._plain = plain if plain is None else cache(plain)
        self._compiled = compiled
        self._files = files  # OpenVINO maps the weights, so the files must outlive the session
        self._load_body, self._saturates = load_body, saturates
        self._model = region.model
        outputs = list(map(name_of, region.model.graph.outputs))
        if len(outputs) != len(compiled.outputs):
            raise DovetailError(f"{engine} gives {len(compiled.outputs)} outputs, the region has {len(outputs)}")
        self.calls = Calls(compiled, _input_names(compiled, region.model.graph, engine), outputs, passed)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe. The caller owns the results."""
        try:
            tensors = self.calls.tensors(inputs)
            if self._needs_plain(inputs):
                assert self._plain is not None
                return self._plain().run(inputs)
            return self.calls.run(tensors)
        except Exception as error:  # the binding raises RuntimeError and its own classes
            raise refusal(error, "fails at", self._model, self._engine) from error

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call over fixed arrays; see `dovetail_runtime.Bindable`."""
        if self._needs_plain(inputs):
            assert self._plain is not None
            return self._plain().bind(inputs, outputs)
        return self.calls.bind(inputs, outputs)

    def _needs_plain(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Check the shapes of the inputs, and whether the region has to run without fused attention."""
        given = [inputs[name] for name in self.calls.inputs]
        if self._checks is None or not self._checks.always and all(map(np.size, given)):
            return False
        return self._checks.check(tuple(map(np.shape, given))) and self._plain is not None

    @property
    def needs_keys(self) -> bool:
        """Whether it fuses attention, and so computes nothing where there are no keys."""
        return self._plain is not None

    def write(self, region: RegionModel, path: Path) -> None:
        """Write what OpenVINO compiled, as OpenVINO's `.xml` file with its `.bin`."""
        self._write(self, region, path)

    def needs(self, region: RegionModel) -> list[list[str]]:
        """Return groups of CPU instructions that the numbers depend on.

        bfloat16 counts where a kernel computes in it, and bodies, of which a region's kernels tell nothing, always.
        """
        found = []
        if IN_BFLOAT16.items() <= self.configuration.items() and has_bfloat16():
            kernels = executed_precisions(self._model, self._compiled.get_runtime_model())
            has_bodies = any(True for node in self._model.graph for _ in bodies(node))
            if has_bodies or any(how.precision == "bfloat16" for how in kernels.values()):
                found.append(sorted(BFLOAT16))
        if self.configuration["LP_TRANSFORMS_MODE"] and not saturates_dot_products() and self._saturates(region.model):
            found.append(sorted(DOT_PRODUCTS))
        return found

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed.

        OpenVINO does not report the bodies of loops and branches, so each is compiled again on its own.
        """
        answers = executed_precisions(self._model, self._compiled.get_runtime_model())
        for node in self._model.graph:
            for body in bodies(node):
                answers.update(self._executed_alone(body))
        return answers

    def _executed_alone(self, body: ir.Graph) -> dict[str, Executed]:
        try:
            inner = self._load_body(extract_body(self._model, body)).executed()
        except DovetailError:
            return {}
        return {name: Executed(precision, _ALONE.get(how, how)) for name, (precision, how) in inner.items()}


def _input_names(compiled: ov.CompiledModel, graph: ir.Graph, engine: str) -> list[str]:
    """Return the graph input of every input of the compiled model.

    OpenVINO removes unused inputs. An input that reaches an output through dropped operators only (such as Dropout) has
    only the name of that output, so it is traced back along first inputs.
    """
    wanted = {value.name for value in graph.inputs}
    produced = {output.name: node for node in graph for output in node.outputs}
    found = []
    for port in compiled.inputs:
        names = port.get_names()
        name = next((name for name in names if name in wanted), None) or next(iter(names), "")
        while name not in wanted:
            if name not in produced:
                raise DovetailError(f"{engine} has an input {sorted(names)} that the region does not have")
            name = name_of(input_of(produced[name], 0))
        found.append(name)
    return found
