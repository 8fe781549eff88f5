"""Settings of sessions of ONNX Runtime, from options of Dovetail and from settings that the caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail_onnx import configure, onnx_runtime, quiet_settings

if TYPE_CHECKING:
    import onnxruntime as ort


OPTIMIZATIONS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def settings_of(
    options: Mapping[str, object], engine: str, records_assignments: bool, waits: bool = False
) -> tuple[ort.SessionOptions, str]:
    """Return the settings of a session and its level of optimization.

    Settings of the caller stay as they are where no option of Dovetail says otherwise.

    Args:
        options: The options of the engine.
        engine: Its name, for messages.
        records_assignments: Whether the session has to know which execution provider runs a node.
        waits: Whether threads that must not spin after a run may not spin within one either. A session whose threads
            may spins 15 ms of a core's time when it is created, and many small ones are mostly that.

    Raises:
        DovetailError: The level does not exist.
    """
    given = cast("ort.SessionOptions | None", options.get("session_options"))
    settings = given or quiet_settings()
    if given is None or "threads" in options:
        settings.intra_op_num_threads = int(cast("int | str", options.get("threads", 0)))
    configure(settings, entries_of(options, records_assignments, waits))
    level = str(options.get("optimize", "all"))
    if level not in OPTIMIZATIONS:
        raise DovetailError(f"{engine}: optimize={level!r} is not one of {', '.join(OPTIMIZATIONS)}")
    if given is None or "optimize" in options:
        settings.graph_optimization_level = getattr(onnx_runtime().GraphOptimizationLevel, OPTIMIZATIONS[level])
    return settings, level


def entries_of(options: Mapping[str, object], records_assignments: bool, waits: bool = False) -> dict[str, str]:
    """Return the entries that are set in settings of the caller as well; the arguments are those of `settings_of`."""
    entries: dict[str, str] = {}
    if not options.get("spin", True):
        entries |= {"session.intra_op.allow_spinning": "0"} if waits else {"session.force_spinning_stop": "1"}
    # Compute products with 4-bit weights in float32, as the model declares; by default activations are rounded to int8.
    entries["session.qdq_matmulnbits_accuracy_level"] = "1"
    if records_assignments:
        entries["session.record_ep_graph_assignment_info"] = "1"
    return entries
