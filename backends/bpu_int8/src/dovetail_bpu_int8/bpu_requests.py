"""Per-node requests for the BPU: precisions at ports, or placement on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import NodeRequest
from dovetail_placement import NodeRequests

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail.planning import Claim, Remark
    from dovetail.plugin import CompiledModel, View


OPTION = "bpu"
"""Name of the option that records requests about nodes."""

ALL = "*"
"""The selector of every node."""

MODEL_OUTPUTS = "model_outputs"
"""Ports that are model outputs; only these give up 32-bit sums if a format is requested."""

REQUESTS = "requests"
"""Key of the recorded requests."""

BACKEND = "bpu-int8"


def format_request(node: str, asked_by: str, format_: str = "", ports: str = "all") -> NodeRequest:
    """Return a request for a format at ports of nodes.

    Args:
        node: A selector (`dovetail.planning.selectors.select`), or `ALL`.
        asked_by: Its origin, for messages: `config.yaml:31, set_Conv_output_int16`.
        format_: The element type, `int8`, `int16` or `float16`; empty to keep the node on the CPU. `float32` has the
            same effect.
        ports: `in`, `out`, `in0`, `out1` and so on, `all`, or `MODEL_OUTPUTS`.
    """
    if format_ in ("", "float32"):
        return NodeRequest("avoid", node, asked_by, BACKEND, names_of="source")
    return NodeRequest("precision", node, asked_by, BACKEND, precision=format_, ports=ports, names_of="source")


def on_bpu_request(node: str, asked_by: str) -> NodeRequest:
    """Return a request for manual operators on the BPU wherever its list accepts them.

    In contrast, a pin overrides the list, and is an error if the node is not supported.

    Args:
        node: A selector.
        asked_by: Its origin.
    """
    return NodeRequest("prefer", node, asked_by, BACKEND, names_of="source")


_ASKED = "asked"  # rule of the remark on a node for which the request asks for another precision
_ON = {"avoid": "cpu", "prefer": "bpu"}


def recorded_entry(request: NodeRequest) -> dict[str, str]:
    """Return a request as plain data for the record of the option."""
    if request.kind in _ON:
        asked = {"on": _ON[request.kind]}
    else:
        asked = {"ports": request.ports, "format": request.precision}
    return {"node": request.selector, **asked, "asked": request.asked_by}


def requests_of(recorded: Mapping[str, Any]) -> Iterator[NodeRequest]:
    """Yield the requests in the record of the option; later ones win."""
    for entry in recorded.get(REQUESTS, ()):
        if entry.get("on") == _ON["prefer"]:
            yield on_bpu_request(entry["node"], entry["asked"])
        else:
            yield format_request(entry["node"], entry["asked"], entry.get("format", ""), entry.get("ports", "all"))


@dataclass
class BpuRequests:
    """Analysis: the requests for the BPU by node of the main graph.

    Attributes:
        formats: The formats requested for each node, in order: later ones win.
        away: The request to keep a node on the CPU.
        on_bpu: The request for a manual operator on the BPU.
        lost: Requests that match no node of the prepared model.
    """

    formats: dict[ir.Node, list[NodeRequest]] = field(default_factory=dict)
    away: dict[ir.Node, NodeRequest] = field(default_factory=dict)
    on_bpu: dict[ir.Node, NodeRequest] = field(default_factory=dict)
    lost: list[NodeRequest] = field(default_factory=list)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> BpuRequests:
        """Look up the nodes of the requests that options record, and of those that an option adds."""
        found = cls()
        requests = ctx.analysis(NodeRequests, model)
        for request in requests.of_backend(BACKEND):
            nodes = requests.nodes_of(request)
            if not nodes:
                found.lost.append(request)
            for node in nodes:
                found.away.pop(node, None)
                if request.kind == "avoid" or request.precision == "float32":
                    found.away[node] = request
                    found.on_bpu.pop(node, None)
                elif request.kind == "prefer":
                    found.on_bpu[node] = request
                else:
                    found.formats.setdefault(node, []).append(request)
        return found


def remark_if_unused(view: View, claims: Iterable[Claim], products: tuple[str, ...]) -> None:
    """Add a remark if no product is on the BPU, because every region needs one.

    Not where it took one that something refused later, as an accuracy goal does: another remark says so.
    """
    here = {claim.node.op_type for claim in claims}
    pinned = (view.claimed(node) for node in view.model.graph)
    here |= {found[1].node.op_type for found in pinned if found is not None and found[0] == view.backend.name}
    left = set(map(id, view.nodes()))
    lost = (node for node in view.model.graph if id(node) not in left and view.claimed(node) is None)
    if products and not here & set(products) and not any(node.op_type in products for node in lost):
        why = f"no node of the model is on {view.backend.name}: it takes none of the model's {', '.join(products)}"
        view.remark("analysis", "", "no-bpu-operator", why, suggest="`dovetail explain OUT --all` says why")


def check_used(request: Request, compiled: CompiledModel) -> None:
    """Raise an error if no node is on the BPU and no other backend is requested.

    Where the request itself asks for floats, as an accuracy goal may, that is what it gets, with a remark.

    Raises:
        DovetailError: No node is on the BPU.
    """
    if [choice.name for choice in request.backends] != [BACKEND]:
        return
    asked = any(remark.rule == _ASKED and remark.backend == BACKEND for remark in compiled.plan.remarks)
    if compiled.plan.nodes and not asked and not any(node.backend == BACKEND for node in compiled.plan.nodes):
        first = next((remark for remark in compiled.plan.remarks if _is_refusal(remark)), None)
        example = f"; '{first.node}' is {first.why}" if first is not None else ""
        fixes = next((remark.suggest for remark in compiled.plan.remarks if remark.rule == "open-extents"), "")
        raise DovetailError(
            f"no node of the model can be on {BACKEND}: a region there needs a Conv, ConvTranspose, Gemm or MatMul "
            f"that the operator list accepts{example}",
            (f"fix the extents that the model leaves open: {fixes}; " if fixes else "")
            + "`dovetail plan` and `dovetail explain PLAN --all` say why of every node, and what would help; for the "
            "CPU, add --backend cpu-bf16",
        )


def _is_refusal(remark: Remark) -> bool:
    return remark.backend == BACKEND and remark.kind in ("missed", "failed")
