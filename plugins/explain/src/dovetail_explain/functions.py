"""The function that this distribution adds to the package: `dovetail.explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.planning.plan import Plan

from dovetail_explain.explanation import explain_plan, only_node

if TYPE_CHECKING:
    from dovetail.api import AnyModel
    from dovetail.compiled import CompiledModel
    from dovetail.plugin import PluginSet

__all__ = ["explain"]


def explain(
    result: CompiledModel | Plan | str | Path,
    selector: str | None = None,
    *,
    model: AnyModel | None = None,
    plugins: PluginSet | None = None,
) -> list[str]:
    """Why nodes are where they are.

    Args:
        result: What `compile` or `plan` gave, the folder that a result was saved in, or the path of a plan.
        selector: A selector (see `dovetail.planning.selectors.select`), also of nodes that only the source model has.
            One node is explained with its remarks, those of the nodes that forced it, and what would help; several are
            grouped by their reasons. Without it, the whole model is.
        model: The source model. With it, or where it is found beside the result or in the current folder by name and
            digest, what might bring one node to a backend is tried, and the lines say what works.
        plugins: The plugins that read it, and to try it with; by default all that are installed.

    Raises:
        DovetailError: Nothing matches the selector, or there is no plan.
    """
    if isinstance(result, (str, Path)):
        decided = Plan.load(result, plugins.registry if plugins is not None else None)
    else:
        decided = getattr(result, "plan", result)
    lines = explain_plan(decided, selector)
    node = only_node(decided, selector)
    if node is not None:
        from dovetail_explain.trials import remedy_lines

        lines += remedy_lines(decided, node, result, model, plugins)
    return lines
