"""Running a file on a provider, its time, and its SNR."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

Feeds = dict[str, np.ndarray]


def session_of(path: Path, provider: str, options: Mapping[str, str] = MappingProxyType({})):
    """A session of one provider of ONNX Runtime, with the provider's options.

    Raises:
        RuntimeError: It is not here.
    """
    import onnxruntime
    from dovetail_onnxruntime_ep import engines, sessions

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    for known in (engines.NvTensorRtRtx.provider, engines.WebGpu.provider):
        if known.name == provider:
            known.devices()
            return sessions.load(known.name, known.library, str(path), {}, {}, []).session
    if provider not in onnxruntime.get_available_providers():
        raise RuntimeError(f"onnxruntime has no {provider}")
    if provider == "CUDAExecutionProvider":
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls(directory="")
    session = onnxruntime.InferenceSession(str(path), settings, providers=[(provider, dict(options))])
    if provider not in session.get_providers():
        raise RuntimeError(f"{provider} does not start")
    return session


def on_cuda(path: Path, feeds: Feeds, options: Mapping[str, str] = MappingProxyType({})) -> Callable[[], object] | None:
    """A run by ONNX Runtime's CUDA provider; None where it is not."""
    try:
        session = session_of(path, "CUDAExecutionProvider", options)
    except Exception:  # it is not here
        return None
    return lambda: session.run(None, feeds)


def bound(session, feeds: Feeds) -> Callable[[], object]:
    """A run by a session of the CUDA provider whose inputs and outputs stay on the device."""
    import onnxruntime

    binding = session.io_binding()
    held = [(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0)) for name, array in feeds.items()]
    for name, value in held:
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def run() -> object:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return held

    return run


def milliseconds(spent: float | None) -> float | None:
    """Seconds as milliseconds, for a table."""
    return None if spent is None else round(1e3 * spent, 3)


def seconds(run: Callable[[], object] | None, at_most: float = 1.5) -> float | None:
    """The median time of a run, after one that does not count; None for nothing to run."""
    if run is None:
        return None
    run()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 30 and (len(times) < 3 or time.perf_counter() - begun < at_most):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def snr(expected: list[dict], found: list[dict]) -> float:
    """SNR in dB of the worst float output; -999 for one with NaN or infinity that it should not have."""
    rated = [150.0]
    for name in (name for name, array in expected[0].items() if np.asarray(array).dtype.kind == "f"):
        exact = np.concatenate([np.ravel(one[name]) for one in expected]).astype(np.float64)
        given = np.concatenate([np.ravel(one[name]) for one in found]).astype(np.float64)
        noise = ((given - exact) ** 2).sum() if np.isfinite(given).all() else np.inf
        rated.append(10 * np.log10((exact**2).sum() / max(noise, 1e-300)) if np.isfinite(noise) else -999.0)
    return float(min(rated))


def first(error: BaseException) -> str:
    """The beginning of what an error says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
