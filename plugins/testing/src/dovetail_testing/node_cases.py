"""onnx's node tests as cases."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dovetail_testing.case import Case, Work
from dovetail_testing.references import references_of

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin.loader import PluginSet


# Tests whose model is the function body of an operator are named after the test of the operator itself.
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
_LOWEST_IR = 8  # what all readers of initializers that are no inputs know


@lru_cache(maxsize=1)
def node_cases() -> tuple[Case, ...]:
    """The node tests of the installed onnx, each of the operator that it is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx computes overflows on purpose
        from onnx.backend.test.loader import load_model_tests

        tests = load_model_tests(kind="node")
    operators = {test.name: _only_operator(cast("onnx.ModelProto", test.model)) for test in tests}
    return tuple(Case("nodes", test.name, _operator(test.name, operators), _Maker(test)) for test in tests)


class _Maker:
    """Makes a node test ready to run."""

    def __init__(self, test: Any):
        self._test = test

    def __call__(self, plugins: PluginSet) -> Work:
        del plugins
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._test.model)
        model.ir_version = max(model.ir_version, _LOWEST_IR)
        given, expected = self._test.data_sets[0]
        names = [value.name for value in model.graph.input]
        outputs = [value.name for value in model.graph.output]
        return Work(
            model,
            {name: _value(value) for name, value in zip(names, given, strict=True)},
            {name: _value(value) for name, value in zip(outputs, expected, strict=True)},
            references_of(model),
            model,
        )


def _value(value: Any) -> Any:
    import onnx

    value = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(value) if isinstance(value, np.generic) else value


def _only_operator(model: onnx.ModelProto) -> str:
    names = {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.node}
    return next(iter(names)) if len(model.graph.node) == 1 else ""


def _operator(name: str, operators: dict[str, str]) -> str:
    """The operator of a test: of the only node, or of the test whose model was expanded."""
    whole = _EXPANDED.sub("", name)
    return operators[name] if name == whole and operators[name] else operators.get(whole, "") or "several"
