"""The conditions of timings besides the model: the machine, and the versions of all libraries that compute."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from dovetail.installed import InstalledDistributions
from dovetail_onnx.files.private_folders import cache_folder

from dovetail_runtime.processor import cpu_facts

_WHAT = {
    "machine": "another machine", "processor": "another processor", "cpus": "another number of CPUs",
    "versions": "other versions of what computes", "device": "another device",
}  # fmt: skip
_CPU_KEYS = ("model name", "flags", "Features", "CPU part")


def fingerprint(distributions: Iterable[str]) -> dict[str, str]:
    """Return the processor, the number of CPUs, and the versions of `distributions` with all that they require.

    Timings of one fingerprint are not valid for another.
    """
    versions = sorted(_versions(distributions).items())
    return {
        "machine": platform.machine(),
        "processor": _digest("\n".join(_processor())),
        "cpus": str(cpus()),
        "versions": _digest("\n".join(f"{name} {version}" for name, version in versions)),
    }


def profile_folder() -> Path:
    """Return the folder of measurements: `$DOVETAIL_PROFILES`, else `tune` in the folder of caches."""
    folder = os.environ.get("DOVETAIL_PROFILES", "")
    return Path(folder) if folder else cache_folder() / "tune"


def profile_file(backend: str) -> Path:
    """Return where `dovetail profile` keeps the costs of a backend's engine on this machine."""
    return profile_folder() / f"{backend}.costs.yaml"


def difference(one: object, other: Mapping[str, str]) -> str:
    """Describe the difference between two fingerprints; empty if they are equal."""
    given = one if isinstance(one, dict) else {}
    return ", ".join(what for key, what in _WHAT.items() if given.get(key) != other.get(key))


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _processor() -> list[str]:
    """Return what identifies the kind of processor; frequencies and addresses vary between reads."""
    facts = cpu_facts()
    kinds = [fact for fact in facts if fact.partition("\t")[0].strip(" :") in _CPU_KEYS]
    return list(dict.fromkeys(kinds)) if facts else [platform.processor()]


def _versions(distributions: Iterable[str]) -> dict[str, str]:
    installed = InstalledDistributions()
    found: dict[str, str] = {}
    waiting = list(distributions)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        distribution = installed.get(name)
        if distribution is not None:
            found[name] = distribution.version
            waiting += distribution.required()
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
