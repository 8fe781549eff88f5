"""Legacy programs become SSA graphs of `pd_op` operators, in which nothing is overwritten."""

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_paddle.lowering.rules import rules
from dovetail_paddle.signatures import operators
from dovetail_paddle.translate.transcriber import Compat, compat

from .paddle_files import ARRAY, Block, Legacy


def run(program: Legacy, folder, **inputs) -> list[np.ndarray]:
    compiled = dovetail.compile(program.save(folder), backends=["host"], try_engines=False)
    return list(compiled.run(inputs).values())


def compat_problems(entries, operators):
    """Return problems of entries that refer to unknown operators or arguments, one line each."""
    problems = []
    for entry in entries.values():
        operator = operators.get(entry.op)
        if operator is None:
            problems.append(f"'{entry.op}' is no operator of pd_ops.yaml")
            continue
        outputs = {output.name for output in operator.outputs}
        tensors = {argument.name for argument in operator.arguments if argument.is_tensor}
        attributes = {argument.name for argument in operator.arguments if not argument.is_tensor}
        for names, known, what in (
            (entry.inputs, tensors, "input"),
            (entry.outputs, outputs, "output"),
            (entry.attrs, attributes, "attribute"),
            (entry.tensor_forms, attributes, "attribute"),
        ):
            problems += [f"'{entry.op}' has no {what} '{name}'" for name in names if name not in known]
    return problems


def test_every_entry_of_op_compat_fits_an_operator():
    assert compat_problems(compat(), operators()) == []


def test_an_entry_that_does_not_fit_is_named():
    entries = {"a": Compat("swoosh", "a"), "b": Compat("relu", "b", inputs={"z": "Z"}, attrs={"q": "Q"})}
    assert compat_problems(entries, operators()) == [
        "'swoosh' is no operator of pd_ops.yaml",
        "'relu' has no input 'z'",
        "'relu' has no attribute 'q'",
    ]


def test_every_operator_has_a_rule():
    without = {"data", "fetch", "full", "full_int_array", "assign_value"}
    assert set(operators()) - set(rules()) == without
    assert set(rules()) <= set(operators())


def test_a_variable_that_is_overwritten(tmp_path):
    program = Legacy().feed("x", (2,)).var("y", (2,)).var("z", (2,))
    program.op("relu", {"X": ["x"]}, {"Out": ["y"]})
    program.op("exp", {"X": ["y"]}, {"Out": ["z"]})
    program.op("scale", {"X": ["y"]}, {"Out": ["y"]}, scale=3.0, bias=1.0, bias_after_scale=True)
    program.op("elementwise_add", {"X": ["y"], "Y": ["z"]}, {"Out": ["z"]}, axis=-1).fetch("z")
    x = np.array([-1, 2], np.float32)
    y = np.maximum(x, 0)
    np.testing.assert_allclose(run(program, tmp_path, x=x)[0], 3 * y + 1 + np.exp(y), rtol=1e-6)


def test_an_axis_of_elementwise_operators_places_the_smaller_tensor(tmp_path):
    program = Legacy().feed("x", (2, 3, 4)).feed("b", (3,)).var("y", (2, 3, 4))
    program.op("elementwise_mul", {"X": ["x"], "Y": ["b"]}, {"Out": ["y"]}, axis=1).fetch("y")
    x, b = np.random.rand(2, 3, 4).astype(np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(run(program, tmp_path, x=x, b=b)[0], x * b[:, None])


def test_a_constant_is_as_exact_as_its_text(tmp_path):
    program = Legacy().feed("x", (1,), "int64").var("c", (1,), "int64").var("y", (1,), "int64")
    program.op("fill_constant", {}, {"Out": ["c"]}, shape=[1], dtype=3, value=9.0e15, str_value="9007199254740993")
    program.op("elementwise_add", {"X": ["x"], "Y": ["c"]}, {"Out": ["y"]}, axis=-1).fetch("y")
    assert run(program, tmp_path, x=np.zeros(1, np.int64))[0] == [9007199254740993]


def test_attributes_that_are_missing_get_their_defaults(tmp_path):
    program = Legacy().feed("x", (2, 3)).var("y", (2, 3)).op("leaky_relu", {"X": ["x"]}, {"Out": ["y"]}).fetch("y")
    assert run(program, tmp_path, x=np.full((2, 3), -1, np.float32))[0][0, 0] == np.float32(-0.02)


def test_an_input_that_is_not_supported_is_refused_and_not_ignored(tmp_path):
    program = Legacy().feed("x", (2,)).feed("f", (1,)).var("y", (2,))
    program.op("pow", {"X": ["x"], "FactorTensor": ["f"]}, {"Out": ["y"]}).fetch("y")
    with pytest.raises(DovetailError, match="'pow' has an input 'FactorTensor' that is not supported"):
        dovetail.open(program.save(tmp_path))


def test_a_fused_operator_is_refused_and_not_taken_for_a_plain_one(tmp_path):
    program = Legacy().feed("x", (2, 2)).var("y", (2, 2))
    program.op("matmul_v2", {"X": ["x"], "Y": ["x"]}, {"Out": ["y"]}, fuse_activation="relu", fuse_alpha=0.0).fetch("y")
    with pytest.raises(DovetailError, match="'matmul_v2' does the work of others, too .'fuse_activation'."):
        dovetail.open(program.save(tmp_path))


def test_a_loop_carries_what_its_block_overwrites(tmp_path):
    """`while i < 5: s = s * 2 + x; i = i + 1`"""
    program = Legacy().feed("x", (2,))
    for name, dtype in (("i", "int64"), ("n", "int64"), ("going", "bool")):
        program.var(name, (1,), dtype)
    program.var("s", (2,)).var("scopes", kind=11)
    program.op("fill_constant", {}, {"Out": ["i"]}, shape=[1], dtype=3, str_value="0", value=0.0)
    program.op("fill_constant", {}, {"Out": ["n"]}, shape=[1], dtype=3, str_value="5", value=5.0)
    program.op("assign", {"X": ["x"]}, {"Out": ["s"]})
    program.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["going"]}, axis=-1)
    inner = program.block(parent=0)
    program.var("t", (2,), block=inner)
    program.op("scale", {"X": ["s"]}, {"Out": ["t"]}, in_block=inner, scale=2.0)
    program.op("elementwise_add", {"X": ["t"], "Y": ["x"]}, {"Out": ["s"]}, in_block=inner, axis=-1)
    program.op("increment", {"X": ["i"]}, {"Out": ["i"]}, in_block=inner, step=1.0)
    program.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["going"]}, in_block=inner, axis=-1)
    names = {"Out": ["s", "i", "going"], "StepScopes": ["scopes"]}
    program.op("while", {"Condition": ["going"], "X": ["s", "i", "x"]}, names, sub_block=Block(inner))
    program.fetch("s").fetch("i").fetch("going")
    x = np.array([1, -3], np.float32)
    total, count, going = run(program, tmp_path, x=x)
    np.testing.assert_allclose(total, x * (2**6 - 1))
    assert count == [5] and going.tolist() == [False]


def conditional(program: Legacy, condition: str, output: str, *ops) -> None:
    """A block that runs if a condition holds, with operators on the outer variables."""
    inner = program.block(parent=0)
    for kind, source, attributes in ops:
        program.op(kind, {"X": [source]}, {"Out": [output]}, in_block=inner, **attributes)
    program.op("conditional_block", {"Cond": [condition], "Input": ["x"]}, {"Out": [output], "Scope": ["scopes"]},
               sub_block=Block(inner), is_scalar_condition=True)  # fmt: skip


def branching() -> Legacy:
    program = Legacy().feed("x", (2,)).feed("c", (1,), "bool").var("scopes", kind=11)
    return program.var("a", (2,)).var("b", (2,)).var("y", (2,)).var("not", (1,), "bool").var("mask", (1,), "int32")


def test_two_blocks_with_opposite_conditions_are_one_if(tmp_path):
    program = branching()
    conditional(program, "c", "a", ("exp", "x", {}))
    program.op("logical_not", {"X": ["c"]}, {"Out": ["not"]})
    conditional(program, "not", "b", ("scale", "x", {"scale": -1.0}))
    program.op("cast", {"X": ["c"]}, {"Out": ["mask"]}, in_dtype=0, out_dtype=2)
    program.op("select_input", {"X": ["b", "a"], "Mask": ["mask"]}, {"Out": ["y"]}).fetch("y")
    model = dovetail.open(program.save(tmp_path))
    assert sum(node.op_type == "if" for node in model.graph) == 1
    x = np.array([1, 2], np.float32)
    np.testing.assert_allclose(run(program, tmp_path, x=x, c=np.array([True]))[0], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(run(program, tmp_path, x=x, c=np.array([False]))[0], -x)


def test_a_block_that_does_not_run_leaves_its_variables(tmp_path):
    program = branching()
    program.op("relu", {"X": ["x"]}, {"Out": ["a"]})
    conditional(program, "c", "a", ("exp", "a", {}))
    program.fetch("a")
    x = np.array([-1, 2], np.float32)
    np.testing.assert_allclose(run(program, tmp_path, x=x, c=np.array([False]))[0], np.maximum(x, 0))
    np.testing.assert_allclose(run(program, tmp_path, x=x, c=np.array([True]))[0], np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_selecting_from_blocks_whose_results_somebody_else_reads(tmp_path):
    program = branching()
    conditional(program, "c", "a", ("exp", "x", {}))
    program.op("logical_not", {"X": ["c"]}, {"Out": ["not"]})
    conditional(program, "not", "b", ("scale", "x", {"scale": -1.0}))
    program.op("cast", {"X": ["c"]}, {"Out": ["mask"]}, in_dtype=0, out_dtype=2)
    program.op("select_input", {"X": ["b", "a"], "Mask": ["mask"]}, {"Out": ["y"]}).fetch("y").fetch("a")
    x = np.array([1, 2], np.float32)
    np.testing.assert_allclose(run(program, tmp_path, x=x, c=np.array([False]))[0], -x)


def test_an_array_that_a_program_writes_twice_at_one_place(tmp_path):
    program = Legacy().feed("x", (2,)).var("i", (1,), "int64").var("items", (2,), kind=ARRAY)
    program.var("y", (2,)).var("out", (-1,)).var("sizes", (-1,), "int32").var("n", (1,), "int64")
    program.op("fill_constant", {}, {"Out": ["i"]}, shape=[1], dtype=3, str_value="0", value=0.0)
    program.op("write_to_array", {"X": ["x"], "I": ["i"]}, {"Out": ["items"]})
    program.op("relu", {"X": ["x"]}, {"Out": ["y"]})
    program.op("write_to_array", {"X": ["y"], "I": ["i"]}, {"Out": ["items"]})
    program.op("increment", {"X": ["i"]}, {"Out": ["i"]}, step=1.0)
    program.op("write_to_array", {"X": ["x"], "I": ["i"]}, {"Out": ["items"]})
    program.op("lod_array_length", {"X": ["items"]}, {"Out": ["n"]})
    program.op("tensor_array_to_tensor", {"X": ["items"]}, {"Out": ["out"], "OutIndex": ["sizes"]}, axis=0,
               use_stack=False)  # fmt: skip
    program.fetch("out").fetch("n")
    x = np.array([-1, 2], np.float32)
    out, count = run(program, tmp_path, x=x)
    np.testing.assert_array_equal(out, [0, 2, -1, 2])
    assert count == [2]


def test_a_result_that_is_an_input_or_given_twice(tmp_path):
    program = Legacy().feed("x", (2,)).var("y", (2,)).op("relu", {"X": ["x"]}, {"Out": ["y"]})
    program.fetch("x").fetch("y").fetch("y")
    x = np.array([-1, 2], np.float32)
    found = run(program, tmp_path, x=x)
    for array, wanted in zip(found, (x, np.maximum(x, 0), np.maximum(x, 0)), strict=True):
        np.testing.assert_array_equal(array, wanted)
