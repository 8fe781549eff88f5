"""Guards: a pass must not change a model's interface, and an observing hook must not change the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.loading.loader import PluginSet


class Interface:
    """The names of a model's inputs and outputs before a pass, which must not change."""

    def __init__(self, model: Model):
        self._inputs, self._outputs = model.interface()

    def broken_by(self, model: Model) -> str:
        """Describe how a pass changed the interface; empty if it did not.

        Inputs with initializers, as in IR 3, may become constants; no other change is allowed.
        """
        try:
            inputs, outputs = model.interface()
        except Exception as error:  # a broken graph may raise anything
            return f"the graph's inputs and outputs cannot be read: {type(error).__name__}: {error}"
        if outputs != self._outputs:
            return _difference("output", self._outputs, outputs)
        if inputs != self._inputs:
            constants = model.initializer_names()
            wanted = [name for name in self._inputs if name in set(inputs) or name not in constants]
            if inputs != wanted:
                return _difference("input", wanted, inputs)
        return ""


def _difference(what: str, before: list[str], after: list[str]) -> str:
    gone = [name for name in before if name not in set(after)]
    new = [name for name in after if name not in set(before)]
    if gone and new:
        return f"graph {what} '{gone[0]}' is gone and '{new[0]}' is new"
    if gone or new:
        return f"graph {what} '{(gone or new)[0]}' is {'gone' if gone else 'new'}"
    return f"the graph's {what}s are {after}, and were {before}"


def observe(plugins: PluginSet, own: Callable[..., None], *, model: Model, **arguments: object) -> None:
    """Call a hook that observes a model, and check that no plugin changed the model.

    Args:
        plugins: The plugins.
        own: A function of the caller that takes part in the call; its name is that of the hook.
        model: The model.
        arguments: The other arguments of the hook.

    Raises:
        DovetailError: A plugin changed the model.
    """
    hook = own.__name__
    titles = [record for record in plugins.plugins if hook in record.hooks and record.status == "ok"]
    if not titles:
        plugins.call(hook, own, model=model, **arguments)
        return
    before, untouched = _state(model), model.untouched
    plugins.call(hook, own, model=model, **arguments)
    # If the hook built the graph of an unbuilt model, only the counts are comparable.
    if (_state(model) != before) if model.untouched == untouched else (_numbers(model) != before[-1]):
        names = " or ".join(sorted({record.distribution for record in titles}))
        options = " ".join(f"--no-plugin {record.name}" for record in titles)
        raise DovetailError(
            f"hook {hook} of {names} changed the model, but a hook may only observe it",
            f"leave the plugin out ({options}); to change models, it needs a pass",
        )


def _state(model: Model) -> tuple[object, ...]:
    """Return a cheap fingerprint of a model that changes with any edit."""
    if model.lazy is not None:
        content: object = model.lazy.content()
    else:
        nodes = [(id(node), node.op_type, node.inputs, node.outputs, len(node.attributes)) for node in model.nodes()]
        content = (hash(tuple(nodes)), tuple(map(id, model.graph.initializers.values())))
    return model.revision, content, _numbers(model)


def _numbers(model: Model) -> tuple[object, ...]:
    return model.interface(), model.revision, model.node_count(), len(model.initializer_names())
