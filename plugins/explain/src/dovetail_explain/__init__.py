"""Explaining a plan: the reasons for every decision, and what would bring a node to a backend, tried on the plan."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Bring the command `explain`; the function `dovetail.explain` is an entry point."""
    registry.command("explain", "dovetail_explain.command:EXPLAIN")
