"""`dovetail explain` and `dovetail.explain`: why a node runs where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import dovetail
from dovetail.cli import PlainCommand, existing, plugins_of, print_json, say
from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.api import AnyModel
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel, PluginSet

    from dovetail_commands.explain.all_nodes import Elsewhere


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("result", type=Path, metavar="DIR", help="folder that compile wrote, or a plan file")
    parser.add_argument(
        "node",
        nargs="?",
        metavar="SELECTOR",
        help="name of a node, of its output or of a source node, a pattern, type:OPERATOR or region:NUMBER "
        "(default: the whole model)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="every node that the first backend has not got, by cause, with what would bring it there",
    )
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the source model, to try what might bring the node elsewhere on it"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""

    existing(args.result)
    result, model, plugins = args.result, existing(args.model), plugins_of(args)
    if args.all and args.node is None and args.json:
        print_json(elsewhere(result, model=model, plugins=plugins).as_dict())
        return 0
    lines = explain(result, args.node, all=args.all, model=model, plugins=plugins)
    if args.json:
        print_json({"node": args.node, "lines": lines})
    else:
        say(*lines)
    return 0


EXPLAIN = PlainCommand(add_arguments, run)


def explain(
    result: CompiledModel | Plan | str | Path,
    selector: str | None = None,
    *,
    all: bool = False,  # noqa: A002 - as on the command line
    model: AnyModel | None = None,
    plugins: PluginSet | None = None,
) -> list[str]:
    """Explain why nodes are placed where they are.

    Args:
        result: A result of `compile` or `plan`, the folder of a saved result, or the path of a plan.
        selector: A selector (see `dovetail.planning.selectors.select`), which may also name nodes that only the source
            model has. One node is explained with its remarks, those of the nodes that forced it, and remedies; several
            are grouped by their reasons. Without a selector, the whole model is explained.
        all: Report every node that is not on the first backend, grouped by cause, with tested remedies; excludes a
            selector. `dovetail_commands.explain.command.elsewhere` returns the same as data.
        model: The source model. If it is given, or found by name and digest, remedies for one node are tested, and the
            lines say which work. It is searched in the current folder, the result's folder and two folders above, and
            in the folder recorded in the plan below each of these.
        plugins: The plugins to read the model and try remedies with; all installed ones by default.

    Raises:
        DovetailError: Nothing matches the selector, or there is no plan.
        UsageError: A selector is given together with `all`.
    """
    if all:
        if selector is not None:
            raise UsageError("a selector is given besides all nodes", "leave one of them out")
        return elsewhere(result, model=model, plugins=plugins).lines()
    from dovetail_commands.explain.explanation import explain_plan, only_node  # the help lists this command

    decided = _plan_of(result, plugins)
    lines = explain_plan(decided, selector)
    node = only_node(decided, selector)
    if node is not None:
        from dovetail_commands.explain.neighborhood import neighborhood
        from dovetail_commands.explain.remedies import remedy_lines

        lines += neighborhood(result, node, plugins)
        lines += remedy_lines(decided, node, result, model, plugins)
    return lines


def elsewhere(
    result: CompiledModel | Plan | str | Path, *, model: AnyModel | None = None, plugins: PluginSet | None = None
) -> Elsewhere:
    """Return the report of `explain(result, all=True)` as data.

    Args:
        result: See `explain`.
        model: See `explain`.
        plugins: See `explain`.

    Raises:
        DovetailError: The result has no plan.
    """
    from dovetail_commands.explain.all_nodes import all_elsewhere

    return all_elsewhere(_plan_of(result, plugins), result, model, plugins)


def _plan_of(result: CompiledModel | Plan | str | Path, plugins: PluginSet | None) -> Plan:
    if isinstance(result, (str, Path)):
        return dovetail.load_plan(result, plugins)
    from dovetail.planning import Plan

    return result if isinstance(result, Plan) else result.plan
