"""The function that this distribution adds to the package: `dovetail.explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.planning.plan import Plan

from dovetail_commands.explain.explanation import explain_plan, only_node

if TYPE_CHECKING:
    from dovetail.api import AnyModel
    from dovetail.compiled import CompiledModel
    from dovetail.plugin import PluginSet

    from dovetail_commands.explain.all_nodes import Elsewhere


def explain(
    result: CompiledModel | Plan | str | Path,
    selector: str | None = None,
    *,
    all: bool = False,  # noqa: A002 - as on the command line
    model: AnyModel | None = None,
    plugins: PluginSet | None = None,
) -> list[str]:
    """Why nodes are where they are.

    Args:
        result: What `compile` or `plan` gave, the folder that a result was saved in, or the path of a plan.
        selector: A selector (see `dovetail.planning.selectors.select`), also of nodes that only the source model has.
            One node is explained with its remarks, those of the nodes that forced it, and what would help; several are
            grouped by their reasons. Without it, the whole model is.
        all: Every node that the first backend has not got, grouped by cause, with the remedies that were tried; without
            a selector. `dovetail_commands.explain.functions.elsewhere` gives the same as data.
        model: The source model. With it, or where it is found by name and digest, what might bring one node to a
            backend is tried, and the lines say what works. It is looked for in the current folder, that of the result
            and the two above it, and below these in the folder that the plan records.
        plugins: The plugins that read it, and to try it with; by default all that are installed.

    Raises:
        DovetailError: Nothing matches the selector, or there is no plan.
        UsageError: A selector is given besides `all`.
    """
    if all:
        if selector is not None:
            raise UsageError("a selector is given besides all nodes", "leave one of them out")
        return elsewhere(result, model=model, plugins=plugins).lines()
    decided = _plan_of(result, plugins)
    lines = explain_plan(decided, selector)
    node = only_node(decided, selector)
    if node is not None:
        from dovetail_commands.explain.trials import remedy_lines

        lines += remedy_lines(decided, node, result, model, plugins)
    return lines


def elsewhere(
    result: CompiledModel | Plan | str | Path, *, model: AnyModel | None = None, plugins: PluginSet | None = None
) -> Elsewhere:
    """What `explain(result, all=True)` says, as data.

    Args:
        result: As for `explain`.
        model: As for `explain`.
        plugins: As for `explain`.

    Raises:
        DovetailError: There is no plan.
    """
    from dovetail_commands.explain.all_nodes import all_elsewhere

    return all_elsewhere(_plan_of(result, plugins), result, model, plugins)


def _plan_of(result: CompiledModel | Plan | str | Path, plugins: PluginSet | None) -> Plan:
    if isinstance(result, (str, Path)):
        return Plan.load(result, plugins.registry if plugins is not None else None)
    return result if isinstance(result, Plan) else result.plan
