"""The `reserve-biases` and `correct-biases` passes: biases corrected by the mean error of quantization."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, constant_of, input_of, name_of

from dovetail_quantize.refining.layers import ConstantReplacer, float_tensor, layers_of
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.samples import decibels
from dovetail_quantize.refining.steps import BIAS, ROUNDING, SCALING, needs_data

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer
    from dovetail_quantize.refining.quantized_model import QuantizedConstants, QuantizedModel


def correct_biases(model: Model, ctx: Context) -> bool:
    """Correct the biases of a model's layers, and drop those reserved in vain; return whether anything changed."""
    record, constants = RefinementRecord.of(ctx), ConstantReplacer(model, ctx)
    layers = _layers(model, record, ctx) if ctx.outcome.quantized_values else []
    before = [(layer, bias, bias.const_value) for layer in layers if (bias := layer.bias) is not None]
    if record.replayed:
        _replay(layers, record, constants, ctx)
    elif layers:
        needs_data(ctx, BIAS)
        _correct(model, layers, record, constants, ctx)
    changed = [layer for layer, bias, tensor in before if bias.const_value is not tensor]
    ctx.count("corrected", len(changed))
    record.count(BIAS, len(changed))
    dropped = drop_reserved(model, constants, ctx, [layer.node for layer in changed])
    if changed:
        model.touch()
    return bool(changed) or dropped


def _layers(model: Model, record: RefinementRecord, ctx: Context) -> list[Layer]:
    """The layers with a bias that can be corrected; the others get a remark."""
    from dovetail_quantize.refining.layers import refined_layers

    found = []
    for layer in refined_layers(model.graph, BIAS, record.steps):
        if layer.bias is not None:
            found.append(layer)
        else:
            ctx.remark("missed", layer.node, "bias", "it has no bias to correct, and nothing adds a constant to it")
    return found


class _Correction(NamedTuple):
    """What was added to the bias of a layer, by the name of its output, and the remark about it."""

    output: str
    numbers: np.ndarray
    why: str


_MOST_KEPT = 8  # results of one compilation


class _Corrections:
    """Corrections of one compilation by the parameters of all layers, as text."""

    def __init__(self) -> None:
        self.by_parameters: dict[str, list[_Correction]] = {}


def _correct(
    model: Model, layers: list[Layer], record: RefinementRecord, constants: ConstantReplacer, ctx: Context
) -> None:
    """Correct biases on data, or as it was done before if a trial of the same compilation had the same parameters."""
    from dovetail_quantize.refining.layerwise import walk
    from dovetail_quantize.refining.quantized_model import QuantizedConstants

    known = ctx.measured.of(_Corrections).by_parameters
    # The key has no weights, so these must be those of the source.
    key = "" if record.changed((*SCALING, ROUNDING)) else _key(model, layers, ctx)
    if key in known:
        by_output = {name_of(layer.output): layer for layer in layers}
        for output, numbers, why in known[key]:
            layer = by_output[output]
            assert layer.bias is not None, "only layers with a bias are corrected"
            constants.add(layer.bias, record.save(BIAS, output, numbers))
            ctx.remark("passed", layer.node, "bias", why)
        return
    quantized, found = QuantizedConstants(model, ctx), list[_Correction]()
    walk(
        model,
        ctx,
        layers,
        lambda layer, _: MeanError(layer, quantized, constants, record, ctx, found),
        "correct biases",
    )
    if key:
        known[key] = found
        while len(known) > _MOST_KEPT:
            del known[next(iter(known))]


def _key(model: Model, layers: Sequence[Layer], ctx: Context) -> str:
    """Return a digest of all that corrections depend on besides source model and data: graph, formats, parameters."""
    digest = hashlib.sha256()
    for node in model.graph:
        read, made = ([value and value.name for value in each] for each in (node.inputs, node.outputs))
        digest.update(repr((node.op_identifier(), node.name, read, made)).encode())
    for one in ctx.outcome.quantized_values:
        digest.update(repr((one.value, str(one.format), one.parameters, one.readers, one.made_by)).encode())
    digest.update(repr([layer.node.name for layer in layers]).encode())
    return digest.hexdigest()


def _replay(layers: list[Layer], record: RefinementRecord, constants: ConstantReplacer, ctx: Context) -> None:
    for layer in layers:
        found = record.saved(BIAS, name_of(layer.output), (layer.channels,))
        if found is not None and layer.bias is not None:
            record.save(BIAS, name_of(layer.output), found)
            constants.add(layer.bias, found)
            ctx.remark("passed", layer.node, "bias", "its bias is corrected as in the replayed plan")


_DOUBT = 8  # how much more a variance counts that is known from few samples


class MeanError:
    """The mean error of a layer's channels over all samples; corrections are appended to `found`."""

    def __init__(
        self,
        layer: Layer,
        quantized: QuantizedConstants,
        constants: ConstantReplacer,
        record: RefinementRecord,
        ctx: Context,
        found: list[_Correction],
    ):
        self._found = found
        self._layer, self._quantized, self._constants, self._record, self._ctx = (
            layer,
            quantized,
            constants,
            record,
            ctx,
        )
        self._sum = np.zeros(layer.channels)
        self._means = np.zeros(layer.channels)  # of samples
        self._squares = np.zeros(layer.channels)  # of the means of samples
        self._samples = 0
        self._error = self._signal = 0.0
        self._numbers = 0
        self._shift = np.zeros(layer.channels, np.float32)

    @property
    def shift(self) -> np.ndarray:
        """The correction that is added to the layer's output: zero if another node adds the bias."""
        return self._shift

    def see(self, inputs: np.ndarray, computed: np.ndarray, wanted: np.ndarray) -> None:
        """See one batch; see `Refiner`."""
        if not wanted.size:
            return
        difference = wanted.astype(np.float64)
        signal = _energy(difference)
        difference -= computed
        samples = len(difference) if difference.ndim > 1 else 1
        by_sample = (
            (samples, self._layer.channels, -1) if self._layer.is_convolution else (samples, -1, self._layer.channels)
        )
        with np.errstate(invalid="ignore"):
            sums = difference.reshape(by_sample).sum(axis=by_sample.index(-1))
        if not np.isfinite(sums).all():
            raise DovetailError(
                f"node '{self._layer.node.name}': its result on the data is infinite or NaN",
                "look at the data; biases are corrected by means over it",
            )
        positions = difference.size // sums.size
        means = sums / positions
        self._sum += sums.sum(axis=0)
        self._means += means.sum(axis=0)
        self._squares += (means**2).sum(axis=0)
        self._samples += samples
        self._error += _energy(difference)
        self._signal += signal
        self._numbers += samples * positions

    def refine(self, quantized_model: QuantizedModel) -> bool:
        """Correct the bias by the significant part of the mean."""
        if not self._samples:
            return False
        mean = self._sum / self._numbers
        certain = np.ones_like(mean)
        if self._samples > 1:
            varies = self._squares / self._samples - (self._means / self._samples) ** 2
            spread = np.maximum(varies, 0) / (self._samples - 1)
            uncertain = np.divide(spread, mean**2, out=np.ones_like(mean), where=mean != 0)
            certain = np.maximum(0, 1 - (1 + _DOUBT / (self._samples - 1)) * uncertain)
        correction = (mean * certain).astype(np.float32)
        layer = self._layer
        before, after = decibels(self._signal, self._error), decibels(self._signal, self._left(mean, correction))
        if not correction.any() or after <= before:
            return False
        correction = self._record.save(BIAS, name_of(layer.output), correction)
        at = layer.bias_at
        assert at is not None, "only layers with a bias are corrected"
        bias = input_of(*at)
        self._constants.add(bias, correction)
        at_bias = self._quantized.at(*at)
        uncorrected = quantized_model.numbers(*at, at_bias)
        quantized_model.put(*at, constant_of(bias), at_bias)
        if layer.added_to is None:
            self._shift = (quantized_model.numbers(*at, at_bias) - uncorrected).reshape(-1)
        why = f"its bias is corrected by up to {np.abs(correction).max():.3g}: SNR {before:.1f} to {after:.1f} dB"
        self._ctx.remark("passed", layer.node, "bias", why)
        self._found.append(_Correction(name_of(layer.output), np.array(correction), why))
        return True

    def _left(self, mean: np.ndarray, correction: np.ndarray) -> float:
        """The squared error that a correction leaves."""
        return max(0.0, self._error + self._numbers * float((correction**2 - 2 * correction * mean).sum()))


def _energy(array: np.ndarray) -> float:
    """Return the sum of squares, in one order on any number of threads."""
    flat = array.reshape(-1)
    return float(np.einsum("i,i->", flat, flat))


_RESERVED = "dovetail.reserved_bias"
_AT = 2


def reserve_biases(model: Model, ctx: Context) -> bool:
    """Give layers without a bias one of zeros; return whether any was without."""
    names, changed = ctx.analysis(FreshNames, model), False
    for layer in layers_of(model.graph):
        node = layer.node
        if layer.bias is not None or node.op_type == "MatMul":
            continue
        name = names.fresh(f"{node.outputs[0].name}_bias")
        tensor = float_tensor(np.zeros(layer.channels), name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        model.graph.register_initializer(value)
        node.resize_inputs(_AT + 1)
        node.replace_input_with(_AT, value)
        node.meta[_RESERVED] = True
        changed = True
    if changed:
        model.touch()
    return changed


def drop_reserved(model: Model, constants: ConstantReplacer, ctx: Context, used: Collection[ir.Node] = ()) -> bool:
    """Remove reserved biases, with their quantized values, from all nodes but those that use theirs; tell if there were
    any.
    """
    kept, dropped = set(used), set()
    for node in model.graph:
        if node.meta.pop(_RESERVED, False) and node not in kept:
            dropped.add(input_of(node, _AT).name)
            constants.drop_input(node, _AT)
    if dropped:
        ctx.outcome.quantized_values = [
            quantized for quantized in ctx.outcome.quantized_values if quantized.value not in dropped
        ]
        model.touch()
    return bool(dropped)
