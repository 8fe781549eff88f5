"""Nodes to try: those of onnx's node tests; see `dovetail_testing.probe.variations` for what is made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import UsageError
from dovetail.planning import operator_name
from dovetail.text import did_you_mean

from dovetail_testing.kit.samples import NodeSample
from dovetail_testing.suites import node_tests

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet

    from dovetail_testing.case import Case


_IR = 11


@dataclass(frozen=True)
class ProbeCase:
    """A node to try.

    Attributes:
        operator: Its operator, as `Conv` or `ai.onnx.ml::Scaler`.
        label: The test, and what was changed.
        proto: A model of it alone.
        feeds: The inputs.
        expected: Recorded results; empty without any.
        sample: The node as a sample that can be changed; None if its inputs are no arrays.
        weight: Relative weight in the verdict of its operator.
        at_ends: Whether its integers are at the ends of their types, so that it speaks for all nodes of the same names.
    """

    operator: str
    label: str
    proto: onnx.ModelProto
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any] = field(default_factory=dict)
    sample: NodeSample | None = None
    weight: int = 1
    at_ends: bool = False


class TestedNodes:
    """The nodes of onnx's node tests, as they are and with constants, in parts that are made when they are asked for.

    Args:
        plugins: The plugins.
        opset: The highest opset that the engine reads; nodes that can be written in it are.
        operators: The operators; by default all.

    Raises:
        UsageError: There is no operator of this name, or, after the last part, no test about it.
    """

    __test__ = False  # pytest

    def __init__(self, plugins: PluginSet, opset: int, operators: Collection[str] = ()):
        import onnx

        self._plugins, self._opset, self._named = plugins, opset, operators
        schemas = onnx.defs.get_all_schemas()
        self.known = frozenset(operator_name(schema.domain, schema.name) for schema in schemas)
        self._modules = node_tests().modules(operators)
        self._parts: list[list[ProbeCase]] = []
        for operator in operators:
            if operator not in self.known:
                raise _no_test(operator, self.known)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[list[ProbeCase]]:
        tested = set[str]()
        for number, module in enumerate(self._modules):
            tests = node_tests().cases(module)
            if number == len(self._parts):
                self._parts.append([case for test in tests for case in self._cases(test)])
            yield self._parts[number]
            tested.update(test.operator for test in tests)
        for operator in self._named:
            if operator not in tested:
                raise _no_test(operator, self.known - {operator})

    def _cases(self, test: Case) -> Iterator[ProbeCase]:
        import onnx

        work = None if self._named and test.operator not in self._named else test.make(self._plugins)
        if work is None or work.proto is None or len(work.proto.graph.node) != 1:
            return
        sample = _sample(work.proto, work.inputs, self._opset)
        node = work.proto.graph.node[0]
        operator = operator_name(node.domain, node.op_type)  # a body of another operator may be one node, too
        proto = onnx.ModelProto()
        proto.CopyFrom(work.proto)
        _declare_older(proto, self._opset)
        yield ProbeCase(operator, test.name, proto, work.inputs, work.expected, sample, weight=3)
        if sample is not None and len(sample.inputs) > 1:
            held = replace(sample, constant=(False,) + (True,) * (len(sample.inputs) - 1))
            if (case := case_of(operator, f"{test.name} with constants", held, weight=2)) is not None:
                yield case
        if sample is not None and (case := ends_of(operator, test.name, sample)) is not None:
            yield case


def _no_test(operator: str, known: Collection[str]) -> UsageError:
    return UsageError(f"no test is about an operator '{operator}'{did_you_mean(operator, known)}")


def _declare_older(proto: onnx.ModelProto, opset: int) -> None:
    """Write a node in the highest opset that an engine reads, if its operator is the same there."""
    import onnx

    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > opset:
            node = proto.graph.node[0]
            if node.domain not in ("", "ai.onnx") or is_same_in(node.op_type, entry.version, opset):
                entry.version = opset
    proto.ir_version = min(proto.ir_version, _IR, onnx.IR_VERSION)


def is_same_in(op_type: str, version: int, older: int) -> bool:
    """Return whether an operator of the default domain has the same inputs in an older opset."""
    import onnx

    try:
        new, old = (onnx.defs.get_schema(op_type, each) for each in (version, older))
    except onnx.defs.SchemaError:
        return False
    return new.since_version == old.since_version or [port.name for port in new.inputs] == [
        port.name for port in old.inputs
    ]


def _sample(proto: onnx.ModelProto, inputs: Mapping[str, Any], opset: int) -> NodeSample | None:
    from onnx import helper

    node = proto.graph.node[0]
    arrays = [inputs.get(name) if name else None for name in node.input]
    if not all(array is None or isinstance(array, np.ndarray) for array in arrays):
        return None
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    newest = versions.get("", opset)
    if newest > opset and (node.domain or is_same_in(node.op_type, newest, opset)):
        newest = opset
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    unused = frozenset(index for index, name in enumerate(node.output) if not name)
    return NodeSample(
        node.op_type, attributes, tuple(arrays), (False,) * len(arrays), len(node.output), newest, node.domain,
        versions.get(node.domain, 1), unused,
    )  # fmt: skip


def case_of(operator: str, label: str, sample: NodeSample, weight: int = 1) -> ProbeCase | None:
    """Return a sample as a node to try; None if it is invalid, or has constants alone, which engines fold."""
    proto = None if sample.inputs and not sample.feeds else sample.proto()
    return None if proto is None else ProbeCase(operator, label, proto, sample.feeds, sample=sample, weight=weight)


def ends_of(operator: str, label: str, sample: NodeSample) -> ProbeCase | None:
    """Return a node with integers at the ends of their types; None if it computes none.

    Integers of 8 bits are numbers wherever they are allowed; ports for 32 and 64 bits alone take extents and indices.
    """
    schema = sample.schema()
    formals = [schema.inputs[min(index, len(schema.inputs) - 1)].type_str for index in range(len(sample.inputs))]
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    numbers = [
        index
        for index, array in enumerate(sample.inputs)
        if array is not None
        and array.dtype.kind in "iu"
        and array.size
        and _takes_bytes(allowed.get(formals[index], ()))
    ]
    if not numbers:
        return None
    inputs = list(sample.inputs)
    for number, index in enumerate(numbers):
        array = inputs[index]
        assert array is not None
        inputs[index] = np.resize(np.roll(_ends(array.dtype), number), array.shape)
    case = case_of(operator, f"{label}, at the ends of its types", replace(sample, inputs=tuple(inputs)))
    return None if case is None else replace(case, at_ends=True)


def _takes_bytes(allowed: Collection[str]) -> bool:
    return "tensor(int8)" in allowed or "tensor(uint8)" in allowed


def _ends(dtype: np.dtype) -> np.ndarray:
    """Return the ends of a type and numbers between, without 0 and -1, by which a quotient may not exist."""
    kind = np.iinfo(dtype)
    least = [kind.min, kind.min + 1, kind.min // 3] if kind.min else [kind.max // 2 + 1]
    return np.array([kind.max, *least, 3, kind.max - 1, 1, kind.max // 3, 7], dtype)
