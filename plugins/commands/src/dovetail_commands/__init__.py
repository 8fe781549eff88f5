"""The commands that compile, plan, transform and explain models and list backends, with what they share."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the commands and the option `--engine-env`."""
    registry.command("backends", "dovetail_commands.backends:BACKENDS")
    registry.command("compile", "dovetail_commands.compile:COMPILE")
    registry.command("plan", "dovetail_commands.compile:PLAN")
    registry.command("opt", "dovetail_commands.opt:OPT")
    registry.command("passes", "dovetail_commands.passes_command:PASSES")
    registry.command("explain", "dovetail_commands.explain.command:EXPLAIN")
    registry.command("doctor", "dovetail_commands.doctor:DOCTOR")
    registry.option("engine-env", "dovetail_commands.engine_environments:ENGINE_ENV")
    registry.command("cache", "dovetail_commands.cache_command:CACHE")
    registry.command("demo", "dovetail_commands.demo:DEMO")
