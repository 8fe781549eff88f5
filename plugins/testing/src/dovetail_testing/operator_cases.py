"""Operators of installed YAML files as cases, with generated inputs.

A composite is compared with its body, other operators with their kernel, called directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import from_name
from dovetail.plugin.loading import described
from dovetail_kernels.library import kernels_of
from dovetail_kernels.operator_files.library import Definition, library_of
from dovetail_kernels.operator_files.schemas import attribute_of

from dovetail_testing.case import Case, PreparedCase, Reference
from dovetail_testing.running import references_of

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet
    from dovetail_kernels import Kernel
    from dovetail_kernels.operator_files.entries import OperatorArgument


# Square matrices have products and sums; then images, vectors, and shapes with distinct extents.
_SHAPES = ((4, 4), (1, 4, 8, 8), (4,), (2, 4, 4), (2, 3), (1, 2, 3, 4))
_LISTS = ((), (0,), (1,), (1, 0), (2, 2), (0, 2, 1, 3))
_FLOATS = ("float32", "float16", "float64")
_OTHERS = ("int64", "int32", "bool")
_LIST_LENGTH = 2
_OPSET, _IR = 18, 8


def operator_cases(plugins: PluginSet) -> tuple[Case, ...]:
    """Return a case for each operator and element type of its kernels; without kernels, one per operator.

    Raises:
        DovetailError: An operator file or a kernel is invalid.
    """
    plugins.prepare()
    library = library_of(plugins.registry)
    found = []
    for (domain, name), definition in sorted(library.definitions.items()):
        types = dict.fromkeys(itertools.chain(*(kernel.types for kernel in _kernels(definition, domain, plugins))))
        for type_ in list(types) or [""]:
            label = f"{domain}::{name}"
            make = _Maker(definition, domain, type_)
            found.append(Case("operators", f"{label}[{type_}]" if type_ else label, label, make))
    return tuple(found)


@dataclass(frozen=True)
class _Maker:
    """Prepares a case by finding inputs that an operator accepts."""

    definition: Definition
    domain: str
    type_: str

    def __call__(self, plugins: PluginSet) -> PreparedCase:
        refused = ""
        for inputs, attributes in self._candidates():
            try:
                work = work_of(self.definition, self.domain, inputs, attributes, plugins)
            except _Refused as error:
                refused = refused or str(error)
                continue
            return work
        raise DovetailError(
            f"{self.domain}::{self.definition.entry.name} takes none of the generated inputs: {refused}",
            f"give inputs: dovetail.testing.double_run('{self.domain}::{self.definition.entry.name}', ..., inputs=...)",
        )

    def _candidates(self) -> Iterator[tuple[dict[str, Any], dict[str, object]]]:
        """Yield inputs and attributes to try, most likely first."""
        entry = self.definition.entry
        open_ = [arg for arg in entry.attributes if not arg.has_default]
        values = [_values(arg) for arg in open_]
        for type_, shape in itertools.product([self.type_] if self.type_ else (*_FLOATS, *_OTHERS), _SHAPES):
            for chosen in itertools.product(*values):
                attributes = {arg.name: value for arg, value in zip(open_, chosen, strict=True)}
                yield {arg.name: _random(arg, type_, shape, i) for i, arg in enumerate(entry.inputs)}, attributes


class _Refused(Exception):
    """Raised if an operator rejects inputs."""


def work_of(
    definition: Definition, domain: str, inputs: Mapping[str, Any], attributes: Mapping[str, object], plugins: PluginSet
) -> PreparedCase:
    """Create a single-node model of an operator, with its references.

    Raises:
        _Refused: No reference computes it for these inputs.
    """
    model = _model_of(definition, domain, inputs, attributes)
    references = [*_of_body(definition, model), *_of_kernels(definition, domain, attributes, model, plugins)]
    if not references:
        raise DovetailError(
            f"{domain}::{definition.entry.name} has neither a composite nor an installed kernel, so nothing says what "
            "it computes",
            "install a kernel for the host (registry.kernel), or write a composite",
        )
    feeds = {value.name: array for value, array in zip(model.graph.input, _flat(inputs), strict=True)}
    for reference in references:
        try:
            results = reference.run(feeds)
        except Exception as error:
            why = described(error)
            continue
        _declare(model, results)
        return PreparedCase(model, feeds, {}, references, model)
    raise _Refused(why)


def _model_of(
    definition: Definition, domain: str, inputs: Mapping[str, Any], attributes: Mapping[str, object]
) -> onnx.ModelProto:
    entry = definition.entry
    model = node_model(
        domain, entry.name, _named(inputs), len(entry.outputs), {domain: definition.schema.since_version}
    )
    known = {arg.name: arg for arg in entry.attributes}
    model.graph.node[0].attribute.extend(attribute_of(known[name], value) for name, value in attributes.items())
    return model


def node_model(
    domain: str, name: str, inputs: Mapping[str, np.ndarray], outputs: int, versions: Mapping[str, int]
) -> onnx.ModelProto:
    """Create a single-node model with untyped outputs `out0`, `out1`, ..."""
    import onnx
    from onnx import helper

    graph = onnx.GraphProto(name=name)
    results = [f"out{index}" for index in range(outputs)]
    graph.node.append(helper.make_node(name, list(inputs), results, name=name, domain=domain))
    graph.input.extend(_value_info(key, array) for key, array in inputs.items())
    graph.output.extend(onnx.ValueInfoProto(name=result) for result in results)
    imports = {"": _OPSET, **versions}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in imports.items()], ir_version=_IR
    )


def _of_body(definition: Definition, model: onnx.ModelProto) -> Sequence[Reference]:
    """Return references for the decomposition of an operator, a function of the model."""
    import onnx
    import onnx.inliner

    if definition.function is None:
        return ()
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    whole.functions.append(definition.function)
    known = {entry.domain for entry in whole.opset_import}
    whole.opset_import.extend(each for each in definition.function.opset_import if each.domain not in known)
    written = {attribute.name for attribute in whole.graph.node[0].attribute}
    # The reference of the onnx package ignores default attributes of functions.
    defaults = definition.function.attribute_proto
    whole.graph.node[0].attribute.extend(each for each in defaults if each.name not in written)
    inlined = onnx.inliner.inline_local_functions(whole)
    return references_of(inlined)


def _of_kernels(
    definition: Definition,
    domain: str,
    attributes: Mapping[str, object],
    model: onnx.ModelProto,
    plugins: PluginSet,
) -> list[Reference]:
    """Return references that call a kernel of an operator directly."""
    entry = definition.entry
    given = {arg.name: arg.default for arg in entry.attributes if arg.has_default} | dict(attributes)
    outputs = [value.name for value in model.graph.output]

    def calling(kernel: Kernel) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        return lambda feeds: dict(zip(outputs, kernel.run(list(feeds.values()), given), strict=False))

    return [
        Reference(f"the kernel {type(kernel).__name__}, called directly", calling(kernel))
        for kernel in _kernels(definition, domain, plugins)
    ]


def _kernels(definition: Definition, domain: str, plugins: PluginSet) -> list[Kernel]:
    """Return the kernels of an operator; those of the host's device come first."""
    entry = definition.entry
    names = [function for function, _ in entry.kernel.functions] if entry.kernel is not None else [entry.name]
    known = kernels_of(plugins.registry).kernels
    found = [one.kernel for name in names for one in known.get(f"{domain}::{name}", ())]
    return sorted(found, key=lambda kernel: kernel.device != "cpu")


def _declare(model: onnx.ModelProto, results: Mapping[str, Any]) -> None:
    """Set the types of a model's outputs from results."""
    for value in model.graph.output:
        value.CopyFrom(_value_info(value.name, np.asarray(results[value.name])))


def _value_info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _values(arg: OperatorArgument) -> Sequence[object]:
    """Return values of an attribute to try."""
    if arg.is_list or arg.type == "IntArray":
        return _LISTS
    kind = arg.type
    if kind == "bool":
        return (False, True)
    if kind in ("int", "int64_t", "Scalar(int)", "Scalar(int64_t)"):
        return (1, 0)
    return ("",) if kind in ("str", "Place", "DataLayout") else ("float32",) if kind == "DataType" else (1.0,)


def _random(arg: OperatorArgument, type_: str, shape: tuple[int, ...], seed: int) -> Any:
    if arg.is_list:
        return [_array(type_, shape, seed + 100 * index) for index in range(_LIST_LENGTH)]
    return _array(type_, shape, seed)


def _array(type_: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    generator, dtype = np.random.default_rng(seed), np.dtype(from_name(type_).numpy())
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        return generator.integers(0, min(100, np.iinfo(dtype).max), shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _named(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return inputs by name, with lists expanded."""
    named: dict[str, np.ndarray] = {}
    for name, value in inputs.items():
        if isinstance(value, list):
            named |= {f"{name}{index}": array for index, array in enumerate(value)}
        else:
            named[name] = value
    return named


def _flat(inputs: Mapping[str, Any]) -> list[np.ndarray]:
    return list(_named(inputs).values())
