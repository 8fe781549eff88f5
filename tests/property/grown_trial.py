"""What becomes of a random model on a backend: a right result, also after saving and replaying, or a named refusal."""

import sys
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import dovetail
import numpy as np
import onnx
from dovetail.errors import DovetailError

from .grown import run
from .grown_models import widened

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "backends" / "cpu_bf16" / "tools"))

from random_graphs.tolerance import judge, spread  # noqa: E402

CONFIGURATIONS = {
    "host": ["host"],
    "cpu-bf16": ["cpu-bf16"],
    "cpu-int8": ["cpu-int8"],
    "gpu-fp16": ["gpu-fp16"],
    "tensorrt": ["tensorrt"],
    "qnn": ["qnn"],
    "ppl-int8": ["ppl-int8"],
    "bpu-int8": ["bpu-int8"],
    "acme-int8": ["acme-int8"],
    "acme-aot": ["acme-aot"],
    "ppl-int8, cpu-bf16": ["ppl-int8", "cpu-bf16"],
    "bpu-int8, gpu-fp16": ["bpu-int8", "gpu-fp16"],
    "cpu-bf16, tensorrt": ["cpu-bf16", "tensorrt"],
    "acme-int8, acme-aot": ["acme-int8", "acme-aot"],
}
"""Backends by the name of a configuration."""
EXAMPLES = {
    "example_int8": ("dovetail_example_int8", {"acme-int8": "int8.backend.yaml"}),
    "example_engine": ("dovetail_example_engine", {"acme-aot": "aot.backend.yaml"}),
}
RIGHT = ("right", "nothing for it", "refused")
NOISE = {"int8": 2.0**-4, "else": 2.0**-8}
DEFECTS = ("defect of", "internal error", "Traceback", "--debug")


@dataclass(frozen=True)
class Outcome:
    """What happened: one of `RIGHT`, or what went wrong, with what was said."""

    kind: str
    said: str = ""

    @property
    def right(self):
        return self.kind in RIGHT


def plugins_with_examples():
    """All that is installed, and the example backends of the tests."""
    loaded = dovetail.load_plugins()
    for folder, (module, backends) in EXAMPLES.items():
        sys.path.insert(0, str(ROOT / "tests" / folder / "src"))
        __import__(module)
        sys.modules[module].register(loaded.registry)
        for name, file in backends.items():
            loaded.registry.backend(name, f"{module}:{file}")
    return loaded


class Truth:
    """What a model gives in float32: as it is, and with noise of the size of rounding errors."""

    def __init__(self, made):
        self.made = made
        self.wide = widened(made.model) if "float16" in made.kinds else made.model
        self.feeds = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in made.feeds.items()}
        names = [value.name for value in self.wide.graph.output]
        self.expected = dict(zip(names, run(self.wide, self.feeds)))
        self._noisy = {}

    def noisy(self, size, samples=6):
        if (size, samples) not in self._noisy:
            self._noisy[size, samples] = spread(self.wide, self.feeds, samples, size)
        return self._noisy[size, samples]

    def wrong(self, outputs, size):
        """What is wrong with the outputs; empty if nothing is that rounding does not explain."""
        found = judge(outputs, self.expected, self.noisy(size))
        if not found.ok and "shape" not in found.why:  # rounding may reach the next step of a quantizer, if seldom
            more = [*self.noisy(size), *self.noisy(2 * size, 16), *self.noisy(4 * size, 16)]
            found = judge(outputs, self.expected, more)
        if not found.ok and "off by" in found.why and size == NOISE["int8"] and self._clipped(outputs):
            return ""
        return "" if found.ok else found.why

    def _clipped(self, outputs):
        """Whether what differs may be a few clipped values: observers of percentiles saturate the largest."""
        floats = [name for name, array in self.expected.items() if array.dtype.kind == "f"]
        right = [(np.float64(self.expected[name]), np.float64(outputs[name])) for name in floats]
        return all(np.square(one - other).sum() <= 0.1 * np.square(one).sum() + 1e-6 for one, other in right)

    def elsewhere(self):
        """The same model on inputs with one more element along every open axis; None if it takes no others."""
        open_axes = {
            value.name: [at for at, dim in enumerate(value.type.tensor_type.shape.dim) if dim.dim_param]
            for value in self.made.model.graph.input
        }
        feeds = {name: _longer(array, open_axes[name]) for name, array in self.made.feeds.items()}
        try:
            run(self.made.model, feeds)
            return Truth(replace(self.made, feeds=feeds)) if any(open_axes.values()) else None
        except Exception:  # constants that have the extents of the first inputs
            return None


def _longer(array, axes):
    """An array with its first element along each axis repeated at the end."""
    for axis in axes:
        array = np.concatenate([array, np.take(array, [0], axis)], axis)
    return array


def trial(known, configuration, plugins, folder):
    """Compile, run, save, load, run again, replay, and compare; returns an `Outcome`."""
    backends = CONFIGURATIONS[configuration]
    made, stage = known.made, "compiling"
    integer = any("int8" in name for name in backends)
    request = {"data": made.feeds} if integer else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = dovetail.compile(made.model, backends, plugins=plugins, **request)
            stage = "running"
            outputs = first.run(made.feeds)
            said = known.wrong(outputs, NOISE["int8" if integer else "else"])
            if said:
                return Outcome("wrong", said)
            stage = "saving"
            first.save(folder / "first")
            stage = "loading"
            loaded = dovetail.load(folder / "first", plugins=plugins)
            if not _equal(loaded.run(made.feeds), outputs):
                return Outcome("other result after loading", "")
            stage = "running in turns"
            if other := known.elsewhere():
                second = first.run(other.made.feeds)
                if said := other.wrong(second, NOISE["int8" if integer else "else"]):
                    return Outcome("wrong", f"on other extents: {said}")
                if not _equal(loaded.run(other.made.feeds), second):
                    return Outcome("other result after loading", "on other extents")
            first.run({name: _spoiled(array) for name, array in made.feeds.items()})
            if not _equal(first.run(made.feeds), outputs):
                return Outcome("other result later", "after calls with other inputs")
            stage = "replaying"
            again = dovetail.compile(made.model, plugins=plugins, plan=folder / "first" / "plan.yaml")
            again.save(folder / "again")
            if computation(folder / "again") != computation(folder / "first"):
                return Outcome("replay differs", "")
    except DovetailError as error:
        return _judged(error, stage)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("traceback", f"{stage}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
    return Outcome("right")


def _equal(one, other):
    return all(np.array_equal(one[k], v, equal_nan=v.dtype.kind == "f") for k, v in other.items())


def _spoiled(array):
    """The array with NaN as its first element, if it holds floats."""
    if array.dtype.kind != "f" or not array.size:
        return array
    array = array.copy()
    array.reshape(-1)[0] = np.nan
    return array


def _judged(error, stage):
    said = f"{stage}: {error}"
    if any(word in said for word in DEFECTS):
        return Outcome("unclear message", said)
    if "no node of the model can be on" in error.message:
        return Outcome("nothing for it", said)
    return Outcome("refused" if stage == "compiling" else f"fails when {stage}", said)


def computation(folder):
    """The bytes of the saved model, and of what emitters made, without how it was asked for."""
    model = onnx.load(folder / "model.onnx")
    del model.metadata_props[:]
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("artifacts/**/*")) if p.is_file()}
    return model.SerializeToString(deterministic=True), files
