"""Cases of each suite, and the selection of samples and shards."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from dovetail.errors import UsageError
from dovetail.text import did_you_mean

from dovetail_testing.case import SUITES, Case, PreparedCase
from dovetail_testing.running import references_of

if TYPE_CHECKING:
    from types import ModuleType

    import onnx
    from dovetail.plugin import PluginSet


def cases(
    suite: str, plugins: PluginSet | None = None, *, models: str | Path | None = None, sample: int | None = None
) -> tuple[Case, ...]:
    """Return the cases of one suite.

    Args:
        suite: `nodes`, `operators` or `models`.
        plugins: Plugins with the operator files; by default all installed ones.
        models: A folder of models with their data, for the suite `models`.
        sample: Number of cases to select, over as many operators as possible; by default all.

    Raises:
        UsageError: The suite is unknown.
        DovetailError: An operator file, or a file in the folder, is invalid.
    """
    if suite not in SUITES:
        raise UsageError(f"there is no suite '{suite}'{did_you_mean(suite, SUITES)}", f"suites: {', '.join(SUITES)}")
    found = all_cases([suite], plugins, models)
    return found if sample is None else sampled(found, sample)


def all_cases(
    suites: Iterable[str], plugins: PluginSet | None = None, models: str | Path | None = None
) -> tuple[Case, ...]:
    """Return the cases of several suites; see `cases`."""
    import dovetail

    found: list[Case] = []
    for suite in suites:
        if suite == "nodes":
            found += node_cases()
        elif suite == "operators":
            from dovetail_testing.operator_cases import operator_cases

            found += operator_cases(plugins or dovetail.load_plugins())
        else:
            from dovetail_testing.model_cases import model_cases

            found += model_cases(Path(models) if models is not None else None)
    return tuple(found)


def sampled(found: Sequence[Case], count: int) -> tuple[Case, ...]:
    """Select a deterministic sample: one test of each operator, then a second one, and so on.

    Args:
        found: The cases; their order is kept, and does not affect the selection.
        count: Number of cases to select.
    """
    groups: dict[str, list[Case]] = {}
    for case in sorted(found, key=_digest):
        groups.setdefault(case.operator or case.key, []).append(case)
    rounds = zip_longest(*sorted(groups.values(), key=lambda group: _digest(group[0])))
    chosen = {case.key for case in [case for each in rounds for case in each if case is not None][:count]}
    return tuple(case for case in found if case.key in chosen)


def shard_of(found: Collection[Case], number: int, count: int) -> tuple[Case, ...]:
    """Select the cases of one shard by a hash of their names, so that an added test moves no other one.

    Args:
        found: The cases.
        number: Number of the shard, from 1.
        count: Number of shards.
    """
    return tuple(case for case in found if int(_digest(case), 16) % count == number - 1)


def _digest(case: Case) -> str:
    return hashlib.sha256(case.key.encode()).hexdigest()


# Tests whose model is an operator's function body are named after the operator's own test.
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
_LOWEST_IR = 8  # supported by all readers of initializers that are not inputs


def node_cases() -> tuple[Case, ...]:
    """Return the node tests of the installed onnx, each with its operator."""
    tests = node_tests()
    return tuple(case for module in tests.modules() for case in tests.cases(module))


@lru_cache(maxsize=1)
def node_tests() -> NodeTests:
    """Return the node tests of the installed onnx, of which those that were made are kept."""
    return NodeTests()


_OF_OTHERS = ""


class NodeTests:
    """The node tests of the installed onnx. Importing one of its modules makes its tests; all of them take seconds."""

    def __init__(self) -> None:
        from onnx.backend.test.case import node

        self._texts = dict(_modules_in(node))
        self._made = node._NodeTestCases
        self._taken = 0  # of these
        self._cases: dict[str, tuple[Case, ...]] = {}

    def modules(self, operators: Collection[str] = ()) -> list[str]:
        """Return the modules with tests about some operators, by default all; some may only mention them.

        The last one stands for those that others in this process imported, whose tests are of any operator.
        """
        names = [re.escape(operator.rpartition("::")[2]) for operator in operators]
        mention = re.compile(rf"\b(?:{'|'.join(names)})\b")
        return [*(name for name, text in self._texts.items() if not names or mention.search(text)), _OF_OTHERS]

    def cases(self, module: str) -> tuple[Case, ...]:
        """Return the tests of a module."""
        if module not in self._cases or module == _OF_OTHERS:
            self._cases[_OF_OTHERS] = self._cases.get(_OF_OTHERS, ()) + self._new()
        if module not in self._cases:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # onnx computes overflows on purpose
                importlib.import_module(module)
            self._cases[module] = self._new()
        return self._cases[module]

    def _new(self) -> tuple[Case, ...]:
        """Return the tests that were made since the last call."""
        tests = self._made[self._taken :]
        self._taken = len(self._made)
        only = {test.name: _only_operator(cast("onnx.ModelProto", test.model)) for test in tests}
        return tuple(Case("nodes", test.name, _operator(test.name, only), _Maker(test)) for test in tests)


def _modules_in(package: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a package's modules, in the order in which onnx imports them."""
    folder = Path(package.__path__[0])
    for _, name, is_package in pkgutil.iter_modules(package.__path__):
        full = f"{package.__name__}.{name}"
        file = folder / name / "__init__.py" if is_package else folder / f"{name}.py"
        yield full, file.read_text(encoding="utf-8")
        if is_package:
            yield from _modules_in(importlib.import_module(full))


class _Maker:
    """Prepares a node test."""

    def __init__(self, test: Any):
        self._test = test

    def __call__(self, plugins: PluginSet) -> PreparedCase:
        del plugins
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._test.model)
        model.ir_version = max(model.ir_version, _LOWEST_IR)
        given, expected = self._test.data_sets[0]
        names = [value.name for value in model.graph.input]
        outputs = [value.name for value in model.graph.output]
        return PreparedCase(
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
    """Return the operator of a test: of its only node, or of the test whose model was expanded."""
    whole = _EXPANDED.sub("", name)
    return operators[name] if name == whole and operators[name] else operators.get(whole, "") or "several"
