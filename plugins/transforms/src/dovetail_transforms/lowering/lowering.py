"""Lowering of models to an older opset of the default ONNX domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.gc_pause import gc_paused
from dovetail.ir.fresh_names import FreshNames
from dovetail.passes import Context

from dovetail_transforms.canonicalize.dead_code import DeadCode
from dovetail_transforms.canonicalize.normalise import Normalise
from dovetail_transforms.canonicalize.opsets import ir_version_of
from dovetail_transforms.lowering.schemas import is_default
from dovetail_transforms.lowering.steps import NodeRefused, lower_node

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.remark import Remark


LOWEST = 11
_MOST_NAMED = 5  # refused nodes in a message


class NotLowered(DovetailError):
    """Nodes have no form in an older opset.

    Attributes:
        node: The name of the first of them.
    """

    def __init__(self, message: str, hint: str, node: str):
        super().__init__(message, hint)
        self.node = node


class Lowered(NamedTuple):
    """A lowered model, and a remark for every node that changed."""

    model: Model
    remarks: tuple[Remark, ...]


def lower(model: Model, opset: int) -> Lowered:
    """Return a copy of `model` in `opset`, or as it is if it imports that or an older one already.

    The copy shares the weights. A model that was not normalised is normalised first. Nodes of other domains stay.

    Raises:
        NotLowered: A node has no form in `opset`.
        DovetailError: `opset` is older than 11.
    """
    copy = model.clone()
    ctx = Context(model=copy)
    ctx.current_pass = "lower-opset"
    if copy.ir.functions or any(value.type is None for node in copy.nodes() for value in node.outputs if value.name):
        Normalise().run(copy, ctx)
    lower_in_place(copy, opset, ctx)
    return Lowered(copy, tuple(ctx.remarks))


def lower_in_place(model: Model, opset: int, ctx: Context) -> bool:
    """Lower `model`, whose values have types, to `opset`.

    Returns:
        Whether anything changed.

    Raises:
        NotLowered: A node has no form in `opset`; the model is then half lowered.
    """
    if opset < LOWEST:
        raise DovetailError(
            f"models are lowered to opset {LOWEST} at the lowest, not to opset {opset}",
            f"choose an opset from {LOWEST} on",
        )
    if model.opset <= opset:
        return False
    if model.ir.functions:
        name = next(iter(model.ir.functions))[1]
        raise DovetailError(
            f"the model has functions of its own ('{name}'), which are not lowered",
            "run `normalise` first: it replaces them by their nodes",
        )
    refused: list[NodeRefused] = []
    with gc_paused():
        names = ctx.analysis(FreshNames, model)
        nodes = list(model.nodes())
        for node in nodes:
            node.version = node.version or model.opset
        for node in nodes:
            if not is_default(node.domain):
                ctx.count(f"nodes of {node.domain}, which stay")
                continue
            try:
                for step in lower_node(node, model.opset, opset, names):
                    ctx.remark("passed", step.node, step.rule, step.text)
                    ctx.count(step.rule)
            except NodeRefused as why:
                refused.append(why)
        if refused:
            raise _error(refused, opset)
        for node in model.nodes():
            node.version = None
        _import(model, opset)
        DeadCode().run(model, ctx)  # axes and sizes that are attributes now
    model.touch()
    return True


def _import(model: Model, opset: int) -> None:
    imports = model.ir.opset_imports
    for domain in [domain for domain in imports if is_default(domain)]:
        del imports[domain]
    imports[""] = opset
    model.ir.ir_version = min(model.ir.ir_version, ir_version_of(opset))


def _error(refused: list[NodeRefused], opset: int) -> NotLowered:
    named = "; ".join(f"'{one.node}': {one.why}" for one in refused[:_MOST_NAMED])
    more = f"; and {len(refused) - _MOST_NAMED} more nodes" if len(refused) > _MOST_NAMED else ""
    return NotLowered(f"the model cannot be lowered to opset {opset}: {named}{more}", refused[0].hint, refused[0].node)
