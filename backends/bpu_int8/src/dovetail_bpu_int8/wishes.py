"""Per-node requests for the BPU: precisions at ports, or placement on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.planning import origin_of, select

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiler import CompiledModel
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail.planning import Claim, Remark
    from dovetail.plugin import View


OPTION = "bpu"
"""Name of the option that records wishes in a request."""

ALL = "*"
"""The selector of every node."""

MODEL_OUTPUTS = "model_outputs"
"""Ports that are model outputs; only these give up 32-bit sums if a format is requested."""

_CPU, _BPU = "cpu", "bpu"
_SIDES = ("high", "low")  # levels of accuracy goals, which typing obeys


class Wish(NamedTuple):
    """A request for a node's ports.

    Attributes:
        ports: `in`, `out`, `in0`, `out1` and so on, `all`, or `MODEL_OUTPUTS`.
        format: Name of an element type: `int8`, `int16`, `float16`.
        asked: Its origin, for messages: `config.yaml:31, set_Conv_output_int16`.
    """

    ports: str
    format: str
    asked: str


def on_bpu_entry(node: str, asked: str) -> dict[str, str]:
    """Return a wish as plain data: manual operators on the BPU wherever its list accepts them.

    In contrast, a pin overrides the list, and is an error if the node is not supported.

    Args:
        node: A selector.
        asked: Its origin.
    """
    return {"node": node, "on": _BPU, "asked": asked}


def wish_entry(node: str, asked: str, format_: str = "", ports: str = "all") -> dict[str, str]:
    """Return a wish as plain data for a request.

    Args:
        node: A selector (`dovetail.planning.selectors.select`), or `ALL`.
        asked: Its origin.
        format_: The element type; empty to keep the node on the CPU. `float32` has the same effect.
        ports: As in `Wish`.
    """
    if format_ in ("", "float32"):
        return {"node": node, "on": _CPU, "asked": asked}
    return {"node": node, "ports": ports, "format": format_, "asked": asked}


@dataclass
class Wishes:
    """Analysis: the wishes of a request by node of the main graph.

    Attributes:
        formats: The wishes for each node, in order: later ones win.
        away: Origin of each request to keep a node on the CPU.
        on_bpu: Origin of each request for a manual operator on the BPU.
        lost: Selectors that match no node of the prepared model, with their origin.
    """

    formats: dict[ir.Node, list[Wish]] = field(default_factory=dict)
    away: dict[ir.Node, str] = field(default_factory=dict)
    on_bpu: dict[ir.Node, str] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Wishes:
        """Resolve the wishes that the request records, and those that an option adds."""
        found = cls()
        entries = list(_entries(ctx))
        names = _names(model) if entries else {}
        for entry in entries:
            nodes = _selected(model, entry["node"], names)
            if not nodes:
                found.lost.append((entry["node"], entry["asked"]))
            for node in nodes:
                if entry.get("on") == _CPU:
                    found.away[node] = entry["asked"]
                    found.on_bpu.pop(node, None)
                elif entry.get("on") == _BPU:
                    found.on_bpu[node] = entry["asked"]
                    found.away.pop(node, None)
                else:
                    found.away.pop(node, None)
                    wish = Wish(entry["ports"], entry["format"], entry["asked"])
                    found.formats.setdefault(node, []).append(wish)
        return found


def _entries(ctx: Context) -> Iterator[Mapping[str, str]]:
    yield from ctx.request.options.get(OPTION, {}).get("wishes", ())
    for name, (side, asked) in ctx.asked.items():
        if side not in _SIDES:
            yield wish_entry(f"name:{name}", asked, side)


def _names(model: Model) -> dict[str, list[ir.Node]]:
    """Return the nodes of the main graph by their names, and by the names of their source nodes."""
    names: dict[str, list[ir.Node]] = {}
    for node in model.graph:
        for name in dict.fromkeys((name_of(node), *origin_of(node))):
            names.setdefault(name, []).append(node)
    return names


def _selected(model: Model, selector: str, names: Mapping[str, list[ir.Node]]) -> list[ir.Node]:
    if selector == ALL:
        return list(model.graph)
    exact = names.get(selector.removeprefix("name:"))
    if exact:
        return exact
    try:
        return [node for node in select(model, selector) if node.graph is model.graph]
    except DovetailError:
        return []  # it matched a node of the source model that preparation removed


BACKEND = "bpu-int8"


def remark_if_unused(view: View, claims: Iterable[Claim], products: tuple[str, ...]) -> None:
    """Add a remark if no product is on the BPU, because every region needs one."""
    here = {claim.node.op_type for claim in claims}
    pinned = (view.claimed(node) for node in view.model.graph)
    here |= {found[1].node.op_type for found in pinned if found is not None and found[0] == view.backend.name}
    if products and not here & set(products):
        why = f"no node of the model is on {view.backend.name}: it takes none of the model's {', '.join(products)}"
        view.remark("analysis", "", "no-bpu-operator", why, suggest="`dovetail explain OUT --all` says why")


def check_used(request: Request, compiled: CompiledModel) -> None:
    """Raise an error if no node is on the BPU and no other backend is requested.

    Raises:
        DovetailError: No node is on the BPU.
    """
    if [choice.name for choice in request.backends] != [BACKEND]:
        return
    if compiled.plan.nodes and not any(node.backend == BACKEND for node in compiled.plan.nodes):
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
