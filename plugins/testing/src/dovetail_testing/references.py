"""Reference paths on the source model: ONNX Runtime, the reference of the onnx package, the engines of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.plugin.isolation import described

from dovetail_testing.case import Reference, Work
from dovetail_testing.comparing import compared

if TYPE_CHECKING:
    import onnx
    from dovetail.ir.model import Model
    from dovetail.plugin.loader import PluginSet


RECORDED = "the recorded results"
_AGREES = 1e-3  # of the largest value: what onnx's own runner of these tests allows


def references_of(model: onnx.ModelProto | Path) -> tuple[Reference, ...]:
    """What computes an ONNX model without Dovetail: ONNX Runtime, then the reference of the onnx package."""
    return (
        Reference("ONNX Runtime", _once(lambda: _on_onnxruntime(model))),
        Reference("the onnx reference", _once(lambda: _on_onnx(model))),
    )


def host_reference(model: Model, plugins: PluginSet) -> Reference:
    """Dovetail's own engines of the host, for models that no tool reads as they are."""

    def made() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        from dovetail.passes import Context, Request
        from dovetail_verify.runners import reference

        ctx = Context(Request(), plugins=plugins)
        ctx.load_backends()
        return reference(model, ctx)

    return Reference("the host's engines", _once(made))


def chosen_reference(work: Work) -> tuple[Reference | None, Mapping[str, Any], str]:
    """The first reference that runs and computes the recorded results, with what it computes of the inputs.

    Where none computes them (random numbers, say), they are the reference themselves.

    Returns:
        The reference, its results, and why there is none.
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
    """A function that is made when it is first called."""
    made: list[Callable[[Mapping[str, Any]], Mapping[str, Any]]] = []

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not made:
            made.append(make())
        return made[0](inputs)

    return run


def _on_onnxruntime(model: onnx.ModelProto | Path) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _on_onnx(model: onnx.ModelProto | Path) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load(str(model)) if isinstance(model, Path) else model
    evaluator = ReferenceEvaluator(proto)
    names = [output.name for output in proto.graph.output]
    return lambda inputs: dict(zip(names, evaluator.run(names, dict(inputs)), strict=True))
