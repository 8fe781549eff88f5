"""The vendor's table for a result: placement of every node, accuracy, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir import name_of
from dovetail.planning import HOST, parse_quantized_values
from dovetail.plugin import DovetailError
from dovetail.text import pluralize
from dovetail_onnx import find_signature, input_name

from dovetail_bpu_int8.vendor.latency import Prediction, caveats, known_rates, predict
from dovetail_bpu_int8.vendor.settled import InputScale, input_scales
from dovetail_bpu_int8.vendor.traffic import has_whole_operators, traffic_of

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Plan, PlannedNode, Remark
    from dovetail.plugin import CompiledModel


_BACKEND = "bpu-int8"
_PLACE = "place"
_LAYER = "layer-error"
_FINE, _LOST = 0.99, 0.8  # thresholds of the vendor's verdicts: fine, and clear loss
_FLOATS = {"float32": "float"}
_NO_COSINES = (
    "cosine similarities are not known: `dovetail compile ... --layers --data FILE` measures them, and keeps them in "
    "the result"
)


@dataclass(frozen=True)
class ReportRow:
    """A node's row in the report.

    Attributes:
        node: Its name.
        on: `BPU`, `CPU`, or the name of another backend.
        subgraph: `id(n)` for the n-th region on the BPU, else `--`.
        type: Its operator.
        cosine: The cosine similarity of its result with the original's, with accumulated errors; None if not measured.
        threshold: The largest magnitude that the integers of its first input represent; None for floats.
        types: Element types of its first input and of its result: `int8/int32`.
        reason: Why it is not on the BPU, in one clause; empty if it is.
        scale: The name of the scale of its first input; nodes that share the scale have the same name. Empty for
            floats.
    """

    node: str
    on: str
    subgraph: str
    type: str
    cosine: float | None
    threshold: float | None
    types: str
    reason: str
    scale: str = ""


@dataclass(frozen=True)
class OutputRow:
    """A model output's row in the report.

    Attributes:
        output: Its name.
        cosine: The cosine similarity with the original's; None if not measured.
        verdict: `fine` from 0.99, `clear loss` below 0.8, else `some loss`; empty if not measured.
    """

    output: str
    cosine: float | None
    verdict: str


@dataclass(frozen=True)
class HbReport:
    """The report of a result.

    Attributes:
        nodes: The nodes in graph order.
        outputs: The outputs of the model.
        notes: Messages about data missing from the tables, and how to get it.
        conversions: Number of values that the CPU quantizes or dequantizes at the borders of the BPU.
        converted_bytes: The size of the converted values in bytes; those with unknown extents are not counted.
        predictions: Latency and memory traffic of every subgraph, if there are figures for the BPU.
    """

    nodes: Sequence[ReportRow]
    outputs: Sequence[OutputRow]
    notes: Sequence[str] = ()
    conversions: int = 0
    converted_bytes: int = 0
    predictions: Sequence[Prediction] = ()

    def table_rows(self) -> list[dict[str, str]]:
        """Return the nodes under the vendor's column titles, without columns that have no data."""
        known = any(row.cosine is not None for row in self.nodes)
        return [
            {
                "Node": row.node,
                "ON": row.on,
                "Subgraph": row.subgraph,
                "Type": row.type,
                **({"Cosine Similarity": _number(row.cosine)} if known else {}),
                "Threshold": _number(row.threshold) if row.threshold is not None else "--",
                "In/Out DataType": row.types,
                "Reason": row.reason,
            }
            for row in self.nodes
        ]

    def output_rows(self) -> list[dict[str, str]]:
        """Return the outputs under their column titles."""
        return [
            {"Output": row.output, "Cosine Similarity": _number(row.cosine), "": row.verdict} for row in self.outputs
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "nodes": [asdict(row) for row in self.nodes],
            "outputs": [asdict(row) for row in self.outputs],
            "notes": list(self.notes),
            "conversions": self.conversions,
            "converted_bytes": self.converted_bytes,
            "predictions": [one.as_dict() for one in self.predictions],
        }

    def border_line(self) -> str:
        """Describe the CPU's conversions at the borders of the BPU in one line."""
        size = f"{self.converted_bytes / 1024:.1f} KiB"
        return f"Quantize and Dequantize at the borders, on the CPU: {pluralize(self.conversions, 'value')}, {size}"


def hb_report(result: CompiledModel | str | Path) -> HbReport:
    """Build the report of a result, in the columns of hb_mapper.

    Cosine similarities are included if they were measured: of nodes by `compile --layers`, of outputs also by the
    verification of a result in memory.

    Args:
        result: A result, or the folder that it was saved to.

    Raises:
        DovetailError: It was not compiled for `bpu-int8`.
    """
    if isinstance(result, (str, Path)):
        from dovetail import api

        result = api.load(result)
    plan = result.plan
    rows, cosines = rows_of(plan), _cosines(plan.remarks)
    outputs = _outputs(result, plan, cosines)
    missing = not cosines or any(row.cosine is None for row in outputs)
    crossing = [join for join in plan.joins if join.kind in ("quantize", "dequantize")]
    size = sum(join.bytes or 0 for join in crossing)
    predictions, said = _predictions(result)
    notes = [*((_NO_COSINES,) if missing else ()), *said]
    return HbReport(rows, outputs, notes, len(crossing), size, predictions)


def _predictions(result: CompiledModel) -> tuple[list[Prediction], list[str]]:
    """Predict latency and memory traffic of the subgraphs; return caveats, too."""
    march = next(one.options["march"] for one in result.plan.backends if one.name == _BACKEND)
    rates = known_rates().get(march)
    if rates is None:
        known = ", ".join(known_rates())
        return [], [f"latency is predicted for {known} alone: there are no public figures with logs of {march}"]
    if not has_whole_operators(result):
        return [], [
            f"latency is predicted where operators are whole: --backend {_BACKEND}:march={march},arithmetic=floats"
        ]
    traffic = traffic_of(result)
    return predict(traffic, rates), caveats(traffic, rates) if traffic else []


def rows_of(plan: Plan) -> list[ReportRow]:
    """Return the rows of a plan's nodes, in graph order.

    Raises:
        DovetailError: The plan is not for `bpu-int8`.
    """
    if all(one.name != _BACKEND for one in plan.backends):
        names = ", ".join(one.name for one in plan.backends) or HOST
        raise DovetailError(f"the result is for {names}, and not for {_BACKEND}", f"add --backend {_BACKEND}")
    cosines, reasons = _cosines(plan.remarks), _reasons(plan.remarks)
    ports = input_scales(parse_quantized_values(plan.values))
    regions: dict[int | None, str] = {}
    for node in plan.nodes:
        if node.backend == _BACKEND:
            regions.setdefault(node.region, f"id({len(regions)})")
    return [_row(node, regions, cosines, ports, reasons) for node in plan.nodes]


def _row(
    node: PlannedNode,
    regions: Mapping[int | None, str],
    cosines: Mapping[str, float],
    ports: Mapping[str, Mapping[str, InputScale]],
    reasons: Mapping[str, str],
) -> ReportRow:
    own = node.backend == _BACKEND
    read = ports.get(node.name, {}) if own else {}
    names = [name for name in _input_names(node, len(read)) if name in read]
    port = names[0] if names else ""
    scale = read.get(port, InputScale("", None))
    return ReportRow(
        node=node.name,
        on="BPU" if own else "CPU" if node.backend == HOST else node.backend,
        subgraph=regions[node.region] if own else "--",
        type=node.operator,
        cosine=cosines.get(node.name),
        threshold=scale.threshold,
        types=f"{_type(node.ports.get(port, node.precision))}/{_type(node.precision)}",
        reason="" if own else reasons.get(node.name, ""),
        scale=scale.group,
    )


def _input_names(node: PlannedNode, count: int) -> list[str]:
    signature = find_signature(node.domain, node.op_type, None)
    most = max(len(signature.inputs) if signature is not None else 0, count, 1)
    return list(dict.fromkeys(input_name(index, signature) for index in range(most)))


def _type(format_: Format | None) -> str:
    """Return the element type of a format in the vendor's notation."""
    if format_ is None:
        return "--"
    return _FLOATS.get(format_.element, format_.element)


def _cosines(remarks: Iterable[Remark]) -> dict[str, float]:
    """Return the cosine similarities that `compile --layers` recorded in remarks."""
    found: dict[str, float] = {}
    for remark in remarks:
        if remark.rule != _LAYER:
            continue
        # A result may have been edited, so the types of its facts are not guaranteed.
        match remark.facts.get("accumulated"):
            case {"cosine": float() | int() as cosine}:
                found.setdefault(remark.node, float(cosine))
    return found


def _reasons(remarks: Iterable[Remark]) -> dict[str, str]:
    """Return why nodes are not on the BPU: the last reason of each, in one clause."""
    found: dict[str, str] = {}
    for remark in remarks:
        own = remark.backend == _BACKEND or remark.pass_ == _PLACE and not remark.backend
        if remark.kind in ("missed", "failed") and own or remark.rule == "pinned" and remark.node not in found:
            found[remark.node] = _clause(remark)
    return found


def _clause(remark: Remark) -> str:
    """Return the first of several reasons."""
    match remark.facts.get("reasons"):
        case [{"text": str() as text}, *_]:
            return text
    return remark.reason


def _outputs(result: CompiledModel, plan: Plan, cosines: Mapping[str, float]) -> list[OutputRow]:
    # As data: that of a loaded result was read from its file.
    figures = result.verification.as_dict() if result.verification is not None else {}
    rows = [(one.get("name"), one.get("cosine")) for one in figures.get("outputs", ())]
    compared = {name: cosine for name, cosine in rows if isinstance(cosine, float)}
    by_value = {node.output: cosines.get(node.name) for node in plan.nodes}
    found = []
    for value in result.model.graph.outputs:
        name = name_of(value)
        cosine = compared.get(name)
        cosine = by_value.get(name) if cosine is None else cosine
        verdict = (
            "" if cosine is None else "fine" if cosine >= _FINE else "clear loss" if cosine < _LOST else "some loss"
        )
        found.append(OutputRow(name, cosine, verdict))
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
