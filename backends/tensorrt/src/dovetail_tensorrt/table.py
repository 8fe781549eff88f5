"""What the backend file refuses of a model as it is typed now.

While nodes are claimed, a float32 port stands for every type that it might be given. Here ports keep their types, as a
parser reads them, so that the answers can be compared with a parser's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, name_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import Registry
    from dovetail_schemas.backend import Backend


def refusals_as_typed(model: Model, backend: Backend, registry: Registry) -> dict[str, str]:
    """Why the file refuses nodes of a model in the types that they have, by name of the node.

    Nodes of bodies are judged, too. Types and shapes of values should be inferred; a node with a value without a type
    is refused.

    Args:
        model: The model.
        backend: The backend, with its options chosen (`ctx.backends` has it).
        registry: What plugins registered; the facts that the file uses are looked up here.

    Returns:
        The first reason with the file and line of its rule, by the name of each node that is refused, in graph order.
    """
    facts = {name: registry.fact[name] for name in backend.facts}
    judge = backend.judge(model.ir.opset_imports, facts, as_typed=True)
    found: dict[str, str] = {}
    for node in all_nodes(model.graph):
        verdict = judge(node)
        if verdict.ok is False:
            found[name_of(node)] = str(verdict.reasons[0])
    return found
