"""Whole models as cases: small nets of the suite, and a folder of the user."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of

from dovetail_testing.case import Case, PreparedCase
from dovetail_testing.running import host_reference, references_of

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet


_OPSET, _IR = 18, 9


def _weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Create named weights that preserve the scale of activations."""
    generator = np.random.default_rng(7)
    found = {}
    for name, shape in shapes.items():
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        found[name] = (generator.standard_normal(shape) / np.sqrt(max(fan, 1))).astype(np.float32)
    return found


def _net(text: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    import onnx

    model = onnx.parser.parse_model(f'<ir_version: {_IR}, opset_import: ["": {_OPSET}]> {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def convolutions() -> onnx.ModelProto:
    """Build a residual convolutional classifier."""
    text = """net (float[1, 3, 16, 16] image) => (float[1, 10] shares) {
        a = Conv <pads = [1, 1, 1, 1]> (image, w1, b1)
        b = Relu (a)
        c = Conv <pads = [1, 1, 1, 1], group = 8> (b, w2)
        d = Relu (c)
        e = Add (b, d)
        f = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e)
        g = Conv (f, w3)
        h = GlobalAveragePool (g)
        i = Flatten (h)
        j = Gemm <transB = 1> (i, w4, b4)
        shares = Softmax (j)
    }"""
    weights = _weights(w1=(8, 3, 3, 3), b1=(8,), w2=(8, 1, 3, 3), w3=(16, 8, 1, 1), w4=(10, 16), b4=(10,))
    return _net(text, weights)


def attention() -> onnx.ModelProto:
    """Build single-head self-attention with its norm and feed-forward layer."""
    text = """net (float[1, 6, 16] x) => (float[1, 6, 16] y) {
        n = LayerNormalization (x, scale, bias)
        q = MatMul (n, wq)
        k = MatMul (n, wk)
        v = MatMul (n, wv)
        kt = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul (q, kt)
        quarter = Constant <value_float = 0.25> ()
        scaled = Mul (s, quarter)
        p = Softmax (scaled)
        o = MatMul (p, v)
        r = Add (x, o)
        h = MatMul (r, w1)
        g = Tanh (h)
        f = MatMul (g, w2)
        y = Add (r, f)
    }"""
    weights = _weights(wq=(16, 16), wk=(16, 16), wv=(16, 16), w1=(16, 32), w2=(32, 16))
    return _net(text, {**weights, "scale": np.ones(16, np.float32), "bias": np.zeros(16, np.float32)})


def recurrence() -> onnx.ModelProto:
    """Build a GRU after a projection."""
    text = """net (float[5, 1, 8] x) => (float[5, 1, 4] y) {
        p = MatMul (x, w)
        states, last = GRU <hidden_size = 8> (p, wx, wh)
        axes = Constant <value_ints = [1]> ()
        flat = Squeeze (states, axes)
        y = MatMul (flat, wo)
    }"""
    return _net(text, _weights(w=(8, 8), wx=(1, 24, 8), wh=(1, 24, 8), wo=(8, 4)))


def branches() -> onnx.ModelProto:
    """Build a choice between two bodies, with computed extents."""
    text = """net (float[2, 6] x) => (float[2, 6] y) {
        total = ReduceSum <keepdims = 0> (x)
        zero = Constant <value_float = 0.0> ()
        positive = Greater (total, zero)
        chosen = If (positive) <
            then_branch = then_body () => (float[2, 6] up) { up = MatMul (x, w1) },
            else_branch = else_body () => (float[2, 6] down) { down = MatMul (x, w2) }
        >
        extents = Shape (x)
        flat_shape = Constant <value_ints = [-1]> ()
        flat = Reshape (chosen, flat_shape)
        again = Reshape (flat, extents)
        y = Relu (again)
    }"""
    return _net(text, _weights(w1=(6, 6), w2=(6, 6)))


NETS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    f"net_{made.__name__}": made for made in (convolutions, attention, recurrence, branches)
}
"""Functions that build the nets, by test name."""


def model_cases(folder: Path | None = None) -> tuple[Case, ...]:
    """Return the nets of the suite, and each `NAME.onnx` of a folder, with the arrays of `NAME.npz` if it exists.

    Arrays are named after inputs; an array named after an output is the expected result.

    Raises:
        UsageError: There is no such folder, or it holds no model.
    """
    found = [Case("models", name, "", _NetMaker(name)) for name in NETS]
    if folder is None:
        return tuple(found)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name a folder with .onnx files, each with an .npz of its name")
    paths = sorted(folder.glob("*.onnx"))
    if not paths:
        raise UsageError(f"{folder} holds no .onnx file")
    for path in paths:
        if path.stem in NETS:
            raise UsageError(f"{path}: a net of the suite has the name '{path.stem}'", "rename the file")
        found.append(Case("models", path.stem, "", _FileMaker(path)))
    return tuple(found)


@dataclass(frozen=True)
class _NetMaker:
    """Prepares a net of the suite."""

    name: str

    def __call__(self, plugins: PluginSet) -> PreparedCase:
        proto = NETS[self.name]()
        return work_of_model(proto, None, plugins)


@dataclass(frozen=True)
class _FileMaker:
    """Prepares a model of the user."""

    path: Path

    def __call__(self, plugins: PluginSet) -> PreparedCase:
        data = self.path.with_suffix(".npz")
        return work_of_model(self.path, _arrays(data) if data.exists() else None, plugins)


def work_of_model(source: Any, arrays: Mapping[str, Any] | None, plugins: PluginSet) -> PreparedCase:
    """Prepare a model with its inputs, by default random; arrays named after outputs are expected results.

    Raises:
        DovetailError: The model cannot be opened, an input has no array, or an array matches no input or output.
    """
    import dovetail
    import onnx
    from dovetail_verify.random_inputs import random_batch

    model = dovetail.open(source, plugins)
    inputs = [name_of(value) for value in model.graph.inputs if not value.is_initializer()]
    outputs = [name_of(value) for value in model.graph.outputs]
    given = random_batch(model) if arrays is None else {name: np.asarray(value) for name, value in arrays.items()}
    for name in given:
        if name not in inputs and name not in outputs:
            raise DovetailError(
                f"the model has neither an input nor an output '{name}'",
                f"inputs: {', '.join(inputs) or 'none'}; outputs: {', '.join(outputs)}",
            )
    missing = [name for name in inputs if name not in given]
    if missing:
        raise DovetailError(f"there is no array for input '{missing[0]}'", "name arrays after the model's inputs")
    plain = isinstance(source, onnx.ModelProto) or isinstance(source, (str, Path)) and str(source).endswith(".onnx")
    readable = Path(source) if plain and isinstance(source, (str, Path)) else source
    references = [*(references_of(readable) if plain else ()), host_reference(dovetail.open(source, plugins), plugins)]
    feeds = {name: given[name] for name in inputs}
    return PreparedCase(source, feeds, {name: given[name] for name in outputs if name in given}, references)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file.

    Raises:
        DovetailError: It cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, EOFError) as error:
        raise DovetailError(f"{path} cannot be read as arrays by name: {error}", "write it with numpy.savez") from error
