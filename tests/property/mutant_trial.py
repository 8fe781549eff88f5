"""What becomes of one mutant: a right result, or one clear message. Everything else is a defect of ours."""

import io
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import dovetail
import numpy as np
import onnxruntime
from dovetail.errors import DovetailError

RIGHT = ("refused", "same result", "runs, ONNX Runtime refuses the original")
"""Outcomes that are as they should be; the last: nothing to compare with."""
_LARGEST = 1 << 22  # elements of an input


@dataclass(frozen=True)
class Outcome:
    """What happened.

    Attributes:
        kind: One of `RIGHT`, or what went wrong.
        said: The message, or where it happened.
    """

    kind: str
    said: str = ""

    @property
    def right(self):
        """Whether it is as it should be."""
        return self.kind in RIGHT


def trial(mutant, folder, backend="host"):
    """Open, compile, save, load and run `mutant`, and compare with ONNX Runtime on the original.

    Args:
        mutant: The mutant.
        folder: An empty folder to work in.
        backend: What to compile for; results are compared closely for `host`, which computes in the model's types.
    """
    path = mutant.write(folder)
    stage = "opening"
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            model = dovetail.open(path)
            stage = "compiling"
            compiled = dovetail.compile(model, [backend])
            stage = "saving"
            compiled.save(folder / "out")
            stage = "loading"
            compiled = dovetail.load(folder / "out")
            stage = "making inputs"
            inputs = feeds_of(model)
            stage = "running"
            outputs = compiled.run(inputs)
    except DovetailError as error:
        said = f"{stage}: {error}"
        if "defect of the pass" in said:
            return Outcome("blames a pass", said)
        if stage == "loading":
            return Outcome("cannot be opened again", said)
        if "internal error" in said or "Traceback" in said or len(error.message.splitlines()) > 3:
            return Outcome("unclear message", said)
        if stage == "running" and backend == "host":
            return _judged_refusal(path, inputs, said)
        return Outcome("refused", said)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("traceback", f"{stage}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
    return _compared(path, inputs, outputs, close=backend == "host")


def feeds_of(model):
    """Inputs for `model`, every open extent 2."""
    rng, feeds = np.random.default_rng(0), {}
    for value in model.graph.inputs:
        if value.name in model.graph.initializers:
            continue
        if value.shape is None or value.dtype is None:
            raise DovetailError(f"input '{value.name}' has no rank or type that a test could make up")
        shape = [extent if isinstance(extent, int) else 2 for extent in value.shape]
        if np.prod(shape, dtype=object) > _LARGEST:
            raise DovetailError(f"input '{value.name}' is too large for a test")
        if value.dtype.name == "STRING":
            feeds[value.name] = np.full(shape, "a", dtype=object)
        elif value.dtype.name in ("BOOL",):
            feeds[value.name] = np.asarray(rng.random(shape) < 0.5)
        elif value.dtype.is_floating_point():
            feeds[value.name] = np.asarray(rng.normal(0, 1, shape)).astype(value.dtype.numpy())
        else:
            feeds[value.name] = np.asarray(rng.integers(0, 3, shape)).astype(value.dtype.numpy())
    return feeds


def _expected(path, inputs):
    """What ONNX Runtime gives for the original, or its complaint."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        wanted = {entry.name for entry in session.get_inputs()}
        given = {name: array for name, array in inputs.items() if name in wanted}
        return dict(zip([entry.name for entry in session.get_outputs()], session.run(None, given))), ""
    except Exception as error:
        return {}, str(error)


def _judged_refusal(path, inputs, said):
    """A model that only fails when it runs must not be one that ONNX Runtime runs."""
    if path.suffix != ".onnx":
        return Outcome("refused", said)
    expected, complaint = _expected(path, inputs)
    return Outcome("refused", said) if complaint else Outcome("fails, and ONNX Runtime runs it", said)


def _compared(path, inputs, outputs, close):
    if path.suffix != ".onnx":
        return Outcome("same result", "text has no other reader")
    expected, complaint = _expected(path, inputs)
    if complaint:
        return Outcome("runs, ONNX Runtime refuses the original", complaint)
    for name, array in expected.items():
        if name not in outputs:
            return Outcome("wrong result", f"output '{name}' is missing")
        ours, theirs = outputs[name], array
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind in "OUS":
            continue
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return Outcome("wrong result", f"'{name}' is {ours.dtype}{list(ours.shape)}, "
                                           f"ONNX Runtime gives {theirs.dtype}{list(theirs.shape)}")  # fmt: skip
        if close and not np.allclose(ours.astype(float), theirs.astype(float), 1e-3, 1e-4, equal_nan=True):
            return Outcome("wrong result", f"'{name}' differs from what ONNX Runtime gives")
    return Outcome("same result")
