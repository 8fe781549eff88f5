"""Every operator at every opset in which it changed, raised to later opsets: it computes the same, or is refused.

The nodes are those of `opset_cases.py`, in forms of old, and the operator tests of the onnx package, declared as of
every older opset whose schemas take them. Results before raising are those of ONNX Runtime without optimization, else
of the evaluator of the onnx package, else what the case says. By default a sample runs; `--all-rows` runs all.
"""

import itertools
from functools import cache

import ml_dtypes
import numpy as np
import onnx
import pytest
from dovetail_transforms.canonicalize.opsets import default_version, set_default_version
from dovetail_transforms.raising import raise_opset
from dovetail_transforms.raising.raising import load_table
from onnx import helper

from .executing import array, assert_agrees, is_number, on_evaluator, on_runtime
from .opset_cases import CASES
from .test_lowering import CASES as NODE_TESTS

NEWEST = onnx.defs.onnx_opset_version()
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


@cache
def versions():
    """The versions of each operator of the default domain."""
    found = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, set()).add(schema.since_version)
    return {name: sorted(numbers) for name, numbers in found.items()}


def opsets_of(op, since=1, until=NEWEST):
    """For each version of an operator, the newest opset in which it stands, within limits."""
    numbers = versions()[op]
    for version, following in zip(numbers, [*numbers[1:], NEWEST + 1], strict=True):
        if version <= until and following > since:
            yield min(following - 1, until)


def model_of(case, opset):
    """A model of one node, whose outputs have no types yet, and its inputs."""
    names = ["" if one is None else f"x{k}" for k, one in enumerate(case.inputs)]
    arrays = {name: np.asarray(one) for name, one in zip(names, case.inputs, strict=True) if name}
    constant = {f"x{k}" for k in case.constant}
    outputs = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, "node", **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for name, one in arrays.items() if name not in constant
    ]  # fmt: skip
    held = [onnx.numpy_helper.from_array(one, name) for name, one in arrays.items() if name in constant]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, {name: one for name, one in arrays.items() if name not in constant}


def declare(model, results):
    for value, result in zip(model.graph.output, results, strict=True):
        if is_number(result):
            kind = helper.np_dtype_to_tensor_dtype(result.dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, result.shape))


def is_valid(model):
    try:
        check(model)
        onnx.shape_inference.infer_shapes(model, check_type=True)
    except Exception:
        return False
    return True


def check(model):
    """Check a model; that an operator is deprecated is no fault (GroupNormalization of opset 18)."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        if "is deprecated in domain_version" not in str(error):
            raise


def operators(model):
    return {node.op_type for node in model.graph.node if node.domain == ""}


def as_written(model, given):
    """The results on ONNX Runtime without optimization: its optimizer is wrong in places."""
    return on_runtime(model, given, optimized=False)


RUNTIME = "ONNX Runtime"


def results_of(model, given):
    """The results of whoever runs a model. The evaluator ignores attributes of old, so that it counts for less."""
    if default_version(model.opset_import) < OLDEST_WITH_KERNELS and operators(model) & {"AveragePool"}:
        return {}  # the evaluator counts pads, for want of an attribute that says not to
    runners = {RUNTIME: as_written, "the evaluator": on_evaluator}
    found = {name: results for name, run in runners.items() if (results := run(model, given)) is not None}
    if "Attention" in operators(model):  # what is masked is the lowest number to ONNX Runtime, up to opset 24
        found = {
            name: [np.maximum(one, ml_dtypes.finfo(one.dtype).min) for one in results]
            for name, results in found.items()
        }
    return found


def assert_raises_unchanged(model, given, opset, expected):
    """Raise a model to every later opset in which one of its operators changes, and compare what it computes."""
    before = results_of(model, given)
    if expected is not None:
        assert_all_agree(before.get(RUNTIME, expected), expected)
        before = {RUNTIME: before[RUNTIME]} if RUNTIME in before else {"the operator's text": expected}
    if not before:
        pytest.skip("nothing runs this version")
    first = next(iter(before.values()))
    declare(model, map(array, first))
    targets = {t for t in range(opset + 1, NEWEST) if any(t in versions()[op] for op in chain(model, opset))}
    for target in sorted(targets | {NEWEST}):
        raised = onnx.ModelProto.FromString(model.SerializeToString())
        raise_opset(raised, opset, target)
        set_default_version(raised, target)
        raised.ir_version = max(8, helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", target), 8))
        check(raised)
        if operators(model) & RANDOM or target < OLDEST_WITH_KERNELS:
            continue
        after = results_of(raised, given)
        if not after:
            assert operators(model) <= WITHOUT_NEWEST_KERNEL, f"nothing runs {operators(raised)} of opset {target}"
        elif RUNTIME in before and RUNTIME in after:
            assert_all_agree(after[RUNTIME], before[RUNTIME])
        else:
            assert_any_agrees(after, before)


def assert_all_agree(found, expected):
    for one, other in zip(map(array, found), map(array, expected), strict=True):
        assert_agrees(one, other.astype(one.dtype) if is_number(other) and other.dtype.kind != "V" else other)


def assert_any_agrees(after, before):
    differences = []
    for found, expected in itertools.product(after.values(), before.values()):
        try:
            assert_all_agree(found, expected)
            return
        except AssertionError as difference:
            differences.append(difference)
    raise differences[0]


# Opsets from which on the inputs of node tests mean what the test says, whatever older schemas accept.
OTHER_MEANING = {"Scan": 9, "PRelu": 7}
OLDEST_WITH_KERNELS = 7  # of ONNX Runtime
# Neither ONNX Runtime nor the evaluator has a kernel for the newest version.
WITHOUT_NEWEST_KERNEL = {"GlobalLpPool", "MaxRoiPool"}


def chain(model, opset):
    """The operators of a model, and those that raising makes of them."""
    table = load_table()
    found = operators(model)
    return found | {row.becomes for (op, version), row in table.items() if op in found and version > opset} - {""}


ROWS = [(case, opset) for case in CASES for opset in opsets_of(case.op, case.since, case.until)]


@pytest.mark.generated(one_of=8, others=8)
@pytest.mark.parametrize(("case", "opset"), ROWS, ids=lambda one: one if isinstance(one, int) else one.op)
def test_forms_of_old(case, opset):
    model, given = model_of(case, opset)
    expected = case.results()
    results = expected or as_written(model, given) or on_evaluator(model, given)
    if results is None:
        pytest.skip("nothing runs this version")
    declare(model, map(array, results))
    if not is_valid(model):
        pytest.skip("this opset does not have the form")
    assert_raises_unchanged(model, given, opset, expected)


def redeclared(case):
    """The opsets of older versions of the operators of a node test that the test is valid in."""
    numbers = {opset for op in operators(case.model) if op in versions() for opset in opsets_of(op)}
    return sorted(numbers - {NEWEST})


def some_of_each(tests, most=12):
    """At most so many tests of an operator, spread over all of its tests; they are named after the operator."""
    by_operator = {}
    for case in tests:
        by_operator.setdefault(frozenset(operators(case.model)), []).append(case)
    return [case for found in by_operator.values() for case in found[:: -(-len(found) // most)]]


@pytest.mark.generated(one_of=24, others=16)
@pytest.mark.parametrize("case", some_of_each(NODE_TESTS), ids=lambda case: case.name)
def test_operator_tests_of_onnx_as_of_older_opsets(case):
    for opset in redeclared(case):
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        set_default_version(model, opset)
        if not is_valid(model) or any(opset < OTHER_MEANING.get(op, 0) for op in operators(model)):
            continue
        given = dict(zip([value.name for value in model.graph.input], map(array, case.data_sets[0][0]), strict=True))
        try:
            assert_raises_unchanged(model, given, opset, None)
        except pytest.skip.Exception:
            continue
