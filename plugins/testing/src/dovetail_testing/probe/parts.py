"""A probe on several machines: each tries the nodes of some operators, and its outcomes come home as lines of text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin import TemporaryFolder
from dovetail_onnx import write_text
from dovetail_runtime.data_workers import DataWorkers, answering

from dovetail_testing.probe.probing import engines_of_target, probe
from dovetail_testing.suites import node_cases

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet

    from dovetail_testing.probe.probing import Progress


def probe_in_parts(
    workers: DataWorkers,
    target: str,
    state: Path,
    *,
    time_limit: float | None = None,
    operators: Sequence[str] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> str:
    """Try nodes on the machines of workers, and write the outcomes into the file that `probe` resumes from.

    Args:
        workers: The machines; those with the engine try nodes, and have it in the same versions.
        target, time_limit, operators, progress: See `probe`; every machine has the same time.
        state: The file; outcomes that are in it stay.
        plugins: The plugins of this machine; all installed ones by default.

    Returns:
        The engine, if it is not on this machine; else empty.

    Raises:
        DovetailError: No machine has the engine, none finishes a part, or the machines have other versions.
    """
    plugins = plugins or _plugins(workers.blocked)
    workers = workers.having(dict([engines_of_target(target, plugins)]), plugins.registry)
    wanted = sorted(operators or {test.operator for test in node_cases()})
    number = min(workers.parts, len(wanted))
    tasks = [{"target": target, "operators": wanted[at::number], "seconds": time_limit} for at in range(number)]
    answers = [list(map(str, answer)) for answer in workers.run(probe_part, tasks, b"", progress, "operators, parts")]
    heads = {next(iter(lines), "") for lines in answers}
    if len(heads) > 1:
        raise DovetailError("the machines have the engine in different versions", "install the same on each")
    before = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    known = before if before[:1] == list(heads) else []  # others are of another engine or version
    write_text(state, "\n".join(dict.fromkeys(line for lines in (known, *answers) for line in lines)) + "\n")
    return workers.elsewhere


def probe_part(text: str, model: bytes) -> str:
    """Probe some operators in this process; see `probe_in_parts`.

    Args:
        text: The task.
        model: Nothing.

    Returns:
        The lines of a state; see `dovetail_runtime.data_workers`.
    """
    return answering(lambda: _probed(json.loads(text)))


def _probed(task: Mapping[str, Any]) -> list[str]:
    folder = TemporaryFolder("probe")
    state = folder.path / "state"
    plugins = _plugins(tuple(task["blocked"]))
    probe(task["target"], plugins=plugins, state=state, time_limit=task["seconds"], operators=task["operators"])
    return state.read_text(encoding="utf-8").splitlines()


@cache
def _plugins(blocked: tuple[str, ...]) -> PluginSet:
    from dovetail import load_plugins

    return load_plugins(block=blocked)
