"""Batches in which inputs have different first extents are judged by the names that the model gives these."""

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.extents import data_extents
from dovetail_runtime.data.independent_rows import counted_together


def net(image, prompts):
    return open_text(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{image},4] image, float[{prompts},4] prompts) => (float[{image},{prompts}] scores) {{
          [turned] t = Transpose <perm = [1, 0]> (prompts)
          [product] scores = MatMul (image, t)
        }}""",
        "net",
    )


def data(images, prompts):
    numbers = np.random.default_rng(0)
    return {"image": numbers.standard_normal((images, 4), np.float32),
            "prompts": numbers.standard_normal((prompts, 4), np.float32)}  # fmt: skip


@pytest.mark.parametrize("names", [("batch", "n"), ("N", "P"), ("batch", "prompts")])
def test_a_long_batch_is_cut_beside_an_input_of_another_name(names):
    found = [{name: len(array) for name, array in feeds.items()} for feeds, _ in batches(net(*names), data(130, 5))]
    assert found == [{"image": 64, "prompts": 5}, {"image": 64, "prompts": 5}, {"image": 2, "prompts": 5}]


def test_inputs_of_one_name_and_different_lengths_are_run_whole():
    said = []
    (only,) = batches(net("N", "N"), data(130, 5), say=said.append)
    assert {len(array) for array in only[0].values()} == {130, 5}
    assert "inputs have 5 and 130 rows" in said[0]


@pytest.mark.parametrize(
    ("names", "extents"),
    [
        (("batch", "n"), {"image": (1, 4), "prompts": (5, 4)}),
        (("N", "P"), {"image": (1, 4), "prompts": (5, 4)}),
        (("n", "batch"), {"image": (8, 4), "prompts": (1, 4)}),
    ],
)
def test_only_the_batch_becomes_a_single_sample(names, extents):
    assert data_extents(net(*names), data(8, 5)) == extents


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ({"a": ("N", 8), "b": ("N", 8)}, ["a", "b"]),
        ({"a": ("N", 8), "b": ("n", 5)}, ["a"]),
        ({"a": ("n", 200), "b": ("batch_size", 5)}, ["b"]),
        ({"a": ("N", 8), "b": ("dim_0", 8), "c": ("dim_1", 5)}, ["a", "b"]),
        ({"a": ("dim_0", 8), "b": (None, 5)}, ["a", "b"]),
        ({}, []),
    ],
)
def test_inputs_are_counted_together_by_name(extents, expected):
    import onnx_ir as ir

    given = {name: (ir.SymbolicDim(extent), rows) for name, (extent, rows) in extents.items()}
    assert counted_together(given) == expected
