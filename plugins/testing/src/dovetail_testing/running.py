"""The double run: a case on its reference and compiled for a backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
import numpy as np
from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice
from dovetail.planning import HOST
from dovetail.plugin.loading import described, load_chosen, use_file
from dovetail_runtime.data.batches import fitted

from dovetail_testing.case import Case, CaseMeasurement, PreparedCase, Reference
from dovetail_testing.comparing import ValueDifference, compared, narrow_outputs, rounded_inputs
from dovetail_testing.lone_nodes import LoneNodes

if TYPE_CHECKING:
    import onnx
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel, PluginSet


RECORDED = "the recorded results"
_AGREES = 1e-3  # relative to the largest value, the tolerance of onnx's own runner of these tests


def references_of(model: onnx.ModelProto | Path) -> tuple[Reference, ...]:
    """Return references that run an ONNX model without Dovetail: ONNX Runtime, then the onnx reference."""
    return (
        Reference("ONNX Runtime", _once(lambda: _on_onnxruntime(model))),
        Reference("the onnx reference", _once(lambda: _on_onnx(model))),
    )


def host_reference(model: Model, plugins: PluginSet) -> Reference:
    """Return Dovetail's host engines as a reference, for models that no other tool reads."""

    def made() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        from dovetail.passes import Context, Request
        from dovetail_verify.runners import reference_runner

        ctx = Context(Request(), plugins=plugins)
        ctx.load_backends()
        return reference_runner(model, ctx)

    return Reference("the host's engines", _once(made))


def chosen_reference(work: PreparedCase) -> tuple[Reference | None, Mapping[str, Any], str]:
    """Return the first reference that reproduces the recorded results, with its results.

    If none does (for random numbers, for example), the recorded results are the reference.

    Returns:
        The reference, its results, and the reason if there is none.
    """
    reasons = []
    for reference in work.references:
        try:
            results = reference.run(work.inputs)
        except Exception as error:
            reasons.append(f"{reference.name}: {described(error)}")
            continue
        if all(_agrees(results.get(name), value) for name, value in work.expected.items()):
            return reference, results, ""
        reasons.append(f"{reference.name} computes other results than the recorded ones")
    if work.expected:
        return Reference(RECORDED, lambda _: work.expected), work.expected, ""
    return None, {}, "; ".join(reasons) or "there is neither a composite nor a kernel"


def _agrees(result: Any, recorded: Any) -> bool:
    difference = compared(result, recorded)
    return not difference.broken and difference.share <= _AGREES


def _once(make: Callable[[], Callable[[Mapping[str, Any]], Mapping[str, Any]]]) -> Callable[..., Mapping[str, Any]]:
    """Return a function that is created on its first call."""
    made: list[Callable[[Mapping[str, Any]], Mapping[str, Any]]] = []

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not made:
            made.append(make())
        return made[0](inputs)

    return run


def _on_onnxruntime(model: onnx.ModelProto | Path) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import onnx
    from dovetail_onnx.native_runtime import new_session, onnx_runtime, write_blanks

    options = onnx_runtime().SessionOptions()
    options.log_severity_level = 4
    source: bytes | str = str(model)
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        write_blanks(copy.graph.node)
        source = copy.SerializeToString()
    session = new_session(source, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _on_onnx(model: onnx.ModelProto | Path) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load(str(model)) if isinstance(model, Path) else model
    evaluator = ReferenceEvaluator(proto)
    names = [output.name for output in proto.graph.output]
    return lambda inputs: dict(zip(names, evaluator.run(names, dict(inputs)), strict=True))


NARROW = {"solver": "fixpoint", "keep_io_types": False}
"""Options that compute as much as possible in low precision, including inputs and outputs."""

_MOST_REASONS = 3


def measure(
    case: Case, backend: str | BackendChoice, plugins: PluginSet | None = None, options: Mapping[str, Any] | None = None
) -> CaseMeasurement:
    """Run a case on its reference and compiled for a backend, and compare the results.

    If no node is placed on the backend, the case runs again with all inputs but the first as constants, because many
    backends require constant weights and axes.

    Args:
        case: The case.
        backend: The backend, with options as after `--backend`; the host takes the remaining nodes.
        plugins: Plugins with the backend; by default all installed ones.
        options: Keyword arguments of `dovetail.compile`.
    """
    began = time.perf_counter()
    plugins = plugins or dovetail.load_plugins()
    choice = BackendChoice.parse(use_file(plugins.registry, backend) if isinstance(backend, str) else backend)
    blank = CaseMeasurement(str(choice), case.suite, case.name, case.operator, "error")
    try:
        work = case.make(plugins)
        measured = _Run(work, choice, plugins, dict(options or {})).measured(blank)
        if measured.outcome == "host" and (frozen := _with_constants(work)) is not None:
            again = _Run(frozen, choice, plugins, dict(options or {})).measured(replace(blank, constants=True))
            measured = again if again.outcome != "host" else measured
    except Exception as error:  # any exception means that the case fails
        measured = replace(blank, problem=_text(error))
    return replace(measured, seconds=round(time.perf_counter() - began, 3))


@dataclass
class _Run:
    """A model on a backend."""

    work: PreparedCase
    choice: BackendChoice
    plugins: PluginSet
    options: dict[str, Any]

    def measured(self, blank: CaseMeasurement) -> CaseMeasurement:
        compiled = self._compiled()
        name = self.choice.name
        nodes = compiled.plan.nodes
        placed = sum(node.backend == name for node in nodes)
        found = replace(blank, placed=placed, others=len(nodes) - placed, reasons=_reasons(compiled, name))
        found = replace(found, refusal=next((each.reason for each in compiled.remarks if each.kind == "failed"), ""))
        if not placed:
            return replace(found, outcome="host")
        reference, expected, why = chosen_reference(self.work)
        if reference is None:
            return replace(found, outcome="no-reference", problem=why)
        found = replace(found, reference=reference.name)
        inputs = dict(self.work.inputs)
        if reference.name != RECORDED:
            inputs = rounded_inputs(compiled.model, inputs)
            expected = reference.run(inputs)
        results = compiled.run(fitted(compiled.model, inputs))
        return _with_difference(found, compiled, results, expected)

    def _compiled(self) -> CompiledModel:
        """Compile the model for the backend.

        Raises:
            DovetailError: The model cannot be compiled.
        """
        names = [self.choice] if self.choice.name == HOST else [self.choice, BackendChoice(HOST)]
        # The comparison here replaces verification.
        passes = [*self.options.get("passes", ()), LoneNodes(self.choice.name)]
        keywords = {"verify": False, **self.options, "passes": passes, "plugins": self.plugins}
        if "data" in keywords or _computes_integers(self.choice, self.plugins):
            return dovetail.compile(self.work.model, names, **{"data": self._data(), **keywords})
        try:
            return dovetail.compile(self.work.model, names, **keywords)
        except DovetailError as error:
            # A backend option may request integers, whose scales come from data.
            try:
                return dovetail.compile(self.work.model, names, **keywords, data=self._data())
            except DovetailError:
                raise error from None

    def _data(self) -> list[dict[str, np.ndarray]] | None:
        """Return the inputs as calibration data; None if they contain nonfinite numbers or nontensors."""
        arrays = self.work.inputs.values()
        finite = (isinstance(one, np.ndarray) and (one.dtype.kind != "f" or np.isfinite(one).all()) for one in arrays)
        return [dict(self.work.inputs)] if self.work.inputs and all(finite) else None


def _computes_integers(choice: BackendChoice, plugins: PluginSet) -> bool:
    low = load_chosen(plugins.registry, choice).low or ""
    return "int" in low


def _with_difference(
    found: CaseMeasurement, compiled: CompiledModel, results: Mapping[str, Any], expected: Mapping[str, Any]
) -> CaseMeasurement:
    """Add the output with the largest difference to a measurement."""
    held = narrow_outputs(compiled.model)
    exact, worst, output = True, ValueDifference(), next(iter(expected), "")
    for name, value in expected.items():
        one = compared(results.get(name), value, held.get(name))
        exact = exact and one.exact
        if not one.exact and (one.broken and not worst.broken or one.share > worst.share and not worst.broken):
            worst, output = one, name
    return replace(found, outcome="compared", exact=exact, share=worst.share, problem=worst.broken, output=output)


def _reasons(compiled: CompiledModel, backend: str) -> tuple[str, ...]:
    """Return the distinct reasons why nodes are not on a backend."""
    elsewhere = {node.name for node in compiled.plan.nodes if node.backend != backend}
    found: dict[str, None] = {}
    for remark in compiled.remarks:
        if remark.kind in ("missed", "failed") and remark.node in elsewhere:
            found[remark.reason if remark.backend == backend else remark.why] = None
    if not compiled.plan.nodes:
        found["nothing of it is left to run: it was computed while it was compiled"] = None
    return tuple(found)[:_MOST_REASONS]


def _with_constants(work: PreparedCase) -> PreparedCase | None:
    """Turn all inputs but the first into constants; None if that is not possible."""
    if work.proto is None or len(work.inputs) < 2:
        return None
    import onnx

    model, kept = onnx.ModelProto(), dict(work.inputs)
    model.CopyFrom(work.proto)
    for name, value in list(kept.items())[1:]:
        if isinstance(value, np.ndarray):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            del kept[name]
    if len(kept) == len(work.inputs):
        return None
    left = [value for value in model.graph.input if value.name in kept]
    del model.graph.input[:]
    model.graph.input.extend(left)
    return PreparedCase(model, kept, work.expected, references_of(model), None)


def _text(error: Exception) -> str:
    return error.message if isinstance(error, DovetailError) else described(error)
