"""The cost of extents that a model leaves open: the nodes placed elsewhere because of them, and how to fix them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin import input_data
from dovetail.text import pluralize
from dovetail_onnx.frontend import fixing_option, open_inputs, shape_text

from dovetail_placement.fixed_extents import FixedExtents

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Remark
    from dovetail.plugin import Backend, View

    from dovetail_placement.claiming import Claiming


_LONGEST = 120  # characters of a list of shapes to copy
_NAMED = 3  # inputs
_LOST_SHAPE = "lost-shape"


def remark_open_extents(claiming: Claiming, ctx: Context) -> None:
    """Remark the open extents of the model's inputs, their cost on each backend, and the option that fixes them.

    No remark if they have no effect. A node that a file refuses because of an open extent counts only if the file takes
    it once extents are fixed: see `FixedExtents`.
    """
    inputs = open_inputs(claiming.model)
    if not inputs:
        return
    costs = [text for backend in ctx.backends if (text := _cost(claiming, backend, ctx))]
    if not costs:
        return
    suggest = _option(claiming.model, inputs, ctx)
    names = ", ".join(f"'{value.name}' ({shape_text(value)})" for value in inputs[:_NAMED])
    names += f" and {pluralize(len(inputs) - _NAMED, 'other input')}" if len(inputs) > _NAMED else ""
    ctx.remark(
        "analysis", "", "open-extents", f"the model leaves extents of {names} open: {', and '.join(costs)}: {suggest}",
        suggest=suggest,
    )  # fmt: skip


def _cost(claiming: Claiming, backend: Backend, ctx: Context) -> str:
    """Describe the cost of open extents on one backend; empty if there is none."""
    nodes, view = list(claiming.model.graph), claiming.view_of(backend)
    elsewhere = [node for node in nodes if claiming.claimed.get(id(node), ("", None))[0] != backend.name]
    open_ = [node for node in elsewhere if _refused_for_extents(view, node)]
    if open_:
        shapes = _shapes_of_data(claiming.model, ctx).by_input
        open_ = (ctx.kept.get(FixedExtents) or ctx.kept.put(FixedExtents())).helped(open_, claiming, backend, shapes)
    caused = _with_followers(elsewhere, set(map(id, open_)), backend, ctx.remarks)
    texts = []
    if caused:
        number = sum(len(view.whole(node)) for node in elsewhere if id(node) in caused)
        total = pluralize(len(claiming.flat.nodes), "node")
        texts.append(f"{number} of {total} {'is' if number == 1 else 'are'} not on {backend.name} because of that")
    slower = backend.open_cost
    if slower and len(elsewhere) < len(nodes):
        texts.append(f"{backend.name} {slower}")
    return ", and ".join(texts)


def _refused_for_extents(view: View, node: ir.Node) -> bool:
    """Check whether a file refuses a node or nodes in its bodies, and only because of open extents."""
    reasons = [one for part in view.whole(node) if (v := view.verdict(part)).ok is False for one in v.reasons]
    return bool(reasons) and all(reason.open for reason in reasons)


def _with_followers(nodes: Sequence[ir.Node], open_: set[int], backend: Backend, remarks: Iterable[Remark]) -> set[int]:
    """Return the nodes that open extents keep off the backend, and the nodes that these keep off in turn.

    A node follows if its remark names only such nodes as the cause. The shape of a node's input may also be lost; if
    fixing extents restores it, the remark suggests that.
    """
    by_name = {node.name: node for node in nodes}
    causes: dict[str, list[str]] = {}
    found = set(open_)
    for remark in remarks:
        node = by_name.get(remark.node)
        if node is None or remark.kind != "missed" or remark.backend != backend.name:
            continue
        if remark.rule == _LOST_SHAPE:
            if remark.suggest:
                found.add(id(node))
        elif remark.because:
            causes[remark.node] = list(remark.because)
    waiting: dict[str, list[str]] = {}
    missing = {}
    for name, because in causes.items():
        needed = set(because)
        missing[name] = len(needed)
        for cause in needed:
            waiting.setdefault(cause, []).append(name)
    settled = [node.name for node in nodes if id(node) in found]
    seen = set(settled)
    while settled:
        for name in waiting.get(settled.pop() or "", ()):
            missing[name] -= 1
            if not missing[name] and name not in seen:
                seen.add(name)
                found.add(id(by_name[name]))
                settled.append(name)
    return found


def _option(model: Model, inputs: Iterable[ir.Value], ctx: Context) -> str:
    """Return the option to copy: with the extents of the data if it has one shape, else with one sample.

    Where the data has several shapes, no option takes them all; then the way out is in words.
    """
    known = _shapes_of_data(model, ctx)
    if known.problem:
        return known.problem
    text, complete = fixing_option(inputs, known.by_input)
    if complete:
        return text
    if len(text) > _LONGEST:
        return "--data FILE --fix-shape data, which takes the extents of your inputs"
    return f"{text} (or --data FILE --fix-shape data for the extents of your inputs)"


class _DataShapes(NamedTuple):
    """The shapes of the data, which are the same in every round of decisions.

    Attributes:
        by_input: One shape for all samples; empty if there is none.
        problem: Why there is none although there is data, and the way out.
    """

    by_input: Mapping[str, tuple[int, ...]]
    problem: str = ""


def _shapes_of_data(model: Model, ctx: Context) -> _DataShapes:
    return ctx.kept.get(_DataShapes) or ctx.kept.put(_of_data(model, ctx))


def _of_data(model: Model, ctx: Context) -> _DataShapes:
    if ctx.request.data is None:
        return _DataShapes({})
    try:
        return _DataShapes(input_data(ctx.request.data).extents(model))
    except DovetailError as error:
        return _DataShapes({}, f"{error.message}; {error.hint}" if error.hint else error.message)
