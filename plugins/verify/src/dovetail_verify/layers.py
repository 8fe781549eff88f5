"""The error of every node of a result: what it costs by itself, and what has accumulated up to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.planning.identity import operator_name
from dovetail.planning.placement import get_placement
from dovetail.planning.remark import Remark

from dovetail_verify.accuracy.effects import effects_at_outputs
from dovetail_verify.accuracy.error_sums import ErrorSums
from dovetail_verify.accuracy.streamed import NodeErrors, SideBySide
from dovetail_verify.orders import ORDERS, check_order

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail_runtime.guard import GuardedEngine

__all__ = ["Layer", "LayerErrors", "find_layer_errors"]

_SAME = 1e-9  # relative difference of two sums over the same numbers in another order
_RECORDED = 10
_RESCALING = ("equalise", "smooth")  # refinements


@dataclass(frozen=True)
class Layer:
    """A node and what it does to the accuracy, with the nodes behind it that only move its numbers.

    Attributes:
        node: Its name.
        operator: Its operator.
        backend: Where it runs.
        precision: The format that it computes in.
        value: The first float result, in which errors are seen as its readers get it.
        moving: Names of the nodes that follow and only move these numbers, or round them in the same way.
        alone: The error of its own arithmetic on exact inputs, or of a node behind it that rounds these numbers first;
            None if all of them compute in the source model's types.
        accumulated: The error of everything up to and with it; None if its result cannot be seen.
        at_outputs: The SNR of the worst output of the model in decibels, if nothing but this node is low; None if that
            was not measured.
        rounding: The node whose error `alone` is.
    """

    node: str
    operator: str
    backend: str
    precision: str
    value: str
    moving: tuple[str, ...]
    alone: ErrorSums | None
    accumulated: ErrorSums | None
    at_outputs: float | None = None
    rounding: str = ""

    def badness(self, by: str) -> float:
        """How bad it is in one respect; larger is worse, and less than zero is not measured."""
        if by == "alone":
            return self.alone.share if self.alone is not None else -1.0
        if by == "outputs":
            return 10 ** (-self.at_outputs / 10) if self.at_outputs is not None else -1.0
        if self.accumulated is None:
            return -1.0
        return {"accumulated": self.accumulated.share, "cosine": 1 - self.accumulated.cosine,
                "mse": self.accumulated.mse}[by]  # fmt: skip

    def row(self) -> dict[str, Any]:
        """A row of the table."""
        whole = self.accumulated
        return {
            "node": self.node,
            "operator": self.operator,
            "precision": self.precision,
            "alone": _text(self.alone.snr_db) if self.alone is not None else "",
            "accumulated": _text(whole.snr_db) if whole is not None else "",
            "cosine": f"{whole.cosine:.6f}" if whole is not None else "",
            "MSE": f"{whole.mse:.3g}" if whole is not None else "",
            "at outputs": _text(self.at_outputs) if self.at_outputs is not None else "",
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data; infinite figures are words, which JSON can hold."""
        return {
            "node": self.node,
            "operator": self.operator,
            "backend": self.backend,
            "precision": self.precision,
            "value": self.value,
            "moving": list(self.moving),
            "alone": _figures(self.alone),
            "accumulated": _figures(self.accumulated),
            "at_outputs_snr_db": None if self.at_outputs is None else _plain(self.at_outputs),
        }

    def sentence(self) -> str:
        """The figures as one sentence."""
        parts = []
        if self.alone is not None:
            parts.append(f"SNR {_text(self.alone.snr_db)} alone on exact inputs")
        if self.accumulated is not None:
            whole = self.accumulated
            figures = f"cosine {whole.cosine:.6f}, MSE {whole.mse:.3g}"
            parts.append(f"SNR {_text(whole.snr_db)} with what has accumulated ({figures})")
        if self.at_outputs is not None:
            parts.append(f"SNR {_text(self.at_outputs)} at the outputs if it alone is low")
        return ", ".join(parts)


@dataclass(frozen=True)
class LayerErrors:
    """The errors of all nodes.

    Attributes:
        layers: The worst first.
        by: What they are ranked by: one of `dovetail_verify.orders.ORDERS`.
        batches: How many batches were looked at.
        measured: How many nodes the effect at the outputs was measured for.
    """

    layers: Sequence[Layer]
    by: str
    batches: int
    measured: int

    @property
    def worst(self) -> str:
        """The worst layer in one sentence."""
        first = next(iter(self.layers), None)
        return f"'{first.node}' ({first.operator}): {first.sentence()}" if first is not None else "there is none"

    def table_rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """The table: one mapping per row, the first `top` of them."""
        return [{"rank": rank, **layer.row()} for rank, layer in enumerate(self.layers[:top], start=1)]

    def lines(self, top: int | None = None) -> list[str]:
        """Lines for a person, under the table."""
        shown = len(self.layers[:top])
        rest = f"; {len(self.layers) - shown} more with --top" if shown < len(self.layers) else ""
        return [f"{counted(shown, 'layer')} of {len(self.layers)}, worst first by {self.by}, on "
                f"{counted(self.batches, 'batch')}{rest}"]  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"by": self.by, "batches": self.batches, "layers": [layer.as_dict() for layer in self.layers]}

    def record(self, compiled: CompiledModel) -> None:
        """Write the figures into the plan of a result: the worst into its summary, all as remarks on their nodes."""
        worst = [layer.as_dict() for layer in self.layers[:_RECORDED]]
        compiled.plan.summary["layers"] = {**self.as_dict(), "layers": worst}
        for rank, layer in enumerate(self.layers, start=1):
            place = f"number {rank} of {counted(len(self.layers), 'layer')} by {self.by}"
            why = f"{layer.sentence()}; {place}"
            compiled.plan.remarks.append(Remark("analysis", layer.node, "layers", "layer-error", why))
            follows = f"it moves the numbers of '{layer.node}': {why}"
            compiled.plan.remarks += [
                Remark("analysis", name, "layers", "layer-error", follows, (layer.node,)) for name in layer.moving
            ]


def find_layer_errors(
    original: Model,
    exact: Model,
    result: CompiledModel,
    data: object,
    engines: Mapping[str, Sequence[GuardedEngine]],
    *,
    by: str = ORDERS[0],
    outputs: int = _RECORDED,
    progress: Callable[[str, int, int], None] | None = None,
) -> LayerErrors:
    """Look at every node of a result on all batches.

    Original and result run side by side on the host, in parts of few nodes, so memory grows neither with the number of
    batches nor with that of nodes; the time is linear in both.

    Args:
        original: The model, for its inputs.
        exact: The original, prepared as the result was: its nodes have the names of the plan.
        result: What was compiled from it.
        data: See `dovetail_runtime.data.sources.read_data`.
        engines: The host's engines.
        by: What to rank by: one of `ORDERS`.
        outputs: For how many nodes, the worst alone, the effect at the outputs of the model is measured. Each takes a
            run of the model per batch.
        progress: Told after every batch.

    Raises:
        UsageError: `by` is none of the orders.
        DovetailError: The data does not fit, or one of both cannot be run on the host.
    """
    check_order(by)
    model = result.model
    refined = result.plan.summary.get("refined", {}).get("changed", {})
    if rescaled := [step for step in _RESCALING if refined.get(step)]:
        raise DovetailError(
            f"the refinement '{rescaled[0]}' gave channels other scales, so values between layers are not the original's",
            f"look at a result that was compiled without it (--refine {_others(refined)})",
        )
    if model.ir.functions:
        raise DovetailError(
            "the result has regions that are programs of a vendor, so that their nodes cannot be looked at one by one",
            "compile for the backend without its emitter, or look at the outputs alone",
        )
    if not {node.name for node in exact.graph} & {node.name for node in model.graph}:
        raise DovetailError(
            "no node of the result is in the original", "give the model that the result was compiled from"
        )
    beside = SideBySide(exact, model, engines)
    found = beside.run(original, data, progress=progress)
    if not found.batches:
        raise DovetailError("the data holds no batch, so no layer was looked at", "give at least one sample")
    layers = _layers(exact, model, found.errors)
    suspects = sorted((one for one in layers if one.badness("alone") > 0), key=lambda one: -one.badness("alone"))
    names = [layer.rounding for layer in suspects[:outputs]]
    if names:
        effects = effects_at_outputs(original, exact, names, beside, engines, data, progress)
        worst = {name: min((sums.snr_db for sums in each.values()), default=None) for name, each in effects.items()}
        layers = [_with_effect(layer, worst.get(layer.rounding)) for layer in layers]
    layers.sort(key=lambda layer: -layer.badness(by))
    return LayerErrors(layers, by, found.batches, len(names))


def _others(steps: Mapping[str, int]) -> str:
    return ",".join(step for step in steps if step not in _RESCALING) or "none"


def _layers(exact: Model, model: Model, errors: Mapping[str, NodeErrors]) -> list[Layer]:
    """The nodes that compute, in graph order, each with those behind it that only move its numbers."""
    beside = {node.name: node for node in model.graph}
    heads: dict[str, str] = {}
    members: dict[str, list[ir.Node]] = {}
    for node in exact.graph:
        if node.name not in errors or node.name not in beside:
            continue
        before = _before(node, errors)
        moves = before is not None and _moves(errors[node.name], errors[before.name])
        head = heads[before.name] if moves else node.name
        heads[node.name] = head
        members.setdefault(head, []).append(node)
    return [_layer(nodes, beside, errors) for nodes in members.values()]


def _before(node: ir.Node, errors: Mapping[str, NodeErrors]) -> ir.Node | None:
    """The node that computes the first input that was looked at."""
    producers = (value.producer() for value in node.inputs if value is not None)
    return next((found for found in producers if found is not None and found.name in errors), None)


def _moves(own: NodeErrors, before: NodeErrors) -> bool:
    """Whether a node adds no error to those of the one before it."""
    if own.own.elements:
        return own.moves
    one, two = own.accumulated, before.accumulated
    pairs = ((one.noise, two.noise), (one.signal, two.signal))
    return one.elements == two.elements > 0 and all(abs(a - b) <= _SAME * abs(b) for a, b in pairs)


def _layer(nodes: Sequence[ir.Node], beside: Mapping[str, ir.Node], errors: Mapping[str, NodeErrors]) -> Layer:
    head, *moving = nodes
    placement = get_placement(beside[head.name])
    found = {node.name: errors[node.name] for node in nodes}
    alone = {name: one.own for name, one in found.items() if one.own.elements}
    rounding = max(alone, key=lambda name: alone[name].share, default="")
    accumulated = [one.accumulated for one in found.values() if one.accumulated.elements]
    value = next(value.name for value in head.outputs if value.name)
    return Layer(
        head.name,
        operator_name(head.domain, head.op_type),
        placement.backend if placement is not None else "",
        str(placement.precision or "") if placement is not None else "",
        value,
        tuple(node.name for node in moving),
        alone.get(rounding),
        max(accumulated, key=lambda sums: sums.share) if accumulated else None,
        None,
        rounding,
    )


def _with_effect(layer: Layer, snr_db: float | None) -> Layer:
    return layer if snr_db is None else replace(layer, at_outputs=snr_db)


def _figures(sums: ErrorSums | None) -> dict[str, Any] | None:
    if sums is None:
        return None
    return {"snr_db": _plain(sums.snr_db), "cosine": round(sums.cosine, 9), "mse": float(f"{sums.mse:.6g}")}


def _text(snr_db: float) -> str:
    return "exact" if snr_db == math.inf else "broken" if snr_db == -math.inf else f"{snr_db:.1f} dB"


def _plain(snr_db: float) -> float | str:
    return round(snr_db, 3) if math.isfinite(snr_db) else "inf" if snr_db > 0 else "-inf"
