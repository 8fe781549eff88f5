"""Errors of every node of a result: alone on exact inputs, and accumulated up to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.errors import UsageError
from dovetail.planning import Remark
from dovetail.text import did_you_mean, pluralize

from dovetail_verify.metrics import decibels_text, plain_decibels

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

    from dovetail_verify.accuracy.per_node_errors import ErrorSums


_RECORDED = 10


@dataclass(frozen=True)
class MeasuredLayer:
    """Errors of a node, together with the subsequent nodes that only move its numbers.

    Attributes:
        node: The node's name.
        operator: Its operator.
        backend: Its backend.
        precision: The format in which it computes.
        value: The first float result, on which errors are measured as its readers see it.
        moving: Names of subsequent nodes that only move these numbers, or round them alike.
        alone: The error of its own arithmetic on exact inputs, or of a subsequent node that rounds these numbers first;
            None if all of them compute in the source model's types.
        accumulated: The error accumulated up to and including it; None if its result cannot be observed.
        at_outputs: The SNR of the worst output of the model in decibels, with only this node low; None if not measured.
        rounding: The node to which `alone` belongs.
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
        """Return the sort key for a criterion; larger is worse, negative means not measured."""
        if by == "alone":
            return self.alone.share if self.alone is not None else -1.0
        if by == "outputs":
            return 10 ** (-self.at_outputs / 10) if self.at_outputs is not None else -1.0
        if self.accumulated is None:
            return -1.0
        return {"accumulated": self.accumulated.share, "cosine": 1 - self.accumulated.cosine,
                "mse": self.accumulated.mse}[by]  # fmt: skip

    def row(self) -> dict[str, Any]:
        """Return the layer's row of the table."""
        whole = self.accumulated
        return {
            "node": self.node,
            "operator": self.operator,
            "precision": self.precision,
            "alone": decibels_text(self.alone.snr_db) if self.alone is not None else "",
            "accumulated": decibels_text(whole.snr_db) if whole is not None else "",
            "cosine": f"{whole.cosine:.6f}" if whole is not None else "",
            "MSE": f"{whole.mse:.3g}" if whole is not None else "",
            "at outputs": decibels_text(self.at_outputs) if self.at_outputs is not None else "",
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; infinite figures become strings, because JSON has no infinity."""
        return {
            "node": self.node,
            "operator": self.operator,
            "backend": self.backend,
            "precision": self.precision,
            "value": self.value,
            "moving": list(self.moving),
            "alone": _figures(self.alone),
            "accumulated": _figures(self.accumulated),
            "at_outputs_snr_db": None if self.at_outputs is None else plain_decibels(self.at_outputs),
        }

    def figures(self) -> dict[str, Any]:
        """Return the measured figures as JSON data."""
        found = {key: value for key, value in self.as_dict().items() if key in ("alone", "accumulated")}
        found["at_outputs_snr_db"] = self.as_dict()["at_outputs_snr_db"]
        return {key: value for key, value in found.items() if value is not None}

    def sentence(self) -> str:
        """Return the figures as one sentence."""
        parts = []
        if self.alone is not None:
            parts.append(f"SNR {decibels_text(self.alone.snr_db)} alone on exact inputs")
        if self.accumulated is not None:
            whole = self.accumulated
            figures = f"cosine {whole.cosine:.6f}, MSE {whole.mse:.3g}"
            parts.append(f"SNR {decibels_text(whole.snr_db)} with what has accumulated ({figures})")
        if self.at_outputs is not None:
            parts.append(f"SNR {decibels_text(self.at_outputs)} at the outputs if it alone is low")
        return ", ".join(parts)


@dataclass(frozen=True)
class LayerErrors:
    """The errors of all nodes.

    Attributes:
        layers: Layers, worst first.
        by: The ranking criterion, one of `dovetail_verify.layers.ORDERS`.
        batches: Number of batches measured.
        measured: Number of nodes whose effect on the outputs was measured.
    """

    layers: Sequence[MeasuredLayer]
    by: str
    batches: int
    measured: int

    @property
    def worst(self) -> str:
        """The worst layer in one sentence."""
        first = next(iter(self.layers), None)
        return f"'{first.node}' ({first.operator}): {first.sentence()}" if first is not None else "there is none"

    def table_rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return the table as one mapping per row; `top` limits the rows."""
        return [{"rank": rank, **layer.row()} for rank, layer in enumerate(self.layers[:top], start=1)]

    def lines(self, top: int | None = None) -> list[str]:
        """Return summary lines to print after the table."""
        shown = len(self.layers[:top])
        rest = f"; {len(self.layers) - shown} more with --top" if shown < len(self.layers) else ""
        return [f"{pluralize(shown, 'layer')} of {len(self.layers)}, worst first by {self.by}, on "
                f"{pluralize(self.batches, 'batch')}{rest}"]  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"by": self.by, "batches": self.batches, "layers": [layer.as_dict() for layer in self.layers]}

    def record(self, compiled: CompiledModel) -> None:
        """Write the figures to the plan of a result: the worst to its summary, all as remarks on their nodes."""
        worst = [layer.as_dict() for layer in self.layers[:_RECORDED]]
        compiled.plan.summary["layers"] = {**self.as_dict(), "layers": worst}
        for rank, layer in enumerate(self.layers, start=1):
            place = f"number {rank} of {pluralize(len(self.layers), 'layer')} by {self.by}"
            why, facts = f"{layer.sentence()}; {place}", {**layer.figures(), "rank": rank}
            compiled.plan.remarks.append(Remark("analysis", layer.node, "layers", "layer-error", why, facts=facts))
            follows = f"it moves the numbers of '{layer.node}': {why}"
            compiled.plan.remarks += [
                Remark("analysis", name, "layers", "layer-error", follows, (layer.node,), facts=facts)
                for name in layer.moving
            ]


def _figures(sums: ErrorSums | None) -> dict[str, Any] | None:
    if sums is None:
        return None
    return {"snr_db": plain_decibels(sums.snr_db), "cosine": round(sums.cosine, 9), "mse": float(f"{sums.mse:.6g}")}


ORDERS = ("accumulated", "alone", "outputs", "cosine", "mse")
"""Ranking criteria; the first is the default."""


def check_order(by: str) -> None:
    """Check a ranking criterion.

    Raises:
        UsageError: It is not in `ORDERS`.
    """
    if by not in ORDERS:
        raise UsageError(f"layers cannot be ranked by {by!r}{did_you_mean(by, ORDERS)}", f"by: {', '.join(ORDERS)}")
