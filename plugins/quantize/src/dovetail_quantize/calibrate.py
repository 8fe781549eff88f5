"""The `calibrate` pass: find scale and zero point of every quantized value in the plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.planning import Parameters, QuantizedValue, placement_of
from dovetail.text import pluralize
from dovetail_onnx.partial_tensors import slabs_of
from dovetail_placement.source_scales import weight_of
from dovetail_precision.sharing_groups import QuantizedForm
from dovetail_runtime.data_workers import data_workers

from dovetail_quantize.integers import expressible, number_of_scales, product_of_scales, slices
from dovetail_quantize.observing import NamedObserver, chosen_observer, observe
from dovetail_quantize.parameters import (
    KnownParameters,
    is_adopted,
    known_parameters,
    range_of_source,
    repeated,
    replayed_parameters,
    source_scale,
    watchers_of,
    weight_scale_for_bias,
)
from dovetail_quantize.refining.steps import READING_SCALES, steps_of
from dovetail_quantize.shared_ranges import followers, remark_narrow_values, with_range
from dovetail_quantize.values_shown import values_shown

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.planning import ObserverChoice

    from dovetail_quantize.observing import Watcher


_FEW = 16  # samples
_ByUse = Mapping[tuple[int, str], QuantizedForm]


def calibrate_forms(model: Model, forms: list[QuantizedForm], ctx: Context) -> None:
    """Fill `ctx.outcome.quantized_values`, or refuse nodes; the graph does not change."""
    computed = (use.node for one in forms if weight_of(one.value) is None for use in one.uses)
    for node in dict.fromkeys(computed):
        if node.graph is not model.graph:
            why = "numbers in bodies of control flow are not calibrated"
            ctx.refuse(node, placement_of(node).backend, why, rule="calibration")
    if ctx.refusals.fresh:
        return
    calibration = _Calibration(model, ctx)
    calibration.find(forms)
    if ctx.refusals.fresh:
        return
    ctx.outcome.quantized_values = [calibration.quantized(one) for one in forms]
    ctx.count("quantized values", len(forms))


_LARGE = 1 << 22  # numbers of a weight that is read in slabs


class _Calibration:
    """Calibration of the quantized values of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._model, self._ctx = model, ctx
        self._replayed: dict[int, Parameters] = {}
        self._found: dict[int, tuple[Parameters | None, str]] = {}

    def find(self, forms: list[QuantizedForm]) -> None:
        """Find the parameters of all sharing groups; products of scales come last."""
        self._replayed = replayed_parameters(self._ctx.request.plan, forms)
        observed: list[list[QuantizedForm]] = []
        for group in {id(one.group): one.group for one in forms}.values():
            if any(one.rule.factors for one in group):
                continue
            adopted = next((one.adopted for one in group if one.adopted is not None), None)
            if adopted is not None:
                for one in group:
                    self._set([one], repeated(adopted, one.format, one.value.shape), "source model")
            elif len(group) == 1 and (weight := weight_of(group[0].value)) is not None:
                self._of_weight(group[0], weight)
            elif (known := self._from_plan(group)) is not None:
                self._set(group, known, "replayed")
            elif (covering := range_of_source(group[0].leaders)) is not None:
                self._set(group, covering, "range of the source model")
            else:
                observed.append(group)
        if observed:
            self._of_data(observed)
        by_use = {(id(use.node), use.port): one for one in forms for use in one.uses}
        for one in forms:
            if one.rule.factors and (bias := weight_of(one.value)) is not None:
                self._fit_bias(one, bias, by_use)
        for one in forms:
            if one.rule.factors:
                node = one.uses[0].node
                factors = [self._parameters_at(node, port, by_use, one) for port in one.rule.factors]
                product = _in_all_groups(product_of_scales(one.format, factors), one.format, node)
                if not self._fits(product, one, node):
                    continue
                scale = source_scale(one.value)
                if scale is not None and is_adopted(scale, one.format, product, one.value):
                    self._set([one], repeated(scale.parameters, one.format, one.value.shape), "source model")
                else:
                    self._set([one], product, f"{one.rule.scale} of {node.name}")

    def _fits(self, product: Parameters, form: QuantizedForm, node: ir.Node) -> bool:
        """Check whether a product of scales has as many as the value needs; refuse the node if not."""
        room = _room(form)
        if room is None or room == len(product.scale):
            return True
        if room == 1 and weight_of(form.value) is not None:
            return True  # a bias that is one number for all channels is stored once per channel
        why = (
            f"the scale of '{form.value.name}' is {form.rule.scale}, which has {len(product.scale)} numbers for {room}"
        )
        self._ctx.refuse(node, placement_of(node).backend, why, rule="calibration")
        return False

    def quantized(self, form: QuantizedForm) -> QuantizedValue:
        """Return the calibrated quantized value."""
        parameters, source = self._found[id(form)]
        if form.fused is not None:
            source = f"computed together with {form.fused.name}"
        readers = tuple(f"{use.node.name}:{use.port}" for use in form.uses if not use.is_output)
        made = "" if form.producer is None else f"{form.producer.node.name}:{form.producer.port}"
        return QuantizedValue(name_of(form.value), form.format, form.name, source, parameters, readers, made)

    def _set(self, group: Iterable[QuantizedForm], parameters: Parameters, source: str) -> None:
        for one in group:
            self._found[id(one)] = (expressible(parameters, one.format), source)

    def _of_weight(self, form: QuantizedForm, weight: ir.TensorProtocol) -> None:
        if form.format.group is not None and self._only_stored(form):
            self._in_blocks(form, weight)
            return
        observer = self._observer(form)
        if observer.extrema is not None and weight.size > _LARGE and form.format.group is None and _has_axis(form):
            observer.extrema(*_extrema(weight, form.format))
        else:
            observer.update(weight.numpy())
        self._set([form], observer.parameters(), "weights")

    def _in_blocks(self, form: QuantizedForm, weight: ir.TensorProtocol) -> None:
        """Leave the scales of a weight's blocks to the writing of it: there are too many to keep for all weights."""
        if not all(np.isfinite(slab.min()) and np.isfinite(slab.max()) for slab in slabs_of(weight) if slab.size):
            node = form.uses[0].node.name
            raise DovetailError(
                f"weight '{form.value.name}' holds an infinite number or NaN, and {form.format} has neither",
                f"look at the model, or compute '{node}' in floats (--high {shlex.quote(str(node))})",
            )
        try:
            number_of_scales(form.format, form.value.shape)
        except ValueError as error:
            for use in form.uses:
                why = f"'{form.value.name}' cannot be held in {form.format}: {error}"
                self._ctx.refuse(use.node, placement_of(use.node).backend, why, rule="calibration")
        self._observer(form)  # checks its name and options
        self._found[id(form)] = (None, "weights")

    def _only_stored(self, form: QuantizedForm) -> bool:
        """Check whether nothing but the stored weight needs its scales: no emitter and no refinement of its backend."""
        names = {placement_of(use.node).backend for use in form.uses}
        emitting = any(backend.name in names and backend.artifacts for backend in self._ctx.backends)
        refined = {step for name, steps in steps_of(self._ctx).items() if name in names for step in steps}
        return not emitting and refined.isdisjoint(READING_SCALES)

    def _fit_bias(self, bias: QuantizedForm, numbers: ir.TensorProtocol, by_use: _ByUse) -> None:
        """Raise the scale of a weight whose bias would saturate."""
        node = bias.uses[0].node
        factors = {port: self._parameters_at(node, port, by_use, bias) for port in bias.rule.factors}
        weights = [found for port in factors if self._found[id(found := by_use[id(node), port])][1] == "weights"]
        if (
            len(weights) == 1
            and (raised := weight_scale_for_bias(bias, numbers.numpy(), weights[0], factors)) is not None
        ):
            self._set(weights, raised, "weights")
            grown = f"so the scale of '{weights[0].value.name}' was raised"
            why = f"'{bias.value.name}' is too large for the scale {bias.rule.scale}, {grown}"
            self._ctx.remark("passed", node, "bias-range", why)

    def _from_plan(self, group: list[QuantizedForm]) -> Parameters | None:
        """Return the parameters of a sharing group from the replayed plan; None if it has none.

        Raises:
            DovetailError: Their number does not match the format, or they differ within the group.
        """
        found = {self._replayed[id(one)] for one in group if id(one) in self._replayed}
        if not found:
            return None
        what = f"plan: the quantized value '{group[0].value.name}' in {group[0].format}"
        if len(found) > 1:
            names = ", ".join(f"'{one.value.name}'" for one in group)
            raise DovetailError(f"{what} shares its scale with {names}, and the plan has different ones", _REPLAY)
        parameters = found.pop()
        try:
            wanted = number_of_scales(group[0].format, group[0].value.shape)
        except ValueError as error:
            raise DovetailError(f"{what} cannot be used: {error}", _REPLAY) from None
        if len(parameters.scale) != wanted:
            raise DovetailError(f"{what} has {pluralize(len(parameters.scale), 'scale')}, and needs {wanted}", _REPLAY)
        return parameters

    def _of_data(self, groups: list[list[QuantizedForm]]) -> None:
        if self._ctx.request.data is None:
            first = groups[0][0]
            user = first.uses[0]
            backend = placement_of(user.node).backend
            unknown = f"{pluralize(len(groups), 'range')} {'is' if len(groups) == 1 else 'are'} not known"
            raise DovetailError(
                f"{backend} computes '{user.node.name}' in {first.format}, and nothing says in which range "
                f"'{first.value.name}' lies; {unknown}",
                "give --data with inputs like those that the model will see, or replay a plan that has the scales",
            )
        known = known_parameters(self._ctx)
        choices = [chosen_observer(group[0].leaders[0]) for group in groups]
        unseen = [each for each in zip(groups, choices, strict=True) if known.get(*each) is None]
        if unseen:
            self._observe(unseen, known)
        seen = known.amount
        each = [(group, known.found(group, choice)) for group, choice in zip(groups, choices, strict=True)]
        for (group, parameters), choice in zip(each, choices, strict=True):
            self._set(group, parameters, f"{choice} of {pluralize(seen.batches, 'batch')}")
        remark_narrow_values(each, known, self._ctx)
        if seen.samples < _FEW:
            what = f"the scales of {pluralize(len(groups), 'value')} come from {pluralize(seen.samples, 'sample')}"
            why = f"{what}; larger numbers saturate, and a hundred samples are usual"
            self._ctx.remark("analysis", "", "few-samples", why, suggest="--data with more samples")

    def _observe(self, groups: list[tuple[list[QuantizedForm], ObserverChoice]], known: KnownParameters) -> None:
        """Show the data to the observers, and keep the parameters that each of them finds."""
        observers = []
        wanted: dict[str, list[Watcher]] = {}
        workers = data_workers()
        for group, choice in groups:
            table = self._ctx.registry.observer
            named = [NamedObserver(group[0].leaders[0], table, each) for each in known.wanted(choice)]
            observers.append((group, named))
            for values, shown in values_shown([one.value for one in group[0].leaders], named):
                for value, watcher in watchers_of(values, shown):
                    if (weight := weight_of(value)) is not None:
                        watcher.update(weight.numpy())
                    else:
                        beside = watcher if workers is not None else with_range(group, value, watcher, known)
                        wanted.setdefault(name_of(value), []).append(beside)
            if workers is None:
                for value, watcher in followers(group, known):
                    wanted.setdefault(name_of(value), []).append(watcher)
        seen = None
        if workers is not None:
            from dovetail_quantize.shards import observe_in_parts

            seen = observe_in_parts(workers, self._model, wanted, self._ctx)
        seen = seen or observe(self._model, wanted, self._ctx)
        if not seen.batches:
            raise DovetailError(
                "the data holds no batch to calibrate on", "give at least one; a hundred samples are usual"
            )
        known.amount = seen
        for group, named in observers:
            for observer in named:
                known.keep(group, observer.choice, observer.parameters())

    def _observer(self, form: QuantizedForm) -> NamedObserver:
        return NamedObserver(form, self._ctx.registry.observer)

    def _parameters_at(self, node: ir.Node, port: str, by_use: _ByUse, form: QuantizedForm) -> Parameters:
        factor = by_use.get((id(node), port))
        if factor is None or id(factor) not in self._found:
            raise DovetailError(
                f"node '{node.name}': the scale of '{form.value.name}' is {form.rule.scale}, and {port} has none",
                "list quantized types for this port in the backend's file, or another scale",
            )
        parameters = self._found[id(factor)][0]
        if parameters is not None:
            return parameters
        weight = weight_of(factor.value)
        assert weight is not None, "only weights are held in blocks without their scales"
        return self._observer(factor).of_part(weight.numpy())


def _in_all_groups(product: Parameters, format_: Format, node: ir.Node) -> Parameters:
    """Repeat scales of a ConvTranspose for each of its groups, as its weight has the channels of one along axis 1."""
    groups = node.attributes.get_int("group", 1) if node.op_type == "ConvTranspose" else 1
    if groups == 1 or format_.axis is None:
        return product
    return Parameters(product.scale * groups, product.zero_point * groups)


def _extrema(weight: ir.TensorProtocol, format_: Format) -> tuple[np.ndarray, np.ndarray]:
    """Return the extrema of every slice of a weight, without all of its numbers in memory."""
    by_row = format_.axis is not None and format_.axis % max(1, len(weight.shape)) == 0
    found = [(rows.min(axis=1), rows.max(axis=1)) for slab in slabs_of(weight) for rows in [slices(slab, format_)]]
    lows, highs = zip(*found)
    if by_row:
        return np.concatenate(lows), np.concatenate(highs)
    return np.minimum.reduce(lows), np.maximum.reduce(highs)


_REPLAY = "replay a plan as it was saved, or leave the entry out and give --data"


def _room(form: QuantizedForm) -> object:
    """Return how many scales a value needs along its format's axis; None if per-tensor or of unknown shape.

    A value without that axis, such as a bias of rank 0, needs one: its single scale is repeated.
    """
    shape, axis = form.value.shape, form.format.axis
    if axis is None or shape is None:
        return None
    return shape[axis] if _has_axis(form) else 1


def _has_axis(form: QuantizedForm) -> bool:
    """Check whether a value has the axis of its format; true if the format has none or the rank is unknown."""
    shape, axis = form.value.shape, form.format.axis
    return axis is None or shape is None or -len(shape) <= axis < len(shape)
