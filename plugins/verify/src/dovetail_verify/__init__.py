"""Comparing a result with its original, accuracy goals, and finding the nodes that cost the accuracy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Bring the commands `verify` and `bisect`, and what compiling verifies and is held to."""
    registry.command("verify", "dovetail_verify.commands:VERIFY")
    registry.command("bisect", "dovetail_verify.commands:BISECT")
    registry.option("verify", "dovetail_verify.option:VERIFY_RESULT")
