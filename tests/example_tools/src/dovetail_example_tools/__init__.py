"""A command and an option; imported whenever Dovetail starts, so it imports nothing heavy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    registry.command("hello", "dovetail_example_tools.command:HELLO")
    registry.option("hello", "dovetail_example_tools.option:GREETED")
