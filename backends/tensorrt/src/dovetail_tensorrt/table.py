"""Nodes that the backend file rejects in a model's current types.

While nodes are claimed, a float32 port represents every type that it may get. Here ports keep their types, like in a
parser, so that the answers can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, name_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import Registry
    from dovetail_schemas import FileBackend


def refusals_as_typed(model: Model, backend: FileBackend, registry: Registry) -> dict[str, str]:
    """Return why the file rejects nodes in their current types, by node name.

    Nodes in bodies are included. Types and shapes should be inferred; a node with an untyped value is rejected.

    Args:
        model: The model.
        backend: The backend, with its options chosen (`ctx.backends` has it).
        registry: What plugins registered; the facts that the file uses are looked up here.

    Returns:
        The first reason for each rejected node, with file and line of its rule, in graph order.
    """
    facts = {name: registry.fact[name] for name in backend.facts}
    judge = backend.judge(model.ir.opset_imports, facts, as_typed=True)
    found: dict[str, str] = {}
    for node in all_nodes(model.graph):
        verdict = judge(node)
        if verdict.ok is False:
            found[name_of(node)] = str(verdict.reasons[0])
    return found
