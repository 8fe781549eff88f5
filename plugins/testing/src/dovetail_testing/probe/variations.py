"""What is made of nodes that an engine computes, by changing one thing at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.ir import from_name

from dovetail_testing.kit.limit_models import attribute_knobs, extent_knobs
from dovetail_testing.probe.cases import ProbeCase, case_of, ends_of, is_same_in

if TYPE_CHECKING:
    import onnx

    from dovetail_testing.kit.limit_models import Knob
    from dovetail_testing.kit.samples import NodeSample


_MOST_SAMPLES = 3  # of an operator that are varied
_MOST_VALUES = 12  # of an attribute that are tried
_RANKS = range(7)
_LARGE = (1 << 14, 1 << 10, 1 << 7, 31, 16)  # the first that fits is tried, and where it fails the limit is searched
_HALVINGS = 12
_ROOM = 64  # extents of an image in which windows of any size are tried
_NUMBERS: dict[str, tuple[object, ...]] = {"FLOAT": (0.0, 0.5, 1.5, 2.0, -0.5), "INT": (0, 1, 2, -1), "INTS": ([],)}
_WORDS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID"),
    "direction": ("bidirectional", "forward", "reverse", "LEFT", "RIGHT"),
    "mode": ("constant", "edge", "reflect", "wrap", "nearest", "linear", "cubic", "avg", "max", "DCR", "CRD"),
    "reduction": ("add", "max", "mean", "min", "mul", "none", "sum"),
    "approximate": ("none", "tanh"),
    "padding_mode": ("border", "reflection", "zeros"),
}
"""Values of attributes that are words, whatever the operator: a node with one that it does not have is not valid."""
_LENGTHS = {"output_shape": (2, 1, 0, -1)}
"""Attributes that describe a result which is known only with the node: what is added to the image of the input."""
_TYPED = {"to": 26, "dtype": 26, "output_dtype": 26}
"""Attributes that name an element type, by its number in onnx; all are tried up to this one."""


Exploration = Generator["ProbeCase", "bool | None", None]
"""Yields nodes to try, and gets whether the engine computes each; None if nobody does."""


def explored(operator: str, cases: Sequence[ProbeCase]) -> Exploration:
    """Change one thing at a time of some of an operator's nodes: types, constants, ports, attributes, ranks, extents.

    Args:
        operator: The operator.
        cases: Its nodes that the engine computes.
    """
    samples = [case.sample for case in cases if case.sample is not None]
    labels = {id(case.sample): case.label for case in cases}
    chosen = diverse(samples)
    for number, sample in enumerate(chosen):
        label = labels[id(sample)]
        for what, changed in _changes(sample, samples, number == 0):
            for case in (
                case_of(operator, f"{label}, {what}", changed),
                ends_of(operator, f"{label}, {what}", changed),
            ):
                if case is not None:
                    yield case
        if number == 0:
            yield from _open_extents(operator, label, sample)
            yield from _limits(operator, label, sample)


def diverse(samples: Sequence[NodeSample]) -> list[NodeSample]:
    """Return a few samples that differ in attributes, ranks and constants."""
    seen: dict[object, NodeSample] = {}
    for sample in samples:
        ranks = tuple(array.ndim if array is not None else None for array in sample.inputs)
        seen.setdefault((tuple(sorted(sample.attributes)), ranks, any(sample.constant)), sample)
    return list(seen.values())[:_MOST_SAMPLES]


def _changes(sample: NodeSample, others: Sequence[NodeSample], first: bool) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples that differ in one thing, with words for it."""
    yield from _retyped(sample)
    for index, array in enumerate(sample.inputs):
        if array is not None:
            flipped = not sample.constant[index]
            yield f"input {index} {'constant' if flipped else 'computed'}", sample.with_constant(index, flipped)
    yield from _ports(sample)
    yield from attribute_changes(sample, others)
    if first:
        yield from _ranks(sample)
        yield from _versions(sample)


def _retyped(sample: NodeSample) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples of other element types: one type parameter of the operator at a time."""
    schema = sample.schema()
    parameters = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    for parameter, allowed in parameters.items():
        at = [i for i, array in enumerate(sample.inputs) if array is not None and _parameter(schema, i) == parameter]
        if not at:
            continue
        first = sample.inputs[at[0]]
        assert first is not None
        for name in sorted(allowed):
            if (dtype := _dtype_of(name)) is None or dtype == first.dtype:
                continue
            inputs = tuple(_cast(array, dtype) if i in at else array for i, array in enumerate(sample.inputs))
            yield f"{parameter} {dtype.name}", replace(sample, inputs=inputs)


def _parameter(schema: onnx.defs.OpSchema, index: int) -> str:
    formals = schema.inputs
    formal = formals[min(index, len(formals) - 1)]
    return str(formal.type_str)


def _dtype_of(name: str) -> np.dtype | None:
    """Return the type of the elements of `tensor(float16)`; None for texts and what is no tensor."""
    if not name.startswith("tensor(") or "string" in name:
        return None
    element = name[7:-1]
    element = {"float": "float32", "double": "float64"}.get(element, element)
    return np.dtype(from_name(element).numpy())


def _cast(array: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    """Return an array in another type, without negative numbers where the type has none."""
    if array is None or array.dtype.kind in "OSU":
        return array
    if dtype.kind == "u" or dtype.name.startswith("uint"):
        array = np.abs(array.astype(np.float64)) if array.dtype.kind != "b" else array
    with np.errstate(all="ignore"):
        return array.astype(np.float32).astype(dtype) if array.dtype.kind == "V" else array.astype(dtype)


def _ports(sample: NodeSample) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples without an optional input or output."""
    schema = sample.schema()
    for index, array in enumerate(sample.inputs):
        if array is not None and index >= schema.min_input:
            inputs = tuple(None if at == index else old for at, old in enumerate(sample.inputs))
            if index == len(inputs) - 1:
                yield f"without input {index}", replace(sample, inputs=inputs[:-1], constant=sample.constant[:-1])
            else:
                yield f"without input {index}", replace(sample, inputs=inputs)
    if sample.outputs > schema.min_output:
        yield "one output less", replace(sample, outputs=sample.outputs - 1)


def attribute_changes(sample: NodeSample, others: Sequence[NodeSample]) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples with other values of attributes: those of other tests, the default, and small numbers."""
    schema = sample.schema()
    for name, attribute in schema.attributes.items():
        own = sample.attributes.get(name)
        values: list[Any] = [other.attributes[name] for other in others if name in other.attributes]
        values += (
            range(1, _TYPED[name] + 1) if name in _TYPED else _NUMBERS.get(str(attribute.type).rpartition(".")[2], ())
        )
        values += _WORDS.get(name, ())
        if name in _LENGTHS and (image := sample.image()):
            values += [[extent * 2 + more for extent in image] for more in _LENGTHS[name]]
        seen = [own.decode() if isinstance(own, bytes) else own]
        for value in values:
            value = value.decode() if isinstance(value, bytes) else value
            if any(_same(value, old) for old in seen) or len(seen) > _TYPED.get(name, _MOST_VALUES):
                continue
            seen.append(value)
            yield f"{name} = {value}", sample.with_attribute(name, value)
        if own is not None and not attribute.required:
            left = {key: value for key, value in sample.attributes.items() if key != name}
            yield f"{name} left out", replace(sample, attributes=left)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and bool(np.all(one == other)) if not isinstance(one, list) else one == other


def _ranks(sample: NodeSample) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples of other ranks: one input at a time, and all inputs of the same rank together."""
    ranks = [array.ndim if array is not None else -1 for array in sample.inputs]
    numbers = [i for i, array in enumerate(sample.inputs) if array is not None and array.dtype.kind not in "OSU"]
    for rank in _RANKS:
        for index in numbers:
            if rank != ranks[index]:
                yield f"input {index} of rank {rank}", sample.with_rank(index, rank)
        together = [index for index in numbers if ranks[index] == ranks[numbers[0]]]
        if len(together) > 1 and rank != ranks[numbers[0]]:
            changed = sample
            for index in together:
                changed = changed.with_rank(index, rank)
            yield f"inputs of rank {rank}", changed


def _versions(sample: NodeSample) -> Iterator[tuple[str, NodeSample]]:
    """Yield samples in older opsets, one for each older version of the operator."""
    import onnx

    if sample.domain:
        return
    seen = {sample.schema().since_version}
    for opset in range(sample.opset - 1, 6, -1):
        try:
            schema = onnx.defs.get_schema(sample.op_type, opset)
        except onnx.defs.SchemaError:
            return
        if schema.since_version not in seen and is_same_in(sample.op_type, sample.opset, opset):
            seen.add(schema.since_version)
            yield f"opset {opset}", replace(sample, opset=opset)


def _open_extents(operator: str, label: str, sample: NodeSample) -> Exploration:
    """Yield a node whose first extents are known only at run time."""
    case = case_of(operator, f"{label}, open extents", sample)
    if case is None or not any(value.type.tensor_type.shape.dim for value in case.proto.graph.input):
        return
    import onnx

    open_ = onnx.ModelProto()
    open_.CopyFrom(case.proto)
    for value in open_.graph.input:
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            extent.dim_param = f"{value.name}_{axis}"
    del open_.graph.value_info[:]
    for value in open_.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        open_ = onnx.shape_inference.infer_shapes(open_, data_prop=True)
    except Exception:  # onnx raises various exceptions
        return
    yield replace(case, proto=open_, sample=None)


def _limits(operator: str, label: str, sample: NodeSample) -> Exploration:
    """Search for limits of extents and of numbers in attributes, each by halving."""
    schema = sample.schema()
    sample = _roomy(sample) if "strides" in schema.attributes else sample
    knobs: list[tuple[str, int, Knob]] = []
    for index, shape in sample.floats():
        for axis, extent in enumerate(shape):
            what = f"extent {axis} of input {index}"
            knobs += [(what, extent, knob) for knob in extent_knobs(sample, index, axis)]
    for name, value in sample.attributes.items():
        numbers = value if isinstance(value, list) else [value]
        if numbers and all(isinstance(each, int) for each in numbers):
            knobs += [(name, max(numbers), knob) for knob in attribute_knobs(schema, sample, name)]
    done: set[str] = set()
    for what, value, knob in knobs:
        if what not in done and (yield from _bisected(operator, label, sample, what, value, knob)):
            done.add(what)


def _roomy(sample: NodeSample) -> NodeSample:
    """Return a sample of an operator with windows whose image has room for large ones."""
    first = sample.inputs[0]
    extents = {(0, axis): _ROOM for axis in range(2, first.ndim if first is not None else 0)}
    larger = sample.with_extents(extents)
    return larger if larger.proto() is not None else sample


def _bisected(
    operator: str, label: str, sample: NodeSample, what: str, value: int, knob: Knob
) -> Generator[ProbeCase, bool | None, bool]:
    """Turn a knob to 0, to 1 and to a large value, and search between for the last one that the engine computes.

    Returns whether the knob makes valid nodes.
    """

    def tried(number: int) -> Generator[ProbeCase, bool | None, bool | None]:
        turned = knob(sample, number)
        case = case_of(operator, f"{label}, {what} = {number}", turned) if turned is not None else None
        return None if case is None else (yield case)

    for small in (0, 1):
        if value != small:
            yield from tried(small)
    for large in _LARGE:
        if large <= value:
            break
        answer = yield from tried(large)
        if answer is None:
            continue
        low, high = value, large
        for _ in range(0 if answer else _HALVINGS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            answer = yield from tried(middle)
            if answer is None:
                break
            low, high = (middle, high) if answer else (low, middle)
        return True
    return False
