"""The commands that compile, plan, transform and explain models and list backends, with what they share."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the commands and the option `--engine-env`."""
    registry.command("backends", "dovetail_commands.backends:BACKENDS", "machine", "List backends and their engines.")
    registry.command(
        "compile", "dovetail_commands.compile:COMPILE", "compile", "Compile a model for one or several backends."
    )
    registry.command(
        "plan",
        "dovetail_commands.compile:PLAN",
        "understand",
        "Decide where and in which type every operator runs; print or save the plan.",
    )
    registry.command(
        "opt", "dovetail_commands.opt:OPT", "extend", "Run a pipeline of passes over a model and print it as text."
    )
    registry.command(
        "passes", "dovetail_commands.passes_command:PASSES", "extend", "List passes by stage, and named pipelines."
    )
    registry.command(
        "explain",
        "dovetail_commands.explain.command:EXPLAIN",
        "understand",
        "Explain why a node runs where it runs, and what would change that.",
    )
    registry.command(
        "doctor",
        "dovetail_commands.doctor:DOCTOR",
        "machine",
        "Report what this machine and a model need, and what to type first.",
    )
    registry.option("engine-env", "dovetail_commands.engine_environments:ENGINE_ENV")
    registry.command(
        "cache",
        "dovetail_commands.cache_command:CACHE",
        "machine",
        "Show or clear what later compilations and sessions use again.",
    )
    registry.command(
        "demo",
        "dovetail_commands.demo:DEMO",
        "compile",
        "Compile a small model in a new folder, to show what Dovetail does.",
    )
