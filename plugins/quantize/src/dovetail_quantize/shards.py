"""Calibration on parts of the data, each seen by observers in another process; what they saw is merged exactly."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import ObserverChoice, ParameterRule
from dovetail_precision.sharing_groups import QuantizedForm
from dovetail_runtime.data.file_items import FileItems
from dovetail_runtime.data_workers import DataWorkers, answering
from dovetail_runtime.serialize import needs_file

from dovetail_quantize.observers.merging import MergingObserver, State
from dovetail_quantize.observing import CUT_DATA, Amount, NamedObserver, observe
from dovetail_quantize.parameters import ObserversTogether, WithRelu

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import PluginSet

    from dovetail_quantize.observing import Watcher

_COUNTS = ("counts", "number")  # in states of observers
_TYPES = ("float32", "float64", "int64")
_LARGEST = 1 << 30  # bytes of an array of a state


def observe_in_parts(
    workers: DataWorkers, model: Model, wanted: Mapping[str, Sequence[Watcher]], ctx: Context
) -> Amount | None:
    """Show the data of the request to watchers, part by part in other processes; see `observe`.

    Returns:
        The amount of data; None if it cannot be divided, which a remark says.

    Raises:
        DovetailError: A part of the data does not fit, or no machine finishes it.
    """
    watched = [(name, watcher) for name, watchers in wanted.items() for watcher in watchers]
    if why := _undivided(model, watched):
        ctx.remark("missed", "", "data-workers", f"one process calibrates: {why}")
        return None
    parts = workers.divided(model, ctx.request.data)
    if not parts:
        why = "its data is not in several files, which other processes could read"
        ctx.remark("missed", "", "data-workers", f"one process calibrates: {why}", suggest="--data with a folder")
        return None
    from dovetail_onnx.type_gaps import to_bytes

    described = [_described(name, watcher) for name, watcher in watched]
    tasks = [{"data": part.as_dict(), "watched": described} for part in parts]
    answers = workers.run(observe_part, tasks, to_bytes(model.ir), ctx.progress, "calibrate, parts")
    amount, said = Amount(0, 0), dict[str, None]()
    for answer in answers:
        try:
            said |= dict.fromkeys(map(str, answer["said"]))
            batches, samples = map(int, answer["amount"])
            if min(batches, samples) < 0:
                raise ValueError(f"amount: {min(batches, samples)} is below 0")
            for (value, watcher), states in zip(watched, answer["states"], strict=True):
                for one, state in zip(_observers(watcher).fed, states, strict=True):
                    one.merge(_checked(value, {name: _array(*parts) for name, parts in state.items()}))
        except (ValueError, KeyError, TypeError, OverflowError, IndexError, zlib.error) as error:
            raise DovetailError(f"a worker gives an answer that is not valid: {error!r}", "compile here") from error
        amount = Amount(amount.batches + batches, amount.samples + samples)
    for text in said:
        ctx.remark("passed", "", CUT_DATA, text)
    return amount


def _checked(value: str, state: State) -> State:
    """Return a state of a value, whose extrema are finite and in order, and whose counts are not below 0.

    Raises:
        ValueError: It is something else.
    """
    for name, array in state.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"'{value}': {name} holds {array[~np.isfinite(array)][0]}, which is not finite")
        if name in _COUNTS and (array < 0).any():
            raise ValueError(f"'{value}': {name} holds {array[array < 0][0]}, which is below 0")
    if "low" in state and (state["low"] > state["high"]).any():
        raise ValueError(f"'{value}': a smallest number is above the largest one")
    return state


def _undivided(model: Model, watched: Sequence[tuple[str, Watcher]]) -> str:
    """Say why a calibration cannot be divided; empty if it can."""
    for _, watcher in watched:
        if not isinstance(watcher, (ObserversTogether, WithRelu)):
            return "something else than observers looks at the data"
        for one in _observers(watcher).fed:
            if not isinstance(one.observer, MergingObserver):
                return f"observer '{one.choice.name}' does not merge what several of it saw"
    return "its weights do not fit in a message" if needs_file(model) else ""


def _observers(watcher: Watcher) -> ObserversTogether:
    found = watcher.observers if isinstance(watcher, WithRelu) else watcher
    assert isinstance(found, ObserversTogether), "others are not divided"
    return found


def _described(value: str, watcher: Watcher) -> dict[str, Any]:
    """Describe a watcher as plain data."""
    together = _observers(watcher)
    choices = [[one.choice.name, [list(pair) for pair in one.choice.options]] for one in together.fed]
    how = {"relu": isinstance(watcher, WithRelu), "whole": together.extrema is None}
    return {"value": value, "node": together.fed[0].node, "format": str(watcher.format), "choices": choices, **how}


def observe_part(text: str, model: bytes) -> str:
    """Show a part of the data to observers in this process; see `observe_in_parts`.

    Args:
        text: The task.
        model: The model.

    Returns:
        The answer; see `dovetail_runtime.data_workers`.
    """
    return answering(lambda: _observed(json.loads(text), model))


def _observed(task: Mapping[str, Any], content: bytes) -> dict[str, Any]:
    from dovetail import api
    from dovetail.passes import Context, Request

    plugins = _plugins(tuple(task["blocked"]))
    model = api.open(content, plugins)
    ctx = Context(Request(data=FileItems.from_dict(task["data"])), plugins=plugins)
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in model.graph.inputs}
    wanted: dict[str, list[Watcher]] = {}
    made = []
    for one in task["watched"]:
        form = QuantizedForm(values[one["value"]], Format.of(one["format"]), ParameterRule())
        choices = [
            ObserverChoice(name, tuple((key, value) for key, value in options)) for name, options in one["choices"]
        ]
        named = [NamedObserver(form, plugins.registry.observer, choice, one["node"]) for choice in choices]
        together = ObserversTogether(named, whole=one["whole"])
        made.append(together)
        wanted.setdefault(one["value"], []).append(WithRelu(together) if one["relu"] else together)
    amount = observe(model, wanted, ctx)
    states = [[_encoded(one.state()) for one in together.fed] for together in made]
    said = [remark.why for remark in ctx.remarks if remark.rule == CUT_DATA]
    return {"amount": list(amount), "states": states, "said": said}


@cache
def _plugins(blocked: tuple[str, ...]) -> PluginSet:
    from dovetail import load_plugins

    return load_plugins(block=blocked)


def _encoded(state: State) -> dict[str, list[Any]]:
    return {
        name: [array.dtype.name, list(array.shape), base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()]
        for name, array in state.items()
    }


def _array(dtype: str, shape: Sequence[int], text: str) -> np.ndarray:
    """Return an array of a state.

    Raises:
        ValueError: It is not valid.
    """
    size = int(np.prod([int(extent) for extent in shape])) * 8
    if dtype not in _TYPES or min(shape, default=0) < 0 or size > _LARGEST:
        raise ValueError(f"an array of {dtype} of the shape {shape}")
    data = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)
