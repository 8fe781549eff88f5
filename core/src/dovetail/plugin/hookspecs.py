"""The contract between Dovetail and its plugins: seven hooks. `docs/plugins.md` shows them in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.request import Request
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.pass_ import Pass
    from dovetail.plugin.pass_result import PassResult
    from dovetail.plugin.steps import StepList


PROJECT = "dovetail"
API_VERSION = 1

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register(registry: Registry) -> None:
    """Register the plugin's components, as targets that are imported on first use.

    Args:
        registry: Has one table per kind of component: `registry.pass_("my-pass", "my_package.module:MyPass")`.
    """


@hookspec
def before_opening(registry: Registry) -> None:
    """Prepare for a model: called before each model is opened.

    Args:
        registry: Everything that plugins registered.
    """


@hookspec
def opened(model: Model, registry: Registry) -> None:
    """Extend a model that was just opened, for example with functions that its nodes call.

    Args:
        model: The model, which may be changed.
        registry: Everything that plugins registered.
    """


@hookspec
def configure_pipeline(pipeline: StepList, request: Request) -> None:
    """Adjust the composed pipeline: add, move or remove steps in place.

    Called once per compilation, with the passes of all its stages, regardless of the number of rounds.

    Args:
        pipeline: The passes of all plugins in order; `pipeline.steps` is an ordinary list.
        request: The user's request.
    """


@hookspec
def before_pass(pass_: Pass, model: Model) -> None:
    """Observe the model before a pass runs.

    Args:
        pass_: The pass with its options.
        model: The model, which must not be changed.
    """


@hookspec
def after_pass(pass_: Pass, model: Model, result: PassResult) -> None:
    """Observe the model after a pass ran and the verifier accepted the result.

    Args:
        pass_: The pass with its options.
        model: The model, which must not be changed.
        result: Whether the pass changed the model, its time in seconds, counts and remarks.
    """


@hookspec
def pass_failed(pass_: Pass, model: Model, error: Exception) -> None:
    """Observe the model that a failing pass left.

    Args:
        pass_: The pass with its options.
        model: The model, possibly half changed.
        error: The exception of the pass, or the verifier error.
    """
