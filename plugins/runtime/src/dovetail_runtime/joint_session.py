"""One session for all regions of a result, where the same engine runs each of them.

Switching from one session to the next takes longer than many kernels, and an engine fuses nothing across them. So a
small result whose regions all run on ONNX Runtime, such as integers next to the host's floats, has a session for
the whole in addition to those of its regions, which report what ran where, and take over if the joint session fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.plugin import EngineError, RegionModel
from dovetail.plugin.loading import artifact_of

from dovetail_runtime.nested_graphs import calls
from dovetail_runtime.serialize import needs_file, weight_bytes

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_runtime.engines import GuardedSession
    from dovetail_runtime.region_runner import RegionRunner


_LARGEST = 1 << 26  # bytes of weights, which are in memory twice; larger models take longer than switching


def joint_session(
    model: Model, runners: Sequence[RegionRunner], options: Mapping[str, object]
) -> GuardedSession | None:
    """Load a whole result in one session; None if its regions run on several engines, or one of them suffices.

    Args:
        model: The result.
        runners: The runners of its regions.
        options: The executor's options: profiles and parallel runs need separate regions.
    """
    if len(runners) < 2 or options.get("profile") or options.get("parallel") == "on":
        return None
    first = runners[0]
    if not all(runner.joins_neighbors and runner.engine == first.engine for runner in runners):
        return None
    outputs = model.graph.outputs
    if any(value.producer() is None for value in outputs) or len({id(value) for value in outputs}) < len(outputs):
        return None
    if calls(model) or any(map(artifact_of, model.graph)) or weight_bytes(model) > _LARGEST or needs_file(model):
        return None
    try:
        found = first.load(RegionModel(model), options)
    except EngineError:
        return None
    return found if found.self_checking is not None else None
