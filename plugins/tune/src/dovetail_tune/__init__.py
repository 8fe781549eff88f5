"""Tuning: the fastest plan within an accuracy goal, measured on this machine."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the command `tune`."""
    registry.command("tune", "dovetail_tune.command:TUNE")
