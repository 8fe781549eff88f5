"""The commands that compile, plan and transform models, and what such commands share."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Bring the commands `compile`, `plan` and `opt`."""
    registry.command("compile", "dovetail_commands.compile:COMPILE")
    registry.command("plan", "dovetail_commands.plan:PLAN")
    registry.command("opt", "dovetail_commands.opt:OPT")
