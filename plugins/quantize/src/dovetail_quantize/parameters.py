"""Sources of parameters other than data: the source model, a replayed plan, and earlier calibrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.ir import is_onnx, name_of
from dovetail.planning import ObserverChoice, Parameters, parse_quantized_values
from dovetail_placement.source_scales import SourceScale, dequantizing, lifted_scale, quantizing

from dovetail_quantize.integers import (
    integer_bounds,
    number_of_scales,
    parameters_of_range,
    product_of_scales,
    slices,
    spread_extents,
)
from dovetail_quantize.observers.clipping import CountingObserver
from dovetail_quantize.observing import Amount, NamedObserver
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.steps import SCALING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.passes import Context
    from dovetail.planning import Plan
    from dovetail_precision.sharing_groups import QuantizedForm

    from dovetail_quantize.observing import Watcher
    from dovetail_quantize.shared_ranges import Ranged


def repeated(parameters: Parameters, format_: Format, shape: ir.Shape | None) -> Parameters:
    """Repeat a per-tensor scale of the source model for a per-channel format; return other parameters unchanged."""
    if format_.axis is None or len(parameters.scale) != 1:
        return parameters
    number = number_of_scales(format_, shape)
    return Parameters(parameters.scale * number, parameters.zero_point * number)


def is_adopted(scale: SourceScale | None, format_: Format, parameters: Parameters, value: ir.Value) -> bool:
    """Check whether the source model's integers of a value are those of a quantized value.

    Products of scales may differ in the last digits, because they were multiplied in another order.
    """
    found = scale.parameters_in(format_, value) if scale is not None else None
    if found is None:
        return False
    own = repeated(found, format_, value.shape)
    return own.zero_point == parameters.zero_point and np.allclose(own.scale, parameters.scale, rtol=1e-5, atol=0)


def source_scale(value: ir.Value) -> SourceScale | None:
    """Return the scale with which the source model has a value in integers before it is read; None if it has none."""
    qdq = dequantizing(value)
    return lifted_scale(value) if qdq is None else qdq.scale


def range_of_source(leaders: Iterable[QuantizedForm]) -> Parameters | None:
    """Return parameters that cover the integer ranges of the source model; None if a value is not quantized there.

    Numbers outside of these ranges do not occur, so this needs no data.
    """
    low, high, format_ = np.inf, -np.inf, None
    for form in leaders:
        scale = source_scale(form.value)
        if scale is None and len(form.value.uses()) == 1:
            scale = next((qdq.scale for qdq in quantizing(form.value)), None)
        if scale is None or form.format.axis is not None or scale.axis is not None:
            return None
        smallest, largest = scale.bounds()
        low, high, format_ = min(low, smallest), max(high, largest), form.format
    return parameters_of_range(format_, np.float64(low), np.float64(high)) if format_ is not None else None


def replayed_parameters(plan: Plan | None, values: Iterable[QuantizedForm]) -> dict[int, Parameters]:
    """Find the parameters of quantized values in a plan, by `id` of the form.

    A quantized value is recognized by value, format and sharing group. If plan and model both hold a value in a format
    only once, the group's name may differ: it names the observer, and a replay observes nothing.

    Raises:
        DovetailError: A quantized value of the plan is malformed.
    """
    known = (
        [one for one in parse_quantized_values(plan.values) if one.parameters is not None] if plan is not None else []
    )
    by_group = {(one.value, one.format, one.group): one.parameters for one in known}
    values = list(values)
    forms = [(name_of(one.value), one.format) for one in values]
    times = [Counter((one.value, one.format) for one in known), Counter(forms)]
    alone = {(one.value, one.format): one.parameters for one in known}
    found = {}
    for one, form in zip(values, forms):
        parameters = by_group.get((*form, one.name))
        if parameters is None and all(number[form] == 1 for number in times):
            parameters = alone[form]
        if parameters is not None:
            found[id(one)] = parameters
    return found


_Key = tuple[tuple[tuple[str, str], ...], str, ObserverChoice]


class KnownParameters:
    """Parameters found on data so far, by sharing group.

    Args:
        compared: Observers that a search tries one after the other; if one is requested, all of them see the data, so
            that it is read once.

    Attributes:
        amount: Amount of data seen.
        ranges: The ranges of values that share a scale with others, by sharing group and value.
    """

    def __init__(self, compared: Sequence[ObserverChoice] = ()):
        self.amount = Amount(0, 0)
        self._compared = tuple(compared)
        self._found: dict[_Key, Parameters] = {}
        self.ranges: dict[str, dict[str, Ranged]] = {}

    def get(self, group: list[QuantizedForm], choice: ObserverChoice) -> Parameters | None:
        """Return the parameters that an observer found for a group; None if it has not seen the group."""
        return self._found.get(_key(group, choice))

    def found(self, group: list[QuantizedForm], choice: ObserverChoice) -> Parameters:
        """Return the parameters that an observer found for a group that it has seen."""
        return self._found[_key(group, choice)]

    def keep(self, group: list[QuantizedForm], choice: ObserverChoice, parameters: Parameters) -> None:
        """Store the parameters that an observer found for a group."""
        self._found[_key(group, choice)] = parameters

    def wanted(self, choice: ObserverChoice) -> tuple[ObserverChoice, ...]:
        """Return the observers to show a group to when `choice` is requested; `choice` comes first."""
        others = self._compared if choice in self._compared else ()
        return tuple(dict.fromkeys((choice, *others)))


class ObserversTogether:
    """Several observers of the same numbers; counting observers share one histogram.

    Args:
        observers: One or more observers of the same format.
        whole: Whether to see all numbers in any case.

    Attributes:
        format: The format to find parameters for.
        fed: The observers that see numbers: one of those that share a histogram, and all others.
        extrema: Callback for the extrema of a batch; None if an observer needs all numbers.
    """

    def __init__(self, observers: Sequence[NamedObserver], whole: bool = False):
        self.format = observers[0].format
        counting = [one.observer for one in observers if isinstance(one.observer, CountingObserver)]
        for other in counting[1:]:
            other.share(counting[0])
        self.fed = [one for one in observers if one.observer not in counting[1:]]
        alone = not whole and all(one.extrema is not None for one in observers)
        self.extrema = self._extrema if alone else None

    def update(self, array: Any) -> None:
        """Pass numbers to all observers; a shared histogram counts them once."""
        for one in self.fed:
            one.update(array)

    def update_with_relu(self, array: Any) -> None:
        """Pass numbers and those of their Relu to all observers."""
        for one in self.fed:
            one.update_with_relu(array)

    def _extrema(self, low: Any, high: Any) -> None:
        for one in self.fed:
            if one.extrema is not None:
                one.extrema(low, high)


class WithRelu:
    """A watcher that passes the numbers of a value and those of its Relu to observers.

    Attributes:
        observers: The observers.
    """

    extrema = None

    def __init__(self, observers: ObserversTogether):
        self.observers = observers
        self.format, self.update = observers.format, observers.update_with_relu


def watchers_of(values: Sequence[ir.Value], observers: ObserversTogether) -> Iterator[tuple[ir.Value, Watcher]]:
    """Yield the values to watch, each with its watcher, so that observers see all of `values`.

    Given:  %a = Conv(...); %r = Relu(%a), and both have the same scale
    Result: %a, whose watcher computes the numbers of %r from those of %a

    This saves a third of the numbers of a typical convolutional net. An engine that computes the extrema next to a
    value does so for both.
    """
    relus: dict[ir.Value, ir.Value] = {}
    given = set(values)
    if observers.extrema is None and len(given) == len(values):
        inputs = ((_relu_input(value), value) for value in values)
        relus = {source: value for source, value in inputs if source is not None and source in given}
    derived = set(relus.values())
    for value in values:
        if value not in derived:
            yield value, WithRelu(observers) if value in relus else observers


def _relu_input(value: ir.Value) -> ir.Value | None:
    """Return the input of the Relu that computes a value; None if there is none, or it is the result of a Relu, too."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Relu" and is_onnx(node) else None
    return None if source is None or _relu_input(source) is not None else source


def known_parameters(ctx: Context) -> KnownParameters:
    """Return the parameters already found for the request's model; none if refinements have scaled its layers."""
    if RefinementRecord.of(ctx).changed(SCALING):
        return KnownParameters()
    return ctx.measured.of(KnownParameters)


def compare_observers(ctx: Context, compared: Sequence[ObserverChoice]) -> None:
    """Make calibration show the data to all of `compared` at once, because a search will request each of them."""
    ctx.measured.put(KnownParameters(compared))


def _key(group: list[QuantizedForm], choice: ObserverChoice) -> _Key:
    leaders = group[0].leaders
    made = tuple((name_of(one.value), _operator(one)) for one in leaders)
    return made, str(leaders[0].format), choice


def _operator(form: QuantizedForm) -> str:
    node = form.value.producer()
    return "" if node is None else f"{node.domain}.{node.op_type}:{node.name}"


_MARGIN = 1 + 1e-6  # allowance for rounding the product of two scales to float32


def weight_scale_for_bias(
    bias: QuantizedForm, numbers: np.ndarray, weight: QuantizedForm, factors: Mapping[str, Parameters]
) -> Parameters | None:
    """Return parameters of a weight with its scales raised just enough for the bias to fit.

    Products comparable to such a bias would overflow the accumulator, so the lost precision of the weight does not
    matter.

    Args:
        bias: A constant whose scale is a product of scales.
        numbers: The numbers of the bias.
        weight: The constant operand of the product.
        factors: Parameters of the operands by port, including the weight.

    Returns:
        The parameters, or None if the bias fits already.
    """
    product = product_of_scales(bias.format, list(factors.values()))
    scale = np.asarray(product.scale)
    numbers = np.broadcast_to(numbers.astype(np.float64), spread_extents(numbers.shape, bias.format, scale.size))
    largest = np.abs(slices(numbers, bias.format)).max(axis=1, initial=0)
    if largest.size % scale.size:
        return None
    # All groups of a ConvTranspose share the scales of one.
    wanted = largest.reshape(-1, scale.size).max(axis=0) / integer_bounds(bias.format)[1] * _MARGIN
    if not (wanted > scale).any():
        return None
    raised = np.maximum(wanted / scale, 1)
    (port,) = (use.port for use in weight.uses if use.port in factors and use.node is bias.uses[0].node)
    given = np.asarray(factors[port].scale)
    found = given * (raised if given.size > 1 else raised.max())
    return Parameters(tuple(found.astype(np.float32).astype(np.float64).tolist()), factors[port].zero_point)
