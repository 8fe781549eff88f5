"""Merging of conditional blocks with opposite conditions, the form of an `if` in legacy programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dovetail.ir import producer_of

from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir


def merge_branches(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Merge two conditional blocks with opposite conditions into one `if`.

    Legacy programs have a block for each branch, and `select_input` selects the result of the executed one:

        a = if(c) {...}   b = if(logical_not(c)) {...}   r = select_input(cast(c), [b, a])

    Blocks whose results have other readers are not changed.
    """
    merged: list[ir.Node] = []
    pairs: dict[tuple[int, int], list[ir.Node]] = {}
    for node in nodes:
        found = _branches(node)
        if found is not None:
            pairs.setdefault((id(found[0].producer()), id(found[1].producer())), []).append(node)
    gone: set[int] = set()
    made: dict[int, ir.Node] = {}
    for selects in pairs.values():
        when, otherwise = map(producer_of, _chosen(selects[0]))
        if not all(_only_selected(node, selects) for node in (when, otherwise)):
            continue
        readers = [reader for select in selects for reader in _readers(select)]
        gone.update(map(id, (*readers, when, otherwise)))
        made[id(selects[0])] = _merged(selects)
    for node in nodes:
        if id(node) in made:
            merged.append(made[id(node)])
        elif id(node) not in gone:
            merged.append(node)
    return merged


def _branches(select: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Return the operands of a `select_input` if they come from two `if` nodes with opposite conditions, else None."""
    if select.op_type != "select_input":
        return None
    number, given = operands(select)[0].producer(), _given(select)
    otherwise, when = given if len(given) == 2 else (None, None)
    if number is None or number.op_type != "cast" or otherwise is None or when is None:
        return None
    condition = number.inputs[0]
    first, second = when.producer(), otherwise.producer()
    if first is None or second is None or first.op_type != "if" or second.op_type != "if":
        return None
    negation = operands(second)[0].producer()
    opposite = negation is not None and negation.op_type == "logical_not" and negation.inputs[0] is condition
    return (when, otherwise) if opposite and first.inputs[0] is condition else None


def _chosen(select: ir.Node) -> tuple[ir.Value, ir.Value]:
    """Return the operands of a `select_input` that `_branches` accepts."""
    return cast("tuple[ir.Value, ir.Value]", _branches(select))


def _given(select: ir.Node) -> Sequence[ir.Value | None]:
    """Return the alternatives of a `select_input`: its own operands, or those of the list that it reads."""
    listed = operands(select)[1].producer() if len(select.inputs) == 2 else None
    return select.inputs[1:] if listed is None else listed.inputs


def _readers(select: ir.Node) -> list[ir.Node]:
    """Return a `select_input`, and the list that it reads, if any."""
    listed = operands(select)[1].producer() if len(select.inputs) == 2 else None
    return [select] if listed is None else [select, listed]


def _only_selected(node: ir.Node, selects: Sequence[ir.Node]) -> bool:
    readers = {id(reader) for select in selects for reader in _readers(select)}
    return all(id(user) in readers for value in node.outputs for user, _ in value.uses())


def _merged(selects: Sequence[ir.Node]) -> ir.Node:
    import onnx_ir as ir

    chosen = list(map(_chosen, selects))
    when, otherwise = map(producer_of, chosen[0])
    graphs = []
    for node, position in ((when, 0), (otherwise, 1)):
        graph = node.attributes["then_branch"].as_graph()
        kept = [graph.outputs[cast("int", pair[position].index())] for pair in chosen]
        graph.outputs[:] = kept
        graphs.append(graph)
    condition = when.inputs[0]
    attributes = {
        name: ir.AttrGraph(name, graph) for name, graph in zip(("then_branch", "else_branch"), graphs, strict=True)
    }
    outputs = [select.outputs[0] for select in selects]
    metadata = dict(when.metadata_props)
    for select in selects:
        for reader in _readers(select):
            for index in range(len(reader.inputs)):
                reader.replace_input_with(index, None)
    made = []
    for old in outputs:
        value = ir.Value(name=old.name, type=old.type, shape=old.shape)
        old.name = f"{old.name}.selected"
        made.append((old, value))
    node = ir.Node(
        "pd_op", "if", [condition], attributes.values(), outputs=[value for _, value in made], name=when.name
    )
    node.metadata_props.update(metadata)
    for old, value in made:
        old.replace_all_uses_with(value, replace_graph_outputs=True)
    for dead in (when, otherwise):
        dead.replace_input_with(0, None)
    return node
