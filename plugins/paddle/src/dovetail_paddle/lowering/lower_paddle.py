"""The `lower-paddle` pass: lower `pd_op` operators to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import gc_paused
from dovetail.passes import Pass
from dovetail.text import pluralize, printable

from dovetail_paddle.pd_graph import PD_OP

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


OPTION = "keep-unknown"
"""Name of the option in a request for keeping unknown operators."""

_SHOWN = 20
_ADD = (
    "--keep-unknown keeps unknown operators as operators of the domain 'paddle'; one is added with an entry in "
    "pd_ops.yaml and op_compat.yaml and a rule in dovetail_paddle/lowering/rules"
)


@dataclass(frozen=True)
class LowerPaddle(Pass):
    """Lower a Paddle program to ONNX.

    Given:  %y = pd_op.add(pd_op.matmul(%x, %w), %b)
    Result: %y = Add(MatMul(%x, %w), %b)

    Options:
        keep_unknown: Keep operators that have no rule, as operators of the domain `paddle`, instead of refusing them.
    """

    name = "lower-paddle"
    stage = "normalize"
    before = ("normalize",)
    takes_anything = True

    keep_unknown: bool = False

    def run(self, model: Model, ctx: Context) -> bool:
        """Lower every operator; models of other front ends are not changed."""
        if not _is_program(model):
            return False
        before = model.node_count()
        lowered, kept = _lowered(model, self.keep_unknown or bool(ctx.request.options.get(OPTION)))
        model.replace(lowered)
        ctx.count("operators", before)
        ctx.count("nodes", model.node_count())
        for node in kept:
            why = f"'{node.op_type}' is no operator that dovetail-paddle knows, and is kept as one of domain 'paddle'"
            ctx.remark("missed", node, "keep-unknown", why)
        ctx.remark("passed", "", "lower-paddle", f"{before} operators of Paddle are {model.node_count()} of ONNX now")
        return True


def lowered_copy(model: Model) -> Model:
    """Return a lowered copy of a program, keeping unknown operators; a lowered model is returned unchanged.

    Raises:
        DovetailError: Some operators cannot be lowered.
    """
    return _lowered(model, keep_unknown=True)[0] if _is_program(model) else model


def _is_program(model: Model) -> bool:
    """Check whether a model has Paddle operators, even if it was read as ONNX, for example from a printed program."""
    lazy = model.lazy if model.untouched else None
    return any(node.domain == PD_OP for node in (model.graph if lazy is None else lazy.nodes()))


def _lowered(model: Model, keep_unknown: bool) -> tuple[Model, list[ir.Node]]:
    from dovetail_paddle.lowering.graphs import (
        lower_model,  # every compilation asks whether there is a program to lower
    )

    with gc_paused():
        lowered, problems, kept = lower_model(model.ir, keep_unknown)
    if problems:
        raise _refused(model, problems)
    return type(model)(lowered, model.path, dialect=model.dialect), kept


def _refused(model: Model, problems: Sequence[tuple[ir.Node, str]]) -> DovetailError:
    """Create a single error about all operators that cannot be lowered."""
    from dovetail_paddle.lowering.graphs import NO_RULE
    from dovetail_paddle.lowering.op import place_of

    kinds: dict[tuple[str, str], list[ir.Node]] = {}
    for node, why in problems:
        kinds.setdefault((node.op_type, why), []).append(node)
    lines = []
    for (op_type, why), nodes in list(kinds.items())[:_SHOWN]:
        times = f" ({len(nodes)} times)" if len(nodes) > 1 else ""
        lines.append(f"  {op_type}{times}: {why}; {place_of(nodes[0])}")
    if len(kinds) > _SHOWN:
        lines.append(f"  and {len(kinds) - _SHOWN} more")
    name = model.path or "the program"
    text = "\n".join([f"{name}: {pluralize(len(problems), 'operator')} cannot be lowered:", *map(printable, lines)])
    unknown = any(why == NO_RULE for _, why in problems)
    return DovetailError(text, _ADD if unknown else "change the program where it says so, and export it again")
