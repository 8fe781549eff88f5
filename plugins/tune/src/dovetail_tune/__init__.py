"""Tuning: the fastest plan within an accuracy goal, measured on this machine."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the commands `tune` and `profile`."""
    registry.command("tune", "dovetail_tune.command:TUNE")
    registry.command("profile", "dovetail_tune.profile_command:PROFILE")
