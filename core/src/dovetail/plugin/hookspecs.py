"""The whole contract between Dovetail and its plugins: seven hooks. `docs/plugins.md` shows them at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Pass, PassResult, Pipeline, Request
    from dovetail.plugin.registry import Registry


PROJECT = "dovetail"
API_VERSION = 1

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register(registry: Registry) -> None:
    """Tell what the plugin brings, as text that is imported only when somebody asks for it.

    Args:
        registry: Has one table per kind of thing: `registry.pass_("my-pass", "my_package.module:MyPass")`.
    """


@hookspec
def before_opening(registry: Registry) -> None:
    """Get ready for a model: called before each one is opened.

    Args:
        registry: Everything that plugins registered.
    """


@hookspec
def opened(model: Model, registry: Registry) -> None:
    """Add to a model that was just opened what belongs to it, such as functions that its nodes call.

    Args:
        model: The model, which may be changed.
        registry: Everything that plugins registered.
    """


@hookspec
def configure_pipeline(pipeline: Pipeline, request: Request) -> None:
    """Have the last word on a composed pipeline: add, move or drop steps in place.

    Called once for a compilation, with the passes of all of its stages, however often it decides again.

    Args:
        pipeline: The passes of all plugins in order; `pipeline.steps` is an ordinary list.
        request: What the user asked for.
    """


@hookspec
def before_pass(pass_: Pass, model: Model) -> None:
    """Look at the model before a pass runs.

    Args:
        pass_: The pass with its options.
        model: The model, not to be changed.
    """


@hookspec
def after_pass(pass_: Pass, model: Model, result: PassResult) -> None:
    """Look at the model after a pass ran and the verifier accepted what it left.

    Args:
        pass_: The pass with its options.
        model: The model, not to be changed.
        result: Whether it changed something, its seconds, counts and remarks.
    """


@hookspec
def pass_failed(pass_: Pass, model: Model, error: Exception) -> None:
    """Look at what a pass left behind when it raised.

    Args:
        pass_: The pass with its options.
        model: The model, possibly half changed.
        error: What it raised, or the verifier's complaint.
    """
